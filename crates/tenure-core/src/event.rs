//! What happened, numbered alike on every node. Renewals make no event.

use crate::actor::ApiKeyName;
use crate::fence::Fence;
use crate::mode::{Epoch, Mode, Units};
use crate::names::{Holder, Key, LeaseId, Name, Note};
use crate::registry::{Health, InstanceKey, Judgement, Word};
use crate::time::Moment;

/// The count of visible changes: +1 for each, one for a whole lease tree that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// How a lease or a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its holder gave it back.
    Released,
    /// Its deadline, and its grace if it had one, passed without a renewal.
    Expired,
    /// Somebody else ended it.
    Revoked {
        /// Who did.
        by: Holder,
        /// Why, in their words.
        reason: Note,
    },
    /// The lease that it hung on ended.
    ParentEnded {
        /// That lease: the first of its tree to end.
        parent: LeaseId,
    },
    /// Its holder came back with a higher epoch.
    Superseded,
    /// Its deadline passed, and its maximum lifetime had kept renewals from moving it.
    MaxLifetime,
    /// It waited in line as long as it had said it would, and was not seated.
    WaitedOut,
    /// The instance was critical for longer than it may be.
    Unhealthy,
    /// Its holder gave the claim to somebody else.
    Transferred {
        /// To whom.
        to: Holder,
    },
}

/// Why a waiter left its line without having held the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It was cancelled.
    Cancelled,
    /// Its lease ended.
    LeaseEnded,
    /// Its wait limit was reached.
    WaitedOut,
    /// Its holder came back with a higher epoch.
    Superseded,
    /// The capacity was set lower than what it asked for.
    TooBig,
    /// It was given the claim, or a reserved seat, by a transfer.
    Transferred,
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
    /// The API key of the command that made it happen; none of what falls due, and without keys.
    pub api_key: Option<ApiKeyName>,
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
        /// How long it lives without a renewal, in milliseconds.
        ttl_ms: u64,
        /// The lease that it ends with.
        parent: Option<LeaseId>,
        /// Its class.
        class: Option<Name>,
    },
    /// A lease joined the line of a resource.
    Queued {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// Whose it is.
        holder: Holder,
        /// How it wants to hold it.
        mode: Mode,
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
        /// How it holds it.
        mode: Mode,
        /// How long the lease lives from now without a renewal, in milliseconds.
        ttl_ms: u64,
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
        /// Until when it stays as a vacating stake; none if it is free at once.
        until: Option<Moment>,
    },
    /// A vacating stake is over.
    Freed {
        /// The resource.
        resource: Name,
        /// The lease that once held it.
        lease: LeaseId,
        /// The fence that it held it with.
        fence: Fence,
    },
    /// Somebody ordered that a claim be broken later.
    Breaking {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// The fence of the claim.
        fence: Fence,
        /// When it will be broken.
        at: Moment,
        /// By whose order.
        by: Holder,
        /// Why.
        reason: Note,
    },
    /// A waiter left the line without having held the resource.
    Left {
        /// The resource.
        resource: Name,
        /// The lease.
        lease: LeaseId,
        /// Why.
        why: Leave,
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
    /// The capacity of a resource was defined by an order, or is no longer.
    Defined {
        /// The resource.
        resource: Name,
        /// How many units it has by that order; none if the definition was taken back.
        capacity: Option<Units>,
    },
    /// A class was defined or changed.
    ClassSet {
        /// Its name.
        class: Name,
    },
    /// A key was written.
    Put {
        /// The key.
        key: Key,
        /// The lease that it hangs on.
        lease: Option<LeaseId>,
        /// The keyspace's revision of this change.
        kv_revision: u64,
        /// How often the key was written since it was created.
        version: u64,
    },
    /// A key was deleted, by an order or with its lease.
    Deleted {
        /// The key.
        key: Key,
        /// The lease that it hung on.
        lease: Option<LeaseId>,
        /// The keyspace's revision of this change.
        kv_revision: u64,
    },
    /// An instance was registered. If it took the place of one of a lower epoch, that one ended at the same revision.
    Registered {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
        /// Whose it is.
        holder: Holder,
        /// How often it has started.
        epoch: Option<Epoch>,
    },
    /// An instance says something else of itself.
    Updated {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
    },
    /// An instance takes no new work.
    Drained {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
        /// By whose order.
        by: Holder,
        /// Why.
        reason: Note,
    },
    /// An instance takes work again.
    Undrained {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
        /// By whose order.
        by: Holder,
        /// Why.
        reason: Note,
    },
    /// The health of an instance changed, or that of one of its checks.
    HealthChanged {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
        /// The check, and what it says now; none if only time has passed.
        check: Option<(Word, Health)>,
        /// What is shown of the instance.
        overall: Health,
        /// Until when it is shown so because it flaps.
        held_until: Option<Moment>,
    },
    /// An instance is gone.
    Deregistered {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hung on.
        lease: LeaseId,
        /// How it ended.
        how: End,
    },
    /// An instance is silent together with so many others that it is kept for a while.
    Suspected {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
        /// Until when it is kept if it stays silent.
        until: Moment,
        /// What was found.
        judgement: Judgement,
    },
    /// A suspect instance was renewed.
    Cleared {
        /// The instance.
        instance: InstanceKey,
        /// The lease that it hangs on.
        lease: LeaseId,
    },
}

