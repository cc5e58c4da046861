//! Keys: what is written, attached to leases and deleted.

use super::Model;
use tenure_core::{Hang, Happening, Key, KeyValue, Keys, LeaseId, Outcome, Put, Refusal, Reply};

impl Model {
    pub(super) fn put(&mut self, put: &Put) -> Outcome {
        let before = self.keys.get(&put.key).cloned();
        let kept = before.as_ref().map(|value| value.value.clone());
        let value = put.value.clone().or(kept).ok_or_else(|| Refusal::NoKey { key: put.key.clone() })?;
        let lease = match put.lease {
            Hang::Free => None,
            Hang::Keep => before.as_ref().and_then(|value| value.lease),
            Hang::On(lease) => {
                self.living(lease)?;
                Some(lease)
            }
        };
        self.kv_revision += 1;
        let kv_revision = self.kv_revision;
        let version = before.as_ref().map_or(0, |value| value.version) + 1;
        let create_revision = before.map_or(kv_revision, |value| value.create_revision);
        let written = KeyValue { value, create_revision, mod_revision: kv_revision, n: 0, version, lease };
        self.keys.insert(put.key.clone(), written);
        self.change(vec![Happening::Put { key: put.key.clone(), lease, kv_revision, version }]);
        if let Hang::On(lease) = put.lease {
            self.touch(lease);
        }
        Ok(Reply::Put { kv_revision, version })
    }

    pub(super) fn delete(&mut self, keys: &Keys) -> Reply {
        let deleted = self.delete_if(|key, _| match keys {
            Keys::One(one) => key == one,
            Keys::Prefix(prefix) => key.bytes().starts_with(prefix),
            Keys::From { first, end } => *key.bytes() >= **first && end.as_ref().is_none_or(|end| *key.bytes() < **end),
        });
        let count = deleted.len() as u64;
        if count > 0 {
            self.change(deleted);
        }
        Reply::Deleted { count, kv_revision: self.kv_revision }
    }

    /// Deletes the keys that are meant, in their order and at one revision of the keyspace.
    pub(super) fn delete_if(&mut self, is_meant: impl Fn(&Key, Option<LeaseId>) -> bool) -> Vec<Happening> {
        let meant = self.keys.iter().filter(|(key, value)| is_meant(key, value.lease));
        let keys: Vec<Key> = meant.map(|(key, _)| key.clone()).collect();
        self.kv_revision += u64::from(!keys.is_empty());
        let kv_revision = self.kv_revision;
        let delete = |key: Key| {
            let lease = self.keys.remove(&key).and_then(|value| value.lease);
            Happening::Deleted { key, lease, kv_revision }
        };
        keys.into_iter().map(delete).collect()
    }
}
