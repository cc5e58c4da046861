//! The log: what openraft agrees on and the disk keeps. openraft's types stay in here.

mod answers;
mod applying;
mod bad_entry;
pub mod log;
mod machine;
mod mark;
mod members;
mod peers;
#[cfg(test)]
mod races;
mod reads;
mod remains;
mod shelf;
mod store;
#[cfg(test)]
mod suite;
mod types;
mod wire;
mod words;

pub use applying::forget_deaths;
pub use bad_entry::{BadEntry, Fault};
pub use members::CannotChange;
pub(crate) use members::Standing;
pub(crate) use peers::Book;
pub use remains::{Dropped, Skip};
pub(crate) use remains::{Left, Remains, place_snapshot};
pub(crate) use types::Member;

use crate::audit::Audits;
use crate::clock::Clock;
use crate::disk::SharedDisk;
use crate::entropy::Entropy;
use crate::limits::{KEPT_LOG_BYTES, SEAL_TIMEOUT, SNAPSHOT_LOOKS};
use crate::metrics::Metrics;
use crate::replica::{Answer, Replica};
use crate::tuning::Tuning;
use crate::workers::Workers;
use applying::Applying;
use log::{Location, Log, LogError, LogOptions, Recovered, Torn};
use machine::Machine;
use mark::Mark;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::{Config, Raft, ServerState, SnapshotPolicy};
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use peers::{Members, Peers};
use reads::{Leader, Reads};
use shelf::Shelf;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Extent, Settling, Store};
use tenure_core::Entry;
use tenure_core::limits::RULES_MAX;
use tokio::sync::{Mutex, oneshot, watch};
use types::{Proposal, RaftLogId, Types};

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
    /// An entry of the log cannot be applied. Nothing was changed, and no start without a change will do better.
    #[error("{0}")]
    Entry(BadEntry),
    /// openraft would not start.
    #[error("the log could not be started: {0}")]
    Start(String),
}

/// What the log stands on.
pub(crate) struct Ground {
    pub(crate) disk: SharedDisk,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) workers: Workers,
    pub(crate) tuning: Tuning,
    pub(crate) metrics: Metrics,
    pub(crate) book: Arc<Book>,
    pub(crate) election_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Clone)]
pub(crate) struct Consensus {
    raft: Raft<Types, Machine>,
    node: u64,
    replica: Arc<Replica>,
    book: Arc<Book>,
    reads: Reads,
    extent: Extent,
    settling: Settling,
    audits: Arc<Audits>,
    leading: watch::Receiver<Option<u64>>,
    members: watch::Receiver<()>,
    incoming: Arc<Mutex<answers::Incoming>>,
    seeds: Arc<Seeds>,
    sealed: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
    /// Whose turn it is to change the members.
    turn: Arc<Mutex<()>>,
}

/// Randomness for whatever openraft starts on our behalf: it takes it from the task that asks.
struct Seeds(AtomicU64);

impl Seeds {
    fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        DeterministicRng::<TokioRuntime>::scope(self.0.fetch_add(1, Ordering::Relaxed), future)
    }
}

/// What was found on disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) torn: Option<Torn>,
}

