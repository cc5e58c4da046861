//! Ranges and transactions. What a transaction compares, and those within it, is decided before anything is done; whether
//! all of it can be done as well, all puts before all ranges.

use super::Model;
use super::keys::{Map, is_meant};
use std::cmp::{Ordering, Reverse};
use tenure_core::{
    Compare, Hang, Happening, Key, KeyValue, Keys, Op, OpDone, Outcome, Part, Put, Range, Ranged, Refusal, Relation,
    Reply, SortBy, Subject, Txn, TxnDone, Way, Within,
};

/// What is done of a transaction.
struct Decided<'a> {
    held: bool,
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    Range(&'a Range),
    Put(&'a Put, bool),
    Delete(&'a Keys, bool),
    Txn(Decided<'a>),
}

fn meant<'a>(map: &'a Map, keys: &Keys) -> Vec<(&'a Key, &'a KeyValue)> {
    map.iter().filter(|(key, _)| is_meant(keys, key)).collect()
}

impl Model {
    pub(super) fn txn(&mut self, txn: &Txn) -> Outcome {
        let decided = self.decide(txn);
        let mut steps = Vec::new();
        decided.all(&mut steps);
        for step in &steps {
            match step {
                Step::Put(put, _) if put.lease == Hang::Keep && !self.keys.contains_key(&put.key) => {
                    return Err(Refusal::NoKey { key: put.key.clone() });
                }
                Step::Put(put, _) => self.may_put(put)?,
                Step::Delete(keys, _) => self.may_remove(|key| is_meant(keys, key))?,
                Step::Range(_) | Step::Txn(_) => {}
            }
        }
        for range in steps.iter().filter_map(|step| if let Step::Range(range) = step { Some(range) } else { None }) {
            self.may_look(range.revision)?;
        }
        let (began, mut happened) = (self.kv_revision, Vec::new());
        let done = self.carry_out(&decided, began, &mut happened);
        self.keep_the_map();
        if !happened.is_empty() {
            self.change(happened);
        }
        Ok(Reply::Txn(done))
    }

    fn decide<'a>(&self, txn: &'a Txn) -> Decided<'a> {
        let held = txn.compares.iter().all(|compare| self.holds(compare));
        let step = |op: &'a Op| match op {
            Op::Range(range) => Step::Range(range),
            Op::Put { put, prev } => Step::Put(put, *prev),
            Op::Delete { keys, prev } => Step::Delete(keys, *prev),
            Op::Txn(txn) => Step::Txn(self.decide(txn)),
        };
        Decided { held, steps: if held { &txn.then } else { &txn.otherwise }.iter().map(step).collect() }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = meant(&self.keys, &compare.keys);
        if found.is_empty() {
            let given = match compare.subject {
                Subject::Value(_) => return false,
                Subject::Version(it) | Subject::Created(it) | Subject::Modified(it) | Subject::Lease(it) => it,
            };
            return is_related(0.cmp(&given), compare.relation);
        }
        let number = |number: u64| i64::try_from(number).expect("a history is short");
        found.iter().all(|(_, has)| {
            let order = match &compare.subject {
                Subject::Version(given) => number(has.version).cmp(given),
                Subject::Created(given) => number(has.create_revision).cmp(given),
                Subject::Modified(given) => number(has.mod_revision).cmp(given),
                Subject::Lease(given) => number(has.lease.map_or(0, |lease| lease.number())).cmp(given),
                Subject::Value(given) => has.value.cmp(given),
            };
            is_related(order, compare.relation)
        })
    }

    fn carry_out(&mut self, decided: &Decided<'_>, began: u64, happened: &mut Vec<Happening>) -> TxnDone {
        let mut ops = Vec::new();
        for step in &decided.steps {
            ops.push(match step {
                Step::Range(range) => OpDone::Range { kv_revision: self.kv_revision, ranged: self.ranged(range) },
                Step::Put(put, prev) => {
                    let before = self.keys.get(&put.key).filter(|_| *prev).cloned();
                    self.kv_revision = began + 1;
                    happened.push(self.write(put));
                    OpDone::Put { kv_revision: began + 1, prev: before.map(|before| (put.key.clone(), before)) }
                }
                Step::Delete(keys, prev) => {
                    let found = meant(&self.keys, keys).into_iter();
                    let found: Vec<(Key, KeyValue)> = found.map(|(key, it)| (key.clone(), it.clone())).collect();
                    if !found.is_empty() {
                        self.kv_revision = began + 1;
                    }
                    happened.extend(found.iter().map(|(key, _)| self.remove(key.clone())));
                    let count = found.len() as u64;
                    let prev = if *prev { found } else { Vec::new() };
                    OpDone::Deleted { kv_revision: self.kv_revision, count, prev }
                }
                Step::Txn(decided) => OpDone::Txn(self.carry_out(decided, began, happened)),
            });
        }
        TxnDone { kv_revision: self.kv_revision, held: decided.held, ops }
    }

    /// Whether a revision can be looked at.
    pub(super) fn may_look(&self, revision: Option<i64>) -> Result<(), Refusal> {
        let Some(revision) = revision.map(i128::from) else { return Ok(()) };
        if revision > i128::from(self.kv_revision) {
            return Err(Refusal::NotYet { kv_revision: self.kv_revision });
        }
        match self.compacted {
            Some(compacted) if revision < i128::from(compacted) => Err(Refusal::Compacted { compacted }),
            None if revision < -1 => Err(Refusal::Compacted { compacted: 0 }),
            _ => Ok(()),
        }
    }

    pub(crate) fn range(&self, range: &Range) -> Result<Ranged, Refusal> {
        self.may_look(range.revision)?;
        Ok(self.ranged(range))
    }

    fn ranged(&self, range: &Range) -> Ranged {
        let map = match range.revision {
            Some(revision) if revision > 0 => &self.maps[usize::try_from(revision).expect("a history is short")],
            _ => &self.keys,
        };
        let mut found = meant(map, &range.keys);
        let count = found.len() as u64;
        if range.part == Part::CountOnly {
            return Ranged { items: Vec::new(), more: false, count };
        }
        let is_whole = range.modified == Within::ANY && range.created == Within::ANY;
        let is_in_order = range.sort.is_none_or(|sort| sort.way.is_none());
        if let Some(limit) = range.limit.filter(|_| is_whole && is_in_order) {
            found.truncate(limit + 1);
        }
        found.retain(|(_, it)| is_within(it.mod_revision, range.modified));
        found.retain(|(_, it)| is_within(it.create_revision, range.created));
        if let Some(sort) = range.sort {
            match sort.way {
                Some(Way::Down) => found.sort_by_key(|item| Reverse(rank(item, sort.by))),
                Some(Way::Up) | None => found.sort_by_key(|item| rank(item, sort.by)),
            }
        }
        let limit = range.limit.unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let shown = |(key, it): (&Key, &KeyValue)| {
            let value = if range.part == Part::KeysOnly { [][..].into() } else { it.value.clone() };
            (key.clone(), KeyValue { value, ..it.clone() })
        };
        Ranged { items: found.into_iter().map(shown).collect(), more, count }
    }
}

