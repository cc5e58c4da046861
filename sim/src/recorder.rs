//! The recorder: what every client called and was answered, as histories that can be checked. It sees what clients see, and never
//! looks into a node.

use crate::ground::true_time;
use crate::history::keys::{self, Cell, Condition, Done, Keys, Part};
use crate::history::lock::{self, Acquired, Lock};
use crate::history::text::History;
use crate::history::{At, Operation, Verdict, check};
use crate::mix::{is_lock, locks};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_core::{
    Acquire, Command, Grant, Hang, Key, KeyValue, LeaseId, Name, On, Op, OpDone, Outcome, Put, Range, Refusal, Reply,
    Seat, Subject, Transfer, Txn,
};
use tokio::time::Instant;

/// How much longer than its service a lease may seem to live: clocks differ by up to 1 % each.
const RATES: f64 = 0.98;

/// What is recorded of all clients. Clones record the same histories.
#[derive(Clone)]
pub(crate) struct Recorder {
    origin: Instant,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    count: u64,
    claims: u64,
    /// The claims that requests about given leases make, by their numbers.
    numbered: BTreeMap<(LeaseId, u64), u64>,
    locks: BTreeMap<Name, Vec<Operation<lock::Act>>>,
    keys: Vec<Operation<keys::Act>>,
    leases: BTreeMap<LeaseId, Tenure>,
    /// When somebody called for an end of others' leases.
    forced: Vec<At>,
}

/// What clients know of a lease.
struct Tenure {
    /// It cannot end by itself before.
    lives_until: At,
    holder: String,
    resources: BTreeSet<Name>,
    /// The lease that it ends with.
    parent: Option<LeaseId>,
    /// When a client first called for its end.
    given_up: Option<At>,
}

/// What the checks of a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Parts of histories: locks, and keys that transactions bind together.
    pub parts: u64,
    /// Operations in them.
    pub operations: u64,
    /// Those whose outcome no client knows.
    pub unknown: u64,
    /// Parts that were too long or took too many steps.
    pub not_decided: u64,
}

/// A part of a history that no order explains.
pub(crate) struct Contradiction {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
    pub(crate) history: History,
}

impl Recorder {
    pub(crate) fn new(origin: Instant) -> Self {
        Self { origin, pages: Arc::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("nobody panics while recording")
    }

    /// This moment.
    pub(crate) fn now(&self) -> At {
        let mut pages = self.pages();
        pages.count += 1;
        At { time: true_time(self.origin), count: pages.count }
    }

    /// Records a command that was called then, and answered now. None: its outcome is unknown.
    pub(crate) fn command(&self, from: At, command: &Command, outcome: Option<&Outcome>) {
        let to = outcome.map(|_| self.now());
        self.pages().command(&Called { from, to }, command, outcome);
    }

    /// Records a read of a key.
    pub(crate) fn get(&self, from: At, key: &Key, found: Option<&KeyValue>) {
        let to = Some(self.now());
        let act = keys::Act::Get { key: key_name(key), found: found.map(cell) };
        self.pages().keys.push(Operation { from, to, act });
    }

    /// Records who a read found to hold a lock.
    pub(crate) fn look(&self, from: At, resource: &Name, holder: Option<(u64, u64)>) {
        let to = Some(self.now());
        self.pages().lock(&Called { from, to }, resource, lock::Act::Look { holder });
    }

    /// Records whether a read found a fence to be current.
    pub(crate) fn verify(&self, from: At, resource: &Name, fence: u64, holds: bool) {
        let to = Some(self.now());
        self.pages().lock(&Called { from, to }, resource, lock::Act::Verify { fence, holds });
    }

    /// Checks everything that was recorded.
    pub(crate) fn check(&self) -> (Checked, Vec<Contradiction>) {
        let mut pages = self.pages();
        pages.end_leases();
        let (mut checked, mut contradictions) = (Checked::default(), Vec::new());
        for (name, part) in &pages.locks {
            let part = lock::without_noise(part.clone());
            let verdict = check::<Lock>(&part);
            checked.add(&part, &verdict);
            contradictions.extend(Contradiction::of(name, &part, &verdict, History::Lock));
        }
        for (keys, part) in keys::parts(&pages.keys) {
            let verdict = check::<Keys>(&part);
            checked.add(&part, &verdict);
            contradictions.extend(Contradiction::of(&keys.join(", "), &part, &verdict, History::Keys));
        }
        (checked, contradictions)
    }
}

impl Checked {
    fn add<A>(&mut self, part: &[Operation<A>], verdict: &Verdict) {
        self.parts += 1;
        self.operations += part.len() as u64;
        self.unknown += part.iter().filter(|it| it.to.is_none()).count() as u64;
        self.not_decided += u64::from(*verdict == Verdict::NotDecided);
    }

