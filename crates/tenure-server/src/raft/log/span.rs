//! Owns what the log remembers beside the entries themselves, and the rule that entries have no gap. The writer and recovery
//! share it, so that what one writes the other accepts. Never touches the disk.

use std::ops::Range;

use super::record::Record;

/// The last purge: up to where the log is forgotten, and the log id of that place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purged {
    pub index: u64,
    pub log_id: Vec<u8>,
}

/// An entry that does not follow the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// The entries that the log holds: `first..next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) next: u64,
    purged: Option<u64>,
}

impl Span {
    /// The span of a log that is known only from the header of its oldest segment.
    pub(super) fn resumed(held: Range<u64>) -> Self {
        Self { first: held.start, next: held.end, purged: None }
    }

    pub(super) fn accept(&mut self, record: &Record) -> Result<(), Gap> {
        match record {
            Record::Entry { index, .. } => return self.accept_entry(*index),
            Record::TruncateAfter { index } => {
                let keep = index.map_or(0, |index| index.saturating_add(1));
                self.next = self.next.min(keep.max(self.first));
            }
            Record::Purge { index, .. } => {
                self.purged = self.purged.max(Some(*index));
                self.first = self.first.max(index.saturating_add(1));
                self.next = self.next.max(self.first);
            }
            Record::Vote(_) | Record::Committed(_) => {}
        }
        Ok(())
    }

    fn accept_entry(&mut self, index: u64) -> Result<(), Gap> {
        // A log that has held nothing yet may begin anywhere; after that every entry follows the one before.
        if self.first == self.next && self.purged.is_none() {
            (self.first, self.next) = (index, index);
        }
        if index != self.next || index == u64::MAX {
            return Err(Gap { expected: self.next, found: index });
        }
        self.next = index + 1;
        Ok(())
    }
}

/// What every segment repeats at its start, so that older segments can go.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) span: Span,
    pub(super) vote: Option<Vec<u8>>,
    pub(super) committed: Option<Vec<u8>>,
    pub(super) purged: Option<Purged>,
}

impl State {
    pub(super) fn apply(&mut self, record: &Record) -> Result<(), Gap> {
        self.span.accept(record)?;
        match record {
            Record::Vote(vote) => self.vote = Some(vote.clone()),
            Record::Committed(committed) => self.committed = Some(committed.clone()),
            Record::Purge { index, log_id } if self.purged.as_ref().is_none_or(|old| old.index <= *index) => {
                self.purged = Some(Purged { index: *index, log_id: log_id.clone() });
            }
            Record::Purge { .. } | Record::Entry { .. } | Record::TruncateAfter { .. } => {}
        }
        Ok(())
    }

    /// The records that bring another reader to this state, except for the span, which is in the segment header.
    pub(super) fn records(&self) -> Vec<Record> {
        let purged = self.purged.clone().map(|Purged { index, log_id }| Record::Purge { index, log_id });
        let vote = self.vote.clone().map(Record::Vote);
        let committed = self.committed.clone().map(Record::Committed);
        [purged, vote, committed].into_iter().flatten().collect()
    }
}
