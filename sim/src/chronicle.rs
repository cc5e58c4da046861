//! What every node tells of the one history, held against what others told of it, and against the promises.

use crate::book::{Book, Extremes};
use crate::clerk::CACHE;
use crate::mix::{capacity, sit_together};
use crate::net::Life;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tenure_core::{End, Event, Fence, Happening, InstanceKey, Key, LeaseId, Ledger, Mode, Name, Revision};
use tenure_server::Node;

/// The history as far as any node has told it.
pub(crate) struct Chronicle {
    book: Book,
    events: Vec<Event>,
    /// How many of the events each machine has told in its present life.
    told: BTreeMap<usize, (Life, usize)>,
    /// The hash of the ledger after an entry.
    hashes: BTreeMap<u64, u64>,
    /// Who led in a term.
    leaders: BTreeMap<u64, u64>,
    /// The newest entry that any node has applied, and the service time then.
    newest: u64,
    now_ms: u64,
    /// When living leases end unless they are renewed, by the newest entry that said so.
    deadlines: BTreeMap<LeaseId, (u64, u64)>,
    /// What hangs on living leases: claims, keys and instances, as text.
    living: BTreeMap<LeaseId, BTreeSet<String>>,
    ended: BTreeSet<LeaseId>,
    /// Living leases that end with others.
    parents: BTreeMap<LeaseId, LeaseId>,
    /// Living leases that nothing renews: of class `cache`, and never with a claim.
    fixed: BTreeSet<LeaseId>,
    /// Held, or vacating.
    taken: BTreeMap<Name, BTreeMap<Fence, Mode>>,
    fence: u64,
}

impl Chronicle {
    pub(crate) fn new(book: Book) -> Self {
        Self {
            book,
            events: Vec::new(),
            told: BTreeMap::new(),
            hashes: BTreeMap::new(),
            leaders: BTreeMap::new(),
            newest: 0,
            now_ms: 0,
            deadlines: BTreeMap::new(),
            living: BTreeMap::new(),
            ended: BTreeSet::new(),
            parents: BTreeMap::new(),
            fixed: BTreeSet::new(),
            taken: BTreeMap::new(),
            fence: 0,
        }
    }

    /// All events, in order.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many terms had a leader that was seen.
    pub(crate) fn reigns(&self) -> usize {
        self.leaders.len()
    }

    /// Looks at a node.
    pub(crate) fn look(&mut self, life: Life, node: &Node, at: Duration) {
        let status = node.status();
        self.book.saw_applied(status.applied);
        let tenure_server::Extremes { steps, late_ms } = node.extremes();
        self.book.extremes(&Extremes { steps, late_ms, election_ms: 0 });
        if let Some(term) = status.leads_in {
            self.judge_leader(term, status.identity.node, at);
        }
        node.read_stale(|ledger| {
            self.judge_events(life, ledger, at);
            self.judge_state(status.applied, ledger, at);
            self.judge_deadlines(status.applied, ledger, at);
        });
    }

    fn judge_leader(&mut self, term: u64, node: u64, at: Duration) {
        let first = *self.leaders.entry(term).or_insert_with(|| {
            self.book.note(at, &format!("node {node} leads in term {term}"));
            node
        });
        if first != node {
            self.book.broken("S4", at, &format!("nodes {first} and {node} both lead in term {term}"));
        }
    }

    fn judge_state(&mut self, applied: u64, ledger: &Ledger, at: Duration) {
        let hash = ledger.state_hash();
        let known = *self.hashes.entry(applied).or_insert(hash);
        if known != hash {
            self.book.broken("S7", at, &format!("two ledgers differ after entry {applied}"));
        }
    }