    /// Takes in the checks of another run.
    pub fn merge(&mut self, other: &Self) {
        self.parts += other.parts;
        self.operations += other.operations;
        self.unknown += other.unknown;
        self.not_decided += other.not_decided;
    }
}

impl Contradiction {
    fn of<A: Clone + fmt::Display>(
        name: &impl fmt::Display,
        part: &[Operation<A>],
        verdict: &Verdict,
        whole: impl FnOnce(Vec<Operation<A>>) -> History,
    ) -> Option<Self> {
        let Verdict::Refused { operation, only_reads } = verdict else { return None };
        let promise = if *only_reads { "S11" } else { "S10" };
        let what = format!("{name}: no order of operations explains {}", part[*operation]);
        Some(Self { promise, what, history: whole(part.to_vec()) })
    }
}

/// When an operation was called, and answered.
struct Called {
    from: At,
    to: Option<At>,
}

impl Pages {
    fn lock(&mut self, called: &Called, resource: &Name, act: lock::Act) {
        if is_lock(resource) {
            let operation = Operation { from: called.from, to: called.to, act };
            self.locks.entry(resource.clone()).or_default().push(operation);
        }
    }

    /// Something that may happen at any time from the call on, unseen.
    fn unseen(&mut self, called: &Called, resource: &Name, act: lock::Act) {
        self.lock(&Called { from: called.from, to: None }, resource, act);
    }

    fn key(&mut self, called: &Called, act: keys::Act) {
        self.keys.push(Operation { from: called.from, to: called.to, act });
    }

    /// A lease was begun, if it had not been.
    fn begin(&mut self, called: &Called, lease: LeaseId) -> &mut Tenure {
        let tenure = || Tenure {
            lives_until: called.from,
            holder: String::new(),
            resources: BTreeSet::new(),
            parent: None,
            given_up: None,
        };
        self.leases.entry(lease).or_insert_with(tenure)
    }

    /// An answer promised a lease so much time, counted from the call.
    fn promised(&mut self, called: &Called, lease: LeaseId, ttl_ms: u64) {
        let until = called.from.time + Duration::from_millis(ttl_ms).mul_f64(RATES);
        let tenure = self.begin(called, lease);
        tenure.lives_until = tenure.lives_until.max(At::time(until));
    }

