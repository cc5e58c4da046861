//! Comparing what the members hold: each asks the others for their hashes, and judges itself.

use crate::audit::{Hash, outvoted};
use crate::limits::PEER_PATIENCE_SHORT;
use crate::node::Node;
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use futures::future::join_all;
use std::time::Duration;

/// Compares for ever; returns with the reason when this node must not go on.
pub(crate) async fn compare(node: Node, every: Duration) -> String {
    loop {
        tokio::time::sleep(every).await;
        let us = node.identity().node;
        let others: Vec<u64> = node.members().into_iter().map(|(id, ..)| id).filter(|id| *id != us).collect();
        let ours = node.consensus().audits().hashes();
        if others.is_empty() || ours.is_empty() {
            continue;
        }
        let theirs = join_all(others.into_iter().map(|other| hashes(&node, other))).await;
        let we_lead = node.consensus().leader() == Some(us);
        if let Some(index) = outvoted(&ours, &theirs, we_lead) {
            return format!(
                "what this node holds after entry {index} differs from what the other nodes hold: its memory, its disk or \
                 its build is at fault. It serves no longer. Keep its data directory for inspection, remove the node \
                 with tenure cluster remove {us}, and let it in again with an empty one"
            );
        }
    }
}

async fn hashes(node: &Node, other: u64) -> Vec<Hash> {
    match node.consensus().book().ask(other, Ask::Audit(v1::Audit {}), PEER_PATIENCE_SHORT).await {
        Ok(Tell::Audit(reply)) => {
            reply.hashes.into_iter().map(|noted| Hash { index: noted.index, hash: noted.hash }).collect()
        }
        _ => Vec::new(),
    }
}
