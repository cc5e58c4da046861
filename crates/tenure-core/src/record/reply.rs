//! The shape of replies between nodes.

use super::done::TxnDoneRecord;
use super::outcome::{NothingRecord, few, short};
use super::refusal::RefusalRecord;
use super::{Damage, fence, health, health_number, lease_id, name, units, units_number};
use crate::event::Revision;
use crate::fence::Handle;
use crate::limits::{NAME_BYTES_MAX, RENEWALS_MAX, RESOURCES_MAX};
use crate::reply::{Place, Refusal, Registered, Renewed, Reply, Seat};
use crate::txn::TxnDone;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReplyRecord {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Granted(GrantedRecord),
    #[prost(message, tag = "2")]
    Seated(SeatRecord),
    #[prost(message, tag = "3")]
    Waiting(PlaceRecord),
    #[prost(message, tag = "4")]
    Renewed(RenewalsRecord),
    #[prost(message, tag = "5")]
    HandleRenewed(RenewedRecord),
    /// In how many milliseconds it is free.
    #[prost(uint64, tag = "6")]
    Released(u64),
    #[prost(message, tag = "7")]
    AlreadyReleased(NothingRecord),
    #[prost(message, tag = "8")]
    Cancelled(NothingRecord),
    #[prost(message, tag = "9")]
    Revoked(RevokedRecord),
    #[prost(message, tag = "10")]
    Broken(BrokenRecord),
    /// The capacity.
    #[prost(uint32, tag = "11")]
    Defined(u32),
    #[prost(message, tag = "12")]
    ClassSet(NothingRecord),
    #[prost(message, tag = "13")]
    Put(WrittenRecord),
    #[prost(message, tag = "14")]
    Deleted(RemovedRecord),
    #[prost(message, tag = "15")]
    Txn(TxnDoneRecord),
    /// The revision of the keyspace.
    #[prost(uint64, tag = "16")]
    Compacted(u64),
    #[prost(message, tag = "17")]
    Registered(RegisteredRecord),
    /// The revision of the ledger, here and in the next two.
    #[prost(uint64, tag = "18")]
    Updated(u64),
    #[prost(uint64, tag = "19")]
    Drained(u64),
    #[prost(uint64, tag = "20")]
    Deregistered(u64),
    #[prost(message, tag = "21")]
    HealthSet(HealthSetRecord),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct GrantedRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    #[prost(uint64, tag = "3")]
    revision: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SeatRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(message, repeated, tag = "2")]
    claims: Vec<HandleRecord>,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(uint64, tag = "4")]
    revision: u64,
}

/// A resource with the fence of a claim on it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HandleRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PlaceRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(uint64, tag = "2")]
    place: u64,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(uint64, tag = "4")]
    revision: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RenewalsRecord {
    #[prost(message, repeated, tag = "1")]
    leases: Vec<RenewalRecord>,
}

