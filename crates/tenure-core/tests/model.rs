//! The ledger against a second, naive model of the same rules, over random histories; and the promise that nobody who
//! waits and keeps renewing is passed over for ever. `TENURE_CASES=10` runs ten times as many cases.

#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::history::{Looking, instance_plans, key_plans, looking, plans};
use crate::support::model::Model;
use crate::support::model::keys::Changed;
use crate::support::model::view;
use crate::support::tally::Tally;
use crate::support::{a_grant, entry, id, name, restored, runner};
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::{collection, sample};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tenure_core::{
    Acquire, Actor, ApiKeyName, Command, Define, Entry, Happening, Keys, Kind, LeaseId, Ledger, Mode, On, Op, OpDone,
    Outcome, Priority, Range, Reach, Refusal, ReleaseLease, Renew, Renewal, Reply, Span, Txn, Units, Wait, Want,
    limits,
};

/// The ledger, the model, and a replica that reads the same log through its bytes and is restored after every entry.
#[derive(Default)]
struct Pair {
    ledger: Ledger,
    model: Model,
    replica: Ledger,
    tally: Tally,
}

impl Pair {
    fn apply(&mut self, entry: &Entry) {
        let before = self.ledger.clone();
        let applied = self.ledger.apply(entry);
        let (outcomes, events) = self.model.apply(entry);
        let answers: Vec<Outcome> = applied.outcomes.iter().map(without_circle).collect();
        assert_eq!(answers, outcomes, "the ledger answers (left) as the rules say (right): {entry:#?}");
        assert_eq!(applied.events, events, "what happens (left) is what the rules say (right): {entry:#?}");
        let (shown, ruled) = (view::of_ledger(&self.ledger), self.model.view());
        assert_eq!(shown, ruled, "the ledger (left) is as the rules say (right): {entry:#?}");
        assert_eq!(self.model.deadlocked(), [], "nobody waits for itself: {entry:#?}");
        assert!(!applied.unfinished, "little is done in one entry");
        assert_eq!(applied.next_deadline.is_some(), self.model.next_due().is_some(), "what is due some time is known");
        assert!(applied.next_deadline <= self.model.next_due(), "nothing is due before the next deadline");
        self.replica_agrees(entry);
        self.past_agrees(entry);
        self.tally.entry(&before, entry, &applied);
        self.tally.state(&self.ledger);
    }

    fn replica_agrees(&mut self, entry: &Entry) {
        let read = Entry::decode(&entry.encode()).expect("an entry that was written can be read");
        assert_eq!(&read, entry, "an entry survives its encoding");
        self.replica.apply(&read);
        let hash = self.ledger.state_hash();
        assert_eq!(hash, self.replica.state_hash(), "replicas are equal");
        self.replica = restored(&self.replica);
        assert_eq!(hash, self.replica.state_hash(), "a snapshot loses nothing");
    }
}

impl Pair {
    /// What keys were, seen from any revision, is what the rules say; a restart makes no difference.
    fn past_agrees(&mut self, entry: &Entry) {
        for ledger in [&self.ledger, &self.replica] {
            assert_eq!(ledger.kv_compacted(), self.model.compacted(), "what can be looked at: {entry:#?}");
            assert_eq!(ledger.kv_bytes(), self.model.kv_bytes(), "what all keys weigh: {entry:#?}");
            for revision in 0..ledger.kv_revision() + 2 {
                let told = ledger.changes_from(revision).map(|all| all.map(Changed::from).collect::<Vec<_>>());
                assert_eq!(told, self.model.changes_from(revision), "changes from {revision} on: {entry:#?}");
                let range = Range { revision: i64::try_from(revision).ok(), ..Range::of(Keys::Prefix([][..].into())) };
                assert_eq!(ledger.range(&range), self.model.range(&range), "all keys at {revision}: {entry:#?}");
            }
        }
    }

    /// Looks at keys.
    fn look(&mut self, looking: &Looking) {
        let range = looking.range(&self.ledger);
        let ranged = self.ledger.range(&range);
        assert_eq!(ranged, self.model.range(&range), "what is found (left) is what the rules say (right): {range:#?}");
        assert_eq!(ranged, self.replica.range(&range), "and also after a restart: {range:#?}");
        let alone = self.ledger.read_txn(&Txn::of(Op::Range(range.clone()))).map(|mut done| done.ops.remove(0));
        let kv_revision = self.ledger.kv_revision();
        let ranged = ranged.map(|ranged| OpDone::Range { kv_revision, ranged });
        assert_eq!(alone, ranged, "a transaction that only looks sees the same: {range:#?}");
        self.tally.range(&self.ledger, &range, &ranged);
    }
}

