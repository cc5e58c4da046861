//! The operator: ends claims and leases of others now and then. Whoever held them may go on until what was promised to
//! it has run out, so nobody else may be seated before, unless the operator is impatient.

use crate::book::Book;
use crate::client::Client;
use crate::dice::Dice;
use crate::ground::true_time;
use std::time::Duration;
use tenure_core::{Break, Command, Force, Free, Holder, Name, Note, Reply, Revoke, Span, Which, limits};
use tokio::time::{Instant, sleep};

pub(crate) struct Operator {
    pub(crate) resources: Vec<Name>,
    pub(crate) client: Client,
    pub(crate) dice: Dice,
    pub(crate) book: Book,
    pub(crate) origin: Instant,
    pub(crate) until: Duration,
    pub(crate) free: Free,
}

impl Operator {
    pub(crate) async fn live(self) {
        while true_time(self.origin) < self.until {
            sleep(self.dice.ms(3_000, 20_000)).await;
            let order = if self.dice.one_in(3) { self.revoke() } else { self.break_claims() };
            let answer = self.client.ask(order, Duration::from_secs(5)).await;
            if let Some(Ok(Reply::Broken { claims: count, .. } | Reply::Revoked { count, .. })) = answer {
                self.book.forced(count);
                self.book.note(true_time(self.origin), &format!("the operator ends {count}"));
            }
        }
    }

    fn resource(&self) -> &Name {
        &self.resources[self.dice.between(0, self.resources.len() as u64 - 1) as usize]
    }

    fn force(&self) -> Force {
        let by = Holder::parse("operator").expect("this is a name");
        Force { by, reason: Note::default(), free: self.free }
    }

    fn revoke(&self) -> Command {
        let which = Which::Prefix { prefix: self.resource().to_string(), from: String::new() };
        Command::Revoke(Revoke { which, force: self.force() })
    }

    fn break_claims(&self) -> Command {
        let delay_ms = if self.dice.one_in(2) { 0 } else { self.dice.between(1, 4_000) };
        let delay = Span::at_most(delay_ms, limits::BREAK_DELAY_MS_MAX).expect("a few seconds are in range");
        Command::Break(Break { resource: self.resource().clone(), fence: None, force: self.force(), delay })
    }
}
