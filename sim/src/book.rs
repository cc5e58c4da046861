//! What was observed, and which promise it breaks.

use crate::fault::Tally;
use crate::mix::{capacity, sit_together};
use crate::recorder::Checked;
use crate::run::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_core::{Fence, LeaseId, Ledger, Mode};
use xxhash_rust::xxh3::Xxh3;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, as docs/guarantees.md numbers them.
    pub promise: &'static str,
    /// What was seen, and when.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

/// The book of one run. Clones write into the same book.
#[derive(Clone)]
pub(crate) struct Book {
    pages: Arc<Mutex<Pages>>,
}

/// What a holder believes of a resource: how it holds it, and until when in true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub(crate) holder: usize,
    pub(crate) mode: Mode,
    pub(crate) until: Duration,
}

struct Pages {
    trace: Xxh3,
    lines: u64,
    violations: Vec<Violation>,
    /// Who believes to hold what, until when in true time.
    beliefs: BTreeMap<String, Vec<Belief>>,
    fences: BTreeSet<u64>,
    grants: u64,
    /// Claims and leases that were ended by force.
    forced: u64,
    /// The bytes of every entry ever written, by term and index.
    entries: BTreeMap<(u64, u64), u64>,
    /// Leases that somebody was told of, and fences that somebody was told are given back.
    acknowledged: BTreeSet<LeaseId>,
    released: BTreeSet<Fence>,
    /// The newest entry that any node has applied.
    applied: u64,
    extremes: Extremes,
    verbose: bool,
}

/// The extremes of a run, each of which has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// The most work of one entry, in steps of the ledger.
    pub steps: usize,
    /// The longest that a lease outlived its deadline, in milliseconds of service time.
    pub late_ms: u64,
    /// The longest that there was no leader when all was healed, in milliseconds.
    pub election_ms: u64,
}

impl Extremes {
    /// What no run may go beyond. These few clients make entries of about a hundred steps. Between two stamps service time
    /// moves by a tick, or half a second after a stall, and a stamp waits for what is under way. An election takes up to 1.5
    /// timeouts, and again if its votes were split.
    pub const BOUNDS: Self = Self { steps: 500, late_ms: 1_000, election_ms: 5_000 };

    /// Takes in the extremes of another run, or of a node.
    pub fn merge(&mut self, other: &Self) {
        self.steps = self.steps.max(other.steps);
        self.late_ms = self.late_ms.max(other.late_ms);
        self.election_ms = self.election_ms.max(other.election_ms);
    }

    /// What is beyond its bound.
    fn beyond(&self) -> Vec<String> {
        let Self { steps, late_ms, election_ms } = *self;
        let bounds = Self::BOUNDS;
        let each = [
            (steps > bounds.steps, format!("an entry took {steps} steps, more than {}", bounds.steps)),
            (late_ms > bounds.late_ms, format!("a lease ended {late_ms} ms late, more than {}", bounds.late_ms)),
            (
                election_ms > bounds.election_ms,
                format!("nobody led for {election_ms} ms, more than {}", bounds.election_ms),
            ),
        ];
        each.into_iter().filter(|(is_beyond, _)| *is_beyond).map(|(_, what)| what).collect()
    }
}

impl Book {
    pub(crate) fn new(verbose: bool) -> Self {
        let pages = Pages {
            trace: Xxh3::new(),
            lines: 0,
            violations: Vec::new(),
            beliefs: BTreeMap::new(),
            fences: BTreeSet::new(),
            grants: 0,
            forced: 0,
            entries: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            released: BTreeSet::new(),
            applied: 0,
            extremes: Extremes::default(),
            verbose,
        };
        Self { pages: Arc::new(Mutex::new(pages)) }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("nobody panics while writing the book")
    }

    /// Writes down what happened. Two runs of one seed must write the same lines.
    pub(crate) fn note(&self, at: Duration, line: &str) {
        let mut pages = self.pages();
        let line = format!("{:>9.3} {line}\n", at.as_secs_f64());
        if pages.verbose {
            print!("{line}");
        }
        pages.trace.update(line.as_bytes());
        pages.lines += 1;
    }

    pub(crate) fn broken(&self, promise: &'static str, at: Duration, what: &str) {
        self.note(at, &format!("BROKEN {promise} {what}"));
        let what = format!("at {:.3} s: {what}", at.as_secs_f64());
        self.pages().violations.push(Violation { promise, what });
    }

