//! What the node measures about itself, as OpenMetrics text. No label carries a word of a client's, so the number of
//! series is fixed whatever is asked; `docs/metrics.md` says what each of them means.

mod deeds;
mod histogram;
mod requests;

pub(crate) use deeds::{Deeds, HEALTHS, health_at};
pub(crate) use requests::{Asked, Call, Door, OK};

use crate::clock::Clock;
use deeds::{ENDS, RESULTS};
use histogram::{Histogram, Scale};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use requests::{Counts, Requests, Times};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tenure_core::{Moment, Revision};

/// From half a millisecond to the longest that anybody waits for an answer, in nanoseconds.
const SECONDS: Scale = Scale {
    bounds: &[
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
        10_000_000_000,
        30_000_000_000,
    ],
    to_one: 1_000_000_000,
};

/// Around the promise of 100 ms and the tick of 200 ms, in milliseconds.
const LAG: Scale =
    Scale { bounds: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000], to_one: 1_000 };

/// By tenths of a TTL, in thousandths, as the ledger counts them.
const SLACK: Scale = Scale { bounds: &[0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000], to_one: 1_000 };

/// Up to what one entry may hold.
const BATCH: Scale = Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192], to_one: 1 };

type Seconds = Gauge<f64, AtomicU64>;
type Number = Gauge<u64, AtomicU64>;
type Label = [(&'static str, &'static str); 1];

/// What a node measures. Clones are the same.
#[derive(Clone)]
pub(crate) struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    registry: Registry,
    counted: Counted,
    shown: Shown,
}

/// What is counted as it happens.
struct Counted {
    requests: Requests,
    expiry_lag: Histogram,
    renewal_slack: Histogram,
    fsync: Histogram,
    batch: Histogram,
    log_bytes: Counter,
    grants: Counter,
    renewals: [Counter; RESULTS.len()],
    ends: [Counter; ENDS.len()],
    registrations: Counter,
    deregistrations: [Counter; ENDS.len()],
    health_changes: [Counter; HEALTHS.len()],
    suspects: Counter,
    audit_lines_lost: Counter,
    watchers: Gauge,
}

/// What is read when somebody looks, and not counted before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) leads: bool,
    pub(crate) revision: Revision,
    pub(crate) leases: usize,
    pub(crate) claims: usize,
    pub(crate) waiters: usize,
    pub(crate) resources: usize,
    pub(crate) keys: usize,
    /// What leases, claims, defined resources and instances take.
    pub(crate) ledger_bytes: usize,
    pub(crate) services: usize,
    /// Instances by how well they are.
    pub(crate) instances: [usize; HEALTHS.len()],
    /// Orders that wait in the queues of the proposer.
    pub(crate) queued: usize,
    pub(crate) now: Moment,
    pub(crate) dropped: Duration,
    pub(crate) cluster: Cluster,
}

/// How the node stands among others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) term: u64,
    pub(crate) knows_leader: bool,
    pub(crate) members: usize,
    /// Entries in its log that it has not applied.
    pub(crate) apply_lag: u64,
    /// Entries that the slowest follower does not have, if it leads.
    pub(crate) follower_lag: u64,
    pub(crate) log_entries: u64,
    pub(crate) log_bytes: u64,
    pub(crate) snapshot: u64,
}

/// The gauges in which levels are shown.
#[derive(Default)]
struct Shown {
    leader: Number,
    revision: Number,
    leases: Number,
    claims: Number,
    waiters: Number,
    resources: Number,
    keys: Number,
    ledger_bytes: Number,
    services: Number,
    instances: Family<Label, Number>,
    certificate_expiry: Family<Label, Number>,
    queue: Number,
    term: Number,
    leader_known: Number,
    members: Number,
    apply_lag: Number,
    follower_lag: Number,
    log_entries: Number,
    log_held: Number,
    snapshot: Number,
    service_time: Seconds,
    dropped: Seconds,
    monotonic: Seconds,
}

impl Metrics {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let mut registry = Registry::with_prefix("tenure");
        registry.register("build", "The build that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let (shown, counted) = (Shown::register(&mut registry), Counted::register(&mut registry));
        Self { inner: Arc::new(Inner { clock, registry, counted, shown }) }
    }

