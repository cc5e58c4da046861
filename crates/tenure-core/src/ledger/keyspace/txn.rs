//! Transactions on keys: what they compare is looked at first, then whether all of it can be done, and then it is done.

use super::super::Ledger;
use super::budget::Budget;
use super::{KeyValue, Keyspace, Load};
use crate::command::{Compact, Hang, Keys, Put};
use crate::event::{Event, Happening};
use crate::limits::{DELETED_MAX, KEY_COST_BYTES};
use crate::names::{Key, LeaseId};
use crate::reply::{Outcome, Refusal, Reply};
use crate::txn::{Compare, Op, OpDone, Part, Range, Ranged, Relation, Subject, Txn, TxnDone};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

/// Whether each transaction's conditions hold, the outer one first: they are looked at before anything is done.
type Path = Vec<bool>;

/// What a transaction does while it is done.
struct Doing {
    path: alloc::vec::IntoIter<bool>,
    /// The keyspace's revision before.
    began: u64,
    happenings: Vec<Happening>,
    /// Whether a client waits for what it answers.
    answers: bool,
}

impl Ledger {
    pub(in crate::ledger) fn txn(&mut self, txn: &Txn, events: &mut Vec<Event>) -> Outcome {
        let mut budget = self.work.answers.budget();
        let path = self.plan(txn, &mut budget);
        let looked = self.work.answers.settle(&budget);
        self.work.took(looked);
        let (began, answers) = (self.keyspace.revision, self.work.answers.are_wanted());
        let mut doing = Doing { path: path?.into_iter(), began, happenings: Vec::new(), answers };
        let done = self.do_txn(txn, &mut doing);
        if !doing.happenings.is_empty() {
            self.happened(doing.happenings, events);
        }
        Ok(Reply::Txn(done))
    }

