//! Claims: who holds a resource, who waits for it, and who is next. At most one lease holds a resource at any time.

use super::Ledger;
use super::lease::{Origin, Stake};
use super::line::Line;
use crate::command::{Acquire, Cancel, On, Outcome, Refusal, Release, Reply, Seat, Wait};
use crate::event::{End, Event, Happening};
use crate::fence::{Fence, Handle};
use crate::limits::{ATTACHED_MAX, SEAT_MAX, WAITERS_MAX};
use crate::names::{Holder, LeaseId, Name};
use crate::time::Moment;
use alloc::vec::Vec;

/// A resource that somebody holds or waits for. A free one is not in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub(super) holding: Option<Holding>,
    pub(super) line: Line,
    /// Whether it is on the `to_seat` list.
    pub(super) listed: bool,
}

/// The claim that holds a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The lease that it hangs on.
    pub lease: LeaseId,
    /// Its fence.
    pub fence: Fence,
    /// Since when, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
}

impl Resource {
    /// The claim that holds it; none for the moment between two holders.
    pub const fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// How many wait for it.
    pub fn waiting(&self) -> u64 {
        self.line.len() as u64
    }

    /// The waiting leases, next first.
    pub fn waiters(&self) -> impl Iterator<Item = LeaseId> {
        self.line.leases()
    }

    /// Nobody holds it and nobody waits. It may still be listed, if its last waiter left meanwhile.
    fn is_open(&self) -> bool {
        self.holding.is_none() && self.line.is_empty()
    }
}

impl Ledger {
    pub(super) fn acquire(&mut self, acquire: &Acquire, events: &mut Vec<Event>) -> Outcome {
        let id = match &acquire.on {
            On::New(grant) => grant.lease,
            On::Given(lease) => *lease,
        };
        if let On::New(grant) = &acquire.on
            && !self.is_retry(grant)?
        {
            self.may_stake(None, acquire)?;
            let begun = self.begin(grant, Origin::Acquire);
            return Ok(self.stake(id, acquire, alloc::vec![begun], events));
        }
        let Some(lease) = self.leases.get(&id) else { return Err(self.no_lease(id)) };
        match (lease.stakes.get(&acquire.resource), &acquire.on) {
            (Some(stake), _) => Ok(self.staked(id, &acquire.resource, *stake)),
            // A late retry must not take again what was given back since.
            (None, On::New(_)) => Err(Refusal::NoClaim { lease: id, resource: acquire.resource.clone() }),
            (None, On::Given(_)) => {
                self.may_stake(Some(lease.stakes.len()), acquire)?;
                Ok(self.stake(id, acquire, Vec::new(), events))
            }
        }
    }

    /// Whether a lease with so many stakes may take this one; a new lease has none.
    fn may_stake(&self, stakes: Option<usize>, acquire: &Acquire) -> Result<(), Refusal> {
        if stakes.is_some_and(|count| count >= ATTACHED_MAX) {
            return Err(Refusal::Full { what: "things attached to one lease", max: ATTACHED_MAX });
        }
        let Some(resource) = self.occupied(&acquire.resource) else { return Ok(()) };
        if acquire.wait == Wait::Never {
            return Err(self.taken(&acquire.resource, resource));
        }
        if resource.line.len() >= WAITERS_MAX {
            return Err(Refusal::Full { what: "waiters in one line", max: WAITERS_MAX });
        }
        Ok(())
    }

    /// The resource, if somebody holds it or waits for it.
    fn occupied(&self, name: &Name) -> Option<&Resource> {
        self.resources.get(name).filter(|resource| !resource.is_open())
    }

    fn taken(&self, name: &Name, resource: &Resource) -> Refusal {
        let holding = resource.holding.as_ref();
        let next = || resource.line.first().map(|(_, lease)| lease);
        let lease = holding.map(|holding| holding.lease).or_else(next);
        let id = lease.expect("an occupied resource is held or waited for");
        let lease = self.leases.get(&id).expect("every stake hangs on a living lease");
        Refusal::Taken {
            resource: name.clone(),
            holder: lease.holder.clone(),
            fence: holding.map(|holding| holding.fence),
            remaining_ms: lease.deadline.millis_since(self.now),
            waiting: resource.waiting(),
        }
    }

