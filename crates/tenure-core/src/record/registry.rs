//! The shape of what is asked of the registry on disk, and of what an instance says of itself.

use super::commands::{ForceRecord, GrantRecord};
use super::requests::{NumberRecord, number, number_record};
use super::{Damage, epoch, holder, label_pairs, labels, lease_id, lease_or_none, name, note, span};
use crate::command::{Force, Grant, On};
use crate::limits::{CHECK_MS_MAX, PUSHED_MS_MAX, UNHEALTHY_MS_MAX};
use crate::mode::Epoch;
use crate::names::LeaseId;
use crate::registry::{
    Ask, Check, Deregister, Details, Draft, Drain, Edit, Endpoint, Health, InstanceId, InstanceKey, OnCritical, Probe,
    Register, SetHealth, Source, UpdateInstance, Word,
};
use crate::time::Span;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct RegisterRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(uint64, tag = "3")]
    epoch: u64,
    /// The new lease; absent when the instance hangs on a given one.
    #[prost(message, optional, tag = "4")]
    grant: Option<GrantRecord>,
    #[prost(fixed64, tag = "5")]
    lease: u64,
    #[prost(message, optional, tag = "6")]
    details: Option<DetailsRecord>,
    #[prost(message, optional, tag = "7")]
    request: Option<NumberRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DetailsRecord {
    #[prost(string, repeated, tag = "1")]
    endpoints: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    capabilities: Vec<String>,
    #[prost(btree_map = "string, string", tag = "3")]
    labels: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    zone: String,
    #[prost(uint32, tag = "5")]
    weight: u32,
    #[prost(string, tag = "6")]
    version: String,
    #[prost(message, repeated, tag = "7")]
    checks: Vec<CheckRecord>,
    #[prost(message, optional, tag = "8")]
    on_critical: Option<OnCriticalRecord>,
}

/// Absent: it is marked.
#[derive(Clone, Copy, PartialEq, Message)]
struct OnCriticalRecord {
    #[prost(bool, tag = "1")]
    observe: bool,
    #[prost(uint64, optional, tag = "2")]
    revoke_after_ms: Option<u64>,
}

/// A check is pushed unless it has a probe.
#[derive(Clone, PartialEq, Message)]
struct CheckRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, optional, tag = "2")]
    pushed_ttl_ms: Option<u64>,
    #[prost(message, optional, tag = "3")]
    probe: Option<ProbeRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct ProbeRecord {
    #[prost(uint32, tag = "1")]
    endpoint: u32,
    #[prost(uint64, tag = "2")]
    interval_ms: u64,
    #[prost(uint64, tag = "3")]
    timeout_ms: u64,
    #[prost(uint32, tag = "4")]
    degraded_after: u32,
    #[prost(uint32, tag = "5")]
    failures: u32,
    #[prost(uint32, tag = "6")]
    successes: u32,
    #[prost(oneof = "AskRecord", tags = "7, 8, 9")]
    ask: Option<AskRecord>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AskRecord {
    #[prost(bool, tag = "7")]
    Tcp(bool),
    #[prost(message, tag = "8")]
    Http(HttpRecord),
    #[prost(string, tag = "9")]
    Grpc(String),
}

#[derive(Clone, PartialEq, Message)]
struct HttpRecord {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(uint32, tag = "2")]
    status_min: u32,
    #[prost(uint32, tag = "3")]
    status_max: u32,
}

/// What is absent stays as it is. Lists are messages, because an empty one is not an absent one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    /// The lists, the labels and what happens when it is critical; each counts only if it is in `says`.
    #[prost(message, optional, tag = "4")]
    details: Option<DetailsRecord>,
    /// Which parts of the details are said: 1 endpoints, 2 capabilities, 3 labels, 4 zone, 5 weight, 6 version, 7 checks,
    /// 8 what happens when it is critical.
    #[prost(uint32, repeated, tag = "5")]
    says: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DrainRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(bool, tag = "3")]
    on: bool,
    #[prost(string, tag = "4")]
    by: String,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(uint64, tag = "6")]
    lease: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeregisterRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(message, optional, tag = "4")]
    force: Option<ForceRecord>,
    #[prost(message, optional, tag = "5")]
    request: Option<NumberRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthRecord {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(string, tag = "4")]
    check: String,
    /// 0 passing, 1 degraded, 2 unknown, 3 critical.
    #[prost(uint32, tag = "5")]
    health: u32,
    #[prost(string, tag = "6")]
    note: String,
}

