//! The shapes of instances in a snapshot, living and over, and what is worked out from them. A field's number is for
//! ever.

use super::super::lease::Lease;
use super::super::registry::{Draining, Finding, Instance};
use super::super::{EndedInstance, Ledger, Suspect};
use super::events::JudgementRecord;
use super::rebuild::check;
use crate::limits::PENALTY_MAX;
use crate::mode::Epoch;
use crate::names::LeaseId;
use crate::record::{
    Damage, DetailsRecord, EndRecord, details, details_record, end_record, epoch, health, health_number, holder,
    instance_key, lease_id, name, note, read_end, word,
};
use crate::registry::{Health, InstanceKey, Judgement, Penalty, Word};
use crate::time::Moment;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct InstanceRecord {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(string, tag = "2")]
    service: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(fixed64, tag = "4")]
    lease: u64,
    #[prost(uint64, tag = "5")]
    epoch: u64,
    #[prost(message, optional, tag = "6")]
    details: Option<DetailsRecord>,
    #[prost(uint64, tag = "7")]
    since_ms: u64,
    #[prost(uint64, tag = "8")]
    since_wall_ms: u64,
    #[prost(message, optional, tag = "9")]
    draining: Option<DrainingRecord>,
    #[prost(message, repeated, tag = "10")]
    findings: Vec<FindingRecord>,
    #[prost(uint64, optional, tag = "11")]
    critical_since_ms: Option<u64>,
    #[prost(bool, tag = "12")]
    rose: bool,
    #[prost(uint64, tag = "13")]
    points: u64,
    #[prost(uint64, tag = "14")]
    points_since_ms: u64,
    #[prost(uint64, optional, tag = "15")]
    held_until_ms: Option<u64>,
    #[prost(uint64, tag = "16")]
    request: u64,
}

#[derive(Clone, PartialEq, Message)]
struct DrainingRecord {
    #[prost(string, tag = "1")]
    by: String,
    #[prost(string, tag = "2")]
    reason: String,
    #[prost(uint64, tag = "3")]
    since_ms: u64,
    #[prost(uint64, tag = "4")]
    since_wall_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct FindingRecord {
    /// 0 passing, 1 degraded, 2 unknown, 3 critical.
    #[prost(uint32, tag = "1")]
    health: u32,
    #[prost(string, tag = "2")]
    note: String,
    #[prost(uint64, tag = "3")]
    since_ms: u64,
    #[prost(uint64, tag = "4")]
    since_wall_ms: u64,
    #[prost(uint64, tag = "5")]
    told_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndedInstanceRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(string, tag = "4")]
    holder: String,
    #[prost(uint64, tag = "5")]
    epoch: u64,
    #[prost(uint64, tag = "6")]
    since_ms: u64,
    #[prost(uint64, tag = "7")]
    since_wall_ms: u64,
    #[prost(uint64, tag = "8")]
    points: u64,
    #[prost(uint64, tag = "9")]
    points_since_ms: u64,
    #[prost(message, optional, tag = "10")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "11")]
    when_ms: u64,
    #[prost(uint64, tag = "12")]
    wall_ms: u64,
    #[prost(uint64, optional, tag = "13")]
    held_until_ms: Option<u64>,
}

/// What was judged of a cohort a moment ago.
#[derive(Clone, PartialEq, Message)]
pub(super) struct JudgedRecord {
    #[prost(string, tag = "1")]
    service: String,
    /// Empty: no zone.
    #[prost(string, tag = "2")]
    zone: String,
    #[prost(message, optional, tag = "3")]
    judgement: Option<JudgementRecord>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct SuspectRecord {
    #[prost(uint64, tag = "1")]
    until_ms: u64,
    #[prost(message, optional, tag = "2")]
    judgement: Option<JudgementRecord>,
}

impl Suspect {
    pub(super) fn record(&self) -> SuspectRecord {
        SuspectRecord { until_ms: self.until.millis(), judgement: Some(self.judgement.record()) }
    }

