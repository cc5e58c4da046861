//! The ledger: all leases, claims, lines, keys and instances as one value, and the order in which an entry changes it. It calls
//! nobody.

mod acquire;
mod claim;
mod class;
mod deadlock;
mod ending;
mod ends;
mod epoch;
mod force;
mod history;
mod keyspace;
mod lease;
mod line;
mod registry;
mod renewing;
mod requests;
mod resource;
mod rights;
mod ring;
mod seating;
mod size;
mod snapshot;
mod timing;
mod tree;
mod wheel;

use crate::actor::{Actor, ApiKeyName};
use crate::command::{Command, Entry};
use crate::event::{End, Event, Happening, Leave, Revision};
use crate::fence::Fence;
use crate::limits::{COUNTER_MAX, ENTRY_CHANGES_MAX, ENTRY_STEPS_MAX, JUDGE_MAX, LOOKS_A_THING, SCAN_MAX, SWEEP_MAX};
use crate::mode::Class;
use crate::names::{LeaseId, Name};
use crate::registry::InstanceKey;
use crate::reply::{Outcome, Refusal};
use crate::time::Moment;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
pub use deadlock::Blocker;
use ending::Ending;
pub use ending::Vacating;
use force::Ordered;
use history::History;
pub use history::{EndedClaim, EndedInstance, EndedLease};
use keyspace::Keyspace;
pub use keyspace::{Change, KeyValue, RangeSlice};
pub use lease::{Holding, Lease, Stake};
use line::OrderKey;
use registry::Registry;
pub use registry::{Draining, Finding, Instance, Service, Suspect};
pub use resource::Resource;
pub use seating::Waiter;
pub use timing::{Slack, Timing};
use wheel::{Due, Wheel};

/// All leases and what hangs on them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    now: Moment,
    wall_ms: u64,
    revision: Revision,
    /// The last fence that was given out.
    fence: u64,
    /// The last arrival in a line that was numbered.
    arrival: u64,
    leases: BTreeMap<LeaseId, Lease>,
    resources: BTreeMap<Name, Resource>,
    /// Everybody who stands in line, by arrival.
    waiters: BTreeMap<u64, Waiter>,
    vacating: BTreeMap<Fence, Vacating>,
    /// Claims that will be broken, as ordered.
    breaks: BTreeMap<Fence, Ordered>,
    /// The classes that were set; the built-in ones are not in it.
    classes: BTreeMap<Name, Class>,
    keyspace: Keyspace,
    registry: Registry,
    /// Waiters who may be able to sit, and were not looked at yet.
    to_seat: BTreeSet<OrderKey>,
    history: History,
    /// How many living leases were begun with each API key. An index.
    owners: BTreeMap<ApiKeyName, usize>,
    /// The API key whose command is applied; none between commands.
    actor: Option<Actor>,
    /// Everything that falls due, rebuilt from the above, never state itself.
    wheel: Wheel,
    /// The stakes of all leases. An index.
    claims: usize,
    /// The resources with a defined capacity. An index.
    defined: usize,
    /// About how many bytes all of it takes, but for keys and what is over. An index.
    bytes: usize,
    /// Whether leases of class `registration` are not renewed by any renewal, as they are unless it was set otherwise.
    /// An index.
    registration_is_strict: bool,
    /// Suspect leases that were heard of again, with those who were suspect, and of which that was not told yet; empty
    /// between entries.
    cleared: Vec<(LeaseId, Vec<InstanceKey>)>,
    /// What this entry may still do.
    work: Work,
    /// How timely this entry is; empty between entries.
    timing: Timing,
}

/// How much an entry may still do of what one command could otherwise do without end. It begins anew with each entry.
#[derive(Clone, Debug, Default)]
struct Work {
    /// What was looked at or touched beside what changed: holders, waiters, claims and keys. It is counted, and commands stop
    /// when there is too much of it.
    steps: usize,
    /// Leases and resources that revokes of many may look at.
    looks: usize,
    /// Things that revokes of many may end.
    ends: usize,
    /// Leases that may be looked at to judge cohorts.
    judges: usize,
    /// Bytes that commands may answer.
    answers: keyspace::Room,
}

