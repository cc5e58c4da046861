//! Much at once: what holds for three holds for ten thousand, and every replica does the same, however it came to be.

use crate::support::{
    accepted_by, acquire, acquire_all, acquire_on, entry, force, grant, grant_under, id, name, order, put, renew,
    restored, tick, units,
};
use tenure_core::{
    Applied, Break, Command, Define, Entry, Event, Free, Hang, Happening, Ledger, Mode, Refusal, Reply, Span, Units,
    Wait, limits,
};

/// Two ledgers, one that lived and one that is restored from a snapshot before every entry. They must not be told apart.
#[derive(Default)]
struct Pair {
    lived: Ledger,
    restored: Ledger,
}

impl Pair {
    fn apply(&mut self, entry: &Entry) -> Applied {
        self.restored = restored(&self.restored);
        let (one, two) = (self.lived.apply(entry), self.restored.apply(entry));
        assert_eq!(one.outcomes, two.outcomes, "replicas answer alike");
        assert_eq!(one.events, two.events, "replicas see the same events");
        assert_eq!(one.unfinished, two.unfinished, "replicas are behind alike");
        assert_eq!(self.lived.state_hash(), self.restored.state_hash(), "replicas are equal");
        assert_eq!(self.lived.bytes(), self.restored.bytes(), "and as large");
        one
    }

    /// Commands at one moment, many an entry, each answered with a yes.
    fn all_accepted(&mut self, at_ms: u64, commands: impl IntoIterator<Item = Command>) {
        accepted_by(|entry| self.apply(entry).outcomes, at_ms, commands);
    }

    /// Ticks until nothing is left over, and returns what happened.
    fn finish(&mut self, at_ms: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..1000 {
            let applied = self.apply(&tick(at_ms));
            events.extend(applied.events);
            if !applied.unfinished {
                return events;
            }
        }
        panic!("it never comes to an end");
    }
}

fn count(events: &[Event], is_it: impl Fn(&Happening) -> bool) -> usize {
    events.iter().filter(|event| is_it(&event.what)).count()
}

fn is_seated(what: &Happening) -> bool {
    matches!(what, Happening::Seated { .. })
}

/// One lease holds ten thousand resources, for each of which somebody waits; it ends, and all of them are seated.
#[test]
fn one_lease_with_a_line_for_each_of_its_claims() {
    let (mut pair, claims) = (Pair::default(), limits::ATTACHED_MAX as u64);
    let resource = |n: u64| format!("r/{n:05}");
    pair.all_accepted(0, [grant(1, 1000)]);
    pair.all_accepted(0, (0..claims).map(|n| acquire_on(1, &resource(n), Wait::Never)));
    pair.all_accepted(1, (0..claims).map(|n| acquire(10 + n, &resource(n), 60_000)));
    let applied = pair.apply(&tick(1000));
    let ended = applied.events.iter().take_while(|event| event.revision == applied.events[0].revision);
    assert_eq!(ended.count() as u64, claims + 1, "all of it ends at one revision");
    let mut events = applied.events;
    events.extend(pair.finish(1000));
    assert_eq!(count(&events, is_seated) as u64, claims);
    let in_order = events.iter().filter(|event| is_seated(&event.what)).map(|event| event.what.lease());
    assert!(in_order.eq((0..claims).map(|n| Some(id(10 + n)))), "whoever came first is seated first");
}

/// The same with claims that vacate: they are freed when their time comes, and nobody is seated before.
#[test]
fn ten_thousand_claims_that_vacate() {
    let (mut pair, claims) = (Pair::default(), limits::ATTACHED_MAX as u64);
    let resource = |n: u64| format!("r/{n:05}");
    pair.all_accepted(0, [grant(1, 1000)]);
    pair.all_accepted(0, (0..claims).map(|n| acquire_on(1, &resource(n), Wait::Never)));
    pair.all_accepted(1, (0..claims).map(|n| acquire(10 + n, &resource(n), 60_000)));
    let which = tenure_core::Which::Lease(id(1));
    let revoke = Command::Revoke(tenure_core::Revoke { which, force: force(Free::WhenVacated) });
    pair.all_accepted(500, [revoke]);
    assert_eq!(pair.finish(999).len(), 0);
    let events = pair.finish(1000);
    assert_eq!(count(&events, |what| matches!(what, Happening::Freed { .. })) as u64, claims);
    assert_eq!(count(&events, is_seated) as u64, claims);
}

