//! Linearizable reads: the leader asks a quorum whether it still leads, in one round for all reads that wait.
//!
//! openraft's own ReadIndex is not used: it may count an acknowledgement from before the read (decision 0014).

use super::Seeds;
use super::machine::Machine;
use super::peers::Book;
use super::types::{RaftVote, Types};
use super::wire::read_vote;
use crate::limits::{READ_ASK_PAUSE, READ_ASK_TIMEOUT, READ_ROUND_TIMEOUT, READS_WAITING_MAX};
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use crate::tuning::Tuning;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::{Raft, ReadPolicy, ServerState};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// Receives how far a replica must be to answer a read. None: this node could not prove that it leads.
type Waiting = oneshot::Sender<Option<u64>>;

#[derive(Clone)]
pub(super) struct Reads {
    queue: mpsc::Sender<Waiting>,
}

impl Reads {
    pub(super) fn start(leader: Leader, seeds: &Seeds) -> Self {
        let (queue, reads) = mpsc::channel(READS_WAITING_MAX);
        tokio::spawn(seeds.scope(serve(leader, reads)));
        Self { queue }
    }

    /// The place in the log up to which a replica must be, to hold everything acknowledged before this call.
    pub(super) async fn index(&self) -> Option<u64> {
        let (waiting, index) = oneshot::channel();
        self.queue.try_send(waiting).ok()?;
        index.await.ok().flatten()
    }
}

/// One round at a time. A read that arrives during a round waits for the next one, because the proof must be newer than the
/// read.
async fn serve(leader: Leader, mut reads: mpsc::Receiver<Waiting>) {
    while let Some(first) = reads.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = reads.try_recv() {
            waiting.push(next);
        }
        let index = leader.read_index().await;
        for read in waiting {
            // A client that went away needs no answer.
            let _ = read.send(index);
        }
    }
}

/// This node as a leader that has to prove itself.
pub(super) struct Leader {
    raft: Raft<Types, Machine>,
    book: Arc<Book>,
    tuning: Tuning,
}

/// What a leader knows when a round begins.
struct Claim {
    vote: RaftVote,
    /// Everything acknowledged so far is at or before this entry.
    index: u64,
    quorum: Quorum,
}

/// What a voter's answer says of the leadership that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has promised nothing to a later leader.
    Follows,
    /// It has: there may be another leader.
    Left,
}

impl Leader {
    pub(super) fn new(raft: Raft<Types, Machine>, book: Arc<Book>, tuning: Tuning) -> Self {
        Self { raft, book, tuning }
    }

    async fn read_index(&self) -> Option<u64> {
        if self.tuning.reads_by_acknowledgement {
            let linearizer = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
            return linearizer.ok().map(|linearizer| linearizer.read_log_id().index());
        }
        let claim = self.claim().await?;
        timeout(READ_ROUND_TIMEOUT, self.confirm(claim)).await.ok().flatten()
    }

    /// What this node claims, if it leads. Read inside the Raft core, since metrics may lag behind it.
    async fn claim(&self) -> Option<Claim> {
        let us = *self.raft.node_id();
        let claim = self.raft.with_raft_state(move |state| {
            let vote = *state.vote_ref();
            let leads = state.server_state == ServerState::Leader && vote.is_committed();
            if !leads || vote.leader_id().voted_for != us {
                return None;
            }
            // A leader knows what is committed once an entry of its own term is; until then it may be anything in its log.
            let committed =
                state.cluster_committed().filter(|id| id.committed_leader_id().term == vote.leader_id().term);
            let index = committed.or(state.log_ids.last())?.index();
            let voters = state.membership_state.effective().membership().get_joint_config().clone();
            Some(Claim { vote, index, quorum: Quorum::of(voters, us) })
        });
        claim.await.ok().flatten()
    }

