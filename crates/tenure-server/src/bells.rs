//! Tells watchers of keys, or of services, that one of theirs has changed. It holds no changes: whoever is told looks at the
//! ledger, from the revision that concerned it first. Whoever watches others is not woken.

use crate::limits::{BELLS_MAX, BELLS_PER_WATCH_MAX};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::{Key, Keys};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All bells of a node.
#[derive(Debug)]
pub(crate) struct Bells {
    hung: Mutex<Hung>,
    room: Arc<Semaphore>,
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
    _room: OwnedSemaphorePermit,
}

impl Bells {
    pub(crate) fn new() -> Self {
        Self { hung: Mutex::default(), room: Arc::new(Semaphore::new(BELLS_MAX)) }
    }

    /// Hangs a bell up for some keys, if there is room. To miss nothing, hang it up first and look at the ledger then.
    pub(crate) fn hang(self: &Arc<Self>, keys: Keys, bell: &Arc<Bell>) -> Option<Hanging> {
        const _: () = assert!(BELLS_PER_WATCH_MAX <= BELLS_MAX);
        let room = self.room.clone().try_acquire_owned().ok()?;
        let mut hung = self.hung();
        hung.next += 1;
        let number = hung.next;
        match &keys {
            Keys::One(key) => drop(hung.of_one.entry(key.clone()).or_default().insert(number, bell.clone())),
            several => drop(hung.of_several.insert(number, (several.clone(), bell.clone()))),
        }
        drop(hung);
        Some(Hanging { bells: self.clone(), keys, number, _room: room })
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
