//! A reader: asks any node for what is certain, and knows what was acknowledged before it asked.

use crate::dice::Dice;
use crate::machine::Site;
use std::time::Duration;
use tokio::time::sleep;

pub(crate) struct Reader {
    pub(crate) site: Site,
    pub(crate) dice: Dice,
    pub(crate) until: Duration,
}

impl Reader {
    pub(crate) async fn read(self) {
        while self.site.now() < self.until {
            sleep(self.dice.ms(50, 1_500)).await;
            let machine = self.dice.between(0, self.site.net.machines() as u64 - 1) as usize;
            let Some(node) = self.site.net.node(machine) else { continue };
            let (debts, applied) = (self.site.book.debts(), self.site.book.applied());
            let Ok(unpaid) = node.read(|ledger, _| debts.unpaid(ledger)).await else { continue };
            for what in unpaid {
                self.site.broken("S10", &format!("machine {machine}: {what}"));
            }
            if node.status().applied < applied {
                self.site.broken("S11", &format!("machine {machine} answers without entry {applied}"));
            }
        }
    }
}
