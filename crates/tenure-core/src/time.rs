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
