//! Keys: what is written, attached to leases, deleted and forgotten. All that keys ever were is kept, one whole map for
//! each revision.

use super::Model;
use std::collections::BTreeMap;
use tenure_core::{Hang, Happening, Key, KeyValue, Keys, LeaseId, Outcome, Put, Refusal, Reply, limits};

/// All keys at some revision.
pub(super) type Map = BTreeMap<Key, KeyValue>;

/// One change of a key, as it is told to who watches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changed {
    pub(crate) kv_revision: u64,
    pub(crate) key: Key,
    pub(crate) became: Option<KeyValue>,
    pub(crate) before: Option<KeyValue>,
}

impl From<tenure_core::Change<'_>> for Changed {
    fn from(change: tenure_core::Change<'_>) -> Self {
        let (became, before) = (change.became.cloned(), change.before.cloned());
        Self { kv_revision: change.kv_revision, key: change.key.clone(), became, before }
    }
}

/// Whether a key is one of those.
pub(super) fn is_meant(keys: &Keys, key: &Key) -> bool {
    match keys {
        Keys::One(one) => key == one,
        Keys::Prefix(prefix) => key.bytes().starts_with(prefix),
        Keys::From { first, end: None } => *key.bytes() >= **first,
        Keys::From { first, end: Some(end) } => (&**first..&**end).contains(&key.bytes()),
    }
}

impl Model {
    pub(super) fn put(&mut self, put: &Put) -> Outcome {
        self.may_put(put)?;
        self.kv_revision += 1;
        let happening = self.write(put);
        self.keep_the_map();
        self.change(vec![happening]);
        Ok(Reply::Put { kv_revision: self.kv_revision, version: self.keys[&put.key].version })
    }

    pub(super) fn may_put(&self, put: &Put) -> Result<(), Refusal> {
        self.may_write(put)?;
        if put.value.is_none() && !self.keys.contains_key(&put.key) {
            return Err(Refusal::NoKey { key: put.key.clone() });
        }
        match put.lease {
            Hang::On(lease) => self.living(lease).map(drop),
            Hang::Free | Hang::Keep => Ok(()),
        }
    }

    /// Writes a key at the present revision.
    pub(super) fn write(&mut self, put: &Put) -> Happening {
        let (before, kv_revision) = (self.keys.get(&put.key).cloned(), self.kv_revision);
        let kept = before.as_ref().map(|value| value.value.clone());
        let lease = match put.lease {
            Hang::Free => None,
            Hang::Keep => before.as_ref().and_then(|value| value.lease),
            Hang::On(lease) => Some(lease),
        };
        let written = KeyValue {
            // One that keeps what the same transaction has deleted has nothing to keep.
            value: put.value.clone().or(kept).unwrap_or_default(),
            create_revision: before.as_ref().map_or(kv_revision, |value| value.create_revision),
            mod_revision: kv_revision,
            n: self.nth_change(),
            version: before.as_ref().map_or(1, |value| value.version + 1),
            lease,
        };
        let version = written.version;
        self.keys.insert(put.key.clone(), written.clone());
        self.changes.push(Changed { kv_revision, key: put.key.clone(), became: Some(written), before });
        if let Hang::On(lease) = put.lease {
            self.touch(lease);
        }
        Happening::Put { key: put.key.clone(), lease, kv_revision, version }
    }

    pub(super) fn delete(&mut self, keys: &Keys) -> Outcome {
        self.may_remove(|key| is_meant(keys, key))?;
        let deleted = self.delete_if(|key, _| is_meant(keys, key));
        let count = deleted.len() as u64;
        if count > 0 {
            self.change(deleted);
        }
        Ok(Reply::Deleted { count, kv_revision: self.kv_revision })
    }

