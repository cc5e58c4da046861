//! What flapping costs: points that halve by themselves, in whole numbers, so that every node counts alike.

use crate::limits::{HELD_MS_MAX, PENALTY_FALL, PENALTY_FREE, PENALTY_HALF_MS, PENALTY_HELD, PENALTY_MAX};
use crate::time::{Moment, Span};

/// The points of an instance. They grow with each fall and halve every minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    pub(crate) points: u64,
    pub(crate) since: Moment,
}

impl Penalty {
    /// The points at a moment that is not before the last fall. Within a half-life they fall along a straight line, so
    /// that they never jump: `p` whole half-lives and `r` ms later they are `points / 2^p`, less `r / 120000` of that.
    pub fn at(&self, now: Moment) -> u64 {
        let passed_ms = now.millis_since(self.since);
        let halvings = u32::try_from(passed_ms / PENALTY_HALF_MS).unwrap_or(u32::MAX);
        let left = self.points.checked_shr(halvings).unwrap_or_default();
        left - left * (passed_ms % PENALTY_HALF_MS) / (2 * PENALTY_HALF_MS)
    }

    /// The points after one more fall.
    pub(crate) fn fallen(self, now: Moment) -> Self {
        Self { points: (self.at(now) + PENALTY_FALL).min(PENALTY_MAX), since: now }
    }

    /// Until when an instance that comes back now is held down; none if it has not fallen often enough.
    pub(crate) fn held_until(&self, now: Moment) -> Option<Moment> {
        if self.at(now) < PENALTY_HELD {
            return None;
        }
        let longest = now.plus(Span::at_most(HELD_MS_MAX, HELD_MS_MAX).expect("it is the longest"));
        Some(self.falls_below(PENALTY_FREE, now, longest))
    }

    /// The first moment of a stretch at which the points are below a mark; its end, if that is not before.
    fn falls_below(&self, mark: u64, from: Moment, to: Moment) -> Moment {
        let (mut above, mut below) = (from.millis(), to.millis());
        while below - above > 1 {
            let middle = above.midpoint(below);
            if self.at(Moment::from_millis(middle)) < mark { below = middle } else { above = middle }
        }
        Moment::from_millis(below)
    }
}