/// Ten thousand things of all kinds hang on one tree, and end at once.
#[test]
fn ten_thousand_things_end_at_once() {
    let (mut pair, each) = (Pair::default(), 2000);
    pair.all_accepted(0, [grant(1, 1000), acquire(2, "busy", 60_000)]);
    pair.all_accepted(0, (0..each).map(|n| grant_under(1, 100 + n, 60_000)));
    pair.all_accepted(0, (0..each).map(|n| put(&format!("k/{:05}", each - n), Hang::On(id(100 + n)))));
    pair.all_accepted(0, (0..each).map(|n| put(&format!("l/{n:05}"), Hang::On(id(1)))));
    pair.all_accepted(0, (0..each).map(|n| acquire_on(100 + n, "busy", Wait::IN_LINE)));
    pair.all_accepted(0, (0..each).map(|n| acquire_on(100 + n, &format!("r/{n:05}"), Wait::Never)));
    assert_eq!(pair.lived.lease(id(1)).unwrap().carried(), limits::ATTACHED_MAX);
    let (kv_revision, revision) = (pair.lived.kv_revision(), pair.lived.revision());
    let events = pair.finish(1000);
    assert!(events.iter().all(|event| event.revision.0 == revision.0 + 1), "at one revision");
    assert_eq!(pair.lived.kv_revision(), kv_revision + 1, "and at one of the keyspace");
    let keys: Vec<_> = events.iter().filter_map(|event| event.what.key()).collect();
    assert!(keys.len() as u64 == 2 * each && keys.is_sorted());
    assert!(events[keys.len()..].iter().all(|event| event.what.key().is_none()), "the keys go first");
    assert_eq!((pair.lived.lease_count(), pair.lived.key_count()), (1, 0));
    assert_eq!(pair.lived.resources_from("").count(), 1);
}

/// Ten thousand claims share a resource, and are broken by one order.
#[test]
fn ten_thousand_claims_are_broken() {
    let (mut pair, claims) = (Pair::default(), limits::HOLDERS_MAX as u64);
    pair.all_accepted(0, (1..=claims).map(|lease| acquire_all(lease, &["db"], Mode::Shared, 60_000)));
    pair.all_accepted(0, [acquire(claims + 1, "db", 60_000)]);
    let order = |delay| Break { resource: name("db"), fence: None, force: force(Free::Now), delay };
    let applied = pair.apply(&entry(0, vec![Command::Break(order(crate::support::span(1000)))]));
    assert_eq!(applied.outcomes, [Ok(Reply::Broken { claims, free_in_ms: 1000 })]);
    assert_eq!(applied.events.len() as u64, claims);
    let events = pair.finish(1000);
    assert_eq!(count(&events, |what| matches!(what, Happening::Ended { .. })) as u64, claims);
    assert_eq!(count(&events, is_seated), 1);
    // And at once.
    pair.all_accepted(2000, (1..=claims).map(|lease| acquire_all(20_000 + lease, &["log"], Mode::Shared, 60_000)));
    let order = Break { resource: name("log"), ..order(Span::ZERO) };
    let applied = pair.apply(&entry(2000, vec![Command::Break(order)]));
    assert_eq!(applied.outcomes, [Ok(Reply::Broken { claims, free_in_ms: 0 })]);
}

/// Ten thousand wait for units that come at once; as many leave because they ask for too much.
#[test]
fn a_capacity_that_changes_for_ten_thousand() {
    let (mut pair, waiters) = (Pair::default(), limits::WAITERS_MAX as u64);
    let define = |capacity| Command::Define(Define { resource: name("gpu"), capacity: Units::from_number(capacity) });
    pair.all_accepted(0, [define(4), acquire(1, "gpu", 600_000)]);
    pair.all_accepted(0, (0..waiters).map(|n| acquire_all(10 + n, &["gpu"], units(1 + n % 4), 600_000)));
    let applied = pair.apply(&entry(1, vec![define(2)]));
    assert_eq!(count(&applied.events, |what| matches!(what, Happening::Left { .. })) as u64, waiters / 2);
    pair.all_accepted(2, [define(limits::CAPACITY_MAX), crate::support::release("gpu@1")]);
    pair.finish(2);
    let resource = pair.lived.resource(&name("gpu")).unwrap();
    assert_eq!((resource.holder_count() as u64, resource.waiting()), (waiters / 2, 0));
    assert_eq!(resource.units_taken(), waiters / 4 * 3);
}

