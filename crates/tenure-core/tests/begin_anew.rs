//! A ledger that goes on from a copy of another: what it gives out is never what the other gave out after the copy.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tenure_core::{Command, Entry, Grant, Holder, Leader, LeaseId, Ledger, Moment, Revision, Ttl, limits};

fn granted(leases: u64) -> Ledger {
    let mut ledger = Ledger::default();
    for number in 1..=leases {
        let (lease, holder) = (LeaseId::from_number(number).unwrap(), Holder::parse("ann").unwrap());
        let grant = Grant::plain(lease, holder, Ttl::from_millis(1_000).unwrap(), number);
        let (leader, commands) = (Leader { term: 1, node: 1 }, vec![Command::Grant(grant)]);
        ledger.apply(&Entry {
            leader,
            now: Moment::from_millis(number),
            wall_ms: 0,
            rules: limits::RULES_MAX,
            commands,
        });
    }
    ledger
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
