//! Snapshots that no ledger could have written are refused, and what a retry is told is kept.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{
    acquire, acquire_all, acquire_on, entry, force, grant, grant_under, id, name, order, put, release, span, units,
};
use tenure_core::{
    Break, Command, Compare, Define, Delete, Free, Hang, Keys, Ledger, Mode, Op, Part, Range, Refusal, Relation, Reply,
    Revoke, Sort, SortBy, Subject, Txn, Units, Wait, Way, Which, limits,
};

/// The answer to a retry says what is left: its holder counts from there.
#[test]
fn the_ttl_of_every_acknowledged_grant_is_kept() {
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, grant(1, 10_000)).unwrap();
    let Ok(Reply::Granted { ttl_ms, .. }) = order(&mut ledger, 8_000, grant(1, 10_000)) else { panic!("a retry") };
    assert_eq!(ttl_ms, 2_000);
    assert_eq!(ledger.lease(id(1)).unwrap().deadline().millis(), 10_000, "a retry moves no deadline");
}

#[test]
fn the_ttl_of_every_acknowledged_seat_is_kept() {
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, acquire(1, "db", 10_000)).unwrap();
    let Ok(Reply::Seated(seat)) = order(&mut ledger, 8_000, acquire(1, "db", 10_000)) else { panic!("a retry") };
    assert_eq!(seat.ttl_ms, 2_000);
}

#[test]
fn a_late_retry_of_an_acquire_does_not_take_what_was_released() {
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, acquire(1, "db", 10_000)).unwrap();
    order(&mut ledger, 0, acquire_on(1, "log", Wait::Never)).unwrap();
    order(&mut ledger, 1, release("db@1")).unwrap();
    let late = order(&mut ledger, 2, acquire(1, "db", 10_000));
    assert_eq!(late, Err(Refusal::NoClaim { lease: id(1), resource: name("db") }));
    assert!(ledger.resource(&name("db")).is_none());
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n > 127 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(out: &mut Vec<u8>, tag: u64, n: u64) {
    varint(out, tag << 3);
    varint(out, n);
}

/// The counters of a snapshot's head.
#[derive(Clone, Copy)]
struct Head {
    revision: u64,
    fence: u64,
    arrival: u64,
    kv_revision: u64,
    rules: u64,
    compacted: Option<u64>,
    cleared: u64,
}

/// One under which the records of small ledgers are right.
const HEAD: Head = Head {
    revision: 100,
    fence: 100,
    arrival: 100,
    kv_revision: 100,
    rules: limits::RULES_MAX as u64,
    compacted: None,
    cleared: 0,
};

/// A snapshot of these records.
fn read(head: Head, records: &[Vec<u8>]) -> Result<Ledger, String> {
    let (mut it, mut record) = (Vec::new(), vec![(1 << 3) | 2]);
    let counters = [(3, head.revision), (4, head.fence), (5, head.arrival), (10, head.kv_revision), (9, head.rules)];
    let forgotten = head.compacted.map(|revision| (11, revision)).into_iter().chain([(12, head.cleared)]);
    for (tag, n) in counters.into_iter().chain([(8, records.len() as u64)]).chain(forgotten) {
        number(&mut it, tag, n);
    }
    varint(&mut record, it.len() as u64);
    record.extend(it);
    let mut all = Vec::new();
    varint(&mut all, record.len() as u64);
    all.extend(record);
    all.extend(records.concat());
    Ledger::read_snapshot(&all).map_err(|damage| damage.to_string())
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lease = 2,
    ToSeat = 3,
    Class = 7,
    Resource = 8,
    Waiter = 9,
    Vacating = 10,
    Break = 11,
    Key = 12,
    Past = 13,
}

/// The records of a kind in the snapshot of a ledger to which this was said.
fn records(kind: Kind, commands: Vec<Command>) -> Vec<Vec<u8>> {
    let (mut ledger, mut records) = (Ledger::default(), Vec::new());
    let applied = ledger.apply(&entry(0, commands));
    assert!(applied.outcomes.iter().all(Result::is_ok), "{:?}", applied.outcomes);
    ledger.write_snapshot(|record| {
        let body = record.iter().position(|byte| byte & 128 == 0).unwrap() + 1;
        if record[body] >> 3 == kind as u8 {
            records.push(record.to_vec());
        }
    });
    records
}

/// One such record.
fn record(kind: Kind, commands: Vec<Command>) -> Vec<u8> {
    records(kind, commands).pop().unwrap()
}

