//! The log and the snapshot of a node that does not run: what is left in them, and a snapshot where nothing was.

use super::machine::Machine;
use super::shelf::{Shelf, Snapshot};
use super::types::{Member, Membership, RaftLogId, StoredMembership, decode_entry, decode_log_id, encode_meta};
use super::{OpenError, check_gap, open_log};
use crate::disk::SharedDisk;
use crate::workers::Workers;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use tenure_core::Ledger;

/// What a node that does not run has in its log.
pub(crate) struct Remains;

impl Remains {
    /// The ledger after every entry of the log. Whether a majority had the last ones is not known: some of them may have
    /// been acknowledged, so that leaving them out could be wrong.
    pub(crate) async fn read(disk: SharedDisk) -> Result<Ledger, OpenError> {
        let mut machine = Machine::load(Shelf::new(disk.clone()), Workers::Threads)?;
        let (log, recovered, _) = open_log(disk).await?;
        let purged = recovered.purged.as_ref().map(|purged| decode_log_id(&purged.log_id)).transpose()?;
        check_gap(purged, machine.applied())?;
        let reader = log.reader();
        let after = machine.applied().map_or(0, |id| id.index() + 1);
        for location in recovered.entries.iter().filter(|location| location.index >= after) {
            let bytes = reader.read(location)?;
            machine.replay(&decode_entry(location.term, location.index, &bytes)?)?;
        }
        Ok(machine.replica().read(|ledger, _| ledger.clone()))
    }
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
