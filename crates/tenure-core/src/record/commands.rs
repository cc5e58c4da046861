//! The shape of commands on disk.

use super::keys::{KeysRecord, PutRecord, TxnRecord};
use super::registry::{DeregisterRecord, DrainRecord, HealthRecord, RegisterRecord, UpdateRecord};
use super::requests::{ActorRecord, NumberRecord, ReleaseLeaseRecord, number, number_record, proof, secret_number};
use super::{
    ClassRecord, Damage, LifetimeRecord, ModeRecord, class, class_record, epoch, fence, holder, label_pairs, labels,
    lease_id, lease_or_none, lifetime, lifetime_record, mode, mode_record, name, name_or_none, note, priority, span,
    ttl_or_none, units_number, units_or_none,
};
use crate::command::{
    Acquire, Break, Cancel, Command, Compact, Define, Delete, Force, Free, Grant, Keys, On, Put, Release, ReleaseLease,
    Renew, RenewHandle, Renewal, Revoke, Transfer, Wait, Want, Which,
};
use crate::fence::{Fence, Handle};
use crate::limits::{BREAK_DELAY_MS_MAX, GRACE_MS_MAX, LOCK_DELAY_MS_MAX, RESOURCES_MAX, TTL_MS_MAX};
use crate::mode::{Epoch, Kind};
use crate::names::{Label, LeaseId, Name};
use crate::registry::{Deregister, Drain, Register, SetHealth, UpdateInstance};
use crate::request::{Proof, Secret};
use crate::time::{Span, Ttl};
use crate::txn::Txn;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommandRecord {
    #[prost(oneof = "CommandKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21")]
    kind: Option<CommandKind>,
    #[prost(message, optional, tag = "22")]
    actor: Option<ActorRecord>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum CommandKind {
    #[prost(message, tag = "1")]
    Grant(GrantRecord),
    #[prost(message, tag = "2")]
    Acquire(AcquireRecord),
    #[prost(message, tag = "3")]
    Renew(RenewRecord),
    #[prost(message, tag = "4")]
    RenewHandle(HandleRecord),
    #[prost(message, tag = "5")]
    Release(HandleRecord),
    #[prost(message, tag = "6")]
    Cancel(CancelRecord),
    #[prost(message, tag = "7")]
    Revoke(RevokeRecord),
    #[prost(message, tag = "8")]
    ReleaseLease(ReleaseLeaseRecord),
    #[prost(message, tag = "9")]
    Break(BreakRecord),
    #[prost(message, tag = "10")]
    Transfer(TransferRecord),
    #[prost(message, tag = "11")]
    Define(DefineRecord),
    #[prost(message, tag = "12")]
    SetClass(ClassRecord),
    #[prost(message, tag = "13")]
    Put(PutRecord),
    #[prost(message, tag = "14")]
    Delete(KeysRecord),
    #[prost(message, tag = "15")]
    Txn(TxnRecord),
    #[prost(sint64, tag = "16")]
    Compact(i64),
    #[prost(message, tag = "17")]
    Register(RegisterRecord),
    #[prost(message, tag = "18")]
    UpdateInstance(UpdateRecord),
    #[prost(message, tag = "19")]
    Drain(DrainRecord),
    #[prost(message, tag = "20")]
    Deregister(DeregisterRecord),
    #[prost(message, tag = "21")]
    SetHealth(HealthRecord),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GrantRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(fixed64, tag = "4")]
    request: u64,
    #[prost(string, tag = "5")]
    class: String,
    #[prost(uint64, optional, tag = "6")]
    grace_ms: Option<u64>,
    #[prost(message, optional, tag = "7")]
    lifetime: Option<LifetimeRecord>,
    #[prost(fixed64, tag = "8")]
    parent: u64,
    #[prost(btree_map = "string, string", tag = "9")]
    labels: BTreeMap<String, String>,
    #[prost(string, tag = "10")]
    reason: String,
}

#[derive(Clone, PartialEq, Message)]
struct AcquireRecord {
    /// The new lease; absent when the claims hang on a given one.
    #[prost(message, optional, tag = "1")]
    grant: Option<GrantRecord>,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(message, repeated, tag = "3")]
    wants: Vec<WantRecord>,
    #[prost(bool, tag = "4")]
    in_line: bool,
    #[prost(uint64, optional, tag = "5")]
    wait_limit_ms: Option<u64>,
    #[prost(sint32, tag = "6")]
    priority: i32,
    #[prost(uint64, tag = "7")]
    lock_delay_ms: u64,
    #[prost(uint64, tag = "8")]
    epoch: u64,
    #[prost(message, optional, tag = "9")]
    request: Option<NumberRecord>,
    #[prost(fixed64, tag = "10")]
    secret: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WantRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    mode: Option<ModeRecord>,
    #[prost(uint32, tag = "3")]
    capacity: u32,
}