/// The model does not say by which way a circle was found.
fn without_circle(outcome: &Outcome) -> Outcome {
    match outcome {
        Err(Refusal::WouldDeadlock { resource, circle }) => {
            assert!(!circle.is_empty(), "a circle has members");
            Err(Refusal::WouldDeadlock { resource: resource.clone(), circle: Vec::new() })
        }
        other => other.clone(),
    }
}

#[test]
fn the_ledger_and_the_model_agree() {
    let tally = RefCell::new(Tally::default());
    let result = runner(10_000, file!()).run(&plans(30), |plans| {
        let mut pair = Pair::default();
        for plan in &plans {
            let entry = plan.entry(&pair.ledger);
            pair.apply(&entry);
        }
        tally.borrow_mut().add(&pair.tally);
        Ok(())
    });
    result.unwrap();
    println!("{:#?}", tally.borrow());
    tally.borrow().assert_everything_was_seen();
}

/// The same with histories that are mostly about keys, and looks at them after each entry.
#[test]
fn the_ledger_and_the_model_agree_on_keys() {
    let tally = RefCell::new(Tally::default());
    let looks = collection::vec(collection::vec(looking(), 3), 20);
    let result = runner(2000, file!()).run(&(key_plans(20), looks), |(plans, looks)| {
        let mut pair = Pair::default();
        for (plan, looks) in plans.iter().zip(&looks) {
            let entry = plan.entry(&pair.ledger);
            pair.apply(&entry);
            looks.iter().for_each(|looking| pair.look(looking));
        }
        tally.borrow_mut().add(&pair.tally);
        Ok(())
    });
    result.unwrap();
    println!("{:#?}", tally.borrow());
    tally.borrow().assert_all_about_keys_was_seen();
}

/// The same with histories that are mostly about instances.
#[test]
fn the_ledger_and_the_model_agree_on_instances() {
    let tally = RefCell::new(Tally::default());
    let result = runner(2000, file!()).run(&instance_plans(30), |plans| {
        let mut pair = Pair::default();
        for plan in &plans {
            let entry = plan.entry(&pair.ledger);
            pair.apply(&entry);
        }
        tally.borrow_mut().add(&pair.tally);
        Ok(())
    });
    result.unwrap();
    println!("{:#?}", tally.borrow());
    tally.borrow().assert_all_about_instances_was_seen();
}

/// API keys of which there are few, so that they meet each other's leases.
fn actor() -> impl Strategy<Value = Option<Actor>> {
    let actor =
        |key, reach, leases_max| Just(Some(Actor { key: ApiKeyName::parse(key).unwrap(), reach, leases_max })).boxed();
    prop_oneof![
        1 => Just(None).boxed(),
        2 => actor("ann", Reach::All, None),
        4 => actor("bob", Reach::Own, None),
        2 => actor("cyd", Reach::Own, Some(2)),
        2 => actor("dan", Reach::Named, None),
    ]
}

/// The same with commands that are sent with API keys, of which most may not change everything.
#[test]
fn ledger_and_model_agree_on_rights() {
    let tally = RefCell::new(Tally::default());
    let histories = prop_oneof![plans(30).boxed(), key_plans(30).boxed(), instance_plans(30).boxed()];
    let actors = collection::vec(collection::vec(actor(), 16), 30);
    let result = runner(3000, file!()).run(&(histories, actors), |(plans, actors)| {
        let mut pair = Pair::default();
        for (plan, actors) in plans.iter().zip(actors) {
            let mut entry = plan.entry(&pair.ledger);
            for (command, actor) in entry.commands.iter_mut().zip(actors) {
                if let Some(actor) = actor {
                    *command = command.clone().sent_with(actor);
                }
            }
            pair.apply(&entry);
        }
        tally.borrow_mut().add(&pair.tally);
        Ok(())
    });
    result.unwrap();
    println!("{:#?}", tally.borrow());
    tally.borrow().assert_rights_were_seen();
}

/// How many entries a seat is held at most.
const HELD_MAX: u64 = 4;

/// Who comes in one entry: what each wants, and how many entries it will hold it.
type Arrivals = Vec<(Vec<Want>, u64)>;

fn arrivals() -> impl Strategy<Value = Vec<(u64, Arrivals)>> {
    let units = |number: u64| Mode::Units(Units::from_number(number).unwrap());
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), Just(units(1)), Just(units(3))];
    let resources = sample::subsequence(vec!["a", "b", "c"], 1..=3);
    let wants = (resources, collection::vec(mode, 3)).prop_map(|(resources, modes)| {
        let want = |(resource, mode)| Want { resource: name(resource), mode, capacity: None };
        resources.into_iter().zip(modes).map(want).collect()
    });
    collection::vec((0..100_u64, collection::vec((wants, 1..=HELD_MAX), 0..4)), 1..40)
}

