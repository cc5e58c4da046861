//! The shapes of what is over in a snapshot: ended leases and ended claims. A field's number is for ever.

use super::super::history::EndedEpoch;
use super::super::{EndedClaim, EndedLease};
use crate::mode::Epoch;
use crate::record::{
    Damage, EndRecord, ModeRecord, end_record, epoch, fence, holder, lease_id, mode, mode_record, name, read_end,
};
use crate::time::Moment;
use alloc::string::{String, ToString};
use prost::Message;

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
