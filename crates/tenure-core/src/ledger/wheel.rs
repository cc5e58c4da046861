//! The deadlines of all leases, in order. A renewal leaves its lease where it was armed; the sweep moves it on when it
//! gets there. That is right because a deadline only ever moves later.

use crate::names::LeaseId;
use crate::time::Moment;
use alloc::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(super) struct Wheel {
    armed: BTreeSet<(Moment, LeaseId)>,
}

impl Wheel {
    pub(super) fn arm(&mut self, at: Moment, lease: LeaseId) {
        self.armed.insert((at, lease));
    }

    pub(super) fn disarm(&mut self, at: Moment, lease: LeaseId) {
        let was_armed = self.armed.remove(&(at, lease));
        assert!(was_armed, "every living lease is armed where it says");
    }

    pub(super) fn rearm(&mut self, from: Moment, lease: LeaseId, to: Moment) {
        self.disarm(from, lease);
        self.arm(to, lease);
    }

    /// The first lease armed at `now` or before.
    pub(super) fn due(&self, now: Moment) -> Option<(Moment, LeaseId)> {
        self.armed.first().copied().filter(|(at, _)| *at <= now)
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.armed.first().map(|(at, _)| *at)
    }
}