    fn command(&mut self, called: &Called, command: &Command, outcome: Option<&Outcome>) {
        match (command, outcome) {
            (Command::Grant(grant), outcome) => {
                self.begin(called, grant.lease).parent = grant.parent;
                if let Some(Ok(Reply::Granted { lease, ttl_ms, .. })) = outcome {
                    self.promised(called, *lease, *ttl_ms);
                }
            }
            (Command::Acquire(acquire), outcome) => self.acquire(called, acquire, outcome),
            (Command::Register(register), _) => {
                if let On::New(grant) = &register.on {
                    self.begin(called, grant.lease).parent = grant.parent;
                }
            }
            (Command::Renew(_), Some(Ok(Reply::Renewed(each)))) => {
                for answer in each {
                    self.renewed(called, answer);
                }
            }
            (Command::Release(release), outcome) => {
                let (name, fence) = (&release.handle.resource, release.handle.fence.number());
                let Some(lease) = self.lease_of(name, fence) else { return };
                let done = match outcome {
                    Some(Ok(_)) => Some(true),
                    Some(Err(Refusal::Stale { .. })) => Some(false),
                    Some(Err(_)) => return,
                    None => None,
                };
                self.lock(called, name, lock::Act::Release { lease, fence, done });
            }
            (Command::ReleaseLease(release), outcome) if !matches!(outcome, Some(Err(_))) => {
                self.release_lease(called, release.lease);
            }
            (Command::Cancel(cancel), outcome) => {
                let done = match outcome {
                    Some(Ok(_)) => Some(true),
                    Some(Err(Refusal::NoClaim { .. })) if cancel.resources.len() == 1 => Some(false),
                    Some(Err(_)) => return,
                    None => None,
                };
                let lease = cancel.lease.number();
                for name in &cancel.resources {
                    match cancel.request {
                        // It is answered alike, whether its request has made a claim or the lease has another one.
                        Some(_) => self.unseen(called, name, lock::Act::Cancel { lease, done: None }),
                        None => self.lock(called, name, lock::Act::Cancel { lease, done }),
                    }
                }
            }
            (Command::Transfer(transfer), outcome) => self.transfer(called, transfer, outcome),
            (Command::Break(order), outcome) if !matches!(outcome, Some(Err(_))) => {
                self.unseen(called, &order.resource, lock::Act::Break);
                self.forced.push(called.from);
            }
            (Command::Revoke(_), outcome) if !matches!(outcome, Some(Err(_))) => {
                locks().iter().for_each(|name| self.unseen(called, name, lock::Act::Break));
                self.forced.push(called.from);
            }
            (Command::Put(put), Some(Ok(Reply::Put { version, .. }))) => self.put(called, put, Some(*version)),
            (Command::Put(put), None) => self.put(called, put, None),
            (Command::Delete(delete), outcome) => {
                let tenure_core::Keys::One(key) = &delete.keys else { return };
                let count = match outcome {
                    Some(Ok(Reply::Deleted { count, .. })) => Some(*count),
                    Some(_) => return,
                    None => None,
                };
                self.key(called, keys::Act::Delete { key: key_name(key), count });
            }
            (Command::Txn(txn), Some(Ok(Reply::Txn(done)))) => self.txn(called, txn, Some(seen(done))),
            (Command::Txn(txn), None) => self.txn(called, txn, None),
            _ => {}
        }
    }

    fn acquire(&mut self, called: &Called, acquire: &Acquire, outcome: Option<&Outcome>) {
        let (id, lease) = (acquire.lease(), acquire.lease().number());
        let names: Vec<Name> = acquire.wants.iter().map(|want| want.resource.clone()).collect();
        let mut is_first = self.begin(called, id).resources.is_empty();
        self.begin(called, id).resources.extend(names.iter().cloned());
        let claim = match (&acquire.on, acquire.request) {
            (On::New(grant), _) => grant.lease.number(),
            (On::Given(_), request) => {
                self.claims += 1;
                let next = self.claims;
                let known = request.map(|request| *self.numbered.entry((id, request.number())).or_insert(next));
                is_first = known.is_none_or(|claim| claim == next);
                known.unwrap_or(next)
            }
        };
        if let On::New(grant) = &acquire.on {
            let tenure = self.begin(called, id);
            (tenure.holder, tenure.parent) = (grant.holder.to_string(), grant.parent);
        }
        // Each claim comes once, however often it is asked for.
        let may_come = is_first;
        if may_come {
            names.iter().for_each(|name| self.unseen(called, name, lock::Act::Grant { lease, claim, fence: None }));
        }
        if let (true, Some(_), On::New(grant)) = (is_first, acquire.epoch, &acquire.on) {
            self.supersede(called, grant, &names);
        }
        match outcome {
            Some(Ok(Reply::Seated(Seat { claims, ttl_ms, .. }))) => {
                self.promised(called, id, *ttl_ms);
                for handle in claims {
                    let answer = Acquired::Granted(handle.fence.number());
                    self.lock(called, &handle.resource, lock::Act::Acquire { lease, claim, answer });
                }
            }
            Some(Ok(Reply::Waiting(place))) => {
                self.promised(called, id, place.ttl_ms);
                let act = lock::Act::Acquire { lease, claim, answer: Acquired::Waiting };
                names.iter().for_each(|name| self.lock(called, name, act));
            }
            Some(Err(Refusal::Taken { resource, fence: Some(fence), state: tenure_core::Occupied::Held, .. })) => {
                let answer = Acquired::Taken(fence.number());
                self.lock(called, resource, lock::Act::Acquire { lease, claim, answer });
            }
            Some(Err(Refusal::Lapsed { .. })) => {
                names.iter().for_each(|name| self.lock(called, name, lock::Act::Renew { lease, lives: false }));
            }
            _ => {}
        }
    }