/// Somebody who came, until it has held what it wanted.
struct Guest {
    /// How many entries it will hold it.
    holds: u64,
    /// When it must be seated, or leaves, counted in entries.
    turn: Turn,
}

enum Turn {
    SeatedBy(u64),
    LeavesAt(u64),
}

/// A ledger whose guests keep renewing and leave in time.
struct House {
    ledger: Ledger,
    guests: BTreeMap<LeaseId, Guest>,
    entries: u64,
    came: u64,
    waited: u64,
}

impl House {
    fn open() -> Self {
        let mut ledger = Ledger::default();
        let capacity = Units::from_number(4);
        let define = |resource| Command::Define(Define { resource: name(resource), capacity });
        ledger.apply(&entry(0, ["a", "b", "c"].map(define).to_vec()));
        Self { ledger, guests: BTreeMap::new(), entries: 0, came: 0, waited: 0 }
    }

    /// One entry: everybody renews, some leave, some come.
    fn step(&mut self, pause_ms: u64, arrivals: Arrivals) {
        self.entries += 1;
        let is_over = |guest: &Guest| matches!(guest.turn, Turn::LeavesAt(entry) if entry <= self.entries);
        let leaving: Vec<LeaseId> = self.guests.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        let leases = self.guests.keys().map(|lease| Renewal { lease: *lease, ttl: None }).collect();
        let mut commands = vec![Command::Renew(Renew { leases, kind: Kind::Auto })];
        for lease in leaving {
            self.guests.remove(&lease);
            commands.push(Command::ReleaseLease(ReleaseLease::plain(lease)));
        }
        for (wants, holds) in arrivals {
            commands.push(self.welcome(wants, holds));
        }
        let at_ms = self.ledger.now().millis() + pause_ms;
        let applied = self.ledger.apply(&entry(at_ms, commands));
        assert!(applied.outcomes.iter().all(Result::is_ok), "{:?}", applied.outcomes);
        self.waited += applied.outcomes.iter().filter(|it| matches!(it, Ok(Reply::Waiting(_)))).count() as u64;
        for event in &applied.events {
            if let Happening::Seated { lease, .. } = event.what {
                let guest = self.guests.get_mut(&lease).expect("only guests are seated");
                guest.turn = Turn::LeavesAt(self.entries + guest.holds);
            }
        }
        for (lease, guest) in &self.guests {
            let is_passed_over = matches!(guest.turn, Turn::SeatedBy(entry) if entry < self.entries);
            assert!(!is_passed_over, "{lease} should have been seated before entry {}", self.entries);
        }
    }

    /// Who is first in all its lines is seated when those leave who hold what it wants: after as many entries as a
    /// seat is held at most. So each of those who stand before a guest costs it so many entries, and it does itself.
    fn welcome(&mut self, wants: Vec<Want>, holds: u64) -> Command {
        self.came += 1;
        let before = self.guests.values().filter(|guest| matches!(guest.turn, Turn::SeatedBy(_))).count() as u64;
        let turn = Turn::SeatedBy(self.entries + (before + 1) * HELD_MAX);
        self.guests.insert(id(self.came), Guest { holds, turn });
        // Several resources are waited for with a limit in any case: here, with one that is never reached.
        let longest = Span::at_most(limits::WAIT_MS_MAX, limits::WAIT_MS_MAX).ok();
        let limit = longest.filter(|_| wants.len() > 1);
        Command::Acquire(Acquire {
            on: On::New(a_grant(self.came, 1000)),
            wants,
            wait: Wait::InLine { limit },
            priority: Priority::default(),
            lock_delay: Span::ZERO,
            epoch: None,
            request: None,
            secret: None,
        })
    }
}

/// Among equal priorities who waits, renews and has no limit is seated in its turn, whoever comes later.
#[test]
fn nobody_starves() {
    let waited = RefCell::new(0);
    let result = runner(1000, file!()).run(&arrivals(), |steps| {
        let mut house = House::open();
        for (pause_ms, arrivals) in steps {
            house.step(pause_ms, arrivals);
        }
        while !house.guests.is_empty() {
            house.step(10, Vec::new());
        }
        *waited.borrow_mut() += house.waited;
        Ok(())
    });
    result.unwrap();
    println!("{} waited", waited.borrow());
    assert!(*waited.borrow() > 0, "nobody had to wait");
}
