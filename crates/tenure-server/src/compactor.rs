//! Forgets what keys were, by itself: all but the last so many revisions, or what is older than so long. Only a leader does
//! it. What it never does is to decide by a clock what is forgotten: an entry of the log says so.

use crate::limits::{COMPACTION_INTERVAL, COMPACTION_SAMPLES};
use crate::node::Node;
use std::collections::VecDeque;
use std::time::Duration;
use tenure_core::{Command, Compact, Ledger};

/// What of the past of keys is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// All of it, as far as there is room.
    #[default]
    Off,
    /// The last so many revisions.
    Revisions(u64),
    /// What is younger than this.
    Age(Duration),
}

/// Compacts until the node stops.
pub(crate) async fn compact(node: Node, keep: Compaction) {
    let work = async {
        match keep {
            Compaction::Off => std::future::pending().await,
            Compaction::Revisions(count) => by_revisions(&node, count).await,
            Compaction::Age(age) => by_age(&node, age).await,
        }
    };
    tokio::select! {
        () = work => {}
        _ = node.failed() => {}
    }
}

async fn by_revisions(node: &Node, count: u64) {
    loop {
        tokio::time::sleep(COMPACTION_INTERVAL).await;
        let now = node.read_stale(Ledger::kv_revision);
        forget(node, now.saturating_sub(count)).await;
    }
}

/// Looks at the revision ten times in that age, and forgets what was there at the oldest look.
async fn by_age(node: &Node, age: Duration) {
    let mut seen = VecDeque::new();
    loop {
        tokio::time::sleep(age / COMPACTION_SAMPLES).await;
        if node.service_time().is_none() {
            seen.clear();
            continue;
        }
        seen.push_back(node.read_stale(Ledger::kv_revision));
        if seen.len() > COMPACTION_SAMPLES as usize {
            let oldest = seen.pop_front().expect("it has several");
            forget(node, oldest).await;
        }
    }
}

async fn forget(node: &Node, revision: u64) {
    let is_due = node.read_stale(|ledger| ledger.kv_compacted().is_none_or(|compacted| compacted < revision));
    if node.service_time().is_none() || revision == 0 || !is_due {
        return;
    }
    let Ok(number) = i64::try_from(revision) else { return };
    // Somebody else may have been faster, or nobody leads: there is a next time.
    if let Ok(Ok(_)) = node.propose(Command::Compact(Compact { revision: number })).await {
        tracing::info!(revision, "what keys were before this revision is forgotten");
    }
}
