//! The shapes of what lives in a snapshot. A field's number is for ever.

use super::super::force::Ordered;
use super::super::keyspace::{At, Version};
use super::super::lease::{Index, Origin, Stake};
use super::super::registry::CLASS;
use super::super::requests::Requests;
use super::super::{Holding, KeyValue, Lease, Ledger, Resource, Suspect, Vacating, Waiter};
use super::claims::{BreakRecord, VacatingRecord, key_text};
use super::events::{EventRecord, read_event};
use super::holdings;
use super::past::{EndedClaimRecord, EndedEpochRecord, EndedLeaseRecord};
use super::rebuild::check;
use super::registry::{EndedInstanceRecord, InstanceRecord, JudgedRecord, SuspectRecord};
use crate::limits::{GRACE_MS_MAX, LOCK_DELAY_MS_MAX, RESOURCES_MAX, TTL_MS_MAX};
use crate::mode::{Epoch, Units};
use crate::names::{Key, LeaseId, Name};
use crate::record::{
    ClassRecord, Damage, KeyRecord, LifetimeRecord, ModeRecord, api_key_or_none, class, epoch, fence, holder, key,
    label_pairs, labels, lease_id, lease_or_none, lifetime, lifetime_record, mode, mode_record, name, name_or_none,
    note, priority, span, ttl, units, units_number,
};
use crate::request::Secret;
use crate::time::Moment;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Head(HeadRecord),
    #[prost(message, tag = "2")]
    Lease(LeaseRecord),
    #[prost(uint64, tag = "3")]
    ToSeat(u64),
    #[prost(message, tag = "4")]
    EndedLease(EndedLeaseRecord),
    #[prost(message, tag = "5")]
    EndedClaim(EndedClaimRecord),
    #[prost(message, tag = "6")]
    Event(EventRecord),
    #[prost(message, tag = "7")]
    Class(ClassRecord),
    #[prost(message, tag = "8")]
    Resource(ResourceRecord),
    #[prost(message, tag = "9")]
    Waiter(WaiterRecord),
    #[prost(message, tag = "10")]
    Vacating(VacatingRecord),
    #[prost(message, tag = "11")]
    Break(BreakRecord),
    #[prost(message, tag = "12")]
    Key(KeyRecord),
    /// What a key was: like what it is, but for keys that were deleted, which have a version of 0.
    #[prost(message, tag = "13")]
    Past(KeyRecord),
    #[prost(message, tag = "14")]
    Instance(InstanceRecord),
    #[prost(message, tag = "15")]
    EndedInstance(EndedInstanceRecord),
    #[prost(message, tag = "16")]
    Judged(JudgedRecord),
    #[prost(message, tag = "17")]
    EndedEpoch(EndedEpochRecord),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeadRecord {
    #[prost(uint64, tag = "1")]
    pub(super) now_ms: u64,
    #[prost(uint64, tag = "2")]
    pub(super) wall_ms: u64,
    #[prost(uint64, tag = "3")]
    pub(super) revision: u64,
    #[prost(uint64, tag = "4")]
    pub(super) fence: u64,
    #[prost(uint64, tag = "5")]
    pub(super) arrival: u64,
    #[prost(uint64, tag = "6")]
    pub(super) compacted_revision: u64,
    #[prost(uint32, tag = "7")]
    pub(super) compacted_n: u32,
    /// How many records follow, so that a stream that was cut between two records is noticed.
    #[prost(uint64, tag = "8")]
    pub(super) records: u64,
    #[prost(uint32, tag = "9")]
    pub(super) rules: u32,
    #[prost(uint64, tag = "10")]
    pub(super) kv_revision: u64,
    /// The keyspace's compacted revision.
    #[prost(uint64, optional, tag = "11")]
    pub(super) kv_compacted: Option<u64>,
    #[prost(uint64, tag = "12")]
    pub(super) kv_cleared: u64,
    /// The last instance that was numbered.
    #[prost(uint64, tag = "13")]
    pub(super) registered: u64,
    /// The newest event of a key that was dropped.
    #[prost(uint64, tag = "14")]
    pub(super) keys_compacted_revision: u64,
    #[prost(uint32, tag = "15")]
    pub(super) keys_compacted_n: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(uint64, tag = "4")]
    deadline_ms: u64,
    #[prost(fixed64, tag = "5")]
    request: u64,
    #[prost(uint64, tag = "7")]
    granted_wall_ms: u64,
    #[prost(bool, tag = "8")]
    by_acquire: bool,
    #[prost(message, repeated, tag = "9")]
    holdings: Vec<HoldingRecord>,
    #[prost(uint64, tag = "10")]
    grace_ms: u64,
    #[prost(string, tag = "11")]
    class: String,
    #[prost(message, optional, tag = "12")]
    lifetime: Option<LifetimeRecord>,
    #[prost(uint64, optional, tag = "13")]
    lifetime_from_ms: Option<u64>,
    #[prost(fixed64, tag = "14")]
    parent: u64,
    #[prost(btree_map = "string, string", tag = "15")]
    labels: BTreeMap<String, String>,
    #[prost(string, tag = "16")]
    reason: String,
    #[prost(uint64, tag = "17")]
    renewed_ms: u64,
    #[prost(uint64, tag = "18")]
    renewed_wall_ms: u64,
    #[prost(bool, tag = "19")]
    capped: bool,
    #[prost(bool, tag = "20")]
    unconfirmed: bool,
    #[prost(uint32, tag = "21")]
    lost: u32,
    #[prost(uint64, tag = "22")]
    gap_ms: u64,
    #[prost(message, optional, tag = "23")]
    suspect: Option<SuspectRecord>,
    #[prost(bool, tag = "24")]
    by_register: bool,
    #[prost(uint64, tag = "25")]
    answered_below: u64,
    #[prost(uint64, repeated, tag = "26")]
    answered: Vec<u64>,
    /// The API key that it was begun with; empty without one.
    #[prost(string, tag = "27")]
    owner: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HoldingRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
    #[prost(uint64, tag = "3")]
    since_ms: u64,
    #[prost(uint64, tag = "4")]
    since_wall_ms: u64,
    #[prost(message, optional, tag = "5")]
    mode: Option<ModeRecord>,
    #[prost(uint64, tag = "6")]
    lock_delay_ms: u64,
    #[prost(uint64, tag = "7")]
    epoch: u64,
    #[prost(uint64, tag = "8")]
    request: u64,
    #[prost(fixed64, tag = "9")]
    secret: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    capacity: u32,
    #[prost(bool, tag = "3")]
    defined: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WaiterRecord {
    #[prost(uint64, tag = "1")]
    arrival: u64,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(message, repeated, tag = "3")]
    wants: Vec<WantRecord>,
    #[prost(sint32, tag = "4")]
    priority: i32,
    #[prost(uint64, tag = "5")]
    since_ms: u64,
    #[prost(uint64, tag = "6")]
    since_wall_ms: u64,
    #[prost(uint64, optional, tag = "7")]
    limit_ms: Option<u64>,
    #[prost(uint64, tag = "8")]
    lock_delay_ms: u64,
    #[prost(uint64, tag = "9")]
    epoch: u64,
    /// A seat that was reserved for it: it goes before everybody.
    #[prost(bool, tag = "10")]
    reserved: bool,
    #[prost(uint64, tag = "11")]
    request: u64,
    #[prost(fixed64, tag = "12")]
    secret: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WantRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    mode: Option<ModeRecord>,
}

