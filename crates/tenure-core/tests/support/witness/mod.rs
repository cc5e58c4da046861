//! Watches a ledger from outside and holds it to its promises. It keeps its own books from replies and events alone, and
//! compares them with the ledger after every entry. It never looks inside.

mod asked;
mod books;
mod instances;
mod seen;
mod tree;

use super::model::keys::Changed;
use super::restored;
use asked::Asked;
use books::{Books, Staked, promise};
pub(crate) use seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Applied, Command, End, Entry, Event, Handle, Happening, InstanceKey, Lease, LeaseId, Ledger, Moment, Outcome,
    Refusal, Renewed, Reply, Revision, Stake, limits,
};

/// A ledger under observation, with a second one that reads the same log through its bytes and is restored from its
/// snapshot after every entry.
#[derive(Default)]
pub(crate) struct Witness {
    ledger: Ledger,
    second: Ledger,
    books: Books,
    revision: u64,
    /// Until when each life of an instance was said to be valid.
    valid: BTreeMap<(InstanceKey, LeaseId), Moment>,
}

impl Witness {
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn seen(&self) -> Seen {
        self.books.seen
    }

    /// Applies an entry and panics if a promise was broken.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        let before = self.ledger.clone();
        let applied = self.ledger.apply(entry);
        assert_eq!(applied.outcomes.len(), entry.commands.len(), "every command is answered");
        assert_eq!(self.ledger.now(), before.now().max(entry.now), "time follows the entries and never goes back");
        self.replicas_agree(entry, &applied);
        let mut moved = self.renewals(entry, &applied.outcomes);
        self.sweep_goes_by_time(&applied.events, &moved);
        let asked = Asked::new(entry, &applied.outcomes);
        for change in applied.events.chunk_by(|a, b| a.revision == b.revision) {
            self.numbered(entry, change);
            self.books.change(&asked, change);
        }
        self.books.entry_ends();
        assert_eq!(self.ledger.revision().0, self.revision, "every revision has its events");
        self.replies(entry, &applied.outcomes);
        self.acknowledged_is_kept(&applied);
        self.refusals_change_nothing(&before, entry, &applied.outcomes);
        let seats = applied.events.iter().filter(|event| matches!(event.what, Happening::Seated { .. }));
        moved.extend(seats.filter_map(|event| event.what.lease()));
        self.leases_agree(&moved);
        self.resources_agree();
        self.keys_agree();
        self.instances_agree();
        self.validity_is_kept(&applied.events);
        tree::no_circle(&self.books);
        self.nothing_is_overlooked(&applied);
        self.history_agrees(&before, &applied.events);
        applied
    }

    /// S7: the same entries make the same ledger, whether they were read from disk or not, with a restart or without.
    fn replicas_agree(&mut self, entry: &Entry, applied: &Applied) {
        let read = Entry::decode(&entry.encode()).expect("an entry that was written can be read");
        assert_eq!(&read, entry, "an entry survives its encoding");
        let second = self.second.apply(&read);
        assert_eq!(applied.outcomes, second.outcomes, "replicas answer alike");
        assert_eq!(applied.events, second.events, "replicas see the same events");
        assert_eq!(applied.unfinished, second.unfinished, "replicas are behind alike");
        assert_eq!(self.ledger.state_hash(), self.second.state_hash(), "replicas are equal");
        self.second = restored(&self.second);
        assert_eq!(self.ledger.state_hash(), self.second.state_hash(), "a snapshot loses nothing");
        assert_eq!(self.ledger.bytes(), self.second.bytes(), "what is counted along is what is there");
        self.second_shows_the_same(&applied.events);
    }

    /// Equal hashes say that two ledgers write the same; this says that what was left unwritten is not seen either.
    fn second_shows_the_same(&self, events: &[Event]) {
        let (one, two) = (&self.ledger, &self.second);
        assert_eq!((one.now(), one.revision(), one.last_fence()), (two.now(), two.revision(), two.last_fence()));
        let life = |(id, it): (LeaseId, &Lease)| {
            let times = (it.ttl(), it.deadline(), it.grace(), it.granted_wall_ms(), it.renewed(), it.renewed_wall_ms());
            let terms = (it.class().cloned(), it.lifetime(), it.is_final(), it.labels().clone(), it.reason().clone());
            let tree = (it.parent(), it.children().collect::<Vec<_>>(), it.keys().cloned().collect::<Vec<_>>());
            (id, it.holder().clone(), times, terms, tree, it.carried())
        };
        assert!(one.leases_from(None).map(life).eq(two.leases_from(None).map(life)), "leases survive a restart");
        for ((_, one), (_, two)) in one.leases_from(None).zip(two.leases_from(None)) {
            assert!(one.stakes().eq(two.stakes()), "claims survive a restart");
        }
        assert!(one.resources_from("").eq(two.resources_from("")), "resources survive a restart");
        assert!(one.keys_from(b"").eq(two.keys_from(b"")), "keys survive a restart");
        let instances = |ledger: &Ledger| -> Vec<_> {
            let services = ledger.services_from("").map(|(name, _)| name.clone());
            services
                .flat_map(|name| ledger.instances(&name, "").map(|(_, it)| it.clone()).collect::<Vec<_>>())
                .collect()
        };
        assert_eq!(instances(one), instances(two), "instances survive a restart");
        let kept = |ledger: &Ledger| -> Vec<_> {
            ledger.leases_from(None).map(|(_, it)| (it.suspect().copied(), it.gap_ms())).collect()
        };
        assert_eq!(kept(one), kept(two), "who is suspect survives a restart");
        assert_eq!((one.kv_bytes(), one.kv_compacted()), (two.kv_bytes(), two.kv_compacted()));
        let told = |ledger: &Ledger| -> Vec<Changed> {
            let oldest = ledger.kv_compacted().unwrap_or(0);
            ledger.changes_from(oldest).expect("it can be looked at").map(Changed::from).collect()
        };
        assert_eq!(told(one), told(two), "what keys were survives a restart");
        assert!(one.classes().eq(two.classes()), "classes survive a restart");
        let after = (Revision(events.first().map_or(one.revision().0, |event| event.revision.0 - 1)), u32::MAX);
        let remembered = two.events_after(after).expect("what just happened is remembered");
        assert!(remembered.eq(events), "events survive a restart");
        for what in events.iter().map(|event| &event.what) {
            if let Some(lease) = what.lease() {
                assert_eq!(one.ended_lease(lease), two.ended_lease(lease), "ended leases survive a restart");
            }
            if let Some(instance) = what.instance() {
                assert!(one.ended_instances(instance).eq(two.ended_instances(instance)), "ends survive a restart");
            }
            if let Some(name) = what.resource() {
                assert!(one.ended_claims(name).eq(two.ended_claims(name)), "ended claims survive a restart");
            }
        }
    }

    /// Renewals go first in their entry: a lease that lives when the entry starts is renewed, whatever its deadline,
    /// unless its class does not allow it. Returns the leases that were.
    fn renewals(&mut self, entry: &Entry, outcomes: &[Outcome]) -> BTreeSet<LeaseId> {
        let mut renewed = BTreeSet::new();
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            match (command.plain(), outcome) {
                (Command::Renew(renew), Ok(Reply::Renewed(answers))) => {
                    assert_eq!(renew.leases.len(), answers.len(), "each lease has its own answer");
                    for (renewal, answer) in renew.leases.iter().zip(answers) {
                        self.renewed(renewal.lease, answer.as_ref(), &mut renewed);
                    }
                }
                (Command::RenewHandle(renew), outcome) => match (self.behind(&renew.handle), outcome) {
                    (Some(lease), Ok(Reply::HandleRenewed(answer))) => self.renewed(lease, Ok(answer), &mut renewed),
                    (Some(lease), Err(refusal)) => self.renewed(lease, Err(refusal), &mut renewed),
                    (behind, outcome) => {
                        let stale = matches!(outcome, Err(Refusal::Stale { .. }));
                        assert!(behind.is_none() && stale, "a stale handle renews nothing: {outcome:?}");
                    }
                },
                _ => {}
            }
        }
        renewed
    }

    fn renewed(&mut self, lease: LeaseId, answer: Result<&Renewed, &Refusal>, renewed: &mut BTreeSet<LeaseId>) {
        let now = self.ledger.now();
        let life = self.books.alive.get(&lease);
        let answer = match answer {
            Ok(answer) => answer,
            Err(Refusal::NotRenewable { .. } | Refusal::TtlOfClass { .. }) => {
                assert!(life.is_some_and(|life| life.has_class), "only a class refuses a renewal");
                return;
            }
            Err(Refusal::Denied { key, .. }) => {
                let owner = self.ledger.lease(lease).and_then(Lease::owner);
                assert!(owner != Some(key), "a key renews its own lease");
                return;
            }
            Err(refusal) => {
                assert!(life.is_none(), "the living can be renewed: {refusal:?}");
                return;
            }
        };
        let life = life.expect("only the living are renewed");
        assert_eq!(answer.lease, lease, "an answer names its lease");
        if life.stakes.len() < limits::CONTENDED_MAX {
            let held = life.stakes.iter().filter(|(_, staked)| matches!(staked, Staked::Holding(_)));
            let lines = held.map(|(name, _)| &self.books.places[name].line);
            let waiters: Vec<_> = lines.flatten().map(|(_, arrival)| &self.books.groups[arrival]).collect();
            let longest = waiters.iter().map(|group| now.millis_since(group.since)).max().unwrap_or(0);
            let told = (answer.waiting, answer.longest_wait_ms);
            assert_eq!(told, (waiters.len() as u64, longest), "a holder is told who waits");
            let fences = life.stakes.values().filter_map(|staked| match staked {
                Staked::Holding(fence) => self.books.orders.get(fence),
                Staked::Waiting(_) => None,
            });
            let breaks = fences.map(|(at, _)| at.millis_since(now)).min();
            assert_eq!(answer.breaks_in_ms, breaks, "a holder is told of a break to come");
        }
        self.books.seen.saved_by_renewal += u64::from(life.ends_at <= now);
        let life = self.books.alive.get_mut(&lease).expect("only the living are renewed");
        life.promised = life.promised.max(promise(now, answer.ttl_ms));
        // What it ends at now is looked up when the entry is over; until then it must not be held to the old end.
        life.ends_at = life.ends_at.max(life.promised);
        renewed.insert(lease);
    }

    /// S3: whoever was told a TTL may count on it from now on, also if it was a retry that was answered.
    fn acknowledged_is_kept(&self, applied: &Applied) {
        let ended = |event: &Event| match event.what {
            Happening::Ended { lease, .. } => Some(lease),
            _ => None,
        };
        let over: BTreeSet<_> = applied.events.iter().filter_map(ended).collect();
        for outcome in applied.outcomes.iter().flatten() {
            let (lease, ttl_ms) = match outcome {
                Reply::Granted { lease, ttl_ms, .. } => (*lease, *ttl_ms),
                Reply::Waiting(place) => (place.lease, place.ttl_ms),
                Reply::Seated(seat) => (seat.lease, seat.ttl_ms),
                _ => continue,
            };
            // An id whose lease ended in this entry may live again as another.
            if let Some(living) = self.ledger.lease(lease).filter(|_| !over.contains(&lease)) {
                let left = living.deadline().millis_since(self.ledger.now());
                assert!(left >= ttl_ms, "lease {lease} was told {ttl_ms} ms and has {left}");
            }
        }
    }

    fn behind(&self, handle: &Handle) -> Option<LeaseId> {
        let seat = self.books.places.get(&handle.resource)?.held.get(&handle.fence)?;
        Some(seat.lease)
    }

    /// Leases end in the order in which they are due. When one is due that was renewed in vain just before, because its
    /// lifetime or its parent has run out, is not known from answers.
    fn sweep_goes_by_time(&self, events: &[Event], renewed: &BTreeSet<LeaseId>) {
        let expired = events.iter().filter_map(|event| match &event.what {
            Happening::Ended { lease, how: End::Expired | End::MaxLifetime, .. } if !renewed.contains(lease) => {
                let life = self.books.alive.get(lease).expect("only what lived before the entry expires in it");
                Some((life.ends_at, *lease))
            }
            _ => None,
        });
        assert!(expired.is_sorted(), "leases expire in order of time and id");
    }

    /// One visible change: its events have one revision and are counted.
    fn numbered(&mut self, entry: &Entry, change: &[Event]) {
        self.revision += 1;
        for (n, event) in change.iter().enumerate() {
            assert_eq!(event.revision.0, self.revision, "revisions have no gaps");
            assert_eq!(event.n as usize, n, "events are counted from 0 in their revision");
            assert_eq!(event.last, n + 1 == change.len(), "exactly the last event of a revision says so");
            assert_eq!(event.at, self.ledger.now(), "events say when they happened");
            assert_eq!(event.wall_ms, entry.wall_ms, "events show the wall clock of their entry");
        }
    }

    fn replies(&mut self, entry: &Entry, outcomes: &[Outcome]) {
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            match (command.plain(), outcome) {
                (Command::Acquire(acquire), Ok(Reply::Seated(seat))) => {
                    let names = seat.claims.iter().map(|handle| &handle.resource);
                    assert!(names.eq(acquire.wants.iter().map(|want| &want.resource)), "all is had, or nothing");
                    for handle in &seat.claims {
                        let given = self.books.seated.get(&handle.fence);
                        let own = (seat.lease, handle.resource.clone());
                        assert_eq!(given, Some(&own), "a reply shows a fence that is its own");
                    }
                }
                (_, Err(refusal)) => self.books.seen.refused(refusal),
                _ => {}
            }
        }
    }

    /// An entry in which everything was refused does what a tick does.
    fn refusals_change_nothing(&self, before: &Ledger, entry: &Entry, outcomes: &[Outcome]) {
        // A lease remembers the numbers of requests that were refused, too.
        let is_numbered = entry.commands.iter().any(|command| match command.plain() {
            Command::Acquire(acquire) => acquire.request.is_some(),
            Command::Register(register) => register.request.is_some(),
            Command::Deregister(order) => order.request.is_some(),
            _ => false,
        });
        if !outcomes.is_empty() && outcomes.iter().all(Result::is_err) && !is_numbered {
            let mut ticked = before.clone();
            ticked.apply(&Entry { commands: Vec::new(), ..entry.clone() });
            assert_eq!(ticked.state_hash(), self.ledger.state_hash(), "a refusal changes nothing");
        }
    }

    /// What the ledger shows of leases is what its events told. Deadlines move only for a reason, and never earlier.
    fn leases_agree(&mut self, moved: &BTreeSet<LeaseId>) {
        assert_eq!(self.ledger.lease_count(), self.books.alive.len(), "the living are counted");
        for ((id, lease), (alive, life)) in self.ledger.leases_from(None).zip(&mut self.books.alive) {
            assert_eq!(id, *alive, "the ledger has the leases that began and did not end");
            assert_eq!((lease.holder(), lease.parent()), (&life.holder, life.parent), "lease {id} is as granted");
            let (was, is) = (life.deadline.max(life.promised), lease.deadline());
            assert!(is >= was, "S3: lease {id} lives until {was} as promised, not until {is}");
            let known = is == was || was == Moment::default() || moved.contains(&id) || life.has_class;
            assert!(known, "lease {id} lives longer for no reason");
            (life.promised, life.deadline, life.ends_at) = (is, is, lease.ends_at());
            let stakes = lease.stakes().map(|(name, stake)| match stake {
                Stake::Holding(holding) => (name, Staked::Holding(holding.fence)),
                Stake::Waiting(arrival) => (name, Staked::Waiting(*arrival)),
            });
            assert!(stakes.eq(life.stakes.iter().map(|(name, staked)| (name, *staked))), "lease {id} has its claims");
            assert!(lease.keys().eq(&life.keys), "lease {id} has its keys");
            assert!(lease.instances().eq(&life.instances), "lease {id} has its instances");
            let parent = life.parent.and_then(|parent| self.ledger.lease(parent));
            assert!(parent.is_none_or(|parent| is <= parent.deadline()), "lease {id} outlives its parent");
        }
    }

    fn resources_agree(&mut self) {
        for (name, place) in self.books.places.iter_mut().filter(|(_, place)| place.is_guessed) {
            place.capacity = self.ledger.resource(name).map_or(place.capacity, tenure_core::Resource::capacity);
            place.is_guessed = false;
        }
        let names = self.ledger.resources_from("").map(|(name, _)| name);
        assert!(names.eq(self.books.places.keys()), "a resource is there while something keeps it");
        for (name, resource) in self.ledger.resources_from("") {
            let place = &self.books.places[name];
            let capacity = (resource.capacity(), resource.is_defined());
            assert_eq!(capacity, (place.capacity, place.defined), "the capacity of {name}");
            let held = place.held.iter().map(|(fence, seat)| (*fence, seat.lease));
            assert!(resource.holders().eq(held), "S1: {name} has its holders");
            assert!(resource.vacating().eq(place.vacating.keys().copied()), "{name} has its vacating claims");
            let line = place.line.iter().map(|(_, arrival)| *arrival);
            assert!(resource.arrivals().eq(line), "the line of {name} is in order");
            for (fence, seat) in &place.held {
                let holding = self.ledger.lease(seat.lease).and_then(|lease| lease.holding(name));
                let holding = holding.expect("a holder knows what it holds");
                assert_eq!((holding.fence, holding.mode), (*fence, seat.mode), "a claim is as it was seated");
            }
        }
        for (arrival, group) in &self.books.groups {
            let waiter = self.ledger.waiter(*arrival).expect("every waiter is there");
            let shown = (waiter.lease, &waiter.wants, waiter.since, waiter.limit);
            assert_eq!(shown, (group.lease, &group.wants, group.since, group.limit), "a waiter is as it came");
        }
    }

    fn keys_agree(&self) {
        assert_eq!(self.ledger.kv_revision(), self.books.kv_changes + 1, "the keyspace counts its changes");
        assert_eq!(self.ledger.key_count(), self.books.keys.len(), "keys are counted");
        for ((key, it), (written, by_events)) in self.ledger.keys_from(b"").zip(&self.books.keys) {
            assert_eq!(key, written, "the ledger has the keys that were put and not deleted");
            let shown = (it.lease, it.mod_revision, it.version);
            assert_eq!(shown, (by_events.lease, by_events.kv_revision, by_events.version), "a key is as it was put");
        }
    }

    /// A finished entry leaves nothing that is due, and nobody in line who could sit.
    fn nothing_is_overlooked(&self, applied: &Applied) {
        let (books, now) = (&self.books, self.ledger.now());
        let leases = books.alive.values().map(|life| life.ends_at);
        let limits = books.groups.values().filter_map(|group| group.limit);
        let stays = books.places.values().flat_map(|place| place.vacating.values().map(|stay| stay.until));
        let breaks = books.orders.values().map(|(at, _)| *at);
        let instances = self.ledger.services_from("").flat_map(|(_, service)| service.instances());
        let instances = instances.filter_map(|(_, it)| instances::first_due(it));
        let first = leases.chain(limits).chain(stays).chain(breaks).chain(instances).min();
        assert_eq!(applied.next_deadline.is_some(), first.is_some(), "there is a next deadline while anything is due");
        assert!(applied.next_deadline <= first, "nothing is due before the next deadline");
        assert_eq!(applied.next_deadline, self.ledger.next_deadline(), "the ledger knows its next deadline");
        if !applied.unfinished {
            // Commands may make what is due at once, and the sweep comes before them.
            let began = |event: &Event| matches!(event.what, Happening::Granted { .. }).then(|| event.what.lease());
            let new: BTreeSet<_> = applied.events.iter().filter_map(began).flatten().collect();
            let late = books.alive.iter().find(|(id, life)| life.ends_at <= now && !new.contains(id));
            assert!(late.is_none_or(|(id, _)| panic!("lease {id} is due")), "nobody is due");
            let late = books.groups.values().any(|it| it.since < now && it.limit.is_some_and(|limit| limit <= now));
            assert!(!late, "nobody stands in line beyond its limit");
            let late = books.places.values().flat_map(|place| place.vacating.values()).any(|stay| stay.until <= now);
            assert!(!late && books.orders.values().all(|(at, _)| *at > now), "a finished entry leaves nothing due");
            let sits = books.groups.values().find(|group| {
                let first = |name| books.places[name].line.first() == Some(&group.key);
                group.wants.iter().all(|(name, mode)| first(name) && books.places[name].fits(*mode))
            });
            assert!(sits.is_none_or(|group| panic!("lease {} could sit", group.lease)), "nobody could sit");
        }
    }

    fn history_agrees(&self, before: &Ledger, events: &[Event]) {
        let after = (before.revision(), u32::MAX);
        let remembered = self.ledger.events_after(after).expect("what just happened is remembered");
        assert!(remembered.eq(events), "a watch that resumes sees what happened, in order, without gaps");
        for event in events {
            if let Happening::Ended { lease, how, .. } = &event.what {
                let ended = self.ledger.ended_lease(*lease).expect("an end is remembered");
                // The id may have been used again and ended again in this entry.
                assert!(
                    ended.when == event.at && (ended.how == *how || events.len() > 2),
                    "an end is remembered as it was"
                );
            }
        }
    }
}
