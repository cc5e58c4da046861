//! Keys: bytes with a value, versioned, that may hang on a lease. They have a revision counter of their own, and a past.

mod budget;
mod past;
mod range;
mod txn;

use super::Ledger;
use crate::command::{Delete, Hang, Put};
use crate::event::{Event, Happening};
use crate::limits::{CLEAR_MAX, KEY_COST_BYTES, KEY_VALUE_BYTES_MAX, KEYSPACE_BYTES_MAX};
use crate::names::{Key, LeaseId};
use crate::reply::{Outcome, Refusal, Reply};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
pub(super) use budget::Room;
use core::ops::Bound;
pub(super) use past::{At, Past, Version};
pub use range::{Change, RangeSlice};

/// All keys.
#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    /// Starts at 1; +1 for each command that writes, and for each ended lease tree with keys.
    pub(super) revision: u64,
    pub(super) keys: BTreeMap<Key, KeyValue>,
    /// What they weigh. An index.
    pub(super) bytes: u64,
    pub(super) past: Past,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self { revision: 1, keys: BTreeMap::new(), bytes: 0, past: Past::default() }
    }
}

impl Keyspace {
    /// What the keys weigh, with what they were.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes + self.past.bytes()
    }

    /// Takes out some of what was compacted. True: nothing of it is left.
    pub(super) fn clear(&mut self) -> bool {
        self.past.clear(CLEAR_MAX)
    }

    /// Forgets what keys were before the present revision. What that one wrote can be watched, as after a compaction.
    pub(super) fn forget_past(&mut self) {
        self.past.forget_all(self.revision);
        for (key, value) in self.keys.iter().filter(|(_, value)| value.mod_revision == self.revision) {
            self.past.note(value.at(), key);
        }
    }
}

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Its value.
    pub value: Arc<[u8]>,
    /// The keyspace's revision when it was created.
    pub create_revision: u64,
    /// The keyspace's revision when it was last written.
    pub mod_revision: u64,
    /// Its place among the changes of that revision.
    pub n: u32,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease that it hangs on.
    pub lease: Option<LeaseId>,
}

impl KeyValue {
    pub(super) const fn at(&self) -> At {
        At { revision: self.mod_revision, n: self.n }
    }
}

/// What a command adds so far, while it is looked at whether it can be done.
#[derive(Debug, Default)]
struct Load {
    bytes: u64,
    /// Keys that come to hang on each lease tree.
    hung: BTreeMap<LeaseId, usize>,
    deletes: usize,
}

/// What a key and its value weigh.
pub(super) fn weight(key: &Key, value: &[u8]) -> u64 {
    (key.bytes().len() + value.len()) as u64 + KEY_COST_BYTES
}

impl Ledger {
    /// The keyspace's own count of changes.
    pub const fn kv_revision(&self) -> u64 {
        self.keyspace.revision
    }

    /// What a key has.
    pub fn key(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keyspace.keys.get(key)
    }

    /// All keys from `first` on, in the order of their bytes.
    pub fn keys_from(&self, first: &[u8]) -> impl Iterator<Item = (&Key, &KeyValue)> {
        self.keyspace.keys.range::<[u8], _>((Bound::Included(first), Bound::Unbounded))
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.keyspace.keys.len()
    }

    pub(super) fn put(&mut self, put: &Put, events: &mut Vec<Event>) -> Outcome {
        self.may_put(put, &mut Load::default())?;
        self.keyspace.revision += 1;
        let happening = self.write_as(put, 0);
        self.happened(alloc::vec![happening], events);
        let version = self.keyspace.keys[&put.key].version;
        Ok(Reply::Put { kv_revision: self.keyspace.revision, version })
    }

    /// Whether a key can be written, beside what the same command writes before it.
    fn may_put(&self, put: &Put, load: &mut Load) -> Result<(), Refusal> {
        let before = self.keyspace.keys.get(&put.key);
        self.may_write_key(put, before)?;
        let Some(value) = put.value.as_ref().or_else(|| before.map(|before| &before.value)) else {
            return Err(Refusal::NoKey { key: put.key.clone() });
        };
        if put.key.bytes().len() + value.len() > KEY_VALUE_BYTES_MAX {
            return Err(Refusal::Full { what: "bytes of a key with its value".into(), max: KEY_VALUE_BYTES_MAX });
        }
        // What it was is kept, so it makes no room.
        load.bytes += weight(&put.key, value);
        if self.keyspace.bytes() + load.bytes > KEYSPACE_BYTES_MAX {
            let max = usize::try_from(KEYSPACE_BYTES_MAX).unwrap_or(usize::MAX);
            return Err(Refusal::Full { what: "bytes of all keys".into(), max });
        }
        let Hang::On(lease) = put.lease else { return Ok(()) };
        if !self.leases.contains_key(&lease) {
            return Err(self.no_lease(lease));
        }
        if before.and_then(|before| before.lease) == Some(lease) {
            return Ok(());
        }
        let hung = load.hung.entry(self.root(lease)).or_default();
        *hung += 1;
        self.room_in_tree(lease, *hung)
    }

