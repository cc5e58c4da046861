//! The requests about its claims and instances that a lease remembers, so that late and repeated copies change nothing. They
//! are forgotten with the lease, and never because of other leases.

use super::Ledger;
use crate::limits::ANSWERED_MAX;
use crate::names::LeaseId;
use crate::reply::{Outcome, Refusal};
use crate::request::RequestNumber;
use alloc::collections::BTreeSet;

/// Which numbers were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Every number below this one.
    below: u64,
    /// And these, none of which is below.
    answered: BTreeSet<u64>,
}

impl Requests {
    /// From a snapshot. None if it is not how they are kept.
    pub(super) fn restored(below: u64, answered: &[u64]) -> Option<Self> {
        let set: BTreeSet<u64> = answered.iter().copied().collect();
        let is_kept_so = set.len() == answered.len() && set.len() <= ANSWERED_MAX && !set.contains(&below);
        (is_kept_so && set.first().is_none_or(|first| *first > below)).then_some(Self { below, answered: set })
    }

    pub(super) const fn below(&self) -> u64 {
        self.below
    }

    pub(super) fn answered(&self) -> impl Iterator<Item = u64> {
        self.answered.iter().copied()
    }

    pub(super) fn is_answered(&self, number: u64) -> bool {
        number < self.below || self.answered.contains(&number)
    }

    /// Remembers a number. When there are too many, everything up to the lowest counts as answered: a request that is so
    /// far behind is refused, which is safe.
    pub(super) fn note(&mut self, request: RequestNumber) {
        self.below = self.below.max(request.answered_below());
        self.answered.insert(request.number());
        while let Some(first) = self.answered.first().copied() {
            if first > self.below && self.answered.len() <= ANSWERED_MAX {
                return;
            }
            self.answered.pop_first();
            self.below = self.below.max(first + 1);
        }
    }
}

impl Ledger {
    /// Whether a request about this lease was answered before.
    pub(super) fn is_answered(&self, lease: LeaseId, request: RequestNumber) -> bool {
        self.leases.get(&lease).is_some_and(|lease| lease.requests.is_answered(request.number()))
    }

    /// Remembers that a request was answered, unless it is certain to be asked again with the same number.
    pub(super) fn note_answered(&mut self, lease: LeaseId, request: RequestNumber, outcome: &Outcome) {
        if matches!(outcome, Err(Refusal::Overloaded { .. })) {
            return;
        }
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.requests.note(request);
        }
    }
}
