//! Waiting for a seat: how a door learns that a claim in line was seated, or will never be.

use crate::limits::{LEADER_PATIENCE, LEADER_PAUSE, RETRY_AFTER};
use crate::node::Node;
use crate::trace;
use crate::unready::Unready;
use tenure_core::{LeaseId, Ledger, Name, Outcome, Reply};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

/// Waits until a claim in line is seated or over, and says how it stands then.
pub(crate) async fn settled(
    node: &Node,
    lease: LeaseId,
    resources: &[Name],
    room: OwnedSemaphorePermit,
) -> Result<Outcome, Unready> {
    let mut room = Some(room);
    loop {
        let place = room.take().or_else(|| node.room_to_wait());
        let place = place.ok_or(Unready::Overloaded { retry_after: RETRY_AFTER })?;
        // The place is taken before the look, so that no change is missed between the two.
        let name = node.read_stale(|ledger| waited_for(ledger, lease, resources));
        let seating = node.seating(lease, name.clone().unwrap_or_else(|| resources[0].clone()), place);
        let (standing, still) =
            node.read_stale(|ledger| (ledger.standing(lease, resources), waited_for(ledger, lease, resources)));
        if !matches!(standing, Ok(Reply::Waiting(_))) {
            // This node's copy may be behind the end of the lease. A read that is linearizable decides.
            let standing = timeout(LEADER_PATIENCE, certain(node, lease, resources)).await;
            match standing.map_err(|_| Unready::Unknown)? {
                Ok(Reply::Waiting(_)) => continue,
                standing => return Ok(standing),
            }
        }
        if name == still && !seating.changed().instrument(trace::waiting()).await {
            return Err(Unready::Unknown);
        }
    }
}

/// How a claim stands, by a linearizable read. A claim is granted in a failover, too, when no node answers reads for a moment.
async fn certain(node: &Node, lease: LeaseId, resources: &[Name]) -> Outcome {
    loop {
        match node.read(|ledger, _| ledger.standing(lease, resources)).await {
            Ok(standing) => return standing,
            Err(_) => sleep(LEADER_PAUSE).await,
        }
    }
}

/// The first of the resources that the lease still waits for.
fn waited_for(ledger: &Ledger, lease: LeaseId, resources: &[Name]) -> Option<Name> {
    let waits = |name: &&Name| {
        let standing = ledger.standing(lease, std::slice::from_ref(*name));
        matches!(standing, Ok(Reply::Waiting(_)))
    };
    resources.iter().find(waits).cloned()
}
