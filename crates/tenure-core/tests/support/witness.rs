//! Watches a ledger from outside and holds it to its promises. It keeps its own books from replies and events alone, and
//! compares them with the ledger after every entry. It never looks inside.

use super::restored;
use std::collections::{BTreeMap, VecDeque};
use tenure_core::{
    Applied, Command, End, Entry, Event, Fence, Handle, Happening, Holder, Lease, LeaseId, Ledger, Moment, Name,
    Outcome, Renewal, Reply, Revision, Stake, Ttl,
};

/// A ledger under observation, with a second one that reads the same log through its bytes and is restored from its
/// snapshot after every entry.
#[derive(Default)]
pub(crate) struct Witness {
    ledger: Ledger,
    second: Ledger,
    alive: BTreeMap<LeaseId, Life>,
    /// Who holds each resource.
    held: BTreeMap<Name, LeaseId>,
    /// Who waits, in the order of arrival.
    lines: BTreeMap<Name, VecDeque<LeaseId>>,
    /// Every claim that was ever seated, by fence.
    seated: BTreeMap<Fence, (LeaseId, Name)>,
    revision: u64,
    pub(crate) seen: Seen,
}

/// What the witness knows of a living lease.
struct Life {
    holder: Holder,
    ttl: Ttl,
    /// Until when it was promised to live.
    promised: Moment,
    /// Holding, with the fence, or waiting.
    stakes: BTreeMap<Name, Option<Fence>>,
}

/// How often things happened, so that a test can tell that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) seated_from_line: u64,
    pub(crate) expired: u64,
    pub(crate) released: u64,
    pub(crate) revoked: u64,
    pub(crate) left_line: u64,
    pub(crate) saved_by_renewal: u64,
    pub(crate) refused: u64,
    pub(crate) ended_together: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.seated_from_line += other.seated_from_line;
        self.expired += other.expired;
        self.released += other.released;
        self.revoked += other.revoked;
        self.left_line += other.left_line;
        self.saved_by_renewal += other.saved_by_renewal;
        self.refused += other.refused;
        self.ended_together += other.ended_together;
    }

    pub(crate) fn assert_everything_was_seen(&self) {
        let counts = [self.seated_from_line, self.expired, self.released, self.revoked, self.left_line];
        let rarer = [self.saved_by_renewal, self.refused, self.ended_together];
        assert!(counts.iter().chain(&rarer).all(|count| *count > 0), "some rule was never put to the test: {self:?}");
    }
}

