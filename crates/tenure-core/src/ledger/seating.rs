//! Lines and seats: who joins a line, who is seated from it and when. A waiter sits when all it asks for fits and it is
//! first in every line it stands in; one that cannot sit blocks its resources for those behind it.

use super::lease::{Holding, Lease, Stake};
use super::line::OrderKey;
use super::resource::Claim;
use super::wheel::Due;
use super::{Ledger, size};
use crate::command::{Acquire, Wait};
use crate::event::{Event, Happening};
use crate::fence::Fence;
use crate::limits::{LOOKS_A_THING, SEAT_MAX, WAIT_MS_DEFAULT, WAIT_MS_MAX};
use crate::mode::{Epoch, Mode, Priority};
use crate::names::{Holder, LeaseId, Name};
use crate::request::Secret;
use crate::time::{Moment, Span};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Claims that wait together: one acquire, for one or several resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The lease that waits.
    pub lease: LeaseId,
    /// What it asks for, in the order asked.
    pub wants: Vec<(Name, Mode)>,
    /// How urgent it is.
    pub priority: Priority,
    /// Since when, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
    /// Until when it waits at most.
    pub limit: Option<Moment>,
    /// The lock-delay of its claims.
    pub lock_delay: Span,
    /// The epoch of its holder.
    pub epoch: Option<Epoch>,
    /// The number of the request that made it; 0 if it had none.
    pub request: u64,
    /// The secret of its claims. It is never shown.
    pub secret: Option<Secret>,
    /// Where it stands: its arrival less what its priority is worth.
    pub(super) order_ms: i128,
}

impl Waiter {
    pub(super) fn new(acquire: &Acquire, now: Moment, wall_ms: u64) -> Self {
        let limit = match acquire.wait {
            Wait::InLine { limit: Some(limit) } => Some(limit),
            // Several resources are not blocked for ever.
            _ if acquire.wants.len() > 1 => Span::at_most(WAIT_MS_DEFAULT, WAIT_MS_MAX).ok(),
            _ => None,
        };
        Self {
            lease: acquire.lease(),
            wants: acquire.wants.iter().map(|want| (want.resource.clone(), want.mode)).collect(),
            priority: acquire.priority,
            since: now,
            since_wall_ms: wall_ms,
            limit: limit.map(|limit| now.plus(limit)),
            lock_delay: acquire.lock_delay,
            epoch: acquire.epoch,
            request: acquire.request.map_or(0, |request| request.number()),
            secret: acquire.secret,
            order_ms: acquire.priority.order_ms(now),
        }
    }

    /// Whether its seat was reserved by a transfer: it goes before everybody else.
    pub const fn is_reserved(&self) -> bool {
        self.order_ms == i128::MIN
    }
}

/// The terms on which claims are seated.
pub(super) struct Seating<'a> {
    pub(super) wants: &'a [(Name, Mode)],
    pub(super) lock_delay: Span,
    pub(super) epoch: Option<Epoch>,
    pub(super) request: u64,
    pub(super) secret: Option<Secret>,
}

impl Ledger {
    /// A waiter by the number of its arrival.
    pub fn waiter(&self, arrival: u64) -> Option<&Waiter> {
        self.waiters.get(&arrival)
    }

    /// The place of a waiter in the line of a resource, from 1; 1000 is 1000 or more.
    pub fn place(&self, arrival: u64, name: &Name) -> Option<u64> {
        let key = (self.waiters.get(&arrival)?.order_ms, arrival);
        self.resources.get(name).filter(|resource| resource.line.holds(arrival)).map(|it| it.line.place(key))
    }

    /// Puts a waiter into the lines of all that it asks for.
    pub(super) fn queue(&mut self, waiter: Waiter, happenings: &mut Vec<Happening>) {
        self.arrival += 1;
        let (arrival, id) = (self.arrival, waiter.lease);
        let holder = self.leases[&id].holder.clone();
        for (name, mode) in &waiter.wants {
            self.join_line(name, (waiter.order_ms, arrival));
            let resource = self.resources.get_mut(name).expect("whoever joins a line makes its resource");
            resource.note_epoch(&holder, waiter.epoch, Claim::Waiting(arrival));
            let (resource, holder) = (name.clone(), holder.clone());
            happenings.push(Happening::Queued { resource, lease: id, holder, mode: *mode });
        }
        let lease = self.leases.get_mut(&id).expect("only a living lease can wait");
        lease.stakes.extend(waiter.wants.iter().map(|(name, _)| (name.clone(), Stake::Waiting(arrival))));
        lease.index.waits.insert(arrival);
        self.claims += waiter.wants.len();
        self.bytes += size::of_claims(waiter.wants.iter().map(|(name, _)| name));
        self.attach(id, waiter.wants.len());
        if let Some(limit) = waiter.limit {
            self.wheel.arm(limit, Due::Wait(arrival));
        }
        let key = (waiter.order_ms, arrival);
        if waiter.wants.iter().all(|(name, _)| self.resources[name].line.first() == Some(key)) {
            self.to_seat.insert(key);
        }
        self.waiters.insert(arrival, waiter);
    }

    fn join_line(&mut self, name: &Name, key: OrderKey) {
        let resource = self.resources.entry(name.clone()).or_default();
        let was_empty = resource.line.is_empty();
        resource.line.join(key);
        if was_empty {
            self.tell_holders(name, |lease, name| {
                lease.index.contended.insert(name.clone());
            });
        }
    }