#[track_caller]
fn refused(head: Head, records: &[&Vec<u8>], why: &str) {
    let records: Vec<_> = records.iter().map(|record| (*record).clone()).collect();
    let said = read(head, &records).map(drop).expect_err(why);
    assert!(said.contains(why), "{said}");
}

#[track_caller]
fn accepted(records: &[&Vec<u8>]) {
    let records: Vec<_> = records.iter().map(|record| (*record).clone()).collect();
    read(HEAD, &records).expect("this could have been written");
}

#[test]
fn a_counter_at_its_end_is_refused() {
    let end = limits::FENCE_MAX;
    assert!(read(Head { fence: end / 4, ..HEAD }, &[]).is_ok());
    let why = "a counter that no ledger reaches";
    refused(Head { fence: end, ..HEAD }, &[], why);
    refused(Head { revision: u64::MAX, ..HEAD }, &[], why);
    refused(Head { arrival: u64::MAX, ..HEAD }, &[], why);
    refused(Head { kv_revision: u64::MAX, ..HEAD }, &[], why);
    refused(Head { kv_revision: 0, ..HEAD }, &[], "a keyspace without a revision");
}

#[test]
fn rules_that_this_build_does_not_know_are_refused() {
    let rules = u64::from(limits::RULES_MAX);
    refused(Head { rules: rules + 1, ..HEAD }, &[], "start a newer build");
    refused(Head { rules: u64::from(limits::RULES_MIN) - 1, ..HEAD }, &[], "never released");
}

/// Other rules may have commands of another shape, so the version is looked at before anything else is read.
#[test]
fn an_entry_by_other_rules_is_refused_by_its_version() {
    let refusal = |rules: u8| {
        // The field `rules`, then a command whose bytes are none.
        let bytes = [5 << 3, rules, (6 << 3) | 2, 3, 0x12, 0x7f, 0x7f];
        tenure_core::Entry::decode(&bytes).expect_err("it is by other rules").to_string()
    };
    assert!(refusal(1).contains("rules version 1, which was never released"), "{}", refusal(1));
    assert!(refusal(99).contains("rules version 99"), "{}", refusal(99));
}

#[test]
fn claims_that_cannot_sit_beside_each_other_are_refused() {
    let lease = |commands| record(Kind::Lease, commands);
    let why = "cannot sit beside each other";
    let one = lease(vec![acquire(1, "a", 1000)]);
    let other = lease(vec![acquire(8, "x", 1000), acquire(9, "b", 1000)]);
    accepted(&[&one, &other]);
    refused(HEAD, &[&one, &one], "a record that is there twice");
    refused(HEAD, &[&one, &lease(vec![acquire(8, "x", 1000), acquire(9, "a", 1000)])], why);
    let shared = |first: u64, id: u64| {
        lease(vec![acquire_all(first, &["x"], Mode::Shared, 1000), acquire_all(id, &["a"], Mode::Shared, 1000)])
    };
    let counted = lease(vec![acquire_all(3, &["a"], units(1), 1000)]);
    accepted(&[&shared(1, 8)]);
    refused(HEAD, &[&counted, &shared(1, 8)], why);
    refused(HEAD, &[&shared(1, 8), &shared(1, 9)], "a fence that is there twice");
    refused(Head { fence: 0, ..HEAD }, &[&one], "a fence that was never given out");
    // A fence is one claim's alone, on whatever resource.
    refused(HEAD, &[&one, &lease(vec![acquire(8, "b", 1000)])], "a fence that is there twice");
}

#[test]
fn waiters_that_could_not_be_are_refused() {
    let in_line = || vec![acquire(1, "a", 1000), acquire(2, "a", 1000)];
    let (leases, waiter) = (records(Kind::Lease, in_line()), record(Kind::Waiter, in_line()));
    let [first, second] = &leases[..] else { panic!("{leases:?}") };
    accepted(&[first, second, &waiter]);
    refused(HEAD, &[first, second, &waiter, &waiter], "a record that is there twice");
    refused(HEAD, &[first, &waiter], "a waiter without a lease");
    refused(Head { arrival: 0, ..HEAD }, &[first, second, &waiter], "a waiter whose arrival is not its own");
    refused(HEAD, &[second, &waiter], "a waiter who could sit and is overlooked");
    let holds = record(Kind::Lease, vec![acquire(2, "a", 1000)]);
    refused(HEAD, &[&holds, &waiter], "a lease with two claims on one resource");
    let eight = Units::from_number(8);
    let big = || {
        let define = Command::Define(Define { resource: name("gpu"), capacity: eight });
        vec![define, acquire(1, "gpu", 1000), acquire_all(2, &["gpu"], units(8), 1000)]
    };
    let (leases, waiter) = (records(Kind::Lease, big()), record(Kind::Waiter, big()));
    let resource = record(Kind::Resource, big());
    accepted(&[&resource, &leases[0], &leases[1], &waiter]);
    refused(HEAD, &[&leases[0], &leases[1], &waiter], "a waiter that asks for more than there is");
    let nobody = vec![2, Kind::ToSeat as u8 * 8, 7];
    refused(HEAD, &[&nobody], "somebody to seat who does not wait");
}

