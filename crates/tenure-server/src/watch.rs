//! Tells watchers that something happened and waiters that their claim has changed. It holds no events: whoever is told
//! looks at the ledger, so a slow watcher costs nothing here.

use crate::bells::Bells;
use crate::limits::PLACES_MAX;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tenure_core::{Event, Happening, LeaseId, Name, Revision};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

type Key = (LeaseId, Name);
type Places = HashMap<Key, BTreeMap<u64, oneshot::Sender<()>>>;

#[derive(Debug)]
pub(crate) struct Hub {
    revision: watch::Sender<Revision>,
    places: Mutex<Places>,
    next: AtomicU64,
    room: Arc<Semaphore>,
    bells: Arc<Bells>,
    services: Arc<Bells>,
}

/// A place at the hub for one claim in line. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Seating {
    hub: Arc<Hub>,
    key: Key,
    number: u64,
    told: oneshot::Receiver<()>,
    _room: OwnedSemaphorePermit,
}

impl Hub {
    pub(crate) fn new(revision: Revision) -> Self {
        Self {
            revision: watch::Sender::new(revision),
            places: Mutex::default(),
            next: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(PLACES_MAX)),
            bells: Arc::new(Bells::new()),
            services: Arc::new(Bells::new()),
        }
    }

    /// The newest revision of which all were told, and when it changes.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// What wakes those who watch keys.
    pub(crate) fn bells(&self) -> &Arc<Bells> {
        &self.bells
    }

    /// What wakes those who watch services, each by its name as a key.
    pub(crate) fn services(&self) -> &Arc<Bells> {
        &self.services
    }

    /// Room for one more place, if there is any.
    pub(crate) fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }

    pub(crate) fn publish(&self, events: &[Event]) {
        let Some(newest) = events.last() else { return };
        let keys = events.iter().filter_map(|event| match &event.what {
            Happening::Put { key, kv_revision, .. } | Happening::Deleted { key, kv_revision, .. } => {
                Some((key.bytes(), *kv_revision))
            }
            _ => None,
        });
        self.bells.ring(keys);
        let services = events.iter().filter_map(|event| {
            let instance = event.what.instance()?;
            Some((instance.service.as_str().as_bytes(), event.revision.0))
        });
        self.services.ring(services);
        self.revision.send_replace(newest.revision);
        let mut places = self.places();
        if places.is_empty() {
            return;
        }
        for event in events {
            if let Happening::Seated { resource, lease, .. } | Happening::Left { resource, lease, .. } = &event.what {
                for (_, told) in places.remove(&(*lease, resource.clone())).into_iter().flatten() {
                    // Whoever stopped listening has given up its place in the meantime.
                    let _ = told.send(());
                }
            }
        }
    }

    /// The ledger was replaced by a newer one: whoever waits for anything looks again.
    pub(crate) fn leap(&self, revision: Revision) {
        self.bells.ring_all();
        self.services.ring_all();
        self.revision.send_replace(revision);
        for (_, told) in std::mem::take(&mut *self.places()).into_values().flatten() {
            // Whoever stopped listening has given up its place in the meantime.
            let _ = told.send(());
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().expect("nobody panics while holding the places")
    }
}

impl Seating {
    /// Waits for a change of a claim. To miss nothing, take the place first and look at the ledger then.
    pub(crate) fn take(hub: Arc<Hub>, lease: LeaseId, resource: Name, room: OwnedSemaphorePermit) -> Self {
        let (told, receiver) = oneshot::channel();
        let number = hub.next.fetch_add(1, Ordering::Relaxed);
        let key = (lease, resource);
        hub.places().entry(key.clone()).or_default().insert(number, told);
        Self { hub, key, number, told: receiver, _room: room }
    }

    /// Returns when the claim was seated or left its line. False: the node has stopped.
    pub(crate) async fn changed(mut self) -> bool {
        (&mut self.told).await.is_ok()
    }
}

impl Drop for Seating {
    fn drop(&mut self) {
        let mut places = self.hub.places();
        if let Some(of_key) = places.get_mut(&self.key) {
            of_key.remove(&self.number);
            if of_key.is_empty() {
                places.remove(&self.key);
            }
        }
    }
}
