//! Keys: bytes with a value, versioned, that may hang on a lease. They have a revision counter of their own.

use super::Ledger;
use crate::command::{Delete, Hang, Keys, Put};
use crate::event::{Event, Happening};
use crate::limits::{DELETED_MAX, KEY_COST_BYTES, KEY_VALUE_BYTES_MAX, KEYSPACE_BYTES_MAX};
use crate::names::{Key, LeaseId};
use crate::reply::{Outcome, Refusal, Reply};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

/// All keys.
#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    /// Starts at 1; +1 for each command that writes, and for each ended lease tree with keys.
    pub(super) revision: u64,
    pub(super) keys: BTreeMap<Key, KeyValue>,
    /// What they weigh. An index.
    pub(super) bytes: u64,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self { revision: 1, keys: BTreeMap::new(), bytes: 0 }
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
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease that it hangs on.
    pub lease: Option<LeaseId>,
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
        let before = self.keyspace.keys.get(&put.key);
        let value = match (&put.value, before) {
            (Some(value), _) => value.clone(),
            (None, Some(before)) => before.value.clone(),
            (None, None) => return Err(Refusal::NoKey { key: put.key.clone() }),
        };
        let had = before.and_then(|before| before.lease);
        let lease = match put.lease {
            Hang::Free => None,
            Hang::Keep => had,
            Hang::On(lease) => Some(lease),
        };
        self.may_put(put, &value, had, lease)?;
        self.hang(&put.key, had, lease);
        self.keyspace.revision += 1;
        let kv_revision = self.keyspace.revision;
        let version = self.write(&put.key, value, lease);
        let happening = Happening::Put { key: put.key.clone(), lease, kv_revision, version };
        self.happened(alloc::vec![happening], events);
        if let Hang::On(lease) = put.lease {
            self.touch(lease);
        }
        Ok(Reply::Put { kv_revision, version })
    }

    fn may_put(&self, put: &Put, value: &[u8], had: Option<LeaseId>, lease: Option<LeaseId>) -> Result<(), Refusal> {
        if let Some(lease) = lease
            && !self.leases.contains_key(&lease)
        {
            return Err(self.no_lease(lease));
        }
        if put.key.bytes().len() + value.len() > KEY_VALUE_BYTES_MAX {
            return Err(Refusal::Full { what: "bytes of a key with its value", max: KEY_VALUE_BYTES_MAX });
        }
        let before = self.keyspace.keys.get(&put.key).map_or(0, |before| weight(&put.key, &before.value));
        if self.keyspace.bytes - before + weight(&put.key, value) > KEYSPACE_BYTES_MAX {
            let max = usize::try_from(KEYSPACE_BYTES_MAX).unwrap_or(usize::MAX);
            return Err(Refusal::Full { what: "bytes of all keys", max });
        }
        match lease {
            Some(lease) if had != Some(lease) => self.room_in_tree(lease, 1),
            _ => Ok(()),
        }
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

    fn write(&mut self, key: &Key, value: Arc<[u8]>, lease: Option<LeaseId>) -> u64 {
        let space = &mut self.keyspace;
        let before = space.keys.get(key);
        space.bytes += weight(key, &value);
        space.bytes -= before.map_or(0, |before| weight(key, &before.value));
        let version = before.map_or(0, |before| before.version) + 1;
        let create_revision = before.map_or(space.revision, |before| before.create_revision);
        let written = KeyValue { value, create_revision, mod_revision: space.revision, version, lease };
        space.keys.insert(key.clone(), written);
        version
    }

    pub(super) fn delete(&mut self, delete: &Delete, events: &mut Vec<Event>) -> Outcome {
        let keys: BTreeSet<Key> = match &delete.keys {
            Keys::One(key) => self.keyspace.keys.contains_key(key).then(|| key.clone()).into_iter().collect(),
            Keys::Prefix(prefix) => {
                let from = self.keys_from(prefix).take_while(|(key, _)| key.bytes().starts_with(prefix));
                from.take(DELETED_MAX + 1).map(|(key, _)| key.clone()).collect()
            }
        };
        if keys.len() > DELETED_MAX {
            return Err(Refusal::Full { what: "keys in one delete", max: DELETED_MAX });
        }
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
        let kv_revision = self.keyspace.revision;
        let deleted = keys.iter().map(|key| {
            let before = self.keyspace.keys.remove(key).expect("only what is there is deleted");
            self.keyspace.bytes -= weight(key, &before.value);
            Happening::Deleted { key: key.clone(), lease: before.lease, kv_revision }
        });
        deleted.collect()
    }
}