    /// Writes a key at the keyspace's revision, as the change number `n` of it.
    fn write_as(&mut self, put: &Put, n: u32) -> Happening {
        let before = self.keyspace.keys.get(&put.key);
        let had = before.and_then(|before| before.lease);
        let value = put.value.clone().or_else(|| before.map(|before| before.value.clone()));
        // A transaction that has just deleted what it keeps, which no door lets in, keeps nothing.
        let value = value.unwrap_or_default();
        let lease = match put.lease {
            Hang::Free => None,
            Hang::Keep => had,
            Hang::On(lease) => Some(lease),
        };
        self.hang(&put.key, had, lease);
        let version = self.write(&put.key, value, lease, n);
        if let Hang::On(lease) = put.lease {
            self.touch(lease);
        }
        Happening::Put { key: put.key.clone(), lease, kv_revision: self.keyspace.revision, version }
    }

    /// Moves a key from one lease to another.
    fn hang(&mut self, key: &Key, had: Option<LeaseId>, has: Option<LeaseId>) {
        if had == has {
            return;
        }
        if let Some(had) = had {
            self.leases.get_mut(&had).expect("a key hangs on a living lease").keys.remove(key);
            self.detach(Some(had), 1);
        }
        if let Some(has) = has {
            self.leases.get_mut(&has).expect("a key hangs on a living lease").keys.insert(key.clone());
            self.attach(has, 1);
        }
    }

    fn write(&mut self, key: &Key, value: Arc<[u8]>, lease: Option<LeaseId>, n: u32) -> u64 {
        let space = &mut self.keyspace;
        let before = space.keys.get(key);
        let version = before.map_or(0, |before| before.version) + 1;
        let create_revision = before.map_or(space.revision, |before| before.create_revision);
        let written = KeyValue { value, create_revision, mod_revision: space.revision, n, version, lease };
        space.bytes += weight(key, &written.value);
        space.past.note(written.at(), key);
        if let Some(before) = space.keys.insert(key.clone(), written) {
            space.bytes -= weight(key, &before.value);
            space.past.keep(key, Version::of(before));
        }
        version
    }

    pub(super) fn delete(&mut self, delete: &Delete, events: &mut Vec<Event>) -> Outcome {
        let mut budget = self.work.answers.budget();
        let found = self.keyspace.to_delete(&delete.keys, 0, &mut budget);
        let looked = self.work.answers.settle(&budget);
        self.work.took(looked);
        let found = found?;
        found.iter().try_for_each(|(_, value)| self.may_remove_key(value))?;
        let keys: BTreeSet<Key> = found.into_iter().map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            for key in &keys {
                self.hang(key, self.keyspace.keys[key].lease, None);
            }
            let happenings = self.erase(&keys);
            self.happened(happenings, events);
        }
        Ok(Reply::Deleted { count: keys.len() as u64, kv_revision: self.keyspace.revision })
    }

    /// Takes keys out, at one revision, in order. Their leases are the caller's business.
    pub(super) fn erase(&mut self, keys: &BTreeSet<Key>) -> Vec<Happening> {
        if keys.is_empty() {
            return Vec::new();
        }
        self.keyspace.revision += 1;
        (0..).zip(keys).map(|(n, key)| self.take(key, n)).collect()
    }

    /// Takes a key out at the keyspace's revision, as the change number `n` of it.
    fn take(&mut self, key: &Key, n: u32) -> Happening {
        let space = &mut self.keyspace;
        let (kv_revision, at) = (space.revision, At { revision: space.revision, n });
        let before = space.keys.remove(key).expect("only what is there is deleted");
        let lease = before.lease;
        space.bytes -= weight(key, &before.value);
        space.past.keep(key, Version::of(before));
        space.past.keep(key, Version { at, is: None });
        space.past.note(at, key);
        Happening::Deleted { key: key.clone(), lease, kv_revision }
    }
}
