//! The log: what openraft agrees on and the disk keeps. openraft's types stay in here.

pub mod log;
mod machine;
mod mark;
mod peers;
mod shelf;
mod store;
#[cfg(test)]
mod suite;
mod types;

use crate::disk::SharedDisk;
use crate::entropy::Entropy;
use crate::lessor::Tuning;
use crate::limits::SEAL_TIMEOUT;
use crate::metrics::Metrics;
use crate::replica::{Answer, Replica};
use crate::workers::Workers;
use log::{Log, LogError, LogOptions, Torn};
use machine::Machine;
use mark::Mark;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::{Config, Raft, ReadPolicy, ServerState, SnapshotPolicy};
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use peers::Alone;
use shelf::Shelf;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use store::Store;
use tenure_core::Entry;
use tenure_core::limits::RULES_MAX;
use tokio::sync::{Mutex, oneshot, watch};
use types::{Member, Proposal, Types};

/// What became of a proposal that was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It never entered the log.
    Refused,
    /// It may or may not be applied. It is never proposed again.
    Unknown,
}

/// Why a node cannot start on its data.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log on disk.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The snapshot, or something else on disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// The log begins after something that no snapshot holds.
    #[error(
        "the log starts after entry {purged}, but the newest snapshot ends at entry {snapshot}: a snapshot file is \
         missing. Put it back, or rebuild this node from its peers or from a backup"
    )]
    Gap {
        /// The last entry that the log no longer has.
        purged: u64,
        /// The last entry in the snapshot.
        snapshot: u64,
    },
    /// openraft would not start.
    #[error("the log could not be started: {0}")]
    Start(String),
}

/// Who this node is in its cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
}

/// What the log stands on.
pub(crate) struct Ground {
    pub(crate) disk: SharedDisk,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) workers: Workers,
    pub(crate) tuning: Tuning,
    pub(crate) metrics: Metrics,
}

#[derive(Clone)]
pub(crate) struct Consensus {
    raft: Raft<Types, Machine>,
    node: u64,
    replica: Arc<Replica>,
    leading: watch::Receiver<Option<u64>>,
    sealed: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

/// What was found on disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) torn: Option<Torn>,
}

impl Consensus {
    /// Opens the log and the newest snapshot, and starts to lead if this node is a cluster of one.
    pub(crate) async fn open(ground: Ground, seat: Seat) -> Result<(Self, Found), OpenError> {
        let machine = Machine::load(Shelf::new(ground.disk.clone()), ground.workers)?;
        let mark = Mark::new(ground.disk.clone());
        let options = LogOptions { batches_min: mark.read()?.unwrap_or_default(), ..LogOptions::default() };
        let (log, recovered) = Log::open(ground.disk, options).await?;
        mark.write(recovered.batches).await?;
        let torn = recovered.torn.clone();
        let (store, sealed) = Store::start(log, recovered, mark, ground.workers, ground.metrics)?;
        let snapshot = machine.applied().map_or(0, |id| id.index());
        if let Some(purged) = store.purged()
            && purged.index() > snapshot
        {
            return Err(OpenError::Gap { purged: purged.index(), snapshot });
        }
        let replica = machine.replica();
        let written = store.written();
        let config = Arc::new(config(ground.tuning)?);
        let seed = ground.entropy.draw();
        let start = Raft::new(seat.node, config, Alone, store, machine);
        let raft = DeterministicRng::<TokioRuntime>::scope(seed, start).await.map_err(failed)?;
        let (leading_in, leading) = watch::channel(None);
        tokio::spawn(follow_leadership(raft.clone(), seat.node, leading_in));
        tokio::spawn(take_snapshots(raft.clone(), written, ground.tuning.snapshot_log_bytes));
        let sealed = Arc::new(Mutex::new(Some(sealed)));
        let consensus = Self { raft, node: seat.node, replica, leading, sealed };
        consensus.lead_alone(seat).await?;
        Ok((consensus, Found { torn }))
    }