impl Lease {
    pub(super) fn record(&self, id: LeaseId) -> LeaseRecord {
        LeaseRecord {
            lease: id.number(),
            holder: self.holder.to_string(),
            ttl_ms: self.ttl.millis(),
            deadline_ms: self.deadline.millis(),
            request: self.request,
            granted_wall_ms: self.granted_wall_ms,
            by_acquire: self.origin == Origin::Acquire,
            holdings: holdings(self).map(|(name, holding)| holding.record(name)).collect(),
            grace_ms: self.grace.millis(),
            class: self.class.as_ref().map_or_else(String::new, ToString::to_string),
            lifetime: lifetime_record(self.lifetime),
            lifetime_from_ms: self.lifetime_from.map(Moment::millis),
            parent: self.parent.map_or(0, LeaseId::number),
            labels: label_pairs(&self.labels),
            reason: self.reason.to_string(),
            renewed_ms: self.renewed.millis(),
            renewed_wall_ms: self.renewed_wall_ms,
            capped: self.capped,
            unconfirmed: self.unconfirmed,
            lost: self.lost,
            gap_ms: self.gap_ms,
            suspect: self.suspect.as_ref().map(|suspect| suspect.record()),
            by_register: self.origin == Origin::Register,
            answered_below: self.requests.below(),
            answered: self.requests.answered().collect(),
            owner: key_text(self.owner.as_ref()),
        }
    }

