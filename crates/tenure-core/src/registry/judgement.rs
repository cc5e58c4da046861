//! When the silence of many is taken for one failure, not for many: the arithmetic of docs/grace.md, in whole numbers.

use crate::limits::{COHORT_MIN, SUSPECT_MS_MAX};
use crate::time::{Moment, Span, Ttl};

/// What was found when a lease fell silent and its cohort was looked at: the leases of class `registration` with an
/// instance of the same service in the same zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// When, in service time.
    pub at: Moment,
    /// How many leases there were.
    pub members: u64,
    /// How many of them were late.
    pub late: u64,
}

impl Judgement {
    /// So many late ones are more than independent failures explain: four standard deviations above what is expected if
    /// one in twenty is late at any time, and two more.
    pub const fn threshold(&self) -> u64 {
        self.members / 20 + (self.members * 19 / 25).isqrt() + 2
    }

    /// Whether the silence of so many is one failure, so that each is given more time.
    pub const fn is_correlated(&self) -> bool {
        self.members >= COHORT_MIN && self.late >= self.threshold()
    }
}

/// How long a lease is silent before it is late: one and a half of its usual gaps, but no later than half way from there
/// to its end, and no earlier than a quarter of its TTL. Half of its TTL, if no gap was measured.
pub(crate) fn late_after_ms(gap_ms: u64, ttl: Ttl) -> u64 {
    let ttl_ms = ttl.millis();
    if gap_ms == 0 {
        return ttl_ms / 2;
    }
    // The TTL may have been shortened since.
    let gap_ms = gap_ms.min(ttl_ms);
    (gap_ms + gap_ms / 2).min(gap_ms.midpoint(ttl_ms)).max(ttl_ms / 4)
}

/// How much more time a suspect lease is given, from its deadline on.
pub(crate) fn suspect_for(ttl: Ttl) -> Span {
    let ms = ttl.millis().saturating_mul(2).min(SUSPECT_MS_MAX);
    Span::at_most(ms, SUSPECT_MS_MAX).expect("it is the least of both")
}

/// The moving average of the gaps between renewals, in which the newest counts one eighth. 0 is none.
pub(crate) const fn next_gap_ms(gap_ms: u64, newest_ms: u64) -> u64 {
    if gap_ms == 0 { newest_ms } else { (gap_ms * 7 + newest_ms) / 8 }
}
