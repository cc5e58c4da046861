//! One simulated run: a node that is started, hurt and started again, and the holders that live with it.

use crate::book::{Book, Violation};
use crate::dice::Dice;
use crate::ground::{BentClock, Slowness, true_time};
use crate::holder::{Line, Person};
use crate::operator::Operator;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{End, Event, Free, Happening, LeaseId, Ledger, Name, Revision};
use tenure_server::disk::{Disk, MemoryDisk};
use tenure_server::peers::Nowhere;
use tenure_server::raft::log::{Log, LogOptions};
use tenure_server::{Environment, Node, Place, Tuning, Workers};
use tokio::time::{Instant, sleep};

/// What a run is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Draws everything.
    pub seed: u64,
    /// How long the node is hurt, in simulated time.
    pub length: Duration,
    /// Values that break promises may be planted here, to see that they are caught.
    pub tuning: Tuning,
    /// Whether who ends others' claims waits for what was promised to them. `Now` breaks S2 and must be caught.
    pub forced_ends: Free,
    /// Whether to print the trace.
    pub verbose: bool,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal seeds.
    pub trace: u64,
    /// Lines in the trace.
    pub lines: u64,
    /// Claims that were seated.
    pub grants: u64,
    /// Claims and leases that were ended by somebody else's order.
    pub forced: u64,
    /// Faults that were injected: power cuts, deaths of the process, pauses, stalls of the disk.
    pub faults: [u64; 4],
    /// Promises that were broken.
    pub violations: Vec<Violation>,
}

/// Runs one plan in a runtime of its own, on paused time.
pub fn run(plan: Plan) -> Report {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&plan.seed.to_le_bytes()));
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without I/O needs nothing");
    runtime.block_on(World::new(plan).run())
}

struct World {
    plan: Plan,
    dice: Dice,
    book: Book,
    disk: MemoryDisk,
    slowness: Slowness,
    line: Line,
    origin: Instant,
    faults: [u64; 4],
    /// The last event that was judged.
    judged: (Revision, u32),
    /// Service time never goes back.
    now_ms: u64,
    /// The newest fence among the events that were judged.
    fence: u64,
    /// When living leases end unless they are renewed, as the ledger last said.
    deadlines: Vec<(LeaseId, u64)>,
}

const HOLDERS: usize = 5;

fn resources() -> Vec<Name> {
    let names = ["db/leader", "jobs/nightly", "gpu/0"];
    names.iter().map(|name| Name::parse(name).expect("this is a name")).collect()
}

impl World {
    fn new(plan: Plan) -> Self {
        let dice = Dice::new(plan.seed);
        let disk = MemoryDisk::new();
        let slowness = Slowness::default();
        slowness.rule(&disk, dice.fork());
        #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
        let origin = Instant::now();
        Self {
            plan,
            dice,
            book: Book::new(plan.verbose),
            disk,
            slowness,
            line: Line::default(),
            origin,
            faults: [0; 4],
            judged: (Revision(0), 0),
            now_ms: 0,
            fence: 0,
            deadlines: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        true_time(self.origin)
    }

    async fn run(mut self) -> Report {
        self.start().await;
        let holders: Vec<_> = (0..HOLDERS).map(|number| tokio::spawn(self.person(number).live())).collect();
        let operator = tokio::spawn(self.operator().live());
        while self.now() < self.plan.length {
            sleep(self.dice.ms(200, 4_000)).await;
            self.judge();
            self.hurt().await;
        }
        operator.abort();
        // Healed: everybody must come to an end of what they were doing.
        let patience = Duration::from_secs(120);
        for (number, holder) in holders.into_iter().enumerate() {
            match tokio::time::timeout(patience, holder).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => self.book.broken("sim", self.now(), &format!("holder {number} panicked")),
                Err(_) => self.book.broken("liveness", self.now(), &format!("holder {number} is stuck after healing")),
            }
        }
        self.judge();
        // Nobody renews any more, so every lease must end by itself, and nobody writes, so only ticks can end it.
        sleep(Duration::from_secs(30)).await;
        let left = self.line.cut().map(|node| node.status().leases);
        if left != Some(0) {
            self.book.broken("liveness", self.now(), &format!("{left:?} leases outlive their TTL by far"));
        }
        self.read_log("at the end").await;
        self.book.close(self.faults)
    }