    fn read(record: &LeaseRecord) -> Result<Self, Damage> {
        let mut stakes = BTreeMap::new();
        for held in &record.holdings {
            if stakes.insert(name(&held.resource)?, Stake::Holding(Box::new(Holding::read(held)?))).is_some() {
                return Err(Damage::new("a lease with two claims on one resource"));
            }
        }
        let deadline = Moment::from_millis(record.deadline_ms);
        let class = name_or_none(&record.class)?;
        let registers = class.as_ref().is_some_and(|class| class.as_str() == CLASS);
        check(registers || record.gap_ms == 0, "gaps of a lease of which none are measured")?;
        Ok(Self {
            holder: holder(&record.holder)?,
            request: record.request,
            requests: Requests::restored(record.answered_below, &record.answered)
                .ok_or_else(|| Damage::new("a lease with requests that cannot be"))?,
            ttl: ttl(record.ttl_ms)?,
            deadline,
            grace: span(record.grace_ms, GRACE_MS_MAX)?,
            class,
            lifetime: lifetime(record.lifetime)?,
            lifetime_from: record.lifetime_from_ms.map(Moment::from_millis),
            parent: lease_or_none(record.parent)?,
            labels: labels(&record.labels)?,
            reason: note(&record.reason)?,
            granted_wall_ms: record.granted_wall_ms,
            renewed: Moment::from_millis(record.renewed_ms),
            renewed_wall_ms: record.renewed_wall_ms,
            origin: match (record.by_acquire, record.by_register) {
                (false, false) => Origin::Grant,
                (true, false) => Origin::Acquire,
                (false, true) => Origin::Register,
                (true, true) => return Err(Damage::new("a lease that was made for two reasons")),
            },
            capped: record.capped,
            unconfirmed: record.unconfirmed,
            lost: record.lost,
            registers,
            gap_ms: span(record.gap_ms, TTL_MS_MAX)?.millis(),
            suspect: record.suspect.map(Suspect::read).transpose()?.map(Box::new),
            owner: api_key_or_none(&record.owner)?,
            stakes,
            keys: BTreeSet::new(),
            instances: BTreeSet::new(),
            children: BTreeSet::new(),
            index: Index::default(),
            carried: 0,
            armed: deadline,
        })
    }
}

impl Holding {
    fn record(&self, name: &Name) -> HoldingRecord {
        HoldingRecord {
            resource: name.to_string(),
            fence: self.fence.number(),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
            mode: mode_record(self.mode),
            lock_delay_ms: self.lock_delay.millis(),
            epoch: self.epoch.map_or(0, Epoch::number),
            request: self.request,
            secret: self.secret.map_or(0, Secret::number),
        }
    }

    fn read(record: &HoldingRecord) -> Result<Self, Damage> {
        Ok(Self {
            fence: fence(record.fence)?,
            mode: mode(record.mode)?,
            since: Moment::from_millis(record.since_ms),
            since_wall_ms: record.since_wall_ms,
            lock_delay: span(record.lock_delay_ms, LOCK_DELAY_MS_MAX)?,
            epoch: epoch(record.epoch),
            request: record.request,
            secret: Secret::new(record.secret),
        })
    }
}

impl ResourceRecord {
    pub(super) fn of(name: &Name, resource: &Resource) -> Self {
        let capacity = units_number(Some(resource.capacity));
        Self { name: name.to_string(), capacity, defined: resource.defined }
    }
}

impl Waiter {
    pub(super) fn record(&self, arrival: u64) -> WaiterRecord {
        let wants = self.wants.iter();
        let wants = wants.map(|(name, mode)| WantRecord { resource: name.to_string(), mode: mode_record(*mode) });
        WaiterRecord {
            arrival,
            lease: self.lease.number(),
            wants: wants.collect(),
            priority: self.priority.number(),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
            limit_ms: self.limit.map(Moment::millis),
            lock_delay_ms: self.lock_delay.millis(),
            epoch: self.epoch.map_or(0, Epoch::number),
            reserved: self.order_ms == i128::MIN,
            request: self.request,
            secret: self.secret.map_or(0, Secret::number),
        }
    }

