//! Fences and the handles that carry them. A fence only ever grows; this file never gives one out.

use crate::limits::FENCE_MAX;
use crate::names::{BadText, Name};
use core::fmt;

/// The fencing token of a holding claim: strictly increasing over the whole ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The fence with this number, if a ledger could have given it out.
    pub const fn from_number(number: u64) -> Option<Self> {
        if number == 0 || number > FENCE_MAX { None } else { Some(Self(number)) }
    }

    /// The fence as a number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What people and scripts pass around: `jobs/nightly@7`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The resource.
    pub resource: Name,
    /// The fence that was given with it.
    pub fence: Fence,
}

impl Handle {
    /// Reads `name@fence`, split at the last `@`.
    pub fn parse(text: &str) -> Result<Self, BadHandle> {
        let (name, fence) = text.rsplit_once('@').ok_or(BadHandle::NoFence)?;
        let resource = Name::parse(name).map_err(BadHandle::Name)?;
        let plain = !fence.is_empty() && fence.bytes().all(|b| b.is_ascii_digit());
        let number = if plain { fence.parse().ok() } else { None };
        let fence = number.and_then(Fence::from_number).ok_or(BadHandle::Fence)?;
        Ok(Self { resource, fence })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.resource, self.fence)
    }
}

/// Why a text cannot be a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHandle {
    /// There is no `@`.
    #[error("it has no `@`: a handle reads NAME@FENCE, as `tenure acquire` prints it")]
    NoFence,
    /// What stands before the last `@` is not a name.
    #[error("its name is not one: {0}")]
    Name(BadText),
    /// What stands after the last `@` is not a fence.
    #[error("what follows the last `@` is not a fence: a whole number from 1 to 2^53 - 1")]
    Fence,
}
