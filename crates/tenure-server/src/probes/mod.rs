//! Probes of instances, by the leader. It follows the registry by its events, counts in memory, and orders like everybody
//! else: only what changes goes into the log. It never decides what a finding means for an instance.

mod agenda;
mod allow;
mod ask;
mod follow;
mod score;
mod secured;
#[cfg(test)]
pub(crate) mod tests;

pub use allow::{BadNetwork, Networks};

use crate::limits::{PROBE_LOOKUPS_MAX, PROBE_QUICK, PROBES_LATE_PAUSE, PROBES_QUICK_MAX, PROBES_SLOW_MAX};
use crate::node::Node;
use agenda::{Agenda, following, part};
use ask::{Found, Question};
use score::Score;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Command, Endpoint, Epoch, Finding, Health, InstanceKey, LeaseId, Note, Probe, Revision, SetHealth, Word,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Probes until the node stops, whenever it leads.
pub(crate) async fn probe(node: Node, networks: Networks) {
    let work = async {
        loop {
            let term = node.leads().await;
            Prober::new(node.clone(), networks.clone()).run(term).await;
        }
    };
    tokio::select! {
        () = work => {}
        _ = node.failed() => {}
    }
}

/// What one leadership probes.
struct Prober {
    node: Node,
    networks: Networks,
    agent: Arc<str>,
    /// The numbers of the checks that each instance has.
    instances: HashMap<InstanceKey, Vec<u64>>,
    /// By their numbers.
    checks: HashMap<u64, Watched>,
    last: u64,
    agenda: Agenda,
    /// For targets that answer at once, and for the others: who hangs is in nobody's way but theirs.
    quick: Lane,
    slow: Lane,
    running: JoinSet<(u64, Done)>,
    /// The place in the stream of events up to which it has followed.
    at: (Revision, u32),
    late: Late,
}

/// A check that is probed.
struct Watched {
    instance: InstanceKey,
    lease: LeaseId,
    epoch: Option<Epoch>,
    name: Word,
    endpoint: Endpoint,
    probe: Probe,
    score: Score,
    /// Its last probe took long.
    is_slow: bool,
    /// When it was due last.
    due: Duration,
}

/// So many at once, the others in line.
struct Lane {
    room: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    line: VecDeque<u64>,
}

impl Lane {
    fn new(probes_max: usize) -> Self {
        let (room, lookups) = (Semaphore::new(probes_max), Semaphore::new(PROBE_LOOKUPS_MAX));
        Self { room: Arc::new(room), lookups: Arc::new(lookups), line: VecDeque::new() }
    }
}

/// What came of something that was started for a check.
enum Done {
    Asked { found: Found, was_slow: bool },
    Told,
}

/// Probes that began later than an interval after they were due, those that came to nothing, and when that was last said.
#[derive(Default)]
struct Late {
    count: u64,
    unknown: u64,
    said: Option<Duration>,
}

impl Prober {
    fn new(node: Node, networks: Networks) -> Self {
        let agent = format!("tenure/{} (probe; node {})", env!("CARGO_PKG_VERSION"), node.identity().node);
        Self {
            node,
            networks,
            agent: agent.into(),
            instances: HashMap::new(),
            checks: HashMap::new(),
            last: 0,
            agenda: Agenda::default(),
            quick: Lane::new(PROBES_QUICK_MAX),
            slow: Lane::new(PROBES_SLOW_MAX),
            running: JoinSet::new(),
            at: (Revision(0), 0),
            late: Late::default(),
        }
    }

    /// Probes until the node does not lead in this term any longer. What is under way then is called off.
    async fn run(mut self, term: u64) {
        let mut leading = self.node.consensus().leading();
        let mut revisions = self.node.revisions();
        self.look_at_all().await;
        while *leading.borrow_and_update() == Some(term) {
            self.start();
            let now = self.node.monotonic();
            let nap = self.agenda.next().map(|at| at.saturating_sub(now));
            tokio::select! {
                changed = leading.changed() => if changed.is_err() { return },
                changed = revisions.changed() => match changed {
                    Ok(()) => self.follow().await,
                    Err(_) => return,
                },
                Some(done) = self.running.join_next() => {
                    let (check, done) = done.expect("no probe panics");
                    self.done(check, done);
                }
                () = tokio::time::sleep(nap.unwrap_or_default()), if nap.is_some() => {}
            }
        }
    }

    /// Begins to watch a check, whose first probe is due within `spread`.
    fn add(&mut self, watched: Watched, spread: Duration) -> u64 {
        self.last += 1;
        let due = self.node.monotonic() + part(spread, self.node.draw_number());
        self.agenda.put(due, self.last);
        self.checks.insert(self.last, Watched { due, ..watched });
        self.last
    }

