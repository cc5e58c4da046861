//! What happened, numbered alike on every node. Renewals make no event.

use crate::fence::Fence;
use crate::names::{Holder, LeaseId, Name, Note};
use crate::time::{Moment, Ttl};

/// The count of visible changes: +1 for each, one for a whole lease that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// How a lease or a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its holder gave it back.
    Released,
    /// Its deadline passed without a renewal.
    Expired,
    /// Somebody else ended it.
    Revoked {
        /// Who did.
        by: Holder,
        /// Why, in their words.
        reason: Note,
    },
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The visible change that this belongs to.
    pub revision: Revision,
    /// Its place within that change, from 0.
    pub n: u32,
    /// Whether it is the last of that change.
    pub last: bool,
    /// When, in service time.
    pub at: Moment,
    /// When, by the leader's wall clock: shown to people, never compared.
    pub wall_ms: u64,
    /// What.
    pub what: Happening,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A lease began.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Whose it is.
        holder: Holder,
        /// How long it lives without a renewal.
        ttl: Ttl,
    },
    /// A lease joined the line of a resource.
    Queued {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// Whose it is.
        holder: Holder,
    },
    /// A claim started to hold its resource.
    Seated {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// Whose it is.
        holder: Holder,
        /// The fence of this claim.
        fence: Fence,
        /// How long the lease lives from now without a renewal.
        ttl: Ttl,
    },
    /// A holding claim ended.
    Vacated {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// The fence that ended with it.
        fence: Fence,
        /// How.
        how: End,
    },
    /// A waiter left the line without having held the resource.
    Left {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
    },
    /// A lease ended, with all that hung on it.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// Whose it was.
        holder: Holder,
        /// How.
        how: End,
    },
}

impl Happening {
    /// The lease that this happened to.
    pub const fn lease(&self) -> LeaseId {
        match self {
            Self::Granted { lease, .. }
            | Self::Queued { lease, .. }
            | Self::Seated { lease, .. }
            | Self::Vacated { lease, .. }
            | Self::Left { lease, .. }
            | Self::Ended { lease, .. } => *lease,
        }
    }

    /// The resource that this happened to, if it is about one.
    pub const fn resource(&self) -> Option<&Name> {
        match self {
            Self::Queued { resource, .. }
            | Self::Seated { resource, .. }
            | Self::Vacated { resource, .. }
            | Self::Left { resource, .. } => Some(resource),
            Self::Granted { .. } | Self::Ended { .. } => None,
        }
    }
}
