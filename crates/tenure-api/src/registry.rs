//! Instances, what happened to them, and why something was refused to them become messages here.

use crate::v1;
use crate::write::{end, ended, write_labels};
use tenure_core::{
    Ask, Check, Details, Epoch, Happening, Health, Judgement, Moment, OnCritical, Probe, Refusal, Registered, Source,
    Word,
};

/// How well an instance is.
pub const fn write_health(health: Health) -> v1::Health {
    match health {
        Health::Passing => v1::Health::Passing,
        Health::Degraded => v1::Health::Degraded,
        Health::Unknown => v1::Health::Unknown,
        Health::Critical => v1::Health::Critical,
    }
}

/// What was found when a cohort was looked at.
pub fn write_judgement(judgement: &Judgement) -> v1::Judgement {
    v1::Judgement {
        members: judgement.members,
        late: judgement.late,
        threshold: judgement.threshold(),
        correlated: judgement.is_correlated(),
        at_ms: judgement.at.millis(),
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// What an instance says of itself.
pub fn write_details(details: &Details) -> v1::Details {
    let word = |word: &Option<Word>| word.as_ref().map_or_else(String::new, ToString::to_string);
    let (on_critical, revoke_after_ms) = match details.on_critical {
        OnCritical::Mark => (v1::OnCritical::Mark, 0),
        OnCritical::RevokeAfter(after) => (v1::OnCritical::Revoke, signed(after.millis())),
        OnCritical::Observe => (v1::OnCritical::Observe, 0),
    };
    v1::Details {
        endpoints: details.endpoints.iter().map(ToString::to_string).collect(),
        capabilities: details.capabilities.iter().map(ToString::to_string).collect(),
        labels: write_labels(&details.labels),
        zone: word(&details.zone),
        weight: Some(details.weight),
        version: word(&details.version),
        checks: details.checks.iter().map(write_check).collect(),
        on_critical: on_critical.into(),
        revoke_after_ms,
    }
}

fn write_check(check: &Check) -> v1::Check {
    let kind =
        |kind: v1::CheckKind| v1::Check { name: check.name.to_string(), kind: kind.into(), ..v1::Check::default() };
    match &check.source {
        Source::Pushed { ttl } => {
            v1::Check { ttl_ms: ttl.map_or(0, |ttl| signed(ttl.millis())), ..kind(v1::CheckKind::Pushed) }
        }
        Source::Probed(probe) => match &probe.ask {
            Ask::Tcp => write_probe(probe, kind(v1::CheckKind::Tcp)),
            Ask::Http { path, statuses } => v1::Check {
                path: path.to_string(),
                status_min: Some((*statuses.start()).into()),
                status_max: Some((*statuses.end()).into()),
                ..write_probe(probe, kind(v1::CheckKind::Http))
            },
            Ask::Grpc { service } => {
                v1::Check { grpc_service: service.to_string(), ..write_probe(probe, kind(v1::CheckKind::Grpc)) }
            }
        },
    }
}

fn write_probe(probe: &Probe, check: v1::Check) -> v1::Check {
    v1::Check {
        endpoint: u32::try_from(probe.endpoint).unwrap_or(u32::MAX),
        interval_ms: Some(signed(probe.interval.millis())),
        timeout_ms: Some(signed(probe.timeout.millis())),
        degraded_after: Some(probe.degraded_after),
        failures: Some(probe.failures),
        successes: Some(probe.successes),
        ..check
    }
}

pub(crate) fn write_registered(registered: &Registered) -> v1::RegisterReply {
    v1::RegisterReply {
        lease: registered.lease.number(),
        ttl_ms: registered.ttl_ms,
        health: write_health(registered.overall).into(),
        held_down_ms: registered.held_ms,
        revision: registered.revision.0,
    }
}

/// What an event tells of an instance.
pub(crate) fn of_instance(what: &Happening, message: v1::Event) -> v1::Event {
    match what {
        Happening::Registered { holder, epoch, .. } => {
            v1::Event { holder: holder.to_string(), epoch: epoch.map_or(0, Epoch::number), ..message }
        }
        Happening::Drained { by, reason, .. } | Happening::Undrained { by, reason, .. } => {
            v1::Event { by: by.to_string(), reason: reason.to_string(), ..message }
        }
        Happening::HealthChanged { check, overall, held_until, .. } => v1::Event {
            check: check.as_ref().map_or_else(String::new, |(name, _)| name.to_string()),
            check_health: check.as_ref().map_or(0, |(_, health)| write_health(*health).into()),
            health: write_health(*overall).into(),
            until_ms: held_until.map(Moment::millis),
            ..message
        },
        Happening::Deregistered { how, .. } => v1::Event { end: Some(end(how)), ..message },
        Happening::Suspected { until, judgement, .. } => {
            v1::Event { until_ms: Some(until.millis()), judgement: Some(write_judgement(judgement)), ..message }
        }
        _ => message,
    }
}

/// What a refusal tells of an instance.
pub(crate) fn refused_of_instance(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::NoInstance { instance, ended: end } => v1::Failure {
            instance: instance.to_string(),
            end: end.as_ref().map(|(how, when, wall_ms)| ended(how, *when, *wall_ms)),
            ..failure
        },
        Refusal::InstanceExists { instance, holder, epoch, remaining_ms } => v1::Failure {
            instance: instance.to_string(),
            holder: holder.to_string(),
            epoch: epoch.unwrap_or_default(),
            remaining_ms: *remaining_ms,
            ..failure
        },
        Refusal::OlderInstance { instance, asked, current } => {
            v1::Failure { instance: instance.to_string(), asked: *asked, epoch: *current, ..failure }
        }
        Refusal::OtherLease { instance, lease, holder } => {
            v1::Failure { instance: instance.to_string(), lease: lease.number(), holder: holder.to_string(), ..failure }
        }
        Refusal::NoCheck { instance, check } => {
            v1::Failure { instance: instance.to_string(), check: check.to_string(), ..failure }
        }
        Refusal::BadInstance { instance, .. } => v1::Failure { instance: instance.to_string(), ..failure },
        _ => failure,
    }
}

#[cfg(test)]
mod tests;
