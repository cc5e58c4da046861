//! One simulated run: what it is to be like, what it came to, and what all runs have in common.

use crate::book::{Book, Extremes, Violation};
use crate::clerk::Clerk;
use crate::client::Client;
use crate::dice::Dice;
use crate::fault::{Fault, Tally};
use crate::ground::Lie;
use crate::holder::Person;
use crate::keepers;
use crate::machine::Site;
use crate::many::Many;
use crate::mix::{self, Mix};
use crate::net::Net;
use crate::one::One;
use crate::operator::Operator;
use crate::recorder::{Checked, Recorder};
use crate::scribe::Scribe;
use crate::watcher::Watchers;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tenure_core::Free;
use tenure_server::Tuning;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// What a run is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Draws everything.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// How long they are hurt, in simulated time.
    pub length: Duration,
    /// Values that break promises may be planted here, to see that they are caught.
    pub tuning: Tuning,
    /// Whether who ends others' claims waits for what was promised to them. `Now` breaks S2 and must be caught.
    pub forced_ends: Free,
    /// Whether disks say now and then that something is synced when it is not, which must be caught.
    pub disks_lie: bool,
    /// A fault of the service that clients meet, which must be caught.
    pub plant: Option<Plant>,
    /// Whether clients use whatever the seed draws, and their messages are late, lost and repeated as it draws. Else they claim
    /// one resource at a time, as in seeds of old that found something.
    pub swarm: bool,
    /// Whether there are programs with the keeper of the Rust client, too.
    pub keepers: bool,
    /// Whether to print the trace.
    pub verbose: bool,
}

/// A fault of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Certain reads are answered from the local copy, without asking the others.
    LocalReads,
    /// Now and then a write is acknowledged and not done.
    DroppedWrites,
    /// Now and then a write is proposed twice.
    RepeatedProposals,
    /// Disks that fail say so to nobody: a write is lost, and the node goes on.
    DeafToDisks,
    /// Cancels of keepers have no number, so that a late one ends what was claimed since.
    CancelsByName,
    /// Neither cancels nor acquires of keepers have numbers, so that a late acquire takes again.
    RequestsByName,
    /// Renewals tell keepers only of claims that were ended by force.
    ForcedLossesOnly,
    /// Watches of events that resume leave out the revision after the one at which they stopped.
    SkippingWatches,
    /// Keepers count from when the answer to a renewal came, not from when it was sent.
    CountsFromReceipt,
}

impl Plan {
    /// A sound service of so many nodes.
    pub fn sound(seed: u64, nodes: usize, length: Duration) -> Self {
        let (tuning, forced_ends) = (Tuning::default(), Free::WhenVacated);
        let keepers = seed.is_multiple_of(KEEPERS_EVERY);
        Self {
            seed,
            nodes,
            length,
            tuning,
            forced_ends,
            disks_lie: false,
            plant: None,
            swarm: true,
            keepers,
            verbose: false,
        }
    }

    /// The same, with clients that claim one resource at a time.
    pub fn plain(seed: u64, nodes: usize, length: Duration) -> Self {
        Self { swarm: false, keepers: false, ..Self::sound(seed, nodes, length) }
    }
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
    /// Harm that was done.
    pub faults: BTreeMap<Fault, u64>,
    /// The longest and the most of what has a bound.
    pub extremes: Extremes,
    /// What the checks of the clients' histories came to.
    pub checked: Checked,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
}

thread_local! {
    /// Panics on this thread. One that dies inside a task would otherwise be a silence of that node, and nothing else.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            before(panic);
        }));
    });
    PANICS.with(|panics| panics.set(0));
}

/// Runs one plan in a runtime of its own, on paused time.
pub fn run(plan: Plan) -> Report {
    count_panics();
    let mut report = run_on_paused_time(plan);
    let panics = PANICS.with(Cell::get);
    if panics > 0 {
        report.violations.push(Violation { promise: "sim", what: format!("{panics} tasks panicked") });
    }
    report
}

fn run_on_paused_time(plan: Plan) -> Report {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&plan.seed.to_le_bytes()));
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without I/O needs nothing");
    runtime.block_on(async {
        let stage = Stage::new(plan);
        match plan.nodes {
            1 => One::new(stage).run().await,
            _ => Many::new(stage).run().await,
        }
    })
}

/// One seed in so many has clients with keepers, so that the others take as long as before.
const KEEPERS_EVERY: u64 = 5;

const HOLDERS: usize = 5;
const SCRIBES: u64 = 2;
const CLERKS: u64 = 2;

/// How long anybody may take to end what it was doing, once everything is healed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What every run has: a plan, a site for its machines, and people.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) site: Site,
    pub(crate) mix: Mix,
    recorder: Recorder,
    /// Draws for what runs of old did not have.
    more: Dice,
    keepers: Dice,
    /// Whether servers are hurt so seldom that most of the trouble is between them and the keepers.
    is_gentle: bool,
}