#[test]
fn families_that_could_not_be_are_refused() {
    let leases = records(Kind::Lease, vec![grant(1, 1000), grant_under(1, 2, 1000)]);
    let reverse = records(Kind::Lease, vec![grant(2, 1000), grant_under(2, 1, 1000)]);
    accepted(&[&leases[0], &leases[1]]);
    refused(HEAD, &[&leases[1]], "a child without a parent");
    refused(HEAD, &[&reverse[0], &leases[1]], "its own parent");
    let generations = limits::GENERATIONS_MAX as u64;
    let chain = |from: u64| -> Vec<Vec<u8>> {
        let rest = (from + 1..from + generations).map(|lease| grant_under(lease - 1, lease, 1000));
        records(Kind::Lease, std::iter::once(grant(from, 1000)).chain(rest).collect())
    };
    let (one, two) = (chain(1), chain(generations));
    accepted(&one.iter().collect::<Vec<_>>());
    let longer: Vec<_> = one.iter().chain(&two[1..]).collect();
    refused(HEAD, &longer, "more generations");
}

#[test]
fn what_hangs_on_nothing_is_refused() {
    let key = || vec![grant(1, 1000), put("k", Hang::On(id(1)))];
    let (lease, key) = (record(Kind::Lease, key()), record(Kind::Key, key()));
    accepted(&[&lease, &key]);
    refused(HEAD, &[&key], "a key on a lease that is not there");
    refused(HEAD, &[&lease, &key, &key], "a record that is there twice");
    refused(Head { kv_revision: 1, ..HEAD }, &[&lease, &key], "a key whose revisions cannot be");

    let delay = span(1000);
    let breaking = |resource: &str| {
        let order = Break { resource: name(resource), fence: None, force: force(Free::Now), delay };
        vec![acquire(1, resource, 1000), Command::Break(order)]
    };
    let (lease, order) = (record(Kind::Lease, breaking("a")), record(Kind::Break, breaking("a")));
    accepted(&[&lease, &order]);
    refused(HEAD, &[&order], "an order to break what is not held");
    refused(HEAD, &[&lease, &record(Kind::Break, breaking("b"))], "an order to break what is not held");

    let revoke = Revoke { which: Which::Lease(id(1)), force: force(Free::WhenVacated) };
    let revoked = vec![acquire(8, "x", 1000), acquire(1, "a", 1000), Command::Revoke(revoke)];
    let vacating = record(Kind::Vacating, revoked);
    accepted(&[&vacating]);
    refused(HEAD, &[&lease, &vacating], "cannot sit beside each other");

    let define = |capacity| Command::Define(Define { resource: name("gpu"), capacity: Units::from_number(capacity) });
    let defined = record(Kind::Resource, vec![define(8)]);
    accepted(&[&defined]);
    refused(HEAD, &[&defined, &defined], "a record that is there twice");
    let eight = |lease| {
        let mut commands = vec![define(8), acquire(lease, "gpu", 1000)];
        commands.push(Command::Define(Define { resource: name("gpu"), capacity: None }));
        commands
    };
    let (lease, resource) = (record(Kind::Lease, eight(1)), record(Kind::Resource, eight(1)));
    accepted(&[&lease, &resource]);
    refused(HEAD, &[&resource], "a resource that nobody has anything to do with");
}