    pub(super) fn read(record: SuspectRecord) -> Result<Self, Damage> {
        Ok(Self { until: Moment::from_millis(record.until_ms), judgement: Judgement::read(record.judgement)? })
    }
}

fn penalty(points: u64, since_ms: u64) -> Result<Penalty, Damage> {
    check(points <= PENALTY_MAX, "more points than an instance can have")?;
    Ok(Penalty { points, since: Moment::from_millis(since_ms) })
}

impl Draining {
    fn record(&self) -> DrainingRecord {
        DrainingRecord {
            by: self.by.to_string(),
            reason: self.reason.to_string(),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
        }
    }

    fn read(record: &DrainingRecord) -> Result<Self, Damage> {
        Ok(Self {
            by: holder(&record.by)?,
            reason: note(&record.reason)?,
            since: Moment::from_millis(record.since_ms),
            since_wall_ms: record.since_wall_ms,
        })
    }
}

impl Finding {
    fn record(&self) -> FindingRecord {
        FindingRecord {
            health: health_number(self.health),
            note: self.note.to_string(),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
            told_ms: self.told.millis(),
        }
    }

    fn read(record: &FindingRecord) -> Result<Self, Damage> {
        Ok(Self {
            health: health(record.health)?,
            note: note(&record.note)?,
            since: Moment::from_millis(record.since_ms),
            since_wall_ms: record.since_wall_ms,
            told: Moment::from_millis(record.told_ms),
        })
    }
}

impl Instance {
    fn record(&self, key: &InstanceKey) -> InstanceRecord {
        InstanceRecord {
            number: self.number,
            service: key.service.to_string(),
            id: key.id.to_string(),
            lease: self.lease.number(),
            epoch: self.epoch.map_or(0, Epoch::number),
            details: Some(details_record(&self.details)),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
            draining: self.draining.as_ref().map(Draining::record),
            findings: self.findings.iter().map(Finding::record).collect(),
            critical_since_ms: self.critical_since.map(Moment::millis),
            rose: self.rose,
            points: self.penalty.points,
            points_since_ms: self.penalty.since.millis(),
            held_until_ms: self.held_until.map(Moment::millis),
            request: self.request,
        }
    }

    fn read(record: &InstanceRecord) -> Result<Self, Damage> {
        let instance = Self {
            number: record.number,
            lease: lease_id(record.lease)?,
            request: record.request,
            epoch: epoch(record.epoch),
            details: details(record.details.as_ref())?,
            since: Moment::from_millis(record.since_ms),
            since_wall_ms: record.since_wall_ms,
            draining: record.draining.as_ref().map(Draining::read).transpose()?,
            findings: record.findings.iter().map(Finding::read).collect::<Result<_, _>>()?,
            critical_since: record.critical_since_ms.map(Moment::from_millis),
            rose: record.rose,
            penalty: penalty(record.points, record.points_since_ms)?,
            held_until: record.held_until_ms.map(Moment::from_millis),
        };
        let checks = instance.details.checks.len();
        check(instance.findings.len() == checks, "an instance whose checks found more or less than they are")?;
        let is = instance.health();
        check(
            instance.critical_since.is_some() == (is == Health::Critical),
            "an instance critical since another time",
        )?;
        Ok(instance)
    }
}

impl EndedInstance {
    pub(super) fn record(&self) -> EndedInstanceRecord {
        EndedInstanceRecord {
            service: self.instance.service.to_string(),
            id: self.instance.id.to_string(),
            lease: self.lease.number(),
            holder: self.holder.to_string(),
            epoch: self.epoch.map_or(0, Epoch::number),
            since_ms: self.since.millis(),
            since_wall_ms: self.since_wall_ms,
            points: self.penalty.points,
            points_since_ms: self.penalty.since.millis(),
            how: Some(end_record(&self.how)),
            when_ms: self.when.millis(),
            wall_ms: self.wall_ms,
            held_until_ms: self.held_until.map(Moment::millis),
        }
    }
}

impl EndedInstanceRecord {
    pub(super) fn read(self) -> Result<EndedInstance, Damage> {
        Ok(EndedInstance {
            instance: instance_key(&self.service, &self.id)?,
            lease: lease_id(self.lease)?,
            holder: holder(&self.holder)?,
            epoch: epoch(self.epoch),
            since: Moment::from_millis(self.since_ms),
            since_wall_ms: self.since_wall_ms,
            penalty: penalty(self.points, self.points_since_ms)?,
            held_until: self.held_until_ms.map(Moment::from_millis),
            how: read_end(self.how)?,
            when: Moment::from_millis(self.when_ms),
            wall_ms: self.wall_ms,
        })
    }
}

impl Ledger {
    pub(super) fn instance_records(&self) -> impl Iterator<Item = InstanceRecord> {
        self.registry.services.iter().flat_map(|(service, it)| {
            it.instances()
                .map(move |(id, instance)| instance.record(&InstanceKey { service: service.clone(), id: id.clone() }))
        })
    }

