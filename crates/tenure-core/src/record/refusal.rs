//! The shape of refusals between nodes, with all their facts.

use super::end::EndedRecord;
use super::outcome::{few, size, what};
use super::refused_instance::{
    BadInstanceRecord, InstanceExistsRecord, InstanceKeyRecord, NoCheckRecord, NoInstanceRecord, OlderInstanceRecord,
    OtherLeaseRecord,
};
use super::reply::HandleRecord;
use super::{
    Damage, ModeRecord, api_key, fence, holder, key, lease_id, mode, mode_record, name, policy, policy_number, units,
    units_number,
};
use crate::actor::ApiKeyName;
use crate::event::End;
use crate::fence::{Fence, Handle};
use crate::limits::CHAIN_SHOWN_MAX;
use crate::mode::{Policy, Units};
use crate::names::{Holder, LeaseId, Name};
use crate::reply::{Occupied, Refusal};
use crate::time::Moment;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct RefusalRecord {
    #[prost(
        oneof = "Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, \
                29, 30, 31, 32"
    )]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Exists(ExistsRecord),
    #[prost(fixed64, tag = "2")]
    NoLease(u64),
    #[prost(message, tag = "3")]
    Lapsed(LapsedRecord),
    #[prost(fixed64, tag = "4")]
    OwnParent(u64),
    #[prost(string, tag = "5")]
    NoClass(String),
    #[prost(message, tag = "6")]
    TtlOfClass(TtlOfClassRecord),
    #[prost(message, tag = "7")]
    NotRenewable(NotRenewableRecord),
    #[prost(message, tag = "8")]
    Taken(TakenRecord),
    #[prost(message, tag = "9")]
    Stale(StaleRecord),
    #[prost(message, tag = "10")]
    NoClaim(ClaimRecord),
    #[prost(message, tag = "11")]
    Answered(AnsweredRecord),
    #[prost(message, tag = "12")]
    OtherMode(OtherModeRecord),
    #[prost(message, tag = "13")]
    Claimed(ClaimRecord),
    #[prost(message, tag = "14")]
    OtherCapacity(CapacityRecord),
    #[prost(message, tag = "15")]
    TooBig(CapacityRecord),
    #[prost(message, tag = "16")]
    WouldDeadlock(DeadlockRecord),
    #[prost(message, tag = "17")]
    WaitTooLong(WaitRecord),
    #[prost(message, tag = "18")]
    OlderEpoch(OlderEpochRecord),
    #[prost(string, tag = "19")]
    NotHeld(String),
    #[prost(bytes = "vec", tag = "20")]
    NoKey(Vec<u8>),
    #[prost(uint64, tag = "21")]
    Compacted(u64),
    #[prost(uint64, tag = "22")]
    NotYet(u64),
    #[prost(message, tag = "23")]
    NoInstance(NoInstanceRecord),
    #[prost(message, tag = "24")]
    InstanceExists(InstanceExistsRecord),
    #[prost(message, tag = "25")]
    OlderInstance(OlderInstanceRecord),
    #[prost(message, tag = "26")]
    OtherLease(OtherLeaseRecord),
    #[prost(message, tag = "27")]
    NoCheck(NoCheckRecord),
    #[prost(message, tag = "28")]
    BadInstance(BadInstanceRecord),
    #[prost(message, tag = "29")]
    Full(LimitRecord),
    #[prost(message, tag = "30")]
    Denied(DeniedRecord),
    #[prost(message, tag = "31")]
    TooManyLeases(TooManyLeasesRecord),
    #[prost(message, tag = "32")]
    Overloaded(LimitRecord),
}

#[derive(Clone, PartialEq, Message)]
struct ExistsRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
}

#[derive(Clone, PartialEq, Message)]
struct LapsedRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(message, required, tag = "2")]
    ended: EndedRecord,
}

#[derive(Clone, PartialEq, Message)]
struct TtlOfClassRecord {
    #[prost(string, tag = "1")]
    class: String,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    #[prost(uint64, tag = "3")]
    min_ms: u64,
    #[prost(uint64, tag = "4")]
    max_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct NotRenewableRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    class: String,
    /// 0 auto, 1 activity, 2 explicit, 3 never.
    #[prost(uint32, tag = "3")]
    policy: u32,
}