impl Stage {
    pub(crate) fn new(plan: Plan) -> Self {
        let dice = Dice::new(plan.seed);
        let (book, tally) = (Book::new(plan.verbose), Tally::default());
        let net = Net::new(plan.nodes, dice.fork(), tally.clone());
        #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
        let origin = Instant::now();
        let lie = match plan.plant {
            Some(Plant::DeafToDisks) => Some(Lie::AllIsWell),
            _ => plan.disks_lie.then_some(Lie::Synced),
        };
        let site = Site { book, net, tally, origin, tuning: plan.tuning, lie };
        let more = Dice::new(!plan.seed);
        let mix = if plan.swarm { Mix::draw(&more) } else { Mix::PLAIN };
        if plan.swarm {
            site.note(&format!("{mix:?}"));
        }
        let keepers = Dice::new(plan.seed.rotate_left(32));
        let is_gentle = plan.keepers && !keepers.one_in(3);
        Self { plan, dice, site, mix, recorder: Recorder::new(origin), more, keepers, is_gentle }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_by(self.dice.fork())
    }

    fn client_by(&self, dice: Dice) -> Client {
        Client::new(self.site.net.clone(), dice, self.recorder.clone(), self.mix, self.plan.plant)
    }

    pub(crate) fn spawn_operator(&self) -> JoinHandle<()> {
        let resources = if self.plan.swarm { mix::resources() } else { mix::locks() };
        let operator = Operator {
            resources,
            client: self.client(),
            dice: self.dice.fork(),
            book: self.site.book.clone(),
            origin: self.site.origin,
            until: self.plan.length,
            free: self.plan.forced_ends,
        };
        tokio::spawn(operator.live())
    }

    pub(crate) fn spawn_holders(&self) -> Vec<JoinHandle<()>> {
        let person = |number| Person {
            number,
            resources: mix::locks(),
            client: self.client(),
            dice: self.dice.fork(),
            mix: self.mix,
            swarms: self.plan.swarm,
            epoch: AtomicU64::new(1),
            book: self.site.book.clone(),
            origin: self.site.origin,
            rate: self.dice.rate(),
            until: self.plan.length,
        };
        let mut all: Vec<_> = (0..HOLDERS).map(|number| tokio::spawn(person(number).live())).collect();
        let scribes = if self.mix.keys > 0 { SCRIBES } else { 0 };
        all.extend((1..=scribes).map(|number| tokio::spawn(self.scribe(number).live())));
        let clerks = if self.mix.given + self.mix.instances > 0 { CLERKS } else { 0 };
        all.extend((1..=clerks).map(|number| tokio::spawn(self.clerk(number).live())));
        if self.plan.keepers {
            let meddles = self.client_by(self.keepers.fork());
            all.extend(keepers::spawn(&self.plan, &self.site, self.mix, &self.keepers, meddles));
        }
        all
    }

    /// Clients that watch.
    pub(crate) fn spawn_watchers(&self) -> Option<Watchers> {
        let dice = Dice::new(self.plan.seed.rotate_left(16));
        self.plan.swarm.then(|| Watchers::spawn(&self.site, &dice, self.plan.plant))
    }

    fn clerk(&self, number: u64) -> Clerk {
        Clerk {
            number,
            client: self.client_by(self.more.fork()),
            dice: self.more.fork(),
            mix: self.mix,
            origin: self.site.origin,
            until: self.plan.length,
        }
    }

    /// How much longer than usual the servers are left in peace.
    pub(crate) fn respite(&self) -> Duration {
        if self.is_gentle { self.keepers.ms(5_000, 25_000) } else { Duration::ZERO }
    }

    /// Whether a disk fails next.
    pub(crate) fn fails_disk(&self) -> bool {
        self.mix.disks > 0 && self.more.one_in(16 / self.mix.disks)
    }

    fn scribe(&self, number: u64) -> Scribe {
        Scribe {
            number,
            client: self.client_by(self.more.fork()),
            dice: self.more.fork(),
            mix: self.mix,
            origin: self.site.origin,
            until: self.plan.length,
        }
    }

    /// Healed: everybody must come to an end of what they were doing.
    pub(crate) async fn await_holders(&self, holders: Vec<JoinHandle<()>>) {
        for (number, holder) in holders.into_iter().enumerate() {
            match timeout(PATIENCE, holder).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => self.site.broken("sim", &format!("holder {number} panicked")),
                Err(_) => self.site.broken("liveness", &format!("holder {number} is stuck after healing")),
            }
        }
    }

    pub(crate) fn close(self) -> Report {
        let (checked, contradictions) = self.recorder.check();
        for contradiction in contradictions {
            if self.plan.verbose {
                println!("{}", contradiction.history);
            }
            self.site.broken(contradiction.promise, &contradiction.what);
        }
        self.site.book.judge_extremes(self.site.now());
        Report { checked, ..self.site.book.close(&self.site.tally) }
    }
}
