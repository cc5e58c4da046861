//! What the log tells the ledger, and what the ledger answers. Commands are orders, replies the yes, refusals the
//! reasoned no. Nothing here decides anything.

use crate::event::{End, Revision};
use crate::fence::{Fence, Handle};
use crate::names::{Holder, LeaseId, Name, Note};
use crate::time::{Moment, Ttl};
use alloc::vec::Vec;

/// Which leadership stamped an entry. An entry that another one put into the log changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leader {
    /// Raft's term.
    pub term: u64,
    /// The node that led in it.
    pub node: u64,
}

/// One entry of the log: what was asked, and what time it is. Without commands it is a tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Who stamped it.
    pub leader: Leader,
    /// The service time at which it was stamped.
    pub now: Moment,
    /// The wall clock at that time: shown to people, never compared.
    pub wall_ms: u64,
    /// The version of the rules by which it is applied.
    pub rules: u32,
    /// What was asked, in order.
    pub commands: Vec<Command>,
}

/// An order to the ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Begin a lease.
    Grant(Grant),
    /// Claim a resource, on a new lease or a given one.
    Acquire(Acquire),
    /// Extend leases by their ids.
    Renew(Renew),
    /// Extend the lease behind a handle.
    RenewHandle(RenewHandle),
    /// Give a resource back.
    Release(Release),
    /// Leave a line, or give the resource back if the claim was seated meanwhile.
    Cancel(Cancel),
    /// End a lease, whoever holds it.
    Revoke(Revoke),
}

impl Command {
    /// Renewals are applied before the sweep of their entry, so that a renewal in time by the log is in time.
    pub const fn is_renewal(&self) -> bool {
        matches!(self, Self::Renew(_) | Self::RenewHandle(_))
    }

    /// Whether this keeps or frees what is held. Under load these go before what asks for more.
    pub const fn is_upkeep(&self) -> bool {
        !matches!(self, Self::Grant(_) | Self::Acquire(_))
    }
}

/// Begin a lease. Repeated with the same id, holder and request it is the same grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The id, drawn by whoever asks.
    pub lease: LeaseId,
    /// Whose lease it is.
    pub holder: Holder,
    /// How long it lives without a renewal.
    pub ttl: Ttl,
    /// Tells a retry from another's request with the same id.
    pub request: u64,
}

/// Claim a resource exclusively.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The lease that the claim hangs on.
    pub on: On,
    /// The resource.
    pub resource: Name,
    /// What to do if it is not free.
    pub wait: Wait,
}

/// The lease that a claim hangs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// One that begins with the claim and ends when its last claim is released.
    New(Grant),
    /// One that lives already.
    Given(LeaseId),
}

/// What an acquire does if the resource is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is refused, and nothing changes.
    Never,
    /// It joins the line.
    InLine,
}

/// Extend leases, each answered on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The leases.
    pub leases: Vec<Renewal>,
}

/// One lease to extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The lease.
    pub lease: LeaseId,
    /// Another TTL from now on; a shorter one never moves the deadline earlier.
    pub ttl: Option<Ttl>,
}

/// Extend the lease behind a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewHandle {
    /// The claim; a stale one is refused.
    pub handle: Handle,
    /// Another TTL from now on; a shorter one never moves the deadline earlier.
    pub ttl: Option<Ttl>,
}

/// Give a resource back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The claim; a stale one is refused.
    pub handle: Handle,
}

/// Leave a line, or give back what was seated meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The lease whose claim it is.
    pub lease: LeaseId,
    /// The resource.
    pub resource: Name,
}

/// End a lease at once, with all that hangs on it. Only the fence protects what its holder was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// The lease.
    pub lease: LeaseId,
    /// Who orders it.
    pub by: Holder,
    /// Why.
    pub reason: Note,
}

/// The answer to one command.
pub type Outcome = Result<Reply, Refusal>;

/// The yes.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The lease lives.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Its effective TTL in milliseconds, from which its holder counts. For a retry it is what is left.
        ttl_ms: u64,
        /// The ledger's revision after this command.
        revision: Revision,
    },
    /// The claim holds its resource.
    Seated(Seat),
    /// The claim stands in line.
    Waiting {
        /// The lease.
        lease: LeaseId,
        /// Its place, from 1.
        place: u64,
        /// The effective TTL of the lease in milliseconds; it must be renewed while it waits.
        ttl_ms: u64,
        /// The ledger's revision after this command.
        revision: Revision,
    },
    /// Each lease's own answer, in the order asked.
    Renewed(Vec<Result<Renewed, Refusal>>),
    /// The lease behind the handle was extended.
    HandleRenewed(Renewed),
    /// The resource was given back, now or by an earlier try.
    Released,
    /// The claim is gone from the line or from its seat.
    Cancelled,
    /// The lease was ended, now or by an earlier try.
    Revoked,
}

/// A claim that holds its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The lease.
    pub lease: LeaseId,
    /// The fence that the holder shows wherever it writes.
    pub fence: Fence,
    /// The effective TTL of the lease in milliseconds. For a retry it is what is left.
    pub ttl_ms: u64,
    /// The ledger's revision after this command.
    pub revision: Revision,
}

/// A lease that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The lease.
    pub lease: LeaseId,
    /// Its effective TTL, from which its holder counts.
    pub ttl: Ttl,
}

/// The reasoned no: the service worked, nothing changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Another lease has this id.
    #[error("lease {lease} exists already and belongs to {holder}")]
    Exists {
        /// The id.
        lease: LeaseId,
        /// Whose lease it is.
        holder: Holder,
    },
    /// No lease has this id, and none that is remembered had it.
    #[error("there is no lease {lease}")]
    NoLease {
        /// The id.
        lease: LeaseId,
    },
    /// The lease ended.
    #[error("lease {lease} has ended")]
    Lapsed {
        /// The id.
        lease: LeaseId,
        /// How it ended.
        how: End,
        /// When, in service time.
        when: Moment,
        /// When, by the wall clock of the leader of that time.
        wall_ms: u64,
    },
    /// Somebody else holds the resource, or is about to.
    #[error("{resource} is held by {holder}")]
    Taken {
        /// The resource.
        resource: Name,
        /// Who holds it, or is first in line for it.
        holder: Holder,
        /// The fence of the holding claim; none while the next in line takes its seat.
        fence: Option<Fence>,
        /// How long that lease lives without a renewal.
        remaining_ms: u64,
        /// How many wait.
        waiting: u64,
    },
    /// The handle's claim is not the one that holds the resource.
    #[error("{handle} is stale")]
    Stale {
        /// The handle that was shown.
        handle: Handle,
        /// Who holds the resource now, and with which fence.
        current: Option<(Holder, Fence)>,
        /// How and when (service time, wall clock) the handle's claim ended, if that is remembered.
        ended: Option<(End, Moment, u64)>,
    },
    /// The lease has no claim on this resource.
    #[error("lease {lease} has no claim on {resource}")]
    NoClaim {
        /// The lease.
        lease: LeaseId,
        /// The resource.
        resource: Name,
    },
    /// A limit is reached.
    #[error("no room: {what} may be at most {max}")]
    Full {
        /// What is counted.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}
