//! Who belongs to the cluster, by the log: changes of the membership as openraft makes them, and how each member stands.

use super::Consensus;
use super::types::{Member, RaftLogId, Removed};
use crate::limits::{CAUGHT_UP_WITHIN, CHANGE_TRIES, HAND_OVER_PATIENCE, TICK, TRANSFER_TIMEOUT};
use crate::peers::v1;
use crate::peers::v1::question::Body as Ask;
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;
use tokio::sync::watch;

/// Why the members were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotChange {
    /// It makes no sense here.
    #[error("{0}")]
    Refused(String),
    /// No node leads; nothing was changed.
    #[error("{0}")]
    NotNow(String),
}

type Change = ChangeMembers<u64, Member>;
type Refusal = RaftError<super::types::Types, ClientWriteError<super::types::Types>>;

/// What is said of a change that never entered the log.
const UNCHANGED: &str = "nothing was changed";

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

/// Why the members are not changed, or not yet.
fn say(refusal: &Refusal, so_far: &str) -> CannotChange {
    match refusal {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) if forward.leader_id.is_none() => {
            CannotChange::Refused(format!("a majority of the nodes does not answer; {so_far}; ask again"))
        }
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => {
            CannotChange::NotNow("this node leads no longer; look at the members, and ask again".into())
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => {
            CannotChange::Refused(under_way(so_far))
        }
        other => CannotChange::Refused(other.to_string()),
    }
}

fn under_way(so_far: &str) -> String {
    format!("another change of the members is under way; {so_far}; ask again")
}

/// Whether it was refused before anything was written, for a reason that passes: the leader has not heard from a majority
/// for a moment, or an earlier change is not on a majority yet.
fn passes(refusal: &Refusal) -> bool {
    match refusal {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => forward.leader_id.is_none(),
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => true,
        _ => false,
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

    /// Changes the members, one change after the other. Some take two entries, and between them nobody else may change
    /// anything: so it goes on to its end, also if whoever asked has left.
    async fn change_members(
        &self,
        change: impl FnOnce(&Self) -> Change,
        retain: bool,
        so_far: &str,
    ) -> Result<(), CannotChange> {
        let turn = tokio::time::timeout(CHANGE_TRIES * TICK, self.turn.clone().lock_owned()).await;
        let turn = turn.map_err(|_| CannotChange::Refused(under_way(so_far)))?;
        // One that was removed while others waited leads for a moment yet, and must not put another change into the log.
        if !self.voters().contains(&self.node) {
            return Err(CannotChange::NotNow(format!("the leader was removed; {so_far}; ask again")));
        }
        // Only now, because the change before may have changed what this one keeps.
        let (us, change) = (self.clone(), change(self));
        let changed = tokio::spawn(async move {
            let _turn = turn;
            us.change_in_turn(change, retain).await
        });
        match changed.await {
            Ok(changed) => changed.map_err(|refusal| say(&refusal, so_far)),
            Err(_) => Err(CannotChange::Refused("this node is stopping; look at the members, and ask again".into())),
        }
    }

    async fn change_in_turn(&self, change: Change, retain: bool) -> Result<(), Refusal> {
        let mut tries = 1;
        loop {
            let changed = self.seeds.scope(self.raft.change_membership(change.clone(), retain)).await;
            match changed {
                Err(refusal) if passes(&refusal) && tries < CHANGE_TRIES && self.leader() == Some(self.node) => {
                    tries += 1;
                    tokio::time::sleep(TICK).await;
                }
                changed => return changed.map(drop),
            }
        }
    }

    /// Makes a node a learner, and a voter once it has caught up.
    pub(crate) async fn admit(&self, id: u64, member: Member, patience: Duration) -> Result<(), CannotChange> {
        let learner = |us: &Self| ChangeMembers::AddNodes(BTreeMap::from([(id, us.book.certified(id, member))]));
        self.change_members(learner, true, UNCHANGED).await?;
        if tokio::time::timeout(patience, self.caught_up(id)).await.is_err() {
            let waited_s = patience.as_secs();
            let text = format!("node {id} did not catch up in {waited_s} s; it stays a learner; ask again");
            return Err(CannotChange::Refused(text));
        }
        let so_far = format!("node {id} stays a learner");
        self.change_members(|_| ChangeMembers::AddVoterIds(BTreeSet::from([id])), true, &so_far).await
    }

    /// Returns when a node has nearly everything, or when this one cannot know it any longer.
    async fn caught_up(&self, id: u64) {
        let mut metrics = self.raft.metrics();
        loop {
            {
                let metrics = metrics.borrow_watched();
                let Some(replication) = &metrics.replication else { return };
                let last = metrics.last_log_index.unwrap_or_default();
                let is_near = |matched: &Option<RaftLogId>| last.saturating_sub(index(*matched)) <= CAUGHT_UP_WITHIN;
                if replication.get(&id).is_some_and(is_near) {
                    return;
                }
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) async fn set_member(&self, id: u64, member: Member) -> Result<(), CannotChange> {
        let member = self.book.certified(id, member);
        if self.book.member(id).as_ref() == Some(&member) {
            return Ok(());
        }
        let set = |us: &Self| ChangeMembers::SetNodes(BTreeMap::from([(id, us.book.certified(id, member))]));
        self.change_members(set, true, UNCHANGED).await
    }

    /// Takes a node's vote, and then its place. All others remember its newest certificate.
    pub(crate) async fn remove(&self, id: u64) -> Result<(), CannotChange> {
        let change = |us: &Self| {
            let gone = match us.voters().contains(&id) {
                true => ChangeMembers::RemoveVoters(BTreeSet::from([id])),
                false => ChangeMembers::RemoveNodes(BTreeSet::from([id])),
            };
            match us.remembering(id) {
                Some(others) => ChangeMembers::Batch(vec![ChangeMembers::SetNodes(others), gone]),
                None => gone,
            }
        };
        self.change_members(change, false, UNCHANGED).await
    }

    /// The members without this one, which remember its newest certificate; none if there is nothing to remember.
    fn remembering(&self, id: u64) -> Option<BTreeMap<u64, Member>> {
        let mut members = self.members();
        let gone = self.book.certified(id, members.remove(&id)?);
        if gone.certified == 0 {
            return None;
        }
        let before = gone.removed.iter().find(|it| it.node == id).map_or(0, |it| it.certified);
        let certified = gone.certified.max(before);
        let others = gone.removed.iter().filter(|it| it.node != id).copied();
        let removed: Vec<Removed> =
            others.chain([Removed { node: id, incarnation: gone.incarnation, certified }]).collect();
        Some(members.into_iter().map(|(node, it)| (node, Member { removed: removed.clone(), ..it })).collect())
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
    pub(crate) async fn step_down(&self) {
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