#[expect(clippy::needless_pass_by_value, reason = "it is what an error is mapped with")]
fn damage(bad: impl ToString) -> Damage {
    Damage(bad.to_string())
}

pub(crate) fn word(text: &str) -> Result<Word, Damage> {
    Word::parse(text).map_err(damage)
}

fn word_or_none(text: &str) -> Result<Option<Word>, Damage> {
    if text.is_empty() { Ok(None) } else { word(text).map(Some) }
}

fn word_text(word: Option<&Word>) -> String {
    word.map_or_else(String::new, ToString::to_string)
}

pub(crate) fn instance_key(service: &str, id: &str) -> Result<InstanceKey, Damage> {
    Ok(InstanceKey { service: name(service)?, id: InstanceId::parse(id).map_err(damage)? })
}

fn key_texts(key: &InstanceKey) -> (String, String) {
    (key.service.to_string(), key.id.to_string())
}

pub(crate) const fn health_number(health: Health) -> u32 {
    match health {
        Health::Passing => 0,
        Health::Degraded => 1,
        Health::Unknown => 2,
        Health::Critical => 3,
    }
}

pub(crate) fn health(number: u32) -> Result<Health, Damage> {
    match number {
        0 => Ok(Health::Passing),
        1 => Ok(Health::Degraded),
        2 => Ok(Health::Unknown),
        3 => Ok(Health::Critical),
        _ => Err(Damage::new("a health that this build does not know")),
    }
}

impl Check {
    fn record(&self) -> CheckRecord {
        let (pushed_ttl_ms, probe) = match &self.source {
            Source::Pushed { ttl } => (ttl.map(Span::millis), None),
            Source::Probed(probe) => (None, Some(probe.record())),
        };
        CheckRecord { name: self.name.to_string(), pushed_ttl_ms, probe }
    }

    fn read(record: &CheckRecord) -> Result<Self, Damage> {
        let source = match &record.probe {
            Some(probe) => Source::Probed(Probe::read(probe)?),
            None => Source::Pushed { ttl: record.pushed_ttl_ms.map(|ms| span(ms, PUSHED_MS_MAX)).transpose()? },
        };
        Ok(Self { name: word(&record.name)?, source })
    }
}

impl Probe {
    fn record(&self) -> ProbeRecord {
        let ask = match &self.ask {
            Ask::Tcp => AskRecord::Tcp(true),
            Ask::Http { path, statuses } => AskRecord::Http(HttpRecord {
                path: path.to_string(),
                status_min: u32::from(*statuses.start()),
                status_max: u32::from(*statuses.end()),
            }),
            Ask::Grpc { service } => AskRecord::Grpc(service.to_string()),
        };
        ProbeRecord {
            endpoint: u32::try_from(self.endpoint).unwrap_or(u32::MAX),
            interval_ms: self.interval.millis(),
            timeout_ms: self.timeout.millis(),
            degraded_after: self.degraded_after,
            failures: self.failures,
            successes: self.successes,
            ask: Some(ask),
        }
    }

    fn read(record: &ProbeRecord) -> Result<Self, Damage> {
        let status = |number: u32| u16::try_from(number).map_err(|_| Damage::new("a status out of range"));
        let ask = match record.ask.as_ref().ok_or_else(|| Damage::new("a probe that asks for nothing"))? {
            AskRecord::Tcp(_) => Ask::Tcp,
            AskRecord::Http(http) => {
                let statuses = status(http.status_min)?..=status(http.status_max)?;
                Ask::Http { path: http.path.as_str().into(), statuses }
            }
            AskRecord::Grpc(service) => Ask::Grpc { service: service.as_str().into() },
        };
        Ok(Self {
            endpoint: usize::try_from(record.endpoint).map_err(damage)?,
            ask,
            interval: span(record.interval_ms, CHECK_MS_MAX)?,
            timeout: span(record.timeout_ms, CHECK_MS_MAX)?,
            degraded_after: record.degraded_after,
            failures: record.failures,
            successes: record.successes,
        })
    }
}