    /// Puts a stake on a lease: on the seat if the resource is free, else at the end of the line.
    fn stake(
        &mut self,
        id: LeaseId,
        acquire: &Acquire,
        mut happenings: Vec<Happening>,
        events: &mut Vec<Event>,
    ) -> Reply {
        let name = &acquire.resource;
        happenings.push(match self.occupied(name) {
            Some(_) => self.queue(id, name),
            None => self.seat(id, name),
        });
        self.happened(happenings, events);
        let lease = self.leases.get(&id).expect("a stake was just put on this lease");
        let stake = lease.stakes.get(name).copied().expect("the stake was just put");
        self.staked(id, name, stake)
    }

    fn staked(&self, id: LeaseId, name: &Name, stake: Stake) -> Reply {
        let lease = self.leases.get(&id).expect("every stake hangs on a living lease");
        let (ttl_ms, revision) = (lease.effective_ttl_ms(self.now), self.revision);
        match stake {
            Stake::Holding { fence } => Reply::Seated(Seat { lease: id, fence, ttl_ms, revision }),
            Stake::Waiting { arrival } => {
                let resource = self.resources.get(name).expect("every stake is in a resource");
                Reply::Waiting { lease: id, place: resource.line.place(arrival), ttl_ms, revision }
            }
        }
    }

    /// How a lease stands with a resource: seated, in line, or why neither.
    pub fn standing(&self, id: LeaseId, name: &Name) -> Outcome {
        let Some(lease) = self.leases.get(&id) else { return Err(self.no_lease(id)) };
        match lease.stakes.get(name) {
            Some(stake) => Ok(self.staked(id, name, *stake)),
            None => Err(Refusal::NoClaim { lease: id, resource: name.clone() }),
        }
    }

    fn queue(&mut self, id: LeaseId, name: &Name) -> Happening {
        self.arrival += 1;
        let arrival = self.arrival;
        let resource = self.resources.get_mut(name).expect("only a taken resource has a line");
        resource.line.join(arrival, id);
        let lease = self.leases.get_mut(&id).expect("only a living lease can wait");
        lease.stakes.insert(name.clone(), Stake::Waiting { arrival });
        Happening::Queued { resource: name.clone(), lease: id, holder: lease.holder.clone() }
    }

    /// Makes a lease the holder of a resource that nobody holds, with a new fence and a whole TTL.
    fn seat(&mut self, id: LeaseId, name: &Name) -> Happening {
        self.fence += 1;
        let fence = Fence::from_number(self.fence).expect("2^53 fences are never given out");
        let lease = self.leases.get_mut(&id).expect("only a living lease can hold");
        lease.deadline = lease.deadline.max(self.now.after(lease.ttl));
        lease.stakes.insert(name.clone(), Stake::Holding { fence });
        let happening = Happening::Seated {
            resource: name.clone(),
            lease: id,
            holder: lease.holder.clone(),
            fence,
            ttl: lease.ttl,
        };
        let resource = self.resources.entry(name.clone()).or_default();
        assert!(resource.holding.is_none(), "a resource has at most one holder");
        resource.holding = Some(Holding { lease: id, fence, since: self.now, since_wall_ms: self.wall_ms });
        happening
    }

    /// The lease behind a handle, or why the handle is stale.
    pub fn behind(&self, handle: &Handle) -> Result<LeaseId, Refusal> {
        let holding = self.resources.get(&handle.resource).and_then(|resource| resource.holding);
        match holding {
            Some(holding) if holding.fence == handle.fence => Ok(holding.lease),
            _ => Err(self.stale(handle, holding)),
        }
    }

