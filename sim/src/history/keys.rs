//! Keys as histories see them: values with versions, that may hang on a lease. Transactions bind keys together.

use super::{Model, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of a key.
pub type Key = Arc<str>;

/// A value that no answer shows. All such values are alike.
const UNSEEN: u64 = u64::MAX;

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Its value.
    pub value: u64,
    /// How often it was written since it was created.
    pub version: u64,
}

/// A condition of a transaction: the key has this value, or is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which key.
    pub key: Key,
    /// Its value; none if it must not be there.
    pub value: Option<u64>,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Writes a key.
    Put(Key, u64),
    /// Removes a key.
    Delete(Key),
    /// Reads a key.
    Get(Key),
}

impl Part {
    fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) | Self::Get(key) => key,
        }
    }
}

/// What a transaction answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Whether its conditions held.
    pub held: bool,
    /// What its reads found, in their order.
    pub found: Vec<Option<Cell>>,
}

/// An operation on keys, with its answer. Without one it is not known what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes a key.
    Put {
        /// Which.
        key: Key,
        /// Its value, unlike all others.
        value: u64,
        /// The lease that it hangs on.
        lease: Option<u64>,
        /// The version that was answered.
        version: Option<u64>,
    },
    /// Reads a key.
    Get {
        /// Which.
        key: Key,
        /// What was found.
        found: Option<Cell>,
    },
    /// Removes a key.
    Delete {
        /// Which.
        key: Key,
        /// How many there were.
        count: Option<u64>,
    },
    /// Compares, then writes, removes and reads, in one step.
    Txn {
        /// What must hold.
        conditions: Vec<Condition>,
        /// What is done if it does.
        then: Vec<Part>,
        /// What is done if it does not.
        otherwise: Vec<Part>,
        /// What was answered.
        done: Option<Done>,
    },
    /// A lease ended, with the keys that hung on it.
    End {
        /// Which.
        lease: u64,
    },
}

impl Act {
    /// The keys that it names.
    pub fn keys(&self) -> Vec<&Key> {
        match self {
            Self::Put { key, .. } | Self::Get { key, .. } | Self::Delete { key, .. } => vec![key],
            Self::Txn { conditions, then, otherwise, .. } => {
                let parts = then.iter().chain(otherwise).map(Part::key);
                conditions.iter().map(|it| &it.key).chain(parts).collect()
            }
            Self::End { .. } => Vec::new(),
        }
    }
}

/// What keys are, and which leases have ended with keys of theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    keys: BTreeMap<Key, (Cell, Option<u64>)>,
    over: BTreeSet<u64>,
}

impl State {
    fn get(&self, key: &Key) -> Option<Cell> {
        self.keys.get(key).map(|(cell, _)| *cell)
    }

    fn put(&mut self, key: &Key, value: u64, lease: Option<u64>) -> u64 {
        let version = self.get(key).map_or(0, |cell| cell.version) + 1;
        self.keys.insert(key.clone(), (Cell { value, version }, lease));
        version
    }

    fn delete(&mut self, key: &Key) -> u64 {
        u64::from(self.keys.remove(key).is_some())
    }

    fn txn(&mut self, conditions: &[Condition], then: &[Part], otherwise: &[Part]) -> Done {
        let held = conditions.iter().all(|it| self.get(&it.key).map(|cell| cell.value) == it.value);
        let mut found = Vec::new();
        for part in if held { then } else { otherwise } {
            match part {
                Part::Put(key, value) => drop(self.put(key, *value, None)),
                Part::Delete(key) => drop(self.delete(key)),
                Part::Get(key) => found.push(self.get(key)),
            }
        }
        Done { held, found }
    }

    fn end(&mut self, lease: u64) {
        let count = self.keys.len();
        self.keys.retain(|_, (_, on)| *on != Some(lease));
        if self.keys.len() < count {
            self.over.insert(lease);
        }
    }
}

/// Keys of one part of a history.
pub struct Keys;

impl Model for Keys {
    type Act = Act;
    type State = State;

    fn step(state: &State, act: &Act) -> Option<State> {
        let mut after = state.clone();
        let fits = match act {
            Act::Put { lease: Some(lease), .. } if state.over.contains(lease) => false,
            Act::Put { key, value, lease, version } => {
                let written = after.put(key, *value, *lease);
                version.is_none_or(|version| version == written)
            }
            Act::Get { key, found } => state.get(key) == *found,
            Act::Delete { key, count } => {
                let deleted = after.delete(key);
                count.is_none_or(|count| count == deleted)
            }
            Act::Txn { conditions, then, otherwise, done } => {
                let did = after.txn(conditions, then, otherwise);
                done.as_ref().is_none_or(|done| *done == did)
            }
            Act::End { lease } => {
                after.end(*lease);
                true
            }
        };
        fits.then_some(after)
    }

    fn only_reads(act: &Act) -> bool {
        matches!(act, Act::Get { .. })
    }
}

/// The parts of a history that share no key, each with its keys. The end of a lease belongs to every part.
pub fn parts(history: &[Operation<Act>]) -> Vec<(Vec<Key>, Vec<Operation<Act>>)> {
    let mut groups: Vec<BTreeSet<Key>> = Vec::new();
    for operation in history {
        let mut group: BTreeSet<Key> = operation.act.keys().into_iter().cloned().collect();
        if group.is_empty() {
            continue;
        }
        groups.retain(|other| {
            let is_apart = other.is_disjoint(&group);
            if !is_apart {
                group.extend(other.iter().cloned());
            }
            is_apart
        });
        groups.push(group);
    }
    groups.sort();
    let part = |group: BTreeSet<Key>| {
        let is_in = |it: &&Operation<Act>| it.act.keys().first().is_none_or(|key| group.contains(*key));
        let part = without_noise(history.iter().filter(is_in).cloned().collect());
        (group.into_iter().collect(), part)
    };
    groups.into_iter().map(part).collect()
}

/// Makes unknown writes alike whose values no answer shows and no condition names, and leaves out ends of leases without keys.
fn without_noise(mut part: Vec<Operation<Act>>) -> Vec<Operation<Act>> {
    let (mut shown, mut leases) = (BTreeSet::new(), BTreeSet::new());
    for operation in &part {
        match &operation.act {
            Act::Get { found, .. } => shown.extend(found.map(|cell| cell.value)),
            Act::Txn { conditions, done, .. } => {
                shown.extend(conditions.iter().filter_map(|it| it.value));
                let found = done.iter().flat_map(|done| done.found.iter().flatten());
                shown.extend(found.map(|cell| cell.value));
            }
            Act::Put { lease, .. } => leases.extend(*lease),
            Act::Delete { .. } | Act::End { .. } => {}
        }
    }
    part.retain(|it| !matches!(it.act, Act::End { lease } if !leases.contains(&lease)));
    let hide = |value: &mut u64| *value = if shown.contains(value) { *value } else { UNSEEN };
    for operation in part.iter_mut().filter(|it| it.to.is_none()) {
        match &mut operation.act {
            Act::Put { value, .. } => hide(value),
            Act::Txn { then, otherwise, .. } => {
                for part in then.iter_mut().chain(otherwise) {
                    if let Part::Put(_, value) = part {
                        hide(value);
                    }
                }
            }
            Act::Get { .. } | Act::Delete { .. } | Act::End { .. } => {}
        }
    }
    part
}