#[derive(Clone, PartialEq, Message)]
struct TakenRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, tag = "2")]
    holder: String,
    /// 0 held, 1 vacating, 2 in line.
    #[prost(uint32, tag = "3")]
    state: u32,
    /// 0 is none.
    #[prost(uint64, tag = "4")]
    fence: u64,
    #[prost(uint64, optional, tag = "5")]
    since_wall_ms: Option<u64>,
    #[prost(uint64, tag = "6")]
    remaining_ms: u64,
    #[prost(uint64, tag = "7")]
    waiting: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StaleRecord {
    #[prost(message, required, tag = "1")]
    handle: HandleRecord,
    #[prost(message, optional, tag = "2")]
    current: Option<CurrentRecord>,
    #[prost(message, optional, tag = "3")]
    ended: Option<EndedRecord>,
}

/// Who holds a resource, and with which fence.
#[derive(Clone, PartialEq, Message)]
struct CurrentRecord {
    #[prost(string, tag = "1")]
    holder: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    resource: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct AnsweredRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct OtherModeRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(message, optional, tag = "3")]
    has: Option<ModeRecord>,
    #[prost(message, optional, tag = "4")]
    asked: Option<ModeRecord>,
}

/// What a resource has, and what was expected or asked for.
#[derive(Clone, PartialEq, Message)]
struct CapacityRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint32, tag = "2")]
    capacity: u32,
    #[prost(uint32, tag = "3")]
    wanted: u32,
}

#[derive(Clone, PartialEq, Message)]
struct DeadlockRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    circle: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct WaitRecord {
    #[prost(uint64, tag = "1")]
    asked_ms: u64,
    #[prost(uint64, tag = "2")]
    max_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct OlderEpochRecord {
    #[prost(string, tag = "1")]
    holder: String,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(uint64, tag = "3")]
    asked: u64,
    #[prost(uint64, tag = "4")]
    current: u64,
}

#[derive(Clone, PartialEq, Message)]
struct LimitRecord {
    #[prost(string, tag = "1")]
    what: String,
    #[prost(uint64, tag = "2")]
    max: u64,
}

#[derive(Clone, PartialEq, Message)]
struct DeniedRecord {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    what: String,
}

#[derive(Clone, PartialEq, Message)]
struct TooManyLeasesRecord {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(uint32, tag = "2")]
    max: u32,
}

impl Refusal {
    pub(super) fn record(&self) -> RefusalRecord {
        let kind = match self {
            Self::Exists { lease, holder } => Kind::Exists(ExistsRecord::of(*lease, holder)),
            Self::NoLease { lease } => Kind::NoLease(lease.number()),
            Self::Lapsed { lease, how, when, wall_ms } => {
                Kind::Lapsed(LapsedRecord { lease: lease.number(), ended: EndedRecord::of(how, *when, *wall_ms) })
            }
            Self::OwnParent { lease } => Kind::OwnParent(lease.number()),
            Self::NoClass { class } => Kind::NoClass(class.to_string()),
            Self::TtlOfClass { class, ttl_ms, min_ms, max_ms } => {
                let class = class.to_string();
                Kind::TtlOfClass(TtlOfClassRecord { class, ttl_ms: *ttl_ms, min_ms: *min_ms, max_ms: *max_ms })
            }
            Self::NotRenewable { lease, class, policy } => {
                Kind::NotRenewable(NotRenewableRecord::of(*lease, class, *policy))
            }
            Self::Taken { resource, holder, state, fence, since_wall_ms, remaining_ms, waiting } => {
                Kind::Taken(TakenRecord {
                    resource: resource.to_string(),
                    holder: holder.to_string(),
                    state: state_number(*state),
                    fence: fence.map_or(0, Fence::number),
                    since_wall_ms: *since_wall_ms,
                    remaining_ms: *remaining_ms,
                    waiting: *waiting,
                })
            }
            Self::Stale { handle, current, ended } => {
                Kind::Stale(StaleRecord::of(handle, current.as_ref(), ended.as_ref()))
            }
            Self::NoClaim { lease, resource } => Kind::NoClaim(ClaimRecord::of(*lease, resource)),
            Self::Answered { lease, number } => {
                Kind::Answered(AnsweredRecord { lease: lease.number(), number: *number })
            }
            Self::OtherMode { lease, resource, has, asked } => {
                let (lease, resource) = (lease.number(), resource.to_string());
                let (has, asked) = (mode_record(*has), mode_record(*asked));
                Kind::OtherMode(OtherModeRecord { lease, resource, has, asked })
            }
            Self::Claimed { lease, resource } => Kind::Claimed(ClaimRecord::of(*lease, resource)),
            Self::OtherCapacity { resource, capacity, expected: wanted } => {
                Kind::OtherCapacity(CapacityRecord::of(resource, *capacity, *wanted))
            }
            Self::TooBig { resource, capacity, asked: wanted } => {
                Kind::TooBig(CapacityRecord::of(resource, *capacity, *wanted))
            }
            Self::WouldDeadlock { resource, circle } => Kind::WouldDeadlock(DeadlockRecord {
                resource: resource.to_string(),
                circle: circle.iter().map(ToString::to_string).collect(),
            }),
            Self::WaitTooLong { asked_ms, max_ms } => {
                Kind::WaitTooLong(WaitRecord { asked_ms: *asked_ms, max_ms: *max_ms })
            }
            Self::OlderEpoch { holder, resource, asked, current } => {
                let (holder, resource) = (holder.to_string(), resource.to_string());
                Kind::OlderEpoch(OlderEpochRecord { holder, resource, asked: *asked, current: *current })
            }
            Self::NotHeld { resource } => Kind::NotHeld(resource.to_string()),
            Self::NoKey { key } => Kind::NoKey(key.bytes().to_vec()),
            Self::Compacted { compacted } => Kind::Compacted(*compacted),
            Self::NotYet { kv_revision } => Kind::NotYet(*kv_revision),
            Self::NoInstance { instance, ended } => Kind::NoInstance(NoInstanceRecord::of(instance, ended.as_ref())),
            Self::InstanceExists { instance, holder, epoch, remaining_ms } => {
                Kind::InstanceExists(InstanceExistsRecord::of(instance, holder, *epoch, *remaining_ms))
            }
            Self::OlderInstance { instance, asked, current } => {
                let instance = InstanceKeyRecord::of(instance);
                Kind::OlderInstance(OlderInstanceRecord { instance, asked: *asked, current: *current })
            }
            Self::OtherLease { instance, lease, holder } => {
                Kind::OtherLease(OtherLeaseRecord::of(instance, *lease, holder))
            }
            Self::NoCheck { instance, check } => Kind::NoCheck(NoCheckRecord::of(instance, check)),
            Self::BadInstance { instance, why } => Kind::BadInstance(BadInstanceRecord::of(instance, why)),
            Self::Full { what, max } => Kind::Full(LimitRecord::of(what, *max)),
            Self::Denied { key, what } => Kind::Denied(DeniedRecord { key: key.to_string(), what: what.to_string() }),
            Self::TooManyLeases { key, max } => Kind::TooManyLeases(TooManyLeasesRecord::of(key, *max)),
            Self::Overloaded { what, max } => Kind::Overloaded(LimitRecord::of(what, *max)),
        };
        RefusalRecord { kind: Some(kind) }
    }

