//! What is asked of the registry.

use super::value::{epoch_if_said, force, free, note, number_of_given, read_holder, read_lease, span};
use super::{Draw, lease};
use crate::bad::BadRequest;
use crate::v1;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::limits::UNHEALTHY_MS_MAX;
use tenure_core::{
    Ask, Check, Deregister, Details, Draft, Drain, Edit, Endpoint, Health, InstanceId, InstanceKey, Labels, LeaseId,
    Name, On, OnCritical, Probe, Register, SetHealth, Source, Span, UpdateInstance, Wanted, Word,
};

/// The class of the leases that are made for instances.
const CLASS: &str = "registration";

/// What a probe is like unless it says otherwise.
const INTERVAL_MS: i64 = 10_000;
const TIMEOUT_MS: i64 = 2_000;
const DEGRADED_AFTER: u32 = 1;
const FAILURES: u32 = 3;
const SUCCESSES: u32 = 2;
const STATUSES: (u32, u32) = (200, 299);

/// Reads the name of a service.
pub fn read_service(text: &str) -> Result<Name, BadRequest> {
    Name::parse(text).map_err(BadRequest::Service)
}

/// Reads which instance is meant.
pub fn read_instance(service: &str, id: &str) -> Result<InstanceKey, BadRequest> {
    let id = InstanceId::parse(id).map_err(|bad| BadRequest::Word { what: "the id of the instance", bad })?;
    Ok(InstanceKey { service: read_service(service)?, id })
}

/// Reads an expression over capabilities; nothing wants everything.
pub fn read_wanted(text: &str) -> Result<Option<Wanted>, BadRequest> {
    let is_said = !text.trim().is_empty();
    is_said.then(|| Wanted::parse(text)).transpose().map_err(BadRequest::Wanted)
}

/// Reads a word, or none.
pub fn read_word(what: &'static str, text: &str) -> Result<Option<Word>, BadRequest> {
    (!text.is_empty()).then(|| Word::parse(text)).transpose().map_err(|bad| BadRequest::Word { what, bad })
}

pub(super) fn register(register: &v1::RegisterRequest, draw: Draw<'_>) -> Result<Register, BadRequest> {
    Ok(Register {
        instance: read_instance(&register.service, &register.id)?,
        epoch: epoch_if_said(register.epoch)?,
        on: match (&register.grant, register.lease) {
            (Some(grant), 0) if grant.class.is_empty() => {
                On::New(lease::grant(&v1::GrantRequest { class: CLASS.into(), ..grant.clone() }, draw)?)
            }
            (Some(grant), 0) => On::New(lease::grant(grant, draw)?),
            (None, lease) if lease != 0 => On::Given(read_lease(lease)?),
            _ => return Err(BadRequest::OneLease),
        },
        details: read_details(register.details.as_ref().ok_or(BadRequest::Missing("where the instance is"))?)?,
        request: number_of_given(register.grant.is_none(), register.number, register.answered_below)?,
    })
}

/// Reads what an instance says of itself.
pub fn read_details(details: &v1::Details) -> Result<Details, BadRequest> {
    let draft = Draft {
        endpoints: endpoints(&details.endpoints)?,
        capabilities: capabilities(&details.capabilities)?,
        labels: labels(&details.labels)?,
        zone: read_word("the zone", &details.zone)?,
        weight: details.weight.unwrap_or(1),
        version: read_word("the version", &details.version)?,
        checks: details.checks.iter().map(check).collect::<Result<_, _>>()?,
        on_critical: on_critical(details.on_critical, details.revoke_after_ms)?,
    };
    Details::new(draft).map_err(BadRequest::Details)
}

fn endpoints(texts: &[String]) -> Result<Vec<Endpoint>, BadRequest> {
    let read = |(at, text): (usize, &String)| Endpoint::parse(text).map_err(|bad| BadRequest::Endpoint { at, bad });
    texts.iter().enumerate().map(read).collect()
}

