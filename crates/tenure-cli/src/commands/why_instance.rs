//! `tenure why SERVICE/ID`: how an instance is and why it is shown so, what would end it, and how those before it ended.

use super::{lease_text, words};
use crate::clock;
use crate::failure::Failure;
use crate::page::{Left, Page};
use crate::print;
use serde::Serialize;
use tenure::{Client, v1};
use tenure_api::Code;
use tenure_core::InstanceKey;
use tenure_core::limits::COHORT_MIN;

/// Past ones that are told.
const TOLD_MAX: usize = 10;

#[derive(Serialize)]
pub(super) struct WhyInstance {
    instance: String,
    /// Whether it lives.
    registered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    living: Option<Living>,
    past: Vec<Past>,
    penalty: u64,
    penalty_held: u64,
    penalty_free: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cohort: Option<Judgement>,
}

#[derive(Serialize)]
struct Living {
    health: &'static str,
    routed: bool,
    endpoints: Vec<String>,
    holder: String,
    lease: String,
    epoch: u64,
    ttl_ms: u64,
    valid_for_ms: u64,
    since_wall_ms: u64,
    renewed_ago_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usual_gap_ms: Option<u64>,
    late: bool,
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draining: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_down_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspect: Option<Suspect>,
}

#[derive(Serialize)]
struct Check {
    name: String,
    health: &'static str,
    note: String,
    since_wall_ms: u64,
    #[serde(rename = "held_ms")]
    for_ms: u64,
}

#[derive(Serialize)]
struct Suspect {
    remaining_ms: u64,
    judgement: Judgement,
}

#[derive(Clone, Copy, Serialize)]
struct Judgement {
    members: u64,
    late: u64,
    threshold: u64,
    correlated: bool,
}

#[derive(Serialize)]
struct Past {
    holder: String,
    epoch: u64,
    lease: String,
    end: String,
    ended_wall_ms: u64,
    lived_ms: u64,
}

/// Looks at an instance, if the name could be one and one lives or is remembered.
pub(super) async fn look(client: &Client, name: &str, what: &str) -> Result<Option<WhyInstance>, Failure> {
    let Ok(key) = InstanceKey::parse(name) else { return Ok(None) };
    let (service, id) = (key.service.to_string(), key.id.to_string());
    match client.show_instance(v1::ShowInstanceRequest { service, id, stale: false }).await {
        Ok(reply) => Ok(Some(WhyInstance::new(name, reply))),
        Err(error) if error.code() == Some(Code::NoInstance) => Ok(None),
        Err(error) => Err(Failure::of(what, &error)),
    }
}

impl WhyInstance {
    fn new(name: &str, reply: v1::ShowInstanceReply) -> Self {
        let living = reply.living.clone().map(|item| Living::new(item, &reply));
        Self {
            instance: name.into(),
            registered: living.is_some(),
            living,
            past: reply.past.into_iter().map(Past::new).collect(),
            penalty: reply.penalty,
            penalty_held: reply.penalty_held,
            penalty_free: reply.penalty_free,
            cohort: reply.cohort.as_ref().map(Judgement::new),
        }
    }

    pub(super) fn tell(&self, page: &mut Page) {
        match &self.living {
            Some(living) => living.tell(page, self),
            None => page.line(&format!("{} is not registered.", self.instance)),
        }
        if !self.past.is_empty() {
            page.line("\nbefore");
        }
        for past in self.past.iter().take(TOLD_MAX) {
            let ago = print::ago_ms(clock::wall_ms().saturating_sub(past.ended_wall_ms));
            let (lived, epoch) = (print::span_ms(past.lived_ms), epoch(past.epoch));
            page.line(&format!("  {}{epoch}: {} {ago}, after {lived}", past.holder, past.end));
        }
    }

    pub(super) fn try_next(&self) -> Vec<String> {
        let service = self.instance.rsplit_once('/').map_or(self.instance.as_str(), |(service, _)| service);
        let (name, service) = (print::quoted(&self.instance), print::quoted(service));
        let mut lines = vec![format!("tenure service show {service}")];
        match &self.living {
            Some(living) if living.draining.is_some() => lines.push(format!("tenure service undrain {name}")),
            Some(_) => {
                lines.push(format!("tenure service drain {name} --reason TEXT"));
                lines.push(format!("tenure deregister {name} --force --reason TEXT"));
            }
            None => {}
        }
        lines
    }
}

fn epoch(epoch: u64) -> String {
    if epoch == 0 { String::new() } else { format!(", epoch {epoch}") }
}