    /// Asks the other voters until a quorum still follows. Each answer is newer than the reads of this round, and a later
    /// leader needs the vote of at least one of those that answered: so it was elected after these reads arrived.
    async fn confirm(&self, mut claim: Claim) -> Option<u64> {
        let asked =
            claim.quorum.missing().into_iter().map(|node| async move { (node, self.ask(node, claim.vote).await) });
        let mut answers: FuturesUnordered<_> = asked.collect();
        while !claim.quorum.is_complete() {
            match answers.next().await? {
                (node, Standing::Follows) => claim.quorum.add(node),
                (_, Standing::Left) => return None,
            }
        }
        Some(claim.index)
    }

    /// Asks one voter, again and again until it answers.
    async fn ask(&self, node: u64, ours: RaftVote) -> Standing {
        loop {
            let asked = self.book.ask(node, Ask::CurrentVote(v1::CurrentVote {}), READ_ASK_TIMEOUT).await;
            if let Ok(Tell::CurrentVote(vote)) = asked
                && let Ok(vote) = read_vote(Some(vote))
            {
                return if vote <= ours { Standing::Follows } else { Standing::Left };
            }
            sleep(READ_ASK_PAUSE).await;
        }
    }
}

/// The voters that still follow, and those that are needed: a majority of each half of a joint membership. Learners do not
/// count.
#[derive(Clone, Debug)]
struct Quorum {
    halves: Vec<BTreeSet<u64>>,
    following: BTreeSet<u64>,
}

impl Quorum {
    /// This node follows itself; it counts where it has a vote.
    fn of(halves: Vec<BTreeSet<u64>>, us: u64) -> Self {
        Self { halves, following: BTreeSet::from([us]) }
    }

    fn missing(&self) -> BTreeSet<u64> {
        self.halves.iter().flatten().copied().filter(|node| !self.following.contains(node)).collect()
    }

    fn add(&mut self, node: u64) {
        self.following.insert(node);
    }

    fn is_complete(&self) -> bool {
        self.halves.iter().all(|half| half.intersection(&self.following).count() > half.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_quorum(halves: &[&[u64]], us: u64, following: &[u64]) -> bool {
        let halves = halves.iter().map(|half| half.iter().copied().collect()).collect();
        let mut quorum = Quorum::of(halves, us);
        following.iter().for_each(|node| quorum.add(*node));
        quorum.is_complete()
    }

    #[test]
    fn a_quorum_is_a_majority_of_the_voters() {
        assert!(is_quorum(&[&[1]], 1, &[]));
        assert!(!is_quorum(&[&[1, 2]], 1, &[]), "half of two is none");
        assert!(!is_quorum(&[&[1, 2, 3]], 1, &[]));
        assert!(is_quorum(&[&[1, 2, 3]], 1, &[3]));
        assert!(!is_quorum(&[&[1, 2, 3, 4]], 1, &[3]));
        assert!(!is_quorum(&[&[1, 2, 3]], 1, &[7, 8]), "learners and strangers have no vote");
    }

    #[test]
    fn a_joint_quorum_is_one_in_both_halves() {
        assert!(!is_quorum(&[&[1, 2, 3], &[1, 4, 5]], 1, &[2]));
        assert!(!is_quorum(&[&[1, 2, 3], &[1, 4, 5]], 1, &[4, 5]));
        assert!(is_quorum(&[&[1, 2, 3], &[1, 4, 5]], 1, &[2, 5]));
        assert!(!is_quorum(&[&[1, 2, 3], &[4, 5, 6]], 1, &[2, 4]), "a leader that leaves has no vote in the new half");
        assert!(is_quorum(&[&[1, 2, 3], &[4, 5, 6]], 1, &[2, 4, 6]));
    }

    #[test]
    fn only_voters_are_asked_and_not_oneself() {
        let quorum = Quorum::of(vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 4])], 1);
        assert_eq!(quorum.missing(), BTreeSet::from([2, 3, 4]));
    }
}
