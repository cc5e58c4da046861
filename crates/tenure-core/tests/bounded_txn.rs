//! What one transaction, and all transactions of one entry, may look at and answer; and that whatever a ledger takes can be
//! read back from the log.

use crate::support::{all_accepted, entry, key, order, put, refusal, restored};
use std::sync::Arc;
use tenure_core::limits::{
    DELETED_MAX, ENTRY_ANSWER_BYTES_MAX, ENTRY_STEPS_MAX, TXN_BYTES_MAX, TXN_DEPTH_MAX, TXN_KEYS_MAX, TXN_OPS_ALL_MAX,
};
use tenure_core::{
    Applied, Command, Compare, Delete, Entry, Hang, Keys, Ledger, Op, OpDone, Outcome, Part, Put, Range, Refusal,
    Relation, Reply, Subject, TXN_DEPTH, TXN_OPS_ALL, Txn,
};

const KEYS: &str = "keys that one transaction looks at";
const BYTES: &str = "bytes that one transaction answers";

fn all_keys() -> Keys {
    Keys::Prefix([][..].into())
}

fn count() -> Op {
    Op::Range(Range { part: Part::CountOnly, ..Range::of(all_keys()) })
}

fn write(text: &str, bytes: usize) -> Op {
    let value: Arc<[u8]> = vec![7; bytes].into();
    Op::Put { put: Put { key: key(text), value: Some(value), lease: Hang::Free }, prev: false }
}

fn txn(ops: Vec<Op>) -> Command {
    Command::Txn(Txn { then: ops, ..Txn::default() })
}

/// A ledger with so many small keys.
fn with_keys(count: usize) -> Ledger {
    let mut ledger = Ledger::default();
    all_accepted(&mut ledger, 0, (0..count).map(|n| put(&format!("k/{n}"), Hang::Free)));
    ledger
}

/// One transaction in each, so many levels deep.
fn nested(levels: usize) -> Txn {
    (1..levels).fold(Txn::of(write("leaf", 1)), |txn, _| Txn::of(Op::Txn(txn)))
}

#[test]
fn keys_looked_at_by_one_transaction() {
    let mut ledger = with_keys(20_000);
    let most = TXN_KEYS_MAX / 20_000;
    let counts = |many: usize| (0..many).map(|_| count()).chain([write("x", 1)]).collect::<Vec<_>>();
    let full = Refusal::Full { what: KEYS.into(), max: TXN_KEYS_MAX };
    assert_eq!(refusal(&mut ledger, txn(counts(most + 1))), full);
    // Conditions count, too, and so do ranges of the past.
    let is_old = Compare { keys: all_keys(), subject: Subject::Version(9), relation: Relation::Less };
    let compares = vec![is_old; most + 1];
    assert_eq!(refusal(&mut ledger, Command::Txn(Txn { compares, then: vec![write("x", 1)], ..Txn::default() })), full);
    let past = Op::Range(Range { revision: Some(2), ..Range::of(all_keys()) });
    assert_eq!(refusal(&mut ledger, txn(vec![past; most + 1])), full);
    order(&mut ledger, 0, txn(counts(most - 1))).unwrap();
    assert_eq!(ledger.read_txn(&Txn { then: vec![count(); most + 1], ..Txn::default() }), Err(full), "also alone");
}

#[test]
fn bytes_answered_by_one_transaction() {
    let mut ledger = Ledger::default();
    let size = 1_000_000;
    order(&mut ledger, 0, txn(vec![write("large", size)])).unwrap();
    let most = TXN_BYTES_MAX / size;
    let range = |part| Op::Range(Range { part, ..Range::of(Keys::One(key("large"))) });
    let ranges = |many: usize, part| (0..many).map(|_| range(part)).chain([write("x", 1)]).collect::<Vec<_>>();
    let full = Refusal::Full { what: BYTES.into(), max: TXN_BYTES_MAX };
    assert_eq!(refusal(&mut ledger, txn(ranges(most + 1, Part::Whole))), full);
    order(&mut ledger, 0, txn(ranges(most, Part::Whole))).unwrap();
    order(&mut ledger, 0, txn(ranges(100, Part::KeysOnly))).unwrap();
    // What the transaction itself writes before it looks counts as well.
    let own = |many: usize| {
        let look = Op::Range(Range::of(Keys::One(key("own"))));
        [write("own", size)].into_iter().chain(vec![look; many]).collect::<Vec<_>>()
    };
    assert_eq!(refusal(&mut ledger, txn(own(most + 1))), full);
    order(&mut ledger, 0, txn(own(most))).unwrap();
    // And what was there before a put or a delete, where that is to be told.
    let put_before = |n: usize| {
        let Op::Put { put, .. } = write(&format!("p/{n}"), size) else { unreachable!("it is a put") };
        Op::Put { put, prev: true }
    };
    for n in 0..=most {
        order(&mut ledger, 0, txn(vec![put_before(n)])).unwrap();
    }
    assert_eq!(refusal(&mut ledger, txn((0..=most).map(put_before).collect())), full);
    let delete = |prev| txn(vec![Op::Delete { keys: Keys::Prefix(b"p/"[..].into()), prev }]);
    assert_eq!(refusal(&mut ledger, delete(true)), full);
    order(&mut ledger, 0, delete(false)).unwrap();
}