impl<'a> Decided<'a> {
    /// All that is done, in order, whatever it is within.
    fn all<'b>(&'b self, steps: &mut Vec<&'b Step<'a>>) {
        for step in &self.steps {
            match step {
                Step::Txn(decided) => decided.all(steps),
                step => steps.push(step),
            }
        }
    }
}

fn is_related(order: Ordering, relation: Relation) -> bool {
    match relation {
        Relation::Equal => order.is_eq(),
        Relation::Greater => order.is_gt(),
        Relation::Less => order.is_lt(),
        Relation::NotEqual => order.is_ne(),
    }
}

fn is_within(revision: u64, within: Within) -> bool {
    let revision = i64::try_from(revision).expect("a history is short");
    let (least, most) = (within.min, if within.max == 0 { i64::MAX } else { within.max });
    (least..=most).contains(&revision)
}

/// Bytes that are in order as keys are by something.
fn rank((key, it): &(&Key, &KeyValue), by: SortBy) -> Vec<u8> {
    match by {
        SortBy::Key => key.bytes().to_vec(),
        SortBy::Version => it.version.to_be_bytes().to_vec(),
        SortBy::Created => it.create_revision.to_be_bytes().to_vec(),
        SortBy::Modified => it.mod_revision.to_be_bytes().to_vec(),
        SortBy::Value => it.value.to_vec(),
    }
}
