//! Everything that falls due by itself, in order. A renewal leaves its lease where it was armed; the sweep moves it on
//! when it gets there. That is right because a deadline only ever moves later; the one end that a renewal may bring
//! nearer, that of a suspect, is moved at once.

use crate::fence::Fence;
use crate::names::LeaseId;
use crate::time::Moment;
use alloc::collections::BTreeSet;

/// What falls due. At one moment the kinds go in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A lease ends.
    Lease(LeaseId),
    /// A waiter, by its arrival, has waited long enough.
    Wait(u64),
    /// A vacating stake, by its fence, is over.
    Free(Fence),
    /// A claim, by its fence, is broken as ordered.
    Break(Fence),
    /// What was pushed for a check of an instance, by their numbers, holds no longer.
    Stale(u64, u8),
    /// An instance, by its number, is held down no longer.
    Held(u64),
    /// An instance, by its number, was critical for too long.
    Unhealthy(u64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Wheel {
    armed: BTreeSet<(Moment, Due)>,
}

impl Wheel {
    pub(super) fn arm(&mut self, at: Moment, due: Due) {
        self.armed.insert((at, due));
    }

    pub(super) fn disarm(&mut self, at: Moment, due: Due) {
        let was_armed = self.armed.remove(&(at, due));
        assert!(was_armed, "whatever falls due is armed where it says");
    }

    pub(super) fn rearm(&mut self, from: Moment, due: Due, to: Moment) {
        self.disarm(from, due);
        self.arm(to, due);
    }

    /// The first thing armed at `now` or before.
    pub(super) fn due(&self, now: Moment) -> Option<(Moment, Due)> {
        self.armed.first().copied().filter(|(at, _)| *at <= now)
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.armed.first().map(|(at, _)| *at)
    }
}
