//! The meddler: a client that ends what keepers hold: it releases their claims by handle, breaks them, and revokes their leases.
//! Their holders may go on until what was promised to them has run out.

use super::judge::Judge;
use super::program::PREFIX;
use crate::client::Client;
use crate::dice::Dice;
use crate::machine::Site;
use std::time::Duration;
use tenure_core::{
    Break, Command, Fence, Force, Free, Handle, Holder, Note, Proof, Release, Reply, Revoke, Span, Which, limits,
};
use tokio::time::sleep;

pub(super) struct Meddler {
    pub(super) client: Client,
    pub(super) dice: Dice,
    pub(super) judge: Judge,
    pub(super) site: Site,
    pub(super) until: Duration,
}

impl Meddler {
    pub(super) async fn live(self) {
        // In some runs it does little, so that claims end otherwise.
        let quiet_ms_max = if self.dice.one_in(2) { 5_000 } else { 60_000 };
        while self.site.now() < self.until {
            sleep(self.dice.ms(500, quiet_ms_max)).await;
            let Some(order) = self.order() else { continue };
            let answer = self.client.ask(order, Duration::from_secs(5)).await;
            if let Some(Ok(Reply::Broken { claims: count, .. } | Reply::Revoked { count, .. })) = answer {
                self.site.book.forced(count);
            }
            self.site.note("the meddler has ended what keepers hold");
        }
    }

    fn order(&self) -> Option<Command> {
        let handles = self.judge.handles();
        let at = self.dice.between(0, (handles.len() as u64).checked_sub(1)?) as usize;
        let (resource, fence) = handles.into_iter().nth(at)?;
        let by = Holder::parse("meddler").expect("this is a name");
        let force = Force { by, reason: Note::default(), free: Free::WhenVacated };
        Some(match self.dice.between(0, 5) {
            0..=3 => {
                let fence = Fence::from_number(fence).expect("it was a fence");
                Command::Release(Release { handle: Handle { resource, fence }, proof: Proof::Handle })
            }
            4 => {
                let delay = Span::at_most(self.dice.between(0, 3_000), limits::BREAK_DELAY_MS_MAX).ok()?;
                Command::Break(Break { resource, fence: None, force, delay })
            }
            _ => Command::Revoke(Revoke { which: Which::Prefix { prefix: PREFIX.into(), from: String::new() }, force }),
        })
    }
}
