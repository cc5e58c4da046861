//! Transactions on keys: what they compare is looked at first, then whether all of it can be done, and then it is done.

use super::super::Ledger;
use super::{KeyValue, Load};
use crate::command::{Compact, Hang, Keys, Put};
use crate::event::{Event, Happening};
use crate::limits::DELETED_MAX;
use crate::names::{Key, LeaseId};
use crate::reply::{Outcome, Refusal, Reply};
use crate::txn::{Compare, Op, OpDone, Relation, Subject, Txn, TxnDone};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Whether each transaction's conditions hold, the outer one first: they are looked at before anything is done.
type Path = Vec<bool>;

/// What a transaction does while it is done.
struct Doing {
    path: alloc::vec::IntoIter<bool>,
    /// The keyspace's revision before.
    began: u64,
    happenings: Vec<Happening>,
}

impl Ledger {
    pub(in crate::ledger) fn txn(&mut self, txn: &Txn, events: &mut Vec<Event>) -> Outcome {
        let path = self.path(txn);
        self.may_do(txn, &path)?;
        let mut doing = Doing { path: path.into_iter(), began: self.keyspace.revision, happenings: Vec::new() };
        let done = self.do_txn(txn, &mut doing);
        if !doing.happenings.is_empty() {
            self.happened(doing.happenings, events);
        }
        Ok(Reply::Txn(done))
    }

    /// Does a transaction that changes nothing.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnDone, Refusal> {
        let path = self.path(txn);
        self.may_do(txn, &path)?;
        Ok(self.read_only(txn, &mut path.into_iter()))
    }

    fn path(&self, txn: &Txn) -> Path {
        let held = txn.compares.iter().all(|compare| self.holds(compare));
        let within = chosen(txn, held).iter().filter_map(|op| match op {
            Op::Txn(txn) => Some(self.path(txn)),
            Op::Range(_) | Op::Put { .. } | Op::Delete { .. } => None,
        });
        core::iter::once(held).chain(within.flatten()).collect()
    }

    fn holds(&self, compare: &Compare) -> bool {
        let mut found = self.keyspace.living(&compare.keys).peekable();
        match found.peek() {
            None => !matches!(compare.subject, Subject::Value(_)) && compares(None, compare),
            Some(_) => found.all(|(_, value)| compares(Some(value), compare)),
        }
    }

    /// Whether all that a transaction would do can be done: what it writes first, then what it looks at, as etcd does.
    /// Nothing is changed by one that cannot.
    fn may_do(&self, txn: &Txn, path: &[bool]) -> Result<(), Refusal> {
        let mut ops = Vec::new();
        flatten(txn, &mut path.iter().copied(), &mut ops);
        let mut load = Load::default();
        ops.iter().try_for_each(|op| self.may_write(op, &mut load))?;
        ops.iter().try_for_each(|op| match op {
            Op::Range(range) => self.keyspace.may_look(range.revision),
            Op::Put { .. } | Op::Delete { .. } | Op::Txn(_) => Ok(()),
        })
    }

    fn may_write(&self, op: &Op, load: &mut Load) -> Result<(), Refusal> {
        match op {
            Op::Put { put, .. } if put.lease == Hang::Keep && !self.keyspace.keys.contains_key(&put.key) => {
                Err(Refusal::NoKey { key: put.key.clone() })
            }
            Op::Put { put, .. } => self.may_put(put, load),
            Op::Delete { keys, .. } => {
                load.deletes += self.keyspace.living(keys).take(DELETED_MAX + 1).count();
                if load.deletes > DELETED_MAX {
                    return Err(Refusal::Full { what: "keys in one delete", max: DELETED_MAX });
                }
                Ok(())
            }
            Op::Range(_) | Op::Txn(_) => Ok(()),
        }
    }

    fn do_txn(&mut self, txn: &Txn, doing: &mut Doing) -> TxnDone {
        let held = doing.path.next().expect("every transaction has a place on the path");
        let ops = chosen(txn, held).iter().map(|op| self.do_op(op, doing)).collect();
        TxnDone { kv_revision: self.keyspace.revision, held, ops }
    }

    fn do_op(&mut self, op: &Op, doing: &mut Doing) -> OpDone {
        match op {
            Op::Range(range) => {
                let ranged = self.keyspace.range(range).expect("whether it can be looked at was looked at");
                OpDone::Range { kv_revision: self.keyspace.revision, ranged }
            }
            Op::Put { put, prev } => self.do_put(put, *prev, doing),
            Op::Delete { keys, prev } => self.do_delete(keys, *prev, doing),
            Op::Txn(txn) => OpDone::Txn(self.do_txn(txn, doing)),
        }
    }

    fn do_put(&mut self, put: &Put, prev: bool, doing: &mut Doing) -> OpDone {
        let before = self.keyspace.keys.get(&put.key).filter(|_| prev).map(|value| (put.key.clone(), value.clone()));
        self.keyspace.revision = doing.began + 1;
        let happening = self.write_as(put, doing.next());
        doing.happenings.push(happening);
        OpDone::Put { kv_revision: self.keyspace.revision, prev: before }
    }

    fn do_delete(&mut self, keys: &Keys, prev: bool, doing: &mut Doing) -> OpDone {
        let found: Vec<(Key, KeyValue)> =
            self.keyspace.living(keys).map(|(key, value)| (key.clone(), value.clone())).collect();
        if !found.is_empty() {
            self.keyspace.revision = doing.began + 1;
        }
        for (key, value) in &found {
            self.hang(key, value.lease, None);
            let happening = self.take(key, doing.next());
            doing.happenings.push(happening);
        }
        let (kv_revision, count) = (self.keyspace.revision, found.len() as u64);
        OpDone::Deleted { kv_revision, count, prev: if prev { found } else { Vec::new() } }
    }

    fn read_only(&self, txn: &Txn, path: &mut impl Iterator<Item = bool>) -> TxnDone {
        let held = path.next().expect("every transaction has a place on the path");
        let kv_revision = self.keyspace.revision;
        let ops = chosen(txn, held).iter().map(|op| match op {
            Op::Range(range) => {
                let ranged = self.keyspace.range(range).expect("whether it can be looked at was looked at");
                OpDone::Range { kv_revision, ranged }
            }
            Op::Txn(txn) => OpDone::Txn(self.read_only(txn, path)),
            Op::Put { .. } | Op::Delete { .. } => unreachable!("it changes nothing"),
        });
        TxnDone { kv_revision, held, ops: ops.collect() }
    }

    /// Forgets what keys were before a revision.
    pub(in crate::ledger) fn compact(&mut self, compact: Compact) -> Outcome {
        let (past, kv_revision) = (&mut self.keyspace.past, self.keyspace.revision);
        let compacted = past.compacted.map_or(-1, |compacted| i64::try_from(compacted).unwrap_or(i64::MAX));
        if compact.revision <= compacted {
            return Err(Refusal::Compacted { compacted: past.compacted.unwrap_or_default() });
        }
        match u64::try_from(compact.revision) {
            Ok(revision) if revision <= kv_revision => past.compacted = Some(revision),
            _ => return Err(Refusal::NotYet { kv_revision }),
        }
        Ok(Reply::Compacted { kv_revision })
    }
}

