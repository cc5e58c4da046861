//! A second, naive ledger: the same rules written down once more, with flat lists and linear scans, no index and no
//! wheel. Random histories compare it with the real one. It never looks at the real one, and leaves out the limits
//! that a short history cannot reach.

mod acquire;
mod ends;
mod forced;
pub(crate) mod keys;
mod leases;
mod registry;
mod rights;
mod txn;
pub(crate) mod view;

use keys::{Changed, Map};
use registry::{Gone, Listed};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Actor, ApiKeyName, Class, Command, End, EndedClaim, EndedLease, Entry, Epoch, Event, Fence, Force, Free, Grant,
    Handle, Happening, Holder, InstanceKey, LeaseId, Leave, Mode, Moment, Name, Outcome, Priority, Proof, Refusal,
    Reply, RequestNumber, Revision, Secret, Span, Ttl, Units, Vacating, limits,
};

/// All there is, as plain as it can be.
#[derive(Clone)]
pub(crate) struct Model {
    now: Moment,
    wall_ms: u64,
    revision: Revision,
    /// The last fence that was given out.
    fence: u64,
    /// The last arrival that was numbered.
    arrival: u64,
    kv_revision: u64,
    leases: BTreeMap<LeaseId, Lease>,
    /// All claims that hold something. Fences only grow, so the list is in their order.
    held: Vec<Held>,
    /// All vacating stakes.
    vacating: BTreeMap<Fence, Vacating>,
    /// All who wait, in the order of arrival.
    groups: Vec<Group>,
    /// The capacities of resources that are there and have another than one unit, or whose capacity was ordered.
    capacities: BTreeMap<Name, Units>,
    /// The resources whose capacity was ordered.
    defined: BTreeSet<Name>,
    classes: BTreeMap<Name, Class>,
    keys: Map,
    /// What the keys were at each revision of the keyspace, from 0 on.
    maps: Vec<Map>,
    /// All that ever changed in them.
    changes: Vec<Changed>,
    compacted: Option<u64>,
    ended_leases: BTreeMap<LeaseId, EndedLease>,
    /// All holding claims that ever ended, oldest first.
    ended_claims: Vec<EndedClaim>,
    instances: BTreeMap<InstanceKey, Listed>,
    /// All instances that ever ended, oldest first.
    gone_instances: Vec<Gone>,
    /// The last instance that was numbered.
    numbered: u64,
    /// What happened in the entry that is being applied.
    events: Vec<Event>,
    /// What the release shows that is being applied.
    proof: Proof,
    /// The API key of the command that is being applied.
    actor: Option<Actor>,
}

#[derive(Clone)]
struct Lease {
    /// As it was granted. Its TTL, grace and lifetime are those that count, whoever said them.
    grant: Grant,
    ttl: Ttl,
    grace: Span,
    deadline: Moment,
    granted: Stamp,
    renewed: Stamp,
    origin: Origin,
    /// Whether its lifetime cut the last extension.
    capped: bool,
    /// Whether it was seated without having asked in that moment, and has not been heard of since.
    unconfirmed: bool,
    /// How many of its claims ended otherwise than by a release with their secret.
    lost: u64,
    /// The numbers of the requests that were answered, and below which one all were.
    answered: BTreeSet<u64>,
    answered_below: u64,
    lifetime_from: Option<Moment>,
    /// The API key that it was begun with.
    owner: Option<ApiKeyName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Grant,
    Acquire,
    Register,
}

/// A moment with what the wall clock showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    at: Moment,
    wall_ms: u64,
}

/// What an acquire says about each of its claims.
#[derive(Clone, Copy)]
struct Terms {
    lock_delay: Span,
    epoch: Option<Epoch>,
    /// The number of the request; 0 if it had none.
    request: u64,
    secret: Option<Secret>,
}

#[derive(Clone)]
struct Held {
    resource: Name,
    lease: LeaseId,
    fence: Fence,
    mode: Mode,
    terms: Terms,
    since: Stamp,
    /// When and by whose order it will be broken.
    breaks: Option<(Moment, Force)>,
}

/// Who waits for some resources, to be seated in all at once.
#[derive(Clone)]
struct Group {
    order_ms: i128,
    arrival: u64,
    lease: LeaseId,
    wants: Vec<(Name, Mode)>,
    terms: Terms,
    priority: Priority,
    since: Stamp,
    /// When it stops waiting.
    until: Option<Moment>,
}