    fn read(record: &WaiterRecord) -> Result<Self, Damage> {
        if record.wants.is_empty() || record.wants.len() > RESOURCES_MAX {
            return Err(Damage::new("a waiter that asks for nothing, or for too much"));
        }
        let wants = record.wants.iter().map(|want| Ok((name(&want.resource)?, mode(want.mode)?)));
        let (since, priority) = (Moment::from_millis(record.since_ms), priority(record.priority)?);
        Ok(Self {
            lease: lease_id(record.lease)?,
            wants: wants.collect::<Result<_, Damage>>()?,
            priority,
            since,
            since_wall_ms: record.since_wall_ms,
            limit: record.limit_ms.map(Moment::from_millis),
            lock_delay: span(record.lock_delay_ms, LOCK_DELAY_MS_MAX)?,
            epoch: epoch(record.epoch),
            request: record.request,
            secret: Secret::new(record.secret),
            order_ms: if record.reserved { i128::MIN } else { priority.order_ms(since) },
        })
    }
}

impl Version {
    pub(super) fn record(&self, key: &Key) -> KeyRecord {
        let At { revision, n } = self.at;
        let deleted = || KeyRecord { key: key.bytes().to_vec(), mod_revision: revision, n, ..KeyRecord::default() };
        self.is.as_ref().map_or_else(deleted, |value| value.record(key))
    }

    fn read(record: KeyRecord) -> Result<(Key, Self), Damage> {
        let at = At { revision: record.mod_revision, n: record.n };
        if record.version == 0 {
            return Ok((key(&record.key)?, Self { at, is: None }));
        }
        let (key, value) = KeyValue::read(record)?;
        Ok((key, Self::of(value)))
    }
}

impl Ledger {
    /// Takes one record in. What must fit together is looked at when all of them are there.
    pub(super) fn read_record(&mut self, kind: Kind) -> Result<(), Damage> {
        let is_new = match kind {
            Kind::Head(_) => return Err(Damage::new("a snapshot with two heads")),
            Kind::Class(record) => {
                let class = class(&record)?;
                class.accepts(class.ttl).map_err(|refusal| Damage(refusal.to_string()))?;
                self.classes.insert(class.name.clone(), class).is_none()
            }
            Kind::Resource(record) => {
                let (name, capacity) = (name(&record.name)?, units(record.capacity)?);
                if !record.defined && capacity == Units::ONE {
                    return Err(Damage::new("a resource of which there is nothing to say"));
                }
                let resource = Resource { capacity, defined: record.defined, ..Resource::default() };
                self.resources.insert(name, resource).is_none()
            }
            Kind::Lease(record) => self.leases.insert(lease_id(record.lease)?, Lease::read(&record)?).is_none(),
            Kind::Waiter(record) => self.waiters.insert(record.arrival, Waiter::read(&record)?).is_none(),
            Kind::Vacating(record) => self.vacating.insert(fence(record.fence)?, Vacating::read(&record)?).is_none(),
            Kind::Break(record) => self.breaks.insert(fence(record.fence)?, Ordered::read(record)?).is_none(),
            Kind::Key(record) => {
                let (key, value) = KeyValue::read(record)?;
                self.keyspace.keys.insert(key, value).is_none()
            }
            Kind::Past(record) => {
                let (key, version) = Version::read(record)?;
                self.keyspace.past.versions.entry(key).or_default().push_back(version);
                true
            }
            Kind::Instance(record) => self.read_instance(&record)?,
            Kind::Judged(record) => self.read_judged(&record)?,
            Kind::EndedInstance(record) => {
                self.history.remember_instance(record.read()?);
                true
            }
            Kind::ToSeat(arrival) => {
                let waiter = self.waiters.get(&arrival);
                let waiter = waiter.ok_or_else(|| Damage::new("somebody to seat who does not wait"))?;
                self.to_seat.insert((waiter.order_ms, arrival))
            }
            Kind::EndedLease(record) => {
                self.history.remember_lease(record.read()?);
                true
            }
            Kind::EndedClaim(record) => {
                self.history.remember_end_of_claim(record.read()?);
                true
            }
            Kind::EndedEpoch(record) => {
                self.history.remember_epoch(record.read()?);
                true
            }
            Kind::Event(record) => {
                self.history.restore_event(read_event(record)?);
                true
            }
        };
        if is_new { Ok(()) } else { Err(Damage::new("a record that is there twice")) }
    }
}
