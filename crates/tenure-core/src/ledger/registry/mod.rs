//! The registry: instances of services, each on a lease. Who lives is the lease's business; here is what an instance
//! says of itself, how well it is, and which others it stands and falls with.

mod guard;
mod health;
mod register;

use super::Ledger;
use super::wheel::Due;
use crate::mode::Epoch;
use crate::names::{Holder, LeaseId, Name, Note};
use crate::registry::{Details, Health, InstanceId, InstanceKey, OnCritical, Penalty, Source, Word};
use crate::time::{Moment, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
pub(super) use guard::Cohort;
pub use guard::Suspect;

/// The class of the leases that are made for instances. Only these are guarded against correlated loss.
pub(super) const CLASS: &str = "registration";

/// All instances.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    pub(super) services: BTreeMap<Name, Service>,
    /// The last instance that was numbered. The wheel knows them by their numbers.
    pub(super) last: u64,
    /// Which instance has a number. An index.
    pub(super) numbers: BTreeMap<u64, InstanceKey>,
}

/// A service with at least one instance.
#[derive(Clone, Debug, Default)]
pub struct Service {
    pub(super) instances: BTreeMap<InstanceId, Box<Instance>>,
    /// The leases with an instance in each zone. An index, but for what was judged a moment ago.
    pub(super) zones: BTreeMap<Option<Word>, Cohort>,
}

impl Service {
    /// How many instances it has.
    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// Its instances, by id.
    pub fn instances(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.instances.iter().map(|(id, instance)| (id, &**instance))
    }
}

/// An instance of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub(super) number: u64,
    pub(super) lease: LeaseId,
    /// The number of the request that registered it last; 0 if it had none.
    pub(super) request: u64,
    pub(super) epoch: Option<Epoch>,
    pub(super) details: Details,
    pub(super) since: Moment,
    pub(super) since_wall_ms: u64,
    pub(super) draining: Option<Draining>,
    /// What each of its checks found, in their order.
    pub(super) findings: Vec<Finding>,
    /// Since when it is critical.
    pub(super) critical_since: Option<Moment>,
    /// It was passing at some time since it last fell.
    pub(super) rose: bool,
    pub(super) penalty: Penalty,
    /// Until when it is not shown as passing, because it flaps.
    pub(super) held_until: Option<Moment>,
}

/// By whose order an instance drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Who ordered it.
    pub by: Holder,
    /// Why.
    pub reason: Note,
    /// Since when, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
}

/// What a check found last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// How well the instance is by it.
    pub health: Health,
    /// In words.
    pub note: Note,
    /// Since when it finds so, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
    /// When it last told so, in service time.
    pub told: Moment,
}

impl Instance {
    /// The lease that it hangs on.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// How often it has started, by its own count.
    pub const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// What it says of itself.
    pub const fn details(&self) -> &Details {
        &self.details
    }

    /// Since when it is registered, in service time.
    pub const fn since(&self) -> Moment {
        self.since
    }

    /// Since when, by the wall clock of the leader of that time.
    pub const fn since_wall_ms(&self) -> u64 {
        self.since_wall_ms
    }

    /// By whose order it drains, if it does.
    pub const fn draining(&self) -> Option<&Draining> {
        self.draining.as_ref()
    }

    /// Its checks, and what each found last.
    pub fn findings(&self) -> impl Iterator<Item = (&crate::registry::Check, &Finding)> {
        self.details.checks.iter().zip(&self.findings)
    }

    /// What is shown of it: what its checks say, and no better than degraded while it is held down.
    pub fn overall(&self) -> Health {
        let held = if self.held_until.is_some() { Health::Degraded } else { Health::Passing };
        self.health().max(held)
    }

    /// The worst that its checks say. Those of one that is only observed do not count.
    pub fn health(&self) -> Health {
        if self.details.on_critical == OnCritical::Observe {
            return Health::Passing;
        }
        self.findings.iter().map(|finding| finding.health).max().unwrap_or(Health::Passing)
    }

    /// Since when it is critical.
    pub const fn critical_since(&self) -> Option<Moment> {
        self.critical_since
    }

    /// When its lease will be ended unless it gets better.
    pub fn revoked_at(&self) -> Option<Moment> {
        match self.details.on_critical {
            OnCritical::RevokeAfter(after) => self.critical_since.map(|since| since.plus(after)),
            OnCritical::Mark | OnCritical::Observe => None,
        }
    }