    /// Starts what is due, as far as there is room.
    fn start(&mut self) {
        let now = self.node.monotonic();
        while let Some((_, check)) = self.agenda.take_due(now) {
            if let Some(watched) = self.checks.get(&check) {
                // Where all places are taken by those who hang, whoever was slow once would wait for them: it may try to
                // be quick instead.
                let has_room = self.slow.room.available_permits() > self.slow.line.len();
                let lane = if watched.is_slow && has_room { &mut self.slow } else { &mut self.quick };
                lane.line.push_back(check);
            }
        }
        let aside = self.slow.room.clone();
        for is_slow in [false, true] {
            let lane = if is_slow { &mut self.slow } else { &mut self.quick };
            while !lane.line.is_empty()
                && let Ok(room) = lane.room.clone().try_acquire_owned()
            {
                let check = lane.line.pop_front().expect("it is not empty");
                let Some(watched) = self.checks.get(&check) else { continue };
                self.late.note(watched, now);
                let question = Question {
                    endpoint: watched.endpoint.clone(),
                    probe: watched.probe.clone(),
                    networks: self.networks.clone(),
                    agent: self.agent.clone(),
                };
                let asking = question.ask(lane.lookups.clone());
                let aside = (!is_slow).then(|| aside.clone());
                self.running.spawn(async move {
                    let (found, was_slow) = keep_out_of_the_way(asking, room, aside).await;
                    (check, Done::Asked { found, was_slow })
                });
            }
        }
    }

    fn done(&mut self, check: u64, done: Done) {
        let Some(watched) = self.checks.get_mut(&check) else { return };
        if let Done::Asked { found, was_slow } = done {
            if found == Found::Nothing {
                self.late.note_nothing(self.node.monotonic());
            }
            watched.is_slow = was_slow || watched.is_slow && found == Found::Nothing;
            if let Some(command) = watched.verdict(&self.node, found) {
                let node = self.node.clone();
                self.running.spawn(async move {
                    // If it was not done, the ledger says otherwise than the next result, and it is ordered again.
                    if let Err(error) = node.propose(Command::SetHealth(command)).await {
                        tracing::debug!(?error, "what a probe found was not taken down");
                    }
                    (check, Done::Told)
                });
                return;
            }
        }
        let interval = Duration::from_millis(watched.probe.interval.millis());
        watched.due = following(watched.due, interval, self.node.draw_number(), self.node.monotonic());
        self.agenda.put(watched.due, check);
    }
}

impl Watched {
    /// What is to be ordered by what was found, if it is something new.
    fn verdict(&mut self, node: &Node, found: Found) -> Option<SetHealth> {
        let finding = |finding: &Finding| (finding.health, finding.note.clone());
        let (is, noted) = node.read_stale(|ledger| {
            // It may have moved since, or somebody else may have taken its place.
            let instance = ledger.instance(&self.instance)?;
            follow::checks(&self.instance, instance).iter().find(|check| check.is_same(self))?;
            instance.findings().find(|(check, _)| check.name == self.name).map(|(_, found)| finding(found))
        })?;
        let (health, words) = match found {
            Found::Well(words) => (self.score.succeeded(is, &self.probe), words),
            Found::Ill(words) => (self.score.failed(is, &self.probe), words),
            Found::Forbidden(words) => {
                self.score = Score::default();
                (Health::Unknown, words)
            }
            Found::Nothing => return None,
        };
        let note = Note::parse(&words).expect("what is found is said in a few plain words");
        // That nobody can know is said, too, and said once.
        let is_news = health != is || health == Health::Unknown && note != noted;
        is_news.then(|| SetHealth {
            instance: self.instance.clone(),
            lease: self.lease,
            check: self.name.clone(),
            health,
            note,
        })
    }
}

/// Waits for an answer. If it does not come at once, it is waited for aside, where others wait that take as long; if there
/// is no room, nothing was found out. Also says whether it took long.
async fn keep_out_of_the_way(
    asking: impl Future<Output = Found>,
    room: OwnedSemaphorePermit,
    aside: Option<Arc<Semaphore>>,
) -> (Found, bool) {
    let mut asking = pin!(asking);
    if let Ok(found) = tokio::time::timeout(PROBE_QUICK, &mut asking).await {
        return (found, false);
    }
    let _room = match aside {
        None => room,
        Some(aside) => {
            drop(room);
            match aside.try_acquire_owned() {
                Ok(room) => room,
                Err(_) => return (Found::Nothing, true),
            }
        }
    };
    (asking.await, true)
}

impl Late {
    /// Probes that are late say nothing wrong, but they say it late; an operator should know.
    fn note(&mut self, watched: &Watched, now: Duration) {
        let interval = Duration::from_millis(watched.probe.interval.millis());
        if now.saturating_sub(watched.due) < interval {
            return;
        }
        self.count += 1;
        self.say(now);
    }

    /// Nor do those say anything for which there was no room.
    fn note_nothing(&mut self, now: Duration) {
        self.unknown += 1;
        self.say(now);
    }

    fn say(&mut self, now: Duration) {
        if self.said.is_none_or(|said| now.saturating_sub(said) >= PROBES_LATE_PAUSE) {
            let Self { count: late, unknown, .. } = *self;
            tracing::warn!(
                late,
                unknown,
                "probes begin late or come to nothing: too many targets do not answer at once"
            );
            *self = Self { said: Some(now), ..Self::default() };
        }
    }
}