    /// Does a transaction that changes nothing.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnDone, Refusal> {
        let path = self.plan(txn, &mut Budget::alone())?;
        Ok(self.read_only(txn, &mut path.into_iter()))
    }

    /// Which way a transaction goes, if all of it can be done.
    fn plan(&self, txn: &Txn, budget: &mut Budget) -> Result<Path, Refusal> {
        txn.check_size()?;
        let mut path = Path::new();
        self.choose(txn, &mut path, budget)?;
        self.may_do(txn, &path, budget)?;
        Ok(path)
    }

    fn choose(&self, txn: &Txn, path: &mut Path, budget: &mut Budget) -> Result<(), Refusal> {
        let mut held = true;
        for compare in &txn.compares {
            held = held && self.holds(compare, budget)?;
        }
        path.push(held);
        chosen(txn, held).iter().try_for_each(|op| match op {
            Op::Txn(txn) => self.choose(txn, path, budget),
            Op::Range(_) | Op::Put { .. } | Op::Delete { .. } => Ok(()),
        })
    }

    fn holds(&self, compare: &Compare, budget: &mut Budget) -> Result<bool, Refusal> {
        let mut is_empty = true;
        for (_, value) in self.keyspace.living(&compare.keys) {
            budget.look()?;
            is_empty = false;
            if !compares(Some(value), compare) {
                return Ok(false);
            }
        }
        Ok(!is_empty || !matches!(compare.subject, Subject::Value(_)) && compares(None, compare))
    }

    /// Whether all that a transaction would do can be done: what it writes first, then what it looks at, as etcd does.
    /// Nothing is changed by one that cannot.
    fn may_do(&self, txn: &Txn, path: &[bool], budget: &mut Budget) -> Result<(), Refusal> {
        let mut ops = Vec::new();
        flatten(txn, &mut path.iter().copied(), &mut ops);
        let mut load = Load::default();
        ops.iter().try_for_each(|op| self.may_write(op, &mut load, budget))?;
        let mut written = BTreeMap::new();
        ops.iter().try_for_each(|op| match op {
            Op::Range(range) => {
                self.keyspace.may_look(range.revision)?;
                self.keyspace.count_range(range, &written, budget)
            }
            Op::Put { put, .. } => {
                written.insert(put.key.bytes(), put.value.as_ref().map_or(0, |value| value.len()));
                Ok(())
            }
            Op::Delete { .. } | Op::Txn(_) => Ok(()),
        })
    }

    fn may_write(&self, op: &Op, load: &mut Load, budget: &mut Budget) -> Result<(), Refusal> {
        match op {
            Op::Put { put, .. } if put.lease == Hang::Keep && !self.keyspace.keys.contains_key(&put.key) => {
                Err(Refusal::NoKey { key: put.key.clone() })
            }
            Op::Put { put, prev } => {
                self.may_put(put, load)?;
                let before = self.keyspace.keys.get(&put.key).filter(|_| *prev);
                before.map_or(Ok(()), |before| budget.answer(answered(put.key.bytes(), &before.value)))
            }
            Op::Delete { keys, prev } => {
                let found = self.keyspace.to_delete(keys, load.deletes, budget)?;
                found.iter().try_for_each(|(_, value)| self.may_remove_key(value))?;
                load.deletes += found.len();
                let mut told = found.iter().filter(|_| *prev);
                told.try_for_each(|(key, value)| budget.answer(answered(key.bytes(), &value.value)))
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
                let looks = || self.keyspace.range(range).expect("whether it can be looked at was looked at");
                let ranged = if doing.answers { looks() } else { Ranged::default() };
                OpDone::Range { kv_revision: self.keyspace.revision, ranged }
            }
            Op::Put { put, prev } => self.do_put(put, *prev, doing),
            Op::Delete { keys, prev } => self.do_delete(keys, *prev, doing),
            Op::Txn(txn) => OpDone::Txn(self.do_txn(txn, doing)),
        }
    }

    fn do_put(&mut self, put: &Put, prev: bool, doing: &mut Doing) -> OpDone {
        let before = self.keyspace.keys.get(&put.key).filter(|_| prev && doing.answers);
        let before = before.map(|value| (put.key.clone(), value.clone()));
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
        OpDone::Deleted { kv_revision, count, prev: if prev && doing.answers { found } else { Vec::new() } }
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

/// About how many bytes a key takes in an answer.
fn answered(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + KEY_COST_BYTES as usize
}

impl Keyspace {
    /// The keys that a delete would remove, beside so many that the same command removes before it.
    pub(super) fn to_delete<'a>(
        &'a self,
        keys: &'a Keys,
        before: usize,
        budget: &mut Budget,
    ) -> Result<Vec<(&'a Key, &'a KeyValue)>, Refusal> {
        let found: Vec<_> = self.living(keys).take(DELETED_MAX - before + 1).collect();
        // What is refused was looked at, too.
        found.iter().try_for_each(|_| budget.look())?;
        if before + found.len() > DELETED_MAX {
            return Err(Refusal::Full { what: "keys in one delete".into(), max: DELETED_MAX });
        }
        Ok(found)
    }

    /// Counts what a range looks at and answers, among the keys that there are and those that its own transaction wrote
    /// before it. It counts rather too much: a key that is written anew counts twice, and a sorted range all its keys.
    fn count_range(&self, range: &Range, written: &BTreeMap<&[u8], usize>, budget: &mut Budget) -> Result<(), Refusal> {
        let first = (Bound::Included(range.keys.first()), Bound::Unbounded);
        let is_past = self.past_revision(range).is_some();
        self.living(&range.keys).try_for_each(|_| budget.look())?;
        // As it was before this transaction wrote, which is the past by then, looks at the past as well.
        if range.revision.is_some() {
            let keys = self.past.versions.range::<[u8], _>(first).map(|(key, _)| key);
            keys.take_while(|key| range.keys.cover(key.bytes())).try_for_each(|_| budget.look())?;
        }
        let takes_all = range.is_filtered() || range.sort.is_some_and(|sort| sort.way.is_some());
        let most = if takes_all { usize::MAX } else { range.limit.unwrap_or(usize::MAX) };
        let size = |key: &[u8], value: usize| match range.part {
            Part::Whole => key.len() + value + KEY_COST_BYTES as usize,
            Part::KeysOnly => key.len() + KEY_COST_BYTES as usize,
            Part::CountOnly => 0,
        };
        self.found(range)
            .take(most)
            .try_for_each(|(key, value)| budget.answer(size(key.bytes(), value.value.len())))?;
        if is_past {
            return Ok(());
        }
        for (key, value) in written.range::<[u8], _>(first).take_while(|(key, _)| range.keys.cover(key)) {
            budget.look()?;
            budget.answer(size(key, *value))?;
        }
        Ok(())
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
