//! The waiters of one resource, in the order in which they will be seated. It never looks at a lease.

use crate::limits::PLACE_MAX;
use alloc::collections::BTreeSet;
use core::ops::Bound;

/// Where a waiter stands: its arrival less what its priority is worth, then the number of its arrival. It is fixed when
/// it arrives, so everybody moves up and nobody starves.
pub(super) type OrderKey = (i128, u64);

/// The waiters of one resource, by order key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    order: BTreeSet<OrderKey>,
    /// The same by arrival, so that the longest wait is known.
    arrivals: BTreeSet<u64>,
}

impl Line {
    pub(super) fn join(&mut self, key: OrderKey) {
        let is_new = self.order.insert(key) && self.arrivals.insert(key.1);
        assert!(is_new, "every arrival has its own number");
    }

    pub(super) fn leave(&mut self, key: OrderKey) {
        let was_there = self.order.remove(&key) && self.arrivals.remove(&key.1);
        assert!(was_there, "every waiter has its place in the line");
    }

    pub(super) fn holds(&self, arrival: u64) -> bool {
        self.arrivals.contains(&arrival)
    }

    pub(super) fn first(&self) -> Option<OrderKey> {
        self.order.first().copied()
    }

    /// The arrival of whoever has waited longest.
    pub(super) fn longest(&self) -> Option<u64> {
        self.arrivals.first().copied()
    }

    /// The place of a waiter, from 1. Beyond `PLACE_MAX` it is not counted further.
    pub(super) fn place(&self, key: OrderKey) -> u64 {
        self.order.range(..=key).take(PLACE_MAX).count() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All waiters, next first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = OrderKey> {
        self.order.iter().copied()
    }

    /// Those who stand from one key on and before another.
    pub(super) fn between(&self, from: Option<OrderKey>, key: OrderKey) -> impl Iterator<Item = OrderKey> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        self.order.range((from, Bound::Excluded(key))).copied()
    }

    /// Those who stand before this key.
    pub(super) fn before(&self, key: OrderKey) -> impl Iterator<Item = OrderKey> {
        self.order.range(..key).copied()
    }
}