#[test]
fn a_past_of_keys_that_could_not_be_is_refused() {
    let why = "a keyspace that has forgotten what is to come";
    refused(Head { compacted: Some(101), ..HEAD }, &[], why);
    refused(Head { compacted: Some(50), cleared: 51, ..HEAD }, &[], why);
    refused(Head { cleared: 1, ..HEAD }, &[], why);
    for cleared in [0, 99, 100] {
        assert!(read(Head { compacted: Some(100), cleared, ..HEAD }, &[]).is_ok());
    }

    let thrice = || vec![put("k", Hang::Free), put("k", Hang::Free), put("k", Hang::Free)];
    let (past, key) = (records(Kind::Past, thrice()), record(Kind::Key, thrice()));
    let [first, second] = &past[..] else { panic!("{past:?}") };
    let why = "a key whose past cannot be";
    accepted(&[&key, first, second]);
    accepted(&[&key, second]);
    refused(HEAD, &[&key, second, first], why);
    refused(HEAD, &[&key, first, first], why);
    refused(HEAD, &[first, second], why);
    refused(HEAD, &[&record(Kind::Key, vec![put("k", Hang::Free)]), second], why);
    refused(Head { kv_revision: 1, ..HEAD }, &[first], why);
    // Created at 2 and written at 3, or the other way round.
    let (at, mut early) = (second.windows(4).position(|it| it == [3 << 3, 2, 4 << 3, 3]).unwrap(), second.clone());
    early[at + 1] = 9;
    refused(HEAD, &[&key, first, &early], why);

    let delete = || Command::Delete(Delete { keys: Keys::Prefix(b"k"[..].into()) });
    let gone = records(Kind::Past, vec![put("k", Hang::Free), delete()]);
    let [was, deleted] = &gone[..] else { panic!("{gone:?}") };
    accepted(&[was, deleted]);
    accepted(&[deleted]);
    refused(HEAD, &[was], why);
    refused(Head { kv_revision: 2, ..HEAD }, &[was, deleted], why);
    let other = record(Kind::Key, vec![put("other", Hang::Free)]);
    refused(HEAD, &[&other, was, deleted], "two changes of keys in one place");
}

/// Each number has a meaning, or the entry is refused: whoever guessed would do another thing than the others.
#[test]
fn what_is_asked_of_keys_by_an_unknown_number_is_refused() {
    let keys = || Keys::From { first: b"a"[..].into(), end: Some(b"b"[..].into()) };
    let sort = Some(Sort { by: SortBy::Value, way: Some(Way::Down) });
    let range = Range { sort, part: Part::CountOnly, ..Range::of(keys()) };
    let compare = Compare { keys: keys(), subject: Subject::Lease(-7), relation: Relation::NotEqual };
    let delete = Op::Delete { keys: keys(), prev: true };
    let txn = Txn { compares: vec![compare], then: vec![Op::Range(range)], otherwise: vec![delete] };
    let whole = entry(0, vec![Command::Txn(txn)]);
    assert_eq!(tenure_core::Entry::decode(&whole.encode()).as_ref(), Ok(&whole));
    let changed = |was: &[u8], is: &[u8]| {
        let mut bytes = whole.encode();
        let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(was)).collect();
        assert_eq!(places.len(), 1, "{was:?} is there once");
        bytes.splice(places[0]..places[0] + was.len(), is.iter().copied());
        tenure_core::Entry::decode(&bytes)
    };
    // The last bytes of the range, which are its numbers; and the relation before the lease.
    let tail = |by, way, part| [4 << 3, by, 5 << 3, way, 6 << 3, part];
    let was = tail(5, 2, 2);
    assert!(changed(&was, &tail(4, 1, 1)).is_ok());
    for unknown in [tail(6, 2, 2), tail(5, 3, 2), tail(5, 2, 3)] {
        assert!(changed(&was, &unknown).unwrap_err().to_string().contains("does not know"), "{unknown:?}");
    }
    let lease = 7 << 3;
    assert!(changed(&[2 << 3, 3, lease], &[2 << 3, 2, lease]).is_ok());
    assert!(changed(&[2 << 3, 3, lease], &[2 << 3, 4, lease]).is_err());
    assert!(changed(&[2 << 3, 3, lease], &[2 << 3, 3, 8 << 3]).is_err(), "it compares nothing that is known");
    // A delete that tells what was there: `prev` comes last. What is done instead of it is not known.
    let (delete, other) = ([(3 << 3) | 2, 10, (3 << 3) | 2, 6], [(3 << 3) | 2, 10, (6 << 3) | 2, 6]);
    assert!(changed(&delete, &other).is_err());
}

#[test]
fn classes_that_could_not_be_are_refused() {
    let class = |ttl_ms| {
        let ttl = |ms| crate::support::ttl(ms);
        let (renew, grace) = (tenure_core::Policy::Auto, span(0));
        let (ttl_min, ttl_max) = (ttl(ttl_ms), ttl(ttl_ms));
        let class =
            tenure_core::Class { name: name("c"), ttl: ttl_min, ttl_min, ttl_max, renew, grace, lifetime: None };
        record(Kind::Class, vec![Command::SetClass(class)])
    };
    accepted(&[&class(1000)]);
    refused(HEAD, &[&class(1000), &class(2000)], "a record that is there twice");
}