impl Living {
    fn new(item: v1::Instance, reply: &v1::ShowInstanceReply) -> Self {
        let health = words::health(item.health());
        let check = |finding: v1::Finding| Check {
            health: words::health(finding.health()),
            name: finding.check,
            note: finding.note,
            since_wall_ms: finding.since_wall_ms,
            for_ms: finding.for_ms,
        };
        let suspect = item.suspect.map(|suspect| Suspect {
            remaining_ms: suspect.kept_ms,
            judgement: Judgement::new(&suspect.judgement.unwrap_or_default()),
        });
        Self {
            health,
            routed: item.routed,
            endpoints: item.details.unwrap_or_default().endpoints,
            holder: item.holder,
            lease: lease_text(item.lease),
            epoch: item.epoch,
            ttl_ms: item.ttl_ms,
            valid_for_ms: item.valid_for_ms,
            since_wall_ms: item.since_wall_ms,
            renewed_ago_ms: reply.silent_ms,
            usual_gap_ms: reply.gap_ms,
            late: reply.late,
            checks: item.findings.into_iter().map(check).collect(),
            draining: item.draining.map(|drained| words::by_order("ordered", &drained.by, &drained.reason)),
            held_down_ms: item.held_down_ms,
            revoked_in_ms: reply.revoked_in_ms,
            suspect,
        }
    }

    fn tell(&self, page: &mut Page, why: &WhyInstance) {
        let work = if self.routed { "new work is for it" } else { "no new work is for it" };
        page.line(&format!("{} is registered and {}: {work}.", why.instance, self.health));
        let since = print::ago_ms(clock::wall_ms().saturating_sub(self.since_wall_ms));
        let left = Left { remaining_ms: self.valid_for_ms, of_ms: self.ttl_ms };
        // Whoever is kept as a suspect is valid for longer.
        let of = if self.valid_for_ms > self.ttl_ms { "with a TTL of" } else { "of" };
        let valid =
            format!("{}{} {of} {}", page.bar(left), print::span_ms(self.valid_for_ms), print::span_ms(self.ttl_ms));
        let usual = self.usual_gap_ms.map_or_else(String::new, |ms| format!(", usually every {}", print::span_ms(ms)));
        let late = if self.late { "; the next one is late" } else { "" };
        let mut fact = |name: &str, value: &str| {
            if !value.is_empty() {
                page.line(&format!("  {name:<14}{value}"));
            }
        };
        fact("reached at", &self.endpoints.join(" "));
        fact("held by", &format!("{} since {since}{}", self.holder, epoch(self.epoch)));
        fact("last renewal", &format!("{}{usual}{late}", print::ago_ms(self.renewed_ago_ms)));
        fact("valid for", &valid);
        for check in &self.checks {
            let note = if check.note.is_empty() { String::new() } else { format!(": {}", check.note) };
            let (name, health) = (format!("check {}", check.name), check.health);
            fact(&name, &format!("{health} for {}{note}", print::span_ms(check.for_ms)));
        }
        fact("draining", self.draining.as_deref().unwrap_or_default());
        if let Some(ms) = self.revoked_in_ms {
            fact("its lease", &format!("ends in {} unless it gets better", print::span_ms(ms)));
        }
        self.tell_flapping(page, why);
        self.tell_cohort(page, why);
    }

    fn tell_flapping(&self, page: &mut Page, why: &WhyInstance) {
        let points = format!("{} points for flapping", why.penalty);
        match self.held_down_ms {
            Some(ms) => page.line(&format!(
                "\nIt is held down for {}: it has {points}, and is shown as passing again below {}.",
                print::span_ms(ms),
                why.penalty_free
            )),
            None if why.penalty > 0 => {
                page.line(&format!("\nIt has {points}; from {} on it is held down.", why.penalty_held));
            }
            None => {}
        }
    }

    fn tell_cohort(&self, page: &mut Page, why: &WhyInstance) {
        if let Some(suspect) = &self.suspect {
            let Judgement { members, late, threshold, .. } = suspect.judgement;
            page.line(&format!(
                "\nIt is suspect: it fell silent together with others of its service and zone. {late} of {members} were late, \
                 and from {threshold} on that is more than independent failures explain, so it is kept for {} more.",
                print::span_ms(suspect.remaining_ms)
            ));
        } else if let Some(Judgement { members: members @ COHORT_MIN.., late, threshold, .. }) = why.cohort {
            page.line(&format!(
                "\nOf {members} in its service and zone {late} {} late; from {threshold} on they would be kept for a while.",
                if late == 1 { "is" } else { "are" }
            ));
        }
    }
}

impl Judgement {
    fn new(judgement: &v1::Judgement) -> Self {
        let v1::Judgement { members, late, threshold, correlated, .. } = *judgement;
        Self { members, late, threshold, correlated }
    }
}

impl Past {
    fn new(past: v1::PastInstance) -> Self {
        let end = past.end.unwrap_or_default();
        Self {
            holder: past.holder,
            epoch: past.epoch,
            lease: lease_text(past.lease),
            end: words::end(&end),
            ended_wall_ms: end.wall_ms,
            lived_ms: past.lived_ms,
        }
    }
}
