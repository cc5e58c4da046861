//! The longest that one entry can take: each shape below makes the most expensive entry of one kind of command that this file
//! knows of. The bound is in steps, which are alike on every machine; the time is printed for people.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "the time that a shape takes is printed")]

use crate::support::{
    a_grant, acquire, acquire_all, acquire_on, all_accepted, cancel, entry, force, grant, grant_under, id, key, name,
    order, put, renew, span, tick, units,
};
use std::time::Instant;
use tenure_core::limits::{
    COMMANDS_MAX, DELETED_MAX, ENTRY_CHANGES_MAX, ENTRY_STEPS_MAX, HOLDERS_MAX, LOOKS_A_THING, RENEWALS_MAX, SWEEP_MAX,
    TXN_KEYS_MAX, WAITERS_MAX,
};
use tenure_core::{
    Acquire, Break, Command, Define, Delete, Epoch, Force, Free, Hang, Keys, Ledger, Mode, On, Op, Outcome, Part,
    Range, Refusal, Revoke, Span, Txn, Units, Wait, Want, Which,
};

/// What commands of one entry do before the next one waits for another entry, and the most that a last one does: it removes
/// keys, or looks at them.
const STEPS: usize = ENTRY_STEPS_MAX + ENTRY_CHANGES_MAX + COMMANDS_MAX + TXN_KEYS_MAX + DELETED_MAX;

/// Commands of which each costs about ten thousand steps: many times what one entry may do, and done soon.
const HEAVY: usize = 400;

/// Entries after which every command of a full one has its answer: they are proposed again until they have.
const ENTRIES: usize = 4096;

/// Applies commands as a leader does, which proposes those again that found no room. Returns the final answers.
fn apply_all(shape: &str, ledger: &mut Ledger, at_ms: u64, commands: Vec<Command>) -> Vec<Outcome> {
    assert!(commands.len() <= COMMANDS_MAX, "{shape}: an entry takes no more");
    let (mut waiting, mut answers, mut most) = (commands, Vec::new(), 0);
    let (mut longest, mut entries) = (std::time::Duration::ZERO, 0);
    while !waiting.is_empty() {
        entries += 1;
        assert!(entries <= ENTRIES, "{shape}: {} commands found no room in {ENTRIES} entries", waiting.len());
        let entry = entry(at_ms, waiting);
        let began = Instant::now();
        let applied = ledger.apply(&entry);
        longest = longest.max(began.elapsed());
        most = most.max(applied.steps);
        assert!(applied.steps <= STEPS, "{shape}: {} steps in one entry, {STEPS} at most", applied.steps);
        let (again, done): (Vec<_>, Vec<_>) = entry
            .commands
            .into_iter()
            .zip(applied.outcomes)
            .partition(|(_, outcome)| matches!(outcome, Err(Refusal::Overloaded { .. })));
        assert!(!done.is_empty(), "{shape}: an entry answers at least one command");
        answers.extend(done.into_iter().map(|(_, outcome)| outcome));
        waiting = again.into_iter().map(|(command, _)| command).collect();
    }
    println!("{shape}: {most} steps at most, {longest:?} at most, {entries} entries");
    answers
}

/// The same, of a shape that must cost more than one entry may do, so that its work is seen to be counted.
fn apply_too_much(shape: &str, ledger: &mut Ledger, commands: Vec<Command>) -> Vec<Outcome> {
    let first = ledger.clone().apply(&entry(1, commands.clone()));
    let refused = first.outcomes.iter().filter(|outcome| matches!(outcome, Err(Refusal::Overloaded { .. }))).count();
    assert!(refused > 0, "{shape}: {} steps were counted, and nothing was left for the next entry", first.steps);
    apply_all(shape, ledger, 1, commands)
}

/// Ten thousand share a resource.
fn crowded(resource: &str) -> Ledger {
    let mut ledger = Ledger::default();
    all_accepted(&mut ledger, 0, (1..=HOLDERS_MAX as u64).map(|n| acquire_all(n, &[resource], Mode::Shared, 600_000)));
    ledger
}

#[test]
fn lines_that_begin_and_end_before_ten_thousand_holders() {
    let mut ledger = crowded("db");
    all_accepted(&mut ledger, 0, [grant(20_000, 600_000)]);
    let toggle = [acquire_on(20_000, "db", Wait::IN_LINE), cancel(20_000, "db")];
    let commands = toggle.into_iter().cycle().take(HEAVY).collect();
    let answers = apply_too_much("lines", &mut ledger, commands);
    assert!(answers.iter().all(Result::is_ok));
}

