//! Circles of leases that wait for each other. A lease waits for those who hold what it asks for and for those who stand
//! before it in line; whoever would close a circle is refused, because nobody in it could ever go on.

use super::Ledger;
use super::line::OrderKey;
use super::resource::Outgoing;
use crate::fence::Fence;
use crate::limits::{CHAIN_SHOWN_MAX, CHAIN_STEPS_MAX};
use crate::mode::Mode;
use crate::names::{Holder, LeaseId, Name};
use crate::reply::{Occupied, Refusal};
use crate::time::Moment;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// What a lease is about to do.
#[derive(Clone, Copy)]
pub(super) enum Move {
    /// Stand in line, with this order.
    Wait(i128),
    /// Hold what others may be waiting for.
    Hold,
}

/// A lease about to wait for resources, or to hold them.
pub(super) struct Step<'a> {
    pub(super) lease: LeaseId,
    pub(super) holder: &'a Holder,
    pub(super) resources: &'a [&'a Name],
    pub(super) makes: Move,
    /// Claims that end with the step and stand in nobody's way.
    pub(super) gone: &'a Outgoing,
}

/// The search: who was reached, and from where.
#[derive(Default)]
struct Search {
    from: BTreeMap<LeaseId, LeaseId>,
    next: VecDeque<LeaseId>,
    /// How far into each line everybody was reached, and with them who holds the resource. Nobody looks twice.
    looked: BTreeMap<Name, OrderKey>,
    /// How many were looked at.
    steps: usize,
}

impl Search {
    /// Counts a look.
    fn step(&mut self) -> Result<(), Refusal> {
        if self.steps == CHAIN_STEPS_MAX {
            return Err(Refusal::Full { what: "steps to look for a deadlock".into(), max: CHAIN_STEPS_MAX });
        }
        self.steps += 1;
        Ok(())
    }

    fn reach(&mut self, id: LeaseId, from: LeaseId) {
        if let Entry::Vacant(first) = self.from.entry(id) {
            first.insert(from);
            self.next.push_back(id);
        }
    }
}

impl Ledger {
    /// Refuses a step that would close a circle.
    pub(super) fn no_deadlock(&mut self, step: &Step<'_>) -> Result<(), Refusal> {
        let mut search = Search::default();
        let found = self.search(&mut search, step);
        self.work.took(search.steps);
        found
    }

    fn search(&self, search: &mut Search, step: &Step<'_>) -> Result<(), Refusal> {
        if let Move::Wait(order_ms) = step.makes {
            for name in step.resources {
                self.reach_blockers(search, step, step.lease, name, (order_ms, u64::MAX))?;
            }
        }
        self.follow(search, step, step.lease)?;
        while let Some(id) = search.next.pop_front() {
            if id == step.lease {
                return Err(self.circle(search, step, search.from[&id]));
            }
            self.follow(search, step, id)?;
        }
        Ok(())
    }

    /// Reaches all that a lease waits for.
    fn follow(&self, search: &mut Search, step: &Step<'_>, id: LeaseId) -> Result<(), Refusal> {
        let Some(lease) = self.leases.get(&id) else { return Ok(()) };
        let arrivals: Vec<_> = lease.index.waits.iter().copied().collect();
        for arrival in arrivals.into_iter().filter(|arrival| !step.gone.has_waiter(*arrival)) {
            let waiter = &self.waiters[&arrival];
            let key = (waiter.order_ms, arrival);
            let names: Vec<Name> = waiter.wants.iter().map(|(name, _)| name.clone()).collect();
            for name in &names {
                let is_behind = match step.makes {
                    Move::Wait(order_ms) => key.0 > order_ms,
                    Move::Hold => true,
                };
                if id != step.lease && is_behind && step.resources.contains(&name) {
                    search.reach(step.lease, id);
                }
                self.reach_blockers(search, step, id, name, key)?;
            }
        }
        Ok(())
    }

