//! How claims are made: who sits at once, who waits, who is refused, and who is seated from the lines.

use super::ends::Stake;
use super::{Group, Held, Model, Origin, Terms};
use std::collections::BTreeSet;
use tenure_core::{
    Acquire, End, Epoch, Fence, Free, Handle, Happening, Holder, LeaseId, Leave, Mode, Name, Occupied, On, Outcome,
    Place, Refusal, Reply, Seat, Span, Units, Vacating, Wait, Want, limits,
};

/// Who asks for claims, as far as others are compared with it.
struct Asker<'a> {
    lease: LeaseId,
    holder: Holder,
    epoch: Option<Epoch>,
    order_ms: i128,
    wants: &'a [Want],
}

impl Asker<'_> {
    /// Whether a claim on something that is wanted is one of the same holder's past.
    fn supersedes(&self, lease: LeaseId, holder: &Holder, epoch: Option<Epoch>) -> bool {
        let is_older = self.epoch.is_some_and(|mine| epoch.is_some_and(|theirs| theirs < mine));
        lease != self.lease && *holder == self.holder && is_older
    }
}

impl Model {
    pub(super) fn acquire(&mut self, acquire: &Acquire) -> Outcome {
        let (On::Given(lease), Some(request)) = (&acquire.on, acquire.request) else {
            return self.acquire_any(acquire);
        };
        let (lease, number) = (*lease, request.number());
        if self.is_answered(lease, request) {
            let made = |want: &Want| self.made_by(lease, &want.resource) == Some(number);
            return match acquire.wants.iter().all(made) {
                true => Ok(self.as_before(acquire)),
                false => Err(Refusal::Answered { lease, number }),
            };
        }
        let outcome = self.acquire_any(acquire);
        self.note_answered(lease, request);
        outcome
    }

    fn acquire_any(&mut self, acquire: &Acquire) -> Outcome {
        let holder = match &acquire.on {
            On::New(grant) if self.is_retry(grant)? => return self.asked_again(acquire),
            On::New(grant) => {
                self.may_begin(grant)?;
                grant.holder.clone()
            }
            On::Given(lease) => {
                let holder = self.living(*lease)?.grant.holder.clone();
                self.same_modes(acquire)?;
                let has_stake = |want: &&Want| self.stake(*lease, &want.resource).is_some();
                match acquire.wants.iter().filter(has_stake).count() {
                    0 => holder,
                    all if all == acquire.wants.len() && acquire.request.is_none() => {
                        return Ok(self.as_before(acquire));
                    }
                    _ => {
                        let first = acquire.wants.iter().find(has_stake).expect("one was just counted");
                        return Err(Refusal::Claimed { lease: *lease, resource: first.resource.clone() });
                    }
                }
            }
        };
        self.reasonable(acquire)?;
        let order_ms = acquire.priority.order_ms(self.now);
        let asker = Asker { lease: acquire.lease(), holder, epoch: acquire.epoch, order_ms, wants: &acquire.wants };
        self.newest_epoch(&asker)?;
        self.may_supersede(&asker)?;
        let in_the_way = acquire.wants.iter().find(|want| !self.can_have(want, &asker));
        if let (Some(want), Wait::Never) = (in_the_way, acquire.wait) {
            return Err(self.taken(want, &asker));
        }
        let take_place = |model: &mut Self| {
            model.supersede(&asker, &acquire.on);
            model.take_place(acquire, in_the_way.is_none())
        };
        self.no_circle(acquire.lease(), &acquire.wants[0].resource, &take_place)?;
        Ok(take_place(self))
    }

    /// Refuses a step after which a lease would wait for itself. It is tried on a copy in which nobody ends for having
    /// lost its last claim: who would be waited for until then counts.
    pub(super) fn no_circle(
        &self,
        lease: LeaseId,
        resource: &Name,
        step: &dyn Fn(&mut Self) -> Reply,
    ) -> Result<(), Refusal> {
        let mut copy = self.clone();
        copy.leases.values_mut().for_each(|lease| lease.origin = Origin::Grant);
        step(&mut copy);
        match copy.waits_for_itself(lease) {
            true => Err(Refusal::WouldDeadlock { resource: resource.clone(), circle: Vec::new() }),
            false => Ok(()),
        }
    }

