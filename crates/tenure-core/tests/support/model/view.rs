//! What can be seen of a ledger and of the model, in one form, so that they can be compared.

use super::registry::Listed;
use super::{Group, Held, Lease, Model};
use crate::support::history::{all_instances, all_leases, all_resources};
use std::collections::BTreeMap;
use tenure_core::{
    ApiKeyName, Class, Details, Draining, End, EndedClaim, EndedLease, Epoch, Fence, Finding, Force, Health, Holder,
    Holding, Instance, InstanceKey, Key, KeyValue, Labels, LeaseId, Ledger, Lifetime, Mode, Moment, Name, Note,
    Priority, Revision, Secret, Span, Stake, Ttl, Units, Vacating,
};

/// All that can be seen.
#[derive(Debug, PartialEq)]
pub(crate) struct View {
    now: Moment,
    revision: Revision,
    last_fence: u64,
    kv_revision: u64,
    leases: BTreeMap<LeaseId, LeaseView>,
    resources: BTreeMap<Name, ResourceView>,
    keys: BTreeMap<Key, KeyValue>,
    classes: Vec<Class>,
    ended_leases: Vec<EndedLease>,
    ended_claims: Vec<EndedClaim>,
    instances: BTreeMap<InstanceKey, InstanceView>,
    ended_instances: Vec<EndView>,
}

#[derive(Debug, PartialEq)]
struct InstanceView {
    lease: LeaseId,
    epoch: Option<Epoch>,
    details: Details,
    since: (Moment, u64),
    draining: Option<Draining>,
    findings: Vec<Finding>,
    overall: Health,
    critical_since: Option<Moment>,
    held_until: Option<Moment>,
    points: u64,
}

#[derive(Debug, PartialEq)]
struct EndView {
    instance: InstanceKey,
    lease: LeaseId,
    holder: Holder,
    epoch: Option<Epoch>,
    since: (Moment, u64),
    points: u64,
    how: End,
    when: (Moment, u64),
}

#[derive(Debug, PartialEq)]
struct LeaseView {
    holder: Holder,
    owner: Option<ApiKeyName>,
    ttl: Ttl,
    deadline: Moment,
    ends_at: Moment,
    grace: Span,
    class: Option<Name>,
    lifetime: Option<Lifetime>,
    is_final: bool,
    parent: Option<LeaseId>,
    children: Vec<LeaseId>,
    labels: Labels,
    reason: Note,
    granted_wall_ms: u64,
    renewed: Moment,
    renewed_wall_ms: u64,
    stakes: BTreeMap<Name, Stake>,
    keys: Vec<Key>,
    instances: Vec<InstanceKey>,
}

#[derive(Debug, PartialEq)]
struct ResourceView {
    capacity: Units,
    is_defined: bool,
    holders: Vec<HolderView>,
    vacating: Vec<(Fence, Vacating)>,
    line: Vec<WaiterView>,
}

#[derive(Debug, PartialEq)]
struct HolderView {
    fence: Fence,
    lease: LeaseId,
    /// When and by whose order it will be broken.
    breaks: Option<(Moment, Force)>,
}

#[derive(Debug, PartialEq)]
struct WaiterView {
    arrival: u64,
    lease: LeaseId,
    wants: Vec<(Name, Mode)>,
    priority: Priority,
    since: Moment,
    since_wall_ms: u64,
    limit: Option<Moment>,
    lock_delay: Span,
    epoch: Option<Epoch>,
    request: u64,
    secret: Option<Secret>,
}

/// What can be seen of a ledger.
pub(crate) fn of_ledger(ledger: &Ledger) -> View {
    let resources: BTreeMap<Name, ResourceView> =
        ledger.resources_from("").map(|(name, _)| (name.clone(), resource_of_ledger(ledger, name))).collect();
    View {
        now: ledger.now(),
        revision: ledger.revision(),
        last_fence: ledger.last_fence(),
        kv_revision: ledger.kv_revision(),
        leases: ledger.leases_from(None).map(|(id, lease)| (id, lease_of_ledger(lease))).collect(),
        resources,
        keys: ledger.keys_from(&[]).map(|(key, value)| (key.clone(), value.clone())).collect(),
        classes: ledger.classes().collect(),
        ended_leases: all_leases().filter_map(|id| ledger.ended_lease(id).cloned()).collect(),
        ended_claims: all_resources()
            .flat_map(|name| ledger.ended_claims(&name).cloned().collect::<Vec<_>>())
            .collect(),
        instances: all_instances()
            .filter_map(|key| Some((key.clone(), instance_of_ledger(ledger, ledger.instance(&key)?))))
            .collect(),
        ended_instances: all_instances().flat_map(|key| ends_of_ledger(ledger, &key)).collect(),
    }
}

