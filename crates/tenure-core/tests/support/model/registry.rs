//! Instances: who is registered, how well they are, and what flapping costs. The guard against correlated loss is left
//! out: so few leases are no cohort.

use super::{Due, Model, Origin, Stamp};
use tenure_core::{
    Check, Deregister, Details, Drain, Draining, End, Epoch, Finding, Free, Grant, Happening, Health, Holder,
    InstanceKey, LeaseId, Moment, Note, On, OnCritical, Outcome, Refusal, Register, Registered, Reply, SetHealth,
    Source, UpdateInstance, limits,
};

/// An instance that lives.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) number: u64,
    pub(super) lease: LeaseId,
    pub(super) request: u64,
    pub(super) epoch: Option<Epoch>,
    pub(super) details: Details,
    pub(super) since: Stamp,
    pub(super) draining: Option<Draining>,
    pub(super) findings: Vec<Finding>,
    pub(super) critical_since: Option<Moment>,
    has_passed: bool,
    pub(super) points: Points,
    pub(super) held_until: Option<Moment>,
}

/// What flapping has cost.
#[derive(Clone, Copy, Default)]
pub(super) struct Points {
    points: u64,
    since: Moment,
}

impl Points {
    pub(super) fn at(self, now: Moment) -> u64 {
        let (mut points, mut ms) = (self.points, now.millis() - self.since.millis());
        while ms >= 60_000 && points > 0 {
            points /= 2;
            ms -= 60_000;
        }
        if points == 0 { 0 } else { points - points * ms / 120_000 }
    }

    fn fall(&mut self, now: Moment) {
        *self = Self { points: self.at(now) + 1000, since: now };
    }

    /// Looks at one millisecond after the other.
    fn held_until(self, now: Moment) -> Option<Moment> {
        let later = |ms: &u64| Moment::from_millis(now.millis() + ms);
        let free = || (1..600_000).find(|ms| self.at(later(ms)) < 1500).unwrap_or(600_000);
        (self.at(now) >= 2500).then(|| later(&free()))
    }
}

/// An instance that is over.
#[derive(Clone)]
pub(super) struct Gone {
    pub(super) instance: InstanceKey,
    pub(super) lease: LeaseId,
    pub(super) holder: Holder,
    pub(super) epoch: Option<Epoch>,
    pub(super) since: Stamp,
    pub(super) points: Points,
    pub(super) held_until: Option<Moment>,
    pub(super) how: End,
    pub(super) when: Stamp,
}

impl Listed {
    pub(super) fn health(&self) -> Health {
        let counts = self.details.on_critical != OnCritical::Observe;
        let worst = self.findings.iter().map(|finding| finding.health).filter(|_| counts).max();
        worst.unwrap_or(Health::Passing)
    }

    fn shown_held(&self) -> Option<Moment> {
        if self.health() == Health::Passing { self.held_until } else { None }
    }

    pub(super) fn overall(&self) -> Health {
        match self.health() {
            Health::Passing if self.held_until.is_some() => Health::Degraded,
            health => health,
        }
    }

    /// What follows when its health is no longer what it was.
    fn settle(&mut self, was: Health, now: Moment) {
        let is = self.health();
        if was == is {
            return;
        }
        self.critical_since = None;
        if is == Health::Critical {
            self.critical_since = Some(now);
            if self.has_passed {
                self.points.fall(now);
            }
            self.has_passed = false;
        }
        if is == Health::Passing {
            self.has_passed = true;
            let longer = self.points.held_until(now).into_iter().chain(self.held_until).max();
            self.held_until = longer;
        }
    }

    pub(super) fn due(&self) -> Vec<(Moment, Due)> {
        let mut due = Vec::new();
        for (at, (check, finding)) in self.details.checks.iter().zip(&self.findings).enumerate() {
            if let Source::Pushed { ttl: Some(ttl) } = check.source
                && matches!(finding.health, Health::Passing | Health::Degraded)
            {
                due.push((finding.told.plus(ttl), Due::Stale(self.number, at)));
            }
        }
        due.extend(self.held_until.map(|until| (until, Due::Held(self.number))));
        if let (OnCritical::RevokeAfter(after), Some(since)) = (self.details.on_critical, self.critical_since) {
            due.push((since.plus(after), Due::Unhealthy(self.number)));
        }
        due
    }
}

impl Model {
    pub(super) fn register(&mut self, register: &Register) -> Outcome {
        let (On::Given(lease), Some(request)) = (&register.on, register.request) else {
            return self.register_any(register);
        };
        if self.is_answered(*lease, request) {
            return match self.instances.get(&register.instance) {
                Some(listed) if listed.lease == *lease => Ok(self.registered(&register.instance)),
                _ => Err(Refusal::Answered { lease: *lease, number: request.number() }),
            };
        }
        let outcome = self.register_any(register);
        self.note_answered(*lease, request);
        outcome
    }