#[derive(Clone, PartialEq, Message)]
struct RenewRecord {
    #[prost(fixed64, repeated, tag = "1")]
    leases: Vec<u64>,
    /// Empty when every lease keeps its TTL; else one for each lease, 0 for those that keep theirs.
    #[prost(uint64, repeated, tag = "2")]
    ttls_ms: Vec<u64>,
    /// 0 auto, 1 touch, 2 explicit.
    #[prost(uint32, tag = "3")]
    kind: u32,
}

#[derive(Clone, PartialEq, Message)]
struct HandleRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
    /// For a renewal: 0 keeps the TTL.
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    /// For a renewal: 0 auto, 1 touch, 2 explicit.
    #[prost(uint32, tag = "4")]
    kind: u32,
    /// For a release.
    #[prost(fixed64, tag = "5")]
    secret: u64,
    #[prost(bool, tag = "6")]
    shows_nothing: bool,
}

#[derive(Clone, PartialEq, Message)]
struct CancelRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, repeated, tag = "2")]
    resources: Vec<String>,
    #[prost(message, optional, tag = "3")]
    request: Option<NumberRecord>,
    #[prost(fixed64, tag = "4")]
    secret: u64,
    #[prost(bool, tag = "5")]
    shows_nothing: bool,
}

/// By whose order, why, and whether what was held is free at once.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForceRecord {
    #[prost(string, tag = "1")]
    by: String,
    #[prost(string, tag = "2")]
    reason: String,
    #[prost(bool, tag = "3")]
    now: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RevokeRecord {
    #[prost(message, optional, tag = "1")]
    force: Option<ForceRecord>,
    #[prost(oneof = "WhichRecord", tags = "2, 3, 4, 5")]
    which: Option<WhichRecord>,
    /// Where to go on: a resource's name.
    #[prost(string, tag = "6")]
    from_name: String,
    /// Where to go on: a lease.
    #[prost(fixed64, tag = "7")]
    from_lease: u64,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum WhichRecord {
    #[prost(fixed64, tag = "2")]
    Lease(u64),
    #[prost(string, tag = "3")]
    Prefix(String),
    #[prost(string, tag = "4")]
    Holder(String),
    #[prost(message, tag = "5")]
    Label(LabelRecord),
}

#[derive(Clone, PartialEq, Message)]
struct LabelRecord {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct BreakRecord {
    #[prost(message, optional, tag = "1")]
    force: Option<ForceRecord>,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(uint64, tag = "3")]
    fence: u64,
    #[prost(uint64, tag = "4")]
    delay_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct TransferRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
    #[prost(fixed64, tag = "3")]
    to: u64,
    #[prost(message, optional, tag = "4")]
    force: Option<ForceRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct DefineRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint32, tag = "2")]
    capacity: u32,
}