    /// Whether a lease waits for itself, over any number of others.
    pub(super) fn waits_for_itself(&self, lease: LeaseId) -> bool {
        let (mut found, mut next) = (BTreeSet::new(), vec![lease]);
        while let Some(waiter) = next.pop() {
            next.extend(self.waits_for(waiter).into_iter().filter(|blocker| found.insert(*blocker)));
        }
        found.contains(&lease)
    }

    fn waits_for(&self, lease: LeaseId) -> Vec<LeaseId> {
        let mut blockers = Vec::new();
        for group in self.groups_of(lease) {
            for (resource, _) in &group.wants {
                blockers.extend(self.holders_of(resource).iter().map(|claim| claim.lease));
                let before = self.line(resource).into_iter().filter(|other| other.key() < group.key());
                blockers.extend(before.map(|other| other.lease));
            }
        }
        blockers
    }

    fn same_modes(&self, acquire: &Acquire) -> Result<(), Refusal> {
        let lease = acquire.lease();
        for Want { resource, mode: asked, .. } in &acquire.wants {
            let holding = self.held_by(lease).into_iter().find(|claim| claim.resource == *resource);
            let waiting = self.groups_of(lease).into_iter().find_map(|group| group.mode_on(resource));
            if let Some(has) = holding.map(|claim| claim.mode).or(waiting).filter(|has| has != asked) {
                return Err(Refusal::OtherMode { lease, resource: resource.clone(), has, asked: *asked });
            }
        }
        Ok(())
    }

    /// The answer to an acquire on a new lease that came twice.
    fn asked_again(&self, acquire: &Acquire) -> Outcome {
        self.same_modes(acquire)?;
        let lease = acquire.lease();
        match acquire.wants.iter().find(|want| self.stake(lease, &want.resource).is_none()) {
            Some(want) => Err(Refusal::NoClaim { lease, resource: want.resource.clone() }),
            None => Ok(self.as_before(acquire)),
        }
    }

    fn as_before(&self, acquire: &Acquire) -> Reply {
        let (lease, revision) = (acquire.lease(), self.revision);
        let ttl_ms = self.ttl_ms(lease);
        let (mut claims, mut places) = (Vec::new(), Vec::new());
        for Want { resource, .. } in &acquire.wants {
            match self.stake(lease, resource).expect("each has a stake") {
                Stake::Holding(fence) => claims.push(Handle { resource: resource.clone(), fence }),
                Stake::Waiting(_) => places.push(self.place(lease, resource)),
            }
        }
        match places.into_iter().max() {
            Some(place) => Reply::Waiting(Place { lease, place, ttl_ms, revision }),
            None => Reply::Seated(Seat { lease, claims, ttl_ms, revision }),
        }
    }

    /// The place of a lease in a line, from 1.
    pub(super) fn place(&self, lease: LeaseId, resource: &Name) -> u64 {
        let line = self.line(resource);
        let before = line.iter().position(|group| group.lease == lease).expect("who waits has a place");
        before as u64 + 1
    }

    /// What can be said before it is looked at who else is there.
    fn reasonable(&self, acquire: &Acquire) -> Result<(), Refusal> {
        for Want { resource, mode, capacity: expected } in &acquire.wants {
            let capacity = self.capacity_for(resource, *expected);
            if let Some(expected) = expected.filter(|expected| *expected != capacity) {
                return Err(Refusal::OtherCapacity { resource: resource.clone(), capacity, expected });
            }
            if let Mode::Units(asked) = *mode
                && asked > capacity
            {
                return Err(Refusal::TooBig { resource: resource.clone(), capacity, asked });
            }
        }
        match acquire.wait {
            Wait::InLine { limit: Some(limit) } if acquire.wants.len() > 1 && limit.millis() > limits::WAIT_MS_MAX => {
                Err(Refusal::WaitTooLong { asked_ms: limit.millis(), max_ms: limits::WAIT_MS_MAX })
            }
            _ => Ok(()),
        }
    }

    /// The capacity of a resource, which the first to claim it may define.
    fn capacity_for(&self, resource: &Name, expected: Option<Units>) -> Units {
        match expected {
            Some(expected) if !self.is_there(resource) => expected,
            _ => self.capacity(resource),
        }
    }

