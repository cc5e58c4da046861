//! The part of every node that applies entries and answers reads. It owns the node's copy of the ledger; it never
//! stamps time and never proposes.

use crate::metrics::Deeds;
use crate::watch::Hub;
use std::sync::{Arc, RwLock};
use tenure_core::limits::RULES_MAX;
use tenure_core::{Applied, Entry, Ledger, Moment, Outcome};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Replica {
    state: RwLock<State>,
    led: watch::Sender<Option<LeadershipStart>>,
    /// The newest entry in the ledger, for those who wait for one.
    reached: watch::Sender<u64>,
    hub: Arc<Hub>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    applied: u64,
    extremes: Extremes,
}

/// The extremes of what entries did since this process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// The most work of one entry, in steps of the ledger.
    pub steps: usize,
    /// The longest that a lease outlived its deadline and its grace, in milliseconds of service time.
    pub late_ms: u64,
}

impl Extremes {
    fn note(&mut self, applied: &Applied) {
        self.steps = self.steps.max(applied.steps);
        self.late_ms = applied.timing.late_ms.iter().copied().fold(self.late_ms, u64::max);
    }
}

/// A leadership began: its blank entry was applied by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeadershipStart {
    pub(crate) term: u64,
    /// The ledger's time at that moment.
    pub(crate) now: Moment,
    pub(crate) next_deadline: Option<Moment>,
}

/// Which process proposed an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProposedBy {
    /// This one, and it waits for the outcomes.
    ThisProcess,
    /// Another one, or one before this start.
    Another,
}

/// What an entry came to, for the leader that proposed it.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// None if the entry was another leadership's and changed nothing.
    pub(crate) outcomes: Option<Vec<Outcome>>,
    pub(crate) next_deadline: Option<Moment>,
    pub(crate) unfinished: bool,
    pub(crate) deeds: Deeds,
}

impl Replica {
    pub(crate) fn new(ledger: Ledger, applied: u64) -> Self {
        let hub = Arc::new(Hub::new(ledger.revision()));
        let reached = watch::Sender::new(applied);
        Self {
            state: RwLock::new(State { ledger, applied, extremes: Extremes::default() }),
            led: watch::Sender::new(None),
            reached,
            hub,
        }
    }

    /// Returns when an entry of the log is in the ledger. False: the node has stopped.
    pub(crate) async fn reached(&self, index: u64) -> bool {
        self.reached.subscribe().wait_for(|reached| *reached >= index).await.is_ok()
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The newest leadership whose blank entry was applied by this process.
    pub(crate) fn led(&self) -> watch::Receiver<Option<LeadershipStart>> {
        self.led.subscribe()
    }

    /// Looks at the ledger and the index of the last entry in it.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Ledger, u64) -> T) -> T {
        let state = self.state.read().expect("apply does not panic");
        look(&state.ledger, state.applied)
    }

    /// The extremes of what entries did since this process began.
    pub(crate) fn extremes(&self) -> Extremes {
        self.state.read().expect("apply does not panic").extremes
    }

    /// Applies an entry that the log holds at `index` from the leader of `term`. An entry that another leadership
    /// stamped changes nothing. A higher rules version than this build knows stops the node before it applies. If this process
    /// did not propose the entry, no client waits here for what it answers.
    pub(crate) fn apply(&self, term: u64, index: u64, entry: &Entry, by: ProposedBy) -> Result<Answer, TooNew> {
        if entry.rules > RULES_MAX {
            return Err(TooNew { rules: entry.rules });
        }
        let mut state = self.state.write().expect("apply does not panic");
        state.applied = index;
        if entry.leader.term != term {
            drop(state);
            self.reached.send_replace(index);
            return Ok(Answer::default());
        }
        let mut applied = match by {
            ProposedBy::ThisProcess => state.ledger.apply(entry),
            ProposedBy::Another => state.ledger.replay(entry),
        };
        state.extremes.note(&applied);
        drop(state);
        self.reached.send_replace(index);
        let deeds = Deeds::count(&entry.commands, &mut applied);
        self.hub.publish(&applied.events);
        Ok(Answer {
            outcomes: Some(applied.outcomes),
            next_deadline: applied.next_deadline,
            unfinished: applied.unfinished,
            deeds,
        })
    }

    /// Notes the blank entry with which the leadership of `term` begins.
    pub(crate) fn begin_term(&self, term: u64, index: u64) {
        let mut state = self.state.write().expect("apply does not panic");
        state.applied = index;
        let (now, next_deadline) = (state.ledger.now(), state.ledger.next_deadline());
        drop(state);
        self.reached.send_replace(index);
        self.led.send_replace(Some(LeadershipStart { term, now, next_deadline }));
    }

    /// Notes an entry that is none of the ledger's business.
    pub(crate) fn skip(&self, index: u64) {
        self.state.write().expect("apply does not panic").applied = index;
        self.reached.send_replace(index);
    }

    /// Makes this replica hold something else than the log says, as a fault of the memory would.
    #[cfg(test)]
    pub(crate) fn tamper(&self) {
        let mut state = self.state.write().expect("apply does not panic");
        let fence = state.ledger.last_fence() + 1;
        assert!(state.ledger.begin_anew(fence, 0));
    }

    /// Replaces the ledger by one from a snapshot.
    pub(crate) fn install(&self, ledger: Ledger, applied: u64) {
        let revision = ledger.revision();
        let mut state = self.state.write().expect("apply does not panic");
        (state.ledger, state.applied) = (ledger, applied);
        drop(state);
        self.reached.send_replace(applied);
        self.hub.leap(revision);
    }
}

/// An entry by newer rules than this build knows.
#[derive(Debug, thiserror::Error)]
#[error("the log holds an entry by rules version {rules}, and this build knows {RULES_MAX}: start a newer build")]
pub(crate) struct TooNew {
    rules: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Command, Grant, Holder, Leader, LeaseId, Ttl};

    fn entry(term: u64, rules: u32) -> Entry {
        let (lease, holder) = (LeaseId::from_number(1).unwrap(), Holder::parse("ann").unwrap());
        let grant = Grant::plain(lease, holder, Ttl::from_millis(1_000).unwrap(), 1);
        let commands = vec![Command::Grant(grant)];
        Entry { leader: Leader { term, node: 1 }, now: Moment::from_millis(5), wall_ms: 0, rules, commands }
    }

    #[test]
    fn an_entry_of_another_leadership_changes_nothing() {
        let replica = Replica::new(Ledger::default(), 0);
        let before = replica.read(|ledger, _| ledger.state_hash());
        assert!(replica.apply(2, 7, &entry(1, RULES_MAX), ProposedBy::Another).unwrap().outcomes.is_none());
        assert_eq!(replica.read(|ledger, applied| (ledger.state_hash(), applied)), (before, 7));
        assert!(replica.apply(2, 8, &entry(2, RULES_MAX), ProposedBy::ThisProcess).unwrap().outcomes.is_some());
    }

    #[test]
    fn an_entry_by_newer_rules_stops_the_node_before_it_is_applied() {
        let replica = Replica::new(Ledger::default(), 0);
        assert!(replica.apply(1, 1, &entry(1, RULES_MAX + 1), ProposedBy::Another).is_err());
        assert_eq!(replica.read(|ledger, applied| (ledger.lease_count(), applied)), (0, 0));
    }
}