    /// A ledger that is as far as another was has every lease that the other had, with a deadline no earlier.
    fn judge_deadlines(&mut self, applied: u64, ledger: &Ledger, at: Duration) {
        for (lease, (index, deadline)) in &self.deadlines {
            if applied < *index {
                continue;
            }
            match (ledger.lease(*lease), ledger.ended_lease(*lease)) {
                (Some(living), _) if living.deadline().millis() < *deadline => {
                    self.book.broken("S3", at, &format!("lease {lease} has an earlier deadline than it had"));
                }
                (None, Some(ended)) if ended.how == End::Expired && ended.when.millis() < *deadline => {
                    self.book.broken("S3", at, &format!("lease {lease} expired before its deadline"));
                }
                (Some(_), _) | (None, Some(_)) => {}
                (None, None) => self.book.broken("S10", at, &format!("lease {lease} is gone without a trace")),
            }
        }
        if applied < self.newest {
            return;
        }
        if ledger.now().millis() < self.now_ms {
            self.book.broken("S3", at, "service time went back");
        }
        (self.newest, self.now_ms) = (applied, ledger.now().millis());
        let living = ledger.leases_from(None).map(|(id, lease)| (id, (applied, lease.deadline().millis())));
        let before = std::mem::replace(&mut self.deadlines, living.collect());
        for lease in &self.fixed {
            let (was, is) = (before.get(lease), self.deadlines.get(lease));
            if was.zip(is).is_some_and(|((_, was), (_, is))| is > was) {
                self.book.broken("class", at, &format!("lease {lease} of class {CACHE} was renewed"));
            }
        }
    }

    /// Every node tells the same events, in order and without a gap, in each of its lives.
    fn judge_events(&mut self, life: Life, ledger: &Ledger, at: Duration) {
        let (told_in, count) = self.told.get(&life.machine).copied().unwrap_or((life, 0));
        let mut count = if told_in == life { count } else { 0 };
        let place = |event: &Event| (event.revision, event.n);
        let after = count.checked_sub(1).map_or((Revision(0), 0), |last| place(&self.events[last]));
        let events: Vec<Event> = match ledger.events_after(after) {
            Ok(events) => events.cloned().collect(),
            Err(_) => return self.book.broken("S13", at, "events were dropped that nobody had looked at"),
        };
        for event in events {
            match self.events.get(count) {
                Some(known) if *known == event => {}
                Some(known) => {
                    let what = format!("machine {} tells {event:?}, and another one told {known:?}", life.machine);
                    return self.book.broken("S13", at, &what);
                }
                None => self.take(event, at),
            }
            count += 1;
        }
        self.told.insert(life.machine, (life, count));
    }

    /// An event that nobody has told before.
    fn take(&mut self, event: Event, at: Duration) {
        let follows = match self.events.last() {
            Some(before) if before.last => event.revision.0 == before.revision.0 + 1 && event.n == 0,
            Some(before) => event.revision == before.revision && event.n == before.n + 1,
            None => event.n == 0,
        };
        if !follows {
            self.book.broken("S13", at, &format!("event {}.{} came after a gap", event.revision.0, event.n));
        }
        if self.events.last().is_some_and(|before| before.at > event.at) {
            self.book.broken("S3", at, "service time went back between two events");
        }
        self.book.note(at, &format!("event {}.{} {:?}", event.revision.0, event.n, event.what));
        self.judge_event(&event, at);
        self.events.push(event);
    }