fn capabilities(words: &[String]) -> Result<BTreeSet<Word>, BadRequest> {
    let read = |text: &String| Word::parse(text).map_err(|bad| BadRequest::Word { what: "a capability", bad });
    words.iter().map(read).collect()
}

fn labels(labels: &BTreeMap<String, String>) -> Result<Labels, BadRequest> {
    Labels::parse(labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))).map_err(BadRequest::Label)
}

fn on_critical(word: i32, after_ms: i64) -> Result<OnCritical, BadRequest> {
    match v1::OnCritical::try_from(word).map_err(|_| BadRequest::OnCritical(word))? {
        v1::OnCritical::Revoke => span("`revoke_after_ms`", after_ms, UNHEALTHY_MS_MAX).map(OnCritical::RevokeAfter),
        _ if after_ms != 0 => Err(BadRequest::RevokeAfter),
        v1::OnCritical::Unspecified | v1::OnCritical::Mark => Ok(OnCritical::Mark),
        v1::OnCritical::Observe => Ok(OnCritical::Observe),
    }
}

fn check(check: &v1::Check) -> Result<Check, BadRequest> {
    let name = Word::parse(&check.name).map_err(|bad| BadRequest::Word { what: "the name of a check", bad })?;
    let kind = v1::CheckKind::try_from(check.kind).map_err(|_| BadRequest::CheckKind(check.kind))?;
    let alone = |field: &'static str, is_said: bool| {
        if is_said { Err(BadRequest::CheckField { name: name.clone(), field }) } else { Ok(()) }
    };
    if kind != v1::CheckKind::Http {
        alone("path", !check.path.is_empty())?;
        alone("status_min", check.status_min.is_some())?;
        alone("status_max", check.status_max.is_some())?;
    }
    if kind != v1::CheckKind::Grpc {
        alone("grpc_service", !check.grpc_service.is_empty())?;
    }
    let source = match kind {
        v1::CheckKind::Unspecified | v1::CheckKind::Pushed => {
            alone("endpoint", check.endpoint != 0)?;
            alone("interval_ms", check.interval_ms.is_some())?;
            alone("timeout_ms", check.timeout_ms.is_some())?;
            alone("degraded_after", check.degraded_after.is_some())?;
            alone("failures", check.failures.is_some())?;
            alone("successes", check.successes.is_some())?;
            let ttl = (check.ttl_ms != 0).then(|| any_span("`ttl_ms` of a check", check.ttl_ms)).transpose()?;
            Source::Pushed { ttl }
        }
        v1::CheckKind::Tcp => Source::Probed(probe(check, Ask::Tcp)?),
        v1::CheckKind::Http => Source::Probed(probe(check, http(check))?),
        v1::CheckKind::Grpc => Source::Probed(probe(check, Ask::Grpc { service: check.grpc_service.as_str().into() })?),
    };
    if matches!(source, Source::Probed(_)) {
        alone("ttl_ms", check.ttl_ms != 0)?;
    }
    Ok(Check { name, source })
}

/// Its bounds are the core's: what is outside of them is refused with the range.
fn any_span(what: &'static str, ms: i64) -> Result<Span, BadRequest> {
    span(what, ms, u64::MAX)
}

fn probe(check: &v1::Check, ask: Ask) -> Result<Probe, BadRequest> {
    let interval_ms = check.interval_ms.unwrap_or(INTERVAL_MS);
    let failures = check.failures.unwrap_or(FAILURES);
    Ok(Probe {
        endpoint: usize::try_from(check.endpoint).unwrap_or(usize::MAX),
        ask,
        interval: any_span("`interval_ms` of a check", interval_ms)?,
        timeout: any_span("`timeout_ms` of a check", check.timeout_ms.unwrap_or(TIMEOUT_MS.min(interval_ms)))?,
        degraded_after: check.degraded_after.unwrap_or(DEGRADED_AFTER),
        failures,
        successes: check.successes.unwrap_or(SUCCESSES),
    })
}