    fn stale(&self, handle: &Handle, holding: Option<Holding>) -> Refusal {
        let current = holding.map(|holding| {
            let lease = self.leases.get(&holding.lease).expect("every stake hangs on a living lease");
            (lease.holder.clone(), holding.fence)
        });
        let ended = self.history.claim(handle).map(|ended| (ended.how.clone(), ended.when, ended.wall_ms));
        Refusal::Stale { handle: handle.clone(), current, ended }
    }

    pub(super) fn release(&mut self, release: &Release, events: &mut Vec<Event>) -> Outcome {
        match self.behind(&release.handle) {
            Ok(lease) => {
                self.give_back(lease, &release.handle.resource, events);
                Ok(Reply::Released)
            }
            // A retry of a release finds that it worked.
            Err(Refusal::Stale { ended: Some((End::Released, ..)), .. }) => Ok(Reply::Released),
            Err(stale) => Err(stale),
        }
    }

    pub(super) fn cancel(&mut self, cancel: &Cancel, events: &mut Vec<Event>) -> Outcome {
        let Some(lease) = self.leases.get(&cancel.lease) else { return Err(self.no_lease(cancel.lease)) };
        if !lease.stakes.contains_key(&cancel.resource) {
            return Err(Refusal::NoClaim { lease: cancel.lease, resource: cancel.resource.clone() });
        }
        self.give_back(cancel.lease, &cancel.resource, events);
        Ok(Reply::Cancelled)
    }

    /// Takes one stake off its lease by its holder's will. A lease that was made for its claims ends with the last.
    fn give_back(&mut self, id: LeaseId, name: &Name, events: &mut Vec<Event>) {
        let lease = self.leases.get_mut(&id).expect("every stake hangs on a living lease");
        if lease.origin == Origin::Acquire && lease.stakes.len() == 1 {
            self.end(id, &End::Released, events);
            return;
        }
        let stake = lease.stakes.remove(name).expect("the stake is there");
        let holder = lease.holder.clone();
        let happening = self.unstake(id, &holder, name, stake, &End::Released);
        self.happened(alloc::vec![happening], events);
    }

    /// Takes a stake out of its resource. A freed resource with a line is listed for seating, one without is gone.
    pub(super) fn unstake(&mut self, id: LeaseId, holder: &Holder, name: &Name, stake: Stake, how: &End) -> Happening {
        let resource = self.resources.get_mut(name).expect("every stake is in a resource");
        let happening = match stake {
            Stake::Holding { fence } => {
                resource.holding = None;
                if !resource.line.is_empty() && !resource.listed {
                    resource.listed = true;
                    self.to_seat.push_back(name.clone());
                }
                self.history.remember_claim(super::EndedClaim {
                    resource: name.clone(),
                    lease: id,
                    holder: holder.clone(),
                    fence,
                    how: how.clone(),
                    when: self.now,
                    wall_ms: self.wall_ms,
                });
                Happening::Vacated { resource: name.clone(), lease: id, fence, how: how.clone() }
            }
            Stake::Waiting { arrival } => {
                resource.line.leave(arrival);
                Happening::Left { resource: name.clone(), lease: id }
            }
        };
        self.forget_if_free(name);
        happening
    }

    fn forget_if_free(&mut self, name: &Name) {
        if self.resources.get(name).is_some_and(|resource| resource.is_open() && !resource.listed) {
            self.resources.remove(name);
        }
    }

    /// Seats the next in line of freed resources, in the order in which they were freed, `SEAT_MAX` an entry.
    pub(super) fn seat_all(&mut self, events: &mut Vec<Event>) {
        for _ in 0..SEAT_MAX {
            let Some(name) = self.to_seat.pop_front() else { return };
            let resource = self.resources.get_mut(&name).expect("a listed resource is in the ledger");
            resource.listed = false;
            if resource.holding.is_some() {
                // Every waiter left while the resource was listed, and somebody else found it open.
                continue;
            }
            match resource.line.first() {
                Some((arrival, lease)) => {
                    resource.line.leave(arrival);
                    let seated = self.seat(lease, &name);
                    self.happened(alloc::vec![seated], events);
                }
                None => self.forget_if_free(&name),
            }
        }
    }
}