    /// The judgements that still count.
    pub(super) fn judged_records(&self) -> impl Iterator<Item = JudgedRecord> {
        let now = self.now;
        self.registry.services.iter().flat_map(move |(service, it)| {
            it.zones.iter().filter_map(move |(zone, cohort)| {
                let judgement = Some(cohort.fresh(now)?.record());
                let zone = zone.as_ref().map_or_else(String::new, ToString::to_string);
                Some(JudgedRecord { service: service.to_string(), zone, judgement })
            })
        })
    }

    pub(super) fn read_instance(&mut self, record: &InstanceRecord) -> Result<bool, Damage> {
        let (key, instance) = (instance_key(&record.service, &record.id)?, Instance::read(record)?);
        check(instance.number <= self.registry.last, "an instance whose number is not its own")?;
        let is_new = self.registry.numbers.insert(instance.number, key.clone()).is_none();
        let service = self.registry.services.entry(key.service).or_default();
        Ok(service.instances.insert(key.id, Box::new(instance)).is_none() && is_new)
    }

    pub(super) fn read_judged(&mut self, record: &JudgedRecord) -> Result<bool, Damage> {
        let zone = if record.zone.is_empty() { None } else { Some(word(&record.zone)?) };
        let judgement = Judgement::read(record.judgement)?;
        let service = self.registry.services.get_mut(&name(&record.service)?);
        let service = service.ok_or_else(|| Damage::new("a judgement of a service that is not there"))?;
        let cohort = service.zones.entry(zone).or_default();
        Ok(cohort.judged.replace(judgement).is_none())
    }

    pub(super) fn rebuild_instances(&mut self) -> Result<(), Damage> {
        let services = self.registry.services.iter();
        let each = services.flat_map(|(service, it)| {
            it.instances().map(move |(id, instance)| {
                let key = InstanceKey { service: service.clone(), id: id.clone() };
                (key, instance.lease, instance.details.zone.clone())
            })
        });
        let each: Vec<(InstanceKey, LeaseId, Option<Word>)> = each.collect();
        for (key, id, zone) in each {
            let lease = self.leases.get_mut(&id).ok_or_else(|| Damage::new("an instance without a lease"))?;
            lease.instances.insert(key.clone());
            self.join_cohort(&key.service, zone, id);
        }
        for cohort in self.registry.services.values().flat_map(|service| service.zones.values()) {
            check(!cohort.members.is_empty(), "a judgement of nobody")?;
            let counts = cohort.judged.is_none() || cohort.fresh(self.now).is_some();
            check(counts, "a judgement that does not count any longer")?;
        }
        self.note_registration();
        Ok(())
    }

    pub(super) fn check_suspects(&self) -> Result<(), Damage> {
        let mut suspects = self.leases.values().filter(|lease| lease.suspect.is_some());
        check(suspects.all(Lease::may_be_suspect), "a suspect that is not guarded")
    }

    pub(super) fn arm_instances(&mut self) {
        let instances = self.registry.services.values().flat_map(|service| service.instances.values());
        for (at, due) in instances.flat_map(|instance| instance.dues()) {
            self.wheel.arm(at, due);
        }
    }
}
