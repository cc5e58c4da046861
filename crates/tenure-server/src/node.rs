//! A whole node, without its doors: what it stands on is given, so that it runs as well on simulated time and disks.

use crate::backup::{self, About};
use crate::bells::Bells;
use crate::clock::{Clock, ServiceClock};
use crate::disk::SharedDisk;
use crate::entropy::{Entropy, draw_lease};
use crate::environment::Environment;
use crate::identity::Identity;
use crate::limits::{ANSWER_TIMEOUT, COUNTED_MAX, PEER_PATIENCE_SHORT, READ_TIMEOUT, READY_INTERVAL, RETRY_AFTER};
use crate::metrics::{Cluster, HEALTHS, Levels, Metrics, health_at};
use crate::peers::v1 as peer;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use crate::place::Place;
use crate::proposer::{CommandQueue, Proposer};
use crate::raft::{Book, Consensus, Ground, Member, OpenError, Standing};
use crate::replica::{Extremes, Replica};
use crate::trace;
use crate::unready::Unready;
use crate::watch::Seating;
use crate::workers::Workers;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Command, LeaseId, Ledger, Moment, Name, Outcome, Revision};
use tokio::sync::{Mutex, OwnedSemaphorePermit, oneshot, watch};
use tracing::Instrument;

/// A running node. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    disk: SharedDisk,
    /// One at a time decides which cluster this node belongs to.
    adopting: Mutex<()>,
    /// Backups are large: one is made at a time.
    backing_up: Mutex<()>,
    workers: Workers,
    place: Place,
    /// The newest rules that this node knows.
    rules_max: u32,
    commands: CommandQueue,
    consensus: Consensus,
    service: watch::Receiver<Option<ServiceClock>>,
    /// What the leader said last that its service time is, and when it was asked.
    heard: watch::Sender<Option<(Moment, Duration)>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    metrics: Metrics,
    /// Why this node must not go on; empty while it may.
    condemned: watch::Sender<String>,
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
    /// The newest term that it knows of.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// The newest entry in its log.
    pub last_index: u64,
    /// The newest entry that a majority has.
    pub committed: u64,
    /// The newest entry in its snapshot.
    pub snapshot: u64,
    /// The newest entry that its log does not have any longer.
    pub purged: u64,
    /// What the entries in its log take.
    pub log_bytes: u64,
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
    /// Opens the data. The node has no part in a cluster yet, unless its log says so.
    pub(crate) async fn assemble(environment: Environment) -> Result<(Self, Opened), OpenError> {
        let Environment { clock, entropy, disk, workers, tuning, network, place } = environment;
        let identity = Identity::open(&disk, &*entropy, &place).await?;
        if let Some(identities) = network.identities() {
            let knows_identities = Identity::is_marked(&disk)?;
            identities.settle(identity.node, knows_identities).map_err(|why| wrong_certificate(&why))?;
        }
        let metrics = Metrics::new(clock.clone());
        let ground = Ground {
            disk: disk.clone(),
            entropy: entropy.clone(),
            workers,
            tuning,
            metrics: metrics.clone(),
            book: Arc::new(Book::new(network, identity)),
            election_timeout: place.election_timeout,
            clock: clock.clone(),
        };
        let (consensus, found) = Consensus::open(ground).await?;
        let (proposer, commands, service) = Proposer::new(clock.clone(), consensus.clone(), tuning, metrics.clone());
        tokio::spawn(proposer.run());
        let torn = found
            .torn
            .map(|torn| format!("{} bytes at byte {} of {} ({})", torn.bytes, torn.offset, torn.file, torn.why));
        let inner = Inner {
            disk,
            adopting: Mutex::default(),
            backing_up: Mutex::default(),
            workers,
            place,
            rules_max: tuning.rules_max,
            commands,
            consensus,
            service,
            heard: watch::Sender::default(),
            clock,
            entropy,
            metrics,
            condemned: watch::Sender::default(),
        };
        Ok((Self { inner: Arc::new(inner) }, Opened { torn }))
    }

    /// Whose data it holds.
    pub fn identity(&self) -> Identity {
        self.consensus().book().us()
    }

    /// Whether it is the only member of its cluster.
    pub fn is_alone(&self) -> bool {
        self.consensus().voters() == [self.identity().node]
    }

    /// Whether there are others in its cluster. It waits until the log has told who is; of a node that belongs to none yet,
    /// that may be long.
    pub async fn has_peers(&self) -> bool {
        let told = async {
            while self.consensus().voters().is_empty() {
                tokio::time::sleep(READY_INTERVAL).await;
            }
        };
        tokio::select! {
            () = told => !self.is_alone(),
            _ = self.failed() => false,
        }
    }

    /// This node as others should know it.
    pub(crate) fn member(&self) -> Member {
        let Place { peer_addr, client_addr, .. } = self.inner.place.clone();
        let (incarnation, certified) = (self.identity().incarnation, self.own_certified());
        Member { peer_addr, client_addr, incarnation, rules_max: self.inner.rules_max, certified, ..Member::default() }
    }

    /// From when on the certificate that this node shows its peers is valid; 0 without an identity in it.
    fn own_certified(&self) -> u64 {
        self.consensus().book().identities().map_or(0, |identities| identities.own_certified())
    }

    /// The members as this node knows them.
    pub(crate) fn standings(&self) -> Vec<peer::Standing> {
        let voters = self.consensus().voters();
        let members = self.consensus().members().into_iter();
        let standing = |(id, member): (u64, Member)| peer::Standing {
            member: Some(member.told_as(id)),
            votes: voters.contains(&id),
        };
        members.map(standing).collect()
    }

    pub(crate) fn consensus(&self) -> &Consensus {
        &self.inner.consensus
    }

    pub(crate) fn draw_number(&self) -> u64 {
        self.inner.entropy.draw()
    }

    /// Belongs to a cluster from now on, also after a restart. False: it belongs to another one.
    pub(crate) async fn adopt(&self, cluster: u64) -> io::Result<bool> {
        let _alone = self.inner.adopting.lock().await;
        let identity = self.identity();
        if identity.cluster == 0 && cluster != 0 {
            if let Err(error) = (Identity { cluster, ..identity }).write(&self.inner.disk).await {
                self.inner.condemned.send_replace(format!("the identity of this node could not be written: {error}"));
                return Err(error);
            }
            self.consensus().book().adopted(cluster);
        }
        Ok(self.identity().cluster == cluster)
    }

    /// Whether the log still answers. That nobody leads is an answer.
    pub async fn is_alive(&self) -> bool {
        self.consensus().is_alive().await
    }

    /// Returns when this node can be used: it leads, or it follows a leader and has what was acknowledged; or with the
    /// reason why it never will.
    pub async fn ready(&self) -> Result<(), String> {
        let mut service = self.inner.service.clone();
        let leads = async { service.wait_for(Option::is_some).await.is_ok() };
        let follows = async {
            while !(self.consensus().leader().is_some_and(|leader| leader != self.identity().node)
                && self.read(|_, _| ()).await.is_ok())
            {
                tokio::time::sleep(READY_INTERVAL).await;
            }
            true
        };
        tokio::select! {
            leads = leads => if leads { Ok(()) } else { Err("the node has stopped".into()) },
            _ = follows => Ok(()),
            reason = self.failed() => Err(reason),
        }
    }

    /// Returns when it leads and grants, with the term; never, if the node stops before.
    pub(crate) async fn leads(&self) -> u64 {
        let mut service = self.inner.service.clone();
        loop {
            if service.wait_for(Option::is_some).await.is_err() {
                return std::future::pending().await;
            }
            let term = *self.consensus().leading().borrow();
            match term {
                Some(term) => return term,
                None => tokio::time::sleep(READY_INTERVAL).await,
            }
        }
    }

    /// Time since a fixed point of this process.
    pub(crate) fn monotonic(&self) -> Duration {
        self.inner.clock.monotonic()
    }

    /// Whether it leads and grants, or follows somebody who may.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.service.borrow().is_some() || self.leader_elsewhere().is_some()
    }

    /// Resolves with the reason when the node cannot go on; the process must then stop.
    pub async fn failed(&self) -> String {
        let mut condemned = self.inner.condemned.subscribe();
        let differs = async { condemned.wait_for(|why| !why.is_empty()).await.map(|why| why.clone()) };
        tokio::select! {
            reason = self.inner.consensus.failed() => reason,
            Ok(reason) = differs => reason,
        }
    }

    /// Stops this node for good, for a reason that is shown. It must not lead then.
    pub(crate) async fn condemn(&self, why: String) {
        tracing::error!("{why}");
        self.inner.condemned.send_replace(why);
        self.hand_over().await;
    }

    /// The leader, if it is another node.
    pub(crate) fn leader_elsewhere(&self) -> Option<u64> {
        self.consensus().leader().filter(|leader| *leader != self.identity().node)
    }

    /// Proposes a command if this node leads, and answers when it was applied.
    pub async fn propose(&self, command: Command) -> Result<Outcome, Unready> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.inner.commands.order(command)).await {
            Ok(answer) => answer,
            Err(_) => Err(Unready::Unknown),
        }
    }

    /// Looks at the ledger after everything that was acknowledged before this call, and at the service time.
    pub async fn read<T>(&self, look: impl FnOnce(&Ledger, Moment) -> T) -> Result<T, Unready> {
        let certain = async {
            let asked_at = self.inner.clock.monotonic();
            let (index, now) = self.read_index().await?;
            if let Some(now) = now.or(self.service_time()) {
                self.inner.heard.send_replace(Some((now, asked_at)));
            }
            self.replica().reached(index).await.then_some(now)
        };
        let certain = tokio::time::timeout(READ_TIMEOUT, certain.instrument(trace::read_index())).await;
        match certain.ok().flatten() {
            Some(now) => {
                let now = self.service_time().or(now);
                Ok(self.read_stale(|ledger| look(ledger, now.unwrap_or_default().max(ledger.now()))))
            }
            None => Err(Unready::NotLeader { leader: self.consensus().leader_address() }),
        }
    }

    /// How far a replica must be, and the leader's service time if it is somebody else's.
    async fn read_index(&self) -> Option<(u64, Option<Moment>)> {
        match self.consensus().leader() {
            Some(leader) if leader != self.identity().node => {
                let ask = Ask::ReadIndex(peer::ReadIndex {});
                match self.consensus().book().ask(leader, ask, PEER_PATIENCE_SHORT).await {
                    Ok(Tell::ReadIndex(reply)) => Some((reply.index, Some(Moment::from_millis(reply.now_ms)))),
                    _ => None,
                }
            }
            _ => self.consensus().read_index().await.map(|index| (index, None)),
        }
    }

    /// Returns when this node has applied an entry of the log. False: not in a while.
    pub(crate) async fn catch_up(&self, index: u64) -> bool {
        tokio::time::timeout(READ_TIMEOUT, self.replica().reached(index)).await.unwrap_or(false)
    }

    /// The newest entry in this node's copy of the ledger.
    pub(crate) fn applied(&self) -> u64 {
        self.replica().read(|_, applied| applied)
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

    /// What the service time is by now at the latest, wherever it runs: by this node's own clock, or by what the leader
    /// said last and the time since. A node that hears of no leader goes on counting, so that nothing seems to last.
    pub(crate) fn service_time_about(&self) -> Moment {
        let at = self.inner.clock.monotonic();
        let heard = *self.inner.heard.borrow();
        let since = |(now, asked_at): (Moment, Duration)| {
            let passed = u64::try_from(at.saturating_sub(asked_at).as_millis()).unwrap_or(u64::MAX);
            Moment::from_millis(now.millis().saturating_add(passed))
        };
        let leads = self.inner.service.borrow().map(|service| service.at_latest(at));
        let about = leads.or(heard.map(since));
        self.read_stale(|ledger| about.unwrap_or_default().max(ledger.now()))
    }

    /// How the node is doing.
    pub fn status(&self) -> Status {
        let service = *self.inner.service.borrow();
        let dropped = service.map_or(0, |service| service.dropped().as_millis());
        let Standing { term, leader, last_index, committed, snapshot, purged, log_bytes } = self.consensus().standing();
        self.replica().read(|ledger, applied| Status {
            identity: self.identity(),
            term,
            leader,
            last_index,
            committed,
            snapshot,
            purged,
            log_bytes,
            leads_in: service.and(*self.inner.consensus.leading().borrow()),
            applied,
            revision: ledger.revision(),
            leases: ledger.lease_count(),
            now: self.service_time().unwrap_or(ledger.now()),
            dropped_ms: u64::try_from(dropped).unwrap_or(u64::MAX),
        })
    }

    fn cluster_levels(&self, applied: u64) -> Cluster {
        let Standing { term, leader, last_index, snapshot, purged, log_bytes, .. } = self.consensus().standing();
        let voters = self.consensus().voters();
        let behind = self.consensus().matched().into_iter().filter(|(node, _)| voters.contains(node));
        Cluster {
            term,
            knows_leader: leader.is_some(),
            members: self.standings().len(),
            apply_lag: last_index.saturating_sub(applied),
            follower_lag: behind.map(|(_, matched)| last_index.saturating_sub(matched)).max().unwrap_or_default(),
            log_entries: last_index.saturating_sub(purged),
            log_bytes,
            snapshot,
        }
    }

    /// Counts the instances by how well they are. It lets the ledger go now and then, for there may be very many.
    fn instances_by_health(&self) -> [usize; HEALTHS.len()] {
        let mut counts = [0; HEALTHS.len()];
        let mut from = Some((String::new(), String::new()));
        while let Some((service, id)) = from {
            from = self.read_stale(|ledger| {
                let services = ledger.services_from(&service);
                let each = services.flat_map(|(name, _)| {
                    let first = if name.as_str() == service { id.as_str() } else { "" };
                    ledger.instances(name, first).map(move |(id, instance)| (name, id, instance))
                });
                let mut each = each.peekable();
                each.by_ref().take(COUNTED_MAX).for_each(|(_, _, it)| counts[health_at(it.overall())] += 1);
                each.peek().map(|(name, id, _)| (name.to_string(), id.to_string()))
            });
        }
        counts
    }

    /// What the node measures about itself, as OpenMetrics text. It looks at counts, never at each lease.
    pub fn metrics_text(&self) -> String {
        let instances = self.instances_by_health();
        let service = *self.inner.service.borrow();
        let levels = self.replica().read(|ledger, applied| Levels {
            leads: service.is_some(),
            revision: ledger.revision(),
            leases: ledger.lease_count(),
            claims: ledger.claim_count(),
            waiters: ledger.waiter_count(),
            resources: ledger.resource_count(),
            keys: ledger.key_count(),
            ledger_bytes: ledger.bytes(),
            services: ledger.service_count(),
            instances,
            queued: self.inner.commands.queued(),
            now: self.service_time().unwrap_or(ledger.now()),
            dropped: service.map_or(Duration::ZERO, |service| service.dropped()),
            cluster: self.cluster_levels(applied),
        });
        self.inner.metrics.render(levels)
    }

    /// Shows in the metrics until when a certificate is valid, in seconds since 1970.
    pub fn certificate_expires(&self, which: &'static str, at: u64) {
        self.inner.metrics.certificate_expires(which, at);
    }

    /// A backup of everything that was acknowledged before the call. It is encoded beside the node's own work.
    pub async fn backup(&self) -> Result<Vec<u8>, Unready> {
        let _alone = self.inner.backing_up.lock().await;
        self.read(|_, _| ()).await?;
        let (ledger, index) = self.replica().read(|ledger, applied| (ledger.clone(), applied));
        let about = About {
            cluster: self.identity().cluster,
            wall_ms: self.inner.clock.wall_ms(),
            index,
            fence: ledger.last_fence(),
            revision: ledger.revision().0,
            leases: ledger.lease_count() as u64,
        };
        let (told, written) = oneshot::channel();
        let write = async move {
            // Whoever asked may be gone.
            let _ = told.send(backup::write(&ledger, &about));
        };
        self.inner
            .workers
            .start("tenure-backup", write)
            .map_err(|_| Unready::Overloaded { retry_after: RETRY_AFTER })?;
        written.await.map_err(|_| Unready::Stopping)
    }

    /// The extremes of what entries did since this process began, for simulations and tests.
    pub fn extremes(&self) -> Extremes {
        self.replica().extremes()
    }

    /// Draws the id of a lease.
    pub fn draw_lease(&self) -> LeaseId {
        draw_lease(&*self.inner.entropy)
    }

    /// Hands the lead to another node, if there is one: nobody has to wait for an election then.
    pub async fn hand_over(&self) {
        self.inner.consensus.step_down().await;
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
        Seating::take(self.replica().hub().clone(), lease, resource, room)
    }

    /// What wakes those who watch keys.
    pub(crate) fn bells(&self) -> &Arc<Bells> {
        self.replica().hub().bells()
    }

    /// What wakes those who watch services.
    pub(crate) fn service_bells(&self) -> &Arc<Bells> {
        self.replica().hub().services()
    }

    /// The newest revision, and when it changes.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.replica().hub().revisions()
    }

    fn replica(&self) -> &Arc<Replica> {
        self.inner.consensus.replica()
    }
}

fn wrong_certificate(why: &str) -> io::Error {
    let text = format!("{why}. Nothing was changed. Name the certificate of this node with --peer-tls-cert");
    io::Error::new(ErrorKind::InvalidInput, text)
}