impl Command {
    pub(super) fn record(&self) -> CommandRecord {
        let kind = match self.plain() {
            Self::Grant(grant) => CommandKind::Grant(grant.record()),
            Self::Acquire(acquire) => CommandKind::Acquire(acquire.record()),
            Self::Renew(renew) => CommandKind::Renew(renew.record()),
            Self::RenewHandle(renew) => CommandKind::RenewHandle(HandleRecord {
                ttl_ms: renew.ttl.map_or(0, Ttl::millis),
                kind: kind_number(renew.kind),
                ..handle_record(&renew.handle)
            }),
            Self::Release(release) => CommandKind::Release(HandleRecord {
                secret: secret_number(release.proof),
                shows_nothing: release.proof == Proof::Nothing,
                ..handle_record(&release.handle)
            }),
            Self::ReleaseLease(release) => CommandKind::ReleaseLease(ReleaseLeaseRecord {
                lease: release.lease.number(),
                secret: secret_number(release.proof),
                shows_nothing: release.proof == Proof::Nothing,
            }),
            Self::Cancel(cancel) => CommandKind::Cancel(CancelRecord {
                lease: cancel.lease.number(),
                resources: cancel.resources.iter().map(ToString::to_string).collect(),
                request: number_record(cancel.request),
                secret: secret_number(cancel.proof),
                shows_nothing: cancel.proof == Proof::Nothing,
            }),
            Self::Revoke(revoke) => CommandKind::Revoke(revoke.record()),
            Self::Break(order) => CommandKind::Break(BreakRecord {
                force: Some(order.force.record()),
                resource: order.resource.to_string(),
                fence: order.fence.map_or(0, Fence::number),
                delay_ms: order.delay.millis(),
            }),
            Self::Transfer(transfer) => CommandKind::Transfer(TransferRecord {
                resource: transfer.handle.resource.to_string(),
                fence: transfer.handle.fence.number(),
                to: transfer.to.number(),
                force: transfer.force.as_ref().map(Force::record),
            }),
            Self::Define(define) => CommandKind::Define(DefineRecord {
                resource: define.resource.to_string(),
                capacity: units_number(define.capacity),
            }),
            Self::SetClass(class) => CommandKind::SetClass(class_record(class)),
            Self::Put(put) => CommandKind::Put(put.record()),
            Self::Delete(delete) => CommandKind::Delete(delete.keys.record()),
            Self::Txn(txn) => CommandKind::Txn(txn.record()),
            Self::Compact(compact) => CommandKind::Compact(compact.revision),
            Self::Register(register) => CommandKind::Register(register.record()),
            Self::UpdateInstance(update) => CommandKind::UpdateInstance(update.record()),
            Self::Drain(drain) => CommandKind::Drain(drain.record()),
            Self::Deregister(deregister) => CommandKind::Deregister(deregister.record()),
            Self::SetHealth(set) => CommandKind::SetHealth(set.record()),
            Self::Attributed(_) => unreachable!("a plain command has no key"),
        };
        CommandRecord { kind: Some(kind), actor: self.actor().map(ActorRecord::of) }
    }

    pub(super) fn read(record: CommandRecord) -> Result<Self, Damage> {
        let actor = record.actor.as_ref().map(ActorRecord::read).transpose()?;
        Ok(Self::read_plain(record)?.recorded_with(actor))
    }

    fn read_plain(record: CommandRecord) -> Result<Self, Damage> {
        let kind = record.kind.ok_or_else(|| Damage::new("a command of a kind that this build does not know"))?;
        Ok(match kind {
            CommandKind::Grant(grant) => Self::Grant(Grant::read(&grant)?),
            CommandKind::Acquire(acquire) => Self::Acquire(Acquire::read(&acquire)?),
            CommandKind::Renew(renew) => Self::Renew(Renew::read(&renew)?),
            CommandKind::RenewHandle(renew) => Self::RenewHandle(RenewHandle {
                handle: handle(&renew)?,
                ttl: ttl_or_none(renew.ttl_ms)?,
                kind: kind_of(renew.kind)?,
            }),
            CommandKind::Release(release) => Self::Release(Release {
                handle: handle(&release)?,
                proof: proof(release.secret, release.shows_nothing)?,
            }),
            CommandKind::ReleaseLease(release) => Self::ReleaseLease(ReleaseLease {
                lease: lease_id(release.lease)?,
                proof: proof(release.secret, release.shows_nothing)?,
            }),
            CommandKind::Cancel(cancel) => Self::Cancel(Cancel {
                lease: lease_id(cancel.lease)?,
                resources: each_once(&cancel.resources)?,
                request: number(cancel.request)?,
                proof: proof(cancel.secret, cancel.shows_nothing)?,
            }),
            CommandKind::Revoke(revoke) => Self::Revoke(Revoke::read(revoke)?),
            CommandKind::Break(order) => Self::Break(Break {
                resource: name(&order.resource)?,
                fence: if order.fence == 0 { None } else { Some(fence(order.fence)?) },
                force: Force::read_some(order.force)?,
                delay: span(order.delay_ms, BREAK_DELAY_MS_MAX)?,
            }),
            CommandKind::Transfer(transfer) => Self::Transfer(Transfer {
                handle: Handle { resource: name(&transfer.resource)?, fence: fence(transfer.fence)? },
                to: lease_id(transfer.to)?,
                force: transfer.force.as_ref().map(Force::read).transpose()?,
            }),
            CommandKind::Define(define) => {
                Self::Define(Define { resource: name(&define.resource)?, capacity: units_or_none(define.capacity)? })
            }
            CommandKind::SetClass(record) => Self::SetClass(class(&record)?),
            CommandKind::Put(put) => Self::Put(Put::read(put)?),
            CommandKind::Delete(keys) => Self::Delete(Delete { keys: Keys::read(&keys)? }),
            CommandKind::Txn(txn) => Self::Txn(Txn::read(txn)?),
            CommandKind::Compact(revision) => Self::Compact(Compact { revision }),
            CommandKind::Register(record) => Self::Register(Register::read(&record)?),
            CommandKind::UpdateInstance(record) => Self::UpdateInstance(UpdateInstance::read(&record)?),
            CommandKind::Drain(record) => Self::Drain(Drain::read(&record)?),
            CommandKind::Deregister(record) => Self::Deregister(Deregister::read(&record)?),
            CommandKind::SetHealth(record) => Self::SetHealth(SetHealth::read(&record)?),
        })
    }
}

