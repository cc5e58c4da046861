//! Acquire: claims on one or several resources, all or none, seated at once or in line. Everything is checked before
//! anything is changed.

use super::deadlock::{Move, Step};
use super::lease::{Origin, Stake};
use super::resource::{Outgoing, Resource};
use super::seating::{Seating, Waiter};
use super::{Ledger, size};
use crate::command::{Acquire, On, Wait, Want};
use crate::event::Event;
use crate::fence::{Fence, Handle};
use crate::limits::{CLAIMS_MAX, PLACES_A_LOOK, WAIT_MS_MAX};
use crate::mode::{Mode, Units};
use crate::names::{Holder, LeaseId, Name};
use crate::reply::{Occupied, Outcome, Place, Refusal, Reply, Seat};
use crate::request::RequestNumber;
use crate::time::Moment;
use alloc::vec::Vec;

/// An acquire that passed its first checks: what it would meet if it went ahead.
struct Ask<'a> {
    acquire: &'a Acquire,
    id: LeaseId,
    holder: Holder,
    order_ms: i128,
    /// The capacity of each resource that it wants, now and from now on.
    capacities: Vec<Units>,
    superseded: Outgoing,
}

impl Ledger {
    pub(super) fn acquire(&mut self, acquire: &Acquire, events: &mut Vec<Event>) -> Outcome {
        let (On::Given(lease), Some(request)) = (&acquire.on, acquire.request) else {
            return self.claim_all(acquire, events);
        };
        if self.is_answered(*lease, request) {
            return self.answered_before(acquire, *lease, request);
        }
        let outcome = self.claim_all(acquire, events);
        self.note_answered(*lease, request, &outcome);
        outcome
    }

    /// A copy of a request that was answered: how its own claims stand, if it still has them.
    fn answered_before(&self, acquire: &Acquire, lease: LeaseId, request: RequestNumber) -> Outcome {
        let number = request.number();
        let made = |want: &Want| self.request_of(lease, &want.resource) == Some(number);
        if acquire.wants.iter().all(made) {
            return Ok(self.staked(lease, &names(&acquire.wants)));
        }
        Err(Refusal::Answered { lease, number })
    }

    fn claim_all(&mut self, acquire: &Acquire, events: &mut Vec<Event>) -> Outcome {
        let id = acquire.lease();
        let is_there = match &acquire.on {
            On::New(grant) => self.is_retry(grant)?,
            On::Given(_) if !self.leases.contains_key(&id) => return Err(self.no_lease(id)),
            On::Given(_) => true,
        };
        if is_there {
            if let Some(reply) = self.as_before(acquire, id)? {
                return Ok(reply);
            }
        } else if let On::New(grant) = &acquire.on {
            self.may_begin(grant)?;
        }
        let ask = self.ask(acquire, id)?;
        if self.sits(&ask) {
            self.may_overtake(&ask)?;
            self.go_ahead(&ask, Wait::Never, events);
        } else {
            self.may_wait(&ask)?;
            self.go_ahead(&ask, acquire.wait, events);
        }
        if let On::Given(lease) = acquire.on {
            self.touch(lease);
        }
        let reply = self.staked(id, &names(&acquire.wants));
        if let Reply::Waiting(place) = &reply {
            self.work.took(usize::try_from(place.place).expect("a place is at most 1000") / PLACES_A_LOOK);
        }
        Ok(reply)
    }

    /// What a lease has already of what is asked, if that is all of it. In another mode, or in part, it is refused.
    fn as_before(&self, acquire: &Acquire, id: LeaseId) -> Result<Option<Reply>, Refusal> {
        let lease = &self.leases[&id];
        let mut has = Vec::new();
        for want in &acquire.wants {
            let Some(stake) = lease.stakes.get(&want.resource) else { continue };
            let mode = self.mode_of(stake, &want.resource);
            if mode != want.mode {
                let (resource, asked) = (want.resource.clone(), want.mode);
                return Err(Refusal::OtherMode { lease: id, resource, has: mode, asked });
            }
            has.push(&want.resource);
        }
        // A request with a number has claims of its own.
        if has.len() == acquire.wants.len() && acquire.request.is_none() {
            return Ok(Some(self.staked(id, &names(&acquire.wants))));
        }
        let missing = acquire.wants.iter().find(|want| !lease.stakes.contains_key(&want.resource));
        match (&acquire.on, missing, has.first()) {
            // A late retry must not take again what was given back since.
            (On::New(_), Some(want), _) => Err(Refusal::NoClaim { lease: id, resource: want.resource.clone() }),
            (On::Given(_), _, Some(name)) => Err(Refusal::Claimed { lease: id, resource: (*name).clone() }),
            _ => Ok(None),
        }
    }

    fn mode_of(&self, stake: &Stake, name: &Name) -> Mode {
        match stake {
            Stake::Holding(holding) => holding.mode,
            Stake::Waiting(arrival) => {
                let wants = &self.waiters[arrival].wants;
                let want = wants.iter().find(|(wanted, _)| wanted == name);
                want.map(|(_, mode)| *mode).expect("a waiter asks for what it stands in line for")
            }
        }
    }