/// What falls due, in the order in which one moment's things are done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Lease(LeaseId),
    WaitLimit(u64),
    Vacating(Fence),
    Break(Fence),
    Stale(u64, usize),
    Held(u64),
    Unhealthy(u64),
}

impl Default for Model {
    fn default() -> Self {
        Self {
            now: Moment::default(),
            wall_ms: 0,
            revision: Revision(0),
            fence: 0,
            arrival: 0,
            kv_revision: 1,
            leases: BTreeMap::new(),
            held: Vec::new(),
            vacating: BTreeMap::new(),
            groups: Vec::new(),
            capacities: BTreeMap::new(),
            defined: BTreeSet::new(),
            classes: leases::built_in(),
            keys: Map::new(),
            maps: vec![Map::new(); 2],
            changes: Vec::new(),
            compacted: None,
            ended_leases: BTreeMap::new(),
            ended_claims: Vec::new(),
            instances: BTreeMap::new(),
            gone_instances: Vec::new(),
            numbered: 0,
            events: Vec::new(),
            proof: Proof::Handle,
            actor: None,
        }
    }
}

impl Model {
    /// Applies an entry and says what was answered and what happened.
    pub(crate) fn apply(&mut self, entry: &Entry) -> (Vec<Outcome>, Vec<Event>) {
        self.now = self.now.max(entry.now);
        self.wall_ms = entry.wall_ms;
        self.events.clear();
        let mut outcomes = self.renewals(&entry.commands);
        self.sweep();
        for (command, outcome) in entry.commands.iter().zip(&mut outcomes) {
            outcome.get_or_insert_with(|| self.attributed(command));
            self.forget_capacities();
        }
        self.seat_all();
        (outcomes.into_iter().flatten().collect(), self.events.clone())
    }

    fn attributed(&mut self, command: &Command) -> Outcome {
        self.actor = command.actor().cloned();
        let outcome = self.may(command.plain()).and_then(|()| self.command(command.plain()));
        self.actor = None;
        outcome
    }

    fn command(&mut self, command: &Command) -> Outcome {
        self.proof = match command {
            Command::Release(release) => release.proof,
            Command::ReleaseLease(release) => release.proof,
            Command::Cancel(cancel) => cancel.proof,
            _ => Proof::Handle,
        };
        match command {
            Command::Renew(_) | Command::RenewHandle(_) => unreachable!("renewals were answered before"),
            Command::Attributed(_) => unreachable!("the key was taken off"),
            Command::Grant(grant) => self.grant(grant),
            Command::Acquire(acquire) => self.acquire(acquire),
            Command::Release(release) => self.release(&release.handle),
            Command::ReleaseLease(release) => self.release_lease(release.lease),
            Command::Cancel(cancel) => self.cancel(cancel),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Break(order) => self.break_claims(order),
            Command::Transfer(transfer) => self.transfer(transfer),
            Command::Define(define) => Ok(self.define(&define.resource, define.capacity)),
            Command::SetClass(class) => self.set_class(class),
            Command::Put(put) => self.put(put),
            Command::Delete(delete) => self.delete(&delete.keys),
            Command::Txn(txn) => self.txn(txn),
            Command::Compact(compact) => self.compact(compact.revision),
            Command::Register(register) => self.register(register),
            Command::UpdateInstance(update) => self.update_instance(update),
            Command::Drain(drain) => self.drain(drain),
            Command::Deregister(deregister) => self.deregister(deregister),
            Command::SetHealth(set) => self.set_health(set),
        }
    }

    /// Does what is due, one thing after the other, and looks again after each: one end may take others with it.
    fn sweep(&mut self) {
        while let Some((_, due)) = self.due().into_iter().min().filter(|(at, _)| *at <= self.now) {
            match due {
                Due::Lease(lease) => {
                    let how = if self.leases[&lease].capped { End::MaxLifetime } else { End::Expired };
                    self.end(lease, &how, Free::WhenVacated);
                }
                Due::WaitLimit(arrival) => self.leave(arrival, Leave::WaitedOut, &End::WaitedOut, &[]),
                Due::Vacating(fence) => self.freed(fence),
                Due::Break(fence) => {
                    let claim = self.held.iter().find(|claim| claim.fence == fence).expect("it was just found");
                    let (_, force) = claim.breaks.clone().expect("it was just found");
                    self.break_one(fence, &force);
                }
                Due::Stale(number, check) => self.stale_status(number, check),
                Due::Held(number) => self.held_no_longer(number),
                Due::Unhealthy(number) => self.unhealthy(number),
            }
            self.forget_capacities();
        }
    }

