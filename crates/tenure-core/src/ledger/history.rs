//! What is over: ended leases, claims and instances and past events, each bounded. It decides nothing.

use super::ends::{Ends, Over};
use super::ring::{Place, Ring};
use crate::event::{End, Event, Revision};
use crate::fence::{Fence, Handle};
use crate::limits::{
    ENDED_CLAIMS_MAX, ENDED_CLAIMS_PER_RESOURCE_MAX, ENDED_EPOCHS_MAX, ENDED_INSTANCES_MAX, ENDED_INSTANCES_PER_ID_MAX,
    ENDED_LEASES_MAX,
};
use crate::mode::{Epoch, Mode};
use crate::names::{Holder, LeaseId, Name};
use crate::registry::{InstanceKey, Penalty};
use crate::reply::Refusal;
use crate::time::Moment;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A lease that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLease {
    /// Its id.
    pub lease: LeaseId,
    /// Whose it was.
    pub holder: Holder,
    /// The request that began it.
    pub request: u64,
    /// How it ended.
    pub how: End,
    /// When, in service time.
    pub when: Moment,
    /// When, by the wall clock of the leader of that time.
    pub wall_ms: u64,
}

impl EndedLease {
    /// What whoever asks for it is told.
    pub(super) fn refusal(&self) -> Refusal {
        Refusal::Lapsed { lease: self.lease, how: self.how.clone(), when: self.when, wall_ms: self.wall_ms }
    }
}

/// A holding claim that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedClaim {
    /// The resource.
    pub resource: Name,
    /// The lease that it hung on.
    pub lease: LeaseId,
    /// Whose it was.
    pub holder: Holder,
    /// Its fence.
    pub fence: Fence,
    /// How it shared the resource.
    pub mode: Mode,
    /// The epoch in which its holder claimed it.
    pub epoch: Option<Epoch>,
    /// Since when it held the resource, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
    /// How it ended.
    pub how: End,
    /// When, in service time.
    pub when: Moment,
    /// When, by the wall clock of the leader of that time.
    pub wall_ms: u64,
}

/// An instance that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedInstance {
    /// Which.
    pub instance: InstanceKey,
    /// The lease that it hung on.
    pub lease: LeaseId,
    /// Whose it was.
    pub holder: Holder,
    /// How often it had started.
    pub epoch: Option<Epoch>,
    /// Since when it was registered, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
    /// What it had to its name for flapping.
    pub penalty: Penalty,
    /// Until when it was to be held down.
    pub held_until: Option<Moment>,
    /// How it ended.
    pub how: End,
    /// When, in service time.
    pub when: Moment,
    /// When, by the wall clock of the leader of that time.
    pub wall_ms: u64,
}

impl EndedInstance {
    /// Until when whoever comes back in its place is held down.
    pub(super) fn held_until(&self, now: Moment) -> Option<Moment> {
        self.held_until.filter(|until| *until > now)
    }
}

/// The highest epoch in which a claim of a holder on a resource ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedEpoch {
    pub(super) resource: Name,
    pub(super) holder: Holder,
    pub(super) epoch: Epoch,
}

