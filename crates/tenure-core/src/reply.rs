//! What the ledger answers: replies are the yes, refusals the reasoned no with all its facts. Nothing here decides
//! anything.

use crate::actor::ApiKeyName;
use crate::event::{End, Revision};
use crate::fence::{Fence, Handle};
use crate::mode::{Mode, Policy, Units};
use crate::names::{Holder, Key, LeaseId, Name};
use crate::registry::{BadDetails, Health, InstanceKey, Word};
use crate::time::Moment;
use crate::txn::TxnDone;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

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
    /// The claims hold their resources.
    Seated(Seat),
    /// The claims stand in line.
    Waiting(Place),
    /// Each lease's own answer, in the order asked.
    Renewed(Vec<Result<Renewed, Refusal>>),
    /// The lease behind the handle was extended.
    HandleRenewed(Renewed),
    /// The resource or the lease was given back; a resource, now or by an earlier try.
    Released {
        /// How long it takes until others may have all of it: 0 if this release freed it, or an earlier one ended it.
        free_in_ms: u64,
    },
    /// The lease was given back by an earlier try.
    AlreadyReleased,
    /// The claims are gone from their lines or from their seats.
    Cancelled,
    /// The leases were ended, now or by an earlier try.
    Revoked {
        /// How many ended now.
        count: u64,
        /// Where to go on if there may be more: a resource's name or a lease's number.
        next: Option<String>,
    },
    /// The claims were broken, or will be.
    Broken {
        /// How many.
        claims: u64,
        /// How long it takes at most until nothing of them is left, if nobody orders otherwise and nobody renews.
        free_in_ms: u64,
    },
    /// The resource has so many units.
    Defined {
        /// How many; one unless it is said otherwise.
        capacity: Units,
    },
    /// The class is as ordered.
    ClassSet,
    /// The key was written.
    Put {
        /// The keyspace's revision after this command.
        kv_revision: u64,
        /// How often the key was written since it was created.
        version: u64,
    },
    /// The keys are gone.
    Deleted {
        /// How many there were.
        count: u64,
        /// The keyspace's revision after this command.
        kv_revision: u64,
    },
    /// The transaction was done, one way or the other.
    Txn(TxnDone),
    /// What keys were before is forgotten.
    Compacted {
        /// The keyspace's revision, which this does not change.
        kv_revision: u64,
    },
    /// The instance is registered.
    Registered(Registered),
    /// The instance says of itself what was asked for.
    Updated {
        /// The ledger's revision after this command.
        revision: Revision,
    },
    /// The instance drains, or does not any longer, as ordered.
    Drained {
        /// The ledger's revision after this command.
        revision: Revision,
    },
    /// The instance is gone, now or by an earlier try.
    Deregistered {
        /// The ledger's revision after this command.
        revision: Revision,
    },
    /// What the check found is known.
    HealthSet {
        /// What is shown of the instance.
        overall: Health,
        /// How long it will be shown so because it flaps, in milliseconds.
        held_ms: Option<u64>,
        /// The ledger's revision after this command.
        revision: Revision,
    },
}

/// An instance that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The lease that it hangs on.
    pub lease: LeaseId,
    /// The effective TTL of the lease in milliseconds. For a retry it is what is left.
    pub ttl_ms: u64,
    /// What is shown of the instance.
    pub overall: Health,
    /// How long it will be shown so because it flaps, in milliseconds.
    pub held_ms: Option<u64>,
    /// The ledger's revision after this command.
    pub revision: Revision,
}

/// Claims that hold their resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The lease.
    pub lease: LeaseId,
    /// Each resource with the fence that the holder shows wherever it writes, in the order asked.
    pub claims: Vec<Handle>,
    /// The effective TTL of the lease in milliseconds. For a retry it is what is left.
    pub ttl_ms: u64,
    /// The ledger's revision after this command.
    pub revision: Revision,
}

/// Claims that stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The lease.
    pub lease: LeaseId,
    /// Its place, from 1; of several lines, the place that is furthest back.
    pub place: u64,
    /// The effective TTL of the lease in milliseconds; it must be renewed while it waits.
    pub ttl_ms: u64,
    /// The ledger's revision after this command.
    pub revision: Revision,
}