impl Work {
    const fn whole(has_client: bool) -> Self {
        let answers = keyspace::Room::whole(has_client);
        Self { steps: 0, looks: SCAN_MAX, ends: SWEEP_MAX, judges: JUDGE_MAX, answers }
    }

    /// How much of it was used.
    const fn used(&self) -> usize {
        self.steps + (SCAN_MAX - self.looks) + (SWEEP_MAX - self.ends) + (JUDGE_MAX - self.judges)
    }

    /// Counts what was looked at or touched. It refuses nothing: the next command may be.
    const fn took(&mut self, steps: usize) {
        self.steps = self.steps.saturating_add(steps);
    }

    fn may_look(&mut self) -> bool {
        let may = self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        may
    }

    /// Whether so many things may end. What is left lets in one that is larger, so that everything can end some time.
    fn may_end(&mut self, things: usize) -> bool {
        let may = self.ends > 0;
        self.ends = self.ends.saturating_sub(things);
        may
    }
}

/// What one entry did.
#[derive(Debug, Default)]
pub struct Applied {
    /// The answer to each command, in order.
    pub outcomes: Vec<Outcome>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Nothing falls due before this moment; none if nothing will.
    pub next_deadline: Option<Moment>,
    /// Whether things that are due, waiters that may sit or forgotten versions of keys are left over, so that the next
    /// tick should follow at once.
    pub unfinished: bool,
    /// How timely its ends and renewals were.
    pub timing: Timing,
    /// How much work it was, alike on every node: its commands, each lease that it renews, what it changed, and what it looked
    /// at to find out what to change.
    pub steps: usize,
}

impl Ledger {
    /// The service time of the last entry.
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// The wall clock at the last entry: for people.
    pub const fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    /// The count of visible changes.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The last fence that was given out; 0 if none was.
    pub const fn last_fence(&self) -> u64 {
        self.fence
    }

    /// Nothing falls due before this moment; none if nothing will.
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

    /// The number of claims, holding and waiting.
    pub const fn claim_count(&self) -> usize {
        self.claims
    }

    /// The number of acquires that stand in line, each for one resource or several.
    pub fn waiter_count(&self) -> usize {
        self.waiters.len()
    }

    /// The number of resources that are claimed, vacating or defined.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
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

    /// The remembered ends of instances with an id, oldest first.
    pub fn ended_instances(&self, key: &InstanceKey) -> impl Iterator<Item = &EndedInstance> {
        self.history.instances(key)
    }

    /// The remembered events after a place in the stream, or the oldest revision that can still be resumed after.
    pub fn events_after(&self, after: (Revision, u32)) -> Result<impl Iterator<Item = &Event>, Revision> {
        self.history.events_after(after)
    }

    /// The same but for the events of keys, which are remembered by themselves: a delete of many keys makes none of these
    /// forgotten.
    pub fn events_beside_keys_after(&self, after: (Revision, u32)) -> Result<impl Iterator<Item = &Event>, Revision> {
        self.history.events_beside_keys_after(after)
    }

    /// The remembered events, newest first.
    pub fn events_back(&self) -> impl Iterator<Item = &Event> {
        self.history.events_back()
    }

    /// Goes on as a new ledger that was made from a copy of an older one. The old one may have gone on after the copy was
    /// made: the next fence is above `fence`, both revisions are moved on by `revisions`, and what happened before cannot
    /// be watched any longer. False, and nothing changed, if a counter would leave its bounds.
    #[must_use]
    pub fn begin_anew(&mut self, fence: u64, revisions: u64) -> bool {
        let moved = |revision: u64| revision.checked_add(revisions).filter(|moved| *moved <= COUNTER_MAX);
        let (Some(revision), Some(kv_revision)) = (moved(self.revision.0), moved(self.keyspace.revision)) else {
            return false;
        };
        if fence < self.fence || fence > COUNTER_MAX {
            return false;
        }
        (self.fence, self.revision, self.keyspace.revision) = (fence, Revision(revision), kv_revision);
        self.history.forget_events(self.revision);
        self.keyspace.forget_past();
        true
    }

