//! How many keys a command may look at, and how many bytes it may answer. Both are counted before anything is changed, and
//! alike on every node, whether or not it sends the answer to a client.

use crate::limits::{ENTRY_ANSWER_BYTES_MAX, TXN_BYTES_EACH, TXN_BYTES_MAX, TXN_KEYS_MAX};
use crate::reply::Refusal;

/// What one entry may still answer.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Room {
    bytes: usize,
    /// Whether a client waits for the answers. If none does they are counted, and not made.
    wanted: bool,
}

impl Room {
    pub(in crate::ledger) const fn whole(wanted: bool) -> Self {
        Self { bytes: ENTRY_ANSWER_BYTES_MAX, wanted }
    }

    pub(super) const fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// What the next command may look at and answer. It may answer a little in any case, so that ordinary commands are not
    /// refused because of a large one before them.
    pub(super) fn budget(&self) -> Budget {
        let keys = Allowance::new("keys that one transaction looks at", TXN_KEYS_MAX, TXN_KEYS_MAX);
        let bytes = Allowance::new("bytes that one transaction answers", self.bytes.max(TXN_BYTES_EACH), TXN_BYTES_MAX);
        Budget { keys, bytes }
    }

    /// Takes off what a command answers, also one that was refused. Returns how many keys it looked at.
    pub(super) const fn settle(&mut self, budget: &Budget) -> usize {
        self.bytes = self.bytes.saturating_sub(budget.bytes.used);
        budget.keys.used
    }
}

/// What one command may look at and answer.
#[derive(Debug)]
pub(super) struct Budget {
    keys: Allowance,
    bytes: Allowance,
}

impl Budget {
    /// Of a read that is not in the log.
    pub(super) fn alone() -> Self {
        Room::whole(true).budget()
    }

    pub(super) fn look(&mut self) -> Result<(), Refusal> {
        self.keys.use_up(1)
    }

    pub(super) fn answer(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes.use_up(bytes)
    }
}

#[derive(Debug)]
struct Allowance {
    what: &'static str,
    used: usize,
    given: usize,
    /// What a command that is alone in its entry may use.
    max: usize,
}

impl Allowance {
    const fn new(what: &'static str, left: usize, max: usize) -> Self {
        Self { what, used: 0, given: if left < max { left } else { max }, max }
    }

    fn use_up(&mut self, more: usize) -> Result<(), Refusal> {
        if more <= self.given - self.used {
            self.used += more;
            return Ok(());
        }
        self.used = self.given;
        let (what, max) = (self.what.into(), self.max);
        Err(if self.given == max { Refusal::Full { what, max } } else { Refusal::Overloaded { what, max } })
    }
}
