//! Things of one kind that are over, each of a holder, as many as there is room for. When there are too many, the holder that
//! has the most loses its oldest one: the traffic of one client does not make the ledger forget those of others.

use crate::names::Holder;
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// Something that is over and belonged to a holder.
pub(super) trait Over {
    fn holder(&self) -> &Holder;
}

/// By the numbers in which they came.
#[derive(Clone, Debug)]
pub(super) struct Ends<T> {
    all: BTreeMap<u64, T>,
    /// The numbers of each holder.
    of: BTreeMap<Holder, BTreeSet<u64>>,
    /// How many each holder has. Of those with equally many the one with the oldest comes last.
    most: BTreeSet<(usize, Reverse<u64>, Holder)>,
}

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), of: BTreeMap::new(), most: BTreeSet::new() }
    }
}

impl<T: Over> Ends<T> {
    /// Adds one under a number that is higher than all before.
    pub(super) fn insert(&mut self, number: u64, ended: T) {
        self.change(ended.holder().clone(), |numbers| numbers.insert(number));
        self.all.insert(number, ended);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let ended = self.all.remove(&number)?;
        self.change(ended.holder().clone(), |numbers| numbers.remove(&number));
        Some(ended)
    }

    /// Takes out what is more than the limit, if it is more.
    pub(super) fn overflow(&mut self, max: usize) -> Option<(u64, T)> {
        if self.all.len() <= max {
            return None;
        }
        let (_, Reverse(oldest), _) = self.most.last().expect("more than the limit is not nothing");
        let oldest = *oldest;
        self.remove(oldest).map(|ended| (oldest, ended))
    }

    pub(super) fn get(&self, number: u64) -> &T {
        &self.all[&number]
    }

    /// All of them, oldest first.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.all.values()
    }

    fn change(&mut self, holder: Holder, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let numbers = self.of.entry(holder.clone()).or_default();
        if let Some(first) = numbers.first() {
            self.most.remove(&(numbers.len(), Reverse(*first), holder.clone()));
        }
        change(numbers);
        match numbers.first() {
            Some(first) => drop(self.most.insert((numbers.len(), Reverse(*first), holder))),
            None => drop(self.of.remove(&holder)),
        }
    }
}