    /// A holder was told that it holds a resource until then. Nobody may believe so who cannot hold it beside.
    pub(crate) fn believes(&self, belief: Belief, resource: &str, at: Duration) {
        let mut beliefs = self.pages().beliefs.remove(resource).unwrap_or_default();
        beliefs.retain(|other| other.until > at || other.holder == belief.holder);
        let own = beliefs.iter().position(|other| other.holder == belief.holder).map(|own| beliefs.remove(own));
        let modes: Vec<Mode> = beliefs.iter().map(|other| other.mode).chain([belief.mode]).collect();
        if !sit_together(&modes, capacity(resource)) {
            let what = format!("{resource}: {} was seated while others hold it: {beliefs:?}", belief.holder);
            self.broken("S2", at, &what);
        }
        let until = own.map_or(belief.until, |own| own.until.max(belief.until));
        beliefs.push(Belief { until, ..belief });
        self.pages().beliefs.insert(resource.to_owned(), beliefs);
    }

    /// A holder stopped by itself.
    pub(crate) fn gives_up(&self, holder: usize, resource: &str) {
        if let Some(beliefs) = self.pages().beliefs.get_mut(resource) {
            beliefs.retain(|belief| belief.holder != holder);
        }
    }

    /// A claim was seated with this fence for the first time that anybody heard of it.
    pub(crate) fn fence(&self, at: Duration, fence: u64, resource: &str) {
        let is_new = self.pages().fences.insert(fence);
        if !is_new {
            self.broken("S5", at, &format!("{resource}: fence {fence} was given twice"));
        }
        self.pages().grants += 1;
    }

    /// An entry was seen in the log. One term and index never have two contents.
    pub(crate) fn entry(&self, at: Duration, term: u64, index: u64, content: u64) {
        let before = self.pages().entries.insert((term, index), content);
        if before.is_some_and(|before| before != content) {
            self.broken("S4", at, &format!("entry {index} of term {term} was written twice with different contents"));
        }
    }

    /// So many claims or leases were ended by somebody else's order.
    pub(crate) fn forced(&self, count: u64) {
        self.pages().forced += count;
    }

    /// Somebody was told that this lease lives.
    pub(crate) fn acknowledged(&self, lease: LeaseId) {
        self.pages().acknowledged.insert(lease);
    }

    /// Somebody was told that this was given back.
    pub(crate) fn released(&self, fence: Fence) {
        self.pages().released.insert(fence);
    }

    /// A node was seen that has applied this entry.
    pub(crate) fn saw_applied(&self, index: u64) {
        let mut pages = self.pages();
        pages.applied = pages.applied.max(index);
    }

    /// The newest entry that any node was seen to have applied.
    pub(crate) fn applied(&self) -> u64 {
        self.pages().applied
    }

    /// Something was seen that has a bound.
    pub(crate) fn extremes(&self, seen: &Extremes) {
        self.pages().extremes.merge(seen);
    }

    /// Everything must have kept its bound.
    pub(crate) fn judge_extremes(&self, at: Duration) {
        let extremes = self.pages().extremes;
        for what in extremes.beyond() {
            self.broken("liveness", at, &what);
        }
    }

    /// What was acknowledged so far.
    pub(crate) fn debts(&self) -> Debts {
        let pages = self.pages();
        Debts { leases: pages.acknowledged.clone(), released: pages.released.clone() }
    }

    pub(crate) fn close(&self, tally: &Tally) -> Report {
        let pages = self.pages();
        Report {
            trace: pages.trace.digest(),
            lines: pages.lines,
            grants: pages.grants,
            forced: pages.forced,
            faults: tally.counts(),
            checked: Checked::default(),
            extremes: pages.extremes,
            violations: pages.violations.clone(),
        }
    }
}

/// What was acknowledged before a moment, and must be found in every ledger that is read for certain after it.
pub(crate) struct Debts {
    leases: BTreeSet<LeaseId>,
    released: BTreeSet<Fence>,
}

impl Debts {
    /// What a ledger lacks of it.
    pub(crate) fn unpaid(&self, ledger: &Ledger) -> Vec<String> {
        let is_known = |lease| ledger.lease(lease).is_some() || ledger.ended_lease(lease).is_some();
        let lost = self.leases.iter().filter(|lease| !is_known(**lease));
        let lost = lost.map(|lease| format!("lease {lease} was acknowledged and is not known"));
        let held = ledger.resources_from("").flat_map(|(_, resource)| resource.holders());
        let held = held.filter(|(fence, _)| self.released.contains(fence));
        lost.chain(held.map(|(fence, _)| format!("fence {fence} was given back and is held"))).collect()
    }
}
