//! What `show` tells of a resource, a lease, a key or a class: one line each.

use super::cast::{Cast, counted, key, list, span, text, units};
use super::phrases::{self, claim};
use super::{print, words};
use std::fmt::Write as _;
use tenure_core::{Class, Counts, InstanceKey, LeaseId, Ledger, Lifetime, Mode, Name, Resource, Stake, Units};

/// What is shown of something.
pub(crate) fn shown(ledger: &Ledger, cast: &mut Cast, what: &str) -> Result<String, String> {
    let name = |text: &str| Name::parse(text).map_err(|bad| bad.to_string());
    Ok(match what.split_once(' ') {
        Some(("lease", label)) => {
            let id = cast.lease(label).ok_or("a lease is a label or #NUMBER")?;
            shown_lease(ledger, cast, id)
        }
        Some(("key", of)) => shown_key(ledger, cast, of.as_bytes()),
        Some(("class", of)) => ledger.class(&name(of)?).map_or("no such class".into(), |class| shown_class(&class)),
        Some(("history", of)) => shown_history(ledger, cast, &name(of)?),
        Some(("changes", from)) => {
            shown_changes(ledger, from.strip_prefix("from kv ").ok_or("changes are `from kv N`")?)?
        }
        Some(("instance", of)) => shown_instance(ledger, cast, &words::registry::instance_key(of)?),
        Some(("ends", of)) => shown_ends(ledger, cast, &words::registry::instance_key(of)?),
        Some(("service", of)) => shown_service(ledger, &name(of)?),
        Some(("get", of)) => {
            let found = ledger.range(&words::keyed::range(cast, of)?);
            found.map_or_else(|refusal| phrases::refusal(cast, &refusal), |found| print::ranged(&found))
        }
        None if what == "keys" => shown_keys(ledger, cast),
        _ => shown_resource(ledger, cast, &name(what)?),
    })
}

fn shown_lease(ledger: &Ledger, cast: &Cast, id: LeaseId) -> String {
    let Some(lease) = ledger.lease(id) else { return "no such lease".into() };
    let mut told = format!("lives until {}", span(lease.deadline().millis()));
    if lease.grace().millis() > 0 {
        told += &format!(" and {} of grace", span(lease.grace().millis()));
    }
    told += &format!(", renewed by {}", span(lease.ttl().millis()));
    if let Some(class) = lease.class() {
        told += &format!(", class {class}");
    }
    told += &lease.lifetime().map_or(String::new(), shown_lifetime);
    if lease.is_final() {
        told += ", final";
    }
    if let Some(parent) = lease.parent() {
        told += &format!(", under {}", cast.label(parent));
    }
    for (key, value) in lease.labels().iter() {
        told += &format!(", labelled {key}={value}");
    }
    if !lease.reason().as_str().is_empty() {
        told += &format!(", because \"{}\"", lease.reason());
    }
    for (name, stake) in lease.stakes() {
        match stake {
            Stake::Holding(holding) => {
                let mode = claim(name, holding.mode).split_off(name.as_str().len());
                told += &format!(", holds {name}@{}{mode}", holding.fence);
            }
            Stake::Waiting(_) => told += &format!(", waits for {name}"),
        }
    }
    let keys: Vec<_> = lease.keys().map(key).collect();
    if !keys.is_empty() {
        told += &format!(", has {}", list(&keys));
    }
    let instances: Vec<_> = lease.instances().map(ToString::to_string).collect();
    if !instances.is_empty() {
        told += &format!(", carries {}", list(&instances));
    }
    if let Some(suspect) = lease.suspect() {
        told += &format!(", suspect until {}", span(suspect.until.millis()));
    }
    let children: Vec<_> = lease.children().map(|child| cast.label(child)).collect();
    if !children.is_empty() {
        told += &format!(", parent of {}", list(&children));
    }
    told
}

fn shown_lifetime(lifetime: Lifetime) -> String {
    let counts = match lifetime.counts {
        Counts::Always => "",
        Counts::WhileOthersWait => " while others wait",
    };
    format!(", living at most {}{counts}", span(lifetime.span.millis()))
}

