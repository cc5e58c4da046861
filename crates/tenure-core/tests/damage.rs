//! Bytes that were changed on their way: they are read whole or refused, and never stop the program.

use crate::support::history::{Plan, instance_plans, key_plans, plans};
use crate::support::samples::Draw;
use crate::support::{acquire, entry, grant, revoke, runner, snapshot, tick};
use proptest::collection;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseError;
use std::cell::Cell;
use tenure_core::{Command, Entry, Ledger, decode_outcome, encode_outcome};

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

#[test]
fn a_damaged_outcome_is_read_whole_or_refused() {
    let tally = Tally::default();
    let strategy = (any::<u64>().no_shrink(), collection::vec((any::<usize>(), faults()), 100));
    let result = runner(200, file!()).run(&strategy, |(seed, damages)| {
        let outcomes = Draw::new(seed).outcomes();
        for (at, faults) in damages {
            let mut bytes = encode_outcome(&outcomes[at % outcomes.len()]);
            faults.iter().for_each(|fault| inflict(&mut bytes, fault));
            let read = decode_outcome(&bytes);
            tally.count(&read);
            if read.is_ok_and(|read| encode_outcome(&read) != bytes) {
                return Err(TestCaseError::fail("an outcome that was read has everything that the bytes have"));
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}

#[test]
fn a_damaged_command_is_read_whole_or_refused() {
    let tally = Tally::default();
    let histories = prop_oneof![plans(6).boxed(), key_plans(6).boxed(), instance_plans(6).boxed()];
    let strategy = (histories, collection::vec((any::<usize>(), faults()), 40));
    let result = runner(200, file!()).run(&strategy, |(plans, damages)| {
        let (_, entry) = played(&plans);
        for (at, faults) in damages.into_iter().filter(|_| !entry.commands.is_empty()) {
            let mut bytes = entry.commands[at % entry.commands.len()].encode();
            faults.iter().for_each(|fault| inflict(&mut bytes, fault));
            let read = Command::decode(&bytes);
            tally.count(&read);
            if read.is_ok_and(|read| read.encode() != bytes) {
                return Err(TestCaseError::fail("a command that was read has everything that the bytes have"));
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}

/// An outcome that ends early is noticed wherever it ends.
#[test]
fn an_outcome_that_was_cut_is_refused() {
    for outcome in Draw::new(1).outcomes() {
        let whole = encode_outcome(&outcome);
        // Every byte of a short one; the first and the last, and some between, of a long one.
        for end in (0..whole.len()).filter(|end| *end < 200 || whole.len() - end < 200 || end % 97 == 0) {
            assert!(decode_outcome(&whole[..end]).is_err(), "{end} bytes of {outcome:?}");
        }
        assert_eq!(decode_outcome(&whole), Ok(outcome));
    }
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
        tally.count(&Command::decode(&bytes));
        tally.count(&decode_outcome(&bytes));
        // Behind the version, as a reply and as a refusal.
        let body = &bytes[..bytes.len().min(127)];
        let length = u8::try_from(body.len()).expect("it is one byte of a length");
        for tag in [0x12, 0x1a] {
            tally.count(&decode_outcome(&[&[8, 1, tag, length], body].concat()));
        }
        Ok(())
    });
    result.unwrap();
    println!("{}", tally.finish());
}