pub(crate) fn details_record(draft: &Draft) -> DetailsRecord {
    DetailsRecord {
        endpoints: draft.endpoints.iter().map(ToString::to_string).collect(),
        capabilities: draft.capabilities.iter().map(ToString::to_string).collect(),
        labels: label_pairs(&draft.labels),
        zone: word_text(draft.zone.as_ref()),
        weight: draft.weight,
        version: word_text(draft.version.as_ref()),
        checks: draft.checks.iter().map(Check::record).collect(),
        on_critical: on_critical_record(draft.on_critical),
    }
}

fn draft(record: &DetailsRecord) -> Result<Draft, Damage> {
    let endpoints = record.endpoints.iter().map(|text| Endpoint::parse(text).map_err(damage));
    let capabilities: BTreeSet<Word> = record.capabilities.iter().map(|text| word(text)).collect::<Result<_, _>>()?;
    Ok(Draft {
        endpoints: endpoints.collect::<Result<_, _>>()?,
        capabilities,
        labels: labels(&record.labels)?,
        zone: word_or_none(&record.zone)?,
        weight: record.weight,
        version: word_or_none(&record.version)?,
        checks: record.checks.iter().map(Check::read).collect::<Result<_, _>>()?,
        on_critical: on_critical(record.on_critical)?,
    })
}

pub(crate) fn details(record: Option<&DetailsRecord>) -> Result<Details, Damage> {
    let record = record.ok_or_else(|| Damage::new("an instance that says nothing of itself"))?;
    Details::new(draft(record)?).map_err(damage)
}

fn on_critical_record(on_critical: OnCritical) -> Option<OnCriticalRecord> {
    match on_critical {
        OnCritical::Mark => None,
        OnCritical::RevokeAfter(after) => {
            Some(OnCriticalRecord { observe: false, revoke_after_ms: Some(after.millis()) })
        }
        OnCritical::Observe => Some(OnCriticalRecord { observe: true, revoke_after_ms: None }),
    }
}

fn on_critical(record: Option<OnCriticalRecord>) -> Result<OnCritical, Damage> {
    match record {
        None => Ok(OnCritical::Mark),
        Some(OnCriticalRecord { observe: true, revoke_after_ms: None }) => Ok(OnCritical::Observe),
        Some(OnCriticalRecord { observe: false, revoke_after_ms: Some(ms) }) => {
            span(ms, UNHEALTHY_MS_MAX).map(OnCritical::RevokeAfter)
        }
        Some(_) => Err(Damage::new("an instance that is critical in a way that this build does not know")),
    }
}

impl Register {
    pub(super) fn record(&self) -> RegisterRecord {
        let (service, id) = key_texts(&self.instance);
        let (grant, lease) = match &self.on {
            On::New(grant) => (Some(grant.record()), 0),
            On::Given(lease) => (None, lease.number()),
        };
        let details = Some(details_record(&self.details));
        let request = number_record(self.request);
        RegisterRecord { service, id, epoch: self.epoch.map_or(0, Epoch::number), grant, lease, details, request }
    }

    pub(super) fn read(record: &RegisterRecord) -> Result<Self, Damage> {
        Ok(Self {
            instance: instance_key(&record.service, &record.id)?,
            epoch: epoch(record.epoch),
            on: match &record.grant {
                Some(grant) => On::New(Grant::read(grant)?),
                None => On::Given(lease_id(record.lease)?),
            },
            details: details(record.details.as_ref())?,
            request: number(record.request)?,
        })
    }
}

