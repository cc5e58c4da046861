//! The shapes of what is over in a snapshot: ended leases and ended claims. A field's number is for ever.

use super::super::history::EndedEpoch;
use super::super::{EndedClaim, EndedLease};
use crate::event::End;
use crate::mode::Epoch;
use crate::record::{Damage, ModeRecord, epoch, fence, holder, lease_id, mode, mode_record, name, note};
use crate::time::Moment;
use alloc::string::{String, ToString};
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
    Unhealthy = 9,
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

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndedEpochRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, tag = "3")]
    epoch: u64,
}

pub(super) fn end_record(how: &End) -> EndRecord {
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
        End::Unhealthy => EndKind::Unhealthy,
        End::Transferred { to } => {
            record.to = to.to_string();
            EndKind::Transferred
        }
    };
    record.set_kind(kind);
    record
}

pub(super) fn read_end(record: Option<EndRecord>) -> Result<End, Damage> {
    let record = record.ok_or_else(|| Damage::new("an end that does not say how"))?;
    match record.kind() {
        EndKind::Released => Ok(End::Released),
        EndKind::Expired => Ok(End::Expired),
        EndKind::Revoked => Ok(End::Revoked { by: holder(&record.by)?, reason: note(&record.reason)? }),
        EndKind::ParentEnded => Ok(End::ParentEnded { parent: lease_id(record.parent)? }),
        EndKind::Superseded => Ok(End::Superseded),
        EndKind::MaxLifetime => Ok(End::MaxLifetime),
        EndKind::WaitedOut => Ok(End::WaitedOut),
        EndKind::Unhealthy => Ok(End::Unhealthy),
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

impl EndedEpoch {
    pub(super) fn record(&self) -> EndedEpochRecord {
        let (resource, holder) = (self.resource.to_string(), self.holder.to_string());
        EndedEpochRecord { resource, holder, epoch: self.epoch.number() }
    }
}

impl EndedEpochRecord {
    pub(super) fn read(&self) -> Result<EndedEpoch, Damage> {
        let epoch = epoch(self.epoch).ok_or_else(|| Damage::new("an ended epoch that is none"))?;
        Ok(EndedEpoch { resource: name(&self.resource)?, holder: holder(&self.holder)?, epoch })
    }
}
