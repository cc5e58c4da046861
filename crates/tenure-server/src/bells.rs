//! Tells watchers of keys, or of services, that one of theirs has changed. It holds no changes: whoever is told looks at the
//! ledger, from the revision that concerned it first. Whoever watches others is not woken.

use crate::limits::{BELLS_MAX, BELLS_PER_WATCH_MAX};
use crate::shares::{Client, Share, Shares};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::{Key, Keys};
use tokio::sync::Notify;

/// All bells of a node.
#[derive(Debug)]
pub(crate) struct Bells {
    hung: Mutex<Hung>,
    shares: Arc<Shares>,
}

/// By the number of each string that pulls a bell.
#[derive(Debug, Default)]
struct Hung {
    of_one: HashMap<Key, BTreeMap<u64, Arc<Bell>>>,
    of_several: BTreeMap<u64, (Keys, Arc<Bell>)>,
    next: u64,
}

/// What wakes one watcher, or a stream of several.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: Notify,
    /// The first revision that it was rung for; the greatest number if for none.
    from: AtomicU64,
}

impl Default for Bell {
    fn default() -> Self {
        Self { rung: Notify::new(), from: AtomicU64::new(u64::MAX) }
    }
}

impl Bell {
    fn ring(&self, revision: u64) {
        self.from.fetch_min(revision, Ordering::AcqRel);
        self.rung.notify_one();
    }

    /// Whether it was rung since it was last asked.
    pub(crate) fn is_rung(&self) -> bool {
        self.from.load(Ordering::Acquire) != u64::MAX
    }

    /// Returns when it was rung, with the first revision that it was rung for since it was last asked.
    pub(crate) async fn rung(&self) -> u64 {
        loop {
            self.rung.notified().await;
            match self.from.swap(u64::MAX, Ordering::AcqRel) {
                u64::MAX => {}
                from => return from,
            }
        }
    }
}

/// A bell hung up for some keys. Dropping it takes it down.
#[derive(Debug)]
pub(crate) struct Hanging {
    bells: Arc<Bells>,
    keys: Keys,
    number: u64,
    _share: Share,
}

impl Bells {
    pub(crate) fn new() -> Self {
        Self::at_most(BELLS_MAX)
    }

    fn at_most(max: usize) -> Self {
        Self { hung: Mutex::default(), shares: Shares::of(max) }
    }

    /// Hangs a bell up for some keys, if there is room in the share of its client. To miss nothing, hang it up first and look at
    /// the ledger then.
    pub(crate) fn hang(self: &Arc<Self>, keys: Keys, bell: &Arc<Bell>, client: &Client) -> Option<Hanging> {
        const _: () = assert!(BELLS_PER_WATCH_MAX <= BELLS_MAX);
        let share = self.shares.take(client, 1)?;
        let mut hung = self.hung();
        hung.next += 1;
        let number = hung.next;
        match &keys {
            Keys::One(key) => drop(hung.of_one.entry(key.clone()).or_default().insert(number, bell.clone())),
            several => drop(hung.of_several.insert(number, (several.clone(), bell.clone()))),
        }
        drop(hung);
        Some(Hanging { bells: self.clone(), keys, number, _share: share })
    }

    /// Rings for what has changed, each at its revision.
    pub(crate) fn ring<'a>(&self, changed: impl Iterator<Item = (&'a [u8], u64)>) {
        let mut changed = changed.peekable();
        if changed.peek().is_none() {
            return;
        }
        let hung = self.hung();
        if hung.of_one.is_empty() && hung.of_several.is_empty() {
            return;
        }
        for (key, revision) in changed {
            hung.of_one.get(key).into_iter().flat_map(BTreeMap::values).for_each(|bell| bell.ring(revision));
            let of_several = hung.of_several.values().filter(|(keys, _)| keys.cover(key));
            of_several.for_each(|(_, bell)| bell.ring(revision));
        }
    }

    /// Rings all: the ledger was replaced by a newer one.
    pub(crate) fn ring_all(&self) {
        let hung = self.hung();
        let of_one = hung.of_one.values().flat_map(BTreeMap::values);
        of_one.chain(hung.of_several.values().map(|(_, bell)| bell)).for_each(|bell| bell.ring(0));
    }

    fn hung(&self) -> MutexGuard<'_, Hung> {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let mut hung = self.bells.hung();
        let Keys::One(key) = &self.keys else {
            hung.of_several.remove(&self.number);
            return;
        };
        if let Some(of_key) = hung.of_one.get_mut(key) {
            of_key.remove(&self.number);
            if of_key.is_empty() {
                hung.of_one.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with its full share leaves room for the next client, and has room again when it takes a bell down.
    #[test]
    fn one_client_leaves_room_for_bells_of_others() {
        let (bells, bell) = (Arc::new(Bells::at_most(8)), Arc::default());
        let [reader, other] = ["reader", "other"].map(Client::named);
        let keys = |n: u8| {
            if n.is_multiple_of(2) {
                Keys::One(Key::parse(&[n]).expect("it is a key"))
            } else {
                Keys::Prefix([n][..].into())
            }
        };
        let mut hung: Vec<_> = (0..8).map_while(|n| bells.hang(keys(n), &bell, &reader)).collect();
        assert_eq!(hung.len(), 4);
        let others: Vec<_> = (0..8).map_while(|n| bells.hang(keys(n), &bell, &other)).collect();
        assert_eq!(others.len(), 2);
        hung.pop();
        assert!(bells.hang(keys(1), &bell, &reader).is_none(), "it has as much as is free");
        drop(others);
        assert!(bells.hang(keys(1), &bell, &reader).is_some());
    }
}