    fn register_any(&mut self, register: &Register) -> Outcome {
        let key = &register.instance;
        let grant = match &register.on {
            On::New(grant) => {
                let class = grant.class.clone().or_else(|| Some(crate::support::name("registration")));
                Some(Grant { class, ..grant.clone() })
            }
            On::Given(_) => None,
        };
        if let Some(grant) = &grant {
            if self.is_retry(grant)? {
                return match self.instances.get(key) {
                    Some(listed) if listed.lease == grant.lease => Ok(self.registered(key)),
                    _ => Err(self.no_instance(key)),
                };
            }
            self.may_begin_so(grant)?;
        } else {
            self.living(register.lease())?;
        }
        self.in_newest_epoch(key, register.epoch)?;
        let lease = register.lease();
        match self.instances.get(key) {
            Some(listed) if listed.lease == lease => {
                let was = (listed.epoch, listed.details.clone());
                let epoch = register.epoch.or(listed.epoch);
                self.says(key, &register.details, was.0 == epoch);
                let listed = self.instances.get_mut(key).expect("it was just there");
                listed.epoch = epoch;
                listed.request = register.request.map_or(0, |request| request.number());
                if was != (epoch, register.details.clone()) {
                    self.change(vec![Happening::Updated { instance: key.clone(), lease }]);
                }
            }
            Some(listed) if !(listed.epoch.is_some() && listed.epoch < register.epoch) => {
                let living = &self.leases[&listed.lease];
                return Err(Refusal::InstanceExists {
                    instance: key.clone(),
                    holder: living.grant.holder.clone(),
                    epoch: listed.epoch.map(Epoch::number),
                    remaining_ms: self.ms_until(living.deadline.plus(living.grace)),
                });
            }
            older => {
                let (is_replaced, mut happened) = (older.is_some(), Vec::new());
                if grant.is_some() {
                    self.has_room_for_a_lease()?;
                }
                if is_replaced {
                    let spared = grant.as_ref().map_or(Some(lease), |grant| grant.parent);
                    happened = self.take_off(key, &End::Superseded, Free::WhenVacated, spared);
                }
                if let Some(grant) = &grant {
                    happened.push(self.begin(grant, Origin::Register));
                }
                self.list(register);
                let (holder, epoch) = (self.holder(lease), register.epoch);
                happened.push(Happening::Registered { instance: key.clone(), lease, holder, epoch });
                self.change(happened);
            }
        }
        if grant.is_none() {
            self.touch(lease);
        }
        Ok(self.registered(key))
    }

    fn registered(&self, key: &InstanceKey) -> Reply {
        let listed = &self.instances[key];
        Reply::Registered(Registered {
            lease: listed.lease,
            ttl_ms: self.ttl_ms(listed.lease),
            overall: listed.overall(),
            held_ms: listed.shown_held().map(|until| self.ms_until(until)),
            revision: self.revision,
        })
    }

    fn in_newest_epoch(&self, key: &InstanceKey, asked: Option<Epoch>) -> Result<(), Refusal> {
        let known = self.remembered_instances(key).into_iter().filter_map(|gone| gone.epoch);
        let newest = known.chain(self.instances.get(key).and_then(|listed| listed.epoch)).max();
        match (asked, newest) {
            (Some(asked), Some(newest)) if asked < newest => {
                Err(Refusal::OlderInstance { instance: key.clone(), asked: asked.number(), current: newest.number() })
            }
            _ => Ok(()),
        }
    }

    fn list(&mut self, register: &Register) {
        self.numbered += 1;
        let key = &register.instance;
        let (mut points, mut held_until) = (Points::default(), None);
        if let Some(gone) = self.remembered_instances(key).last() {
            points = gone.points;
            held_until = gone.held_until.filter(|until| *until > self.now);
            if matches!(gone.how, End::Expired | End::Superseded | End::Unhealthy) {
                points.fall(self.now);
            }
        }
        let mut listed = Listed {
            number: self.numbered,
            lease: register.lease(),
            request: register.request.map_or(0, |request| request.number()),
            epoch: register.epoch,
            findings: register.details.checks.iter().map(|_| self.unknown()).collect(),
            details: register.details.clone(),
            since: self.stamp(),
            draining: None,
            critical_since: None,
            has_passed: false,
            points,
            held_until,
        };
        listed.settle(Health::Unknown, self.now);
        self.instances.insert(key.clone(), listed);
    }

