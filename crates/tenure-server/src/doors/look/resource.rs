//! Resources as they are shown: in a list, and one in full.

use super::Page;
use super::lease::state as lease_state;
use crate::limits::LISTED_MAX;
use tenure_api::{ended, v1, write_labels, write_mode, write_occupied};
use tenure_core::{Epoch, Fence, Handle, LeaseId, Ledger, Mode, Moment, Name, Refusal, Resource};

pub(in crate::doors) fn verify(ledger: &Ledger, handle: &Handle, now: Moment) -> Result<v1::VerifyReply, Refusal> {
    let id = ledger.behind(handle)?;
    let lease = ledger.lease(id).expect("every stake hangs on a living lease");
    Ok(v1::VerifyReply {
        lease: id.number(),
        holder: lease.holder().to_string(),
        remaining_ms: lease.deadline().millis_since(now),
    })
}

pub(in crate::doors) fn list(
    ledger: &Ledger,
    request: &v1::ListResourcesRequest,
    now: Moment,
) -> v1::ListResourcesReply {
    let mut page = Page::new(request.limit);
    let mut reply = v1::ListResourcesReply {
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ListResourcesReply::default()
    };
    let from = request.from.as_str().max(&request.prefix);
    let named = ledger.resources_from(from).take_while(|(name, _)| name.as_str().starts_with(&request.prefix));
    for (name, resource) in named {
        if !page.looks() {
            reply.next = name.to_string();
            break;
        }
        if !is_wanted(ledger, request, resource) {
            continue;
        }
        let item = item(ledger, name, resource, &request.holder, now);
        if !page.takes(&item) {
            reply.next = item.name;
            break;
        }
        reply.items.push(item);
    }
    reply
}

fn is_wanted(ledger: &Ledger, request: &v1::ListResourcesRequest, resource: &Resource) -> bool {
    let is_of = |id: LeaseId| ledger.lease(id).is_some_and(|lease| lease.holder().as_str() == request.holder);
    (request.holder.is_empty() || resource.holders().any(|(_, id)| is_of(id)))
        && (!request.defined || resource.is_defined())
        && (!request.held || resource.holder_count() > 0)
}

/// A resource with its first holder, or with the first claim of the holder that is asked for.
fn item(ledger: &Ledger, name: &Name, resource: &Resource, holder: &str, now: Moment) -> v1::Resource {
    let mut item = v1::Resource {
        name: name.to_string(),
        waiting: resource.waiting(),
        capacity: resource.capacity().number(),
        defined: resource.is_defined(),
        units_used: resource.units_taken(),
        state: state(resource).into(),
        holders: resource.holder_count() as u64,
        vacating: resource.vacating().count() as u64,
        ..v1::Resource::default()
    };
    let is_of = |id: LeaseId| ledger.lease(id).is_some_and(|lease| lease.holder().as_str() == holder);
    if let Some((fence, id)) = resource.holders().find(|(_, id)| holder.is_empty() || is_of(*id)) {
        let lease = ledger.lease(id).expect("every stake hangs on a living lease");
        let holding = lease.holding(name).expect("a holder holds");
        item.holder = lease.holder().to_string();
        item.fence = fence.number();
        item.lease = id.number();
        item.ttl_ms = lease.ttl().millis();
        item.remaining_ms = lease.deadline().millis_since(now);
        item.since_wall_ms = holding.since_wall_ms;
        item.set_mode(write_mode(holding.mode).0);
    }
    item
}

/// The first of these that is true.
fn state(resource: &Resource) -> &'static str {
    if resource.holder_count() > 0 {
        "held"
    } else if resource.vacating().next().is_some() {
        "vacating"
    } else if resource.waiting() > 0 {
        "waited-for"
    } else {
        "free"
    }
}

pub(in crate::doors) fn show(ledger: &Ledger, name: &Name, now: Moment) -> v1::ShowReply {
    let mut reply = v1::ShowReply {
        name: name.to_string(),
        capacity: 1,
        free_units: 1,
        state: "free".into(),
        past: past(ledger, name),
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ShowReply::default()
    };
    let Some(resource) = ledger.resource(name) else { return reply };
    reply.capacity = resource.capacity().number();
    reply.defined = resource.is_defined();
    reply.free_units = free_units(ledger, name, resource);
    reply.state = state(resource).into();
    let holders = resource.holders().take(LISTED_MAX);
    reply.holders = holders.map(|(fence, id)| holding(ledger, name, fence, id, now)).collect();
    reply.holders_count = resource.holder_count() as u64;
    reply.vacating = resource.vacating().take(LISTED_MAX).map(|fence| vacating(ledger, fence, now)).collect();
    reply.vacating_count = resource.vacating().count() as u64;
    let line = resource.arrivals().take(LISTED_MAX);
    reply.line = line.map(|arrival| waiter(ledger, name, arrival, now)).collect();
    reply.waiting = resource.waiting();
    reply.blockers = resource.arrivals().next().map_or_else(Vec::new, |first| blockers(ledger, first, now));
    reply
}

/// Units that are neither held nor vacating: none while it is held in another mode.
fn free_units(ledger: &Ledger, name: &Name, resource: &Resource) -> u64 {
    let held = resource.holders().filter_map(|(_, id)| Some(ledger.lease(id)?.holding(name)?.mode));
    let vacating = resource.vacating().filter_map(|fence| Some(ledger.vacating(fence)?.mode));
    if held.chain(vacating).any(|mode| !matches!(mode, Mode::Units(_))) {
        return 0;
    }
    resource.capacity().number().saturating_sub(resource.units_taken())
}