    /// Applies one entry: its renewals, then the sweep, then the other commands, then seating.
    pub fn apply(&mut self, entry: &Entry) -> Applied {
        self.apply_with(entry, Work::whole(true))
    }

    /// Applies one entry for whose answers no client waits: on a follower, and when the log is read again. Keys and values that
    /// its transactions would answer are counted, and left out of the outcomes. All else is as with `apply`.
    pub fn replay(&mut self, entry: &Entry) -> Applied {
        self.apply_with(entry, Work::whole(false))
    }

    fn apply_with(&mut self, entry: &Entry, work: Work) -> Applied {
        self.now = self.now.max(entry.now);
        self.wall_ms = entry.wall_ms;
        self.work = work;
        let mut events = Vec::new();
        let mut outcomes = self.renewals(&entry.commands);
        self.tell_cleared(&mut events);
        let swept = self.sweep(&mut events);
        let before = (events.len(), self.work.used());
        for (command, outcome) in entry.commands.iter().zip(&mut outcomes) {
            outcome.get_or_insert_with(|| {
                has_room(events.len() - before.0, self.work.used() - before.1)?;
                self.command_of_key(command, &mut events)
            });
        }
        self.seat_all(&mut events);
        self.tell_cleared(&mut events);
        let cleared = self.keyspace.clear();
        self.history.remember_events(&events);
        let renewed = entry.commands.iter().map(|command| match command.plain() {
            Command::Renew(renew) => renew.leases.len(),
            _ => 1,
        });
        Applied {
            steps: renewed.sum::<usize>() + events.len() + self.work.used(),
            outcomes: outcomes.into_iter().flatten().collect(),
            events,
            next_deadline: self.wheel.next(),
            unfinished: swept == Sweep::CutShort || !self.to_seat.is_empty() || !cleared,
            timing: core::mem::take(&mut self.timing),
        }
    }

    fn command(&mut self, command: &Command, events: &mut Vec<Event>) -> Outcome {
        match command {
            Command::Grant(grant) => self.grant(grant, events),
            Command::Acquire(acquire) => self.acquire(acquire, events),
            Command::Renew(_) | Command::RenewHandle(_) => unreachable!("renewals go first"),
            Command::Attributed(_) => unreachable!("its key was taken off"),
            Command::Release(release) => self.release(release, events),
            Command::ReleaseLease(release) => self.release_lease(release, events),
            Command::Cancel(cancel) => self.cancel(cancel, events),
            Command::Revoke(revoke) => self.revoke(revoke, events),
            Command::Break(order) => self.break_claims(order, events),
            Command::Transfer(transfer) => self.transfer(transfer, events),
            Command::Define(define) => self.define(define, events),
            Command::SetClass(class) => self.set_class(class, events),
            Command::Put(put) => self.put(put, events),
            Command::Delete(delete) => self.delete(delete, events),
            Command::Txn(txn) => self.txn(txn, events),
            Command::Compact(compact) => self.compact(*compact),
            Command::Register(register) => self.register(register, events),
            Command::UpdateInstance(update) => self.update_instance(update, events),
            Command::Drain(drain) => self.drain(drain, events),
            Command::Deregister(deregister) => self.deregister(deregister, events),
            Command::SetHealth(set) => self.set_health(set, events),
        }
    }