    /// Until when it is shown as degraded only because it flaps.
    pub(super) fn shown_held(&self) -> Option<Moment> {
        self.held_until.filter(|_| self.health() == Health::Passing)
    }

    /// Until when it is held down because it flaps, whatever its checks say.
    pub const fn held_until(&self) -> Option<Moment> {
        self.held_until
    }

    /// What it has to its name for flapping.
    pub const fn penalty(&self) -> Penalty {
        self.penalty
    }

    /// Whether new work is for it: it does not drain, and it is passing or degraded. That it lives is known, for it is
    /// here.
    pub fn is_routed(&self) -> bool {
        self.draining.is_none() && self.overall() <= Health::Degraded
    }

    /// What falls due with it by itself.
    pub(super) fn dues(&self) -> Vec<(Moment, Due)> {
        let stale = (0..).zip(self.findings()).filter_map(|(check, (of, finding))| match of.source {
            Source::Pushed { ttl: Some(ttl) } if finding.health <= Health::Degraded => {
                Some((finding.told.plus(ttl), Due::Stale(self.number, check)))
            }
            _ => None,
        });
        let held = self.held_until.map(|at| (at, Due::Held(self.number)));
        let revoked = self.revoked_at().map(|at| (at, Due::Unhealthy(self.number)));
        stale.chain(held).chain(revoked).collect()
    }
}

impl Ledger {
    /// An instance that lives.
    pub fn instance(&self, key: &InstanceKey) -> Option<&Instance> {
        self.registry.services.get(&key.service)?.instances.get(&key.id).map(|instance| &**instance)
    }

    /// The instances of a service from `first` on, by id.
    pub fn instances(&self, service: &Name, first: &str) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        let range = (Bound::Included(first), Bound::Unbounded);
        let service = self.registry.services.get(service).into_iter();
        service.flat_map(move |it| it.instances.range::<str, _>(range)).map(|(id, instance)| (id, &**instance))
    }

    /// All services with instances from `first` on, by name.
    pub fn services_from(&self, first: &str) -> impl Iterator<Item = (&Name, &Service)> {
        self.registry.services.range::<str, _>((Bound::Included(first), Bound::Unbounded))
    }

    /// The number of instances.
    pub fn instance_count(&self) -> usize {
        self.registry.numbers.len()
    }

    /// The number of services with instances.
    pub fn service_count(&self) -> usize {
        self.registry.services.len()
    }

    /// Until when an instance may be used without asking again: it ends no earlier unless somebody orders it. It ends with
    /// its lease, or with one that this hangs on.
    pub fn valid_until(&self, instance: &Instance) -> Moment {
        let ends = self.lineage(instance.lease).map(|id| self.leases[&id].lives_until(self.now));
        ends.min().expect("a lineage starts with the lease itself")
    }

    /// How long an instance may be used without asking again, seen at a moment.
    pub fn valid_for(&self, instance: &Instance, now: Moment) -> Span {
        Span::at_most(self.valid_until(instance).millis_since(now), u64::MAX).expect("there is no longer span")
    }

    fn numbered(&self, number: u64) -> &InstanceKey {
        self.registry.numbers.get(&number).expect("whatever is armed is registered")
    }

    fn living(&self, key: &InstanceKey) -> &Instance {
        self.instance(key).expect("it was just looked up")
    }

    /// Changes an instance, and arms what falls due with it where that is then.
    fn change_instance<T>(&mut self, key: &InstanceKey, change: impl FnOnce(&mut Instance) -> T) -> T {
        let service = self.registry.services.get_mut(&key.service);
        let instance = service.and_then(|it| it.instances.get_mut(&key.id)).expect("it was just looked up");
        let before = instance.dues();
        let done = change(instance);
        let after = instance.dues();
        before.into_iter().for_each(|(at, due)| self.wheel.disarm(at, due));
        after.into_iter().for_each(|(at, due)| self.wheel.arm(at, due));
        done
    }

    /// The lease on which an instance hangs that is due.
    pub(super) fn lease_of_instance(&self, number: u64) -> LeaseId {
        self.living(self.numbered(number)).lease
    }
}