fn instance_of_ledger(ledger: &Ledger, instance: &Instance) -> InstanceView {
    InstanceView {
        lease: instance.lease(),
        epoch: instance.epoch(),
        details: instance.details().clone(),
        since: (instance.since(), instance.since_wall_ms()),
        draining: instance.draining().cloned(),
        findings: instance.findings().map(|(_, finding)| finding.clone()).collect(),
        overall: instance.overall(),
        critical_since: instance.critical_since(),
        held_until: instance.held_until(),
        points: instance.penalty().at(ledger.now()),
    }
}

fn ends_of_ledger(ledger: &Ledger, key: &InstanceKey) -> Vec<EndView> {
    let ended = ledger.ended_instances(key).map(|ended| EndView {
        instance: ended.instance.clone(),
        lease: ended.lease,
        holder: ended.holder.clone(),
        epoch: ended.epoch,
        since: (ended.since, ended.since_wall_ms),
        points: ended.penalty.at(ledger.now()),
        how: ended.how.clone(),
        when: (ended.when, ended.wall_ms),
    });
    ended.collect()
}

fn lease_of_ledger(lease: &tenure_core::Lease) -> LeaseView {
    LeaseView {
        holder: lease.holder().clone(),
        owner: lease.owner().cloned(),
        ttl: lease.ttl(),
        deadline: lease.deadline(),
        ends_at: lease.ends_at(),
        grace: lease.grace(),
        class: lease.class().cloned(),
        lifetime: lease.lifetime(),
        is_final: lease.is_final(),
        parent: lease.parent(),
        children: lease.children().collect(),
        labels: lease.labels().clone(),
        reason: lease.reason().clone(),
        granted_wall_ms: lease.granted_wall_ms(),
        renewed: lease.renewed(),
        renewed_wall_ms: lease.renewed_wall_ms(),
        stakes: lease.stakes().map(|(name, stake)| (name.clone(), stake.clone())).collect(),
        keys: lease.keys().cloned().collect(),
        instances: lease.instances().cloned().collect(),
    }
}

fn resource_of_ledger(ledger: &Ledger, name: &Name) -> ResourceView {
    let resource = ledger.resource(name).expect("it was just listed");
    let holder = |(fence, lease)| {
        let breaks = ledger.break_of(fence).map(|(at, force)| (at, force.clone()));
        HolderView { fence, lease, breaks }
    };
    let stake = |fence| ledger.vacating(fence).cloned().expect("every vacating stake is kept");
    let waiter = |arrival| {
        let waiter = ledger.waiter(arrival).expect("every arrival in a line is one of a waiter").clone();
        WaiterView {
            arrival,
            lease: waiter.lease,
            wants: waiter.wants,
            priority: waiter.priority,
            since: waiter.since,
            since_wall_ms: waiter.since_wall_ms,
            limit: waiter.limit,
            lock_delay: waiter.lock_delay,
            epoch: waiter.epoch,
            request: waiter.request,
            secret: waiter.secret,
        }
    };
    ResourceView {
        capacity: resource.capacity(),
        is_defined: resource.is_defined(),
        holders: resource.holders().map(holder).collect(),
        vacating: resource.vacating().map(|fence| (fence, stake(fence))).collect(),
        line: resource.arrivals().map(waiter).collect(),
    }
}

impl Model {
    /// What can be seen of the model.
    pub(crate) fn view(&self) -> View {
        let there = all_resources().filter(|name| self.is_there(name));
        View {
            now: self.now,
            revision: self.revision,
            last_fence: self.fence,
            kv_revision: self.kv_revision,
            leases: self.leases.iter().map(|(id, lease)| (*id, self.lease_view(*id, lease))).collect(),
            resources: there.map(|name| (name.clone(), self.resource_view(&name))).collect(),
            keys: self.keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            classes: self.classes.values().cloned().collect(),
            ended_leases: self.ended_leases.values().cloned().collect(),
            ended_claims: all_resources().flat_map(|name| self.remembered_claims(&name)).cloned().collect(),
            instances: self.instances.iter().map(|(key, listed)| (key.clone(), self.instance_view(listed))).collect(),
            ended_instances: all_instances().flat_map(|key| self.end_views(&key)).collect(),
        }
    }

