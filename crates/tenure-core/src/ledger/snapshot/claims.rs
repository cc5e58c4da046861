//! The shapes of claims that are over, or will be, in a snapshot: vacating stakes, and ordered breaks. A field's number is
//! for ever.

use super::super::Vacating;
use super::super::force::Ordered;
use crate::actor::ApiKeyName;
use crate::command::Force;
use crate::fence::Fence;
use crate::mode::Epoch;
use crate::record::{
    Damage, ForceRecord, ModeRecord, api_key_or_none, epoch, holder, lease_id, mode, mode_record, name,
};
use crate::time::Moment;
use alloc::string::{String, ToString};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct VacatingRecord {
    #[prost(uint64, tag = "1")]
    pub(super) fence: u64,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(string, tag = "4")]
    holder: String,
    #[prost(message, optional, tag = "5")]
    mode: Option<ModeRecord>,
    #[prost(uint64, tag = "6")]
    epoch: u64,
    #[prost(uint64, tag = "7")]
    until_ms: u64,
    /// The API key that its lease was begun with; empty without one.
    #[prost(string, tag = "8")]
    owner: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BreakRecord {
    #[prost(uint64, tag = "1")]
    pub(super) fence: u64,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(uint64, tag = "4")]
    at_ms: u64,
    #[prost(message, optional, tag = "5")]
    force: Option<ForceRecord>,
}

/// The name of a key, or nothing.
pub(super) fn key_text(key: Option<&ApiKeyName>) -> String {
    key.map_or_else(String::new, ToString::to_string)
}

impl Vacating {
    pub(super) fn record(&self, fence: Fence) -> VacatingRecord {
        VacatingRecord {
            fence: fence.number(),
            resource: self.resource.to_string(),
            lease: self.lease.number(),
            holder: self.holder.to_string(),
            mode: mode_record(self.mode),
            epoch: self.epoch.map_or(0, Epoch::number),
            until_ms: self.until.millis(),
            owner: key_text(self.owner.as_ref()),
        }
    }

    pub(super) fn read(record: &VacatingRecord) -> Result<Self, Damage> {
        Ok(Self {
            resource: name(&record.resource)?,
            lease: lease_id(record.lease)?,
            holder: holder(&record.holder)?,
            mode: mode(record.mode)?,
            epoch: epoch(record.epoch),
            until: Moment::from_millis(record.until_ms),
            owner: api_key_or_none(&record.owner)?,
        })
    }
}

impl Ordered {
    pub(super) fn record(&self, fence: Fence) -> BreakRecord {
        BreakRecord {
            fence: fence.number(),
            resource: self.resource.to_string(),
            lease: self.lease.number(),
            at_ms: self.at.millis(),
            force: Some(self.force.record()),
        }
    }

    pub(super) fn read(record: BreakRecord) -> Result<Self, Damage> {
        Ok(Self {
            resource: name(&record.resource)?,
            lease: lease_id(record.lease)?,
            at: Moment::from_millis(record.at_ms),
            force: Force::read_some(record.force)?,
        })
    }
}