    pub(super) fn read(record: RefusalRecord) -> Result<Self, Damage> {
        let unknown = || Damage::new("a refusal of a kind that this build does not know");
        Ok(match record.kind.ok_or_else(unknown)? {
            Kind::Exists(it) => Self::Exists { lease: lease_id(it.lease)?, holder: holder(&it.holder)? },
            Kind::NoLease(lease) => Self::NoLease { lease: lease_id(lease)? },
            Kind::Lapsed(it) => {
                let (how, when, wall_ms) = it.ended.read()?;
                Self::Lapsed { lease: lease_id(it.lease)?, how, when, wall_ms }
            }
            Kind::OwnParent(lease) => Self::OwnParent { lease: lease_id(lease)? },
            Kind::NoClass(class) => Self::NoClass { class: name(&class)? },
            Kind::TtlOfClass(it) => {
                let class = name(&it.class)?;
                Self::TtlOfClass { class, ttl_ms: it.ttl_ms, min_ms: it.min_ms, max_ms: it.max_ms }
            }
            Kind::NotRenewable(it) => {
                let (lease, class) = (lease_id(it.lease)?, name(&it.class)?);
                Self::NotRenewable { lease, class, policy: policy(it.policy)? }
            }
            Kind::Taken(it) => it.read()?,
            Kind::Stale(it) => it.read()?,
            Kind::NoClaim(it) => Self::NoClaim { lease: lease_id(it.lease)?, resource: name(&it.resource)? },
            Kind::Answered(it) => Self::Answered { lease: lease_id(it.lease)?, number: it.number },
            Kind::OtherMode(it) => Self::OtherMode {
                lease: lease_id(it.lease)?,
                resource: name(&it.resource)?,
                has: mode(it.has)?,
                asked: mode(it.asked)?,
            },
            Kind::Claimed(it) => Self::Claimed { lease: lease_id(it.lease)?, resource: name(&it.resource)? },
            Kind::OtherCapacity(it) => {
                let (resource, capacity, expected) = it.read()?;
                Self::OtherCapacity { resource, capacity, expected }
            }
            Kind::TooBig(it) => {
                let (resource, capacity, asked) = it.read()?;
                Self::TooBig { resource, capacity, asked }
            }
            Kind::WouldDeadlock(it) => Self::WouldDeadlock {
                resource: name(&it.resource)?,
                circle: few(it.circle, CHAIN_SHOWN_MAX, |text| holder(&text))?,
            },
            Kind::WaitTooLong(it) => Self::WaitTooLong { asked_ms: it.asked_ms, max_ms: it.max_ms },
            Kind::OlderEpoch(it) => {
                let (holder, resource) = (holder(&it.holder)?, name(&it.resource)?);
                Self::OlderEpoch { holder, resource, asked: it.asked, current: it.current }
            }
            Kind::NotHeld(resource) => Self::NotHeld { resource: name(&resource)? },
            Kind::NoKey(bytes) => Self::NoKey { key: key(&bytes)? },
            Kind::Compacted(compacted) => Self::Compacted { compacted },
            Kind::NotYet(kv_revision) => Self::NotYet { kv_revision },
            Kind::NoInstance(it) => it.read()?,
            Kind::InstanceExists(it) => it.read()?,
            Kind::OlderInstance(it) => it.read()?,
            Kind::OtherLease(it) => it.read()?,
            Kind::NoCheck(it) => it.read()?,
            Kind::BadInstance(it) => it.read()?,
            Kind::Full(it) => Self::Full { what: what(it.what)?, max: size(it.max)? },
            Kind::Denied(it) => Self::Denied { key: api_key(&it.key)?, what: what(it.what)? },
            Kind::TooManyLeases(it) => Self::TooManyLeases { key: api_key(&it.key)?, max: it.max },
            Kind::Overloaded(it) => Self::Overloaded { what: what(it.what)?, max: size(it.max)? },
        })
    }
}

