//! Looking at keys: as they are, as they were, in any order; and the changes that made them so.

use super::super::Ledger;
use super::past::At;
use super::{KeyValue, Keyspace};
use crate::command::Keys;
use crate::names::Key;
use crate::reply::Refusal;
use crate::txn::{Part, Range, Ranged, Sort, SortBy, Way};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

/// One change of a key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The keyspace's revision that made it.
    pub kv_revision: u64,
    /// The key.
    pub key: &'a Key,
    /// What it became; none if it was deleted.
    pub became: Option<&'a KeyValue>,
    /// What it was before, if it was there and that is remembered.
    pub before: Option<&'a KeyValue>,
}

type Item<'a> = (&'a Key, &'a KeyValue);

impl Keyspace {
    /// Whether a revision can be looked at.
    pub(super) fn may_look(&self, revision: Option<i64>) -> Result<(), Refusal> {
        let number = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
        match revision {
            Some(revision) if revision > number(self.revision) => Err(Refusal::NotYet { kv_revision: self.revision }),
            Some(revision) if revision < self.past.compacted.map_or(-1, number) => {
                Err(Refusal::Compacted { compacted: self.past.compacted.unwrap_or_default() })
            }
            _ => Ok(()),
        }
    }

    /// The keys that there are, in order.
    pub(super) fn living<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = Item<'a>> {
        let from = self.keys.range::<[u8], _>((Bound::Included(keys.first()), Bound::Unbounded));
        from.take_while(|(key, _)| keys.cover(key.bytes()))
    }

    /// The keys that there were at a revision, in order.
    fn lived<'a>(&'a self, keys: &'a Keys, revision: u64) -> impl Iterator<Item = Item<'a>> {
        let from = (Bound::Included(keys.first()), Bound::Unbounded);
        let past = self.past.versions.range::<[u8], _>(from).map(|(key, _)| key);
        let past = past.take_while(|key| keys.cover(key.bytes()));
        let mut both: Vec<&Key> = self.living(keys).map(|(key, _)| key).chain(past).collect();
        both.sort();
        both.dedup();
        both.into_iter().filter_map(move |key| Some((key, self.at(key, revision)?)))
    }

    fn at(&self, key: &Key, revision: u64) -> Option<&KeyValue> {
        match self.keys.get(key) {
            Some(value) if value.mod_revision <= revision => Some(value),
            _ => self.past.at(key.bytes(), revision),
        }
    }

    /// The revision that a range looks at, if it is one before the present.
    pub(super) fn past_revision(&self, range: &Range) -> Option<u64> {
        let revision = range.revision.and_then(|revision| u64::try_from(revision).ok());
        revision.filter(|revision| *revision > 0 && *revision < self.revision)
    }

    /// The keys of a range, in order, whatever its limit and its order are.
    pub(super) fn found<'a>(&'a self, range: &'a Range) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
        match self.past_revision(range) {
            Some(revision) => Box::new(self.lived(&range.keys, revision)),
            None => Box::new(self.living(&range.keys)),
        }
    }

    pub(super) fn range(&self, range: &Range) -> Result<Ranged, Refusal> {
        self.may_look(range.revision)?;
        let found = self.found(range);
        if range.part == Part::CountOnly {
            return Ok(Ranged { count: found.count() as u64, ..Ranged::default() });
        }
        let takes_all = range.is_filtered() || range.sort.is_some_and(|sort| sort.way.is_some());
        // One more than the limit tells whether there are more.
        let most = range.limit.filter(|_| !takes_all).map_or(usize::MAX, |limit| limit.saturating_add(1));
        let (mut items, mut count) = (Vec::new(), 0);
        for item in found {
            count += 1;
            if items.len() < most {
                items.push(item);
            }
        }
        items.retain(|(_, value)| {
            range.modified.holds(value.mod_revision) && range.created.holds(value.create_revision)
        });
        range.sort.iter().for_each(|sort| sort_by(&mut items, *sort));
        let more = range.limit.is_some_and(|limit| items.len() > limit);
        items.truncate(range.limit.unwrap_or(usize::MAX));
        let item = |(key, value): Item<'_>| match range.part {
            Part::KeysOnly => (key.clone(), KeyValue { value: [][..].into(), ..value.clone() }),
            Part::Whole | Part::CountOnly => (key.clone(), value.clone()),
        };
        Ok(Ranged { items: items.into_iter().map(item).collect(), more, count })
    }

    fn change<'a>(&'a self, at: At, key: &'a Key) -> Change<'a> {
        let (past, before) = self.past.around(key, at);
        let living = self.keys.get(key).filter(|value| value.at() == at);
        Change {
            kv_revision: at.revision,
            key,
            became: living.or_else(|| past.and_then(|version| version.is.as_ref())),
            before: before.and_then(|version| version.is.as_ref()),
        }
    }
}

/// Keys that are equal in what they are sorted by keep the order of their bytes.
fn sort_by(items: &mut [Item<'_>], sort: Sort) {
    let order = |a: &Item<'_>, b: &Item<'_>| -> Ordering {
        match sort.by {
            SortBy::Key => a.0.cmp(b.0),
            SortBy::Version => a.1.version.cmp(&b.1.version),
            SortBy::Created => a.1.create_revision.cmp(&b.1.create_revision),
            SortBy::Modified => a.1.mod_revision.cmp(&b.1.mod_revision),
            SortBy::Value => a.1.value.cmp(&b.1.value),
        }
    };
    match sort.way {
        Some(Way::Down) => items.sort_by(|a, b| order(b, a)),
        Some(Way::Up) | None => items.sort_by(order),
    }
}

impl Ledger {
    /// Looks at keys.
    pub fn range(&self, range: &Range) -> Result<Ranged, Refusal> {
        self.keyspace.range(range)
    }

    /// The changes of keys from a revision on, in order. A revision before the one that was compacted is refused; one that the
    /// keyspace has not come to has none.
    pub fn changes_from(&self, revision: u64) -> Result<impl Iterator<Item = Change<'_>>, Refusal> {
        match self.keyspace.past.compacted {
            Some(compacted) if revision < compacted => Err(Refusal::Compacted { compacted }),
            _ => Ok(self.keyspace.past.changes_from(revision).map(|(at, key)| self.keyspace.change(at, key))),
        }
    }

    /// The oldest revision of the keyspace that can be looked at, if any was forgotten.
    pub const fn kv_compacted(&self) -> Option<u64> {
        self.keyspace.past.compacted
    }

    /// What all keys weigh, with what is remembered of them.
    pub const fn kv_bytes(&self) -> u64 {
        self.keyspace.bytes()
    }
}