    /// A request begins. What is returned is told how it ended.
    pub(crate) fn asked(&self, door: Door, call: Call) -> Asked<'_> {
        Asked::begin(self, door, call)
    }

    /// Somebody watches, for as long as what is returned is kept.
    pub(crate) fn watching(&self) -> Watching {
        self.inner.counted.watchers.inc();
        Watching { watchers: self.inner.counted.watchers.clone() }
    }

    /// An entry with commands was proposed.
    pub(crate) fn gathered(&self, commands: usize) {
        self.inner.counted.batch.observe(commands as u64);
    }

    /// An entry that this leader proposed was applied.
    pub(crate) fn landed(&self, deeds: &Deeds) {
        self.inner.counted.grants.inc_by(deeds.grants);
        add(&self.inner.counted.ends, &deeds.ends);
        self.inner.counted.registrations.inc_by(deeds.registrations);
        add(&self.inner.counted.deregistrations, &deeds.deregistrations);
        add(&self.inner.counted.health_changes, &deeds.health_changes);
        self.inner.counted.suspects.inc_by(deeds.suspects);
        add(&self.inner.counted.renewals, &deeds.renewals);
        deeds.timing.late_ms.iter().for_each(|late_ms| self.inner.counted.expiry_lag.observe(*late_ms));
        let slack = &deeds.timing.slack;
        self.inner.counted.renewal_slack.add(&slack.tenths, slack.thousandths);
    }

    /// A certificate is valid until then, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, which: &'static str, at: u64) {
        self.inner.shown.certificate_expiry.get_or_create(&[("which", which)]).set(at);
    }

    /// The wall clock, for people.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.inner.clock.wall_ms()
    }

    /// Lines of the audit log could not be written.
    pub(crate) fn audit_lines_lost(&self, lines: u64) {
        self.inner.counted.audit_lines_lost.inc_by(lines);
    }

    /// A batch is on the disk.
    pub(crate) fn written(&self, bytes: usize, took: Duration) {
        self.inner.counted.log_bytes.inc_by(bytes as u64);
        self.inner.counted.fsync.observe_time(took);
    }

    /// The monotonic time, to measure from.
    pub(crate) fn now(&self) -> Duration {
        self.inner.clock.monotonic()
    }

    /// Everything, as OpenMetrics text.
    pub(crate) fn render(&self, levels: Levels) -> String {
        self.inner.shown.show(levels, self.now());
        let mut rendered = String::new();
        text::encode(&mut rendered, &self.inner.registry).expect("a string takes whatever is written");
        rendered
    }

    fn requests(&self) -> &Requests {
        &self.inner.counted.requests
    }
}

impl Counted {
    fn register(registry: &mut Registry) -> Self {
        let family = Family::<Label, Counter>::default;
        let (renewals, ends, deregistrations, health_changes) = (family(), family(), family(), family());
        let counted = Self {
            requests: Requests::new(),
            expiry_lag: Histogram::new(LAG),
            renewal_slack: Histogram::new(SLACK),
            fsync: Histogram::new(SECONDS),
            batch: Histogram::new(BATCH),
            log_bytes: Counter::default(),
            grants: Counter::default(),
            renewals: RESULTS.map(|result| renewals.get_or_create_owned(&[("result", result)])),
            ends: ENDS.map(|how| ends.get_or_create_owned(&[("how", how)])),
            registrations: Counter::default(),
            deregistrations: ENDS.map(|how| deregistrations.get_or_create_owned(&[("how", how)])),
            health_changes: HEALTHS.map(|health| health_changes.get_or_create_owned(&[("health", health)])),
            suspects: Counter::default(),
            audit_lines_lost: Counter::default(),
            watchers: Gauge::default(),
        };
        let help = "How much later than deadline and grace a lease was ended, in service time";
        registry.register_with_unit("expiry_lag", help, Unit::Seconds, counted.expiry_lag.clone());
        let help = "What was left of a lease when it was renewed, as a part of its TTL";
        registry.register("renewal_slack_ratio", help, counted.renewal_slack.clone());
        registry.register("renewals", "Renewals of single leases, by what they came to", renewals);
        registry.register("grants", "Leases that began", counted.grants.clone());
        registry.register("lease_ends", "Leases that ended, by how", ends);
        registry.register("registrations", "Instances that were registered", counted.registrations.clone());
        registry.register("deregistrations", "Instances that are gone, by how they ended", deregistrations);
        let help = "Changes of health, by what is shown of the instance since";
        registry.register("health_changes", help, health_changes);
        let help = "Instances that were kept because too many of their cohort fell silent at once";
        registry.register("suspects", help, counted.suspects.clone());
        let help = "Lines of the audit log that could not be written";
        registry.register("audit_lines_lost", help, counted.audit_lines_lost.clone());
        let help = "How long it took to write one batch of the log and to sync it";
        registry.register_with_unit("log_fsync", help, Unit::Seconds, counted.fsync.clone());
        registry.register_with_unit("log", "Bytes written to the log", Unit::Bytes, counted.log_bytes.clone());
        let help = "Commands in one entry of the log; ticks are not counted";
        registry.register("batch_size", help, counted.batch.clone());
        registry.register("watchers", "Watches that are open", counted.watchers.clone());
        let help = "Requests that were answered, by door, call and code";
        registry.register("requests", help, Counts(counted.requests.clone()));
        let help = "How long requests took, by door and call";
        registry.register_with_unit("request", help, Unit::Seconds, Times(counted.requests.clone()));
        counted
    }
}