impl Doing {
    /// The place of the next change among those of this transaction.
    fn next(&self) -> u32 {
        u32::try_from(self.happenings.len()).expect("a transaction is bounded")
    }
}

fn chosen(txn: &Txn, held: bool) -> &[Op] {
    if held { &txn.then } else { &txn.otherwise }
}

/// All that a transaction does along a path, in order, with what those within it do.
fn flatten<'a>(txn: &'a Txn, path: &mut impl Iterator<Item = bool>, ops: &mut Vec<&'a Op>) {
    let held = path.next().expect("every transaction has a place on the path");
    for op in chosen(txn, held) {
        match op {
            Op::Txn(txn) => flatten(txn, path, ops),
            op => ops.push(op),
        }
    }
}

fn compares(value: Option<&KeyValue>, compare: &Compare) -> bool {
    let number = |of: fn(&KeyValue) -> u64| i64::try_from(value.map_or(0, of)).unwrap_or(i64::MAX);
    let order = match &compare.subject {
        Subject::Version(given) => number(|value| value.version).cmp(given),
        Subject::Created(given) => number(|value| value.create_revision).cmp(given),
        Subject::Modified(given) => number(|value| value.mod_revision).cmp(given),
        Subject::Lease(given) => number(|value| value.lease.map_or(0, LeaseId::number)).cmp(given),
        Subject::Value(given) => value.map_or(&[][..], |value| &value.value).cmp(given),
    };
    match compare.relation {
        Relation::Equal => order == Ordering::Equal,
        Relation::Greater => order == Ordering::Greater,
        Relation::Less => order == Ordering::Less,
        Relation::NotEqual => order != Ordering::Equal,
    }
}