    fn may_supersede(&self, asker: &Asker) -> Result<(), Refusal> {
        let (mut held, mut waiting, mut vacating) = (Vec::new(), Vec::new(), Vec::new());
        for Want { resource, .. } in asker.wants {
            let is_old = |lease, epoch| asker.supersedes(lease, &self.holder(lease), epoch);
            held.extend(self.holders_of(resource).into_iter().filter(|it| is_old(it.lease, it.terms.epoch)));
            waiting.extend(self.line(resource).into_iter().filter(|it| is_old(it.lease, it.terms.epoch)));
            let stakes = self.vacating_on(resource).into_iter().map(|(_, stake)| stake);
            vacating.extend(stakes.filter(|it| asker.supersedes(it.lease, &it.holder, it.epoch)));
        }
        self.may_end_those(&held, &waiting, &vacating)
    }

    fn newest_epoch(&self, asker: &Asker) -> Result<(), Refusal> {
        let Some(asked) = asker.epoch else { return Ok(()) };
        for Want { resource, .. } in asker.wants {
            let held = self.holders_of(resource).into_iter().map(|it| (self.holder(it.lease), it.terms.epoch));
            let waiting = self.line(resource).into_iter().map(|it| (self.holder(it.lease), it.terms.epoch));
            let vacating = self.vacating_on(resource).into_iter().map(|(_, it)| (it.holder.clone(), it.epoch));
            let ended = self.ended_claims.iter().filter(|it| it.resource == *resource);
            let ended = ended.map(|it| (it.holder.clone(), it.epoch));
            let all = held.chain(waiting).chain(vacating).chain(ended);
            let highest = all.filter(|(holder, _)| *holder == asker.holder).filter_map(|(_, epoch)| epoch).max();
            if let Some(current) = highest.filter(|highest| *highest > asked) {
                return Err(Refusal::OlderEpoch {
                    holder: asker.holder.clone(),
                    resource: resource.clone(),
                    asked: asked.number(),
                    current: current.number(),
                });
            }
        }
        Ok(())
    }

    /// Whether a want can be had at once: there is room, and nobody in line comes first.
    fn can_have(&self, want: &Want, asker: &Asker) -> bool {
        self.has_room(want, asker) && self.line_without(want, asker).iter().all(|it| it.order_ms > asker.order_ms)
    }

    fn has_room(&self, want: &Want, asker: &Asker) -> bool {
        let held = self.held_without(want, asker).into_iter().map(|claim| claim.mode);
        let vacating = self.vacating_without(want, asker).into_iter().map(|(_, stake)| stake.mode);
        let capacity = self.capacity_for(&want.resource, want.capacity);
        fits(want.mode, capacity, &held.chain(vacating).collect::<Vec<_>>())
    }

    fn held_without(&self, want: &Want, asker: &Asker) -> Vec<&Held> {
        let stays = |it: &&Held| !asker.supersedes(it.lease, &self.holder(it.lease), it.terms.epoch);
        self.holders_of(&want.resource).into_iter().filter(stays).collect()
    }

    fn line_without(&self, want: &Want, asker: &Asker) -> Vec<&Group> {
        let stays = |it: &&Group| !asker.supersedes(it.lease, &self.holder(it.lease), it.terms.epoch);
        self.line(&want.resource).into_iter().filter(stays).collect()
    }

    fn vacating_without(&self, want: &Want, asker: &Asker) -> Vec<(Fence, &Vacating)> {
        let stays = |(_, it): &(Fence, &Vacating)| !asker.supersedes(it.lease, &it.holder, it.epoch);
        self.vacating_on(&want.resource).into_iter().filter(stays).collect()
    }