/// The same lines end in the sweep, with the leases that wait in them.
#[test]
fn lines_that_end_in_the_sweep() {
    let (mut ledger, waiters, lines, holders) = (Ledger::default(), 8, 150, 200);
    let line = |waiter: u64, n: u64| format!("r/{waiter}/{n}");
    let all = || (0..waiters).flat_map(|waiter| (0..lines).map(move |n| line(waiter, n)));
    all_accepted(&mut ledger, 0, (1..=holders).map(|n| grant(n, 600_000)));
    for resource in all() {
        let hold = (1..=holders).map(|n| {
            let want = Want { resource: name(&resource), mode: Mode::Shared, capacity: None };
            let on = Acquire::exclusive(On::Given(id(n)), name(&resource), Wait::Never);
            Command::Acquire(Acquire { wants: vec![want], ..on })
        });
        all_accepted(&mut ledger, 0, hold);
    }
    for waiter in 0..waiters {
        all_accepted(&mut ledger, 0, [grant(20_000 + waiter, 1000)]);
        all_accepted(&mut ledger, 0, (0..lines).map(|n| acquire_on(20_000 + waiter, &line(waiter, n), Wait::IN_LINE)));
    }
    let (mut most, mut entries) = (0, 0);
    while entries == 0 || ledger.waiter_count() > 0 {
        let applied = ledger.apply(&tick(1000));
        (most, entries) = (most.max(applied.steps), entries + 1);
        assert_eq!(applied.unfinished, ledger.waiter_count() > 0, "what is left follows at once");
    }
    println!("lines in the sweep: {most} steps at most, {entries} entries");
    assert!(most <= SWEEP_MAX * LOOKS_A_THING && entries > 1, "{most} steps in one of {entries} entries");
}

#[test]
fn capacities_that_change_before_a_long_line() {
    let define = |capacity| Command::Define(Define { resource: name("gpu"), capacity: Units::from_number(capacity) });
    let mut ledger = Ledger::default();
    all_accepted(&mut ledger, 0, [define(4), acquire_all(1, &["gpu"], units(4), 600_000)]);
    all_accepted(&mut ledger, 0, (0..WAITERS_MAX as u64).map(|n| acquire_all(10 + n, &["gpu"], units(1), 600_000)));
    let commands = [define(5), define(4)].into_iter().cycle().take(HEAVY).collect();
    apply_too_much("capacities", &mut ledger, commands);
}

#[test]
fn breaks_that_are_refused() {
    let mut ledger = crowded("db");
    let children =
        (1..=HOLDERS_MAX as u64).flat_map(|n| (0..4).map(move |k| grant_under(n, 100_000 + 4 * n + k, 600_000)));
    all_accepted(&mut ledger, 0, children);
    let order = Break { resource: name("db"), fence: None, force: force(Free::Now), delay: Span::ZERO };
    let answers = apply_too_much("breaks", &mut ledger, vec![Command::Break(order); HEAVY]);
    assert!(answers.iter().all(|answer| matches!(answer, Err(Refusal::Full { .. }))));
}

#[test]
fn breaks_that_are_ordered_for_later() {
    let mut ledger = crowded("db");
    let order = |ms| Break { resource: name("db"), fence: None, force: force(Free::Now), delay: span(ms) };
    let commands = (0..64).map(|n| Command::Break(order(100_000 + n))).collect();
    apply_too_much("breaks for later", &mut ledger, commands);
}

#[test]
fn places_in_a_long_line() {
    let mut ledger = Ledger::default();
    let waiters = 2000;
    all_accepted(&mut ledger, 0, (1..=waiters).map(|n| acquire(n, "db", 600_000)));
    let commands = (0..WAITERS_MAX as u64 - waiters).map(|n| acquire(10_000 + n, "db", 600_000)).collect();
    apply_too_much("places", &mut ledger, commands);
}

#[test]
fn searches_for_deadlocks() {
    let (mut ledger, leases) = (Ledger::default(), 3000);
    let resource = |n: u64| format!("r/{n}");
    all_accepted(&mut ledger, 0, (1..=leases).map(|n| acquire(n, &resource(n), 600_000)));
    for n in 1..leases {
        order(&mut ledger, 0, acquire_on(n, &resource(n + 1), Wait::IN_LINE)).unwrap();
    }
    let ask = |n: u64| [acquire(10_000 + n, &format!("x/{n}"), 600_000), acquire_on(10_000 + n, "r/1", Wait::IN_LINE)];
    let answers = apply_too_much("deadlocks", &mut ledger, (0..1000).flat_map(ask).collect());
    assert!(answers.iter().all(Result::is_ok));
}