    fn operator(&self) -> Operator {
        Operator {
            resources: resources(),
            line: self.line.clone(),
            dice: self.dice.fork(),
            book: self.book.clone(),
            origin: self.origin,
            until: self.plan.length,
            free: self.plan.forced_ends,
        }
    }

    fn person(&self, number: usize) -> Person {
        Person {
            number,
            resources: resources(),
            line: self.line.clone(),
            dice: self.dice.fork(),
            book: self.book.clone(),
            origin: self.origin,
            rate: self.dice.rate(),
            until: self.plan.length,
        }
    }

    async fn start(&mut self) {
        let environment = Environment {
            clock: Arc::new(BentClock { origin: self.origin, rate: self.dice.rate() }),
            entropy: Arc::new(self.dice.fork()),
            disk: Arc::new(self.disk.attach()),
            workers: Workers::Tasks,
            // Snapshots are taken and the log is dropped every few hundred entries, so that faults meet them too.
            tuning: Tuning { snapshot_log_bytes: 60_000, ..self.plan.tuning },
            network: Arc::new(Nowhere),
            place: Place::default(),
        };
        let node = match Node::open(environment).await {
            Ok((node, _)) => node,
            Err(error) => return self.book.broken("S10", self.now(), &format!("the node does not start: {error}")),
        };
        match tokio::time::timeout(Duration::from_secs(20), node.ready()).await {
            Ok(Ok(())) => {
                self.judge_start(&node);
                self.line.connect(node);
            }
            Ok(Err(why)) => self.book.broken("liveness", self.now(), &format!("the node stopped at once: {why}")),
            Err(_) => self.book.broken("liveness", self.now(), "the node does not lead within 20 s"),
        }
        self.book.note(self.now(), "the node is up");
    }

    /// Does the next evil thing.
    async fn hurt(&mut self) {
        match self.dice.between(0, 5) {
            0 => self.cut_power().await,
            1 => self.kill().await,
            2 => self.pause().await,
            _ => {
                let stall = if self.dice.one_in(3) { self.dice.ms(1_000, 8_000) } else { self.dice.ms(20, 700) };
                self.faults[3] += 1;
                self.slowness.stall_next(stall);
                self.book.note(self.now(), &format!("the next sync takes {stall:?}"));
            }
        }
    }

    async fn cut_power(&mut self) {
        self.faults[0] += 1;
        if self.dice.one_in(2) {
            // In the middle of a sync, so that something is written and not yet durable.
            self.slowness.stall_next(Duration::from_secs(2));
            sleep(self.dice.ms(300, 1_500)).await;
        }
        self.read_log("before the power cut").await;
        let dice = self.dice.clone();
        let gone = self.line.cut();
        self.disk.crash(&mut |n| dice.next() % n);
        self.book.note(self.now(), "the power is cut");
        self.restart(gone).await;
    }

    async fn kill(&mut self) {
        self.faults[1] += 1;
        let gone = self.line.cut();
        self.disk.kill();
        self.book.note(self.now(), "the process is killed");
        self.restart(gone).await;
    }

    async fn restart(&mut self, gone: Option<Node>) {
        if let Some(gone) = gone {
            tokio::spawn(async move { gone.stop().await });
        }
        sleep(self.dice.ms(1, 9_000)).await;
        self.read_log("before the start").await;
        self.start().await;
    }

    /// The whole machine stands still while time goes on, and then finds everything due at once.
    async fn pause(&mut self) {
        self.faults[2] += 1;
        let time = self.dice.ms(300, 12_000);
        self.book.note(self.now(), &format!("everything stands still for {time:?}"));
        tokio::time::advance(time).await;
    }

