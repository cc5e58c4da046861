//! What the log tells the ledger. Commands are orders; what is answered to them is in `reply.rs`. Nothing here decides
//! anything.

use crate::actor::Attributed;
use crate::fence::{Fence, Handle};
use crate::limits::{NAME_BYTES_MAX, RULES_MIN};
use crate::mode::{Class, Epoch, Kind, Lifetime, Mode, Priority, Units};
use crate::names::{Holder, Key, Label, Labels, LeaseId, Name, Note};
use crate::registry::{Deregister, Drain, Register, SetHealth, UpdateInstance};
use crate::request::{Proof, RequestNumber, Secret};
use crate::time::{Moment, Span, Ttl};
use crate::txn::Txn;
use alloc::string::String;
use alloc::sync::Arc;
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
    /// Claim resources, on a new lease or a given one.
    Acquire(Acquire),
    /// Extend leases by their ids.
    Renew(Renew),
    /// Extend the lease behind a handle.
    RenewHandle(RenewHandle),
    /// Give a resource back.
    Release(Release),
    /// Give back a lease with all that hangs on it.
    ReleaseLease(ReleaseLease),
    /// Leave a line, or give back what was seated meanwhile.
    Cancel(Cancel),
    /// End leases, whoever holds them.
    Revoke(Revoke),
    /// End claims on a resource, whoever holds them.
    Break(Break),
    /// Give a claim to another lease.
    Transfer(Transfer),
    /// Say how many units a resource has.
    Define(Define),
    /// Define or change a class.
    SetClass(Class),
    /// Write a key, or attach it to a lease, or detach it.
    Put(Put),
    /// Remove keys.
    Delete(Delete),
    /// Compare keys, and write, remove and look at some, in one step.
    Txn(Txn),
    /// Forget what keys were before a revision of the keyspace.
    Compact(Compact),
    /// Register an instance of a service.
    Register(Register),
    /// Change what an instance says of itself.
    UpdateInstance(UpdateInstance),
    /// Keep new work from an instance, or let it have some again.
    Drain(Drain),
    /// Take an instance out.
    Deregister(Deregister),
    /// Tell what a check of an instance found.
    SetHealth(SetHealth),
    /// Any of these, with the API key that it was sent with.
    Attributed(Attributed),
}

impl Command {
    /// About how many bytes it takes in memory and in the log: what queues and entries are bounded by.
    pub fn bytes(&self) -> usize {
        let grant = |grant: &Grant| {
            let labels: usize = grant.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
            labels + grant.reason.as_str().len() + grant.holder.as_str().len()
        };
        let force = |force: &Force| force.by.as_str().len() + force.reason.as_str().len();
        64 + match self.plain() {
            Self::Grant(it) => grant(it),
            Self::Acquire(it) => {
                let names: usize = it.wants.iter().map(|want| 32 + want.resource.as_str().len()).sum();
                names + if let On::New(it) = &it.on { grant(it) } else { 0 }
            }
            Self::Renew(it) => it.leases.len() * 16,
            Self::RenewHandle(it) => it.handle.resource.as_str().len(),
            Self::Release(it) => it.handle.resource.as_str().len(),
            Self::ReleaseLease(_) => 0,
            Self::Cancel(it) => it.resources.iter().map(|name| 16 + name.as_str().len()).sum(),
            Self::Revoke(it) => force(&it.force) + NAME_BYTES_MAX,
            Self::Break(it) => force(&it.force) + it.resource.as_str().len(),
            Self::Transfer(it) => it.force.as_ref().map_or(0, force) + it.handle.resource.as_str().len(),
            Self::Define(it) => it.resource.as_str().len(),
            Self::SetClass(it) => 64 + it.name.as_str().len(),
            Self::Put(it) => it.bytes(),
            Self::Delete(it) => it.keys.bytes(),
            Self::Txn(it) => it.bytes(),
            Self::Compact(_) => 0,
            Self::Register(it) => {
                it.instance.bytes() + it.details.bytes() + if let On::New(it) = &it.on { grant(it) } else { 0 }
            }
            Self::UpdateInstance(it) => it.instance.bytes() + it.edit.bytes(),
            Self::Drain(it) => it.instance.bytes() + it.by.as_str().len() + it.reason.as_str().len(),
            Self::Deregister(it) => it.instance.bytes() + it.force.as_ref().map_or(0, force),
            Self::SetHealth(it) => it.instance.bytes() + it.check.as_str().len() + it.note.as_str().len(),
            Self::Attributed(_) => unreachable!("a plain command has no key"),
        }
    }