fn epoch_number(epoch: Option<Epoch>) -> u64 {
    epoch.map_or(0, Epoch::number)
}

fn holding(ledger: &Ledger, name: &Name, fence: Fence, id: LeaseId, now: Moment) -> v1::Holding {
    let lease = ledger.lease(id).expect("every stake hangs on a living lease");
    let claim = lease.holding(name).expect("a holder holds");
    let (mode, units) = write_mode(claim.mode);
    let breaks = ledger.break_of(fence);
    v1::Holding {
        fence: fence.number(),
        lease: id.number(),
        holder: lease.holder().to_string(),
        mode: mode.into(),
        units,
        epoch: epoch_number(claim.epoch),
        since_wall_ms: claim.since_wall_ms,
        held_ms: now.millis_since(claim.since),
        ttl_ms: lease.ttl().millis(),
        remaining_ms: lease.deadline().millis_since(now),
        state: lease_state(lease, now).into(),
        grace_ms: lease.grace().millis(),
        renewed_wall_ms: lease.renewed_wall_ms(),
        renewed_ago_ms: now.millis_since(lease.renewed()),
        lock_delay_ms: claim.lock_delay.millis(),
        breaks_in_ms: breaks.map(|(at, _)| at.millis_since(now)),
        breaks_by: breaks.map_or_else(String::new, |(_, force)| force.by.to_string()),
        breaks_reason: breaks.map_or_else(String::new, |(_, force)| force.reason.to_string()),
        class: lease.class().map_or_else(String::new, ToString::to_string),
        reason: lease.reason().to_string(),
        labels: write_labels(lease.labels()),
        parent: lease.parent().map_or(0, LeaseId::number),
        is_final: lease.is_final(),
        api_key: lease.owner().map_or_else(String::new, ToString::to_string),
    }
}

fn vacating(ledger: &Ledger, fence: Fence, now: Moment) -> v1::Vacating {
    let stake = ledger.vacating(fence).expect("what a resource has vacating is there");
    let (mode, units) = write_mode(stake.mode);
    let over = ledger.ended_claims(&stake.resource).find(|claim| claim.fence == fence);
    v1::Vacating {
        fence: fence.number(),
        lease: stake.lease.number(),
        holder: stake.holder.to_string(),
        mode: mode.into(),
        units,
        epoch: epoch_number(stake.epoch),
        remaining_ms: stake.until.millis_since(now),
        end: over.map(|claim| ended(&claim.how, claim.when, claim.wall_ms)),
    }
}

fn waiter(ledger: &Ledger, name: &Name, arrival: u64, now: Moment) -> v1::Waiter {
    let waiter = ledger.waiter(arrival).expect("whoever stands in a line waits");
    let lease = ledger.lease(waiter.lease).expect("every waiter's lease lives");
    let wanted = waiter.wants.iter().find(|(wanted, _)| wanted == name);
    let (mode, units) = wanted.map_or((v1::Mode::Unspecified, 0), |(_, mode)| write_mode(*mode));
    v1::Waiter {
        place: ledger.place(arrival, name).unwrap_or_default(),
        lease: waiter.lease.number(),
        holder: lease.holder().to_string(),
        mode: mode.into(),
        units,
        priority: waiter.priority.number(),
        epoch: epoch_number(waiter.epoch),
        since_wall_ms: waiter.since_wall_ms,
        waited_ms: now.millis_since(waiter.since),
        limit_left_ms: waiter.limit.map(|limit| limit.millis_since(now)),
        resources: waiter.wants.iter().map(|(name, _)| name.to_string()).collect(),
        reserved: waiter.is_reserved(),
        remaining_ms: lease.deadline().millis_since(now),
    }
}

/// The remembered claims that are over, newest first.
fn past(ledger: &Ledger, name: &Name) -> Vec<v1::PastClaim> {
    let claims = ledger.ended_claims(name).map(|claim| {
        let (mode, units) = write_mode(claim.mode);
        v1::PastClaim {
            fence: claim.fence.number(),
            lease: claim.lease.number(),
            holder: claim.holder.to_string(),
            mode: mode.into(),
            units,
            epoch: epoch_number(claim.epoch),
            since_wall_ms: claim.since_wall_ms,
            held_ms: claim.when.millis_since(claim.since),
            end: Some(ended(&claim.how, claim.when, claim.wall_ms)),
        }
    });
    let mut claims: Vec<_> = claims.collect();
    claims.reverse();
    claims
}

fn blockers(ledger: &Ledger, arrival: u64, now: Moment) -> Vec<v1::Blocker> {
    let blockers = ledger.blockers(arrival, LISTED_MAX).into_iter();
    let shown = blockers.map(|blocker| v1::Blocker {
        depth: blocker.depth,
        resource: blocker.resource.to_string(),
        state: write_occupied(blocker.state).into(),
        holder: blocker.holder.to_string(),
        lease: blocker.lease.number(),
        fence: blocker.fence.map_or(0, Fence::number),
        remaining_ms: blocker.until.millis_since(now),
    });
    shown.collect()
}