fn shown_resource(ledger: &Ledger, cast: &Cast, name: &Name) -> String {
    let Some(resource) = ledger.resource(name) else { return "free".into() };
    let mut parts = Vec::new();
    for (fence, id) in resource.holders() {
        let lease = ledger.lease(id).expect("a holder lives");
        let holding = lease.holding(name).expect("a holder holds");
        let since = span(holding.since.millis());
        let mut part = format!("held by {} fence {fence} since {since}", shown_claim(cast, id, holding.mode));
        if holding.lock_delay.millis() > 0 {
            part += &format!(", lock-delay {}", span(holding.lock_delay.millis()));
        }
        if let Some(epoch) = holding.epoch {
            part += &format!(", epoch {}", epoch.number());
        }
        if let Some((at, force)) = ledger.break_of(fence) {
            part += &format!(", to be broken at {} by {}: {}", span(at.millis()), force.by, force.reason);
        }
        parts.push(part);
    }
    for fence in resource.vacating() {
        let stake = ledger.vacating(fence).expect("a vacating stake is known by its fence");
        let until = span(stake.until.millis());
        parts
            .push(format!("vacating after {} fence {fence} until {until}", shown_claim(cast, stake.lease, stake.mode)));
    }
    if parts.is_empty() {
        parts.push(if resource.waiting() > 0 { "held by nobody yet".into() } else { "free".into() });
    }
    for arrival in resource.arrivals() {
        let waiter = ledger.waiter(arrival).expect("a waiter is known by its arrival");
        let mode = waiter.wants.iter().find(|(wanted, _)| wanted == name).map_or(Mode::Exclusive, |(_, mode)| *mode);
        let limit = waiter.limit.map_or(String::new(), |limit| format!(" until {}", span(limit.millis())));
        parts.push(format!("then {}{limit}", shown_claim(cast, waiter.lease, mode)));
    }
    parts.extend(shown_capacity(resource));
    parts.join(", ")
}

fn shown_capacity(resource: &Resource) -> Option<String> {
    let told = units(resource.capacity());
    match (resource.is_defined(), resource.capacity()) {
        (true, _) => Some(format!("defined as {told}")),
        (false, Units::ONE) => None,
        (false, _) => Some(told),
    }
}

fn shown_claim(cast: &Cast, lease: LeaseId, mode: Mode) -> String {
    let label = cast.label(lease);
    if mode == Mode::Exclusive { label } else { format!("{label} ({})", super::cast::mode(mode)) }
}

fn shown_key(ledger: &Ledger, cast: &Cast, of: &[u8]) -> String {
    let Some(it) = ledger.key(of) else { return "no such key".into() };
    let on = it.lease.map_or(String::new(), |lease| format!(" on {}", cast.label(lease)));
    let (created, written) = (it.create_revision, it.mod_revision);
    format!("{}{on}, version {}, created kv {created}, written kv {written}", text(&it.value), it.version)
}

fn shown_keys(ledger: &Ledger, cast: &Cast) -> String {
    let mut told = format!("kv {}, {}", ledger.kv_revision(), counted(ledger.key_count() as u64, "key"));
    for (of, it) in ledger.keys_from(b"") {
        let on = it.lease.map_or(String::new(), |lease| format!(" on {}", cast.label(lease)));
        write!(told, ", {} = {}{on}", key(of), text(&it.value)).expect("a string grows as needed");
    }
    told
}

/// What who watches from a revision on is told.
fn shown_changes(ledger: &Ledger, from: &str) -> Result<String, String> {
    let from = from.parse().map_err(|_| format!("`{from}` is no revision"))?;
    let changes = match ledger.changes_from(from) {
        Ok(changes) => changes,
        Err(refusal) => return Ok(phrases::refusal(&Cast::default(), &refusal)),
    };
    let told = changes.map(|change| {
        let before = change.before.map_or(String::new(), |before| format!(", before {}", text(&before.value)));
        match change.became {
            Some(it) => format!("kv {} put {} = {}{before}", change.kv_revision, key(change.key), text(&it.value)),
            None => format!("kv {} deleted {}{before}", change.kv_revision, key(change.key)),
        }
    });
    let told: Vec<_> = told.collect();
    Ok(if told.is_empty() { "nothing".into() } else { told.join("; ") })
}

