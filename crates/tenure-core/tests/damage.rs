//! Bytes that were changed on their way: they are read whole or refused, and never stop the program.

use crate::support::history::{Plan, plans};
use crate::support::{acquire, entry, grant, revoke, runner, snapshot, tick};
use proptest::collection;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseError;
use std::cell::Cell;
use tenure_core::{Entry, Ledger};

/// A history's ledger, and its last entry.
fn played(plans: &[Plan]) -> (Ledger, Entry) {
    let (mut ledger, mut last) = (Ledger::default(), tick(0));
    for plan in plans {
        last = plan.entry(&ledger);
        ledger.apply(&last);
    }
    (ledger, last)
}

/// One way to damage bytes; positions are taken modulo the length.
#[derive(Clone, Debug)]
enum Fault {
    Flip(usize, u8),
    Set(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, Vec<u8>),
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let at = || any::<usize>();
    let fault = prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Fault::Flip(at, 1 << bit)),
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Fault::Set(at, byte)),
        1 => at().prop_map(Fault::Cut),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Fault::Remove(at, count)),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Fault::Repeat(at, count)),
        1 => (at(), collection::vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Fault::Insert(at, bytes)),
    ];
    collection::vec(fault, 1..3)
}

fn inflict(bytes: &mut Vec<u8>, fault: &Fault) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match fault {
        Fault::Flip(at, bit) => bytes[at % length] ^= bit,
        Fault::Set(at, byte) => bytes[at % length] = *byte,
        Fault::Cut(at) => bytes.truncate(at % length),
        Fault::Remove(at, count) => drop(bytes.drain(at % length..(at % length + count).min(length))),
        Fault::Repeat(at, count) => {
            let again = bytes[at % length..(at % length + count).min(length)].to_vec();
            bytes.splice(at % length..at % length, again);
        }
        Fault::Insert(at, more) => drop(bytes.splice(at % length..at % length, more.iter().copied())),
    }
}

/// How many damaged inputs were refused and how many were read.
#[derive(Default)]
struct Tally {
    refused: Cell<u32>,
    read: Cell<u32>,
}

impl Tally {
    fn count<T, E>(&self, read: &Result<T, E>) {
        let counter = if read.is_ok() { &self.read } else { &self.refused };
        counter.set(counter.get() + 1);
    }

    fn finish(&self) -> String {
        assert!(self.refused.get() > 0, "some damage was inflicted and noticed");
        format!("{} damaged inputs refused, {} read", self.refused.get(), self.read.get())
    }
}

#[test]
fn a_damaged_entry_is_read_whole_or_refused() {
    let tally = Tally::default();
    let strategy = (plans(6), collection::vec(faults(), 40));
    let result = runner(300, file!()).run(&strategy, |(plans, damages)| {
        let (ledger, entry) = played(&plans);
        for faults in damages {
            let mut bytes = entry.encode();
            faults.iter().for_each(|fault| inflict(&mut bytes, fault));
            let read = Entry::decode(&bytes);
            tally.count(&read);
            if let Ok(read) = read {
                // What was read is an entry like any other.
                if Entry::decode(&read.encode()).as_ref() != Ok(&read) {
                    return Err(TestCaseError::fail("an entry that was read is written and read again"));
                }
                ledger.clone().apply(&read);
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}

#[test]
fn a_damaged_snapshot_is_read_whole_or_refused() {
    let tally = Tally::default();
    let strategy = (plans(20), collection::vec(faults(), 40));
    let result = runner(300, file!()).run(&strategy, |(plans, damages)| {
        let (ledger, _) = played(&plans);
        let whole = snapshot(&ledger);
        for faults in damages {
            let mut bytes = whole.clone();
            faults.iter().for_each(|fault| inflict(&mut bytes, fault));
            let read = Ledger::read_snapshot(&bytes);
            tally.count(&read);
            // What was read can be written, and lives on.
            if let Ok(mut ledger) = read {
                let next = ledger.next_deadline().map_or(0, |next| next.millis().min(1 << 60));
                ledger.apply(&tick(next));
                ledger.apply(&tick(next.saturating_add(100_000)));
                ledger.state_hash();
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}

/// A snapshot that ends early is noticed, also when it ends between two records.
#[test]
fn a_snapshot_that_was_cut_is_refused() {
    let mut ledger = Ledger::default();
    ledger.apply(&entry(0, vec![acquire(1, "a", 1000), acquire(2, "a", 5000), grant(3, 500), grant(4, 60_000)]));
    ledger.apply(&entry(500, vec![revoke(4)]));
    let whole = snapshot(&ledger);
    assert!((0..whole.len()).all(|end| Ledger::read_snapshot(&whole[..end]).is_err()));
    let twice = [whole.clone(), whole.clone()].concat();
    assert!(Ledger::read_snapshot(&twice).is_err(), "two snapshots are not one");
    assert_eq!(Ledger::read_snapshot(&whole).unwrap().state_hash(), ledger.state_hash());
}

#[test]
fn random_bytes_are_never_a_panic() {
    let tally = Tally::default();
    let result = runner(4000, file!()).run(&collection::vec(any::<u8>(), 0..200), |bytes| {
        tally.count(&Entry::decode(&bytes));
        tally.count(&Ledger::read_snapshot(&bytes));
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}