impl Happening {
    /// The lease that this happened to, if it is about one.
    pub const fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Granted { lease, .. }
            | Self::Queued { lease, .. }
            | Self::Seated { lease, .. }
            | Self::Vacated { lease, .. }
            | Self::Freed { lease, .. }
            | Self::Breaking { lease, .. }
            | Self::Left { lease, .. }
            | Self::Ended { lease, .. }
            | Self::Registered { lease, .. }
            | Self::Updated { lease, .. }
            | Self::Drained { lease, .. }
            | Self::Undrained { lease, .. }
            | Self::HealthChanged { lease, .. }
            | Self::Deregistered { lease, .. }
            | Self::Suspected { lease, .. }
            | Self::Cleared { lease, .. } => Some(*lease),
            Self::Put { lease, .. } | Self::Deleted { lease, .. } => *lease,
            Self::Defined { .. } | Self::ClassSet { .. } => None,
        }
    }

    /// The resource that this happened to, if it is about one.
    pub const fn resource(&self) -> Option<&Name> {
        match self {
            Self::Queued { resource, .. }
            | Self::Seated { resource, .. }
            | Self::Vacated { resource, .. }
            | Self::Freed { resource, .. }
            | Self::Breaking { resource, .. }
            | Self::Left { resource, .. }
            | Self::Defined { resource, .. } => Some(resource),
            _ => None,
        }
    }

    /// The instance that this happened to, if it is about one.
    pub const fn instance(&self) -> Option<&InstanceKey> {
        match self {
            Self::Registered { instance, .. }
            | Self::Updated { instance, .. }
            | Self::Drained { instance, .. }
            | Self::Undrained { instance, .. }
            | Self::HealthChanged { instance, .. }
            | Self::Deregistered { instance, .. }
            | Self::Suspected { instance, .. }
            | Self::Cleared { instance, .. } => Some(instance),
            _ => None,
        }
    }

    /// Whether this happened to a resource, or to an instance as `SERVICE/ID`, whose name starts so.
    pub fn is_under(&self, prefix: &str) -> bool {
        match (self.resource(), self.instance()) {
            (Some(name), _) => name.as_str().starts_with(prefix),
            (None, Some(instance)) => instance.starts_with(prefix),
            (None, None) => false,
        }
    }

    /// Whether this happened to the resource of this name, or to the instance that is called so.
    pub fn is_of(&self, name: &str) -> bool {
        match (self.resource(), self.instance()) {
            (Some(resource), _) => resource.as_str() == name,
            (None, Some(instance)) => instance.bytes() + 1 == name.len() && instance.starts_with(name),
            (None, None) => false,
        }
    }

    /// The key that this happened to, if it is about one.
    pub const fn key(&self) -> Option<&Key> {
        match self {
            Self::Put { key, .. } | Self::Deleted { key, .. } => Some(key),
            _ => None,
        }
    }
}
