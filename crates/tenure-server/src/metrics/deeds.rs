//! What one entry did, counted where it was applied, for the leader that proposed it. It is counted while a log is
//! replayed too, but then nobody proposed it, and nobody is told.

use tenure_api::Code;
use tenure_core::{Applied, Command, End, Happening, Health, Refusal, Reply, Timing};

/// What renewals come to. The first is the yes, the last is every other refusal.
pub(super) const RESULTS: [&str; 7] = [
    super::OK,
    Code::Lapsed.text(),
    Code::NoLease.text(),
    Code::NotRenewable.text(),
    Code::Stale.text(),
    Code::TtlOfClass.text(),
    "other",
];

/// How leases end.
pub(super) const ENDS: [&str; 9] = [
    "released",
    "expired",
    "revoked",
    "parent_ended",
    "superseded",
    "max_lifetime",
    "waited_out",
    "transferred",
    "unhealthy",
];

/// What one entry did.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    pub(super) grants: u64,
    pub(super) ends: [u64; ENDS.len()],
    pub(super) registrations: u64,
    pub(super) deregistrations: [u64; ENDS.len()],
    pub(super) health_changes: [u64; HEALTHS.len()],
    pub(super) suspects: u64,
    pub(super) renewals: [u64; RESULTS.len()],
    pub(super) timing: Timing,
}

impl Deeds {
    /// Counts what was done. How timely it was is taken out of it.
    pub(crate) fn count(commands: &[Command], applied: &mut Applied) -> Self {
        let mut deeds = Self { timing: std::mem::take(&mut applied.timing), ..Self::default() };
        for event in &applied.events {
            match &event.what {
                Happening::Granted { .. } => deeds.grants += 1,
                Happening::Ended { how, .. } => deeds.ends[end_at(how)] += 1,
                Happening::Registered { .. } => deeds.registrations += 1,
                Happening::Deregistered { how, .. } => deeds.deregistrations[end_at(how)] += 1,
                Happening::HealthChanged { overall, .. } => deeds.health_changes[health_at(*overall)] += 1,
                Happening::Suspected { .. } => deeds.suspects += 1,
                _ => {}
            }
        }
        for (command, outcome) in commands.iter().zip(&applied.outcomes) {
            match (command.plain(), outcome) {
                (_, Ok(Reply::Renewed(each))) => {
                    each.iter().for_each(|one| deeds.renewals[result_at(one.as_ref().err())] += 1);
                }
                (Command::Renew(_) | Command::RenewHandle(_), one) => {
                    deeds.renewals[result_at(one.as_ref().err())] += 1;
                }
                _ => {}
            }
        }
        deeds
    }
}

/// How well instances are.
pub(crate) const HEALTHS: [&str; 4] = ["passing", "degraded", "critical", "unknown"];

pub(crate) const fn health_at(health: Health) -> usize {
    match health {
        Health::Passing => 0,
        Health::Degraded => 1,
        Health::Critical => 2,
        Health::Unknown => 3,
    }
}

fn end_at(how: &End) -> usize {
    match how {
        End::Released => 0,
        End::Expired => 1,
        End::Revoked { .. } => 2,
        End::ParentEnded { .. } => 3,
        End::Superseded => 4,
        End::MaxLifetime => 5,
        End::WaitedOut => 6,
        End::Transferred { .. } => 7,
        End::Unhealthy => 8,
    }
}

fn result_at(refusal: Option<&Refusal>) -> usize {
    match refusal {
        None => 0,
        Some(Refusal::Lapsed { .. }) => 1,
        Some(Refusal::NoLease { .. }) => 2,
        Some(Refusal::NotRenewable { .. }) => 3,
        Some(Refusal::Stale { .. }) => 4,
        Some(Refusal::TtlOfClass { .. }) => 5,
        Some(_) => 6,
    }
}