    /// Reaches those who hold a resource, and those who stand before a key in its line.
    fn reach_blockers(
        &self,
        search: &mut Search,
        step: &Step<'_>,
        of: LeaseId,
        name: &Name,
        key: OrderKey,
    ) -> Result<(), Refusal> {
        search.step()?;
        let Some(resource) = self.resources.get(name) else { return Ok(()) };
        let looked = search.looked.get(name).copied();
        if looked.is_some_and(|looked| looked >= key) {
            return Ok(());
        }
        search.looked.insert(name.clone(), key);
        let holders = resource.holders.iter().filter(|_| looked.is_none());
        let stays = holders.filter(|(fence, _)| !step.gone.has_fence(**fence)).map(|(_, id)| *id);
        let earlier = resource.line.between(looked, key).filter(|(_, arrival)| !step.gone.has_waiter(*arrival));
        let earlier = earlier.map(|(_, arrival)| self.waiters[&arrival].lease);
        for id in stays.chain(earlier) {
            search.step()?;
            search.reach(id, of);
        }
        Ok(())
    }

    /// The refusal, with the holders around the circle: from who asks over those it would wait for.
    fn circle(&self, search: &Search, step: &Step<'_>, last: LeaseId) -> Refusal {
        let mut circle: Vec<Holder> = Vec::new();
        let mut at = last;
        while at != step.lease {
            circle.extend(self.leases.get(&at).map(|lease| lease.holder.clone()));
            at = search.from[&at];
        }
        circle.push(step.holder.clone());
        circle.reverse();
        circle.truncate(CHAIN_SHOWN_MAX);
        Refusal::WouldDeadlock { resource: step.resources[0].clone(), circle }
    }
}

/// What stands in a waiter's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// 1 stands in the way of the waiter, 2 in the way of a blocker of depth 1, and so on.
    pub depth: u32,
    /// Where.
    pub resource: Name,
    /// In which way.
    pub state: Occupied,
    /// Whose claim it is, or was.
    pub holder: Holder,
    /// Its lease.
    pub lease: LeaseId,
    /// Its fence; none if it stands in line.
    pub fence: Option<Fence>,
    /// How long it lasts without a renewal.
    pub until: Moment,
}

impl Ledger {
    /// What stands in a waiter's way, nearest first, at most so many: who holds what it asks for or stands before it,
    /// and what they in turn wait for.
    pub fn blockers(&self, arrival: u64, max: usize) -> Vec<Blocker> {
        let mut found: Vec<Blocker> = Vec::new();
        let mut next = VecDeque::from([(1, arrival)]);
        let mut seen = BTreeSet::from([arrival]);
        while let Some((depth, arrival)) = next.pop_front() {
            let Some(waiter) = self.waiters.get(&arrival) else { continue };
            let wants = waiter.wants.iter();
            for blocker in
                wants.flat_map(|(name, mode)| self.in_the_way_of(depth, (waiter.order_ms, arrival), name, *mode))
            {
                if found.len() >= max {
                    return found;
                }
                let lease = self.leases.get(&blocker.lease).filter(|_| blocker.state != Occupied::Vacating);
                let waits = lease.into_iter().flat_map(|lease| lease.index.waits.iter().copied());
                next.extend(waits.filter(|arrival| seen.insert(*arrival)).map(|arrival| (depth + 1, arrival)));
                found.push(blocker);
            }
        }
        found
    }

    fn in_the_way_of(&self, depth: u32, key: OrderKey, name: &Name, mode: Mode) -> Vec<Blocker> {
        let resource = &self.resources[name];
        let blocker = |state, holder: &Holder, lease, fence, until| {
            let (resource, holder) = (name.clone(), holder.clone());
            Blocker { depth, resource, state, holder, lease, fence, until }
        };
        let mut found = Vec::new();
        if !resource.tally.fits(mode, resource.capacity) {
            found.extend(resource.holders.iter().take(CHAIN_SHOWN_MAX).map(|(fence, id)| {
                let lease = &self.leases[id];
                blocker(Occupied::Held, &lease.holder, *id, Some(*fence), lease.ends_at())
            }));
            found.extend(resource.vacating.iter().take(CHAIN_SHOWN_MAX).map(|fence| {
                let stake = &self.vacating[fence];
                blocker(Occupied::Vacating, &stake.holder, stake.lease, Some(*fence), stake.until)
            }));
        }
        found.extend(resource.line.before(key).take(CHAIN_SHOWN_MAX).map(|(_, arrival)| {
            let id = self.waiters[&arrival].lease;
            let lease = &self.leases[&id];
            blocker(Occupied::InLine, &lease.holder, id, None, lease.ends_at())
        }));
        found
    }
}
