//! A whole node, without its doors: what it stands on is given, so that it runs as well on simulated time and disks.

use crate::clock::{Clock, ServiceClock};
use crate::disk::SharedDisk;
use crate::entropy::{Entropy, draw_lease};
use crate::identity::Identity;
use crate::lessor::{Counter, Lessor, Tuning, Unready};
use crate::limits::ANSWER_TIMEOUT;
use crate::metrics::{Levels, Metrics};
use crate::raft::{Consensus, Ground, OpenError, Seat};
use crate::replica::Replica;
use crate::trace;
use crate::watch::Seating;
use crate::workers::Workers;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Command, LeaseId, Ledger, Moment, Name, Outcome, Revision};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::Instrument;

/// What a node stands on: clock, randomness, disk, and where work that blocks is done.
#[derive(Clone)]
pub struct Environment {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The data directory.
    pub disk: SharedDisk,
    /// Where work that blocks is done.
    pub workers: Workers,
    /// For simulations only.
    pub tuning: Tuning,
}

/// A running node. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    counter: Counter,
    consensus: Consensus,
    service: watch::Receiver<Option<ServiceClock>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    metrics: Metrics,
}

/// What a node found when it was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// An unfinished write that a crash had left, and that was cut off; for people.
    pub torn: Option<String>,
}

/// How a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whose data it holds.
    pub identity: Identity,
    /// The term in which it leads, if it does.
    pub leads_in: Option<u64>,
    /// The newest entry in its ledger.
    pub applied: u64,
    /// The count of visible changes.
    pub revision: Revision,
    /// Living leases.
    pub leases: usize,
    /// Service time.
    pub now: Moment,
    /// Service time that was dropped by this leadership because the service was stalled, in milliseconds.
    pub dropped_ms: u64,
}

impl Node {
    /// Opens the data and starts to lead. What it holds is served once [`Node::ready`] returns.
    pub async fn open(environment: Environment) -> Result<(Self, Opened), OpenError> {
        let Environment { clock, entropy, disk, workers, tuning } = environment;
        let identity = Identity::open(&disk, &*entropy).await?;
        let metrics = Metrics::new(clock.clone());
        let seat = Seat { node: identity.node, incarnation: identity.incarnation };
        let ground = Ground { disk, entropy: entropy.clone(), workers, tuning, metrics: metrics.clone() };
        let (consensus, found) = Consensus::open(ground, seat).await?;
        let (lessor, counter, service) = Lessor::new(clock.clone(), consensus.clone(), tuning, metrics.clone());
        tokio::spawn(lessor.run());
        let torn = found
            .torn
            .map(|torn| format!("{} bytes at byte {} of {} ({})", torn.bytes, torn.offset, torn.file, torn.why));
        let inner = Inner { identity, counter, consensus, service, clock, entropy, metrics };
        Ok((Self { inner: Arc::new(inner) }, Opened { torn }))
    }

    /// Returns when this node leads and grants, or with the reason why it never will.
    pub async fn ready(&self) -> Result<(), String> {
        let mut service = self.inner.service.clone();
        let leads = async { service.wait_for(Option::is_some).await.is_ok() };
        tokio::select! {
            leads = leads => if leads { Ok(()) } else { Err("the node has stopped".into()) },
            reason = self.failed() => Err(reason),
        }
    }

    /// Resolves with the reason when the node cannot go on; the process must then stop.
    pub async fn failed(&self) -> String {
        self.inner.consensus.failed().await
    }

    /// Puts a command into the log, and answers when it was applied.
    pub async fn order(&self, command: Command) -> Result<Outcome, Unready> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.inner.counter.order(command)).await {
            Ok(answer) => answer,
            Err(_) => Err(Unready::Unknown),
        }
    }

    /// Looks at the ledger after everything that was acknowledged before this call.
    pub async fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> Result<T, Unready> {
        let linearized = self.inner.consensus.linearize().instrument(trace::read_index());
        let current = tokio::time::timeout(ANSWER_TIMEOUT, linearized).await;
        if current.unwrap_or(false) {
            Ok(self.read_stale(look))
        } else {
            Err(Unready::NotLeader { leader: self.inner.consensus.leader_address() })
        }
    }

    /// Looks at this node's own copy of the ledger, which may be behind.
    pub fn read_stale<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        self.replica().read(|ledger, _| look(ledger))
    }

    /// The service time now, by the clock of this node's leadership; none if it does not lead.
    pub fn service_time(&self) -> Option<Moment> {
        let at = self.inner.clock.monotonic();
        self.inner.service.borrow().map(|service| service.peek(at))
    }

    /// How the node is doing.
    pub fn status(&self) -> Status {
        let service = *self.inner.service.borrow();
        let dropped = service.map_or(0, |service| service.dropped().as_millis());
        self.replica().read(|ledger, applied| Status {
            identity: self.inner.identity,
            leads_in: service.and(*self.inner.consensus.leading().borrow()),
            applied,
            revision: ledger.revision(),
            leases: ledger.lease_count(),
            now: self.service_time().unwrap_or(ledger.now()),
            dropped_ms: u64::try_from(dropped).unwrap_or(u64::MAX),
        })
    }

    /// What the node measures about itself, as OpenMetrics text. It looks at counts, never at each lease.
    pub fn metrics_text(&self) -> String {
        let service = *self.inner.service.borrow();
        let levels = self.replica().read(|ledger, _| Levels {
            leads: service.is_some(),
            revision: ledger.revision(),
            leases: ledger.lease_count(),
            claims: ledger.claim_count(),
            waiters: ledger.waiter_count(),
            resources: ledger.resource_count(),
            keys: ledger.key_count(),
            queued: self.inner.counter.queued(),
            now: self.service_time().unwrap_or(ledger.now()),
            dropped: service.map_or(Duration::ZERO, |service| service.dropped()),
        });
        self.inner.metrics.render(levels)
    }

    /// Draws the id of a lease.
    pub fn draw_lease(&self) -> LeaseId {
        draw_lease(&*self.inner.entropy)
    }

    /// Stops the node. What it acknowledged is on disk.
    pub async fn stop(&self) {
        self.inner.consensus.shutdown().await;
    }

    /// Where the doors count what they are asked.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Room to wait for a change of a claim, if there is any.
    pub(crate) fn room_to_wait(&self) -> Option<OwnedSemaphorePermit> {
        self.replica().hub().room()
    }

    /// Waits for a change of a claim.
    pub(crate) fn seating(&self, lease: LeaseId, resource: Name, room: OwnedSemaphorePermit) -> Seating {
        Seating::take(self.replica().clone(), lease, resource, room)
    }

    /// The newest revision, and when it changes.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.replica().hub().revisions()
    }

    fn replica(&self) -> &Arc<Replica> {
        self.inner.consensus.replica()
    }
}
