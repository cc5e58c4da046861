//! What is over: ended leases, claims and instances and past events, each bounded. It decides nothing.

use crate::event::{End, Event, Revision};
use crate::fence::{Fence, Handle};
use crate::limits::{
    ENDED_CLAIMS_MAX, ENDED_CLAIMS_PER_RESOURCE_MAX, ENDED_INSTANCES_MAX, ENDED_INSTANCES_PER_ID_MAX, ENDED_LEASES_MAX,
    EVENTS_BYTES_MAX, EVENTS_MAX,
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

/// The bounded past. All kinds of ends are numbered in the order in which they came, oldest dropped first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    next: u64,
    leases: BTreeMap<u64, EndedLease>,
    lease_at: BTreeMap<LeaseId, u64>,
    claims: BTreeMap<u64, EndedClaim>,
    claims_at: BTreeMap<Name, VecDeque<u64>>,
    instances: BTreeMap<u64, EndedInstance>,
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
            self.leases.remove(&before);
        }
        self.leases.insert(self.next, ended);
        if self.leases.len() > ENDED_LEASES_MAX {
            let (_, oldest) = self.leases.pop_first().expect("more than the limit is not nothing");
            self.lease_at.remove(&oldest.lease);
        }
    }

    pub(super) fn remember_claim(&mut self, ended: EndedClaim) {
        self.next += 1;
        let of_resource = self.claims_at.entry(ended.resource.clone()).or_default();
        of_resource.push_back(self.next);
        if of_resource.len() > ENDED_CLAIMS_PER_RESOURCE_MAX {
            let oldest = of_resource.pop_front().expect("more than the limit is not nothing");
            self.claims.remove(&oldest);
        }
        self.claims.insert(self.next, ended);
        if self.claims.len() > ENDED_CLAIMS_MAX {
            self.forget_oldest_claim();
        }
    }

    fn forget_oldest_claim(&mut self) {
        let (number, oldest) = self.claims.pop_first().expect("more than the limit is not nothing");
        let of_resource = self.claims_at.get_mut(&oldest.resource).expect("every ended claim is in its index");
        let first = of_resource.pop_front();
        assert_eq!(first, Some(number), "the index of a resource has its ends in order");
        if of_resource.is_empty() {
            self.claims_at.remove(&oldest.resource);
        }
    }

    pub(super) fn remember_instance(&mut self, ended: EndedInstance) {
        self.next += 1;
        let of_id = self.instances_at.entry(ended.instance.clone()).or_default();
        of_id.push_back(self.next);
        if of_id.len() > ENDED_INSTANCES_PER_ID_MAX {
            let oldest = of_id.pop_front().expect("more than the limit is not nothing");
            self.instances.remove(&oldest);
        }
        self.instances.insert(self.next, ended);
        if self.instances.len() > ENDED_INSTANCES_MAX {
            self.forget_oldest_instance();
        }
    }

    fn forget_oldest_instance(&mut self) {
        let (number, oldest) = self.instances.pop_first().expect("more than the limit is not nothing");
        let of_id = self.instances_at.get_mut(&oldest.instance).expect("every ended instance is in its index");
        let first = of_id.pop_front();
        assert_eq!(first, Some(number), "the index of an id has its ends in order");
        if of_id.is_empty() {
            self.instances_at.remove(&oldest.instance);
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
        self.lease_at.get(&id).map(|number| &self.leases[number])
    }

    pub(super) fn claims(&self, resource: &Name) -> impl Iterator<Item = &EndedClaim> {
        self.claims_at.get(resource).into_iter().flatten().map(|number| &self.claims[number])
    }

    pub(super) fn claim(&self, handle: &Handle) -> Option<&EndedClaim> {
        self.claims(&handle.resource).find(|ended| ended.fence == handle.fence)
    }

    pub(super) fn instances(&self, key: &InstanceKey) -> impl DoubleEndedIterator<Item = &EndedInstance> {
        self.instances_at.get(key).into_iter().flatten().map(|number| &self.instances[number])
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

/// What an event weighs beside its fixed part.
fn weight(event: &Event) -> usize {
    let instance = event.what.instance().map_or(0, InstanceKey::bytes);
    let key = event.what.key().map_or(0, |key| key.bytes().len());
    event.what.resource().map_or(0, |name| name.as_str().len()) + key + instance
}