impl Shown {
    fn register(registry: &mut Registry) -> Self {
        let shown = Self::default();
        let numbers = [
            ("leader", "1 if this node leads and grants, 0 if not", &shown.leader),
            ("revision", "The count of visible changes", &shown.revision),
            ("leases", "Living leases", &shown.leases),
            ("claims", "Claims of living leases, holding and waiting", &shown.claims),
            ("waiters", "Acquires that stand in line", &shown.waiters),
            ("resources", "Resources that are claimed, vacating or defined", &shown.resources),
            ("keys", "Keys", &shown.keys),
            ("ledger_bytes", "Bytes of leases, claims and instances, about", &shown.ledger_bytes),
            ("services", "Services with instances", &shown.services),
            ("queue_commands", "Commands that wait for the next entry", &shown.queue),
            ("term", "The newest term that this node knows", &shown.term),
            ("leader_known", "1 if this node leads or knows who does", &shown.leader_known),
            ("members", "Nodes that belong to the cluster", &shown.members),
            ("apply_lag_entries", "Entries in the log that this node has not applied", &shown.apply_lag),
            ("follower_lag_entries", "Entries that the slowest follower does not have", &shown.follower_lag),
            ("log_entries", "Entries that the log holds", &shown.log_entries),
            ("log_held_bytes", "Bytes of the entries that the log holds", &shown.log_held),
            ("snapshot_index", "The newest entry in the snapshot", &shown.snapshot),
        ];
        for (name, help, gauge) in numbers {
            registry.register(name, help, gauge.clone());
        }
        registry.register("instances", "Instances, by how well they are", shown.instances.clone());
        let help = "Until when a certificate is valid, in seconds since 1970";
        let expiry = shown.certificate_expiry.clone();
        registry.register_with_unit("certificate_expiry_timestamp", help, Unit::Seconds, expiry);
        let times = [
            ("service_time", "The time that leases count in", &shown.service_time),
            ("service_time_dropped", "Service time that this leadership has dropped in stalls", &shown.dropped),
            ("monotonic", "The monotonic time of the process, to compare service time with", &shown.monotonic),
        ];
        for (name, help, gauge) in times {
            registry.register_with_unit(name, help, Unit::Seconds, gauge.clone());
        }
        shown
    }

    fn show(&self, levels: Levels, monotonic: Duration) {
        self.leader.set(levels.leads.into());
        self.revision.set(levels.revision.0);
        self.leases.set(levels.leases as u64);
        self.claims.set(levels.claims as u64);
        self.waiters.set(levels.waiters as u64);
        self.resources.set(levels.resources as u64);
        self.keys.set(levels.keys as u64);
        self.ledger_bytes.set(levels.ledger_bytes as u64);
        self.services.set(levels.services as u64);
        for (health, count) in HEALTHS.iter().zip(levels.instances) {
            self.instances.get_or_create(&[("health", *health)]).set(count as u64);
        }
        self.queue.set(levels.queued as u64);
        self.term.set(levels.cluster.term);
        self.leader_known.set(levels.cluster.knows_leader.into());
        self.members.set(levels.cluster.members as u64);
        self.apply_lag.set(levels.cluster.apply_lag);
        self.follower_lag.set(levels.cluster.follower_lag);
        self.log_entries.set(levels.cluster.log_entries);
        self.log_held.set(levels.cluster.log_bytes);
        self.snapshot.set(levels.cluster.snapshot);
        self.service_time.set(Duration::from_millis(levels.now.millis()).as_secs_f64());
        self.dropped.set(levels.dropped.as_secs_f64());
        self.monotonic.set(monotonic.as_secs_f64());
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct Watching {
    watchers: Gauge,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchers.dec();
    }
}

fn add(counters: &[Counter], counts: &[u64]) {
    for (counter, count) in counters.iter().zip(counts).filter(|(_, count)| **count > 0) {
        counter.inc_by(*count);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
