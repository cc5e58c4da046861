//! Snapshots that no ledger could have written are refused, and what a retry is told is kept.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod support;

use support::{acquire, acquire_on, grant, id, name, order, release};
use tenure_core::{Ledger, Refusal, Reply, Wait, limits};

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

fn bytes(out: &mut Vec<u8>, tag: u64, it: &[u8]) {
    varint(out, (tag << 3) | 2);
    varint(out, it.len() as u64);
    out.extend(it);
}

fn record(out: &mut Vec<u8>, tag: u64, it: &[u8]) {
    let mut body = Vec::new();
    bytes(&mut body, tag, it);
    varint(out, body.len() as u64);
    out.extend(body);
}

fn head(revision: u64, fence: u64, arrival: u64, records: u64) -> Vec<u8> {
    let (mut it, mut out) = (Vec::new(), Vec::new());
    for (tag, n) in [(3, revision), (4, fence), (5, arrival), (8, records)] {
        number(&mut it, tag, n);
    }
    record(&mut out, 1, &it);
    out
}

#[test]
fn a_fence_counter_at_its_end_is_refused() {
    assert!(Ledger::read_snapshot(&head(0, limits::FENCE_MAX, 0, 0)).is_err());
    assert!(Ledger::read_snapshot(&head(0, limits::FENCE_MAX / 4, 0, 0)).is_ok());
}

#[test]
fn a_revision_at_its_end_is_refused() {
    assert!(Ledger::read_snapshot(&head(u64::MAX, 0, 0, 0)).is_err());
}

#[test]
fn an_arrival_at_its_end_is_refused() {
    assert!(Ledger::read_snapshot(&head(0, 0, u64::MAX, 0)).is_err());
}

#[test]
fn a_lease_with_two_claims_on_one_resource_is_refused() {
    let mut it = vec![(1 << 3) | 1, 1, 0, 0, 0, 0, 0, 0, 0];
    bytes(&mut it, 2, b"ann");
    number(&mut it, 3, 1000);
    number(&mut it, 4, 1000);
    number(&mut it, 8, 1);
    for (fence, arrival) in [(1u64, 0u64), (0, 1)] {
        let mut stake = Vec::new();
        bytes(&mut stake, 1, b"db");
        number(&mut stake, 2, fence);
        number(&mut stake, 5, arrival);
        bytes(&mut it, 9, &stake);
    }
    let mut all = head(0, 1, 1, 1);
    record(&mut all, 2, &it);
    assert!(Ledger::read_snapshot(&all).is_err());
}
