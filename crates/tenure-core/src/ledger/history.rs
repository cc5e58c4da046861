//! What is over: ended leases, claims and instances and past events, each bounded. It decides nothing.

use super::ends::{Ends, Over};
use crate::event::{End, Event, Revision};
use crate::fence::{Fence, Handle};
use crate::limits::{
    ENDED_CLAIMS_MAX, ENDED_CLAIMS_PER_RESOURCE_MAX, ENDED_EPOCHS_MAX, ENDED_INSTANCES_MAX, ENDED_INSTANCES_PER_ID_MAX,
    ENDED_LEASES_MAX, EVENTS_BYTES_MAX, EVENTS_MAX,
};
use crate::mode::{Epoch, Mode};
use crate::names::{Holder, LeaseId, Name};
use crate::registry::{InstanceKey, Penalty};
use crate::reply::Refusal;
use crate::time::Moment;
use alloc::collections::{BTreeMap, VecDeque};

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
    events: VecDeque<Event>,
    /// What the names and keys in the events weigh. An index.
    event_bytes: usize,
    /// The newest event that was dropped.
    compacted: (Revision, u32),
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
        self.events.extend(events.iter().cloned());
        self.event_bytes += events.iter().map(weight).sum::<usize>();
        let is_cut = |oldest: Option<&Event>| oldest.is_some_and(|oldest| oldest.n != 0);
        // A revision is dropped whole, so that a watch can resume after any revision that is not.
        while self.events.len() > EVENTS_MAX || self.event_bytes > EVENTS_BYTES_MAX || is_cut(self.events.front()) {
            let oldest = self.events.pop_front().expect("there is an oldest event");
            self.event_bytes -= weight(&oldest);
            self.compacted = (oldest.revision, oldest.n);
        }
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
        self.events.clear();
        self.event_bytes = 0;
        self.compacted = (revision, u32::MAX);
    }

    pub(super) fn events_after(&self, after: (Revision, u32)) -> Result<impl Iterator<Item = &Event>, Revision> {
        if after < self.compacted {
            return Err(self.compacted.0);
        }
        let first = self.events.partition_point(|event| (event.revision, event.n) <= after);
        Ok(self.events.range(first..))
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

    pub(super) fn all_events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) const fn compacted(&self) -> (Revision, u32) {
        self.compacted
    }

    pub(super) fn restore_compacted(&mut self, compacted: (Revision, u32)) {
        self.compacted = compacted;
    }
}

/// Takes a number out of an index.
fn forget<K: Ord>(index: &mut BTreeMap<K, VecDeque<u64>>, key: &K, number: u64) {
    let numbers = index.get_mut(key).expect("every end is in its index");
    numbers.retain(|other| *other != number);
    if numbers.is_empty() {
        index.remove(key);
    }
}

/// What an event weighs beside its fixed part.
fn weight(event: &Event) -> usize {
    let instance = event.what.instance().map_or(0, InstanceKey::bytes);
    let key = event.what.key().map_or(0, |key| key.bytes().len());
    let api_key = event.api_key.as_ref().map_or(0, |key| key.as_str().len());
    event.what.resource().map_or(0, |name| name.as_str().len()) + key + instance + api_key
}