/// S7: a lease that was renewed is moved on in the wheel when its old time comes, which no snapshot knows of. However many
/// they are, it makes no difference to what else is due.
#[test]
fn a_mass_renewal_is_moved_on_alike_everywhere() {
    let (mut pair, many) = (Pair::default(), 70_000);
    pair.all_accepted(0, (1..=many).map(|lease| grant(lease, 1000)));
    pair.all_accepted(0, [grant(many + 1, 1200)]);
    let all: Vec<_> = (1..=many).collect();
    pair.all_accepted(500, all.chunks(limits::RENEWALS_MAX).map(|leases| renew(leases.iter().copied())));
    pair.apply(&tick(1300));
    assert_eq!(pair.finish(1300).len(), 0, "what is due is not kept waiting by what is not");
    assert_eq!(pair.lived.lease_count() as u64, many);
}

/// One who holds something may join a long line: the search for a deadlock goes along it once.
#[test]
fn a_long_line_can_be_joined_by_one_who_holds_something() {
    let (mut ledger, waiters) = (Ledger::default(), limits::WAITERS_MAX as u64 - 2);
    let commands = (0..waiters).map(|n| acquire(10 + n, "db", 60_000));
    let commands: Vec<_> = commands.chain([acquire(1, "a", 60_000), acquire(2, "b", 60_000)]).collect();
    for batch in commands.chunks(limits::COMMANDS_MAX) {
        ledger.apply(&entry(0, batch.to_vec()));
    }
    for lease in [1, 2] {
        let waits = order(&mut ledger, 1, acquire_on(lease, "db", Wait::IN_LINE));
        assert!(matches!(waits, Ok(Reply::Waiting(_))), "{waits:?}");
    }
    // A circle over the whole line is found: the holder waits for what the last but one in line holds.
    let circle = order(&mut ledger, 1, acquire_on(10, "a", Wait::IN_LINE));
    assert!(matches!(circle, Err(Refusal::WouldDeadlock { .. })), "{circle:?}");
}

/// A circle as long as there are leases is found, and not all of it is shown.
#[test]
fn a_long_circle() {
    let (mut ledger, leases) = (Ledger::default(), 5000);
    let resource = |n: u64| format!("r/{n}");
    let hold = (1..=leases).map(|n| acquire(n, &resource(n), 60_000));
    let wait = (1..leases).map(|n| acquire_on(n, &resource(n + 1), Wait::IN_LINE));
    // One after the other: each entry may search for so long, and each of these waits goes along the whole chain.
    for command in hold.chain(wait) {
        let outcome = order(&mut ledger, 0, command);
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    match order(&mut ledger, 0, acquire_on(leases, &resource(1), Wait::IN_LINE)) {
        Err(Refusal::WouldDeadlock { resource: at, circle }) => {
            assert_eq!((at.as_str(), circle.len()), ("r/1", limits::CHAIN_SHOWN_MAX));
            assert_eq!(circle[0].as_str(), format!("h{leases}"), "it begins with who asks");
        }
        other => panic!("{other:?}"),
    }
}

/// A search goes along everything that a lease waits for. One that takes too long is refused, however often it is asked for.
#[test]
fn a_search_for_a_deadlock_takes_so_long_and_no_longer() {
    let (mut ledger, waiters) = (Ledger::default(), limits::WAITERS_MAX as u64 - 1);
    // Each of those who wait is reached, and then asked for what it waits for.
    let (resource, most) = (|n: u64| format!("r/{n}"), limits::CHAIN_STEPS_MAX as u64 / (2 * waiters));
    order(&mut ledger, 0, grant(1, 600_000)).unwrap();
    let full = Refusal::Full { what: "steps to look for a deadlock".into(), max: limits::CHAIN_STEPS_MAX };
    for line in 0..=most {
        for waiter in 0..=waiters {
            order(&mut ledger, 0, acquire(10 + line * 100_000 + waiter, &resource(line), 600_000)).unwrap();
        }
        let joined = order(&mut ledger, 0, acquire_on(1, &resource(line), Wait::IN_LINE));
        match line < most {
            true => assert!(matches!(joined, Ok(Reply::Waiting(_))), "line {line}: {joined:?}"),
            false => assert_eq!(joined, Err(full.clone())),
        }
    }
    assert_eq!(order(&mut ledger, 1, acquire_on(1, &resource(most), Wait::IN_LINE)), Err(full));
}