    fn ask<'a>(&mut self, acquire: &'a Acquire, id: LeaseId) -> Result<Ask<'a>, Refusal> {
        let capacities = acquire.wants.iter().map(|want| self.capacity_for(want)).collect::<Result<_, _>>()?;
        if let Wait::InLine { limit: Some(limit) } = acquire.wait
            && acquire.wants.len() > 1
            && limit.millis() > WAIT_MS_MAX
        {
            return Err(Refusal::WaitTooLong { asked_ms: limit.millis(), max_ms: WAIT_MS_MAX });
        }
        self.may_carry(acquire)?;
        let holder = match &acquire.on {
            On::New(grant) => grant.holder.clone(),
            On::Given(lease) => self.leases[lease].holder.clone(),
        };
        let superseded = match acquire.epoch {
            Some(epoch) => {
                self.work.took(self.claims_with_epochs(acquire, &holder));
                self.superseded(acquire, id, &holder, epoch)?
            }
            None => Outgoing::default(),
        };
        // For each of the resources all that goes is looked through.
        self.work.took(superseded.claims.len() * acquire.wants.len());
        self.may_supersede(&superseded)?;
        let order_ms = acquire.priority.order_ms(self.now);
        Ok(Ask { acquire, id, holder, order_ms, capacities, superseded })
    }

    /// The capacity of a wanted resource: its own, else what is expected of it, else one.
    fn capacity_for(&self, want: &Want) -> Result<Units, Refusal> {
        let real = self.resources.get(&want.resource).map(|resource| resource.capacity);
        if let (Some(capacity), Some(expected)) = (real, want.capacity)
            && capacity != expected
        {
            return Err(Refusal::OtherCapacity { resource: want.resource.clone(), capacity, expected });
        }
        let capacity = real.or(want.capacity).unwrap_or(Units::ONE);
        want.mode.is_within(capacity, &want.resource)?;
        Ok(capacity)
    }

    fn may_carry(&self, acquire: &Acquire) -> Result<(), Refusal> {
        let claims = acquire.wants.len();
        match &acquire.on {
            On::New(grant) => grant.parent.map_or(Ok(()), |parent| self.room_in_tree(parent, claims + 1))?,
            On::Given(lease) => self.room_in_tree(*lease, claims)?,
        }
        if self.claims + self.vacating.len() + claims > CLAIMS_MAX {
            return Err(Refusal::Full { what: "claims".into(), max: CLAIMS_MAX });
        }
        self.has_room_for(size::of_acquire(acquire))
    }

    fn sits(&self, ask: &Ask<'_>) -> bool {
        ask.acquire.wants.iter().all(|want| match self.resources.get(&want.resource) {
            Some(resource) => self.fits(ask, want, resource) && self.is_first(ask, resource),
            None => true,
        })
    }

    fn fits(&self, ask: &Ask<'_>, want: &Want, resource: &Resource) -> bool {
        let mut tally = resource.tally;
        self.superseded_modes(&ask.superseded, &want.resource).for_each(|mode| tally.take(mode));
        tally.fits(want.mode, resource.capacity)
    }

    /// Whether nobody in this line, but for those it supersedes, stands before it.
    fn is_first(&self, ask: &Ask<'_>, resource: &Resource) -> bool {
        let first = resource.line.iter().find(|(_, arrival)| !ask.superseded.has_waiter(*arrival));
        first.is_none_or(|(order_ms, _)| order_ms > ask.order_ms)
    }

    fn overtakes(&self, ask: &Ask<'_>) -> bool {
        let lines = ask.acquire.wants.iter().filter_map(|want| self.resources.get(&want.resource));
        lines
            .filter_map(|resource| resource.line.iter().rfind(|(_, it)| !ask.superseded.has_waiter(*it)))
            .any(|(order_ms, _)| order_ms > ask.order_ms)
    }

    /// Whoever sits down before others may not be waiting for one of them.
    fn may_overtake(&mut self, ask: &Ask<'_>) -> Result<(), Refusal> {
        let waits = self.leases.get(&ask.id).is_some_and(|lease| !lease.index.waits.is_empty());
        if waits && self.overtakes(ask) { self.look_ahead(ask, Move::Hold) } else { Ok(()) }
    }

    fn may_wait(&mut self, ask: &Ask<'_>) -> Result<(), Refusal> {
        if ask.acquire.wait == Wait::Never {
            return Err(self.taken(ask));
        }
        let mut lines = ask.acquire.wants.iter().filter_map(|want| self.resources.get(&want.resource));
        lines.try_for_each(Resource::may_be_joined)?;
        let has_stakes = self.leases.get(&ask.id).is_some_and(|lease| !lease.stakes.is_empty());
        if has_stakes || self.overtakes(ask) {
            return self.look_ahead(ask, Move::Wait(ask.order_ms));
        }
        // Nobody waits for a lease that has nothing and stands last.
        Ok(())
    }

    fn look_ahead(&mut self, ask: &Ask<'_>, makes: Move) -> Result<(), Refusal> {
        let resources: Vec<&Name> = ask.acquire.wants.iter().map(|want| &want.resource).collect();
        let (lease, holder) = (ask.id, &ask.holder);
        self.no_deadlock(&Step { lease, holder, resources: &resources, makes, gone: &ask.superseded })
    }

    /// Who is in the way of the first resource that cannot be had.
    fn taken(&self, ask: &Ask<'_>) -> Refusal {
        let wants = ask.acquire.wants.iter();
        let each = wants.filter_map(|want| self.resources.get(&want.resource).map(|resource| (want, resource)));
        let obstacle = |(want, resource): (&Want, &Resource)| {
            let fits = self.fits(ask, want, resource);
            (!fits || !self.is_first(ask, resource)).then(|| (want.resource.clone(), resource.waiting(), fits))
        };
        let (name, waiting, fits) = each.filter_map(obstacle).next().expect("something is in the way");
        let InTheWay { holder, state, fence, since_wall_ms, until } = self.in_the_way(ask, &name, fits);
        let remaining_ms = until.millis_since(self.now);
        Refusal::Taken { resource: name, holder, state, fence, since_wall_ms, remaining_ms, waiting }
    }

    fn in_the_way(&self, ask: &Ask<'_>, name: &Name, fits: bool) -> InTheWay {
        let resource = &self.resources[name];
        let holder = resource.holders.iter().find(|(fence, _)| !ask.superseded.has_fence(**fence));
        let vacating = resource.vacating.iter().find(|fence| !ask.superseded.has_fence(**fence));
        if let (Some((fence, id)), false) = (holder, fits) {
            let lease = &self.leases[id];
            let Some(Stake::Holding(holding)) = lease.stakes.get(name) else {
                unreachable!("a holder's lease has a stake that holds")
            };
            return InTheWay {
                holder: lease.holder.clone(),
                state: Occupied::Held,
                fence: Some(*fence),
                since_wall_ms: Some(holding.since_wall_ms),
                until: lease.deadline,
            };
        }
        if let (Some(fence), false) = (vacating, fits) {
            let stake = &self.vacating[fence];
            return InTheWay {
                holder: stake.holder.clone(),
                state: Occupied::Vacating,
                fence: Some(*fence),
                since_wall_ms: None,
                until: stake.until,
            };
        }
        let first = resource.line.iter().find(|(_, arrival)| !ask.superseded.has_waiter(*arrival));
        let (_, arrival) = first.expect("what fits is kept by the line");
        let lease = &self.leases[&self.waiters[&arrival].lease];
        InTheWay {
            holder: lease.holder.clone(),
            state: Occupied::InLine,
            fence: None,
            since_wall_ms: None,
            until: lease.deadline,
        }
    }

    /// Nothing refuses any more: supersedes, begins the lease if it is new, and seats or queues it.
    fn go_ahead(&mut self, ask: &Ask<'_>, wait: Wait, events: &mut Vec<Event>) {
        self.supersede(&ask.superseded, ask.acquire, events);
        for (want, capacity) in ask.acquire.wants.iter().zip(&ask.capacities) {
            let free = Resource { capacity: *capacity, ..Resource::default() };
            self.resources.entry(want.resource.clone()).or_insert(free);
        }
        let mut happenings = Vec::new();
        if let On::New(grant) = &ask.acquire.on
            && !self.leases.contains_key(&ask.id)
        {
            happenings.push(self.begin(grant, Origin::Acquire));
        }
        if wait == Wait::Never {
            let wants: Vec<_> = ask.acquire.wants.iter().map(|want| (want.resource.clone(), want.mode)).collect();
            let Acquire { lock_delay, epoch, secret, .. } = *ask.acquire;
            let request = ask.acquire.request.map_or(0, RequestNumber::number);
            self.seat(ask.id, &Seating { wants: &wants, lock_delay, epoch, request, secret }, &mut happenings);
        } else {
            self.queue(Waiter::new(ask.acquire, self.now, self.wall_ms), &mut happenings);
        }
        self.happened(happenings, events);
    }

    /// How a lease stands with resources that it has claims on: seated, or in line with one of them.
    pub(super) fn staked(&self, id: LeaseId, names: &[Name]) -> Reply {
        let lease = &self.leases[&id];
        let (ttl_ms, revision) = (lease.effective_ttl_ms(self.now), self.revision);
        let (mut place, mut claims) = (0, Vec::with_capacity(names.len()));
        for name in names {
            match &lease.stakes[name] {
                Stake::Holding(holding) => claims.push(Handle { resource: name.clone(), fence: holding.fence }),
                Stake::Waiting(arrival) => place = place.max(self.place(*arrival, name).unwrap_or_default()),
            }
        }
        if place > 0 {
            return Reply::Waiting(Place { lease: id, place, ttl_ms, revision });
        }
        Reply::Seated(Seat { lease: id, claims, ttl_ms, revision })
    }
}

/// Who is in the way: whose, how, with which fence, since and until when.
struct InTheWay {
    holder: Holder,
    state: Occupied,
    fence: Option<Fence>,
    since_wall_ms: Option<u64>,
    until: Moment,
}

fn names(wants: &[Want]) -> Vec<Name> {
    wants.iter().map(|want| want.resource.clone()).collect()
}