    fn taken(&self, want: &Want, asker: &Asker) -> Refusal {
        let held = self.held_without(want, asker);
        let vacating = self.vacating_without(want, asker);
        let line = self.line_without(want, asker);
        let since_wall_ms = held.first().filter(|_| !self.has_room(want, asker)).map(|first| first.since.wall_ms);
        let (holder, state, fence, remaining_ms) = if self.has_room(want, asker) {
            let first = line.first().expect("somebody is in the way");
            (self.holder(first.lease), Occupied::InLine, None, self.remaining_ms(first.lease))
        } else if let Some(first) = held.first() {
            (self.holder(first.lease), Occupied::Held, Some(first.fence), self.remaining_ms(first.lease))
        } else {
            let (fence, first) = vacating.first().expect("something is in the way");
            (first.holder.clone(), Occupied::Vacating, Some(*fence), self.ms_until(first.until))
        };
        let waiting = self.line(&want.resource).len() as u64;
        let resource = want.resource.clone();
        Refusal::Taken { resource, holder, state, fence, since_wall_ms, remaining_ms, waiting }
    }

    /// Ends what the same holder claimed in lower epochs, one claim after the other. Each is looked for anew, since the
    /// end of a lease may end others or leave vacating stakes.
    fn supersede(&mut self, asker: &Asker, on: &On) {
        let spared = match on {
            On::New(grant) => grant.parent.map_or_else(Vec::new, |parent| self.lineage(parent)),
            On::Given(lease) => self.lineage(*lease),
        };
        for Want { resource, .. } in asker.wants {
            let older = |it: &&Held| asker.supersedes(it.lease, &self.holder(it.lease), it.terms.epoch);
            let held: Vec<Fence> = self.holders_of(resource).into_iter().filter(older).map(|it| it.fence).collect();
            held.into_iter().for_each(|fence| self.supersede_held(fence, &spared));
            let older = |it: &&Group| asker.supersedes(it.lease, &self.holder(it.lease), it.terms.epoch);
            let waiting: Vec<u64> = self.line(resource).into_iter().filter(older).map(|it| it.arrival).collect();
            waiting.into_iter().for_each(|arrival| self.supersede_waiting(arrival, &spared));
            let vacating = self.vacating_on(resource).into_iter();
            let vacating = vacating.filter(|(_, it)| asker.supersedes(it.lease, &it.holder, it.epoch));
            let vacating: Vec<Fence> = vacating.map(|(fence, _)| fence).collect();
            vacating.into_iter().for_each(|fence| self.freed(fence));
        }
    }

    fn supersede_held(&mut self, fence: Fence, spared: &[LeaseId]) {
        let Some(claim) = self.held.iter().find(|claim| claim.fence == fence).cloned() else { return };
        let mut happened = vec![self.vacate(fence, &End::Superseded, Free::WhenVacated)];
        happened.extend(self.end_if_idle(claim.lease, &End::Superseded, Free::WhenVacated, spared));
        self.change(happened);
    }

    fn supersede_waiting(&mut self, arrival: u64, spared: &[LeaseId]) {
        if self.groups.iter().any(|group| group.arrival == arrival) {
            self.leave(arrival, Leave::Superseded, &End::Superseded, spared);
        }
    }

    /// Begins the lease if it is new, and seats its claims or puts them in line.
    fn take_place(&mut self, acquire: &Acquire, sits: bool) -> Reply {
        let lease = acquire.lease();
        for Want { resource, capacity, .. } in &acquire.wants {
            let capacity = self.capacity_for(resource, *capacity);
            self.capacities.insert(resource.clone(), capacity);
        }
        let mut happened = match &acquire.on {
            On::New(grant) => vec![self.begin(grant, Origin::Acquire)],
            On::Given(_) => Vec::new(),
        };
        let wants: Vec<(Name, Mode)> = acquire.wants.iter().map(|want| (want.resource.clone(), want.mode)).collect();
        let request = acquire.request.map_or(0, |request| request.number());
        let terms = Terms { lock_delay: acquire.lock_delay, epoch: acquire.epoch, request, secret: acquire.secret };
        let claims = if sits {
            let (claims, seated) = self.sit(lease, &wants, terms);
            happened.extend(seated);
            claims
        } else {
            happened.extend(self.queue(acquire, &wants, terms));
            Vec::new()
        };
        self.change(happened);
        if let On::Given(lease) = acquire.on {
            self.touch(lease);
        }
        let (ttl_ms, revision) = (self.ttl_ms(lease), self.revision);
        if sits {
            return Reply::Seated(Seat { lease, claims, ttl_ms, revision });
        }
        let place = wants.iter().map(|(resource, _)| self.place(lease, resource)).max().expect("something is wanted");
        Reply::Waiting(Place { lease, place, ttl_ms, revision })
    }