    /// Reads the log from a copy of the disk: one term and index never have two contents.
    async fn read_log(&self, when: &str) {
        let copy = MemoryDisk::new();
        for name in self.disk.list().expect("the operator sees the disk") {
            copy.put(&name, &self.disk.bytes(&name).expect("a listed file can be read"));
        }
        if self.disk.list().is_ok_and(|names| names.iter().any(|name| name.starts_with("snapshot-"))) {
            self.book.note(self.now(), "there is a snapshot");
        }
        let (log, recovered) = match Log::open(Arc::new(copy), LogOptions::default()).await {
            Ok(opened) => opened,
            Err(error) => return self.book.broken("S15", self.now(), &format!("{when} the log is refused: {error}")),
        };
        let reader = log.reader();
        for location in recovered.entries {
            match reader.read(&location) {
                Ok(bytes) => {
                    let content = xxhash_rust::xxh3::xxh3_64(&bytes);
                    self.book.entry(self.now(), location.term, location.index, content);
                }
                Err(error) => self.book.broken("S15", self.now(), &format!("{when} an entry is refused: {error}")),
            }
        }
    }

    /// A node that starts has every lease it had, with the deadline it had.
    fn judge_start(&mut self, node: &Node) {
        let deadlines = self.deadlines.clone();
        let now = self.now();
        let judge = |ledger: &Ledger| {
            for (lease, deadline) in deadlines {
                match (ledger.lease(lease), ledger.ended_lease(lease)) {
                    (Some(living), _) if living.deadline().millis() < deadline => {
                        self.book.broken("S3", now, &format!("lease {lease} came back with an earlier deadline"));
                    }
                    (None, Some(ended)) if ended.how == End::Expired && ended.when.millis() < deadline => {
                        self.book.broken("S3", now, &format!("lease {lease} expired before its deadline"));
                    }
                    (Some(_), _) | (None, Some(_)) => {}
                    (None, None) => self.book.broken("S10", now, &format!("lease {lease} is gone without a trace")),
                }
            }
            ledger.now().millis()
        };
        let service_ms = node.read_stale(judge);
        if service_ms < self.now_ms {
            self.book.broken("S3", now, "service time went back over what was acknowledged");
        }
    }

    /// Looks at what the ledger did since the last look.
    fn judge(&mut self) {
        let Some(node) = self.line.cut() else { return };
        let at = self.now();
        let (events, ledger_now, deadlines) = node.read_stale(|ledger| {
            let events = ledger.events_after(self.judged).map(|events| events.cloned().collect::<Vec<Event>>());
            let deadlines = ledger.leases_from(None).map(|(id, lease)| (id, lease.deadline().millis())).collect();
            (events, ledger.now().millis(), deadlines)
        });
        match events {
            Ok(events) => events.iter().for_each(|event| self.judge_event(event, at)),
            Err(_) => self.book.broken("S13", at, "events were dropped that nobody had looked at"),
        }
        // What was applied was acknowledged by the disk, so it must be there after whatever comes.
        self.now_ms = ledger_now;
        self.deadlines = deadlines;
        self.line.connect(node);
    }

    fn judge_event(&mut self, event: &Event, at: Duration) {
        let place = (event.revision, event.n);
        if place <= self.judged {
            self.book.broken("S13", at, "events came twice or out of order");
        }
        self.judged = place;
        if let Happening::Seated { fence, resource, .. } = &event.what {
            if fence.number() <= self.fence {
                self.book.broken("S5", at, &format!("{resource} was seated with fence {fence} after {}", self.fence));
            }
            self.fence = fence.number();
        }
        if let Happening::Ended { lease, how, .. } = &event.what {
            let known = self.deadlines.iter().find(|(id, _)| id == lease);
            let early = known.is_some_and(|(_, deadline)| event.at.millis() < *deadline);
            if *how == End::Expired && early {
                self.book.broken("S3", at, &format!("lease {lease} expired before its deadline"));
            }
        }
        self.book.note(at, &format!("event {}.{} {:?}", event.revision.0, event.n, event.what));
    }
}
