//! What a request says of itself: its number on the lease that it names, and what it shows of being the holder's. It decides
//! nothing.

use crate::limits::FENCE_MAX;
use core::fmt;

/// Tells a request about a lease that lives already from the other requests of the same client, so that a copy of it that
/// arrives late changes nothing. The client counts up for each lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNumber {
    number: u64,
    answered_below: u64,
}

impl RequestNumber {
    /// A number from 1 to 2^53 - 1; below `answered_below` no request of this client is open any longer.
    pub const fn new(number: u64, answered_below: u64) -> Option<Self> {
        if number == 0 || number > FENCE_MAX || answered_below > FENCE_MAX {
            return None;
        }
        Some(Self { number, answered_below })
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Below this number every request of the client was answered.
    pub const fn answered_below(self) -> u64 {
        self.answered_below
    }
}

/// What a claim was made with, and only its holder knows. It is stored with the claim, and never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u64);

impl Secret {
    /// Any number but 0.
    pub const fn new(secret: u64) -> Option<Self> {
        if secret == 0 { None } else { Some(Self(secret)) }
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a release shows of being the holder's, which decides how soon others may have what it gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// The lease or the handle. It is enough for claims that were made without a secret.
    #[default]
    Handle,
    /// The secret that the claims were made with.
    Secret(Secret),
    /// Nothing: a call that does not know of claims names the lease.
    Nothing,
}

impl Proof {
    /// The secret, if one is shown.
    pub const fn of(secret: Option<Secret>) -> Self {
        match secret {
            Some(secret) => Self::Secret(secret),
            None => Self::Handle,
        }
    }

    /// Whether a claim that was made with this secret is free at once.
    pub(crate) fn frees(self, claim: Option<Secret>) -> bool {
        match self {
            Self::Handle => claim.is_none(),
            Self::Secret(shown) => claim.is_none_or(|secret| secret == shown),
            Self::Nothing => false,
        }
    }

    /// Whether it was certainly the holder of a claim with this secret.
    pub(crate) fn is_of(self, claim: Option<Secret>) -> bool {
        matches!(self, Self::Secret(shown) if claim == Some(shown))
    }
}