/// A lease that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The lease.
    pub lease: LeaseId,
    /// Its effective TTL in milliseconds, from which its holder counts.
    pub ttl_ms: u64,
    /// Whether its maximum lifetime has cut that TTL: no renewal moves the deadline further.
    pub is_final: bool,
    /// How many wait for what it holds.
    pub waiting: u64,
    /// How long the longest of them has waited, in milliseconds.
    pub longest_wait_ms: u64,
    /// In how many milliseconds the first of its claims will be broken, if somebody has ordered that.
    pub breaks_in_ms: Option<u64>,
    /// How many of its claims were ended against its holder's will while it lived on. What a renewal promises is not
    /// promised for them.
    pub lost: u64,
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
    /// A lease cannot hang on itself.
    #[error("lease {lease} cannot be its own parent")]
    OwnParent {
        /// The lease.
        lease: LeaseId,
    },
    /// There is no such class.
    #[error("there is no class {class}")]
    NoClass {
        /// What was asked for.
        class: Name,
    },
    /// The TTL is outside what the class allows.
    #[error("a TTL of {ttl_ms} ms is outside {min_ms} ms to {max_ms} ms, the range of class {class}")]
    TtlOfClass {
        /// The class.
        class: Name,
        /// What was asked for.
        ttl_ms: u64,
        /// The shortest that the class allows.
        min_ms: u64,
        /// The longest that the class allows.
        max_ms: u64,
    },
    /// The class of the lease does not allow this kind of renewal.
    #[error("lease {lease} is of class {class}, which is renewed by: {policy}")]
    NotRenewable {
        /// The lease.
        lease: LeaseId,
        /// Its class.
        class: Name,
        /// What renews it.
        policy: Policy,
    },
    /// The resource cannot be had now.
    #[error("{resource} is {state} {holder}")]
    Taken {
        /// The resource.
        resource: Name,
        /// Who is in the way: a holder, the last holder of a vacating claim, or the first in line.
        holder: Holder,
        /// In which way.
        state: Occupied,
        /// The fence of the claim that is in the way; none if it stands in line.
        fence: Option<Fence>,
        /// Since when it is held, by the wall clock of the leader of that time; none if it is not held.
        since_wall_ms: Option<u64>,
        /// How long the claim in the way lasts without a renewal.
        remaining_ms: u64,
        /// How many wait.
        waiting: u64,
    },
    /// The handle's claim is not one that holds the resource.
    #[error("{handle} is stale")]
    Stale {
        /// The handle that was shown.
        handle: Handle,
        /// Who holds the resource now, and with which fence; the first of several.
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
    /// A request with this number was answered before, or its client said so. A copy of it changes nothing.
    #[error("request {number} about lease {lease} was answered before")]
    Answered {
        /// The lease.
        lease: LeaseId,
        /// The number.
        number: u64,
    },
    /// The lease has a claim on this resource in another mode. There is no silent upgrade.
    #[error("lease {lease} has a claim on {resource} already, and it is {has}, not {asked}")]
    OtherMode {
        /// The lease.
        lease: LeaseId,
        /// The resource.
        resource: Name,
        /// The mode of its claim.
        has: Mode,
        /// The mode that was asked for.
        asked: Mode,
    },
    /// The lease has a claim on one of the resources, and not the same on all.
    #[error("lease {lease} has a claim on {resource} already: ask for the others alone")]
    Claimed {
        /// The lease.
        lease: LeaseId,
        /// The resource.
        resource: Name,
    },
    /// The resource has another capacity than was expected.
    #[error("{resource} has a capacity of {capacity}, not {expected}")]
    OtherCapacity {
        /// The resource.
        resource: Name,
        /// What it has.
        capacity: Units,
        /// What was expected.
        expected: Units,
    },
    /// More units are asked for than the resource has.
    #[error("{asked} units are more than the {capacity} that {resource} has")]
    TooBig {
        /// The resource.
        resource: Name,
        /// What it has.
        capacity: Units,
        /// What was asked for.
        asked: Units,
    },
    /// To wait would close a circle of leases that wait for each other.
    #[error("waiting for {resource} would be a deadlock")]
    WouldDeadlock {
        /// What cannot be waited for.
        resource: Name,
        /// The holders around the circle, from who asks to who waits for it.
        circle: Vec<Holder>,
    },
    /// Several resources cannot be waited for so long.
    #[error("{asked_ms} ms is longer than the {max_ms} ms that several resources may be waited for")]
    WaitTooLong {
        /// What was asked for.
        asked_ms: u64,
        /// The longest wait.
        max_ms: u64,
    },
    /// The holder has claimed this resource in a higher epoch.
    #[error("{holder} has claimed {resource} in epoch {current} already, and {asked} is older")]
    OlderEpoch {
        /// Whose epoch it is.
        holder: Holder,
        /// The resource.
        resource: Name,
        /// What was asked with.
        asked: u64,
        /// The highest that is known.
        current: u64,
    },
    /// Nobody holds the resource.
    #[error("nobody holds {resource}")]
    NotHeld {
        /// The resource.
        resource: Name,
    },
    /// There is no such key to attach or detach.
    #[error("there is no such key")]
    NoKey {
        /// The key.
        key: Key,
    },
    /// What keys were at this revision is forgotten.
    #[error("what keys were before revision {compacted} is forgotten")]
    Compacted {
        /// The oldest revision that can be looked at.
        compacted: u64,
    },
    /// The keyspace has not come to this revision.
    #[error("the keyspace has come to revision {kv_revision} only")]
    NotYet {
        /// How far it has come.
        kv_revision: u64,
    },
    /// There is no such instance.
    #[error("there is no instance {instance}")]
    NoInstance {
        /// What was asked for.
        instance: InstanceKey,
        /// How and when (service time, wall clock) the last one ended, if that is remembered.
        ended: Option<(End, Moment, u64)>,
    },
    /// Another lease has an instance of this id.
    #[error("instance {instance} exists already and belongs to {holder}: it takes a higher epoch to replace it")]
    InstanceExists {
        /// The instance.
        instance: InstanceKey,
        /// Whose it is.
        holder: Holder,
        /// In which epoch it was registered.
        epoch: Option<u64>,
        /// How long it stays without a renewal, in milliseconds.
        remaining_ms: u64,
    },
    /// The instance was registered in a higher epoch.
    #[error("instance {instance} was registered in epoch {current} already, and {asked} is older")]
    OlderInstance {
        /// The instance.
        instance: InstanceKey,
        /// What was asked with.
        asked: u64,
        /// The highest that is known.
        current: u64,
    },
    /// The instance does not hang on this lease.
    #[error("instance {instance} does not hang on lease {lease}: it belongs to {holder}")]
    OtherLease {
        /// The instance.
        instance: InstanceKey,
        /// The lease that was named.
        lease: LeaseId,
        /// Whose the instance is.
        holder: Holder,
    },
    /// The instance has no such check.
    #[error("instance {instance} has no check {check}")]
    NoCheck {
        /// The instance.
        instance: InstanceKey,
        /// What was asked for.
        check: Word,
    },
    /// The instance cannot be as it was to be changed.
    #[error("instance {instance} cannot be changed so: {why}")]
    BadInstance {
        /// The instance.
        instance: InstanceKey,
        /// Why.
        why: BadDetails,
    },
    /// A limit is reached.
    #[error("no room: {what} may be at most {max}")]
    Full {
        /// What is counted.
        what: Cow<'static, str>,
        /// The limit.
        max: usize,
    },
    /// The API key may not do this.
    #[error("the API key {key} may not {what}")]
    Denied {
        /// The key.
        key: ApiKeyName,
        /// What it may not do.
        what: Cow<'static, str>,
    },
    /// As many leases live that were begun with the API key as it may have.
    #[error("the API key {key} may have {max} leases at once, and has them")]
    TooManyLeases {
        /// The key.
        key: ApiKeyName,
        /// Its limit.
        max: u32,
    },
    /// Commands before it in the same entry of the log have used up what they share. It can be repeated at once.
    #[error("too much at once: {what} are shared with other commands, and at most {max}; ask again")]
    Overloaded {
        /// What is counted.
        what: Cow<'static, str>,
        /// What a command that is alone may use.
        max: usize,
    },
}

/// In which way a resource is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// A claim holds it.
    Held,
    /// A claim on it has ended and is vacating.
    Vacating,
    /// Others wait for it.
    InLine,
}

impl core::fmt::Display for Occupied {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Held => "held by",
            Self::Vacating => "still vacating after",
            Self::InLine => "waited for by",
        })
    }
}
