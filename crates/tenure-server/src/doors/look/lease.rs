//! Leases and classes as they are shown.

use super::Page;
use crate::limits::LISTED_MAX;
use tenure_api::v1::show_lease_reply::State;
use tenure_api::{
    BadRequest, ended, read_class_name, read_holder, read_label, v1, write_class, write_labels, write_lifetime,
};
use tenure_core::{Holder, Label, Lease, LeaseId, Ledger, Moment, Name, Refusal, Stake};

/// Which leases a list is to show.
pub(in crate::doors) struct Wanted {
    holder: Option<Holder>,
    label: Option<Label>,
    class: Option<Name>,
    holds_prefix: String,
}

impl Wanted {
    pub(in crate::doors) fn read(request: &v1::ListLeasesRequest) -> Result<Self, BadRequest> {
        let some = |text: &str| !text.is_empty();
        Ok(Self {
            holder: some(&request.holder).then(|| read_holder(&request.holder)).transpose()?,
            label: request.label.as_ref().map(read_label).transpose()?,
            class: some(&request.class).then(|| read_class_name(&request.class)).transpose()?,
            holds_prefix: request.holds_prefix.clone(),
        })
    }

    fn wants(&self, lease: &Lease) -> bool {
        let prefix = &self.holds_prefix;
        let is_under = |name: &Name| name.as_str().starts_with(prefix.as_str());
        let holds = |(name, stake): (&Name, &Stake)| matches!(stake, Stake::Holding(_)) && is_under(name);
        self.holder.as_ref().is_none_or(|holder| lease.holder() == holder)
            && self.label.as_ref().is_none_or(|label| lease.labels().has(label))
            && self.class.as_ref().is_none_or(|class| lease.class() == Some(class))
            && (prefix.is_empty() || lease.stakes().any(holds))
    }
}

pub(in crate::doors) fn list(
    ledger: &Ledger,
    request: &v1::ListLeasesRequest,
    wanted: &Wanted,
    now: Moment,
) -> v1::ListLeasesReply {
    let mut page = Page::new(request.limit);
    let mut reply =
        v1::ListLeasesReply { revision: ledger.revision().0, now_ms: now.millis(), ..v1::ListLeasesReply::default() };
    for (id, lease) in ledger.leases_from(LeaseId::from_number(request.from)) {
        if !page.looks() {
            reply.next = id.number();
            break;
        }
        if !wanted.wants(lease) {
            continue;
        }
        let item = item(id, lease, now);
        if !page.takes(&item) {
            reply.next = id.number();
            break;
        }
        reply.items.push(item);
    }
    reply
}

pub(in crate::doors) fn show(ledger: &Ledger, id: LeaseId, now: Moment) -> Result<v1::ShowLeaseReply, Refusal> {
    let mut reply =
        v1::ShowLeaseReply { revision: ledger.revision().0, now_ms: now.millis(), ..v1::ShowLeaseReply::default() };
    if let Some(lease) = ledger.lease(id) {
        reply.children = lease.children().take(LISTED_MAX).map(LeaseId::number).collect();
        reply.keys = first_keys(lease);
        reply.state = Some(State::Living(item(id, lease, now)));
        return Ok(reply);
    }
    let over = ledger.ended_lease(id).ok_or(Refusal::NoLease { lease: id })?;
    reply.state = Some(State::Ended(v1::EndedLease {
        lease: id.number(),
        holder: over.holder.to_string(),
        end: Some(ended(&over.how, over.when, over.wall_ms)),
    }));
    Ok(reply)
}

/// The first keys of a lease, as many as fit on a page.
fn first_keys(lease: &Lease) -> Vec<Vec<u8>> {
    let mut page = Page::of(0, LISTED_MAX);
    let fit = lease.keys().take_while(|key| page.takes_bytes(key.bytes().len()));
    fit.map(|key| key.bytes().to_vec()).collect()
}

fn item(id: LeaseId, lease: &Lease, now: Moment) -> v1::Lease {
    let (lifetime_ms, lifetime_while_others_wait) = write_lifetime(lease.lifetime());
    let mut item = v1::Lease {
        lease: id.number(),
        holder: lease.holder().to_string(),
        api_key: lease.owner().map_or_else(String::new, ToString::to_string),
        ttl_ms: lease.ttl().millis(),
        remaining_ms: lease.deadline().millis_since(now),
        granted_wall_ms: lease.granted_wall_ms(),
        attached: lease.stakes().count() as u64,
        class: lease.class().map_or_else(String::new, ToString::to_string),
        grace_ms: lease.grace().millis(),
        parent: lease.parent().map_or(0, LeaseId::number),
        children: lease.children().count() as u64,
        keys: lease.key_count() as u64,
        labels: write_labels(lease.labels()),
        reason: lease.reason().to_string(),
        renewed_wall_ms: lease.renewed_wall_ms(),
        state: state(lease, now).into(),
        is_final: lease.is_final(),
        lifetime_ms,
        lifetime_while_others_wait,
        instances: lease.instances().take(LISTED_MAX).map(ToString::to_string).collect(),
        ..v1::Lease::default()
    };
    for (name, stake) in lease.stakes().take(LISTED_MAX) {
        match stake {
            Stake::Holding(holding) => item.holds.push(format!("{name}@{}", holding.fence)),
            Stake::Waiting(_) => item.waits.push(name.to_string()),
        }
    }
    item
}

/// Held until its deadline, overdue from then on.
pub(super) fn state(lease: &Lease, now: Moment) -> &'static str {
    if lease.deadline() > now { "held" } else { "overdue" }
}

pub(in crate::doors) fn classes(ledger: &Ledger) -> v1::ListClassesReply {
    let items = ledger.classes().map(|class| write_class(&class)).collect();
    v1::ListClassesReply { items, revision: ledger.revision().0 }
}
