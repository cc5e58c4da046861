//! The shape of refusals about instances between nodes.

use super::bad_details::BadDetailsRecord;
use super::end::EndedRecord;
use super::{Damage, holder, instance_key, lease_id, word};
use crate::event::End;
use crate::names::{Holder, LeaseId};
use crate::registry::{BadDetails, InstanceKey, Word};
use crate::reply::Refusal;
use crate::time::Moment;
use alloc::string::{String, ToString};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct InstanceKeyRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NoInstanceRecord {
    #[prost(message, required, tag = "1")]
    instance: InstanceKeyRecord,
    #[prost(message, optional, tag = "2")]
    ended: Option<EndedRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InstanceExistsRecord {
    #[prost(message, required, tag = "1")]
    instance: InstanceKeyRecord,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, optional, tag = "3")]
    epoch: Option<u64>,
    #[prost(uint64, tag = "4")]
    remaining_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OlderInstanceRecord {
    #[prost(message, required, tag = "1")]
    pub(super) instance: InstanceKeyRecord,
    #[prost(uint64, tag = "2")]
    pub(super) asked: u64,
    #[prost(uint64, tag = "3")]
    pub(super) current: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OtherLeaseRecord {
    #[prost(message, required, tag = "1")]
    instance: InstanceKeyRecord,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(string, tag = "3")]
    holder: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NoCheckRecord {
    #[prost(message, required, tag = "1")]
    instance: InstanceKeyRecord,
    #[prost(string, tag = "2")]
    check: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BadInstanceRecord {
    #[prost(message, required, tag = "1")]
    instance: InstanceKeyRecord,
    #[prost(message, required, tag = "2")]
    why: BadDetailsRecord,
}

impl InstanceKeyRecord {
    pub(super) fn of(key: &InstanceKey) -> Self {
        Self { service: key.service.to_string(), id: key.id.to_string() }
    }

    fn read(&self) -> Result<InstanceKey, Damage> {
        instance_key(&self.service, &self.id)
    }
}

impl NoInstanceRecord {
    pub(super) fn of(instance: &InstanceKey, ended: Option<&(End, Moment, u64)>) -> Self {
        Self { instance: InstanceKeyRecord::of(instance), ended: EndedRecord::of_known(ended) }
    }

    pub(super) fn read(self) -> Result<Refusal, Damage> {
        let ended = self.ended.map(EndedRecord::read).transpose()?;
        Ok(Refusal::NoInstance { instance: self.instance.read()?, ended })
    }
}

impl InstanceExistsRecord {
    pub(super) fn of(instance: &InstanceKey, holder: &Holder, epoch: Option<u64>, remaining_ms: u64) -> Self {
        Self { instance: InstanceKeyRecord::of(instance), holder: holder.to_string(), epoch, remaining_ms }
    }

    pub(super) fn read(self) -> Result<Refusal, Damage> {
        let (instance, holder) = (self.instance.read()?, holder(&self.holder)?);
        Ok(Refusal::InstanceExists { instance, holder, epoch: self.epoch, remaining_ms: self.remaining_ms })
    }
}

impl OlderInstanceRecord {
    pub(super) fn read(self) -> Result<Refusal, Damage> {
        Ok(Refusal::OlderInstance { instance: self.instance.read()?, asked: self.asked, current: self.current })
    }
}

impl OtherLeaseRecord {
    pub(super) fn of(instance: &InstanceKey, lease: LeaseId, holder: &Holder) -> Self {
        Self { instance: InstanceKeyRecord::of(instance), lease: lease.number(), holder: holder.to_string() }
    }

    pub(super) fn read(self) -> Result<Refusal, Damage> {
        let (instance, lease) = (self.instance.read()?, lease_id(self.lease)?);
        Ok(Refusal::OtherLease { instance, lease, holder: holder(&self.holder)? })
    }
}

impl NoCheckRecord {
    pub(super) fn of(instance: &InstanceKey, check: &Word) -> Self {
        Self { instance: InstanceKeyRecord::of(instance), check: check.to_string() }
    }

    pub(super) fn read(self) -> Result<Refusal, Damage> {
        Ok(Refusal::NoCheck { instance: self.instance.read()?, check: word(&self.check)? })
    }
}

impl BadInstanceRecord {
    pub(super) fn of(instance: &InstanceKey, why: &BadDetails) -> Self {
        Self { instance: InstanceKeyRecord::of(instance), why: why.record() }
    }

    pub(super) fn read(self) -> Result<Refusal, Damage> {
        Ok(Refusal::BadInstance { instance: self.instance.read()?, why: BadDetails::read(self.why)? })
    }
}
