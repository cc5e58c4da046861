//! Claims that change hands or end by somebody's order: break and transfer.

use super::Ledger;
use super::deadlock::{Move, Step};
use super::ending::Ending;
use super::lease::{Holding, Origin, Stake};
use super::resource::{Claim, Outgoing};
use super::seating::{Seating, Waiter};
use super::wheel::Due;
use crate::command::{Break, Force, Free, Transfer};
use crate::event::{End, Event, Happening, Leave};
use crate::fence::{Fence, Handle};
use crate::limits::BREAK_ENDS_MAX;
use crate::mode::Priority;
use crate::names::{LeaseId, Name};
use crate::reply::{Outcome, Refusal, Reply};
use crate::time::{Moment, Span};
use alloc::vec::Vec;

/// An order to break a claim later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub(super) resource: Name,
    pub(super) lease: LeaseId,
    pub(super) at: Moment,
    pub(super) force: Force,
}

impl Ledger {
    /// When a claim will be broken, if somebody has ordered that, and by whose order.
    pub fn break_of(&self, fence: Fence) -> Option<(Moment, &Force)> {
        self.breaks.get(&fence).map(|ordered| (ordered.at, &ordered.force))
    }

    /// A vacating stake by its fence.
    pub fn vacating(&self, fence: Fence) -> Option<&super::Vacating> {
        self.vacating.get(&fence)
    }

    pub(super) fn break_claims(&mut self, order: &Break, events: &mut Vec<Event>) -> Outcome {
        let name = &order.resource;
        let resource = self.resources.get(name);
        let holders = resource.map(|it| match order.fence {
            Some(fence) => it.holders.get_key_value(&fence).map(|(fence, _)| *fence).into_iter().collect(),
            None => it.holders.keys().copied().collect::<Vec<_>>(),
        });
        let holders = holders.unwrap_or_default();
        // Vacating stakes are gone by themselves; only who cannot wait for that has them broken, too.
        let impatient = order.force.free == Free::Now && order.delay == Span::ZERO;
        let vacating = resource.filter(|_| impatient).map(|it| match order.fence {
            Some(fence) => it.vacating.get(&fence).copied().into_iter().collect(),
            None => it.vacating.iter().copied().collect::<Vec<_>>(),
        });
        let vacating = vacating.unwrap_or_default();
        self.work.took(holders.len() + vacating.len());
        if holders.is_empty() && vacating.is_empty() {
            return Err(match order.fence {
                Some(fence) => self.stale(&Handle { resource: name.clone(), fence }),
                None => Refusal::NotHeld { resource: name.clone() },
            });
        }
        if order.delay == Span::ZERO {
            self.may_break(name, &holders)?;
        }
        let (mut claims, mut free_at) = (vacating.len() as u64, self.now);
        for fence in holders {
            // It may have ended with the tree of the one before.
            let Some(lease) = self.holder_of(name, fence) else { continue };
            claims += 1;
            free_at = free_at.max(match order.delay {
                Span::ZERO => self.break_one(lease, name, &order.force, events),
                delay => self.break_later(lease, name, delay, &order.force, events),
            });
        }
        vacating.into_iter().for_each(|fence| self.free(fence, events));
        Ok(Reply::Broken { claims, free_in_ms: free_at.millis_since(self.now) })
    }

    /// Whether what ends with these claims fits into one step.
    fn may_break(&self, name: &Name, holders: &[Fence]) -> Result<(), Refusal> {
        let mut ends = 0;
        for lease in holders.iter().filter_map(|fence| self.holder_of(name, *fence)) {
            let lease = &self.leases[&lease];
            let ends_too = lease.origin == Origin::Acquire && lease.stakes.len() == 1;
            ends += 1 + if ends_too { lease.carried } else { 0 };
            if ends > BREAK_ENDS_MAX {
                return Err(Refusal::Full { what: "things that one break ends".into(), max: BREAK_ENDS_MAX });
            }
        }
        Ok(())
    }

    /// Breaks a claim. Returns when its resource is free of it.
    fn break_one(&mut self, lease: LeaseId, name: &Name, force: &Force, events: &mut Vec<Event>) -> Moment {
        let ending = Ending::forced(force);
        let broken = self.let_go(lease, name, &ending);
        let free_at = match &broken {
            Happening::Vacated { until: Some(until), .. } => *until,
            _ => self.now,
        };
        let mut happenings = alloc::vec![broken];
        self.end_if_empty(lease, &ending, None, &mut happenings);
        self.happened(happenings, events);
        free_at
    }

    /// Notes that a claim will be broken. A later order takes the place of an earlier one.
    fn break_later(&mut self, id: LeaseId, name: &Name, delay: Span, force: &Force, events: &mut Vec<Event>) -> Moment {
        let Holding { fence, lock_delay, .. } = self.claim(id, name);
        let at = self.now.plus(delay);
        let ordered = Ordered { resource: name.clone(), lease: id, at, force: force.clone() };
        let before = self.breaks.insert(fence, ordered);
        let lease = self.leases.get_mut(&id).expect("every stake hangs on a living lease");
        if let Some(before) = before {
            self.wheel.disarm(before.at, Due::Break(fence));
            lease.index.breaks.remove(&(before.at, fence));
        }
        lease.index.breaks.insert((at, fence));
        self.wheel.arm(at, Due::Break(fence));
        let deadline = lease.deadline;
        let (by, reason) = (force.by.clone(), force.reason.clone());
        let breaking = Happening::Breaking { resource: name.clone(), lease: id, fence, at, by, reason };
        self.happened(alloc::vec![breaking], events);
        match force.free {
            Free::Now => at,
            Free::WhenVacated => deadline.max(at.plus(lock_delay)),
        }
    }