    /// The first version of the rules that knows all that this says. A command with a new variant or field names that version here:
    /// an older build would skip the field, and is not sent the command.
    pub fn rules(&self) -> u32 {
        match self.plain() {
            Self::Renew(_) | Self::RenewHandle(_) | Self::Release(_) | Self::ReleaseLease(_) => RULES_MIN,
            Self::Cancel(_) | Self::Revoke(_) | Self::Break(_) | Self::Delete(_) | Self::Compact(_) => RULES_MIN,
            Self::Drain(_) | Self::Deregister(_) | Self::SetHealth(_) => RULES_MIN,
            Self::Grant(_) | Self::Acquire(_) | Self::Transfer(_) | Self::Register(_) => RULES_MIN,
            Self::Define(_) | Self::SetClass(_) | Self::Put(_) | Self::Txn(_) | Self::UpdateInstance(_) => RULES_MIN,
            Self::Attributed(_) => unreachable!("a plain command has no key"),
        }
    }

    /// Whether this keeps or frees what is held. Under load these go before what asks for more.
    pub fn is_upkeep(&self) -> bool {
        match self.plain() {
            Self::Renew(_) | Self::RenewHandle(_) | Self::Release(_) | Self::ReleaseLease(_) => true,
            Self::Cancel(_) | Self::Revoke(_) | Self::Break(_) | Self::Delete(_) | Self::Compact(_) => true,
            Self::Drain(_) | Self::Deregister(_) | Self::SetHealth(_) => true,
            Self::Grant(_) | Self::Acquire(_) | Self::Transfer(_) | Self::Register(_) => false,
            Self::Define(_) | Self::SetClass(_) | Self::Put(_) | Self::Txn(_) | Self::UpdateInstance(_) => false,
            Self::Attributed(_) => unreachable!("a plain command has no key"),
        }
    }
}

/// Begin a lease. Repeated with the same id, holder and request it is the same grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The id, drawn by whoever asks.
    pub lease: LeaseId,
    /// Whose lease it is.
    pub holder: Holder,
    /// Tells a retry from another's request with the same id.
    pub request: u64,
    /// How long it lives without a renewal; if it is not said, as its class says, or 15 s without a class.
    pub ttl: Option<Ttl>,
    /// The class whose presets and policy it follows.
    pub class: Option<Name>,
    /// How long it stays held and renewable after its deadline; if it is not said, as its class says, or not at all.
    pub grace: Option<Span>,
    /// How long it may be renewed at all; if it is not said, as its class says, or for ever.
    pub lifetime: Option<Lifetime>,
    /// The lease that it ends with.
    pub parent: Option<LeaseId>,
    /// What is said about it.
    pub labels: Labels,
    /// What it is for, in a sentence.
    pub reason: Note,
}

impl Grant {
    /// A lease without class, grace, parent or labels.
    pub fn plain(lease: LeaseId, holder: Holder, ttl: Ttl, request: u64) -> Self {
        let (labels, reason) = (Labels::default(), Note::default());
        Self {
            lease,
            holder,
            request,
            ttl: Some(ttl),
            class: None,
            grace: None,
            lifetime: None,
            parent: None,
            labels,
            reason,
        }
    }
}

/// Claim resources, all or none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The lease that the claims hang on.
    pub on: On,
    /// What is claimed: at least one resource, each once.
    pub wants: Vec<Want>,
    /// What to do if they are not free.
    pub wait: Wait,
    /// How urgent it is.
    pub priority: Priority,
    /// How long each claim stays as a vacating stake after an abnormal end.
    pub lock_delay: Span,
    /// The holder's epoch, which supersedes its claims of lower epochs.
    pub epoch: Option<Epoch>,
    /// Its number among the requests about a given lease.
    pub request: Option<RequestNumber>,
    /// With which a release has to come so that the claims are free at once.
    pub secret: Option<Secret>,
}

impl Acquire {
    /// An exclusive claim on one resource.
    pub fn exclusive(on: On, resource: Name, wait: Wait) -> Self {
        let wants = alloc::vec![Want { resource, mode: Mode::Exclusive, capacity: None }];
        Self {
            on,
            wants,
            wait,
            priority: Priority::default(),
            lock_delay: Span::ZERO,
            epoch: None,
            request: None,
            secret: None,
        }
    }

    /// The lease that the claims hang on.
    pub const fn lease(&self) -> LeaseId {
        match &self.on {
            On::New(grant) => grant.lease,
            On::Given(lease) => *lease,
        }
    }
}

/// One resource that an acquire asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The resource.
    pub resource: Name,
    /// How it is claimed.
    pub mode: Mode,
    /// The capacity that is expected of it. The first to claim a resource defines it so; another one is refused.
    pub capacity: Option<Units>,
}

/// The lease that a claim hangs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// One that begins with the claim and ends when its last claim is released.
    New(Grant),
    /// One that lives already.
    Given(LeaseId),
}

/// What an acquire does if the resources are not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is refused, and nothing changes.
    Never,
    /// It joins the line.
    InLine {
        /// How long it stays there. Several resources have a limit in any case.
        limit: Option<Span>,
    },
}