    /// A cluster of one makes itself and elects itself without waiting for an election timeout.
    async fn lead_alone(&self, seat: Seat) -> Result<(), OpenError> {
        if !self.raft.is_initialized().await.map_err(failed)? {
            let member = Member { incarnation: seat.incarnation, rules_max: RULES_MAX, ..Member::default() };
            self.raft.initialize(BTreeMap::from([(seat.node, member)])).await.map_err(failed)?;
        } else {
            self.raft.trigger().elect(false).await.map_err(failed)?;
        }
        Ok(())
    }

    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    pub(crate) fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// The term in which this node leads, if it does.
    pub(crate) fn leading(&self) -> watch::Receiver<Option<u64>> {
        self.leading.clone()
    }

    /// Where clients reach the leader, if that is known and somewhere else.
    pub(crate) fn leader_address(&self) -> Option<String> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let leader = metrics.current_leader.filter(|leader| *leader != self.node)?;
        let member = metrics.membership_config.get_node(&leader)?;
        Some(member.client_addr.clone())
    }

    /// Puts an entry into the log under the leadership that stamped it. The future tells what it came to.
    pub(crate) fn propose(&self, entry: Entry) -> impl Future<Output = Result<Answer, Lost>> + Send + 'static {
        let raft = self.raft.clone();
        async move {
            let (responder, applied) = ProgressResponder::complete_only();
            let term = openraft::alias::CommittedLeaderIdOf::<Types>::new(entry.leader.term);
            let proposal = Proposal(Arc::new(entry));
            let sent = raft.write(proposal).with_leader(term).responder(responder).await;
            if sent.is_err() {
                return Err(Lost::Unknown);
            }
            match applied.await {
                Ok(Ok(response)) => Ok(response.data),
                Ok(Err(ClientWriteError::ForwardToLeader(_))) => Err(Lost::Refused),
                Ok(Err(_)) | Err(_) => Err(Lost::Unknown),
            }
        }
    }

    /// Returns when the replica holds everything that was acknowledged before the call. False: nobody can tell.
    pub(crate) async fn linearize(&self) -> bool {
        self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_ok()
    }

    /// Resolves with the reason when the log cannot go on.
    pub(crate) async fn failed(&self) -> String {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return fatal.to_string();
            }
            if metrics.changed().await.is_err() {
                return "the log has stopped".into();
            }
        }
    }

    /// Stops the log, and returns when it is sealed.
    pub(crate) async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the log did not stop cleanly");
        }
        let sealed = self.sealed.lock().await.take();
        if let Some(sealed) = sealed
            && tokio::time::timeout(SEAL_TIMEOUT, sealed).await.is_err()
        {
            tracing::error!("the log was not sealed in time; this start-up will be as after a crash");
        }
    }
}

fn failed(error: impl std::fmt::Display) -> OpenError {
    OpenError::Start(error.to_string())
}

fn config(tuning: Tuning) -> Result<Config, OpenError> {
    let election_timeout_max = 2_000;
    Config {
        cluster_name: "tenure".into(),
        election_timeout_min: 1_000,
        election_timeout_max,
        heartbeat_interval: 250,
        install_snapshot_timeout: 60_000,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        enable_leader_restore: Some(tuning.leader_restore),
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(2 * election_timeout_max),
        ..Config::default()
    }
    .validate()
    .map_err(failed)
}

/// Tells the lessor when this node leads, and in which term.
async fn follow_leadership(raft: Raft<Types, Machine>, node: u64, leading: watch::Sender<Option<u64>>) {
    let mut metrics = raft.server_metrics();
    loop {
        let term = {
            let metrics = metrics.borrow_watched();
            let leader = metrics.vote.leader_id();
            let leads = metrics.state == ServerState::Leader && metrics.vote.is_committed() && leader.voted_for == node;
            leads.then_some(leader.term)
        };
        leading.send_if_modified(|current| std::mem::replace(current, term) != term);
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Takes a snapshot whenever the log has grown by so many bytes; openraft then purges what it covers.
async fn take_snapshots(raft: Raft<Types, Machine>, mut written: watch::Receiver<u64>, every_bytes: u64) {
    let mut taken_at = 0;
    loop {
        let now = *written.borrow_and_update();
        if now.saturating_sub(taken_at) >= every_bytes {
            taken_at = now;
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
        if written.changed().await.is_err() {
            return;
        }
    }
}
