//! How instances come, change and go by order. Everything is checked before anything is changed.

use super::{CLASS, Draining, Finding, Instance};
use crate::command::{Grant, On};
use crate::event::{End, Event, Happening};
use crate::ledger::Ledger;
use crate::ledger::ending::Ending;
use crate::ledger::history::EndedInstance;
use crate::ledger::lease::Origin;
use crate::ledger::size;
use crate::limits::{INSTANCES_MAX, SERVICES_MAX};
use crate::mode::Epoch;
use crate::names::{Holder, LeaseId, Name};
use crate::registry::{
    Check, Deregister, Details, Drain, Health, InstanceKey, Penalty, Register, SetHealth, UpdateInstance,
};
use crate::reply::{Outcome, Refusal, Registered, Reply};
use crate::request::RequestNumber;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Ledger {
    pub(in crate::ledger) fn register(&mut self, register: &Register, events: &mut Vec<Event>) -> Outcome {
        let (On::Given(lease), Some(request)) = (&register.on, register.request) else {
            return self.register_any(register, events);
        };
        if self.is_answered(*lease, request) {
            return match self.instance(&register.instance) {
                Some(instance) if instance.lease == *lease => Ok(self.registered(&register.instance)),
                _ => Err(Refusal::Answered { lease: *lease, number: request.number() }),
            };
        }
        let outcome = self.register_any(register, events);
        self.note_answered(*lease, request, &outcome);
        outcome
    }

    fn register_any(&mut self, register: &Register, events: &mut Vec<Event>) -> Outcome {
        let key = &register.instance;
        let begins = match &register.on {
            On::New(grant) => {
                let grant = as_registration(grant);
                if self.is_retry(&grant)? {
                    return self.registered_before(key, grant.lease);
                }
                self.may_begin_so(&grant)?;
                grant.parent.map_or(Ok(()), |parent| self.room_in_tree(parent, 2))?;
                Some(grant)
            }
            On::Given(lease) if !self.leases.contains_key(lease) => return Err(self.no_lease(*lease)),
            On::Given(lease) if self.instance(key).is_some_and(|it| it.lease == *lease) => {
                return self.register_again(register, *lease, events);
            }
            On::Given(lease) => {
                self.room_in_tree(*lease, 1)?;
                None
            }
        };
        self.no_older_epoch(key, register.epoch)?;
        self.may_take(key, register.epoch)?;
        // An instance that is there already is found before the room for another lease is looked at: its agent renews the lease then.
        begins.as_ref().map_or(Ok(()), |grant| self.has_room_for_lease(grant))?;
        let bytes = size::of_instance(key, &register.details) + begins.as_ref().map_or(0, size::of_grant);
        self.has_room_for(bytes)?;
        self.enter(register, begins.as_ref(), events);
        if let On::Given(lease) = register.on {
            self.touch(lease);
        }
        Ok(self.registered(key))
    }

    /// A retry of a registration is answered as before. A late one must not bring back what was taken out since.
    fn registered_before(&self, key: &InstanceKey, lease: LeaseId) -> Outcome {
        match self.instance(key) {
            Some(instance) if instance.lease == lease => Ok(self.registered(key)),
            _ => Err(self.no_instance(key)),
        }
    }

    /// Replaces what an instance says of itself, in the same or a higher epoch.
    fn register_again(&mut self, register: &Register, lease: LeaseId, events: &mut Vec<Event>) -> Outcome {
        let key = &register.instance;
        self.no_older_epoch(key, register.epoch)?;
        self.may_say(key, &register.details)?;
        if self.say(key, &register.details, register.epoch) {
            self.happened(alloc::vec![Happening::Updated { instance: key.clone(), lease }], events);
        }
        let request = request_number(register.request);
        self.change_instance(key, |instance| instance.request = request);
        self.touch(lease);
        Ok(self.registered(key))
    }

    fn registered(&self, key: &InstanceKey) -> Reply {
        let instance = self.living(key);
        Reply::Registered(Registered {
            lease: instance.lease,
            ttl_ms: self.leases[&instance.lease].effective_ttl_ms(self.now),
            overall: instance.overall(),
            held_ms: instance.shown_held().map(|until| until.millis_since(self.now)),
            revision: self.revision,
        })
    }

    /// Whoever comes late with a lower epoch than the highest that is known is refused.
    fn no_older_epoch(&self, key: &InstanceKey, asked: Option<Epoch>) -> Result<(), Refusal> {
        let Some(asked) = asked else { return Ok(()) };
        let ended = self.history.instances(key).filter_map(|ended| ended.epoch);
        let highest = ended.chain(self.instance(key).and_then(|it| it.epoch)).max();
        match highest.filter(|highest| *highest > asked) {
            Some(current) => {
                let (asked, current) = (asked.number(), current.number());
                Err(Refusal::OlderInstance { instance: key.clone(), asked, current })
            }
            None => Ok(()),
        }
    }

    /// Whether an instance may come with this id: nobody has it, or somebody has it in a lower epoch.
    fn may_take(&self, key: &InstanceKey, asked: Option<Epoch>) -> Result<(), Refusal> {
        let Some(living) = self.instance(key) else {
            if self.registry.numbers.len() >= INSTANCES_MAX {
                return Err(Refusal::Full { what: "instances".into(), max: INSTANCES_MAX });
            }
            let services = &self.registry.services;
            if services.len() >= SERVICES_MAX && !services.contains_key(&key.service) {
                return Err(Refusal::Full { what: "services".into(), max: SERVICES_MAX });
            }
            return Ok(());
        };
        if living.epoch.is_some() && living.epoch < asked {
            return Ok(());
        }
        let lease = &self.leases[&living.lease];
        Err(Refusal::InstanceExists {
            instance: key.clone(),
            holder: lease.holder.clone(),
            epoch: living.epoch.map(Epoch::number),
            remaining_ms: lease.ends_at().millis_since(self.now),
        })
    }

    /// Nothing refuses any more: ends the one of a lower epoch, begins the lease if it is new, and lists the instance,
    /// all at one revision.
    fn enter(&mut self, register: &Register, begins: Option<&Grant>, events: &mut Vec<Event>) {
        let (key, lease) = (&register.instance, register.lease());
        let mut happenings = Vec::new();
        if self.instance(key).is_some() {
            let spared = begins.map_or(Some(lease), |grant| grant.parent);
            self.take_out(key, &Ending::plain(End::Superseded), spared, &mut happenings);
        }
        if let Some(grant) = begins {
            happenings.push(self.begin(grant, Origin::Register));
        }
        self.list(key, lease, register);
        let (holder, epoch) = (self.leases[&lease].holder.clone(), register.epoch);
        happenings.push(Happening::Registered { instance: key.clone(), lease, holder, epoch });
        self.happened(happenings, events);
    }

    fn list(&mut self, key: &InstanceKey, lease: LeaseId, register: &Register) {
        self.registry.last += 1;
        self.bytes += size::of_instance(key, &register.details);
        let number = self.registry.last;
        let (since, since_wall_ms) = (self.now, self.wall_ms);
        let unknown = || Finding { since, since_wall_ms, told: since, ..Finding::default() };
        let mut instance = Instance {
            number,
            lease,
            request: request_number(register.request),
            epoch: register.epoch,
            findings: register.details.checks.iter().map(|_| unknown()).collect(),
            details: register.details.clone(),
            since,
            since_wall_ms,
            draining: None,
            critical_since: None,
            rose: false,
            penalty: self.inherited_penalty(key),
            held_until: self.history.instances(key).last().and_then(|ended| ended.held_until(self.now)),
        };
        // It comes back from not being there.
        instance.settle(Health::Unknown, self.now);
        instance.dues().into_iter().for_each(|(at, due)| self.wheel.arm(at, due));
        let zone = instance.details.zone.clone();
        let service = self.registry.services.entry(key.service.clone()).or_default();
        service.instances.insert(key.id.clone(), Box::new(instance));
        self.registry.numbers.insert(number, key.clone());
        self.attach(lease, 1);
        let of = self.leases.get_mut(&lease).expect("an instance hangs on a living lease");
        of.instances.insert(key.clone());
        self.join_cohort(&key.service, zone, lease);
    }

    /// The points that the last one of this id had, and those for how it ended, unless that was in order.
    fn inherited_penalty(&self, key: &InstanceKey) -> Penalty {
        match self.history.instances(key).last() {
            Some(ended) => match ended.how {
                End::Expired | End::Superseded | End::Unhealthy => ended.penalty.fallen(self.now),
                _ => ended.penalty,
            },
            None => Penalty::default(),
        }
    }

    /// Takes an instance out, and ends the lease that was made for it unless something else hangs on that, or `spared`
    /// does.
    fn take_out(
        &mut self,
        key: &InstanceKey,
        ending: &Ending,
        spared: Option<LeaseId>,
        happenings: &mut Vec<Happening>,
    ) {
        let id = self.living(key).lease;
        let lease = self.leases.get_mut(&id).expect("an instance hangs on a living lease");
        lease.instances.remove(key);
        let holder = lease.holder.clone();
        self.detach(Some(id), 1);
        happenings.push(self.unlist(key, &holder, &ending.how));
        let lease = &self.leases[&id];
        let is_over = lease.origin == Origin::Register && lease.carried == 0;
        if is_over && spared.is_none_or(|spared| !self.hangs_on(spared, id)) {
            self.end_tree(id, ending, happenings);
        }
    }

    /// Takes an instance off the list. Its lease is the caller's business.
    pub(in crate::ledger) fn unlist(&mut self, key: &InstanceKey, holder: &Holder, how: &End) -> Happening {
        let service = self.registry.services.get_mut(&key.service).expect("an instance has a service");
        let instance = service.instances.remove(&key.id).expect("only a living instance can end");
        self.bytes -= size::of_instance(key, &instance.details);
        instance.dues().into_iter().for_each(|(at, due)| self.wheel.disarm(at, due));
        self.registry.numbers.remove(&instance.number);
        self.leave_cohort(&key.service, &instance.details.zone, instance.lease);
        if self.registry.services.get(&key.service).is_some_and(|service| service.instances.is_empty()) {
            self.registry.services.remove(&key.service);
        }
        self.history.remember_instance(EndedInstance {
            instance: key.clone(),
            lease: instance.lease,
            holder: holder.clone(),
            epoch: instance.epoch,
            since: instance.since,
            since_wall_ms: instance.since_wall_ms,
            penalty: instance.penalty,
            held_until: instance.held_until,
            how: how.clone(),
            when: self.now,
            wall_ms: self.wall_ms,
        });
        Happening::Deregistered { instance: key.clone(), lease: instance.lease, how: how.clone() }
    }

    pub(in crate::ledger) fn no_instance(&self, key: &InstanceKey) -> Refusal {
        let last = self.history.instances(key).last();
        let ended = last.map(|ended| (ended.how.clone(), ended.when, ended.wall_ms));
        Refusal::NoInstance { instance: key.clone(), ended }
    }

    /// The lease of an instance, if that is the one that was named.
    fn hung_on(&self, key: &InstanceKey, named: Option<LeaseId>) -> Result<LeaseId, Refusal> {
        let Some(instance) = self.instance(key) else { return Err(self.no_instance(key)) };
        match named.filter(|named| *named != instance.lease) {
            Some(lease) => {
                let holder = self.leases[&instance.lease].holder.clone();
                Err(Refusal::OtherLease { instance: key.clone(), lease, holder })
            }
            None => Ok(instance.lease),
        }
    }

    pub(in crate::ledger) fn update_instance(&mut self, update: &UpdateInstance, events: &mut Vec<Event>) -> Outcome {
        let key = &update.instance;
        let lease = self.hung_on(key, update.lease)?;
        let details = self.living(key).details.edited(&update.edit);
        let details = details.map_err(|why| Refusal::BadInstance { instance: key.clone(), why })?;
        self.may_say(key, &details)?;
        if self.say(key, &details, None) {
            self.happened(alloc::vec![Happening::Updated { instance: key.clone(), lease }], events);
        }
        if let Some(lease) = update.lease {
            self.touch(lease);
        }
        Ok(Reply::Updated { revision: self.revision })
    }

    /// Whether there is room for what an instance says of itself from now on.
    fn may_say(&self, key: &InstanceKey, details: &Details) -> Result<(), Refusal> {
        let before = size::of_instance(key, &self.living(key).details);
        match size::of_instance(key, details).saturating_sub(before) {
            0 => Ok(()),
            more => self.has_room_for(more),
        }
    }

    /// Has an instance say something else of itself, in the same or another epoch. A check that stays as it was keeps what
    /// it found, unless it would be another process or another endpoint where it was found. False: it is what it said
    /// before.
    fn say(&mut self, key: &InstanceKey, details: &Details, epoch: Option<Epoch>) -> bool {
        let (now, wall_ms) = (self.now, self.wall_ms);
        let instance = self.living(key);
        let is_same_epoch = epoch.is_none() || instance.epoch == epoch;
        if is_same_epoch && instance.details == *details {
            return false;
        }
        let (lease, zone) = (instance.lease, instance.details.zone.clone());
        let before = size::of_instance(key, &instance.details);
        self.bytes = self.bytes - before + size::of_instance(key, details);
        self.change_instance(key, |instance| {
            let was = instance.health();
            let is_kept = |check: &Check| is_same_epoch && check.looks_at_the_same(&instance.details, details);
            let found = |check| {
                let kept = instance.findings().find(|(old, _)| *old == check && is_kept(check));
                let unknown = Finding { since: now, since_wall_ms: wall_ms, told: now, ..Finding::default() };
                kept.map_or(unknown, |(_, finding)| finding.clone())
            };
            instance.findings = details.checks.iter().map(found).collect();
            instance.details = details.clone();
            instance.epoch = epoch.or(instance.epoch);
            instance.settle(was, now);
        });
        if zone != details.zone {
            self.leave_cohort(&key.service, &zone, lease);
            self.join_cohort(&key.service, details.zone.clone(), lease);
        }
        true
    }

    pub(in crate::ledger) fn drain(&mut self, drain: &Drain, events: &mut Vec<Event>) -> Outcome {
        let instance = drain.instance.clone();
        let lease = self.hung_on(&instance, drain.lease)?;
        if self.living(&instance).draining.is_some() != drain.on {
            let (by, reason) = (drain.by.clone(), drain.reason.clone());
            let (since, since_wall_ms) = (self.now, self.wall_ms);
            let draining = Draining { by: by.clone(), reason: reason.clone(), since, since_wall_ms };
            self.change_instance(&instance, |it| it.draining = drain.on.then_some(draining));
            let happening = match drain.on {
                true => Happening::Drained { instance, lease, by, reason },
                false => Happening::Undrained { instance, lease, by, reason },
            };
            self.happened(alloc::vec![happening], events);
        }
        Ok(Reply::Drained { revision: self.revision })
    }

    pub(in crate::ledger) fn deregister(&mut self, order: &Deregister, events: &mut Vec<Event>) -> Outcome {
        let (Some(lease), Some(request)) = (order.lease, order.request) else {
            return self.deregister_any(order, events);
        };
        // It is another registration that stands there now.
        let is_later =
            self.instance(&order.instance).is_some_and(|it| it.lease == lease && it.request > request.number());
        let outcome = match is_later {
            true => Ok(Reply::Deregistered { revision: self.revision }),
            false => self.deregister_any(order, events),
        };
        self.note_answered(lease, request, &outcome);
        outcome
    }

    fn deregister_any(&mut self, order: &Deregister, events: &mut Vec<Event>) -> Outcome {
        let key = &order.instance;
        if self.instance(key).is_some() {
            self.hung_on(key, order.lease)?;
            let ending = order.force.as_ref().map_or(Ending::plain(End::Released), Ending::forced);
            let mut happenings = Vec::new();
            self.take_out(key, &ending, None, &mut happenings);
            self.happened(happenings, events);
            order.lease.into_iter().for_each(|lease| self.touch(lease));
            return Ok(Reply::Deregistered { revision: self.revision });
        }
        // A retry finds that it worked.
        let worked = |ended: &&EndedInstance| {
            let is_meant = order.lease.is_none_or(|lease| lease == ended.lease);
            is_meant && matches!(ended.how, End::Released | End::Revoked { .. })
        };
        match self.history.instances(key).last().filter(worked) {
            Some(_) => Ok(Reply::Deregistered { revision: self.revision }),
            None => Err(self.no_instance(key)),
        }
    }

    pub(in crate::ledger) fn set_health(&mut self, set: &SetHealth, events: &mut Vec<Event>) -> Outcome {
        let key = &set.instance;
        self.hung_on(key, Some(set.lease))?;
        let Some(at) = self.living(key).details.checks.iter().position(|check| check.name == set.check) else {
            return Err(Refusal::NoCheck { instance: key.clone(), check: set.check.clone() });
        };
        self.find(key, at, set.health, set.note.clone(), events);
        let instance = self.living(key);
        Ok(Reply::HealthSet {
            overall: instance.overall(),
            held_ms: instance.shown_held().map(|until| until.millis_since(self.now)),
            revision: self.revision,
        })
    }
}

fn request_number(request: Option<RequestNumber>) -> u64 {
    request.map_or(0, RequestNumber::number)
}

/// A lease that is made for an instance is of its class unless it says otherwise.
fn as_registration(grant: &Grant) -> Grant {
    let class = grant.class.clone();
    let class = class.unwrap_or_else(|| Name::parse(CLASS).expect("the name of a built-in class is a name"));
    Grant { class: Some(class), ..grant.clone() }
}