/// Commands of one entry share its work. One that is refused for the others' sake is accepted in the next entry.
#[test]
fn transactions_of_one_entry_share_its_work() {
    let mut ledger = with_keys(20_000);
    let heavy = || txn((0..9).map(|_| count()).chain([write("x", 1)]).collect());
    let small = || txn(vec![write("small", 1), Op::Range(Range::of(Keys::One(key("small"))))]);
    let commands = vec![heavy(), heavy(), heavy(), heavy(), small()];
    let outcomes = ledger.apply(&entry(1, commands)).outcomes;
    let overloaded =
        Err(Refusal::Overloaded { what: "steps of the commands of one entry".into(), max: ENTRY_STEPS_MAX });
    assert_eq!(ENTRY_STEPS_MAX / 180_000, 2, "the third of them goes beyond it");
    assert!(outcomes[..3].iter().all(Result::is_ok), "{:?}", &outcomes[..3]);
    assert_eq!(outcomes[3..], [overloaded.clone(), overloaded.clone()]);
    assert!(ledger.key(b"small").is_none(), "what is refused changes nothing");
    order(&mut ledger, 2, heavy()).unwrap();
    assert!(matches!(order(&mut ledger, 2, small()), Ok(Reply::Txn(_))));
    // Deletes take from the same work.
    let delete = || Command::Delete(Delete { keys: Keys::Prefix(b"k/"[..].into()) });
    let outcomes = ledger.apply(&entry(3, vec![heavy(), heavy(), heavy(), delete(), delete()])).outcomes;
    assert_eq!(outcomes[3..], [overloaded.clone(), overloaded]);
    order(&mut ledger, 4, delete()).unwrap();
    assert_eq!(restored(&ledger).state_hash(), ledger.state_hash());
}

/// What the transactions of one entry answer has a bound, too, and a small answer fits behind it.
#[test]
fn answers_of_one_entry_share_its_room() {
    let (mut ledger, size) = (Ledger::default(), 1_000_000);
    order(&mut ledger, 0, txn(vec![write("large", size)])).unwrap();
    let look = || Op::Range(Range::of(Keys::One(key("large"))));
    let most = TXN_BYTES_MAX / size;
    let large = || txn((0..most).map(|_| look()).chain([write("x", 1)]).collect());
    let small = || txn(vec![write("small", 1), Op::Range(Range::of(Keys::One(key("small"))))]);
    let fit = ENTRY_ANSWER_BYTES_MAX / (most * size);
    let commands = (0..=fit).map(|_| large()).chain([small(), large()]).collect();
    let outcomes = ledger.apply(&entry(1, commands)).outcomes;
    let overloaded = Err(Refusal::Overloaded { what: BYTES.into(), max: TXN_BYTES_MAX });
    assert!(outcomes[..fit].iter().all(Result::is_ok), "{fit} of them fit");
    // What they answer is too large to be printed.
    assert!(outcomes[fit] == overloaded, "one more does not");
    assert!(matches!(&outcomes[fit + 1], Ok(Reply::Txn(_))), "a small one fits");
    assert!(outcomes[fit + 2] == overloaded, "and no large one after it");
    order(&mut ledger, 2, large()).unwrap();
}

