//! A ledger that goes on from a copy of another: what it gives out is never what the other gave out after the copy.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tenure_core::{
    Command, Compact, Delete, Entry, Grant, Hang, Holder, Key, Keys, Leader, LeaseId, Ledger, Moment, Outcome, Put,
    Range, Refusal, Revision, Ttl, limits,
};

fn granted(leases: u64) -> Ledger {
    let mut ledger = Ledger::default();
    for number in 1..=leases {
        let (lease, holder) = (LeaseId::from_number(number).unwrap(), Holder::parse("ann").unwrap());
        let grant = Grant::plain(lease, holder, Ttl::from_millis(1_000).unwrap(), number);
        apply(&mut ledger, vec![Command::Grant(grant)]);
    }
    ledger
}

fn apply(ledger: &mut Ledger, commands: Vec<Command>) -> Vec<Outcome> {
    let (leader, now) = (Leader { term: 1, node: 1 }, Moment::from_millis(ledger.now().millis() + 1));
    ledger.apply(&Entry { leader, now, wall_ms: 0, rules: limits::RULES_MAX, commands }).outcomes
}

#[test]
fn counters_move_on_and_the_past_cannot_be_watched() {
    let mut ledger = granted(5);
    let before = ledger.revision();
    assert_eq!(ledger.events_after((Revision(0), u32::MAX)).unwrap().count(), 5);
    assert!(ledger.begin_anew(1 << 36, 1_000));
    assert_eq!((ledger.last_fence(), ledger.revision()), (1 << 36, Revision(before.0 + 1_000)));
    assert_eq!(ledger.lease_count(), 5, "what lived lives on");
    for old in [Revision(0), before, Revision(before.0 + 999)] {
        assert_eq!(ledger.events_after((old, u32::MAX)).err(), Some(ledger.revision()), "{old:?}");
    }
    assert_eq!(ledger.events_after((ledger.revision(), u32::MAX)).unwrap().count(), 0);
    let mut bytes = Vec::new();
    ledger.write_snapshot(|piece| bytes.extend_from_slice(piece));
    assert_eq!(Ledger::read_snapshot(&bytes).unwrap().state_hash(), ledger.state_hash());
}

#[test]
fn a_counter_never_goes_back_or_out_of_its_bounds() {
    let mut ledger = granted(2);
    assert!(ledger.begin_anew(100, 0));
    let hash = ledger.state_hash();
    assert!(!ledger.begin_anew(99, 0), "a fence that may have been given out");
    assert!(!ledger.begin_anew(1 << 52, 0), "a fence that leaves no room");
    assert!(!ledger.begin_anew(100, u64::MAX), "revisions that run over");
    assert_eq!(ledger.state_hash(), hash, "nothing was changed");
}

/// What keys were before cannot be looked at, and is not to be told apart from what a restart reads.
#[test]
fn the_past_of_keys_is_forgotten() {
    for (revisions, is_told) in [(1_000, 0), (0, 1)] {
        let mut ledger = granted(0);
        let put = |key: &str| {
            let key = Key::parse(key.as_bytes()).unwrap();
            Command::Put(Put { key, value: Some([1][..].into()), lease: Hang::Free })
        };
        let delete = Command::Delete(Delete { keys: Keys::Prefix(b"b"[..].into()) });
        apply(&mut ledger, vec![put("a"), put("b"), put("a"), delete, put("c")]);
        let before = ledger.kv_revision();
        assert_eq!(before, 6);
        assert!(ledger.begin_anew(9, revisions));
        let (now, gone) = (before + revisions, Refusal::Compacted { compacted: before + revisions });
        assert_eq!((ledger.kv_revision(), ledger.kv_compacted(), ledger.key_count()), (now, Some(now), 2));
        let mut bytes = Vec::new();
        ledger.write_snapshot(|piece| bytes.extend_from_slice(piece));
        let mut again = Ledger::read_snapshot(&bytes).unwrap();
        for ledger in [&mut ledger, &mut again] {
            let at = |revision: u64| Range {
                revision: i64::try_from(revision).ok(),
                ..Range::of(Keys::Prefix([][..].into()))
            };
            assert_eq!(ledger.range(&at(now - 1)).err(), Some(gone.clone()));
            assert_eq!(ledger.range(&at(now)).unwrap().count, 2);
            assert_eq!(ledger.changes_from(now - 1).err(), Some(gone.clone()));
            assert_eq!(ledger.changes_from(now).unwrap().count(), is_told, "only what this very revision wrote");
            let compact = Command::Compact(Compact { revision: i64::try_from(now).unwrap() });
            assert_eq!(apply(ledger, vec![compact, put("a")])[0], Err(gone.clone()));
            let change = ledger.changes_from(now + 1).unwrap().next().unwrap();
            assert_eq!((change.kv_revision, change.became.unwrap().version), (now + 1, 3));
            assert_eq!(change.before.unwrap().version, 2, "what it was when the new ledger began is known");
        }
        assert_eq!(ledger.state_hash(), again.state_hash());
    }
}