    fn queue(&mut self, acquire: &Acquire, wants: &[(Name, Mode)], terms: Terms) -> Vec<Happening> {
        let Wait::InLine { limit } = acquire.wait else { unreachable!("who does not wait was refused") };
        let (lease, priority) = (acquire.lease(), acquire.priority);
        let default = Span::at_most(limits::WAIT_MS_DEFAULT, limits::WAIT_MS_MAX).expect("the default is in range");
        let limit = limit.or((wants.len() > 1).then_some(default));
        self.arrival += 1;
        let until = limit.map(|limit| self.now.plus(limit));
        let (order_ms, arrival, since) = (priority.order_ms(self.now), self.arrival, self.stamp());
        self.groups.push(Group { order_ms, arrival, lease, wants: wants.to_vec(), terms, priority, since, until });
        let holder = self.holder(lease);
        let queued = |(resource, mode): &(Name, Mode)| Happening::Queued {
            resource: resource.clone(),
            lease,
            holder: holder.clone(),
            mode: *mode,
        };
        wants.iter().map(queued).collect()
    }

    /// Gives a lease its claims with new fences, and extends it.
    pub(super) fn sit(
        &mut self,
        lease: LeaseId,
        wants: &[(Name, Mode)],
        terms: Terms,
    ) -> (Vec<Handle>, Vec<Happening>) {
        if self.held_by(lease).is_empty() {
            self.leases.get_mut(&lease).expect("only the living are seated").lifetime_from = Some(self.now);
        }
        let mut handles = Vec::new();
        for (resource, mode) in wants.iter().cloned() {
            self.fence += 1;
            let fence = Fence::from_number(self.fence).expect("tests give out few fences");
            handles.push(Handle { resource: resource.clone(), fence });
            self.held.push(Held { resource, lease, fence, mode, terms, since: self.stamp(), breaks: None });
        }
        self.extend(lease);
        let (holder, ttl_ms) = (self.holder(lease), self.ttl_ms(lease));
        let seated = |(handle, (_, mode)): (&Handle, &(Name, Mode))| Happening::Seated {
            resource: handle.resource.clone(),
            lease,
            holder: holder.clone(),
            fence: handle.fence,
            mode: *mode,
            ttl_ms,
        };
        let happened = handles.iter().zip(wants).map(seated).collect();
        (handles, happened)
    }

    /// Seats who can sit, the first in the order of all lines first, until nobody can.
    pub(super) fn seat_all(&mut self) {
        while let Some(group) = self.groups.iter().filter(|group| self.can_sit(group)).min_by_key(|it| it.key()) {
            let group = group.clone();
            self.groups.retain(|other| other.arrival != group.arrival);
            self.leases.get_mut(&group.lease).expect("only the living wait").unconfirmed = true;
            let (_, seated) = self.sit(group.lease, &group.wants, group.terms);
            self.change(seated);
        }
    }

    fn can_sit(&self, group: &Group) -> bool {
        group.wants.iter().all(|(resource, mode)| {
            let held = self.holders_of(resource).into_iter().map(|claim| claim.mode);
            let vacating = self.vacating_on(resource).into_iter().map(|(_, stake)| stake.mode);
            let stakes: Vec<Mode> = held.chain(vacating).collect();
            let is_first = self.line(resource).first().is_some_and(|first| first.arrival == group.arrival);
            is_first && fits(*mode, self.capacity(resource), &stakes)
        })
    }
}

/// Whether a claim of this mode may sit beside these.
fn fits(mode: Mode, capacity: Units, stakes: &[Mode]) -> bool {
    let units = |mode: &Mode| match mode {
        Mode::Units(units) => Some(units.number()),
        Mode::Exclusive | Mode::Shared => None,
    };
    match mode {
        Mode::Exclusive => stakes.is_empty(),
        Mode::Shared => stakes.iter().all(|other| *other == Mode::Shared),
        Mode::Units(asked) => match stakes.iter().map(units).sum::<Option<u64>>() {
            Some(taken) => taken + asked.number() <= capacity.number(),
            None => false,
        },
    }
}