    /// Does what is due, in order of (moment, kind, number), until `SWEEP_MAX` things have ended. What was not reached
    /// is merely late; a lease is alive by every rule until then.
    fn sweep(&mut self, events: &mut Vec<Event>) -> Sweep {
        let mut room = SWEEP_MAX;
        while let Some((at, due)) = self.wheel.due(self.now) {
            // This is not bounded: where a lease is armed is no state, so it must not decide what an entry does. Each
            // move is paid for by a renewal.
            if self.was_renewed_since(at, due) {
                self.move_on(due);
                continue;
            }
            let weight = self.weight(due);
            if weight > room && room < SWEEP_MAX || !self.may_judge(self.looks_to_judge(due)) {
                return Sweep::CutShort;
            }
            let before = self.work.steps;
            self.fall_due(due, events);
            room = room.saturating_sub(weight + (self.work.steps - before) / LOOKS_A_THING);
        }
        Sweep::Finished
    }

    /// Whether this is a lease that ends later than it is armed.
    fn was_renewed_since(&self, armed: Moment, due: Due) -> bool {
        matches!(due, Due::Lease(id) if self.leases[&id].ends_at() > armed)
    }

    /// Arms a renewed lease where it ends now.
    fn move_on(&mut self, due: Due) {
        let Due::Lease(id) = due else { unreachable!("only leases are renewed") };
        let lease = self.leases.get_mut(&id).expect("every armed lease lives");
        self.wheel.rearm(lease.armed, due, lease.ends_at());
        lease.armed = lease.ends_at();
    }

    /// How many things may end with what is due.
    fn weight(&self, due: Due) -> usize {
        let lease = match due {
            Due::Lease(id) => Some(id),
            Due::Wait(arrival) => Some(self.waiters[&arrival].lease),
            Due::Break(fence) => Some(self.breaks[&fence].lease),
            Due::Unhealthy(instance) => Some(self.lease_of_instance(instance)),
            Due::Free(_) | Due::Stale(..) | Due::Held(_) => None,
        };
        1 + lease.map_or(0, |id| self.leases[&id].carried)
    }

    fn fall_due(&mut self, due: Due, events: &mut Vec<Event>) {
        match due {
            Due::Lease(id) => {
                if self.keep_as_suspect(id, events) {
                    return;
                }
                let lease = &self.leases[&id];
                let how = if lease.capped { End::MaxLifetime } else { End::Expired };
                self.timing.late_ms.push(self.now.millis_since(lease.ends_at()));
                self.end(id, &Ending::plain(how), events);
            }
            Due::Wait(arrival) => self.wait_ends(arrival, Leave::WaitedOut, events),
            Due::Free(fence) => self.free(fence, events),
            Due::Break(fence) => self.break_as_ordered(fence, events),
            Due::Stale(instance, check) => self.go_stale(instance, check, events),
            Due::Held(instance) => self.let_up(instance, events),
            Due::Unhealthy(instance) => self.end_unhealthy(instance, events),
        }
    }

    /// Numbers what one visible change made happen.
    fn happened(&mut self, happenings: Vec<Happening>, events: &mut Vec<Event>) {
        self.revision.0 += 1;
        let (count, api_key) = (happenings.len(), self.actor.as_ref().map(|actor| actor.key.clone()));
        for (n, what) in happenings.into_iter().enumerate() {
            events.push(Event {
                revision: self.revision,
                n: u32::try_from(n).expect("one change is bounded by what a tree may carry"),
                last: n + 1 == count,
                at: self.now,
                wall_ms: self.wall_ms,
                api_key: api_key.clone(),
                what,
            });
        }
    }
}

/// Whether an entry whose commands have changed and looked at so much may go on with the next one. One that may not changes
/// nothing, and the leader proposes it again.
fn has_room(changes: usize, steps: usize) -> Result<(), Refusal> {
    let full = |what: &'static str, max| Err(Refusal::Overloaded { what: what.into(), max });
    match (changes < ENTRY_CHANGES_MAX, steps < ENTRY_STEPS_MAX) {
        (true, true) => Ok(()),
        (false, _) => full("changes made together", ENTRY_CHANGES_MAX),
        (true, false) => full("steps of the commands of one entry", ENTRY_STEPS_MAX),
    }
}

#[derive(PartialEq, Eq)]
enum Sweep {
    Finished,
    CutShort,
}