    /// Claims of lower epochs, of the same holder, may end for this one.
    fn supersede(&mut self, called: &Called, grant: &Grant, names: &[Name]) {
        let earlier = self.leases.iter().filter(|(id, it)| it.holder == grant.holder.as_str() && **id != grant.lease);
        let earlier: Vec<(u64, Name)> = earlier
            .flat_map(|(id, it)| it.resources.iter().map(|name| (id.number(), name.clone())))
            .filter(|(_, name)| names.contains(name))
            .collect();
        for (lease, name) in earlier {
            self.unseen(called, &name, lock::Act::End { lease });
        }
    }

    fn renewed(&mut self, called: &Called, answer: &Result<tenure_core::Renewed, Refusal>) {
        let (id, lives) = match answer {
            Ok(renewed) => {
                self.promised(called, renewed.lease, renewed.ttl_ms);
                (renewed.lease, true)
            }
            Err(Refusal::Lapsed { lease, .. }) => (*lease, false),
            Err(_) => return,
        };
        let names = self.leases.get(&id).map(|tenure| tenure.resources.clone()).unwrap_or_default();
        for name in names {
            self.lock(called, &name, lock::Act::Renew { lease: id.number(), lives });
        }
    }

    fn release_lease(&mut self, called: &Called, id: LeaseId) {
        let tenure = self.begin(called, id);
        tenure.given_up.get_or_insert(called.from);
        let (lease, names) = (id.number(), tenure.resources.clone());
        names.iter().for_each(|name| self.lock(called, name, lock::Act::End { lease }));
        self.key(called, keys::Act::End { lease });
    }

    fn transfer(&mut self, called: &Called, transfer: &Transfer, outcome: Option<&Outcome>) {
        let (name, fence, to) = (&transfer.handle.resource, transfer.handle.fence.number(), transfer.to.number());
        let Some(lease) = self.lease_of(name, fence) else { return };
        self.begin(called, transfer.to).resources.insert(name.clone());
        let answer = match outcome {
            Some(Ok(Reply::Seated(seat))) => Some(Some(seat.claims[0].fence.number())),
            Some(Err(Refusal::Stale { .. })) => Some(None),
            Some(_) => return,
            None => None,
        };
        self.lock(called, name, lock::Act::Transfer { lease, fence, to, answer });
    }

    /// Whose claim was shown with this fence.
    fn lease_of(&self, name: &Name, fence: u64) -> Option<u64> {
        let shown = self.locks.get(name)?.iter().rev();
        let mut shown = shown.filter_map(|it| match it.act {
            lock::Act::Acquire { lease, answer: Acquired::Granted(shown), .. } => Some((lease, shown)),
            lock::Act::Transfer { to, answer: Some(Some(shown)), .. } => Some((to, shown)),
            lock::Act::Look { holder } => holder,
            _ => None,
        });
        shown.find(|(_, shown)| *shown == fence).map(|(lease, _)| lease)
    }