    /// Takes a waiter out of all its lines, and looks at who is first there now. Its lease, and whether its resources
    /// are kept, is the caller's business.
    pub(super) fn leave_lines(&mut self, arrival: u64, holder: &Holder) -> Waiter {
        let waiter = self.waiters.remove(&arrival).expect("only a waiter leaves a line");
        self.bytes -= size::of_claims(waiter.wants.iter().map(|(name, _)| name));
        let key = (waiter.order_ms, arrival);
        if let Some(limit) = waiter.limit {
            self.wheel.disarm(limit, Due::Wait(arrival));
        }
        self.to_seat.remove(&key);
        for (name, _) in &waiter.wants {
            let resource = self.resources.get_mut(name).expect("every waiter is in a resource");
            let was_first = resource.line.first() == Some(key);
            resource.line.leave(key);
            resource.drop_epoch(holder, waiter.epoch, Claim::Waiting(arrival));
            if resource.line.is_empty() {
                self.tell_holders(name, |lease, name| {
                    lease.index.contended.remove(name);
                });
            } else if was_first {
                self.look(name);
            }
        }
        waiter
    }

    /// Tells the living holders of a resource that its line has begun or is gone.
    fn tell_holders(&mut self, name: &Name, tell: impl Fn(&mut Lease, &Name)) {
        let resource = self.resources.get(name).expect("a line is in a resource");
        self.work.took(resource.holders.len());
        for id in resource.holders.values() {
            // A lease that is just ending has no use for it.
            if let Some(lease) = self.leases.get_mut(id) {
                tell(lease, name);
            }
        }
    }

    /// Notes that whoever is first in this line may be able to sit now.
    pub(super) fn look(&mut self, name: &Name) {
        if let Some(first) = self.resources.get(name).and_then(|resource| resource.line.first()) {
            self.to_seat.insert(first);
        }
    }

    /// Whether a waiter fits everywhere and is first in every line it stands in.
    pub(super) fn can_sit(&self, key: OrderKey, waiter: &Waiter) -> bool {
        waiter.wants.iter().all(|(name, mode)| {
            let resource = &self.resources[name];
            resource.line.first() == Some(key) && resource.tally.fits(*mode, resource.capacity)
        })
    }

    /// Seats whoever can sit, in the order of their keys, `SEAT_MAX` claims an entry.
    pub(super) fn seat_all(&mut self, events: &mut Vec<Event>) {
        let mut room = SEAT_MAX;
        while room > 0 {
            let Some(key) = self.to_seat.pop_first() else { return };
            let waiter = self.waiters.get(&key.1).expect("whoever leaves is looked at no more");
            // A look that seats nobody costs as much as a seat.
            let claims = if self.can_sit(key, waiter) { waiter.wants.len() } else { 0 };
            let before = self.work.steps;
            if claims > 0 {
                self.seat_waiter(key.1, events);
            }
            room = room.saturating_sub(claims.max(1) + (self.work.steps - before) / LOOKS_A_THING);
        }
    }

    fn seat_waiter(&mut self, arrival: u64, events: &mut Vec<Event>) {
        let id = self.waiters[&arrival].lease;
        let holder = self.leases[&id].holder.clone();
        let waiter = self.leave_lines(arrival, &holder);
        let lease = self.leases.get_mut(&id).expect("a dead waiter is never seated");
        lease.index.waits.remove(&arrival);
        lease.unconfirmed = true;
        self.claims -= waiter.wants.len();
        self.detach(Some(id), waiter.wants.len());
        let mut happenings = Vec::new();
        let Waiter { wants, lock_delay, epoch, request, secret, .. } = &waiter;
        let (lock_delay, epoch, request, secret) = (*lock_delay, *epoch, *request, *secret);
        self.seat(id, &Seating { wants, lock_delay, epoch, request, secret }, &mut happenings);
        self.happened(happenings, events);
    }

    /// Makes a lease the holder of resources where it fits, with new fences and as much time as it may have.
    pub(super) fn seat(&mut self, id: LeaseId, seating: &Seating<'_>, happenings: &mut Vec<Happening>) {
        let lease = self.leases.get_mut(&id).expect("only a living lease can hold");
        if lease.index.holding == 0 {
            lease.lifetime_from = Some(self.now);
        }
        let each = seating.wants.iter().map(|(name, mode)| self.hold(id, name, *mode, seating));
        let fences: Vec<_> = each.collect();
        self.claims += fences.len();
        self.attach(id, fences.len());
        self.extend(id);
        let lease = &self.leases[&id];
        let ttl_ms = lease.effective_ttl_ms(self.now);
        happenings.extend(seating.wants.iter().zip(&fences).map(|((name, mode), fence)| Happening::Seated {
            resource: name.clone(),
            lease: id,
            holder: lease.holder.clone(),
            fence: *fence,
            mode: *mode,
            ttl_ms,
        }));
    }

    fn hold(&mut self, id: LeaseId, name: &Name, mode: Mode, seating: &Seating<'_>) -> Fence {
        self.fence += 1;
        self.bytes += size::of_claim(name);
        let fence = Fence::from_number(self.fence).expect("2^53 fences are never given out");
        let resource = self.resources.entry(name.clone()).or_default();
        resource.tally.add(mode);
        resource.holders.insert(fence, id);
        let lease = self.leases.get_mut(&id).expect("only a living lease can hold");
        resource.note_epoch(&lease.holder, seating.epoch, Claim::Holding(fence));
        if !resource.line.is_empty() {
            lease.index.contended.insert(name.clone());
        }
        let (since, since_wall_ms) = (self.now, self.wall_ms);
        let Seating { lock_delay, epoch, request, secret, .. } = *seating;
        let holding = Holding { fence, mode, since, since_wall_ms, lock_delay, epoch, request, secret };
        lease.stakes.insert(name.clone(), Stake::Holding(Box::new(holding)));
        lease.index.holding += 1;
        fence
    }
}