/// What one of several leases is answered.
#[derive(Clone, PartialEq, Message)]
struct RenewalRecord {
    #[prost(oneof = "Renewal", tags = "1, 2")]
    answer: Option<Renewal>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Renewal {
    #[prost(message, tag = "1")]
    Renewed(RenewedRecord),
    #[prost(message, tag = "2")]
    Refused(RefusalRecord),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct RenewedRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    #[prost(bool, tag = "3")]
    is_final: bool,
    #[prost(uint64, tag = "4")]
    waiting: u64,
    #[prost(uint64, tag = "5")]
    longest_wait_ms: u64,
    #[prost(uint64, optional, tag = "6")]
    breaks_in_ms: Option<u64>,
    #[prost(uint64, tag = "7")]
    lost: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RevokedRecord {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(string, optional, tag = "2")]
    next: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct BrokenRecord {
    #[prost(uint64, tag = "1")]
    claims: u64,
    #[prost(uint64, tag = "2")]
    free_in_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct WrittenRecord {
    #[prost(uint64, tag = "1")]
    kv_revision: u64,
    #[prost(uint64, tag = "2")]
    version: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct RemovedRecord {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(uint64, tag = "2")]
    kv_revision: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct RegisteredRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    /// 0 passing, 1 degraded, 2 unknown, 3 critical.
    #[prost(uint32, tag = "3")]
    overall: u32,
    #[prost(uint64, optional, tag = "4")]
    held_ms: Option<u64>,
    #[prost(uint64, tag = "5")]
    revision: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct HealthSetRecord {
    /// 0 passing, 1 degraded, 2 unknown, 3 critical.
    #[prost(uint32, tag = "1")]
    overall: u32,
    #[prost(uint64, optional, tag = "2")]
    held_ms: Option<u64>,
    #[prost(uint64, tag = "3")]
    revision: u64,
}

fn unknown() -> Damage {
    Damage::new("a reply of a kind that this build does not know")
}

impl Reply {
    pub(super) fn record(&self) -> ReplyRecord {
        let kind = match self {
            Self::Granted { lease, ttl_ms, revision } => {
                Kind::Granted(GrantedRecord { lease: lease.number(), ttl_ms: *ttl_ms, revision: revision.0 })
            }
            Self::Seated(seat) => Kind::Seated(seat.record()),
            Self::Waiting(place) => Kind::Waiting(place.record()),
            Self::Renewed(leases) => {
                Kind::Renewed(RenewalsRecord { leases: leases.iter().map(RenewalRecord::of).collect() })
            }
            Self::HandleRenewed(renewed) => Kind::HandleRenewed(renewed.record()),
            Self::Released { free_in_ms } => Kind::Released(*free_in_ms),
            Self::AlreadyReleased => Kind::AlreadyReleased(NothingRecord {}),
            Self::Cancelled => Kind::Cancelled(NothingRecord {}),
            Self::Revoked { count, next } => Kind::Revoked(RevokedRecord { count: *count, next: next.clone() }),
            Self::Broken { claims, free_in_ms } => {
                Kind::Broken(BrokenRecord { claims: *claims, free_in_ms: *free_in_ms })
            }
            Self::Defined { capacity } => Kind::Defined(units_number(Some(*capacity))),
            Self::ClassSet => Kind::ClassSet(NothingRecord {}),
            Self::Put { kv_revision, version } => {
                Kind::Put(WrittenRecord { kv_revision: *kv_revision, version: *version })
            }
            Self::Deleted { count, kv_revision } => {
                Kind::Deleted(RemovedRecord { count: *count, kv_revision: *kv_revision })
            }
            Self::Txn(done) => Kind::Txn(done.record()),
            Self::Compacted { kv_revision } => Kind::Compacted(*kv_revision),
            Self::Registered(registered) => Kind::Registered(registered.record()),
            Self::Updated { revision } => Kind::Updated(revision.0),
            Self::Drained { revision } => Kind::Drained(revision.0),
            Self::Deregistered { revision } => Kind::Deregistered(revision.0),
            Self::HealthSet { overall, held_ms, revision } => Kind::HealthSet(HealthSetRecord {
                overall: health_number(*overall),
                held_ms: *held_ms,
                revision: revision.0,
            }),
        };
        ReplyRecord { kind: Some(kind) }
    }

    pub(super) fn read(record: ReplyRecord) -> Result<Self, Damage> {
        Ok(match record.kind.ok_or_else(unknown)? {
            Kind::Granted(it) => {
                Self::Granted { lease: lease_id(it.lease)?, ttl_ms: it.ttl_ms, revision: Revision(it.revision) }
            }
            Kind::Seated(it) => Self::Seated(Seat::read(it)?),
            Kind::Waiting(it) => Self::Waiting(Place::read(it)?),
            Kind::Renewed(it) => Self::Renewed(few(it.leases, RENEWALS_MAX, RenewalRecord::read)?),
            Kind::HandleRenewed(it) => Self::HandleRenewed(Renewed::read(it)?),
            Kind::Released(free_in_ms) => Self::Released { free_in_ms },
            Kind::AlreadyReleased(NothingRecord {}) => Self::AlreadyReleased,
            Kind::Cancelled(NothingRecord {}) => Self::Cancelled,
            Kind::Revoked(it) => {
                let next = it.next.map(|next| short(next, NAME_BYTES_MAX)).transpose()?;
                Self::Revoked { count: it.count, next }
            }
            Kind::Broken(it) => Self::Broken { claims: it.claims, free_in_ms: it.free_in_ms },
            Kind::Defined(capacity) => Self::Defined { capacity: units(capacity)? },
            Kind::ClassSet(NothingRecord {}) => Self::ClassSet,
            Kind::Put(it) => Self::Put { kv_revision: it.kv_revision, version: it.version },
            Kind::Deleted(it) => Self::Deleted { count: it.count, kv_revision: it.kv_revision },
            Kind::Txn(it) => Self::Txn(TxnDone::read(it)?),
            Kind::Compacted(kv_revision) => Self::Compacted { kv_revision },
            Kind::Registered(it) => Self::Registered(Registered::read(it)?),
            Kind::Updated(revision) => Self::Updated { revision: Revision(revision) },
            Kind::Drained(revision) => Self::Drained { revision: Revision(revision) },
            Kind::Deregistered(revision) => Self::Deregistered { revision: Revision(revision) },
            Kind::HealthSet(it) => {
                let (overall, revision) = (health(it.overall)?, Revision(it.revision));
                Self::HealthSet { overall, held_ms: it.held_ms, revision }
            }
        })
    }
}

impl Seat {
    fn record(&self) -> SeatRecord {
        SeatRecord {
            lease: self.lease.number(),
            claims: self.claims.iter().map(HandleRecord::of).collect(),
            ttl_ms: self.ttl_ms,
            revision: self.revision.0,
        }
    }

    fn read(record: SeatRecord) -> Result<Self, Damage> {
        Ok(Self {
            lease: lease_id(record.lease)?,
            claims: few(record.claims, RESOURCES_MAX, |it| it.read())?,
            ttl_ms: record.ttl_ms,
            revision: Revision(record.revision),
        })
    }
}

impl HandleRecord {
    pub(super) fn of(handle: &Handle) -> Self {
        Self { resource: handle.resource.to_string(), fence: handle.fence.number() }
    }

    pub(super) fn read(&self) -> Result<Handle, Damage> {
        Ok(Handle { resource: name(&self.resource)?, fence: fence(self.fence)? })
    }
}

impl Place {
    const fn record(&self) -> PlaceRecord {
        let Self { lease, place, ttl_ms, revision } = *self;
        PlaceRecord { lease: lease.number(), place, ttl_ms, revision: revision.0 }
    }

    fn read(record: PlaceRecord) -> Result<Self, Damage> {
        let PlaceRecord { lease, place, ttl_ms, revision } = record;
        Ok(Self { lease: lease_id(lease)?, place, ttl_ms, revision: Revision(revision) })
    }
}

impl RenewalRecord {
    fn of(answer: &Result<Renewed, Refusal>) -> Self {
        let answer = match answer {
            Ok(renewed) => Renewal::Renewed(renewed.record()),
            Err(refusal) => Renewal::Refused(refusal.record()),
        };
        Self { answer: Some(answer) }
    }

    fn read(self) -> Result<Result<Renewed, Refusal>, Damage> {
        Ok(match self.answer.ok_or_else(unknown)? {
            Renewal::Renewed(renewed) => Ok(Renewed::read(renewed)?),
            Renewal::Refused(refusal) => Err(Refusal::read(refusal)?),
        })
    }
}

impl Renewed {
    const fn record(&self) -> RenewedRecord {
        let Self { lease, ttl_ms, is_final, waiting, longest_wait_ms, breaks_in_ms, lost } = *self;
        RenewedRecord { lease: lease.number(), ttl_ms, is_final, waiting, longest_wait_ms, breaks_in_ms, lost }
    }

    fn read(record: RenewedRecord) -> Result<Self, Damage> {
        let RenewedRecord { lease, ttl_ms, is_final, waiting, longest_wait_ms, breaks_in_ms, lost } = record;
        Ok(Self { lease: lease_id(lease)?, ttl_ms, is_final, waiting, longest_wait_ms, breaks_in_ms, lost })
    }
}

impl Registered {
    const fn record(&self) -> RegisteredRecord {
        let Self { lease, ttl_ms, overall, held_ms, revision } = *self;
        RegisteredRecord {
            lease: lease.number(),
            ttl_ms,
            overall: health_number(overall),
            held_ms,
            revision: revision.0,
        }
    }

    fn read(record: RegisteredRecord) -> Result<Self, Damage> {
        let RegisteredRecord { lease, ttl_ms, overall, held_ms, revision } = record;
        let (lease, overall) = (lease_id(lease)?, health(overall)?);
        Ok(Self { lease, ttl_ms, overall, held_ms, revision: Revision(revision) })
    }
}
