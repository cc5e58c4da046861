//! What befalls one client: links of it stall and break, one or all of them, and its process does not run for a while.

use super::wire::{Uplink, Way};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::machine::Site;
use std::time::Duration;
use tokio::time::sleep;

pub(super) struct Trouble {
    pub(super) uplink: Uplink,
    pub(super) dice: Dice,
    pub(super) site: Site,
    pub(super) until: Duration,
}

/// The longest quiet times between two strikes, in milliseconds: one of them for a whole run.
const QUIET_MS_MAX: [u64; 3] = [4_000, 10_000, 20_000];

impl Trouble {
    pub(super) async fn rage(self) {
        let quiet_ms_max = QUIET_MS_MAX[self.dice.between(0, QUIET_MS_MAX.len() as u64 - 1) as usize];
        loop {
            sleep(self.dice.ms(300, quiet_ms_max)).await;
            if self.site.now() >= self.until || !self.site.net.is_rough() {
                return;
            }
            self.strike().await;
        }
    }

    async fn strike(&self) {
        let links = self.uplink.links();
        let Some(newest) = links.last() else { return };
        let fault = match self.dice.between(0, 9) {
            0 | 1 => {
                self.uplink.stall(*newest, self.ways(), self.dice.ms(500, 8_000));
                Fault::LinkStall
            }
            2 => {
                self.uplink.cut(self.ways(), self.dice.ms(300, 6_000));
                Fault::ClientCut
            }
            3..=6 => {
                self.cut_one_way_after_the_other().await;
                Fault::ClientCut
            }
            7 => {
                self.uplink.break_link(*newest);
                Fault::LinkBreak
            }
            8 => {
                links.iter().for_each(|link| self.uplink.break_link(*link));
                Fault::LinkBreak
            }
            _ => {
                self.uplink.pause(self.dice.ms(200, 5_000));
                Fault::ClientPause
            }
        };
        self.site.tally.count(fault);
    }

    /// Answers come late, and before they have come, no request passes any longer.
    async fn cut_one_way_after_the_other(&self) {
        let late_ms = self.dice.between(300, 2_000);
        self.uplink.cut(&[Way::Back], Duration::from_millis(late_ms));
        sleep(self.dice.ms(0, late_ms)).await;
        self.uplink.cut(&[Way::There], self.dice.ms(2_000, 9_000));
    }

    fn ways(&self) -> &'static [Way] {
        match self.dice.between(0, 2) {
            0 => &[Way::There],
            1 => &[Way::Back],
            _ => &[Way::There, Way::Back],
        }
    }
}
