//! A bounded row of events, the oldest of which are dropped. A revision is dropped whole, so that a watch can resume after any
//! revision that is not.

use crate::event::{Event, Revision};
use crate::limits::{EVENTS_BYTES_MAX, EVENTS_MAX};
use crate::registry::InstanceKey;
use alloc::collections::VecDeque;

/// A place in the stream of events: a revision, and an event within it.
pub(super) type Place = (Revision, u32);

/// Events, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    events: VecDeque<Event>,
    /// What the names and keys in the events weigh. An index.
    bytes: usize,
    /// The newest event that was dropped.
    compacted: Place,
}

impl Ring {
    /// Takes in new events, and drops the oldest while there are too many.
    pub(super) fn remember(&mut self, events: &[&Event]) {
        self.events.extend(events.iter().copied().cloned());
        self.bytes += events.iter().map(|event| weight(event)).sum::<usize>();
        while self.is_over() || self.is_cut() {
            self.drop_oldest();
        }
    }

    /// Takes in an event that was kept before.
    pub(super) fn restore(&mut self, event: Event) {
        self.bytes += weight(&event);
        self.events.push_back(event);
    }

    /// Whether the oldest revision must go. One revision is kept although it has more events than there may be, as a delete of
    /// many keys has: who is up to date would otherwise miss it. It weighs no more than is allowed, all the same.
    fn is_over(&self) -> bool {
        let is_one = self.events.front().map(|event| event.revision) == self.events.back().map(|event| event.revision);
        self.events.len() > EVENTS_MAX && !is_one || self.bytes > EVENTS_BYTES_MAX
    }

    /// Whether a part of the oldest revision is gone already.
    fn is_cut(&self) -> bool {
        self.events.front().is_some_and(|oldest| oldest.revision <= self.compacted.0)
    }

    fn drop_oldest(&mut self) {
        let oldest = self.events.pop_front().expect("there is an oldest event");
        self.bytes -= weight(&oldest);
        self.compacted = (oldest.revision, oldest.n);
    }

    /// The events after a place. None: some of them were dropped.
    pub(super) fn after(&self, after: Place) -> Option<impl Iterator<Item = &Event>> {
        let first = self.events.partition_point(|event| (event.revision, event.n) <= after);
        (after >= self.compacted).then(|| self.events.range(first..))
    }

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) const fn compacted(&self) -> Place {
        self.compacted
    }

    /// Drops everything up to a place.
    pub(super) fn forget(&mut self, upto: Place) {
        *self = Self { compacted: upto, ..Self::default() };
    }

    pub(super) const fn restore_compacted(&mut self, compacted: Place) {
        self.compacted = compacted;
    }
}

/// What an event weighs beside its fixed part.
fn weight(event: &Event) -> usize {
    let instance = event.what.instance().map_or(0, InstanceKey::bytes);
    let key = event.what.key().map_or(0, |key| key.bytes().len());
    event.what.resource().map_or(0, |name| name.as_str().len()) + key + instance
}
