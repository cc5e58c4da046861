//! The log and the snapshot of a node that does not run: what is left in them, and a snapshot where nothing was.

use super::bad_entry::{BadEntry, Fault};
use super::log::Location;
use super::machine::{Machine, panicked};
use super::shelf::{Shelf, Snapshot};
use super::types::{Member, Membership, RaftLogId, StoredMembership, decode_entry, decode_log_id, encode_meta};
use super::words::commands;
use super::{OpenError, check_gap, open_log};
use crate::disk::SharedDisk;
use crate::workers::Workers;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use tenure_core::Ledger;

/// What a node that does not run has in its log.
pub(crate) struct Remains;

/// Which entries are left out, and who is told of those that are applied.
pub struct Skip<'a> {
    /// The places of entries in the log.
    pub entries: &'a BTreeSet<u64>,
    /// Called with the place of each entry before it is applied.
    pub applying: &'a mut (dyn FnMut(u64) + Send),
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its place in the log.
    pub index: u64,
    /// Its commands, in words without values.
    pub commands: Vec<String>,
}

/// A ledger, and what of its log is not in it.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) ledger: Ledger,
    pub(crate) dropped: Vec<Dropped>,
    /// The entries that were asked to be left out and are not there to be left out.
    pub(crate) absent: Vec<u64>,
    /// The entries that can be left out: those after the snapshot.
    pub(crate) entries: Option<(u64, u64)>,
}

impl Remains {
    /// The ledger after every entry of the log but those that are left out. Whether a majority had the last ones is not known:
    /// some of them may have been acknowledged, so that leaving them out could be wrong.
    pub(crate) async fn read(disk: SharedDisk, skip: Skip<'_>) -> Result<Left, OpenError> {
        let mut machine = Machine::load(Shelf::new(disk.clone()), Workers::Threads)?;
        let (log, recovered, _) = open_log(disk).await?;
        let purged = recovered.purged.as_ref().map(|purged| decode_log_id(&purged.log_id)).transpose()?;
        check_gap(purged, machine.applied())?;
        let reader = log.reader();
        let after = machine.applied().map_or(0, |id| id.index() + 1);
        let mut dropped = Vec::new();
        let entries = || recovered.entries.iter().filter(|location| location.index >= after);
        for location in entries() {
            let bytes = reader.read(location)?;
            if skip.entries.contains(&location.index) {
                machine.skip(RaftLogId::new_term_index(location.term, location.index));
                dropped.push(Dropped { index: location.index, commands: commands(&bytes) });
                continue;
            }
            (skip.applying)(location.index);
            replay(&mut machine, location, &bytes)?;
        }
        let is_there = |index: &&u64| dropped.iter().all(|dropped| dropped.index != **index);
        let absent = skip.entries.iter().filter(is_there).copied().collect();
        let entries = entries().next().zip(entries().next_back()).map(|(first, last)| (first.index, last.index));
        let ledger = machine.replica().read(|ledger, _| ledger.clone());
        Ok(Left { ledger, dropped, absent, entries })
    }
}

fn replay(machine: &mut Machine, location: &Location, bytes: &[u8]) -> Result<(), OpenError> {
    let entry = decode_entry(location.term, location.index, bytes)
        .map_err(|error| OpenError::Entry(BadEntry::unreadable(location.index, bytes, &error)))?;
    machine.replay(&entry).map_err(|error| match panicked(&error) {
        Some(index) => OpenError::Entry(BadEntry::applied(index, Some(bytes), Fault::Panics)),
        None => OpenError::Disk(error),
    })
}

/// Puts a ledger where nothing was, as if it were what a cluster of these had begun with.
pub(crate) async fn place_snapshot(
    disk: &SharedDisk,
    ledger: &Ledger,
    members: BTreeMap<u64, Member>,
) -> io::Result<()> {
    let voters: BTreeSet<u64> = members.keys().copied().collect();
    let membership = Membership::new(vec![voters], members).map_err(io::Error::other)?;
    let beginning = Some(RaftLogId::new_term_index(0, 0));
    let meta = encode_meta(beginning, &StoredMembership::new(beginning, membership));
    let mut body = Vec::new();
    ledger.write_snapshot(|bytes| body.extend_from_slice(bytes));
    Shelf::new(disk.clone()).save(0, &Snapshot { meta, body: Arc::new(body) }).await
}
