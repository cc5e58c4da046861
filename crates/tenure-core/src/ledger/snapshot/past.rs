//! The shapes of what is over in a snapshot: ended leases, ended claims and events. A field's number is for ever.

use super::super::{EndedClaim, EndedLease};
use crate::event::{End, Event, Happening, Leave, Revision};
use crate::fence::Fence;
use crate::mode::Epoch;
use crate::names::LeaseId;
use crate::record::{
    Damage, ModeRecord, epoch, fence, holder, key, lease_id, lease_or_none, mode, mode_record, name, name_or_none,
    note, units_number, units_or_none,
};
use crate::time::Moment;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndRecord {
    #[prost(enumeration = "EndKind", tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    by: String,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(fixed64, tag = "4")]
    parent: u64,
    #[prost(string, tag = "5")]
    to: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
enum EndKind {
    Unspecified = 0,
    Released = 1,
    Expired = 2,
    Revoked = 3,
    ParentEnded = 4,
    Superseded = 5,
    MaxLifetime = 6,
    WaitedOut = 7,
    Transferred = 8,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndedLeaseRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(fixed64, tag = "3")]
    request: u64,
    #[prost(message, optional, tag = "4")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "5")]
    when_ms: u64,
    #[prost(uint64, tag = "6")]
    wall_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndedClaimRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(string, tag = "3")]
    holder: String,
    #[prost(uint64, tag = "4")]
    fence: u64,
    #[prost(message, optional, tag = "5")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "6")]
    when_ms: u64,
    #[prost(uint64, tag = "7")]
    wall_ms: u64,
    #[prost(message, optional, tag = "8")]
    mode: Option<ModeRecord>,
    #[prost(uint64, tag = "9")]
    epoch: u64,
    #[prost(uint64, tag = "10")]
    since_ms: u64,
    #[prost(uint64, tag = "11")]
    since_wall_ms: u64,
}

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
}

fn end_record(how: &End) -> EndRecord {
    let mut record = EndRecord::default();
    let kind = match how {
        End::Released => EndKind::Released,
        End::Expired => EndKind::Expired,
        End::Revoked { by, reason } => {
            record.by = by.to_string();
            record.reason = reason.to_string();
            EndKind::Revoked
        }
        End::ParentEnded { parent } => {
            record.parent = parent.number();
            EndKind::ParentEnded
        }
        End::Superseded => EndKind::Superseded,
        End::MaxLifetime => EndKind::MaxLifetime,
        End::WaitedOut => EndKind::WaitedOut,
        End::Transferred { to } => {
            record.to = to.to_string();
            EndKind::Transferred
        }
    };
    record.set_kind(kind);
    record
}

fn read_end(record: Option<EndRecord>) -> Result<End, Damage> {
    let record = record.ok_or_else(|| Damage::new("an end that does not say how"))?;
    match record.kind() {
        EndKind::Released => Ok(End::Released),
        EndKind::Expired => Ok(End::Expired),
        EndKind::Revoked => Ok(End::Revoked { by: holder(&record.by)?, reason: note(&record.reason)? }),
        EndKind::ParentEnded => Ok(End::ParentEnded { parent: lease_id(record.parent)? }),
        EndKind::Superseded => Ok(End::Superseded),
        EndKind::MaxLifetime => Ok(End::MaxLifetime),
        EndKind::WaitedOut => Ok(End::WaitedOut),
        EndKind::Transferred => Ok(End::Transferred { to: holder(&record.to)? }),
        EndKind::Unspecified => Err(Damage::new("an end of a kind that this build does not know")),
    }
}

impl EndedLease {
    pub(super) fn record(&self) -> EndedLeaseRecord {
        EndedLeaseRecord {
            lease: self.lease.number(),
            holder: self.holder.to_string(),
            request: self.request,
            how: Some(end_record(&self.how)),
            when_ms: self.when.millis(),
            wall_ms: self.wall_ms,
        }
    }
}

impl EndedLeaseRecord {
    pub(super) fn read(self) -> Result<EndedLease, Damage> {
        Ok(EndedLease {
            lease: lease_id(self.lease)?,
            holder: holder(&self.holder)?,
            request: self.request,
            how: read_end(self.how)?,
            when: Moment::from_millis(self.when_ms),
            wall_ms: self.wall_ms,
        })
    }
}

impl EndedClaim {
    pub(super) fn record(&self) -> EndedClaimRecord {
        EndedClaimRecord {
            resource: self.resource.to_string(),
            lease: self.lease.number(),
            holder: self.holder.to_string(),
            fence: self.fence.number(),
            how: Some(end_record(&self.how)),
            when_ms: self.when.millis(),
            wall_ms: self.wall_ms,
            mode: mode_record(self.mode),
            epoch: self.epoch.map_or(0, Epoch::number),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
        }
    }
}

impl EndedClaimRecord {
    pub(super) fn read(self) -> Result<EndedClaim, Damage> {
        Ok(EndedClaim {
            resource: name(&self.resource)?,
            lease: lease_id(self.lease)?,
            holder: holder(&self.holder)?,
            fence: fence(self.fence)?,
            mode: mode(self.mode)?,
            epoch: epoch(self.epoch),
            since: Moment::from_millis(self.since_ms),
            since_wall_ms: self.since_wall_ms,
            how: read_end(self.how)?,
            when: Moment::from_millis(self.when_ms),
            wall_ms: self.wall_ms,
        })
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
    };
    record.set_kind(kind);
    record
}

pub(super) fn read_event(record: EventRecord) -> Result<Event, Damage> {
    let (revision, at) = (Revision(record.revision), Moment::from_millis(record.at_ms));
    let (n, last, wall_ms) = (record.n, record.last, record.wall_ms);
    Ok(Event { revision, n, last, at, wall_ms, what: read_happening(record)? })
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
        EventKind::Unspecified => return Err(Damage::new("an event of a kind that this build does not know")),
    })
}