impl Over for EndedLease {
    fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Over for EndedClaim {
    fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Over for EndedInstance {
    fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Over for EndedEpoch {
    fn holder(&self) -> &Holder {
        &self.holder
    }
}

/// The bounded past. All kinds of ends are numbered in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    next: u64,
    leases: Ends<EndedLease>,
    lease_at: BTreeMap<LeaseId, u64>,
    claims: Ends<EndedClaim>,
    claims_at: BTreeMap<Name, VecDeque<u64>>,
    epochs: Ends<EndedEpoch>,
    epoch_at: BTreeMap<(Name, Holder), u64>,
    instances: Ends<EndedInstance>,
    instances_at: BTreeMap<InstanceKey, VecDeque<u64>>,
    /// Events of leases, resources and instances.
    events: Ring,
    /// Events of keys. They have a ring of their own, so that a delete of many keys pushes out no other event.
    key_events: Ring,
}

impl History {
    pub(super) fn remember_lease(&mut self, ended: EndedLease) {
        self.next += 1;
        if let Some(before) = self.lease_at.insert(ended.lease, self.next) {
            self.leases.remove(before);
        }
        self.leases.insert(self.next, ended);
        if let Some((_, forgotten)) = self.leases.overflow(ENDED_LEASES_MAX) {
            self.lease_at.remove(&forgotten.lease);
        }
    }

    /// Remembers how a claim ended, and in which epoch.
    pub(super) fn remember_claim(&mut self, ended: EndedClaim) {
        if let Some(epoch) = ended.epoch {
            self.remember_epoch(EndedEpoch { resource: ended.resource.clone(), holder: ended.holder.clone(), epoch });
        }
        self.remember_end_of_claim(ended);
    }

    /// Remembers how a claim ended. Its epoch is remembered by itself.
    pub(super) fn remember_end_of_claim(&mut self, ended: EndedClaim) {
        self.next += 1;
        let of_resource = self.claims_at.entry(ended.resource.clone()).or_default();
        of_resource.push_back(self.next);
        if of_resource.len() > ENDED_CLAIMS_PER_RESOURCE_MAX {
            let oldest = of_resource.pop_front().expect("more than the limit is not nothing");
            self.claims.remove(oldest);
        }
        self.claims.insert(self.next, ended);
        if let Some((number, forgotten)) = self.claims.overflow(ENDED_CLAIMS_MAX) {
            forget(&mut self.claims_at, &forgotten.resource, number);
        }
    }

    /// Remembers that a holder was there in an epoch, if it was not there in a later one.
    pub(super) fn remember_epoch(&mut self, mut ended: EndedEpoch) {
        self.next += 1;
        if let Some(before) = self.epoch_at.insert((ended.resource.clone(), ended.holder.clone()), self.next) {
            let before = self.epochs.remove(before).expect("every ended epoch is in its index");
            ended.epoch = ended.epoch.max(before.epoch);
        }
        self.epochs.insert(self.next, ended);
        if let Some((_, forgotten)) = self.epochs.overflow(ENDED_EPOCHS_MAX) {
            self.epoch_at.remove(&(forgotten.resource, forgotten.holder));
        }
    }

    pub(super) fn remember_instance(&mut self, ended: EndedInstance) {
        self.next += 1;
        let of_id = self.instances_at.entry(ended.instance.clone()).or_default();
        of_id.push_back(self.next);
        if of_id.len() > ENDED_INSTANCES_PER_ID_MAX {
            let oldest = of_id.pop_front().expect("more than the limit is not nothing");
            self.instances.remove(oldest);
        }
        self.instances.insert(self.next, ended);
        if let Some((number, forgotten)) = self.instances.overflow(ENDED_INSTANCES_MAX) {
            forget(&mut self.instances_at, &forgotten.instance, number);
        }
    }

    pub(super) fn remember_events(&mut self, events: &[Event]) {
        let (of_keys, others): (Vec<&Event>, Vec<&Event>) = events.iter().partition(|event| is_of_key(event));
        self.key_events.remember(&of_keys);
        self.events.remember(&others);
    }

    /// Takes in an event that a snapshot tells of. What it was allowed to keep is kept.
    pub(super) fn restore_event(&mut self, event: Event) {
        let ring = if is_of_key(&event) { &mut self.key_events } else { &mut self.events };
        ring.restore(event);
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<&EndedLease> {
        self.lease_at.get(&id).map(|number| self.leases.get(*number))
    }

    pub(super) fn claims(&self, resource: &Name) -> impl Iterator<Item = &EndedClaim> {
        self.claims_at.get(resource).into_iter().flatten().map(|number| self.claims.get(*number))
    }

    pub(super) fn claim(&self, handle: &Handle) -> Option<&EndedClaim> {
        self.claims(&handle.resource).find(|ended| ended.fence == handle.fence)
    }

    /// The highest epoch in which a claim of this holder on this resource ended.
    pub(super) fn epoch(&self, resource: &Name, holder: &Holder) -> Option<Epoch> {
        let number = self.epoch_at.get(&(resource.clone(), holder.clone()))?;
        Some(self.epochs.get(*number).epoch)
    }

    pub(super) fn instances(&self, key: &InstanceKey) -> impl DoubleEndedIterator<Item = &EndedInstance> {
        self.instances_at.get(key).into_iter().flatten().map(|number| self.instances.get(*number))
    }

    /// Forgets all events: a watch can be resumed only after the end of this revision.
    pub(super) fn forget_events(&mut self, revision: Revision) {
        self.events.forget((revision, u32::MAX));
        self.key_events.forget((revision, u32::MAX));
    }

    /// All events after a place, in order.
    pub(super) fn events_after(&self, after: Place) -> Result<impl Iterator<Item = &Event>, Revision> {
        let oldest = self.events.compacted().max(self.key_events.compacted());
        match (self.events.after(after), self.key_events.after(after)) {
            (Some(events), Some(of_keys)) => Ok(merged(events, of_keys, |event, of_key| event < of_key)),
            _ => Err(oldest.0),
        }
    }

    /// All events after a place, in order, but for those of keys.
    pub(super) fn events_beside_keys_after(&self, after: Place) -> Result<impl Iterator<Item = &Event>, Revision> {
        self.events.after(after).ok_or(self.events.compacted().0)
    }

    pub(super) fn all_leases(&self) -> impl Iterator<Item = &EndedLease> {
        self.leases.values()
    }

    pub(super) fn all_claims(&self) -> impl Iterator<Item = &EndedClaim> {
        self.claims.values()
    }

    pub(super) fn all_epochs(&self) -> impl Iterator<Item = &EndedEpoch> {
        self.epochs.values()
    }

    pub(super) fn all_instances(&self) -> impl Iterator<Item = &EndedInstance> {
        self.instances.values()
    }

    /// All events, in order.
    pub(super) fn all_events(&self) -> impl Iterator<Item = &Event> {
        merged(self.events.all(), self.key_events.all(), |event, of_key| event < of_key)
    }

    /// All events, the newest first.
    pub(super) fn events_back(&self) -> impl Iterator<Item = &Event> {
        merged(self.events.all().rev(), self.key_events.all().rev(), |event, of_key| event > of_key)
    }

    /// The newest event that was dropped, and the newest of a key.
    pub(super) const fn compacted(&self) -> (Place, Place) {
        (self.events.compacted(), self.key_events.compacted())
    }

    pub(super) const fn restore_compacted(&mut self, compacted: Place, of_keys: Place) {
        self.events.restore_compacted(compacted);
        self.key_events.restore_compacted(of_keys);
    }
}

/// Two rows of events as one. Each is in order by itself; `is_first` says whether the first of one comes before the first of
/// the other.
fn merged<'a>(
    one: impl Iterator<Item = &'a Event>,
    other: impl Iterator<Item = &'a Event>,
    is_first: fn(Place, Place) -> bool,
) -> impl Iterator<Item = &'a Event> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    core::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if is_first((b.revision, b.n), (a.revision, a.n)) => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

const fn is_of_key(event: &Event) -> bool {
    event.what.key().is_some()
}

/// Takes a number out of an index.
fn forget<K: Ord>(index: &mut BTreeMap<K, VecDeque<u64>>, key: &K, number: u64) {
    let numbers = index.get_mut(key).expect("every end is in its index");
    numbers.retain(|other| *other != number);
    if numbers.is_empty() {
        index.remove(key);
    }
}
