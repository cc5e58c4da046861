//! The shapes of events in a snapshot. A field's number is for ever.

use super::claims::key_text;
use crate::event::{Event, Happening, Leave, Revision};
use crate::fence::Fence;
use crate::limits::INSTANCES_MAX;
use crate::mode::Epoch;
use crate::names::LeaseId;
use crate::record::{
    Damage, EndRecord, ModeRecord, api_key_or_none, end_record, epoch, fence, health, health_number, holder,
    instance_key, key, lease_id, lease_or_none, mode, mode_record, name, name_or_none, note, read_end, units_number,
    units_or_none, word,
};
use crate::registry::Judgement;
use crate::time::Moment;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

/// An event; which fields are set depends on its kind.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EventRecord {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(uint32, tag = "2")]
    n: u32,
    #[prost(bool, tag = "3")]
    last: bool,
    #[prost(uint64, tag = "4")]
    at_ms: u64,
    #[prost(uint64, tag = "5")]
    wall_ms: u64,
    #[prost(enumeration = "EventKind", tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    lease: u64,
    #[prost(string, tag = "8")]
    resource: String,
    #[prost(string, tag = "9")]
    holder: String,
    #[prost(uint64, tag = "10")]
    ttl_ms: u64,
    #[prost(uint64, tag = "11")]
    fence: u64,
    #[prost(message, optional, tag = "12")]
    how: Option<EndRecord>,
    #[prost(message, optional, tag = "13")]
    mode: Option<ModeRecord>,
    #[prost(uint64, optional, tag = "14")]
    until_ms: Option<u64>,
    /// Why a waiter left: 0 cancelled, 1 its lease ended, 2 waited out, 3 superseded, 4 too big, 5 transferred.
    #[prost(uint32, tag = "15")]
    why: u32,
    #[prost(fixed64, tag = "16")]
    parent: u64,
    #[prost(string, tag = "17")]
    class: String,
    #[prost(string, tag = "18")]
    reason: String,
    #[prost(uint32, tag = "19")]
    capacity: u32,
    #[prost(bytes = "vec", tag = "20")]
    key: Vec<u8>,
    #[prost(uint64, tag = "21")]
    kv_revision: u64,
    #[prost(uint64, tag = "22")]
    version: u64,
    #[prost(string, tag = "23")]
    service: String,
    #[prost(string, tag = "24")]
    id: String,
    #[prost(uint64, tag = "25")]
    epoch: u64,
    #[prost(string, tag = "26")]
    check: String,
    #[prost(uint32, tag = "27")]
    check_health: u32,
    #[prost(uint32, tag = "28")]
    overall: u32,
    #[prost(message, optional, tag = "29")]
    judgement: Option<JudgementRecord>,
    /// The API key of the command that made it happen; empty without one.
    #[prost(string, tag = "30")]
    api_key: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct JudgementRecord {
    #[prost(uint64, tag = "1")]
    at_ms: u64,
    #[prost(uint64, tag = "2")]
    members: u64,
    #[prost(uint64, tag = "3")]
    late: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
enum EventKind {
    Unspecified = 0,
    Granted = 1,
    Queued = 2,
    Seated = 3,
    Vacated = 4,
    Left = 5,
    Ended = 6,
    Freed = 7,
    Breaking = 8,
    Defined = 9,
    ClassSet = 10,
    Put = 11,
    Deleted = 12,
    Registered = 13,
    Updated = 14,
    Drained = 15,
    Undrained = 16,
    HealthChanged = 17,
    Deregistered = 18,
    Suspected = 19,
    Cleared = 20,
}

impl Judgement {
    pub(super) fn record(&self) -> JudgementRecord {
        JudgementRecord { at_ms: self.at.millis(), members: self.members, late: self.late }
    }

    pub(super) fn read(record: Option<JudgementRecord>) -> Result<Self, Damage> {
        let record = record.ok_or_else(|| Damage::new("a judgement without its numbers"))?;
        if record.members > INSTANCES_MAX as u64 || record.late > record.members {
            return Err(Damage::new("a judgement that cannot be"));
        }
        Ok(Self { at: Moment::from_millis(record.at_ms), members: record.members, late: record.late })
    }
}
const LEAVES: [Leave; 6] =
    [Leave::Cancelled, Leave::LeaseEnded, Leave::WaitedOut, Leave::Superseded, Leave::TooBig, Leave::Transferred];

pub(super) fn event_record(event: &Event) -> EventRecord {
    let mut record = EventRecord {
        revision: event.revision.0,
        n: event.n,
        last: event.last,
        at_ms: event.at.millis(),
        wall_ms: event.wall_ms,
        lease: event.what.lease().map_or(0, LeaseId::number),
        resource: event.what.resource().map_or_else(String::new, ToString::to_string),
        key: event.what.key().map_or_else(Vec::new, |key| key.bytes().to_vec()),
        api_key: key_text(event.api_key.as_ref()),
        ..EventRecord::default()
    };
    let kind = match &event.what {
        Happening::Granted { holder, ttl_ms, parent, class, .. } => {
            record.holder = holder.to_string();
            record.ttl_ms = *ttl_ms;
            record.parent = parent.map_or(0, LeaseId::number);
            record.class = class.as_ref().map_or_else(String::new, ToString::to_string);
            EventKind::Granted
        }
        Happening::Queued { holder, mode, .. } => {
            record.holder = holder.to_string();
            record.mode = mode_record(*mode);
            EventKind::Queued
        }
        Happening::Seated { holder, fence, mode, ttl_ms, .. } => {
            record.holder = holder.to_string();
            record.fence = fence.number();
            record.mode = mode_record(*mode);
            record.ttl_ms = *ttl_ms;
            EventKind::Seated
        }
        Happening::Vacated { fence, how, until, .. } => {
            record.fence = fence.number();
            record.how = Some(end_record(how));
            record.until_ms = until.map(Moment::millis);
            EventKind::Vacated
        }
        Happening::Freed { fence, .. } => {
            record.fence = fence.number();
            EventKind::Freed
        }
        Happening::Breaking { fence, at, by, reason, .. } => {
            record.fence = fence.number();
            record.until_ms = Some(at.millis());
            record.holder = by.to_string();
            record.reason = reason.to_string();
            EventKind::Breaking
        }
        Happening::Left { why, .. } => {
            let at = LEAVES.iter().position(|leave| leave == why).expect("every reason to leave is listed");
            record.why = u32::try_from(at).expect("there are few");
            EventKind::Left
        }
        Happening::Ended { holder, how, .. } => {
            record.holder = holder.to_string();
            record.how = Some(end_record(how));
            EventKind::Ended
        }
        Happening::Defined { capacity, .. } => {
            record.capacity = units_number(*capacity);
            EventKind::Defined
        }
        Happening::ClassSet { class } => {
            record.class = class.to_string();
            EventKind::ClassSet
        }
        Happening::Put { kv_revision, version, .. } => {
            record.kv_revision = *kv_revision;
            record.version = *version;
            EventKind::Put
        }
        Happening::Deleted { kv_revision, .. } => {
            record.kv_revision = *kv_revision;
            EventKind::Deleted
        }
        of_instance => record.of_instance(of_instance),
    };
    record.set_kind(kind);
    record
}

impl EventRecord {
    /// Takes in what happened to an instance.
    fn of_instance(&mut self, what: &Happening) -> EventKind {
        if let Some(instance) = what.instance() {
            (self.service, self.id) = (instance.service.to_string(), instance.id.to_string());
        }
        match what {
            Happening::Registered { holder, epoch, .. } => {
                self.holder = holder.to_string();
                self.epoch = epoch.map_or(0, Epoch::number);
                EventKind::Registered
            }
            Happening::Updated { .. } => EventKind::Updated,
            Happening::Drained { by, reason, .. } => {
                (self.holder, self.reason) = (by.to_string(), reason.to_string());
                EventKind::Drained
            }
            Happening::Undrained { by, reason, .. } => {
                (self.holder, self.reason) = (by.to_string(), reason.to_string());
                EventKind::Undrained
            }
            Happening::HealthChanged { check, overall, held_until, .. } => {
                if let Some((name, health)) = check {
                    (self.check, self.check_health) = (name.to_string(), health_number(*health));
                }
                self.overall = health_number(*overall);
                self.until_ms = held_until.map(Moment::millis);
                EventKind::HealthChanged
            }
            Happening::Deregistered { how, .. } => {
                self.how = Some(end_record(how));
                EventKind::Deregistered
            }
            Happening::Suspected { until, judgement, .. } => {
                self.until_ms = Some(until.millis());
                self.judgement = Some(judgement.record());
                EventKind::Suspected
            }
            Happening::Cleared { .. } => EventKind::Cleared,
            other => unreachable!("{other:?} happened to no instance"),
        }
    }
}

pub(super) fn read_event(record: EventRecord) -> Result<Event, Damage> {
    let (revision, at) = (Revision(record.revision), Moment::from_millis(record.at_ms));
    let (n, last, wall_ms) = (record.n, record.last, record.wall_ms);
    let api_key = api_key_or_none(&record.api_key)?;
    Ok(Event { revision, n, last, at, wall_ms, api_key, what: read_happening(record)? })
}

fn read_happening(record: EventRecord) -> Result<Happening, Damage> {
    let lease = || lease_id(record.lease);
    let resource = || name(&record.resource);
    let who = || holder(&record.holder);
    let token = || -> Result<Fence, Damage> { fence(record.fence) };
    let until = record.until_ms.map(Moment::from_millis);
    Ok(match record.kind() {
        EventKind::Granted => Happening::Granted {
            lease: lease()?,
            holder: who()?,
            ttl_ms: record.ttl_ms,
            parent: lease_or_none(record.parent)?,
            class: name_or_none(&record.class)?,
        },
        EventKind::Queued => {
            Happening::Queued { resource: resource()?, lease: lease()?, holder: who()?, mode: mode(record.mode)? }
        }
        EventKind::Seated => Happening::Seated {
            resource: resource()?,
            lease: lease()?,
            holder: who()?,
            fence: token()?,
            mode: mode(record.mode)?,
            ttl_ms: record.ttl_ms,
        },
        EventKind::Vacated => {
            let (resource, lease, fence) = (resource()?, lease()?, token()?);
            Happening::Vacated { resource, lease, fence, how: read_end(record.how)?, until }
        }
        EventKind::Freed => Happening::Freed { resource: resource()?, lease: lease()?, fence: token()? },
        EventKind::Breaking => Happening::Breaking {
            resource: resource()?,
            lease: lease()?,
            fence: token()?,
            at: until.ok_or_else(|| Damage::new("an ordered break that does not say when"))?,
            by: who()?,
            reason: note(&record.reason)?,
        },
        EventKind::Left => {
            let why = usize::try_from(record.why).ok().and_then(|at| LEAVES.get(at)).copied();
            let why = why.ok_or_else(|| Damage::new("a reason to leave that this build does not know"))?;
            Happening::Left { resource: resource()?, lease: lease()?, why }
        }
        EventKind::Ended => {
            let (lease, holder) = (lease()?, who()?);
            Happening::Ended { lease, holder, how: read_end(record.how)? }
        }
        EventKind::Defined => Happening::Defined { resource: resource()?, capacity: units_or_none(record.capacity)? },
        EventKind::ClassSet => Happening::ClassSet { class: name(&record.class)? },
        EventKind::Put => Happening::Put {
            key: key(&record.key)?,
            lease: lease_or_none(record.lease)?,
            kv_revision: record.kv_revision,
            version: record.version,
        },
        EventKind::Deleted => Happening::Deleted {
            key: key(&record.key)?,
            lease: lease_or_none(record.lease)?,
            kv_revision: record.kv_revision,
        },
        _ => read_of_instance(&record)?,
    })
}

/// What happened to an instance.
fn read_of_instance(record: &EventRecord) -> Result<Happening, Damage> {
    let lease = || lease_id(record.lease);
    let who = || holder(&record.holder);
    let until = record.until_ms.map(Moment::from_millis);
    let instance = || instance_key(&record.service, &record.id);
    Ok(match record.kind() {
        EventKind::Registered => {
            let (instance, lease, holder) = (instance()?, lease()?, who()?);
            Happening::Registered { instance, lease, holder, epoch: epoch(record.epoch) }
        }
        EventKind::Updated => Happening::Updated { instance: instance()?, lease: lease()? },
        EventKind::Drained => {
            let (by, reason) = (who()?, note(&record.reason)?);
            Happening::Drained { instance: instance()?, lease: lease()?, by, reason }
        }
        EventKind::Undrained => {
            let (by, reason) = (who()?, note(&record.reason)?);
            Happening::Undrained { instance: instance()?, lease: lease()?, by, reason }
        }
        EventKind::HealthChanged => {
            let check = match record.check.as_str() {
                "" => None,
                name => Some((word(name)?, health(record.check_health)?)),
            };
            let (instance, lease, overall) = (instance()?, lease()?, health(record.overall)?);
            Happening::HealthChanged { instance, lease, check, overall, held_until: until }
        }
        EventKind::Deregistered => {
            Happening::Deregistered { instance: instance()?, lease: lease()?, how: read_end(record.how.clone())? }
        }
        EventKind::Suspected => Happening::Suspected {
            instance: instance()?,
            lease: lease()?,
            until: until.ok_or_else(|| Damage::new("a suspect that does not say until when"))?,
            judgement: Judgement::read(record.judgement)?,
        },
        EventKind::Cleared => Happening::Cleared { instance: instance()?, lease: lease()? },
        _ => return Err(Damage::new("an event of a kind that this build does not know")),
    })
}