fn http(check: &v1::Check) -> Ask {
    let (min, max) = match (check.status_min, check.status_max) {
        (None, None) => STATUSES,
        (Some(min), Some(max)) => (min, max),
        (Some(only), None) | (None, Some(only)) => (only, only),
    };
    let path = if check.path.is_empty() { "/" } else { check.path.as_str() };
    // What is too large to be a status is refused as one that is too large.
    let status = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    Ask::Http { path: path.into(), statuses: status(min)..=status(max) }
}

fn lease_if_said(lease: u64) -> Result<Option<LeaseId>, BadRequest> {
    if lease == 0 { Ok(None) } else { read_lease(lease).map(Some) }
}

pub(super) fn update(update: &v1::UpdateInstanceRequest) -> Result<UpdateInstance, BadRequest> {
    if update.on_critical == 0 && update.revoke_after_ms != 0 {
        return Err(BadRequest::RevokeAfter);
    }
    let says = update.on_critical != 0;
    let checks = |checks: &v1::Checks| checks.items.iter().map(check).collect::<Result<_, _>>();
    Ok(UpdateInstance {
        instance: read_instance(&update.service, &update.id)?,
        lease: lease_if_said(update.lease)?,
        edit: Edit {
            endpoints: update.endpoints.as_ref().map(|list| endpoints(&list.items)).transpose()?,
            capabilities: update.capabilities.as_ref().map(|list| capabilities(&list.items)).transpose()?,
            labels: update.labels.as_ref().map(|set| labels(&set.labels)).transpose()?,
            zone: update.zone.as_ref().map(|zone| read_word("the zone", zone)).transpose()?,
            weight: update.weight,
            version: update.version.as_ref().map(|version| read_word("the version", version)).transpose()?,
            checks: update.checks.as_ref().map(checks).transpose()?,
            on_critical: says.then(|| on_critical(update.on_critical, update.revoke_after_ms)).transpose()?,
        },
    })
}

pub(super) fn drain(drain: &v1::DrainRequest) -> Result<Drain, BadRequest> {
    Ok(Drain {
        instance: read_instance(&drain.service, &drain.id)?,
        lease: lease_if_said(drain.lease)?,
        on: !drain.undrain,
        by: read_holder(&drain.by)?,
        reason: note(&drain.reason)?,
    })
}

pub(super) fn deregister(order: &v1::DeregisterRequest) -> Result<Deregister, BadRequest> {
    let forced = |given: &v1::Force| force(&given.by, &given.reason, free(given.now));
    Ok(Deregister {
        instance: read_instance(&order.service, &order.id)?,
        lease: lease_if_said(order.lease)?,
        force: order.force.as_ref().map(forced).transpose()?,
        request: number_of_given(order.lease != 0, order.number, order.answered_below)?,
    })
}

pub(super) fn set_health(set: &v1::SetHealthRequest) -> Result<SetHealth, BadRequest> {
    let check = Word::parse(&set.check);
    Ok(SetHealth {
        instance: read_instance(&set.service, &set.id)?,
        lease: read_lease(set.lease)?,
        check: check.map_err(|bad| BadRequest::Word { what: "the name of the check", bad })?,
        health: read_health(set.health)?,
        note: note(&set.note)?,
    })
}

fn read_health(word: i32) -> Result<Health, BadRequest> {
    match v1::Health::try_from(word) {
        Ok(v1::Health::Passing) => Ok(Health::Passing),
        Ok(v1::Health::Degraded) => Ok(Health::Degraded),
        Ok(v1::Health::Critical) => Ok(Health::Critical),
        Ok(v1::Health::Unknown) => Ok(Health::Unknown),
        Ok(v1::Health::Unspecified) | Err(_) => Err(BadRequest::Health(word)),
    }
}