impl ExistsRecord {
    fn of(lease: LeaseId, holder: &Holder) -> Self {
        Self { lease: lease.number(), holder: holder.to_string() }
    }
}

impl NotRenewableRecord {
    fn of(lease: LeaseId, class: &Name, policy: Policy) -> Self {
        Self { lease: lease.number(), class: class.to_string(), policy: policy_number(policy) }
    }
}

impl TakenRecord {
    fn read(self) -> Result<Refusal, Damage> {
        Ok(Refusal::Taken {
            resource: name(&self.resource)?,
            holder: holder(&self.holder)?,
            state: match self.state {
                0 => Occupied::Held,
                1 => Occupied::Vacating,
                2 => Occupied::InLine,
                _ => return Err(Damage::new("a resource in a state that this build does not know")),
            },
            fence: if self.fence == 0 { None } else { Some(fence(self.fence)?) },
            since_wall_ms: self.since_wall_ms,
            remaining_ms: self.remaining_ms,
            waiting: self.waiting,
        })
    }
}

const fn state_number(state: Occupied) -> u32 {
    match state {
        Occupied::Held => 0,
        Occupied::Vacating => 1,
        Occupied::InLine => 2,
    }
}

impl StaleRecord {
    fn of(handle: &Handle, current: Option<&(Holder, Fence)>, ended: Option<&(End, Moment, u64)>) -> Self {
        let current =
            current.map(|(holder, fence)| CurrentRecord { holder: holder.to_string(), fence: fence.number() });
        Self { handle: HandleRecord::of(handle), current, ended: EndedRecord::of_known(ended) }
    }

    fn read(self) -> Result<Refusal, Damage> {
        let current = self.current.as_ref().map(CurrentRecord::read).transpose()?;
        let ended = self.ended.map(EndedRecord::read).transpose()?;
        Ok(Refusal::Stale { handle: self.handle.read()?, current, ended })
    }
}

impl CurrentRecord {
    fn read(&self) -> Result<(Holder, Fence), Damage> {
        Ok((holder(&self.holder)?, fence(self.fence)?))
    }
}

impl ClaimRecord {
    fn of(lease: LeaseId, resource: &Name) -> Self {
        Self { lease: lease.number(), resource: resource.to_string() }
    }
}

impl CapacityRecord {
    fn of(resource: &Name, capacity: Units, wanted: Units) -> Self {
        let [capacity, wanted] = [capacity, wanted].map(|units| units_number(Some(units)));
        Self { resource: resource.to_string(), capacity, wanted }
    }

    /// The resource, what it has, and what was expected or asked for.
    fn read(&self) -> Result<(Name, Units, Units), Damage> {
        Ok((name(&self.resource)?, units(self.capacity)?, units(self.wanted)?))
    }
}

impl LimitRecord {
    fn of(what: &str, max: usize) -> Self {
        Self { what: what.to_string(), max: max as u64 }
    }
}

impl TooManyLeasesRecord {
    fn of(key: &ApiKeyName, max: u32) -> Self {
        Self { key: key.to_string(), max }
    }
}
