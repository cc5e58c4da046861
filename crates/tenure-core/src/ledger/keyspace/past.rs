//! What keys were: every version since the last compaction, and in which order they came. It never changes what keys are.

use super::{KeyValue, weight};
use crate::limits::KEYSPACE_PAST_BYTES_MAX;
use crate::names::Key;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A place in the order of all changes of keys: the revision, and the place among the changes of that revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) struct At {
    pub(in crate::ledger) revision: u64,
    pub(in crate::ledger) n: u32,
}

/// What a key was from a change on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Version {
    pub(in crate::ledger) at: At,
    /// None: it was not there.
    pub(in crate::ledger) is: Option<KeyValue>,
}

impl Version {
    pub(in crate::ledger) fn of(value: KeyValue) -> Self {
        Self { at: value.at(), is: Some(value) }
    }

    fn weight(&self, key: &Key) -> u64 {
        weight(key, self.is.as_ref().map_or(&[], |value| &value.value))
    }
}

/// What keys were.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Past {
    /// The oldest revision that can be looked at, if any was forgotten.
    pub(in crate::ledger) compacted: Option<u64>,
    /// The revision up to which what was compacted has been taken out: a large compaction takes several entries.
    pub(in crate::ledger) cleared: u64,
    /// What each key was before what it is, oldest first.
    pub(in crate::ledger) versions: BTreeMap<Key, VecDeque<Version>>,
    /// Which key changed, in order. An index.
    changes: BTreeMap<At, Key>,
    /// What the versions weigh. An index.
    bytes: u64,
}

impl Past {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that a key changed.
    pub(super) fn note(&mut self, at: At, key: &Key) {
        self.changes.insert(at, key.clone());
    }

    /// Keeps what a key was.
    pub(in crate::ledger) fn keep(&mut self, key: &Key, version: Version) {
        self.bytes += version.weight(key);
        self.versions.entry(key.clone()).or_default().push_back(version);
    }

    /// Notes a change that a snapshot tells of, if it is one that can still be looked at. False: its place is taken.
    pub(in crate::ledger) fn restore(&mut self, at: At, key: &Key) -> bool {
        let is_noted = at.revision > self.cleared || self.compacted == Some(at.revision);
        !is_noted || self.changes.insert(at, key.clone()).is_none()
    }

    /// Weighs what a snapshot told of.
    pub(in crate::ledger) fn weigh(&mut self) {
        let weigh = |(key, versions): (&Key, &VecDeque<Version>)| -> u64 {
            versions.iter().map(|version| version.weight(key)).sum()
        };
        self.bytes = self.versions.iter().map(weigh).sum();
    }

    /// What a key was at a revision that is older than what it is.
    pub(super) fn at(&self, key: &[u8], revision: u64) -> Option<&KeyValue> {
        let versions = self.versions.get(key)?;
        let later = versions.partition_point(|version| version.at.revision <= revision);
        versions.get(later.checked_sub(1)?)?.is.as_ref()
    }

    /// What a key became by a change, and what it was just before, if they are past.
    pub(super) fn around(&self, key: &Key, at: At) -> (Option<&Version>, Option<&Version>) {
        let Some(versions) = self.versions.get(key) else { return (None, None) };
        let place = versions.partition_point(|version| version.at < at);
        let became = versions.get(place).filter(|version| version.at == at);
        (became, place.checked_sub(1).and_then(|before| versions.get(before)))
    }

    /// All changes from a revision on, in order.
    pub(super) fn changes_from(&self, revision: u64) -> impl Iterator<Item = (At, &Key)> {
        self.changes.range(At { revision, n: 0 }..).map(|(at, key)| (*at, key))
    }

    /// Forgets the oldest versions while all of them weigh too much.
    fn make_room(&mut self, room: &mut usize) {
        while self.bytes > KEYSPACE_PAST_BYTES_MAX && *room > 0 {
            let after = self.compacted.map_or(0, |compacted| compacted + 1);
            let Some(oldest) = self.changes_from(after).next().map(|(at, _)| at.revision) else { return };
            self.compacted = Some(oldest);
            self.take_out(room);
        }
    }

    /// Takes out what was compacted, as far as there is room in this entry. True: all of it.
    pub(super) fn clear(&mut self, mut room: usize) -> bool {
        let is_done = self.take_out(&mut room);
        self.make_room(&mut room);
        is_done && self.bytes <= KEYSPACE_PAST_BYTES_MAX
    }

    /// Goes through compacted changes in order. What a key was before such a change is not looked at any longer, nor that it
    /// was deleted by it. What the compacted revision itself came to can still be watched, deletions too.
    fn take_out(&mut self, room: &mut usize) -> bool {
        let Some(compacted) = self.compacted else { return true };
        while let Some((first, _)) = self.changes.first_key_value() {
            let revision = first.revision;
            if revision > compacted || revision == compacted && self.cleared == compacted {
                break;
            }
            if *room == 0 {
                return false;
            }
            let of_it: Vec<(At, Key)> =
                self.changes.range(..=At { revision, n: u32::MAX }).map(|(at, key)| (*at, key.clone())).collect();
            *room = room.saturating_sub(of_it.len());
            let mut changed_later = BTreeSet::new();
            for (at, key) in of_it.into_iter().rev() {
                let is_told = changed_later.insert(key.clone()) && revision == compacted;
                self.drop_before(&key, at, is_told);
                if !is_told {
                    self.changes.remove(&at);
                }
            }
            self.cleared = self.cleared.max(revision);
        }
        self.cleared = compacted;
        true
    }

    /// Drops the versions of a key before a change, and its deletion by it unless that is told.
    fn drop_before(&mut self, key: &Key, at: At, is_told: bool) {
        let Some(versions) = self.versions.get_mut(key) else { return };
        let is_over = |version: &Version| version.at < at || version.at == at && version.is.is_none() && !is_told;
        while let Some(version) = versions.pop_front_if(|version| is_over(version)) {
            self.bytes -= version.weight(key);
        }
        self.tidy(key);
    }

    fn tidy(&mut self, key: &Key) {
        if self.versions.get(key).is_some_and(VecDeque::is_empty) {
            self.versions.remove(key);
        }
    }

    /// Forgets everything: the keys are what they are since a revision.
    pub(super) fn forget_all(&mut self, revision: u64) {
        *self = Self { compacted: Some(revision), cleared: revision, ..Self::default() };
    }
}