    /// The time of an ordered break has come.
    pub(super) fn break_as_ordered(&mut self, fence: Fence, events: &mut Vec<Event>) {
        let Ordered { resource, lease, force, .. } = self.breaks[&fence].clone();
        self.break_one(lease, &resource, &force, events);
    }

    pub(super) fn transfer(&mut self, transfer: &Transfer, events: &mut Vec<Event>) -> Outcome {
        let name = &transfer.handle.resource;
        let from = self.behind(&transfer.handle)?;
        let waits = self.may_receive(transfer.to, from, name)?;
        let makes = match transfer.force {
            None => Move::Hold,
            Some(_) => {
                self.may_reserve(from, name)?;
                Move::Wait(i128::MIN)
            }
        };
        let holder = self.leases[&transfer.to].holder.clone();
        let (lease, resources) = (transfer.to, [name]);
        let ends = waits.map(Claim::Waiting).into_iter().chain([Claim::Holding(transfer.handle.fence)]);
        let gone = Outgoing::new(ends.map(|claim| (name.clone(), claim)).collect());
        self.no_deadlock(&Step { lease, holder: &holder, resources: &resources, makes, gone: &gone })?;
        let mut happenings = match waits {
            Some(arrival) => self.leave(arrival, Leave::Transferred).1,
            None => Vec::new(),
        };
        match &transfer.force {
            None => self.hand_over(from, transfer, &mut happenings),
            Some(force) => self.reserve(from, transfer, force, &mut happenings),
        }
        self.happened(happenings, events);
        if transfer.force.is_none() {
            self.touch(from);
        }
        Ok(self.staked(transfer.to, core::slice::from_ref(name)))
    }

    /// Whether a lease may get a claim of another; if it waits for that resource alone, with which arrival.
    fn may_receive(&self, to: LeaseId, from: LeaseId, name: &Name) -> Result<Option<u64>, Refusal> {
        let Some(lease) = self.leases.get(&to) else { return Err(self.no_lease(to)) };
        let waits = match lease.stakes.get(name) {
            Some(Stake::Waiting(arrival)) if self.waiters[arrival].wants.len() == 1 => Some(*arrival),
            Some(_) => return Err(Refusal::Claimed { lease: to, resource: name.clone() }),
            None => None,
        };
        if waits.is_none() && self.root(to) != self.root(from) {
            self.room_in_tree(to, 1)?;
        }
        Ok(waits)
    }

    /// Whether a seat like that of a claim may be kept for another: there is room in the line, and it fits at all.
    fn may_reserve(&self, from: LeaseId, name: &Name) -> Result<(), Refusal> {
        let resource = &self.resources[name];
        resource.may_be_joined()?;
        self.claim(from, name).mode.is_within(resource.capacity, name)
    }

    /// By its holder's will a claim goes to another lease, in the same mode, with a new fence.
    fn hand_over(&mut self, from: LeaseId, transfer: &Transfer, happenings: &mut Vec<Happening>) {
        let (name, to) = (&transfer.handle.resource, transfer.to);
        let claim = self.claim(from, name);
        let receiver = self.leases[&to].holder.clone();
        let epoch = claim.epoch.filter(|_| self.leases[&from].holder == receiver);
        let capacity = self.resources[name].capacity;
        happenings.push(self.let_go(from, name, &Ending::plain(End::Transferred { to: receiver })));
        // The resource stays what it was, although nobody holds it for an instant.
        self.resources.entry(name.clone()).or_default().capacity = capacity;
        let wants = [(name.clone(), claim.mode)];
        let seating = Seating { wants: &wants, lock_delay: claim.lock_delay, epoch, request: 0, secret: None };
        self.seat(to, &seating, happenings);
        self.leases.get_mut(&to).expect("it was just seated").unconfirmed = true;
        self.end_if_empty(from, &Ending::plain(End::Released), Some(to), happenings);
    }

    /// By another's will a claim is broken, and the first seat after it is kept for a lease.
    fn reserve(&mut self, from: LeaseId, transfer: &Transfer, force: &Force, happenings: &mut Vec<Happening>) {
        let (name, to) = (&transfer.handle.resource, transfer.to);
        let claim = self.claim(from, name);
        let same_holder = self.leases[&from].holder == self.leases[&to].holder;
        let waiter = Waiter {
            lease: to,
            wants: alloc::vec![(name.clone(), claim.mode)],
            priority: Priority::default(),
            since: self.now,
            since_wall_ms: self.wall_ms,
            limit: None,
            lock_delay: claim.lock_delay,
            epoch: claim.epoch.filter(|_| same_holder),
            request: 0,
            secret: None,
            order_ms: i128::MIN,
        };
        self.queue(waiter, happenings);
        let ending = Ending::forced(force);
        happenings.push(self.let_go(from, name, &ending));
        self.end_if_empty(from, &ending, Some(to), happenings);
    }
}