    /// Deletes the keys that are meant, in their order and at one revision of the keyspace.
    pub(super) fn delete_if(&mut self, is_meant: impl Fn(&Key, Option<LeaseId>) -> bool) -> Vec<Happening> {
        let meant = self.keys.iter().filter(|(key, value)| is_meant(key, value.lease));
        let keys: Vec<Key> = meant.map(|(key, _)| key.clone()).collect();
        self.kv_revision += u64::from(!keys.is_empty());
        let deleted = keys.into_iter().map(|key| self.remove(key)).collect();
        self.keep_the_map();
        deleted
    }

    /// Removes a key at the present revision.
    pub(super) fn remove(&mut self, key: Key) -> Happening {
        let (before, kv_revision) = (self.keys.remove(&key), self.kv_revision);
        let lease = before.as_ref().and_then(|value| value.lease);
        self.changes.push(Changed { kv_revision, key: key.clone(), became: None, before });
        Happening::Deleted { key, lease, kv_revision }
    }

    /// How many changes this revision had.
    fn nth_change(&self) -> u32 {
        let of_it = self.changes.iter().rev().take_while(|change| change.kv_revision == self.kv_revision);
        u32::try_from(of_it.count()).expect("a change is small")
    }

    /// Keeps what the keys are at the present revision, if it is a new one.
    pub(super) fn keep_the_map(&mut self) {
        let revision = usize::try_from(self.kv_revision).expect("a history is short");
        self.maps.resize(revision + 1, self.keys.clone());
    }

    pub(super) fn compact(&mut self, revision: i64) -> Outcome {
        let known = |revision: u64| i64::try_from(revision).expect("a history is short");
        if revision <= self.compacted.map_or(-1, known) {
            return Err(Refusal::Compacted { compacted: self.compacted.unwrap_or(0) });
        }
        if revision > known(self.kv_revision) {
            return Err(Refusal::NotYet { kv_revision: self.kv_revision });
        }
        self.compacted = Some(revision.unsigned_abs());
        Ok(Reply::Compacted { kv_revision: self.kv_revision })
    }

    /// What who watches from a revision on is told. What a key was is told if it could be looked at. Of the compacted
    /// revision itself only what was left by it is told, not what was overwritten within.
    pub(crate) fn changes_from(&self, revision: u64) -> Result<Vec<Changed>, Refusal> {
        let compacted = self.compacted.unwrap_or(0);
        if revision < compacted {
            return Err(Refusal::Compacted { compacted });
        }
        let is_overwritten = |n: usize, change: &Changed| {
            let mut later = self.changes[n + 1..].iter();
            later.any(|later| later.kv_revision == change.kv_revision && later.key == change.key)
        };
        let is_told = |(n, change): &(usize, &Changed)| {
            let is_forgotten = self.compacted == Some(change.kv_revision) && is_overwritten(*n, change);
            change.kv_revision >= revision && !is_forgotten
        };
        let told = self.changes.iter().enumerate().filter(is_told).map(|(_, change)| change);
        let told = told.map(|change| match &change.before {
            Some(_) if change.kv_revision > compacted => change.clone(),
            _ => Changed { before: None, ..change.clone() },
        });
        Ok(told.collect())
    }

    /// What all that is remembered weighs: what keys are, and each change but those that nobody can see any longer because
    /// a later one was compacted, or because they are deletions before what was compacted.
    pub(crate) fn kv_bytes(&self) -> u64 {
        let compacted = self.compacted.unwrap_or(0);
        let is_kept = |n: usize, change: &Changed| {
            let mut later = self.changes[n + 1..].iter().filter(|later| later.key == change.key);
            let is_seen = later.all(|later| later.kv_revision > compacted);
            is_seen && (change.became.is_some() || change.kv_revision >= compacted)
        };
        let kept = self.changes.iter().enumerate().filter(|(n, change)| is_kept(*n, change));
        let weight = |change: &Changed| {
            let value = change.became.as_ref().map_or(0, |value| value.value.len());
            (change.key.bytes().len() + value) as u64 + limits::KEY_COST_BYTES
        };
        kept.map(|(_, change)| weight(change)).sum()
    }

    pub(crate) fn compacted(&self) -> Option<u64> {
        self.compacted
    }
}
