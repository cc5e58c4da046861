//! Whether the replicas are equal: now and then the leader marks an entry, every node notes the hash of its ledger after
//! it, and they compare. A node that a majority contradicts stops, and says so.

use crate::limits::{AUDIT_SHARE, AUDITS_KEPT};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a ledger is hashed: it rises with every change of what a snapshot holds, because that is what is hashed.
pub(crate) const HASH_VERSION: u32 = 1;

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

/// What the hashes of others say of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All that can be compared is equal.
    Equal,
    /// Somebody holds something else after this entry, and no majority says who is right.
    Differs(u64),
    /// More than half of the voters hold the same after this entry, and we do not.
    Outvoted(u64),
}

pub(crate) fn judge(ours: &[Hash], others: &[Vec<Hash>], voters: usize) -> Verdict {
    let mut verdict = Verdict::Equal;
    for own in ours {
        let theirs: Vec<u64> = others.iter().flatten().filter(|it| it.index == own.index).map(|it| it.hash).collect();
        let agree = |hash: u64| theirs.iter().filter(|other| **other == hash).count();
        let different = theirs.iter().copied().filter(|hash| *hash != own.hash);
        match different.map(agree).max() {
            Some(count) if 2 * count > voters => return Verdict::Outvoted(own.index),
            Some(_) => verdict = Verdict::Differs(own.index),
            None => {}
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(index: u64, hash: u64) -> Hash {
        Hash { index, hash }
    }

    #[test]
    fn only_a_majority_of_the_voters_outvotes_anybody() {
        let ours = [hash(10, 1), hash(20, 2)];
        let three = |others: &[Vec<Hash>]| judge(&ours, others, 3);
        assert_eq!(three(&[vec![hash(10, 1), hash(20, 2)], vec![hash(20, 2)]]), Verdict::Equal);
        assert_eq!(three(&[vec![hash(20, 9)], vec![hash(20, 9)]]), Verdict::Outvoted(20));
        assert_eq!(three(&[vec![hash(20, 9)], vec![hash(20, 2)]]), Verdict::Differs(20), "the other one is wrong");
        assert_eq!(three(&[vec![hash(20, 9)], vec![]]), Verdict::Differs(20), "one word against another");
        assert_eq!(three(&[vec![hash(20, 9)], vec![hash(20, 8)]]), Verdict::Differs(20), "three words");
        assert_eq!(three(&[vec![hash(30, 9)], vec![]]), Verdict::Equal, "nothing to compare");
        assert_eq!(judge(&ours, &[vec![hash(10, 9)]], 2), Verdict::Differs(10));
    }

    #[test]
    fn it_costs_a_small_share_of_the_time() {
        let audits = Audits::default();
        assert_eq!(audits.pause(Duration::from_secs(60)), Duration::from_secs(60));
        audits.held_up(Duration::from_millis(400));
        assert!(audits.pause(Duration::from_secs(60)) >= Duration::from_secs(400));
    }
}
