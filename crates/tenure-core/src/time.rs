//! Points and spans of service time. They are told, never read from a clock.

use crate::limits::{TTL_MS_MAX, TTL_MS_MIN};
use core::fmt;

/// A point in service time: milliseconds since the ledger began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `ms` milliseconds after the ledger began.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the ledger began.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The moment one `ttl` later.
    pub const fn after(self, ttl: Ttl) -> Self {
        Self(self.0.saturating_add(ttl.0))
    }

    /// The moment one span later.
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Milliseconds from `earlier` to this moment, or none if it is not earlier.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a lease lives from its grant or its last renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// A TTL of `ms` milliseconds; out of range is refused with the range, never silently changed.
    pub const fn from_millis(ms: u64) -> Result<Self, BadTtl> {
        if ms < TTL_MS_MIN || ms > TTL_MS_MAX { Err(BadTtl { ms }) } else { Ok(Self(ms)) }
    }

    /// The span in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

/// A length of time other than a TTL: a grace, a delay, a limit. It may be nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ms` milliseconds, if it is no longer than `max_ms`.
    pub const fn at_most(ms: u64, max_ms: u64) -> Result<Self, BadSpan> {
        if ms > max_ms { Err(BadSpan { ms, max_ms }) } else { Ok(Self(ms)) }
    }

    /// The span in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl From<Ttl> for Span {
    fn from(ttl: Ttl) -> Self {
        Self(ttl.0)
    }
}

/// A span that is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ms} ms is more than {max_ms} ms")]
pub struct BadSpan {
    /// What was asked for.
    pub ms: u64,
    /// The longest that is accepted.
    pub max_ms: u64,
}

/// A TTL outside the range that leases may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a TTL of {ms} ms is outside {min} ms to {max} ms", min = TTL_MS_MIN, max = TTL_MS_MAX)]
pub struct BadTtl {
    /// What was asked for.
    pub ms: u64,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