    fn judge_event(&mut self, event: &Event, at: Duration) {
        match &event.what {
            Happening::Granted { lease, parent, class, .. } => {
                self.living.insert(*lease, BTreeSet::new());
                self.parents.extend(parent.map(|parent| (*lease, parent)));
                let is_fixed = class.as_ref().is_some_and(|class| class.as_str() == CACHE);
                self.fixed.extend(is_fixed.then_some(*lease));
            }
            Happening::Queued { lease, resource, .. } => self.stake(*lease, resource.to_string()),
            Happening::Seated { lease, resource, fence, mode, .. } => {
                if !self.living.contains_key(lease) {
                    self.book.broken("S14", at, &format!("{resource} was given to {lease}, which does not live"));
                }
                let taken = self.taken.entry(resource.clone()).or_default();
                taken.insert(*fence, *mode);
                let modes: Vec<Mode> = taken.values().copied().collect();
                if !sit_together(&modes, capacity(resource.as_str())) {
                    let what = format!("{resource} was given to {lease} while others are not over: {taken:?}");
                    self.book.broken("S1", at, &what);
                }
                if fence.number() <= self.fence {
                    let what = format!("{resource} was seated with fence {fence} after {}", self.fence);
                    self.book.broken("S5", at, &what);
                }
                self.fence = fence.number();
                self.stake(*lease, resource.to_string());
            }
            Happening::Vacated { lease, resource, fence, until, .. } => {
                self.unstake(*lease, resource.as_str());
                if until.is_none() {
                    self.free(resource, *fence);
                }
            }
            Happening::Freed { resource, fence, .. } => self.free(resource, *fence),
            Happening::Left { lease, resource, .. } => self.unstake(*lease, resource.as_str()),
            Happening::Registered { instance, lease, .. } => {
                let text = instance_text(instance);
                if self.living.values().any(|things| things.contains(&text)) {
                    self.book.broken("S18", at, &format!("{text} was registered while another one of its id lived"));
                }
                self.stake(*lease, text);
            }
            Happening::Deregistered { instance, lease, .. } => self.unstake(*lease, &instance_text(instance)),
            Happening::Put { key, lease, .. } => {
                for things in self.living.values_mut() {
                    things.remove(&key_text(key));
                }
                if let Some(lease) = lease {
                    self.stake(*lease, key_text(key));
                }
            }
            Happening::Deleted { key, lease: Some(lease), .. } => self.unstake(*lease, &key_text(key)),
            Happening::Ended { lease, how, .. } => self.judge_end(*lease, how, event, at),
            _ => {}
        }
        if event.last {
            self.judge_revision(at);
        }
    }

    fn stake(&mut self, lease: LeaseId, thing: String) {
        self.fixed.remove(&lease);
        self.living.entry(lease).or_default().insert(thing);
    }

    fn unstake(&mut self, lease: LeaseId, thing: &str) {
        if let Some(things) = self.living.get_mut(&lease) {
            things.remove(thing);
        }
    }

    fn free(&mut self, resource: &Name, fence: Fence) {
        if let Some(taken) = self.taken.get_mut(resource) {
            taken.remove(&fence);
        }
    }

    fn judge_end(&mut self, lease: LeaseId, how: &End, event: &Event, at: Duration) {
        if !self.ended.insert(lease) {
            self.book.broken("S8", at, &format!("lease {lease} ended twice"));
        }
        self.fixed.remove(&lease);
        let deadline = self.deadlines.get(&lease).map(|(_, deadline)| *deadline);
        if *how == End::Expired && deadline.is_some_and(|deadline| event.at.millis() < deadline) {
            self.book.broken("S3", at, &format!("lease {lease} expired before its deadline"));
        }
    }

    /// At the end of a revision nothing is left of what ended in it: no thing on a lease, and no lease below one.
    fn judge_revision(&mut self, at: Duration) {
        let ended = &self.ended;
        self.parents.retain(|lease, parent| {
            let is_over = ended.contains(lease);
            if !is_over && ended.contains(parent) {
                self.book.broken("S9", at, &format!("lease {parent} ended, and {lease} below it lives on"));
            }
            !is_over
        });
        self.living.retain(|lease, stakes| {
            let is_over = ended.contains(lease);
            if is_over && !stakes.is_empty() {
                self.book.broken("S9", at, &format!("lease {lease} ended and left {stakes:?} behind"));
            }
            !is_over
        });
    }
}

fn key_text(key: &Key) -> String {
    format!("key {}", key.bytes().escape_ascii())
}

fn instance_text(instance: &InstanceKey) -> String {
    format!("instance {instance}")
}