impl Wait {
    /// Waiting in line without a limit of its own.
    pub const IN_LINE: Self = Self::InLine { limit: None };
}

/// Extend leases, each answered on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The leases.
    pub leases: Vec<Renewal>,
    /// What renews them.
    pub kind: Kind,
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
    /// What renews it.
    pub kind: Kind,
}

/// Give a resource back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The claim; a stale one is refused.
    pub handle: Handle,
    /// What it shows of being the holder's.
    pub proof: Proof,
}

/// Give back a lease with all that hangs on it, by its holder's will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLease {
    /// The lease.
    pub lease: LeaseId,
    /// What it shows of being the holder's.
    pub proof: Proof,
}

impl ReleaseLease {
    /// A release by the id of the lease alone.
    pub const fn plain(lease: LeaseId) -> Self {
        Self { lease, proof: Proof::Handle }
    }
}

/// Leave the lines of resources, or give back those that were seated meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The lease whose claims they are.
    pub lease: LeaseId,
    /// The resources, at least one.
    pub resources: Vec<Name>,
    /// The number of the acquire that is cancelled: claims of another one stay, and a copy of it that arrives later takes
    /// nothing.
    pub request: Option<RequestNumber>,
    /// What it shows of being the holder's.
    pub proof: Proof,
}

/// Who orders a forced end, why, and how soon the resource is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Force {
    /// Who orders it.
    pub by: Holder,
    /// Why.
    pub reason: Note,
    /// When what was held can be held again.
    pub free: Free,
}

/// When what a forced end took from its holder can be held by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// At the deadline that was promised to the old holder, or after the lock-delay of its claim.
    WhenVacated,
    /// At once. Only the fence protects what the old holder was doing.
    Now,
}

/// End leases, whoever holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// Which.
    pub which: Which,
    /// By whose order.
    pub force: Force,
}

/// Which leases a revoke ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    Lease(LeaseId),
    /// Those that hold a resource whose name starts so.
    Prefix {
        /// How the names start.
        prefix: String,
        /// Where to go on: the `next` of the reply before, or empty.
        from: String,
    },
    /// Those of a holder.
    Holder {
        /// Whose.
        holder: Holder,
        /// Where to go on.
        from: Option<LeaseId>,
    },
    /// Those with a label.
    Label {
        /// Which label.
        label: Label,
        /// Where to go on.
        from: Option<LeaseId>,
    },
}

/// End claims on a resource. A lease that was made for them ends with its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// The resource.
    pub resource: Name,
    /// Only the claim with this fence; else all that hold it.
    pub fence: Option<Fence>,
    /// By whose order.
    pub force: Force,
    /// How long the holders are left to finish and to let go. A later order replaces an earlier one.
    pub delay: Span,
}

/// Give a claim to another lease, with a new fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The claim; a stale one is refused.
    pub handle: Handle,
    /// The lease that gets it.
    pub to: LeaseId,
    /// By whose order: the holder's own if there is none. Else the claim is broken, and a seat reserved for the other.
    pub force: Option<Force>,
}

/// Say how many units a resource has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    /// The resource.
    pub resource: Name,
    /// How many; none takes the definition back.
    pub capacity: Option<Units>,
}

/// Write a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// Its value; none keeps the one it has.
    pub value: Option<Arc<[u8]>>,
    /// The lease that it hangs on from now on.
    pub lease: Hang,
}

impl Put {
    pub(crate) fn bytes(&self) -> usize {
        self.key.bytes().len() + self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// What a put does with the lease of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// The key hangs on no lease.
    Free,
    /// The key stays where it is.
    Keep,
    /// The key hangs on this lease and is deleted when it ends.
    On(LeaseId),
}

/// Remove keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Which.
    pub keys: Keys,
}

/// One key, or all in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// This one.
    One(Key),
    /// All whose bytes start so; everything, if it is empty.
    Prefix(Arc<[u8]>),
    /// All from one on.
    From {
        /// The first that can be.
        first: Arc<[u8]>,
        /// The first that is not meant any longer; none if there is no end.
        end: Option<Arc<[u8]>>,
    },
}

impl Keys {
    /// The least key that is meant, if it is there.
    pub fn first(&self) -> &[u8] {
        match self {
            Self::One(key) => key.bytes(),
            Self::Prefix(first) | Self::From { first, .. } => first,
        }
    }

    /// Whether a key is meant. All that are meant come in a row, from the first on.
    pub fn cover(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one.bytes() == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::From { first, end } => key >= &**first && end.as_ref().is_none_or(|end| key < &**end),
        }
    }

    /// How many bytes it takes to say so.
    pub fn bytes(&self) -> usize {
        let end = if let Self::From { end: Some(end), .. } = self { end.len() } else { 0 };
        self.first().len() + end
    }
}

/// Forget what keys were before a revision of the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The oldest revision that can be looked at from then on.
    pub revision: i64,
}