impl Consensus {
    /// Opens the log and the newest snapshot. A cluster of one leads at once; others hold an election.
    pub(crate) async fn open(ground: Ground) -> Result<(Self, Found), OpenError> {
        let mut machine = Machine::load(Shelf::new(ground.disk.clone()), ground.workers)?;
        let audits = machine.audited(ground.clock);
        let (log, recovered, mark) = open_log(ground.disk.clone()).await?;
        machine.noting(note_applying(&ground.disk, &log, &recovered.entries, machine.applied())?);
        mark.write(recovered.batches).await?;
        let torn = recovered.torn.clone();
        let every_bytes = ground.tuning.snapshot_log_bytes;
        let growth = (ground.metrics, every_bytes.div_ceil(SNAPSHOT_LOOKS));
        let (store, sealed) = Store::start(log, recovered, mark, ground.workers, growth)?;
        check_gap(store.purged(), machine.applied())?;
        let (replica, book) = (machine.replica(), ground.book);
        let node = book.us().node;
        let config = Arc::new(config(ground.tuning, ground.election_timeout)?);
        let seeds = Arc::new(Seeds(AtomicU64::new(ground.entropy.draw())));
        let (extent, settling, written) = (store.extent(), store.settling(), store.written());
        let unreadable = store.unreadable();
        let peers = Peers { book: book.clone(), moved_on: store.moved_on() };
        let start = Raft::new(node, config, peers, store, machine);
        let raft = seeds.scope(start).await;
        let raft = raft.map_err(|error| unreadable.get().cloned().map_or_else(|| failed(error), OpenError::Entry))?;
        let ((leading_in, leading), (members_in, members)) = (watch::channel(None), watch::channel(()));
        tokio::spawn(follow(raft.clone(), book.clone(), leading_in, members_in));
        tokio::spawn(take_snapshots(raft.clone(), book.clone(), (extent.clone(), written), every_bytes));
        let reads = Reads::start(Leader::new(raft.clone(), book.clone(), ground.tuning), &seeds);
        let (incoming, sealed, turn) = (Arc::default(), Arc::new(Mutex::new(Some(sealed))), Arc::default());
        let consensus = Self {
            raft,
            node,
            replica,
            book,
            reads,
            extent,
            settling,
            audits,
            leading,
            members,
            incoming,
            seeds,
            sealed,
            turn,
        };
        if consensus.is_initialized().await && consensus.voters() == [node] {
            // Nobody else could be elected, so there is nothing to wait for.
            consensus.raft.trigger().elect(false).await.map_err(failed)?;
        }
        Ok((consensus, Found { torn }))
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

    /// The newest hashes of this node's ledger.
    pub(crate) fn audits(&self) -> &Arc<Audits> {
        &self.audits
    }

    /// Who we are to others, and where they are.
    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Raft's term, as this node knows it.
    pub(crate) fn term(&self) -> u64 {
        self.raft.metrics().borrow_watched().current_term
    }

    /// Who leads, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<u64> {
        self.raft.server_metrics().borrow_watched().current_leader
    }

    /// Where clients reach the leader, if that is known and somewhere else.
    pub(crate) fn leader_address(&self) -> Option<String> {
        let leader = self.leader().filter(|leader| *leader != self.node)?;
        self.book.member(leader).map(|member| member.client_addr).filter(|address| !address.is_empty())
    }

    /// The newest rules that all members know.
    pub(crate) fn rules(&self) -> u32 {
        self.book.rules_of_members().unwrap_or(RULES_MAX).min(RULES_MAX)
    }

