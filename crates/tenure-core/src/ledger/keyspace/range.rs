//! Looking at keys: as they are, as they were, in any order; and the changes that made them so.

use super::super::Ledger;
use super::past::At;
use super::{KeyValue, Keyspace};
use crate::command::Keys;
use crate::limits::KEY_COST_BYTES;
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
        self.lived_from(keys, keys.first(), revision).filter_map(|(key, value)| Some((key, value?)))
    }

    /// The keys that are or were there, from one on, in order, each with what it was at a revision.
    fn lived_from<'a>(
        &'a self,
        keys: &'a Keys,
        from: &[u8],
        revision: u64,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a KeyValue>)> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let mut living = self.keys.range::<[u8], _>(bounds).peekable();
        let mut past = self.past.versions.range::<[u8], _>(bounds).map(|(key, _)| key).peekable();
        let each = core::iter::from_fn(move || {
            let order = match (living.peek(), past.peek()) {
                (Some((living, _)), Some(past)) => living.cmp(past),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            let before = if order.is_ge() { past.next() } else { None };
            let living = if order.is_le() { living.next() } else { None };
            let key = living.map(|(key, _)| key).or(before)?;
            let is = living.map(|(_, value)| value).filter(|value| value.mod_revision <= revision);
            Some((key, is.or_else(|| self.past.at(key.bytes(), revision))))
        });
        each.take_while(|(key, _)| keys.cover(key.bytes()))
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
        let (most, mut items, mut count) = (range.most(), Vec::new(), 0);
        for item in found {
            count += 1;
            if items.len() < most {
                items.push(item);
            }
        }
        let more = arrange(range, &mut items);
        Ok(Ranged { items: items.into_iter().map(|item| told(range, item)).collect(), more, count })
    }

    /// One slice of a range: what it finds at a revision from a key on, while it looks at `looks` keys at most.
    fn range_slice(&self, range: &Range, at: u64, from: &[u8], most: usize, looks: usize) -> RangeSlice {
        let mut slice = RangeSlice::default();
        for (looked, (key, value)) in self.lived_from(&range.keys, from, at).enumerate() {
            if looked == looks {
                slice.next = Some(key.clone());
                break;
            }
            let Some(value) = value else { continue };
            slice.count += 1;
            if slice.items.len() < most && range.part != Part::CountOnly {
                slice.items.push((key.clone(), value.clone()));
            }
        }
        slice
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

/// Part of what a range finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSlice {
    /// Keys, in the order of their bytes.
    pub items: Vec<(Key, KeyValue)>,
    /// How many keys of the range it has, whatever the limit leaves out.
    pub count: u64,
    /// Where the next slice begins; none if there is none.
    pub next: Option<Key>,
}

impl RangeSlice {
    /// About how many bytes its keys take in an answer.
    pub fn bytes(&self, part: Part) -> usize {
        let value = |value: &KeyValue| if part == Part::Whole { value.value.len() } else { 0 };
        let each = |(key, has): &(Key, KeyValue)| key.bytes().len() + value(has) + KEY_COST_BYTES as usize;
        self.items.iter().map(each).sum()
    }
}

impl Range {
    /// How many keys a look has to gather at most before they are sorted and counted: one more than the limit tells whether
    /// there are more.
    pub fn most(&self) -> usize {
        let takes_all = self.is_filtered() || self.sort.is_some_and(|sort| sort.way.is_some());
        self.limit.filter(|_| !takes_all).map_or(usize::MAX, |limit| limit.saturating_add(1))
    }

    /// What all slices of this range come to.
    pub fn finish(&self, items: &[(Key, KeyValue)], count: u64) -> Ranged {
        let mut items: Vec<Item<'_>> = items.iter().map(|(key, value)| (key, value)).collect();
        let more = arrange(self, &mut items);
        Ranged { items: items.into_iter().map(|item| told(self, item)).collect(), more, count }
    }
}

/// Leaves out what is not asked for, and puts the rest in order. True: the limit left some out.
fn arrange(range: &Range, items: &mut Vec<Item<'_>>) -> bool {
    items.retain(|(_, value)| range.modified.holds(value.mod_revision) && range.created.holds(value.create_revision));
    range.sort.iter().for_each(|sort| sort_by(items, *sort));
    let more = range.limit.is_some_and(|limit| items.len() > limit);
    items.truncate(range.limit.unwrap_or(usize::MAX));
    more
}

/// What a range tells of a key.
fn told(range: &Range, (key, value): Item<'_>) -> (Key, KeyValue) {
    match range.part {
        Part::KeysOnly => (key.clone(), KeyValue { value: [][..].into(), ..value.clone() }),
        Part::Whole | Part::CountOnly => (key.clone(), value.clone()),
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

    /// Looks at `looks` keys of a range at most, from a key on, as they were at a revision, and gathers `most` of them. All
    /// slices together are what [`Self::range`] finds at that revision, and others may write between two of them. A
    /// revision that was compacted meanwhile is refused.
    pub fn range_slice(
        &self,
        range: &Range,
        at: u64,
        from: Option<&Key>,
        most: usize,
        looks: usize,
    ) -> Result<RangeSlice, Refusal> {
        self.keyspace.may_look(Some(i64::try_from(at).unwrap_or(i64::MAX)))?;
        let from = from.map_or(range.keys.first(), Key::bytes);
        Ok(self.keyspace.range_slice(range, at, from, most, looks))
    }

    /// Whether the keyspace can be looked at as it was at a revision.
    pub fn may_look_at(&self, revision: Option<i64>) -> Result<(), Refusal> {
        self.keyspace.may_look(revision)
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
