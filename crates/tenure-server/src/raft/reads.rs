//! Reads of what is certain: a leader asks its followers whether it still leads, once for all who wait for the answer.

use super::Seeds;
use super::machine::Machine;
use super::types::Types;
use crate::limits::READS_WAITING_MAX;
use openraft::{Raft, ReadPolicy};
use tokio::sync::{mpsc, oneshot};

/// How far the log was when it was certain that this node leads. None: it could not be made certain.
type Told = oneshot::Sender<Option<u64>>;

#[derive(Clone)]
pub(super) struct Reads {
    asked: mpsc::Sender<Told>,
}

impl Reads {
    pub(super) fn start(raft: Raft<Types, Machine>, seeds: &Seeds) -> Self {
        let (asked, queue) = mpsc::channel(READS_WAITING_MAX);
        tokio::spawn(seeds.scope(answer(raft, queue)));
        Self { asked }
    }

    /// The place in the log up to which a replica must be, to hold everything acknowledged before this call.
    pub(super) async fn index(&self) -> Option<u64> {
        let (told, index) = oneshot::channel();
        self.asked.try_send(told).ok()?;
        index.await.ok().flatten()
    }
}

/// One round to the followers at a time. Whoever asks during a round waits for the next one, because the answer must be of a
/// time after the question.
async fn answer(raft: Raft<Types, Machine>, mut queue: mpsc::Receiver<Told>) {
    while let Some(first) = queue.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = queue.try_recv() {
            waiting.push(next);
        }
        let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
        let index = linearizer.ok().map(|linearizer| linearizer.read_log_id().index());
        for told in waiting {
            // Whoever stopped waiting needs no answer.
            let _ = told.send(index);
        }
    }
}