impl Grant {
    pub(super) fn record(&self) -> GrantRecord {
        GrantRecord {
            lease: self.lease.number(),
            holder: self.holder.to_string(),
            ttl_ms: self.ttl.map_or(0, Ttl::millis),
            request: self.request,
            class: self.class.as_ref().map_or_else(String::new, ToString::to_string),
            grace_ms: self.grace.map(Span::millis),
            lifetime: lifetime_record(self.lifetime),
            parent: self.parent.map_or(0, LeaseId::number),
            labels: label_pairs(&self.labels),
            reason: self.reason.to_string(),
        }
    }

    pub(super) fn read(record: &GrantRecord) -> Result<Self, Damage> {
        Ok(Self {
            lease: lease_id(record.lease)?,
            holder: holder(&record.holder)?,
            request: record.request,
            ttl: ttl_or_none(record.ttl_ms)?,
            class: name_or_none(&record.class)?,
            grace: record.grace_ms.map(|ms| span(ms, GRACE_MS_MAX)).transpose()?,
            lifetime: lifetime(record.lifetime)?,
            parent: lease_or_none(record.parent)?,
            labels: labels(&record.labels)?,
            reason: note(&record.reason)?,
        })
    }
}

impl Acquire {
    fn record(&self) -> AcquireRecord {
        let (grant, lease) = match &self.on {
            On::New(grant) => (Some(grant.record()), 0),
            On::Given(lease) => (None, lease.number()),
        };
        let (in_line, limit) = match self.wait {
            Wait::Never => (false, None),
            Wait::InLine { limit } => (true, limit),
        };
        let wants = self.wants.iter().map(|want| WantRecord {
            resource: want.resource.to_string(),
            mode: mode_record(want.mode),
            capacity: units_number(want.capacity),
        });
        AcquireRecord {
            grant,
            lease,
            wants: wants.collect(),
            in_line,
            wait_limit_ms: limit.map(Span::millis),
            priority: self.priority.number(),
            lock_delay_ms: self.lock_delay.millis(),
            epoch: self.epoch.map_or(0, Epoch::number),
            request: number_record(self.request),
            secret: self.secret.map_or(0, Secret::number),
        }
    }

    fn read(record: &AcquireRecord) -> Result<Self, Damage> {
        let names: Vec<_> = record.wants.iter().map(|want| want.resource.clone()).collect();
        each_once(&names)?;
        let wants = record.wants.iter().map(|want| {
            let (resource, mode) = (name(&want.resource)?, mode(want.mode)?);
            Ok(Want { resource, mode, capacity: units_or_none(want.capacity)? })
        });
        Ok(Self {
            on: match &record.grant {
                Some(grant) => On::New(Grant::read(grant)?),
                None => On::Given(lease_id(record.lease)?),
            },
            wants: wants.collect::<Result<_, Damage>>()?,
            wait: match (record.in_line, record.wait_limit_ms) {
                (false, _) => Wait::Never,
                (true, limit) => Wait::InLine { limit: limit.map(|ms| span(ms, TTL_MS_MAX)).transpose()? },
            },
            priority: priority(record.priority)?,
            lock_delay: span(record.lock_delay_ms, LOCK_DELAY_MS_MAX)?,
            epoch: epoch(record.epoch),
            request: number(record.request)?,
            secret: Secret::new(record.secret),
        })
    }
}

/// Names that a command asks for together: at least one, few, and none twice.
fn each_once(texts: &[String]) -> Result<Vec<Name>, Damage> {
    let names = texts.iter().map(|text| name(text)).collect::<Result<Vec<_>, _>>()?;
    let different: BTreeSet<_> = names.iter().collect();
    if names.is_empty() || names.len() > RESOURCES_MAX || different.len() != names.len() {
        return Err(Damage::new("a command with no resources, with too many, or with one of them twice"));
    }
    Ok(names)
}