/// Keys that the outcomes of an entry name.
fn answered_keys(applied: &Applied) -> usize {
    let of_op = |op: &OpDone| match op {
        OpDone::Range { ranged, .. } => ranged.items.len(),
        OpDone::Put { prev, .. } => usize::from(prev.is_some()),
        OpDone::Deleted { prev, .. } => prev.len(),
        OpDone::Txn(_) => 0,
    };
    let of_outcome = |outcome: &Outcome| match outcome {
        Ok(Reply::Txn(done)) => done.ops.iter().map(of_op).sum(),
        _ => 0,
    };
    applied.outcomes.iter().map(of_outcome).sum()
}

/// An entry that is replayed does, counts and refuses what it did when it was proposed, and makes none of its answers.
#[test]
fn replayed_entries_answer_nothing() {
    let mut ledger = with_keys(1_000);
    let mut replica = restored(&ledger);
    let part = Keys::Prefix(b"k/1".as_slice().into());
    let ranges = || txn(vec![Op::Range(Range::of(all_keys())), write("x", 1)]);
    let overwrite =
        Op::Put { put: Put { key: key("k/2"), value: Some([1][..].into()), lease: Hang::Free }, prev: true };
    let commands = vec![ranges(), txn(vec![overwrite, Op::Delete { keys: part, prev: true }]), ranges()];
    let entry = entry(5, commands);
    let (applied, replayed) = (ledger.apply(&entry), replica.replay(&entry));
    assert_eq!(answered_keys(&applied), 1_000 + 1 + 111 + 890);
    assert_eq!(answered_keys(&replayed), 0);
    assert_eq!((applied.events, applied.steps), (replayed.events, replayed.steps));
    assert_eq!(ledger.state_hash(), replica.state_hash());
}

#[test]
fn levels_and_operations_of_one_transaction() {
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, Command::Txn(nested(TXN_DEPTH_MAX))).unwrap();
    let deep = Refusal::Full { what: TXN_DEPTH.into(), max: TXN_DEPTH_MAX };
    assert_eq!(refusal(&mut ledger, Command::Txn(nested(TXN_DEPTH_MAX + 1))), deep);
    let wide = |many: usize| txn((0..many).map(|n| write(&format!("k/{n}"), 1)).collect());
    order(&mut ledger, 0, wide(TXN_OPS_ALL_MAX)).unwrap();
    let many = Refusal::Full { what: TXN_OPS_ALL.into(), max: TXN_OPS_ALL_MAX };
    assert_eq!(refusal(&mut ledger, wide(TXN_OPS_ALL_MAX + 1)), many);
    // Both ways count, though only one of them is gone.
    let Command::Txn(half) = wide(TXN_OPS_ALL_MAX / 2) else { unreachable!("it is a transaction") };
    let both = Txn { otherwise: half.then.clone(), then: half.then, compares: Vec::new() };
    let more = Txn { compares: vec![is_there()], ..both.clone() };
    order(&mut ledger, 0, Command::Txn(both)).unwrap();
    assert_eq!(refusal(&mut ledger, Command::Txn(more)), many);
}

fn is_there() -> Compare {
    Compare { keys: Keys::One(key("x")), subject: Subject::Version(0), relation: Relation::Greater }
}

/// The deepest and the widest transaction that is accepted, and the largest delete, come back from the log as they went in.
#[test]
fn whatever_is_accepted_can_be_read_back() {
    let full_tree = |levels: usize| {
        let each = TXN_OPS_ALL_MAX / levels - 1;
        let level = |within: Option<Txn>| Txn {
            compares: vec![is_there(); each / 3],
            then: (0..each / 3).map(|n| write(&format!("t/{n}"), 1)).chain(within.map(Op::Txn)).collect(),
            otherwise: (0..each / 3).map(|_| count()).collect(),
        };
        (0..levels).fold(None, |within, _| Some(level(within))).expect("there is a level")
    };
    let commands = vec![
        Command::Txn(nested(TXN_DEPTH_MAX)),
        Command::Txn(full_tree(TXN_DEPTH_MAX)),
        Command::Txn(full_tree(1)),
        Command::Delete(Delete { keys: all_keys() }),
    ];
    for command in &commands {
        let Command::Txn(txn) = command else { continue };
        assert_eq!(txn.check_size(), Ok(()));
    }
    let entry = entry(1, commands);
    assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
}

/// A delete may look at all that it may remove, and a transaction at all of its own share.
const _: () = assert!(DELETED_MAX <= TXN_KEYS_MAX && TXN_KEYS_MAX <= ENTRY_STEPS_MAX);
