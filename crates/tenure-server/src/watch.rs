//! Tells watchers that something happened and waiters that they were seated. It holds no events: whoever is told reads
//! them from the ledger's own history, so a slow watcher costs nothing.

use crate::replica::Replica;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tenure_core::{Event, Happening, LeaseId, Name, Revision};
use tokio::sync::{oneshot, watch};

type Key = (LeaseId, Name);

#[derive(Debug)]
pub(crate) struct Hub {
    revision: watch::Sender<Revision>,
    waiters: Mutex<HashMap<Key, Vec<Waiter>>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    told: oneshot::Sender<(Happening, Revision)>,
}

/// A place at the hub for one waiting claim. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Seating {
    replica: Arc<Replica>,
    key: Key,
    number: u64,
    told: oneshot::Receiver<(Happening, Revision)>,
}

impl Hub {
    pub(crate) fn new(revision: Revision) -> Self {
        Self { revision: watch::Sender::new(revision), waiters: Mutex::default(), next: AtomicU64::new(0) }
    }

    /// The newest revision, and when it changes.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<Key, Vec<Waiter>>> {
        self.waiters.lock().expect("nobody panics while holding the waiters")
    }

    pub(crate) fn publish(&self, events: &[Event]) {
        let Some(newest) = events.last() else { return };
        self.revision.send_replace(newest.revision);
        let mut waiters = self.waiters();
        if waiters.is_empty() {
            return;
        }
        for event in events {
            if let Happening::Seated { resource, lease, .. } | Happening::Left { resource, lease } = &event.what {
                for waiter in waiters.remove(&(*lease, resource.clone())).into_iter().flatten() {
                    // Whoever stopped listening has given up its place in the meantime.
                    let _ = waiter.told.send((event.what.clone(), event.revision));
                }
            }
        }
    }
}

impl Seating {
    /// Waits for what becomes of a claim. To miss nothing, take the place before the claim is made.
    pub(crate) fn take(replica: Arc<Replica>, lease: LeaseId, resource: Name) -> Self {
        let (told, receiver) = oneshot::channel();
        let hub = replica.hub();
        let number = hub.next.fetch_add(1, Ordering::Relaxed);
        let key = (lease, resource);
        hub.waiters().entry(key.clone()).or_default().push(Waiter { number, told });
        Self { replica, key, number, told: receiver }
    }

    /// The lease and the resource of the claim.
    pub(crate) fn claim(&self) -> (LeaseId, Name) {
        self.key.clone()
    }

    /// The claim was seated, or left the line, at that revision.
    pub(crate) async fn told(mut self) -> Option<(Happening, Revision)> {
        (&mut self.told).await.ok()
    }
}

impl Drop for Seating {
    fn drop(&mut self) {
        let mut waiters = self.replica.hub().waiters();
        if let Some(of_key) = waiters.get_mut(&self.key) {
            of_key.retain(|waiter| waiter.number != self.number);
            if of_key.is_empty() {
                waiters.remove(&self.key);
            }
        }
    }
}