    fn unknown(&self) -> Finding {
        Finding { since: self.now, since_wall_ms: self.wall_ms, told: self.now, ..Finding::default() }
    }

    /// Takes an instance off its lease, and ends that if it was made for it and has nothing else.
    fn take_off(&mut self, key: &InstanceKey, how: &End, free: Free, spared: Option<LeaseId>) -> Vec<Happening> {
        let lease = self.instances[key].lease;
        let mut happened = vec![self.gone(key, how)];
        let has_instance = self.instances.values().any(|listed| listed.lease == lease);
        let has_key = self.keys.values().any(|value| value.lease == Some(lease));
        let has_child = self.leases.values().any(|child| child.grant.parent == Some(lease));
        let has_claim = !self.held_by(lease).is_empty() || !self.groups_of(lease).is_empty();
        let is_bare = !(has_instance || has_key || has_child || has_claim);
        if self.leases[&lease].origin == Origin::Register && is_bare && spared != Some(lease) {
            happened.extend(self.end_tree(lease, how, free));
        }
        happened
    }

    pub(super) fn gone(&mut self, key: &InstanceKey, how: &End) -> Happening {
        let listed = self.instances.remove(key).expect("only the living end");
        self.gone_instances.push(Gone {
            instance: key.clone(),
            lease: listed.lease,
            holder: self.holder(listed.lease),
            epoch: listed.epoch,
            since: listed.since,
            points: listed.points,
            held_until: listed.held_until,
            how: how.clone(),
            when: self.stamp(),
        });
        Happening::Deregistered { instance: key.clone(), lease: listed.lease, how: how.clone() }
    }

    pub(super) fn remembered_instances(&self, key: &InstanceKey) -> Vec<&Gone> {
        let mut gone: Vec<_> = self.gone_instances.iter().filter(|gone| gone.instance == *key).collect();
        gone.split_off(gone.len().saturating_sub(limits::ENDED_INSTANCES_PER_ID_MAX))
    }

    fn no_instance(&self, key: &InstanceKey) -> Refusal {
        let last = self.remembered_instances(key).last().copied();
        let ended = last.map(|gone| (gone.how.clone(), gone.when.at, gone.when.wall_ms));
        Refusal::NoInstance { instance: key.clone(), ended }
    }

    fn on_its_lease(&self, key: &InstanceKey, named: Option<LeaseId>) -> Result<LeaseId, Refusal> {
        let lease = self.instances.get(key).ok_or_else(|| self.no_instance(key))?.lease;
        match named {
            Some(named) if named != lease => {
                Err(Refusal::OtherLease { instance: key.clone(), lease: named, holder: self.holder(lease) })
            }
            _ => Ok(lease),
        }
    }

    fn says(&mut self, key: &InstanceKey, details: &Details, is_same_epoch: bool) {
        let (unknown, now) = (self.unknown(), self.now);
        let listed = self.instances.get_mut(key).expect("only the living say something");
        let (was, before) = (listed.health(), listed.details.clone());
        let is_kept = |check: &Check| match &check.source {
            Source::Pushed { .. } => is_same_epoch,
            Source::Probed(probe) => {
                is_same_epoch && before.endpoints.get(probe.endpoint) == details.endpoints.get(probe.endpoint)
            }
        };
        let found = |check: &Check| {
            let at = before.checks.iter().position(|old| old == check && is_kept(check));
            at.map(|at| listed.findings[at].clone())
        };
        listed.findings = details.checks.iter().map(|check| found(check).unwrap_or(unknown.clone())).collect();
        listed.details = details.clone();
        listed.settle(was, now);
    }

    pub(super) fn update_instance(&mut self, update: &UpdateInstance) -> Outcome {
        let key = &update.instance;
        let lease = self.on_its_lease(key, update.lease)?;
        let edited = self.instances[key].details.edited(&update.edit);
        let edited = edited.map_err(|why| Refusal::BadInstance { instance: key.clone(), why })?;
        if edited != self.instances[key].details {
            self.says(key, &edited, true);
            self.change(vec![Happening::Updated { instance: key.clone(), lease }]);
        }
        if update.lease.is_some() {
            self.touch(lease);
        }
        Ok(Reply::Updated { revision: self.revision })
    }