impl Witness {
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Applies an entry and panics if a promise was broken.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        let before = self.ledger.clone();
        let applied = self.ledger.apply(entry);
        assert_eq!(applied.outcomes.len(), entry.commands.len(), "every command is answered");
        assert_eq!(self.ledger.now(), before.now().max(entry.now), "time follows the entries and never goes back");
        self.replicas_agree(entry, &applied);
        self.renewals(entry, &applied.outcomes);
        self.sweep_goes_by_deadline(&applied.events);
        for change in applied.events.chunk_by(|a, b| a.revision == b.revision) {
            self.change(entry, change);
        }
        assert_eq!(self.ledger.revision().0, self.revision, "every revision has its events");
        self.replies(entry, &applied.outcomes);
        self.acknowledged_is_kept(&applied);
        self.refusals_change_nothing(&before, entry, &applied.outcomes);
        self.books_agree();
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
        self.second_shows_the_same(&applied.events);
    }

    /// Equal hashes say that two ledgers write the same; this says that what was left unwritten is not seen either.
    fn second_shows_the_same(&self, events: &[Event]) {
        let (one, two) = (&self.ledger, &self.second);
        assert_eq!((one.now(), one.revision(), one.last_fence()), (two.now(), two.revision(), two.last_fence()));
        let life =
            |(id, it): (LeaseId, &Lease)| (id, it.holder().clone(), it.ttl(), it.deadline(), it.granted_wall_ms());
        assert!(one.leases_from(None).map(life).eq(two.leases_from(None).map(life)), "leases survive a restart");
        assert!(one.resources_from("").eq(two.resources_from("")), "resources survive a restart");
        let after = (Revision(events.first().map_or(one.revision().0, |event| event.revision.0 - 1)), u32::MAX);
        let remembered = two.events_after(after).expect("what just happened is remembered");
        assert!(remembered.eq(events), "events survive a restart");
        for what in events.iter().map(|event| &event.what) {
            assert_eq!(one.ended_lease(what.lease()), two.ended_lease(what.lease()), "ended leases survive a restart");
            if let Some(name) = what.resource() {
                assert!(one.ended_claims(name).eq(two.ended_claims(name)), "ended claims survive a restart");
            }
        }
    }

    /// Renewals go first in their entry: a lease that lives when the entry starts is renewed, whatever its deadline.
    fn renewals(&mut self, entry: &Entry, outcomes: &[Outcome]) {
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            match (command, outcome) {
                (Command::Renew(renew), Ok(Reply::Renewed(answers))) => {
                    assert_eq!(renew.leases.len(), answers.len(), "each lease has its own answer");
                    for (renewal, answer) in renew.leases.iter().zip(answers) {
                        let lives = self.alive.contains_key(&renewal.lease);
                        assert_eq!(answer.is_ok(), lives, "exactly the living can be renewed");
                        self.renewed(*renewal, answer.as_ref().ok().copied());
                    }
                }
                (Command::RenewHandle(renew), outcome) => {
                    let behind = self.behind(&renew.handle);
                    assert_eq!(outcome.is_ok(), behind.is_some(), "exactly the current handle renews");
                    if let Ok(Reply::HandleRenewed(renewed)) = outcome {
                        assert_eq!(Some(renewed.lease), behind, "a handle renews its own lease");
                        self.renewed(Renewal { lease: renewed.lease, ttl: renew.ttl }, Some(*renewed));
                    }
                }
                _ => {}
            }
        }
    }

    fn renewed(&mut self, renewal: Renewal, answer: Option<tenure_core::Renewed>) {
        let Some(renewed) = answer else { return };
        let now = self.ledger.now();
        assert_eq!(renewed.lease, renewal.lease, "an answer names its lease");
        let life = self.alive.get_mut(&renewal.lease).expect("only the living are renewed");
        assert_eq!(renewed.ttl, renewal.ttl.unwrap_or(life.ttl), "a TTL is never silently changed");
        self.seen.saved_by_renewal += u64::from(life.promised <= now);
        life.ttl = renewed.ttl;
        life.promised = life.promised.max(now.after(renewed.ttl));
    }

    /// S3: whoever was told a TTL may count on it from now on, also if it was a retry that was answered.
    fn acknowledged_is_kept(&self, applied: &Applied) {
        let over = |lease| {
            let ended = |event: &Event| matches!(event.what, Happening::Ended { .. }) && event.what.lease() == lease;
            applied.events.iter().any(ended)
        };
        for outcome in applied.outcomes.iter().flatten() {
            let (lease, ttl_ms) = match outcome {
                Reply::Granted { lease, ttl_ms, .. } | Reply::Waiting { lease, ttl_ms, .. } => (*lease, *ttl_ms),
                Reply::Seated(seat) => (seat.lease, seat.ttl_ms),
                _ => continue,
            };
            // An id whose lease ended in this entry may live again as another.
            if let Some(living) = self.ledger.lease(lease).filter(|_| !over(lease)) {
                let left = living.deadline().millis_since(self.ledger.now());
                assert!(left >= ttl_ms, "lease {lease} was told {ttl_ms} ms and has {left}");
            }
        }
    }

    fn behind(&self, handle: &Handle) -> Option<LeaseId> {
        let (lease, resource) = self.seated.get(&handle.fence)?;
        let holds = *resource == handle.resource && self.held.get(resource) == Some(lease);
        let same = self.alive.get(lease)?.stakes.get(resource) == Some(&Some(handle.fence));
        (holds && same).then_some(*lease)
    }

    fn sweep_goes_by_deadline(&self, events: &[Event]) {
        let expired = events.iter().filter_map(|event| match &event.what {
            Happening::Ended { lease, how: End::Expired, .. } => {
                let life = self.alive.get(lease).expect("only what lived before the entry expires in it");
                Some((life.promised, *lease))
            }
            _ => None,
        });
        assert!(expired.is_sorted(), "leases expire in order of deadline and id");
    }

    /// One visible change: its events have one revision and are counted.
    fn change(&mut self, entry: &Entry, change: &[Event]) {
        self.revision += 1;
        for (n, event) in change.iter().enumerate() {
            assert_eq!(event.revision.0, self.revision, "revisions have no gaps");
            assert_eq!(event.n as usize, n, "events are counted from 0 in their revision");
            assert_eq!(event.last, n + 1 == change.len(), "exactly the last event of a revision says so");
            assert_eq!(event.at, self.ledger.now(), "events say when they happened");
            assert_eq!(event.wall_ms, entry.wall_ms, "events show the wall clock of their entry");
            self.happened(event);
        }
        let ends = change.iter().position(|event| matches!(event.what, Happening::Ended { .. }));
        if let Some(at) = ends {
            assert_eq!(at + 1, change.len(), "the end of a lease comes last");
            let lease = change[at].what.lease();
            assert!(change.iter().all(|event| event.what.lease() == lease), "one lease ends at one revision");
            self.seen.ended_together += u64::from(change.len() > 2);
        }
    }

    fn happened(&mut self, event: &Event) {
        let now = event.at;
        match &event.what {
            Happening::Granted { lease, holder, ttl } => {
                let stakes = BTreeMap::new();
                let life = Life { holder: holder.clone(), ttl: *ttl, promised: now.after(*ttl), stakes };
                assert!(self.alive.insert(*lease, life).is_none(), "a living lease is not granted again");
            }
            Happening::Queued { resource, lease, holder } => {
                self.staked(*lease, holder, resource, None);
                self.lines.entry(resource.clone()).or_default().push_back(*lease);
            }
            Happening::Seated { resource, lease, holder, fence, ttl } => {
                self.seat(*lease, resource, *fence);
                self.staked(*lease, holder, resource, Some(*fence));
                let life = self.alive.get_mut(lease).expect("S14: a dead waiter is never seated");
                assert_eq!(life.ttl, *ttl, "a seat says the TTL of its lease");
                life.promised = life.promised.max(now.after(*ttl));
            }
            Happening::Vacated { resource, lease, fence, .. } => {
                assert_eq!(self.held.remove(resource), Some(*lease), "only the holder vacates");
                assert_eq!(self.unstaked(*lease, resource), Some(*fence), "a claim ends with its own fence");
            }
            Happening::Left { resource, lease } => {
                let line = self.lines.get_mut(resource).expect("who leaves a line stood in it");
                let place = line.iter().position(|waiter| waiter == lease).expect("who leaves a line stood in it");
                line.remove(place);
                assert_eq!(self.unstaked(*lease, resource), None, "a waiter has no fence");
                self.seen.left_line += 1;
            }
            Happening::Ended { lease, holder, how } => self.ended(*lease, holder, how, now),
        }
    }

    /// S1, S5, no barging, first come first served.
    fn seat(&mut self, lease: LeaseId, resource: &Name, fence: Fence) {
        let before = self.held.insert(resource.clone(), lease);
        assert_eq!(before, None, "S1: at most one lease holds {resource}");
        let highest = self.seated.last_key_value().map(|(fence, _)| *fence);
        assert!(highest < Some(fence), "S5: fences strictly increase");
        self.seated.insert(fence, (lease, resource.clone()));
        let next = self.lines.get_mut(resource).and_then(VecDeque::pop_front);
        assert!(next.is_none_or(|next| next == lease), "the first in line is seated, and nobody before it");
        if next.is_some() {
            assert_eq!(self.unstaked(lease, resource), None, "a waiter has no fence");
            self.seen.seated_from_line += 1;
        }
    }

    fn staked(&mut self, lease: LeaseId, holder: &Holder, resource: &Name, fence: Option<Fence>) {
        let life = self.alive.get_mut(&lease).expect("only a living lease claims anything");
        assert_eq!(&life.holder, holder, "events name the holder of their lease");
        let before = life.stakes.insert(resource.clone(), fence);
        assert_eq!(before, None, "a lease has one claim on a resource");
    }

    fn unstaked(&mut self, lease: LeaseId, resource: &Name) -> Option<Fence> {
        let life = self.alive.get_mut(&lease).expect("only a living lease has claims");
        life.stakes.remove(resource).expect("only what was claimed is given up")
    }

    /// S3, S8, S9.
    fn ended(&mut self, lease: LeaseId, holder: &Holder, how: &End, now: Moment) {
        let life = self.alive.remove(&lease).expect("S8: a lease ends exactly once");
        assert_eq!(&life.holder, holder, "an end names the holder of its lease");
        assert!(life.stakes.is_empty(), "S9: all that hangs on a lease ends with it");
        match how {
            End::Expired => {
                assert!(life.promised <= now, "S3: {lease} was promised {} and expired at {now}", life.promised);
                self.seen.expired += 1;
            }
            End::Released => self.seen.released += 1,
            End::Revoked { .. } => self.seen.revoked += 1,
        }
    }

    fn replies(&mut self, entry: &Entry, outcomes: &[Outcome]) {
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            match (command, outcome) {
                (Command::Acquire(acquire), Ok(Reply::Seated(seat))) => {
                    let given = self.seated.get(&seat.fence);
                    assert_eq!(
                        given,
                        Some(&(seat.lease, acquire.resource.clone())),
                        "a reply shows a fence that is its own"
                    );
                }
                (_, Err(_)) => self.seen.refused += 1,
                _ => {}
            }
        }
    }

    /// An entry in which everything was refused does what a tick does.
    fn refusals_change_nothing(&self, before: &Ledger, entry: &Entry, outcomes: &[Outcome]) {
        if !outcomes.is_empty() && outcomes.iter().all(Result::is_err) {
            let mut ticked = before.clone();
            ticked.apply(&Entry { commands: Vec::new(), ..entry.clone() });
            assert_eq!(ticked.state_hash(), self.ledger.state_hash(), "a refusal changes nothing");
        }
    }

    /// What the ledger shows is what its events told.
    fn books_agree(&self) {
        assert_eq!(self.ledger.lease_count(), self.alive.len(), "the living are counted");
        for ((id, lease), (alive, life)) in self.ledger.leases_from(None).zip(&self.alive) {
            assert_eq!(id, *alive, "the ledger has the leases that began and did not end");
            assert_eq!((lease.holder(), lease.ttl()), (&life.holder, life.ttl), "lease {id} is as granted and renewed");
            assert_eq!(lease.deadline(), life.promised, "S3: lease {id} lives until what was promised, no shorter");
            let stakes = lease.stakes().map(|(name, stake)| match stake {
                Stake::Holding { fence } => (name, Some(fence)),
                Stake::Waiting { .. } => (name, None),
            });
            assert!(stakes.eq(life.stakes.iter().map(|(name, fence)| (name, *fence))), "lease {id} has its claims");
        }
        let held = self.ledger.resources_from("").filter_map(|(name, r)| Some((name, r.holding()?.lease)));
        assert!(held.eq(self.held.iter().map(|(name, lease)| (name, *lease))), "S1: each resource has its holder");
        for (name, resource) in self.ledger.resources_from("") {
            let line = self.lines.get(name).into_iter().flatten().copied();
            assert!(resource.waiters().eq(line), "the line of {name} is in order of arrival");
            if let Some(holding) = resource.holding() {
                let claim = self.seated.get(&holding.fence);
                assert_eq!(claim, Some(&(holding.lease, name.clone())), "the holder of {name} has its own fence");
            }
        }
        let waited_for = self.lines.iter().filter(|(_, line)| !line.is_empty());
        assert!(waited_for.clone().all(|(name, _)| self.ledger.resource(name).is_some()), "no line is lost");
    }

    /// What is due or free after an entry is said to be left over, and nothing else is.
    fn nothing_is_overlooked(&self, applied: &Applied) {
        let due = self.alive.values().any(|life| life.promised <= self.ledger.now());
        let free = self.ledger.resources_from("").any(|(_, resource)| resource.holding().is_none());
        assert_eq!(applied.unfinished, due || free, "a finished entry leaves no due lease and no free seat");
        let first = self.alive.values().map(|life| life.promised).min();
        assert_eq!(applied.next_deadline.is_some(), first.is_some(), "there is a next deadline while a lease lives");
        assert!(applied.next_deadline <= first, "no lease is due before the next deadline");
        assert_eq!(applied.next_deadline, self.ledger.next_deadline(), "the ledger knows its next deadline");
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
