//! Outcomes and single commands as bytes: what one node encodes, another one decodes without loss, or refuses.

use crate::support::history::{instance_plans, key_plans, plans};
use crate::support::samples::{Draw, Variants};
use crate::support::{all_accepted, few_cases, holder, id, key, order, put, runner};
use proptest::prelude::{Strategy, any, prop_oneof};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use tenure_core::limits::{
    HOLDER_BYTES_MAX, KEY_COST_BYTES, NOTE_BYTES_MAX, OUTCOME_BYTES_MAX, RENEWALS_MAX, TXN_BYTES_MAX, TXN_DEPTH_MAX,
    WHAT_BYTES_MAX,
};
use tenure_core::{
    Actor, ApiKeyName, Command, End, Hang, Keys, Ledger, Moment, Note, Op, OpDone, Outcome, Part, Put, Range, Reach,
    Refusal, Reply, Txn, TxnDone, decode_outcome, encode_outcome,
};

/// Encodes an outcome, decodes it, and returns how many bytes it took.
fn assert_survives(outcome: &Outcome) -> usize {
    let bytes = encode_outcome(outcome);
    assert!(bytes.len() <= OUTCOME_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(decode_outcome(&bytes).as_ref(), Ok(outcome));
    bytes.len()
}

#[test]
fn each_variant_is_decoded_as_it_was_encoded() {
    let result = runner(300, file!()).run(&any::<u64>().no_shrink(), |seed| {
        for outcome in Draw::new(seed).outcomes() {
            assert_survives(&outcome);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn outcomes_and_commands_of_random_histories() {
    let seen = RefCell::new(BTreeSet::new());
    let actor = Actor { key: ApiKeyName::parse("ops").unwrap(), reach: Reach::Named, leases_max: Some(9) };
    let histories = prop_oneof![3 => plans(40).boxed(), 1 => key_plans(40).boxed(), 2 => instance_plans(40).boxed()];
    let result = runner(400, file!()).run(&histories, |plans| {
        let mut ledger = Ledger::default();
        for plan in &plans {
            let entry = plan.entry(&ledger);
            for command in &entry.commands {
                let sent = command.clone().sent_with(actor.clone());
                assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(command));
                assert_eq!(Command::decode(&sent.encode()), Ok(sent));
            }
            for outcome in ledger.apply(&entry).outcomes {
                assert_survives(&outcome);
                seen.borrow_mut().insert(outcome.as_ref().map_or_else(Refusal::variant, Reply::variant));
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("{} variants: {:?}", seen.borrow().len(), seen.borrow());
    assert!(few_cases() || seen.borrow().len() >= 40, "most variants are in random histories");
}

fn all_keys() -> Keys {
    Keys::Prefix([][..].into())
}

fn write(text: &str, bytes: usize) -> Op {
    let value: Arc<[u8]> = vec![7; bytes].into();
    Op::Put { put: Put { key: key(text), value: Some(value), lease: Hang::Free }, prev: true }
}

#[test]
fn outcome_of_the_deepest_transaction() {
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, put("leaf", Hang::Free)).unwrap();
    let leaf = Txn {
        then: vec![write("leaf", 9), Op::Range(Range::of(all_keys())), Op::Delete { keys: all_keys(), prev: true }],
        ..Txn::default()
    };
    let deepest = (1..TXN_DEPTH_MAX).fold(leaf, |txn, _| Txn::of(Op::Txn(txn)));
    let command = Command::Txn(deepest);
    assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(&command));
    let outcome = order(&mut ledger, 0, command);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_survives(&outcome);
}

#[test]
fn outcome_that_nests_too_deeply_is_refused() {
    for levels in [60, 1000] {
        let flat = TxnDone { kv_revision: 1, held: true, ops: vec![] };
        let deep =
            (1..levels).fold(flat, |done, _| TxnDone { ops: vec![OpDone::Txn(done)], kv_revision: 1, held: true });
        assert!(decode_outcome(&encode_outcome(&Ok(Reply::Txn(deep)))).is_err(), "{levels} levels");
    }
}

/// As many bytes as one transaction may answer: few large values, and many small ones.
#[test]
fn outcome_of_the_largest_transactions() {
    let large = TXN_BYTES_MAX / 16 - 1000;
    let mut ledger = Ledger::default();
    order(&mut ledger, 0, Command::Txn(Txn::of(write("large", large)))).unwrap();
    let ranges =
        |many: usize| Command::Txn(Txn { then: vec![Op::Range(Range::of(all_keys())); many], ..Txn::default() });
    let bytes = assert_survives(&order(&mut ledger, 0, ranges(16)));
    assert!(bytes > TXN_BYTES_MAX - 20_000, "{bytes}");

    let mut ledger = Ledger::default();
    all_accepted(&mut ledger, 0, (0..10_000).map(|n| put(&format!("k/{n:04}"), Hang::Free)));
    // A whole key counts as its own bytes, those of its value and a cost.
    let most = TXN_BYTES_MAX / 10_000 / ("k/0000value".len() + KEY_COST_BYTES as usize);
    let outcome = order(&mut ledger, 0, ranges(most));
    assert!(outcome.is_ok() && order(&mut ledger, 0, ranges(most + 1)).is_err());
    assert_survives(&outcome);
    let keys_only = Op::Range(Range { part: Part::KeysOnly, ..Range::of(all_keys()) });
    assert_survives(&order(&mut ledger, 0, Command::Txn(Txn { then: vec![keys_only; most], ..Txn::default() })));
}

#[test]
fn outcome_of_the_largest_renewal() {
    let by = holder(&"b".repeat(HOLDER_BYTES_MAX));
    let reason = Note::parse(&"r".repeat(NOTE_BYTES_MAX)).unwrap();
    let lapsed = Refusal::Lapsed {
        lease: id(u64::MAX >> 1),
        how: End::Revoked { by, reason },
        when: Moment::from_millis(u64::MAX),
        wall_ms: u64::MAX,
    };
    assert_survives(&Ok(Reply::Renewed(vec![Err(lapsed.clone()); RENEWALS_MAX])));
    let more = Ok(Reply::Renewed(vec![Err(lapsed); RENEWALS_MAX + 1]));
    assert!(decode_outcome(&encode_outcome(&more)).is_err(), "no renewal names so many leases");
}

#[test]
fn outcome_with_unknown_version_variant_or_field_is_refused() {
    let known = encode_outcome(&Ok(Reply::Released { free_in_ms: 5 }));
    assert_eq!(known, [8, 1, 0x12, 2, 0x30, 5], "version, reply, kind");
    let unknown: [(&str, &[u8]); 12] = [
        ("no bytes", &[]),
        ("no answer", &[8, 1]),
        ("no version", &[0x12, 2, 0x30, 5]),
        ("version 0", &[8, 0, 0x12, 2, 0x30, 5]),
        ("version 2", &[8, 2, 0x12, 2, 0x30, 5]),
        ("neither a reply nor a refusal", &[8, 1, 0x22, 2, 0x30, 5]),
        ("a reply without a kind", &[8, 1, 0x12, 0]),
        ("reply 22", &[8, 1, 0x12, 3, 0xb0, 1, 5]),
        ("refusal 33", &[8, 1, 0x1a, 3, 0x88, 2, 5]),
        ("another field behind the answer", &[8, 1, 0x12, 2, 0x30, 5, 0x20, 1]),
        ("another field within the reply", &[8, 1, 0x12, 5, 0x30, 5, 0xb0, 1, 7]),
        ("two replies", &[8, 1, 0x12, 2, 0x30, 4, 0x12, 2, 0x30, 5]),
    ];
    for (what, bytes) in unknown {
        assert!(decode_outcome(bytes).is_err(), "{what}: {:?}", decode_outcome(bytes));
    }
}

#[test]
fn outcome_that_is_too_long_is_refused() {
    let full = |bytes: usize| Err(Refusal::Full { what: "w".repeat(bytes).into(), max: 1 });
    assert_survives(&full(WHAT_BYTES_MAX));
    assert!(decode_outcome(&encode_outcome(&full(WHAT_BYTES_MAX + 1))).is_err());
    let next = |bytes: usize| Ok(Reply::Revoked { count: 1, next: Some("n".repeat(bytes)) });
    assert!(decode_outcome(&encode_outcome(&next(OUTCOME_BYTES_MAX))).is_err());
    assert!(decode_outcome(&vec![0; OUTCOME_BYTES_MAX + 1]).unwrap_err().to_string().contains("more than"));
}

#[test]
fn command_with_an_unknown_kind_or_field_is_refused() {
    let command = put("k", Hang::Free);
    let bytes = command.encode();
    assert_eq!(Command::decode(&bytes), Ok(command));
    assert!(Command::decode(&[]).is_err(), "no kind");
    assert!(Command::decode(&[0xba, 6, 0]).is_err(), "kind 103");
    let more = [&bytes[..], &[0xba, 6, 0]].concat();
    assert!(Command::decode(&more).is_err(), "a field that this build does not know");
}