    pub(super) fn drain(&mut self, drain: &Drain) -> Outcome {
        let instance = drain.instance.clone();
        let lease = self.on_its_lease(&instance, drain.lease)?;
        let (since, since_wall_ms) = (self.now, self.wall_ms);
        let (by, reason) = (drain.by.clone(), drain.reason.clone());
        let draining = Draining { by: by.clone(), reason: reason.clone(), since, since_wall_ms };
        let listed = self.instances.get_mut(&instance).expect("it was just found");
        match (drain.on, listed.draining.is_some()) {
            (true, false) => {
                listed.draining = Some(draining);
                self.change(vec![Happening::Drained { instance, lease, by, reason }]);
            }
            (false, true) => {
                listed.draining = None;
                self.change(vec![Happening::Undrained { instance, lease, by, reason }]);
            }
            _ => {}
        }
        Ok(Reply::Drained { revision: self.revision })
    }

    pub(super) fn deregister(&mut self, order: &Deregister) -> Outcome {
        let (Some(lease), Some(request)) = (order.lease, order.request) else { return self.deregister_any(order) };
        let listed = self.instances.get(&order.instance);
        let is_later = listed.is_some_and(|it| it.lease == lease && it.request > request.number());
        let outcome =
            if is_later { Ok(Reply::Deregistered { revision: self.revision }) } else { self.deregister_any(order) };
        self.note_answered(lease, request);
        outcome
    }

    fn deregister_any(&mut self, order: &Deregister) -> Outcome {
        let key = &order.instance;
        if self.instances.contains_key(key) {
            let lease = self.on_its_lease(key, order.lease)?;
            let (how, free) = match &order.force {
                Some(force) => (End::Revoked { by: force.by.clone(), reason: force.reason.clone() }, force.free),
                None => (End::Released, Free::WhenVacated),
            };
            let happened = self.take_off(key, &how, free, None);
            self.change(happened);
            if order.lease.is_some() {
                self.touch(lease);
            }
            return Ok(Reply::Deregistered { revision: self.revision });
        }
        match self.remembered_instances(key).last() {
            Some(gone)
                if order.lease.is_none_or(|lease| lease == gone.lease)
                    && matches!(gone.how, End::Released | End::Revoked { .. }) =>
            {
                Ok(Reply::Deregistered { revision: self.revision })
            }
            _ => Err(self.no_instance(key)),
        }
    }

    pub(super) fn set_health(&mut self, set: &SetHealth) -> Outcome {
        let key = &set.instance;
        self.on_its_lease(key, Some(set.lease))?;
        let checks = &self.instances[key].details.checks;
        let at = checks.iter().position(|check| check.name == set.check);
        let at = at.ok_or_else(|| Refusal::NoCheck { instance: key.clone(), check: set.check.clone() })?;
        self.found(key, at, set.health, &set.note);
        let listed = &self.instances[key];
        Ok(Reply::HealthSet {
            overall: listed.overall(),
            held_ms: listed.shown_held().map(|until| self.ms_until(until)),
            revision: self.revision,
        })
    }

    fn found(&mut self, key: &InstanceKey, at: usize, health: Health, note: &Note) {
        let (now, new) = (self.now, Finding { health, note: note.clone(), ..self.unknown() });
        let listed = self.instances.get_mut(key).expect("it was just found");
        let was = listed.health();
        if listed.findings[at].health == health {
            (listed.findings[at].note, listed.findings[at].told) = (note.clone(), now);
            return;
        }
        listed.findings[at] = new;
        listed.settle(was, now);
        let check = Some((listed.details.checks[at].name.clone(), health));
        self.health_changed(key, check);
    }

    fn health_changed(&mut self, key: &InstanceKey, check: Option<(tenure_core::Word, Health)>) {
        let listed = &self.instances[key];
        let (lease, overall, held_until) = (listed.lease, listed.overall(), listed.shown_held());
        self.change(vec![Happening::HealthChanged { instance: key.clone(), lease, check, overall, held_until }]);
    }

    fn numbered(&self, number: u64) -> InstanceKey {
        let found = self.instances.iter().find(|(_, listed)| listed.number == number);
        found.map(|(key, _)| key.clone()).expect("what is due is registered")
    }

    pub(super) fn stale_status(&mut self, number: u64, check: usize) {
        let note = Note::parse("it was not told again in time").expect("it is a note");
        self.found(&self.numbered(number), check, Health::Critical, &note);
    }

    pub(super) fn held_no_longer(&mut self, number: u64) {
        let key = self.numbered(number);
        let listed = self.instances.get_mut(&key).expect("it was just found");
        listed.held_until = None;
        if listed.health() == Health::Passing {
            self.health_changed(&key, None);
        }
    }

    pub(super) fn unhealthy(&mut self, number: u64) {
        let lease = self.instances[&self.numbered(number)].lease;
        self.end(lease, &End::Unhealthy, Free::WhenVacated);
    }
}