    /// Puts an entry into the log under the leadership that stamped it. The future tells what it came to.
    pub(crate) fn propose(
        &self,
        entry: Arc<Entry>,
        is_audited: bool,
    ) -> impl Future<Output = Result<Answer, Lost>> + Send + 'static {
        let raft = self.raft.clone();
        async move {
            let (responder, applied) = ProgressResponder::complete_only();
            let term = openraft::alias::CommittedLeaderIdOf::<Types>::new(entry.leader.term);
            let proposal = Proposal { entry, is_audited };
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

    /// Resolves with the reason when the log cannot go on. What it waits for does not change with every entry.
    pub(crate) async fn failed(&self) -> String {
        let mut until_it_stops = self.raft.server_metrics();
        while until_it_stops.changed().await.is_ok() {}
        let fatal = self.raft.metrics().borrow_watched().running_state.clone().err();
        fatal.map_or_else(|| "the log has stopped".into(), |fatal| fatal.to_string())
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

/// Opens the log on disk, which must go as far as its mark says.
async fn open_log(disk: SharedDisk) -> Result<(Log, Recovered, Mark), OpenError> {
    let mark = Mark::new(disk.clone());
    let options = LogOptions { batches_min: mark.read()?.unwrap_or_default(), ..LogOptions::default() };
    let (log, recovered) = Log::open(disk, options).await?;
    Ok((log, recovered, mark))
}

/// Begins to note which entry is applied, unless enough processes died at one that is still ahead.
fn note_applying(
    disk: &SharedDisk,
    log: &Log,
    entries: &[Location],
    applied: Option<RaftLogId>,
) -> Result<Applying, OpenError> {
    let deaths = Applying::deaths(disk)?;
    if deaths.are_enough() && deaths.index > applied.map_or(0, |id| id.index()) {
        let at = entries.iter().find(|location| location.index == deaths.index);
        let bytes = at.map(|location| log.reader().read(location)).transpose()?;
        let died = Fault::Died(deaths.count);
        return Err(OpenError::Entry(BadEntry::applied(deaths.index, bytes.as_deref(), died)));
    }
    let last = entries.last().map_or(0, |location| location.index).max(applied.map_or(0, |id| id.index()));
    Ok(Applying::begin(disk, deaths, last)?)
}

/// Everything that the log no longer has must be in the snapshot.
fn check_gap(purged: Option<RaftLogId>, applied: Option<RaftLogId>) -> Result<(), OpenError> {
    let snapshot = applied.map_or(0, |id| id.index());
    match purged {
        Some(purged) if purged.index() > snapshot => Err(OpenError::Gap { purged: purged.index(), snapshot }),
        _ => Ok(()),
    }
}

fn failed(error: impl std::fmt::Display) -> OpenError {
    OpenError::Start(error.to_string())
}

fn config(tuning: Tuning, election_timeout: Duration) -> Result<Config, OpenError> {
    // A follower waits for its leader's lease, which is the maximum, and then for a time by lot between the two: for 1.25
    // to 1.5 timeouts in all.
    let timeout_ms = u64::try_from(election_timeout.as_millis()).map_err(failed)?;
    let (election_timeout_min, election_timeout_max) = (timeout_ms / 2, timeout_ms * 3 / 4);
    Config {
        cluster_name: "tenure".into(),
        election_timeout_min,
        election_timeout_max,
        heartbeat_interval: timeout_ms / 5,
        install_snapshot_timeout: 600_000,
        snapshot_policy: SnapshotPolicy::Never,
        // The log is purged by bytes, by `take_snapshots`.
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_leader_restore: Some(tuning.leader_restore),
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(2 * timeout_ms),
        ..Config::default()
    }
    .validate()
    .map_err(failed)
}

/// Tells the proposer when this node leads, and in which term; and keeps the book of members.
async fn follow(
    raft: Raft<Types, Machine>,
    book: Arc<Book>,
    leading: watch::Sender<Option<u64>>,
    members: watch::Sender<()>,
) {
    let mut metrics = raft.server_metrics();
    let node = *raft.node_id();
    loop {
        let (term, known) = {
            let metrics = metrics.borrow_watched();
            let leader = metrics.vote.leader_id();
            let leads = metrics.state == ServerState::Leader && metrics.vote.is_committed() && leader.voted_for == node;
            let membership = &metrics.membership_config;
            let by_node = membership.nodes().map(|(id, member)| (*id, member.clone())).collect();
            (leads.then_some(leader.term), Members::new(*membership.log_id(), by_node))
        };
        if book.update(known) {
            members.send_replace(());
        }
        leading.send_if_modified(|current| std::mem::replace(current, term) != term);
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Takes a snapshot whenever the log has grown by so many bytes. The log before the last one goes, but for a tail that
/// spares followers who are a little behind a snapshot.
async fn take_snapshots(
    raft: Raft<Types, Machine>,
    book: Arc<Book>,
    (extent, mut written): (Extent, watch::Receiver<u64>),
    every_bytes: u64,
) {
    let mut taken_at = 0;
    let mut snapshots = raft.data_metrics();
    let mut is_taking = false;
    let keep_bytes = KEPT_LOG_BYTES.min(every_bytes / 4);
    let mut purged = 0;
    loop {
        let now = *written.borrow_and_update();
        if now.saturating_sub(taken_at) >= every_bytes {
            (taken_at, is_taking) = (now, true);
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
        let covered = snapshots.borrow_watched().snapshot.map_or(0, |id| id.index());
        if covered > purged && !book.is_sending() {
            (purged, is_taking) = (covered, false);
            let upto = covered.min(extent.keep(keep_bytes).unwrap_or_default());
            if upto > 0 && raft.trigger().purge_log(upto).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = written.changed() => if changed.is_err() { return },
            // It changes with every entry, so it is looked at only while it may tell of a snapshot.
            changed = snapshots.changed(), if is_taking => if changed.is_err() { return },
        }
    }
}