    fn lease_view(&self, id: LeaseId, lease: &Lease) -> LeaseView {
        let holding = self.held_by(id).into_iter().map(|it| (it.resource.clone(), Stake::Holding(Box::new(it.view()))));
        let waiting = self
            .groups_of(id)
            .into_iter()
            .flat_map(|group| group.wants.iter().map(|(name, _)| (name.clone(), Stake::Waiting(group.arrival))));
        let children = self.leases.iter().filter(|(_, lease)| lease.grant.parent == Some(id));
        let keys = self.keys.iter().filter(|(_, value)| value.lease == Some(id));
        LeaseView {
            holder: lease.grant.holder.clone(),
            owner: lease.owner.clone(),
            ttl: lease.ttl,
            deadline: lease.deadline,
            ends_at: lease.deadline.plus(lease.grace),
            grace: lease.grace,
            class: lease.grant.class.clone(),
            lifetime: lease.grant.lifetime,
            is_final: lease.capped,
            parent: lease.grant.parent,
            children: children.map(|(child, _)| *child).collect(),
            labels: lease.grant.labels.clone(),
            reason: lease.grant.reason.clone(),
            granted_wall_ms: lease.granted.wall_ms,
            renewed: lease.renewed.at,
            renewed_wall_ms: lease.renewed.wall_ms,
            stakes: holding.chain(waiting).collect(),
            keys: keys.map(|(key, _)| key.clone()).collect(),
            instances: self.instances.iter().filter(|(_, it)| it.lease == id).map(|(key, _)| key.clone()).collect(),
        }
    }

    fn instance_view(&self, listed: &Listed) -> InstanceView {
        InstanceView {
            lease: listed.lease,
            epoch: listed.epoch,
            details: listed.details.clone(),
            since: (listed.since.at, listed.since.wall_ms),
            draining: listed.draining.clone(),
            findings: listed.findings.clone(),
            overall: listed.overall(),
            critical_since: listed.critical_since,
            held_until: listed.held_until,
            points: listed.points.at(self.now),
        }
    }

    fn end_views(&self, key: &InstanceKey) -> Vec<EndView> {
        let gone = self.remembered_instances(key).into_iter().map(|gone| EndView {
            instance: gone.instance.clone(),
            lease: gone.lease,
            holder: gone.holder.clone(),
            epoch: gone.epoch,
            since: (gone.since.at, gone.since.wall_ms),
            points: gone.points.at(self.now),
            how: gone.how.clone(),
            when: (gone.when.at, gone.when.wall_ms),
        });
        gone.collect()
    }

    fn resource_view(&self, name: &Name) -> ResourceView {
        let holders = self.holders_of(name).into_iter();
        ResourceView {
            capacity: self.capacity(name),
            is_defined: self.defined.contains(name),
            holders: holders
                .map(|Held { fence, lease, breaks, .. }| HolderView {
                    fence: *fence,
                    lease: *lease,
                    breaks: breaks.clone(),
                })
                .collect(),
            vacating: self.vacating_on(name).into_iter().map(|(fence, stake)| (fence, stake.clone())).collect(),
            line: self.line(name).into_iter().map(Group::view).collect(),
        }
    }
}

impl Held {
    fn view(&self) -> Holding {
        Holding {
            fence: self.fence,
            mode: self.mode,
            since: self.since.at,
            since_wall_ms: self.since.wall_ms,
            lock_delay: self.terms.lock_delay,
            epoch: self.terms.epoch,
            request: self.terms.request,
            secret: self.terms.secret,
        }
    }
}

impl Group {
    fn view(&self) -> WaiterView {
        WaiterView {
            arrival: self.arrival,
            lease: self.lease,
            wants: self.wants.clone(),
            priority: self.priority,
            since: self.since.at,
            since_wall_ms: self.since.wall_ms,
            limit: self.until,
            lock_delay: self.terms.lock_delay,
            epoch: self.terms.epoch,
            request: self.terms.request,
            secret: self.terms.secret,
        }
    }
}
