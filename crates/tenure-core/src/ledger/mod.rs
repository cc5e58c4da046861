//! The ledger: all leases, claims and lines as one value, and the order in which an entry changes it. It calls nobody.

mod claim;
mod history;
mod lease;
mod line;
mod snapshot;
mod wheel;

use crate::command::{Command, Entry, Outcome};
use crate::event::{Event, Happening, Revision};
use crate::limits::SWEEP_MAX;
use crate::names::{LeaseId, Name};
use crate::time::Moment;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
pub use claim::{Holding, Resource};
use core::ops::Bound;
use history::History;
pub use history::{EndedClaim, EndedLease};
pub use lease::{Lease, Stake};
use wheel::Wheel;

/// All leases and what hangs on them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    now: Moment,
    wall_ms: u64,
    revision: Revision,
    /// The last fence that was given out.
    fence: u64,
    /// The last arrival that was numbered; the order key of lines.
    arrival: u64,
    leases: BTreeMap<LeaseId, Lease>,
    resources: BTreeMap<Name, Resource>,
    /// Freed resources whose next in line was not seated yet. A listed resource takes no other acquire.
    to_seat: VecDeque<Name>,
    history: History,
    /// An index over the deadlines, rebuilt from the leases, never state itself.
    wheel: Wheel,
}

/// What one entry did.
#[derive(Debug, Default)]
pub struct Applied {
    /// The answer to each command, in order.
    pub outcomes: Vec<Outcome>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// No lease is due before this moment; none if no lease lives.
    pub next_deadline: Option<Moment>,
    /// Whether due leases or free seats are left over, so that the next tick should follow at once.
    pub unfinished: bool,
}

impl Ledger {
    /// The service time of the last entry.
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// The count of visible changes.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The last fence that was given out; 0 if none was.
    pub const fn last_fence(&self) -> u64 {
        self.fence
    }

    /// No lease is due before this moment; none if no lease lives.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.wheel.next()
    }

    /// All living leases from `first` on, by id.
    pub fn leases_from(&self, first: Option<LeaseId>) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let range = match first {
            Some(first) => self.leases.range(first..),
            None => self.leases.range(..),
        };
        range.map(|(id, lease)| (*id, lease))
    }

    /// The number of living leases.
    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// A living lease.
    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// All claimed resources from `first` on, by name.
    pub fn resources_from(&self, first: &str) -> impl Iterator<Item = (&Name, &Resource)> {
        self.resources.range::<str, _>((Bound::Included(first), Bound::Unbounded))
    }

    /// A claimed resource.
    pub fn resource(&self, name: &Name) -> Option<&Resource> {
        self.resources.get(name)
    }

    /// What is remembered of leases, claims and events that are over.
    pub fn ended_lease(&self, id: LeaseId) -> Option<&EndedLease> {
        self.history.lease(id)
    }

    /// The remembered claims on a resource that are over, oldest first.
    pub fn ended_claims(&self, resource: &Name) -> impl Iterator<Item = &EndedClaim> {
        self.history.claims(resource)
    }

    /// The remembered events after a place in the stream, or the oldest revision that can still be resumed after.
    pub fn events_after(&self, after: (Revision, u32)) -> Result<impl Iterator<Item = &Event>, Revision> {
        self.history.events_after(after)
    }

    /// Applies one entry: its renewals, then the sweep, then the other commands, then seating.
    pub fn apply(&mut self, entry: &Entry) -> Applied {
        self.now = self.now.max(entry.now);
        self.wall_ms = entry.wall_ms;
        let mut events = Vec::new();
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(entry.commands.len());
        for command in &entry.commands {
            outcomes.push(command.is_renewal().then(|| self.command(command, &mut events)));
        }
        let swept = self.sweep(&mut events);
        for (command, outcome) in entry.commands.iter().zip(&mut outcomes) {
            outcome.get_or_insert_with(|| self.command(command, &mut events));
        }
        self.seat_all(&mut events);
        self.history.remember_events(&events);
        Applied {
            outcomes: outcomes.into_iter().flatten().collect(),
            events,
            next_deadline: self.wheel.next(),
            unfinished: swept == Sweep::CutShort || !self.to_seat.is_empty(),
        }
    }

    fn command(&mut self, command: &Command, events: &mut Vec<Event>) -> Outcome {
        match command {
            Command::Grant(grant) => self.grant(grant, events),
            Command::Acquire(acquire) => self.acquire(acquire, events),
            Command::Renew(renew) => Ok(self.renew(renew)),
            Command::RenewHandle(renew) => self.renew_handle(renew),
            Command::Release(release) => self.release(release, events),
            Command::Cancel(cancel) => self.cancel(cancel, events),
            Command::Revoke(revoke) => self.revoke(revoke, events),
        }
    }

    /// Ends the leases that are due, in order of (deadline, id), until `SWEEP_MAX` attached things have ended. A lease
    /// that was not reached is merely late, and alive by every rule.
    fn sweep(&mut self, events: &mut Vec<Event>) -> Sweep {
        let mut room = SWEEP_MAX;
        while let Some((due, id)) = self.wheel.due(self.now) {
            let lease = self.leases.get_mut(&id).expect("every armed lease lives");
            if lease.deadline > due {
                lease.armed = lease.deadline;
                self.wheel.rearm(due, id, lease.deadline);
                continue;
            }
            let weight = lease.weight();
            if weight > room && room < SWEEP_MAX {
                return Sweep::CutShort;
            }
            room = room.saturating_sub(weight);
            self.end(id, &crate::event::End::Expired, events);
        }
        Sweep::Finished
    }

    /// Numbers what one visible change made happen.
    fn happened(&mut self, happenings: Vec<Happening>, events: &mut Vec<Event>) {
        self.revision.0 += 1;
        let count = happenings.len();
        for (n, what) in happenings.into_iter().enumerate() {
            events.push(Event {
                revision: self.revision,
                n: u32::try_from(n).expect("one change attaches or ends at most ATTACHED_MAX things"),
                last: n + 1 == count,
                at: self.now,
                wall_ms: self.wall_ms,
                what,
            });
        }
    }
}

#[derive(PartialEq, Eq)]
enum Sweep {
    Finished,
    CutShort,
}
