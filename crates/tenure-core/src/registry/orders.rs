//! What is asked of the registry.

use super::{Details, Edit, Health, InstanceKey, Word};
use crate::command::{Force, On};
use crate::mode::Epoch;
use crate::names::{Holder, LeaseId, Note};
use crate::request::RequestNumber;

/// Register an instance, on a lease that is made for it or on one that lives already. With the id and the request of a
/// lease that was made for it, it is the same registration; on the lease that it hangs on already, it replaces what the
/// instance says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Which instance.
    pub instance: InstanceKey,
    /// How often it has started, by its own count: a higher one takes the place of a lower one.
    pub epoch: Option<Epoch>,
    /// The lease that it hangs on. A new one is of class `registration` unless it says otherwise.
    pub on: On,
    /// What it says of itself.
    pub details: Details,
    /// Its number among the requests about a given lease.
    pub request: Option<RequestNumber>,
}

impl Register {
    /// The lease that the instance hangs on.
    pub const fn lease(&self) -> LeaseId {
        match &self.on {
            On::New(grant) => grant.lease,
            On::Given(lease) => *lease,
        }
    }
}

/// Change what an instance says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateInstance {
    /// Which instance.
    pub instance: InstanceKey,
    /// Only if it hangs on this lease.
    pub lease: Option<LeaseId>,
    /// What is to be said otherwise.
    pub edit: Edit,
}

/// Keep new work from an instance, or let it have some again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Which instance.
    pub instance: InstanceKey,
    /// Only if it hangs on this lease.
    pub lease: Option<LeaseId>,
    /// Whether it drains from now on.
    pub on: bool,
    /// By whose order.
    pub by: Holder,
    /// Why.
    pub reason: Note,
}

/// Take an instance out. A lease that was made for it ends with it, unless something else hangs on that lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deregister {
    /// Which instance.
    pub instance: InstanceKey,
    /// Only if it hangs on this lease.
    pub lease: Option<LeaseId>,
    /// By whose order, if it is not the instance's own will.
    pub force: Option<Force>,
    /// The number of the registration that is taken back: an instance of a later one stays, and a copy of it that arrives
    /// later registers nothing.
    pub request: Option<RequestNumber>,
}

/// Tell what a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHealth {
    /// Which instance.
    pub instance: InstanceKey,
    /// The lease that it hung on when it was looked at: what was found is said of that life and of no other.
    pub lease: LeaseId,
    /// Which check.
    pub check: Word,
    /// What it found.
    pub health: Health,
    /// In words.
    pub note: Note,
}