/// A lease that waits in ten thousand lines is looked at in a search as often.
#[test]
fn searches_over_leases_that_wait_in_many_lines() {
    let mut ledger = Ledger::default();
    let lines = 2000;
    all_accepted(&mut ledger, 0, (0..lines).map(|n| acquire(10 + n, &format!("r/{n}"), 600_000)));
    all_accepted(&mut ledger, 0, [grant(1, 600_000), acquire_on(1, "mine", Wait::Never)]);
    for n in 0..lines {
        order(&mut ledger, 0, acquire_on(1, &format!("r/{n}"), Wait::IN_LINE)).unwrap();
    }
    let ask = |n: u64| [acquire(20_000 + n, &format!("x/{n}"), 600_000), acquire_on(20_000 + n, "mine", Wait::IN_LINE)];
    apply_too_much("deadlocks over many lines", &mut ledger, (0..1000).flat_map(ask).collect());
}

#[test]
fn epochs_that_would_supersede_ten_thousand() {
    let mut ledger = Ledger::default();
    let claim = |lease: u64, epoch: u64, mode, wait| {
        let mut grant = a_grant(lease, 600_000);
        grant.holder = crate::support::holder("ann");
        let on = On::New(grant);
        let want = Want { resource: name("db"), mode, capacity: None };
        let epoch = Some(Epoch::from_number(epoch).expect("epochs begin at 1"));
        Command::Acquire(Acquire { wants: vec![want], epoch, ..Acquire::exclusive(on, name("db"), wait) })
    };
    let claims = HOLDERS_MAX as u64 - 1;
    all_accepted(&mut ledger, 0, [acquire_all(1, &["db"], Mode::Shared, 600_000)]);
    all_accepted(&mut ledger, 0, (0..claims).map(|n| claim(10 + n, 1, Mode::Shared, Wait::Never)));
    let commands = (0..HEAVY as u64).map(|n| claim(100_000 + n, 2, Mode::Exclusive, Wait::Never)).collect();
    let answers = apply_too_much("epochs", &mut ledger, commands);
    assert!(answers.iter().all(|answer| matches!(answer, Err(Refusal::Taken { .. }))));
}

#[test]
fn revokes_below_a_prefix_with_many_holders() {
    let mut ledger = crowded("db");
    let which = || Which::Prefix { prefix: "db".into(), from: String::new() };
    let force = || Force { ..force(Free::WhenVacated) };
    let commands = (0..COMMANDS_MAX).map(|_| Command::Revoke(Revoke { which: which(), force: force() })).collect();
    apply_too_much("revokes", &mut ledger, commands);
}

#[test]
fn transactions_and_deletes_over_many_keys() {
    let mut ledger = Ledger::default();
    let keys = DELETED_MAX + 1;
    all_accepted(&mut ledger, 0, (0..keys).map(|n| put(&format!("k/{n}"), Hang::Free)));
    let count = || Op::Range(Range { part: Part::CountOnly, ..Range::of(Keys::Prefix(b"k/"[..].into())) });
    let write = || {
        let Command::Put(put) = put("x", Hang::Free) else { unreachable!("it is a put") };
        Op::Put { put, prev: false }
    };
    let txn = || Command::Txn(Txn { then: vec![count(), write()], ..Txn::default() });
    let delete = || Command::Delete(Delete { keys: Keys::Prefix(b"k/"[..].into()) });
    apply_too_much("counts", &mut ledger, (0..64).map(|_| txn()).collect());
    let answers = apply_too_much("deletes", &mut ledger, (0..64).map(|_| delete()).collect());
    assert!(answers.iter().all(|answer| matches!(answer, Err(Refusal::Full { .. }))));
    order(&mut ledger, 1, Command::Delete(Delete { keys: Keys::One(key("k/0")) })).unwrap();
    let answers = apply_all("one delete of all", &mut ledger, 1, vec![delete()]);
    assert!(answers[0].is_ok());
}

/// Renewals go first, whatever they cost: the leader bounds how many an entry has.
#[test]
fn renewals_of_holders_that_others_wait_for() {
    let (mut ledger, leases) = (Ledger::default(), RENEWALS_MAX as u64 * 16);
    all_accepted(&mut ledger, 0, (1..=leases).map(|n| acquire(n, &format!("r/{n}"), 600_000)));
    all_accepted(&mut ledger, 0, (1..=leases).map(|n| acquire(100_000 + n, &format!("r/{n}"), 600_000)));
    let all: Vec<u64> = (1..=leases).collect();
    let commands = all.chunks(RENEWALS_MAX).map(|leases| renew(leases.iter().copied())).collect();
    let answers = apply_all("renewals", &mut ledger, 1, commands);
    assert!(answers.iter().all(Result::is_ok));
}