    fn put(&mut self, called: &Called, put: &Put, version: Option<u64>) {
        let lease = match put.lease {
            Hang::On(lease) => Some(lease.number()),
            Hang::Free | Hang::Keep => None,
        };
        let value = value_of(put.value.as_deref().unwrap_or_default());
        self.key(called, keys::Act::Put { key: key_name(&put.key), value, lease, version });
    }

    fn txn(&mut self, called: &Called, txn: &Txn, done: Option<Done>) {
        let condition = |compare: &tenure_core::Compare| Condition {
            key: name_of(compare.keys.first()),
            value: if let Subject::Value(value) = &compare.subject { Some(value_of(value)) } else { None },
        };
        let conditions = txn.compares.iter().map(condition).collect();
        let parts = |ops: &[Op]| ops.iter().filter_map(part).collect();
        self.key(called, keys::Act::Txn { conditions, then: parts(&txn.then), otherwise: parts(&txn.otherwise), done });
    }

    /// Every lease may end by itself from some time on, and one that had claims from when others' were ended.
    fn end_leases(&mut self) {
        let forced = self.forced.iter().min().copied();
        let leases = std::mem::take(&mut self.leases);
        for (id, tenure) in &leases {
            let lease = id.number();
            // What ends by force is no end of its own: a break of the lock is an operation itself. That of a parent is.
            let above = tenure.parent.and_then(|parent| may_end_from(&leases, parent, forced));
            let by_itself = above.map_or(tenure.lives_until, |above| above.min(tenure.lives_until));
            let called = Called { from: by_itself, to: None };
            tenure.resources.iter().for_each(|name| self.unseen(&called, name, lock::Act::End { lease }));
            let forced = forced.filter(|_| !tenure.resources.is_empty());
            let from = forced.map_or(by_itself, |forced| forced.min(by_itself));
            self.key(&Called { from, to: None }, keys::Act::End { lease });
        }
        self.leases = leases;
    }
}

/// From when on a lease may have ended, in whatever way; none if no client knows of it.
fn may_end_from(leases: &BTreeMap<LeaseId, Tenure>, id: LeaseId, forced: Option<At>) -> Option<At> {
    let tenure = leases.get(&id)?;
    let forced = forced.filter(|_| !tenure.resources.is_empty());
    let above = tenure.parent.and_then(|parent| may_end_from(leases, parent, forced));
    [Some(tenure.lives_until), tenure.given_up, forced, above].into_iter().flatten().min()
}

fn part(op: &Op) -> Option<Part> {
    match op {
        Op::Put { put, .. } => Some(Part::Put(key_name(&put.key), value_of(put.value.as_deref().unwrap_or_default()))),
        Op::Delete { keys, .. } => Some(Part::Delete(name_of(keys.first()))),
        Op::Range(Range { keys, .. }) => Some(Part::Get(name_of(keys.first()))),
        Op::Txn(_) => None,
    }
}

fn seen(done: &tenure_core::TxnDone) -> Done {
    let found = done.ops.iter().filter_map(|op| match op {
        OpDone::Range { ranged, .. } => Some(ranged.items.first().map(|(_, value)| cell(value))),
        OpDone::Put { .. } | OpDone::Deleted { .. } | OpDone::Txn(_) => None,
    });
    Done { held: done.held, found: found.collect() }
}

fn cell(value: &KeyValue) -> Cell {
    Cell { value: value_of(&value.value), version: value.version }
}

fn name_of(key: &[u8]) -> keys::Key {
    String::from_utf8_lossy(key).into()
}

fn key_name(key: &Key) -> keys::Key {
    name_of(key.bytes())
}

/// The number that a client wrote.
fn value_of(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
