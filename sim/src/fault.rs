//! The kinds of harm that a run does, and how often each was done: what was never done was never tested.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// One kind of harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A machine lost its power, and with it what was not synced.
    PowerCut,
    /// A process died.
    Kill,
    /// A process, or everything, stood still.
    Pause,
    /// A sync took long.
    Stall,
    /// The machines fell into two halves that do not hear each other.
    Partition,
    /// One machine did not hear another, which heard it.
    OneWayCut,
    /// Two machines did not hear each other, and a third heard both.
    PartialCut,
    /// A message between machines was lost.
    Loss,
    /// A message between machines took longer than usual.
    Delay,
    /// A question arrived twice.
    Repeat,
    /// A stream of entries broke in the middle.
    Break,
    /// The lead was handed on.
    Transfer,
    /// A member was removed.
    Removal,
    /// A member lost its disk, and came back as a new one.
    Wipe,
    /// A node was admitted.
    Admission,
    /// A cluster was made anew from a backup of one that is gone.
    Restore,
    /// A message of a client was lost.
    ClientLoss,
    /// A message of a client came seconds late.
    ClientDelay,
    /// A message of a client came twice.
    ClientRepeat,
    /// The answer to a client was lost.
    ClientSilence,
    /// A link of a client stalled for seconds, and then delivered.
    LinkStall,
    /// A link of a client broke.
    LinkBreak,
    /// All links of a client stalled.
    ClientCut,
    /// The process of a client did not run for a while.
    ClientPause,
    /// A write to a disk failed.
    WriteError,
    /// A sync of a disk failed.
    SyncError,
    /// A disk was full.
    FullDisk,
}

impl Fault {
    const OF_ONE: [Self; 15] = [
        Self::PowerCut,
        Self::Kill,
        Self::Pause,
        Self::Stall,
        Self::ClientLoss,
        Self::ClientDelay,
        Self::ClientRepeat,
        Self::ClientSilence,
        Self::LinkStall,
        Self::LinkBreak,
        Self::ClientCut,
        Self::ClientPause,
        Self::WriteError,
        Self::SyncError,
        Self::FullDisk,
    ];
    const OF_MANY: [Self; 27] = [
        Self::WriteError,
        Self::SyncError,
        Self::FullDisk,
        Self::ClientLoss,
        Self::ClientDelay,
        Self::ClientRepeat,
        Self::ClientSilence,
        Self::LinkStall,
        Self::LinkBreak,
        Self::ClientCut,
        Self::ClientPause,
        Self::PowerCut,
        Self::Kill,
        Self::Pause,
        Self::Stall,
        Self::Partition,
        Self::OneWayCut,
        Self::PartialCut,
        Self::Loss,
        Self::Delay,
        Self::Repeat,
        Self::Break,
        Self::Transfer,
        Self::Removal,
        Self::Wipe,
        Self::Admission,
        Self::Restore,
    ];

    /// The kinds that a run with so many nodes does.
    pub fn kinds(nodes: usize) -> &'static [Self] {
        if nodes == 1 { &Self::OF_ONE } else { &Self::OF_MANY }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PowerCut => "power cuts",
            Self::Kill => "kills",
            Self::Pause => "pauses",
            Self::Stall => "stalls of a disk",
            Self::Partition => "partitions",
            Self::OneWayCut => "one-way cuts",
            Self::PartialCut => "partial cuts",
            Self::Loss => "lost messages",
            Self::Delay => "late messages",
            Self::Repeat => "repeated questions",
            Self::Break => "broken streams",
            Self::Transfer => "transfers of the lead",
            Self::Removal => "removals",
            Self::Wipe => "wiped disks",
            Self::Admission => "admissions",
            Self::Restore => "restored backups",
            Self::ClientLoss => "lost messages of clients",
            Self::ClientDelay => "late messages of clients",
            Self::ClientRepeat => "repeated messages of clients",
            Self::LinkStall => "stalled links of clients",
            Self::LinkBreak => "broken links of clients",
            Self::ClientCut => "cut clients",
            Self::ClientPause => "paused clients",
            Self::WriteError => "failed writes",
            Self::SyncError => "failed syncs",
            Self::FullDisk => "full disks",
            Self::ClientSilence => "lost answers to clients",
        })
    }
}

/// How often each kind was done. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: Arc<Mutex<BTreeMap<Fault, u64>>>,
}

impl Tally {
    pub(crate) fn count(&self, fault: Fault) {
        *self.counts.lock().expect("nobody panics while counting").entry(fault).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<Fault, u64> {
        self.counts.lock().expect("nobody panics while counting").clone()
    }
}