    /// When the next thing is due.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.due().into_iter().min().map(|(at, _)| at)
    }

    /// The leases that wait for themselves, which no rule should ever allow.
    pub(crate) fn deadlocked(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().filter(|lease| self.waits_for_itself(*lease)).collect()
    }

    fn due(&self) -> Vec<(Moment, Due)> {
        let leases = self.leases.iter().map(|(id, lease)| (lease.deadline.plus(lease.grace), Due::Lease(*id)));
        let limits = self.groups.iter().filter_map(|group| Some((group.until?, Due::WaitLimit(group.arrival))));
        let vacating = self.vacating.iter().map(|(fence, stake)| (stake.until, Due::Vacating(*fence)));
        let breaks = self.held.iter().filter_map(|claim| Some((claim.breaks.as_ref()?.0, Due::Break(claim.fence))));
        let instances = self.instances.values().flat_map(Listed::due);
        leases.chain(limits).chain(vacating).chain(breaks).chain(instances).collect()
    }

    /// Numbers what one visible change made happen.
    fn change(&mut self, happenings: Vec<Happening>) {
        self.revision.0 += 1;
        let count = happenings.len();
        for (n, what) in happenings.into_iter().enumerate() {
            self.events.push(Event {
                revision: self.revision,
                n: u32::try_from(n).expect("little happens at once"),
                last: n + 1 == count,
                at: self.now,
                wall_ms: self.wall_ms,
                api_key: self.actor.as_ref().map(|actor| actor.key.clone()),
                what,
            });
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { at: self.now, wall_ms: self.wall_ms }
    }

    /// Whether a request about a lease was answered before.
    fn is_answered(&self, lease: LeaseId, request: RequestNumber) -> bool {
        self.leases
            .get(&lease)
            .is_some_and(|lease| request.number() < lease.answered_below || lease.answered.contains(&request.number()))
    }

    fn note_answered(&mut self, lease: LeaseId, request: RequestNumber) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.answered.insert(request.number());
            lease.answered_below = lease.answered_below.max(request.answered_below());
        }
    }

    fn living(&self, id: LeaseId) -> Result<&Lease, Refusal> {
        self.leases.get(&id).ok_or_else(|| self.no_lease(id))
    }

    fn no_lease(&self, lease: LeaseId) -> Refusal {
        match self.ended_leases.get(&lease) {
            Some(ended) => lapsed(ended),
            None => Refusal::NoLease { lease },
        }
    }

    /// The lease with all its ancestors, itself first.
    fn lineage(&self, lease: LeaseId) -> Vec<LeaseId> {
        let parent = self.leases.get(&lease).and_then(|lease| lease.grant.parent);
        let above = parent.map_or_else(Vec::new, |parent| self.lineage(parent));
        [vec![lease], above].concat()
    }

    fn held_by(&self, lease: LeaseId) -> Vec<&Held> {
        self.held.iter().filter(|claim| claim.lease == lease).collect()
    }

    fn groups_of(&self, lease: LeaseId) -> Vec<&Group> {
        self.groups.iter().filter(|group| group.lease == lease).collect()
    }

    fn holders_of(&self, resource: &Name) -> Vec<&Held> {
        self.held.iter().filter(|claim| claim.resource == *resource).collect()
    }

    fn vacating_on(&self, resource: &Name) -> Vec<(Fence, &Vacating)> {
        let all = self.vacating.iter().map(|(fence, stake)| (*fence, stake));
        all.filter(|(_, stake)| stake.resource == *resource).collect()
    }

    /// Who waits for a resource, the first in line first.
    fn line(&self, resource: &Name) -> Vec<&Group> {
        let mut line: Vec<_> = self.groups.iter().filter(|group| group.mode_on(resource).is_some()).collect();
        line.sort_by_key(|group| group.key());
        line
    }

    fn current(&self, handle: &Handle) -> Result<&Held, Refusal> {
        let found = self.held.iter().find(|claim| claim.resource == handle.resource && claim.fence == handle.fence);
        found.ok_or_else(|| self.stale(handle))
    }

    fn stale(&self, handle: &Handle) -> Refusal {
        let first = self.holders_of(&handle.resource).into_iter().next();
        let current = first.map(|claim| (self.holder(claim.lease), claim.fence));
        let ended = self.ended_claim(handle).map(|it| (it.how.clone(), it.when, it.wall_ms));
        Refusal::Stale { handle: handle.clone(), current, ended }
    }

    fn ended_claim(&self, handle: &Handle) -> Option<&EndedClaim> {
        self.remembered_claims(&handle.resource).into_iter().find(|claim| claim.fence == handle.fence)
    }

    /// The last of the ended claims on a resource, oldest first.
    fn remembered_claims(&self, resource: &Name) -> Vec<&EndedClaim> {
        let mut claims: Vec<_> = self.ended_claims.iter().filter(|claim| claim.resource == *resource).collect();
        claims.split_off(claims.len().saturating_sub(limits::ENDED_CLAIMS_PER_RESOURCE_MAX))
    }

    fn holder(&self, lease: LeaseId) -> Holder {
        self.leases[&lease].grant.holder.clone()
    }

    fn is_there(&self, resource: &Name) -> bool {
        let is_staked = !self.holders_of(resource).is_empty() || !self.vacating_on(resource).is_empty();
        is_staked || !self.line(resource).is_empty() || self.defined.contains(resource)
    }

    fn capacity(&self, resource: &Name) -> Units {
        self.capacities.get(resource).copied().unwrap_or(Units::ONE)
    }

    /// A capacity lasts as long as its resource is there. Within a command it may be vacated and taken again.
    fn forget_capacities(&mut self) {
        let gone: Vec<Name> = self.capacities.keys().filter(|name| !self.is_there(name)).cloned().collect();
        for name in gone {
            self.capacities.remove(&name);
        }
    }

    fn define(&mut self, resource: &Name, capacity: Option<Units>) -> Reply {
        let is_defined = self.defined.contains(resource);
        let defined = Happening::Defined { resource: resource.clone(), capacity };
        match capacity {
            Some(capacity) if is_defined && self.capacity(resource) == capacity => {}
            Some(capacity) => {
                self.capacities.insert(resource.clone(), capacity);
                self.defined.insert(resource.clone());
                self.change(vec![defined]);
                self.send_away_the_too_big(resource, capacity);
            }
            None if is_defined => {
                self.defined.remove(resource);
                self.change(vec![defined]);
                self.forget_capacities();
            }
            None => {}
        }
        Reply::Defined { capacity: self.capacity(resource) }
    }

    fn send_away_the_too_big(&mut self, resource: &Name, capacity: Units) {
        let too_big = |group: &&Group| match group.mode_on(resource) {
            Some(Mode::Units(units)) => units > capacity,
            _ => false,
        };
        let arrivals: Vec<u64> = self.line(resource).into_iter().filter(too_big).map(|group| group.arrival).collect();
        for arrival in arrivals {
            // The end of a lease before may have taken this one along.
            if self.groups.iter().any(|group| group.arrival == arrival) {
                self.leave(arrival, Leave::TooBig, &End::WaitedOut, &[]);
            }
        }
    }

    fn set_class(&mut self, class: &Class) -> Outcome {
        leases::in_range(class, class.ttl)?;
        if self.classes.get(&class.name) != Some(class) {
            self.classes.insert(class.name.clone(), class.clone());
            self.change(vec![Happening::ClassSet { class: class.name.clone() }]);
        }
        Ok(Reply::ClassSet)
    }
}

fn lapsed(ended: &EndedLease) -> Refusal {
    Refusal::Lapsed { lease: ended.lease, how: ended.how.clone(), when: ended.when, wall_ms: ended.wall_ms }
}

impl Group {
    fn key(&self) -> (i128, u64) {
        (self.order_ms, self.arrival)
    }

    /// How it wants a resource, if it waits for it.
    fn mode_on(&self, resource: &Name) -> Option<Mode> {
        self.wants.iter().find(|(name, _)| name == resource).map(|(_, mode)| *mode)
    }
}
