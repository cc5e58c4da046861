//! One simulated run: what it is to be like, what it came to, and what all runs have in common.

use crate::book::{Book, Violation};
use crate::client::Client;
use crate::dice::Dice;
use crate::fault::{Fault, Tally};
use crate::holder::Person;
use crate::machine::Site;
use crate::many::Many;
use crate::net::Net;
use crate::one::One;
use crate::operator::Operator;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Once;
use std::time::Duration;
use tenure_core::{Free, Name};
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
    /// Whether to print the trace.
    pub verbose: bool,
}

impl Plan {
    /// A sound service of so many nodes.
    pub fn sound(seed: u64, nodes: usize, length: Duration) -> Self {
        let (tuning, forced_ends) = (Tuning::default(), Free::WhenVacated);
        Self { seed, nodes, length, tuning, forced_ends, disks_lie: false, verbose: false }
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

const HOLDERS: usize = 5;

/// How long anybody may take to end what it was doing, once everything is healed.
const PATIENCE: Duration = Duration::from_secs(120);

fn resources() -> Vec<Name> {
    let names = ["db/leader", "jobs/nightly", "gpu/0"];
    names.iter().map(|name| Name::parse(name).expect("this is a name")).collect()
}

/// What every run has: a plan, a site for its machines, and people.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) site: Site,
}

impl Stage {
    fn new(plan: Plan) -> Self {
        let dice = Dice::new(plan.seed);
        let (book, tally) = (Book::new(plan.verbose), Tally::default());
        let net = Net::new(plan.nodes, dice.fork(), tally.clone());
        #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
        let origin = Instant::now();
        let site = Site { book, net, tally, origin, tuning: plan.tuning, disks_lie: plan.disks_lie };
        Self { plan, dice, site }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.site.net.clone(), self.dice.fork())
    }

    pub(crate) fn spawn_operator(&self) -> JoinHandle<()> {
        let operator = Operator {
            resources: resources(),
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
            resources: resources(),
            client: self.client(),
            dice: self.dice.fork(),
            book: self.site.book.clone(),
            origin: self.site.origin,
            rate: self.dice.rate(),
            until: self.plan.length,
        };
        (0..HOLDERS).map(|number| tokio::spawn(person(number).live())).collect()
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
        self.site.book.close(&self.site.tally)
    }
}
