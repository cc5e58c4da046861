//! The waiters of one resource, in the order in which they will be seated. It never looks at a lease.

use crate::limits::PLACE_MAX;
use crate::names::LeaseId;
use alloc::collections::BTreeMap;

/// The waiters of one resource, by order key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    waiters: BTreeMap<u64, LeaseId>,
}

impl Line {
    pub(super) fn join(&mut self, arrival: u64, lease: LeaseId) {
        let before = self.waiters.insert(arrival, lease);
        assert!(before.is_none(), "every arrival has its own number");
    }

    pub(super) fn leave(&mut self, arrival: u64) {
        let waiter = self.waiters.remove(&arrival);
        assert!(waiter.is_some(), "every waiting stake has its place in the line");
    }

    pub(super) fn holds(&self, arrival: u64) -> bool {
        self.waiters.contains_key(&arrival)
    }

    pub(super) fn first(&self) -> Option<(u64, LeaseId)> {
        self.waiters.first_key_value().map(|(arrival, lease)| (*arrival, *lease))
    }

    /// The place of an arrival, from 1. Beyond `PLACE_MAX` it is not counted further.
    pub(super) fn place(&self, arrival: u64) -> u64 {
        self.waiters.range(..=arrival).take(PLACE_MAX).count() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.waiters.values().copied()
    }
}
