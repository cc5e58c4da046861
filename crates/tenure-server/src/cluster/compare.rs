//! Comparing what the members hold: each asks the others for their hashes, and judges itself.

use crate::audit::{HASH_VERSION, Hash, Verdict, judge};
use crate::limits::PEER_PATIENCE_SHORT;
use crate::node::Node;
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use futures::future::join_all;
use std::time::Duration;

/// Compares for ever; returns with the reason when this node must not go on.
pub(crate) async fn compare(node: Node, every: Duration) -> String {
    let mut told = 0;
    loop {
        tokio::time::sleep(every).await;
        let us = node.identity().node;
        let voters = node.consensus().voters();
        let others: Vec<u64> = voters.iter().copied().filter(|id| *id != us).collect();
        let ours = node.consensus().audits().hashes();
        if others.is_empty() || ours.is_empty() {
            continue;
        }
        let theirs = join_all(others.into_iter().map(|other| hashes(&node, other))).await;
        match judge(&ours, &theirs, voters.len()) {
            Verdict::Equal => {}
            Verdict::Differs(index) if index > told => {
                told = index;
                tracing::error!(index, "nodes hold different things after an entry, and no majority says who is right");
            }
            Verdict::Differs(_) => {}
            Verdict::Outvoted(index) => {
                return format!(
                    "what this node holds after entry {index} differs from what the other nodes hold: its memory, its \
                     disk or its build is at fault. It serves no longer. Keep its data directory for inspection, remove \
                     the node with tenure cluster remove {us}, and let it in again with an empty one"
                );
            }
        }
    }
}

async fn hashes(node: &Node, other: u64) -> Vec<Hash> {
    match node.consensus().book().ask(other, Ask::Audit(v1::Audit {}), PEER_PATIENCE_SHORT).await {
        // Another build may hash the same ledger otherwise.
        Ok(Tell::Audit(reply)) if reply.version == HASH_VERSION => {
            reply.hashes.into_iter().map(|noted| Hash { index: noted.index, hash: noted.hash }).collect()
        }
        _ => Vec::new(),
    }
}
