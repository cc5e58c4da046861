//! Who belongs to the cluster, by the log: changes of the membership as openraft makes them, and how each member stands.

use super::Consensus;
use super::types::{Member, RaftLogId};
use crate::cluster::CannotChange;
use crate::limits::{CHANGE_TRIES, HAND_OVER_PATIENCE, TICK, TRANSFER_TIMEOUT};
use crate::peers::v1;
use crate::peers::v1::question::Body as Ask;
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;
use tokio::sync::watch;

type Change = ChangeMembers<u64, Member>;
type Refusal = RaftError<super::types::Types, ClientWriteError<super::types::Types>>;

/// How the log stands on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) term: u64,
    pub(crate) leader: Option<u64>,
    pub(crate) last_index: u64,
    pub(crate) committed: u64,
    pub(crate) snapshot: u64,
    pub(crate) purged: u64,
    pub(crate) log_bytes: u64,
}

fn index(id: Option<RaftLogId>) -> u64 {
    id.map_or(0, |id| id.index())
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn say(refusal: Refusal) -> CannotChange {
    match &refusal {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => {
            CannotChange::NotNow("this node leads no longer; look at the members, and ask again".into())
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => {
            CannotChange::Refused("another change of the members is under way; nothing was changed; ask again".into())
        }
        other => CannotChange::Refused(other.to_string()),
    }
}

impl Consensus {
    /// Whether this node is part of a cluster that has begun.
    pub(crate) async fn is_initialized(&self) -> bool {
        self.raft.is_initialized().await.unwrap_or(false)
    }

    /// Whether the log still answers.
    pub(crate) async fn is_alive(&self) -> bool {
        self.raft.is_initialized().await.is_ok()
    }

    /// Makes a cluster of these.
    pub(crate) async fn initialize(&self, members: BTreeMap<u64, Member>) -> io::Result<()> {
        self.seeds.scope(self.raft.initialize(members)).await.map_err(io::Error::other)
    }

    /// Those whose votes count, by the newest membership in the log.
    pub(crate) fn voters(&self) -> Vec<u64> {
        let voters: BTreeSet<u64> = self.raft.server_metrics().borrow_watched().membership_config.voter_ids().collect();
        voters.into_iter().collect()
    }

    /// All members, by the newest membership in the log.
    pub(crate) fn members(&self) -> BTreeMap<u64, Member> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.nodes().map(|(id, member)| (*id, member.clone())).collect()
    }

    /// Told when the members change.
    pub(crate) fn members_changed(&self) -> watch::Receiver<()> {
        self.members.clone()
    }

    pub(crate) fn standing(&self) -> Standing {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        Standing {
            term: metrics.current_term,
            leader: metrics.current_leader,
            last_index: metrics.last_log_index.unwrap_or_default(),
            committed: index(metrics.cluster_committed),
            snapshot: index(metrics.snapshot),
            purged: index(metrics.purged),
            log_bytes: self.extent.bytes(),
        }
    }

    /// How far each follower is, if this node leads.
    pub(crate) fn matched(&self) -> BTreeMap<u64, u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let replication = metrics.replication.iter().flatten();
        replication.map(|(node, matched)| (*node, index(*matched))).collect()
    }

    /// A leader that has not heard from a majority for a moment refuses before anything is written: it is asked again.
    async fn change_members(&self, change: Change, retain: bool) -> Result<(), CannotChange> {
        for _ in 0..CHANGE_TRIES {
            let changed = self.seeds.scope(self.raft.change_membership(change.clone(), retain)).await;
            let is_unsure = matches!(&changed, Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))
                if forward.leader_id.is_none());
            if !is_unsure || self.leader() != Some(self.node) {
                return changed.map(drop).map_err(say);
            }
            tokio::time::sleep(TICK).await;
        }
        let text = "a majority of the nodes does not answer; nothing was changed; ask again";
        Err(CannotChange::Refused(text.into()))
    }

    /// Makes a node a learner, and a voter once it has caught up.
    pub(crate) async fn admit(&self, id: u64, member: Member, patience: Duration) -> Result<(), CannotChange> {
        let learners = BTreeMap::from([(id, member.clone())]);
        self.change_members(ChangeMembers::AddNodes(learners), true).await?;
        let learns = self.seeds.scope(self.raft.add_learner(id, member, true));
        let learns = tokio::time::timeout(patience, learns).await;
        let learns = learns.map_err(|_| {
            let seconds = patience.as_secs();
            CannotChange::Refused(format!("node {id} did not catch up in {seconds} s; it stays a learner; ask again"))
        })?;
        learns.map_err(say)?;
        self.change_members(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await
    }

    pub(crate) async fn set_member(&self, id: u64, member: Member) -> Result<(), CannotChange> {
        self.change_members(ChangeMembers::SetNodes(BTreeMap::from([(id, member)])), true).await
    }

    /// Takes a node's vote, and then its place.
    pub(crate) async fn remove(&self, id: u64) -> Result<(), CannotChange> {
        if self.voters().contains(&id) {
            return self.change_members(ChangeMembers::RemoveVoters(BTreeSet::from([id])), false).await;
        }
        self.change_members(ChangeMembers::RemoveNodes(BTreeSet::from([id])), false).await
    }

    /// Hands the lead to another voter. True once this node follows it.
    pub(crate) async fn transfer(&self, to: u64) -> bool {
        if to == self.node {
            return self.leader() == Some(to);
        }
        if self.seeds.scope(self.raft.trigger().transfer_leader(to)).await.is_err() {
            return false;
        }
        let mut metrics = self.raft.server_metrics();
        let taken = async {
            while metrics.borrow_watched().current_leader != Some(to) {
                if metrics.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(TRANSFER_TIMEOUT, taken).await.unwrap_or(false)
    }

    /// Hands the lead to the voter that is furthest, before this node stops.
    pub(crate) async fn abdicate(&self) {
        if self.leader() != Some(self.node) {
            return;
        }
        let voters = self.voters();
        let others = self.matched().into_iter().filter(|(node, _)| *node != self.node && voters.contains(node));
        let mut others: Vec<(u64, u64)> = others.collect();
        others.sort_by_key(|(_, matched)| std::cmp::Reverse(*matched));
        for (node, _) in others {
            // One that is not there would leave the cluster without a leader for longer than a plain stop.
            let hello = Ask::Hello(v1::Hello {});
            if self.book.ask(node, hello, HAND_OVER_PATIENCE).await.is_ok() {
                self.transfer(node).await;
                return;
            }
        }
    }

    /// How far a replica must be, to hold everything acknowledged before this call; only a leader knows.
    pub(crate) async fn read_index(&self) -> Option<u64> {
        self.reads.index().await
    }
}
