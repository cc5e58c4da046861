//! Whether the replicas are equal: now and then the leader marks an entry, every node notes the hash of its ledger after
//! it, and they compare. A node that stands alone with what it has stops, and says so.

use crate::limits::{AUDIT_SHARE, AUDITS_KEPT};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The hash of a ledger after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) index: u64,
    pub(crate) hash: u64,
}

/// The newest hashes of this node, and what taking one costs.
#[derive(Debug, Default)]
pub(crate) struct Audits {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    hashes: VecDeque<Hash>,
    /// How long entries had to wait for the last one.
    held_up: Duration,
}

impl Audits {
    pub(crate) fn note(&self, hash: Hash) {
        let mut kept = self.kept();
        kept.hashes.push_back(hash);
        while kept.hashes.len() > AUDITS_KEPT {
            kept.hashes.pop_front();
        }
    }

    pub(crate) fn held_up(&self, by: Duration) {
        self.kept().held_up = by;
    }

    pub(crate) fn hashes(&self) -> Vec<Hash> {
        self.kept().hashes.iter().copied().collect()
    }

    /// How long to wait for the next one, so that what it costs stays a small share of the time.
    pub(crate) fn pause(&self, at_least: Duration) -> Duration {
        at_least.max(self.kept().held_up * AUDIT_SHARE)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry after which our own hash is outvoted by those of the others; a leader is believed when it is one word against
/// another.
pub(crate) fn outvoted(ours: &[Hash], others: &[Vec<Hash>], we_lead: bool) -> Option<u64> {
    let is_outvoted = |own: &&Hash| {
        let theirs = others.iter().flatten().filter(|other| other.index == own.index);
        let (same, different): (Vec<&Hash>, Vec<&Hash>) = theirs.partition(|other| other.hash == own.hash);
        let with_us = same.len() + 1;
        different.len() > with_us || different.len() == with_us && !we_lead
    };
    ours.iter().find(is_outvoted).map(|own| own.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(index: u64, hash: u64) -> Hash {
        Hash { index, hash }
    }

    #[test]
    fn whoever_stands_alone_is_outvoted() {
        let ours = [hash(10, 1), hash(20, 2)];
        assert_eq!(outvoted(&ours, &[vec![hash(10, 1), hash(20, 2)], vec![hash(20, 2)]], false), None);
        assert_eq!(outvoted(&ours, &[vec![hash(20, 9)], vec![hash(20, 9)]], true), Some(20));
        assert_eq!(outvoted(&ours, &[vec![hash(20, 9)], vec![hash(20, 2)]], false), None, "the other one is wrong");
        assert_eq!(outvoted(&ours, &[vec![hash(30, 9)], vec![]], false), None, "nothing to compare");
        assert_eq!(outvoted(&ours, &[vec![hash(10, 9)]], false), Some(10), "one word against the leader's");
        assert_eq!(outvoted(&ours, &[vec![hash(10, 9)]], true), None, "the leader's word");
    }

    #[test]
    fn it_costs_a_small_share_of_the_time() {
        let audits = Audits::default();
        assert_eq!(audits.pause(Duration::from_secs(60)), Duration::from_secs(60));
        audits.held_up(Duration::from_millis(400));
        assert!(audits.pause(Duration::from_secs(60)) >= Duration::from_secs(400));
    }
}