fn shown_class(class: &Class) -> String {
    let [ttl, min, max] = [class.ttl, class.ttl_min, class.ttl_max].map(|ttl| span(ttl.millis()));
    let mut told = format!("ttl {ttl} ({min} to {max}), renewal {}", class.renew);
    if class.grace.millis() > 0 {
        told += &format!(", grace {}", span(class.grace.millis()));
    }
    told + &class.lifetime.map_or(String::new(), shown_lifetime)
}

/// The claims on a resource that are over, oldest first.
fn shown_history(ledger: &Ledger, cast: &Cast, name: &Name) -> String {
    let ended = ledger.ended_claims(name).map(|ended| {
        let epoch = ended.epoch.map_or(String::new(), |epoch| format!(" epoch {}", epoch.number()));
        let (since, when) = (span(ended.since.millis()), span(ended.when.millis()));
        let who = shown_claim(cast, ended.lease, ended.mode);
        format!("{who} fence {}{epoch} from {since} to {when}, {}", ended.fence, phrases::end(cast, &ended.how))
    });
    let ended: Vec<_> = ended.collect();
    if ended.is_empty() { "nothing".into() } else { ended.join("; ") }
}

fn shown_instance(ledger: &Ledger, cast: &Cast, key: &InstanceKey) -> String {
    let Some(instance) = ledger.instance(key) else { return "no such instance".into() };
    let endpoints: Vec<_> = instance.details().endpoints.iter().map(ToString::to_string).collect();
    let routed = if instance.is_routed() { "" } else { ", not routed" };
    let mut told =
        format!("{}{routed} at {} on {}", instance.overall(), list(&endpoints), cast.label(instance.lease()));
    let valid_ms = ledger.valid_for(instance, ledger.now()).millis();
    told += &format!(", valid for {}, since {}", span(valid_ms), span(instance.since().millis()));
    for (check, finding) in instance.findings() {
        let note = if finding.note.as_str().is_empty() { String::new() } else { format!(" ({})", finding.note) };
        told += &format!(", {} {} since {}{note}", check.name, finding.health, span(finding.since.millis()));
    }
    if let Some(epoch) = instance.epoch() {
        told += &format!(", epoch {}", epoch.number());
    }
    let details = instance.details();
    let words = details.capabilities.iter().map(|it| format!(", can {it}"));
    let words = words.chain(details.zone.iter().map(|it| format!(", zone {it}")));
    words.chain(details.version.iter().map(|it| format!(", version {it}"))).for_each(|it| told += &it);
    if details.weight != 1 {
        told += &format!(", weight {}", details.weight);
    }
    if let Some(draining) = instance.draining() {
        told += &format!(", drains since {} by {}: {}", span(draining.since.millis()), draining.by, draining.reason);
    }
    if let Some(at) = instance.revoked_at() {
        told += &format!(", to be revoked at {}", span(at.millis()));
    }
    if let Some(until) = instance.held_until() {
        told += &format!(", held down until {}", span(until.millis()));
    }
    match instance.penalty().at(ledger.now()) {
        0 => told,
        points => format!("{told}, {points} points"),
    }
}

fn shown_service(ledger: &Ledger, name: &Name) -> String {
    let each = ledger.instances(name, "").map(|(id, instance)| {
        format!("{id} {}{}", instance.overall(), if instance.is_routed() { "" } else { " (not routed)" })
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() { "nobody".into() } else { each.join(", ") }
}

/// The instances of an id that are over, oldest first.
fn shown_ends(ledger: &Ledger, cast: &Cast, key: &InstanceKey) -> String {
    let ended = ledger.ended_instances(key).map(|ended| {
        let epoch = ended.epoch.map_or(String::new(), |epoch| format!(" epoch {}", epoch.number()));
        let (since, when) = (span(ended.since.millis()), span(ended.when.millis()));
        format!("{}{epoch} from {since} to {when}, {}", cast.label(ended.lease), phrases::end(cast, &ended.how))
    });
    let ended: Vec<_> = ended.collect();
    if ended.is_empty() { "nothing".into() } else { ended.join("; ") }
}