impl UpdateInstance {
    pub(super) fn record(&self) -> UpdateRecord {
        let (service, id) = key_texts(&self.instance);
        let edit = self.edit.clone();
        let said = [
            edit.endpoints.is_some(),
            edit.capabilities.is_some(),
            edit.labels.is_some(),
            edit.zone.is_some(),
            edit.weight.is_some(),
            edit.version.is_some(),
            edit.checks.is_some(),
            edit.on_critical.is_some(),
        ];
        let says = (1..).zip(said).filter(|(_, is_said)| *is_said).map(|(part, _)| part).collect();
        let draft = Draft {
            endpoints: edit.endpoints.unwrap_or_default(),
            capabilities: edit.capabilities.unwrap_or_default(),
            labels: edit.labels.unwrap_or_default(),
            zone: edit.zone.flatten(),
            weight: edit.weight.unwrap_or_default(),
            version: edit.version.flatten(),
            checks: edit.checks.unwrap_or_default(),
            on_critical: edit.on_critical.unwrap_or_default(),
        };
        let lease = self.lease.map_or(0, LeaseId::number);
        UpdateRecord { service, id, lease, details: Some(details_record(&draft)), says }
    }

    pub(super) fn read(record: &UpdateRecord) -> Result<Self, Damage> {
        let absent = || Damage::new("a change of an instance that does not say what");
        let draft = draft(record.details.as_ref().ok_or_else(absent)?)?;
        if record.says.iter().any(|part| !(1..=8).contains(part)) {
            return Err(absent());
        }
        let says = |part: u32| record.says.contains(&part);
        Ok(Self {
            instance: instance_key(&record.service, &record.id)?,
            lease: lease_or_none(record.lease)?,
            edit: Edit {
                endpoints: says(1).then_some(draft.endpoints),
                capabilities: says(2).then_some(draft.capabilities),
                labels: says(3).then_some(draft.labels),
                zone: says(4).then_some(draft.zone),
                weight: says(5).then_some(draft.weight),
                version: says(6).then_some(draft.version),
                checks: says(7).then_some(draft.checks),
                on_critical: says(8).then_some(draft.on_critical),
            },
        })
    }
}

impl Drain {
    pub(super) fn record(&self) -> DrainRecord {
        let (service, id) = key_texts(&self.instance);
        let (lease, by, reason) = (self.lease.map_or(0, LeaseId::number), self.by.to_string(), self.reason.to_string());
        DrainRecord { service, id, on: self.on, by, reason, lease }
    }

    pub(super) fn read(record: &DrainRecord) -> Result<Self, Damage> {
        let instance = instance_key(&record.service, &record.id)?;
        let lease = lease_or_none(record.lease)?;
        Ok(Self { instance, lease, on: record.on, by: holder(&record.by)?, reason: note(&record.reason)? })
    }
}

impl Deregister {
    pub(super) fn record(&self) -> DeregisterRecord {
        let (service, id) = key_texts(&self.instance);
        let (lease, force) = (self.lease.map_or(0, LeaseId::number), self.force.as_ref().map(Force::record));
        DeregisterRecord { service, id, lease, force, request: number_record(self.request) }
    }

    pub(super) fn read(record: &DeregisterRecord) -> Result<Self, Damage> {
        Ok(Self {
            instance: instance_key(&record.service, &record.id)?,
            lease: lease_or_none(record.lease)?,
            force: record.force.as_ref().map(Force::read).transpose()?,
            request: number(record.request)?,
        })
    }
}

impl SetHealth {
    pub(super) fn record(&self) -> HealthRecord {
        let (service, id) = key_texts(&self.instance);
        HealthRecord {
            service,
            id,
            lease: self.lease.number(),
            check: self.check.to_string(),
            health: health_number(self.health),
            note: self.note.to_string(),
        }
    }

    pub(super) fn read(record: &HealthRecord) -> Result<Self, Damage> {
        Ok(Self {
            instance: instance_key(&record.service, &record.id)?,
            lease: lease_id(record.lease)?,
            check: word(&record.check)?,
            health: health(record.health)?,
            note: note(&record.note)?,
        })
    }
}