impl Renew {
    fn record(&self) -> RenewRecord {
        let changes_ttl = self.leases.iter().any(|renewal| renewal.ttl.is_some());
        let ttls = self.leases.iter().map(|renewal| renewal.ttl.map_or(0, Ttl::millis));
        RenewRecord {
            leases: self.leases.iter().map(|renewal| renewal.lease.number()).collect(),
            ttls_ms: if changes_ttl { ttls.collect() } else { Vec::new() },
            kind: kind_number(self.kind),
        }
    }

    fn read(record: &RenewRecord) -> Result<Self, Damage> {
        if !record.ttls_ms.is_empty() && record.ttls_ms.len() != record.leases.len() {
            return Err(Damage::new("a renewal whose TTLs do not match its leases"));
        }
        let ttls = record.ttls_ms.iter().copied().chain(core::iter::repeat(0));
        let pairs = record.leases.iter().zip(ttls);
        let leases = pairs.map(|(lease, ms)| Ok(Renewal { lease: lease_id(*lease)?, ttl: ttl_or_none(ms)? }));
        Ok(Self { leases: leases.collect::<Result<_, Damage>>()?, kind: kind_of(record.kind)? })
    }
}

const fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Auto => 0,
        Kind::Touch => 1,
        Kind::Explicit => 2,
    }
}

fn kind_of(number: u32) -> Result<Kind, Damage> {
    match number {
        0 => Ok(Kind::Auto),
        1 => Ok(Kind::Touch),
        2 => Ok(Kind::Explicit),
        _ => Err(Damage::new("a renewal of a kind that this build does not know")),
    }
}

fn handle_record(handle: &Handle) -> HandleRecord {
    HandleRecord { resource: handle.resource.to_string(), fence: handle.fence.number(), ..HandleRecord::default() }
}

fn handle(record: &HandleRecord) -> Result<Handle, Damage> {
    Ok(Handle { resource: name(&record.resource)?, fence: fence(record.fence)? })
}

impl Force {
    pub(crate) fn record(&self) -> ForceRecord {
        ForceRecord { by: self.by.to_string(), reason: self.reason.to_string(), now: self.free == Free::Now }
    }

    pub(crate) fn read(record: &ForceRecord) -> Result<Self, Damage> {
        let free = if record.now { Free::Now } else { Free::WhenVacated };
        Ok(Self { by: holder(&record.by)?, reason: note(&record.reason)?, free })
    }

    pub(crate) fn read_some(record: Option<ForceRecord>) -> Result<Self, Damage> {
        Self::read(&record.ok_or_else(|| Damage::new("an order that does not say whose it is"))?)
    }
}

impl Revoke {
    fn record(&self) -> RevokeRecord {
        let (mut from_name, mut from_lease) = (String::new(), 0);
        let which = match &self.which {
            Which::Lease(lease) => WhichRecord::Lease(lease.number()),
            Which::Prefix { prefix, from } => {
                from_name.clone_from(from);
                WhichRecord::Prefix(prefix.clone())
            }
            Which::Holder { holder, from } => {
                from_lease = from.map_or(0, LeaseId::number);
                WhichRecord::Holder(holder.to_string())
            }
            Which::Label { label, from } => {
                from_lease = from.map_or(0, LeaseId::number);
                WhichRecord::Label(LabelRecord { key: label.key().to_string(), value: label.value().to_string() })
            }
        };
        RevokeRecord { force: Some(self.force.record()), which: Some(which), from_name, from_lease }
    }

    fn read(record: RevokeRecord) -> Result<Self, Damage> {
        let which = record.which.ok_or_else(|| Damage::new("a revoke that does not say of what"))?;
        let from = lease_or_none(record.from_lease)?;
        Ok(Self {
            which: match which {
                WhichRecord::Lease(lease) => Which::Lease(lease_id(lease)?),
                WhichRecord::Prefix(prefix) => Which::Prefix { prefix, from: record.from_name },
                WhichRecord::Holder(text) => Which::Holder { holder: holder(&text)?, from },
                WhichRecord::Label(label) => {
                    let label = Label::recorded(&label.key, &label.value).map_err(|bad| Damage(bad.to_string()))?;
                    Which::Label { label, from }
                }
            },
            force: Force::read_some(record.force)?,
        })
    }
}
