//! The leader's loop: gather what is asked, stamp it with the time, propose it, answer, and tick while any lease lives.
//! It never reads the ledger; what it knows of deadlines, apply's result told it.

use crate::clock::{Clock, ServiceClock};
use crate::limits::{
    ENTRY_BYTES_MAX, ENTRY_RENEWALS_MAX, IN_FLIGHT_MAX, PASS, QUEUE_BYTES_A_PLACE, QUEUE_MAX, RETRY_AFTER, STEP_MAX,
    STUCK_AFTER, TICK,
};
use crate::metrics::Metrics;
use crate::raft::{Consensus, Lost};
use crate::replica::{Answer, LeadershipStart};
use crate::trace::Leg;
use crate::tuning::Tuning;
use crate::unready::Unready;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::limits::{COMMANDS_MAX, RULES_MIN, TXN_DEPTH_MAX};
use tenure_core::{Command, Entry, Leader, Moment, Outcome, Refusal, TXN_DEPTH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// What a door hands in: a command, and where the answer goes.
#[derive(Debug)]
struct Order {
    command: Command,
    reply: Reply,
    /// Its room in the queue, given back when it is taken out.
    _room: OwnedSemaphorePermit,
}

/// Where the answer to an order goes, and where the order is until then.
#[derive(Debug)]
struct Reply {
    door: oneshot::Sender<Result<Outcome, Unready>>,
    leg: Leg,
}

impl Reply {
    fn send(self, answer: Result<Outcome, Unready>) {
        // What the order took ends before the request that it is a part of.
        drop(self.leg);
        // A door that stopped waiting needs no answer.
        let _ = self.door.send(answer);
    }
}

/// The way in. Commands that keep or free what is held have a queue of their own and are taken first.
#[derive(Clone, Debug)]
pub(crate) struct CommandQueue {
    upkeep: Queue,
    wishes: Queue,
}

/// One queue, bounded by what lies in it rather than by how many.
#[derive(Clone, Debug)]
struct Queue {
    orders: mpsc::Sender<Order>,
    room: Arc<Semaphore>,
}

impl Queue {
    fn new() -> (Self, mpsc::Receiver<Order>) {
        let (orders, receiver) = mpsc::channel(QUEUE_MAX);
        (Self { orders, room: Arc::new(Semaphore::new(QUEUE_MAX)) }, receiver)
    }

    fn len(&self) -> usize {
        self.orders.max_capacity() - self.orders.capacity()
    }

    fn put(&self, command: Command, reply: Reply) -> Result<(), Unready> {
        let full = Unready::Overloaded { retry_after: RETRY_AFTER };
        let weight = 1 + command.bytes() / QUEUE_BYTES_A_PLACE;
        let weight = u32::try_from(weight).expect("a request is bounded");
        let Ok(room) = self.room.clone().try_acquire_many_owned(weight) else { return Err(full) };
        self.orders.try_send(Order { command, reply, _room: room }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => full,
            mpsc::error::TrySendError::Closed(_) => Unready::Stopping,
        })
    }
}

/// Refuses a command that could not be read back: its entry would stop every node that reads the log.
pub(crate) fn check_readable(command: &Command) -> Result<(), Refusal> {
    match command.can_be_read_back() {
        true => Ok(()),
        false => Err(Refusal::Full { what: TXN_DEPTH.into(), max: TXN_DEPTH_MAX }),
    }
}

impl CommandQueue {
    /// Puts a command into the log, and answers when it was applied.
    pub(crate) async fn order(&self, command: Command) -> Result<Outcome, Unready> {
        if let Err(refusal) = check_readable(&command) {
            return Ok(Err(refusal));
        }
        let queue = if command.is_upkeep() { &self.upkeep } else { &self.wishes };
        let (door, answer) = oneshot::channel();
        queue.put(command, Reply { door, leg: Leg::queued() })?;
        answer.await.unwrap_or(Err(Unready::Unknown))
    }

    /// How many commands wait.
    pub(crate) fn queued(&self) -> usize {
        self.upkeep.len() + self.wishes.len()
    }
}

pub(crate) struct Proposer {
    clock: Arc<dyn Clock>,
    consensus: Consensus,
    upkeep: mpsc::Receiver<Order>,
    wishes: mpsc::Receiver<Order>,
    shown: watch::Sender<Option<ServiceClock>>,
    tuning: Tuning,
    metrics: Metrics,
}

type Flight = BoxFuture<'static, ProposalResult>;

/// What became of an entry that was proposed, how it was stamped and when, and who waits for it.
struct ProposalResult {
    stamp: Moment,
    proposed: Duration,
    entry: Arc<Entry>,
    replies: Vec<Reply>,
    answer: Result<Answer, Lost>,
}

/// How a leadership ended.
#[derive(PartialEq, Eq)]
enum Over {
    Deposed,
    Stopped,
}

/// One leadership.
struct Leadership {
    leader: Leader,
    time: ServiceClock,
    next_deadline: Option<Moment>,
    unfinished: bool,
    in_flight: FuturesUnordered<Flight>,
    /// Commands that changed nothing because others of their entry did too much: they go into the next one.
    again: VecDeque<(Command, Reply)>,
    /// When the loop last woke, and whether it then found that it had slept much too long.
    awake: Duration,
    stalled: bool,
    /// Since when entries are on their way and none comes back.
    waiting_since: Duration,
    /// When an entry is marked next, so that replicas compare what they hold after it.
    audit_at: Duration,
    told: Told,
    metrics: Metrics,
}

/// How much of the dropped time was told of. A stall drops at least `STEP_MAX`, since the clock stands still for as long
/// after it. Less than that is the start of a leadership, or the rest of a stall that was told of.
#[derive(Default)]
struct Told {
    total_ms: u64,
}

impl Told {
    fn news(&mut self, dropped: Duration) -> Option<u64> {
        let total_ms = u64::try_from(dropped.as_millis()).unwrap_or(u64::MAX);
        let more_ms = total_ms.checked_sub(self.total_ms).filter(|ms| u128::from(*ms) >= STEP_MAX.as_millis())?;
        self.total_ms = total_ms;
        Some(more_ms)
    }
}

impl Proposer {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        consensus: Consensus,
        tuning: Tuning,
        metrics: Metrics,
    ) -> (Self, CommandQueue, watch::Receiver<Option<ServiceClock>>) {
        let (upkeep_in, upkeep) = Queue::new();
        let (wishes_in, wishes) = Queue::new();
        let (shown, shown_out) = watch::channel(None);
        let proposer = Self { clock, consensus, upkeep, wishes, shown, tuning, metrics };
        (proposer, CommandQueue { upkeep: upkeep_in, wishes: wishes_in }, shown_out)
    }

    /// Leads whenever this node is elected, until the node stops.
    pub(crate) async fn run(mut self) {
        let mut has_led = false;
        while let Some(led) = self.wait_to_lead().await {
            if has_led {
                tracing::info!(term = led.term, "this node leads again");
            }
            let leadership = self.begin(led);
            let over = self.lead(leadership).await;
            self.shown.send_replace(None);
            if over == Over::Stopped {
                return;
            }
            tracing::warn!(term = led.term, "this node leads no longer: it grants nothing, and no lease ends");
            has_led = true;
        }
    }

    /// Turns orders away until this node leads and has applied its own blank entry. None: the node stops.
    async fn wait_to_lead(&mut self) -> Option<LeadershipStart> {
        let mut begun = self.consensus.replica().led();
        let mut leading = self.consensus.leading();
        loop {
            let led = *begun.borrow_and_update();
            if let (Some(led), Some(term)) = (led, *leading.borrow_and_update())
                && led.term == term
            {
                return Some(led);
            }
            tokio::select! {
                changed = begun.changed() => changed.ok()?,
                changed = leading.changed() => changed.ok()?,
                order = self.upkeep.recv() => self.turn_away(order?),
                order = self.wishes.recv() => self.turn_away(order?),
            }
        }
    }

    fn turn_away(&self, order: Order) {
        order.reply.send(Err(Unready::NotLeader { leader: self.consensus.leader_address() }));
    }

    /// Whoever waits behind entries that do not come back is better off asking elsewhere.
    fn turn_all_away(&mut self) {
        while let Ok(order) = self.upkeep.try_recv().or_else(|_| self.wishes.try_recv()) {
            order.reply.send(Err(Unready::Stuck));
        }
    }

    fn begin(&self, led: LeadershipStart) -> Leadership {
        let at = self.clock.monotonic();
        let mut time = ServiceClock::start(led.now, at, self.tuning.step_max);
        if led.next_deadline.is_none() {
            time.rest();
        }
        self.shown.send_replace(Some(time));
        Leadership {
            leader: Leader { term: led.term, node: self.consensus.node() },
            time,
            next_deadline: led.next_deadline,
            unfinished: false,
            in_flight: FuturesUnordered::new(),
            again: VecDeque::new(),
            awake: at,
            stalled: false,
            waiting_since: at,
            audit_at: at + self.tuning.audit_interval,
            told: Told::default(),
            metrics: self.metrics.clone(),
        }
    }

    async fn lead(&mut self, mut leadership: Leadership) -> Over {
        let mut leading = self.consensus.leading();
        let over = loop {
            let room = leadership.in_flight.len() < IN_FLIGHT_MAX;
            let nap = leadership.until_tick(self.clock.monotonic());
            tokio::select! {
                biased;
                changed = leading.changed() => {
                    if changed.is_err() {
                        break Over::Stopped;
                    }
                    if *leading.borrow_and_update() != Some(leadership.leader.term) {
                        break Over::Deposed;
                    }
                }
                Some(result) = leadership.in_flight.next() => {
                    let at = self.wake(&mut leadership);
                    leadership.landed(result, at);
                    leadership.tell_of_stalls();
                    self.shown.send_replace(Some(leadership.time));
                }
                order = self.upkeep.recv(), if room => match order {
                    Some(order) => self.gather(&mut leadership, Some(order), None).await,
                    None => break Over::Stopped,
                },
                order = self.wishes.recv(), if room => match order {
                    Some(order) => self.gather(&mut leadership, None, Some(order)).await,
                    None => break Over::Stopped,
                },
                () = tokio::time::sleep(nap.unwrap_or_default()), if room && nap.is_some() => {
                    self.gather(&mut leadership, None, None).await;
                }
                () = tokio::time::sleep(TICK), if !room => {
                    if self.clock.monotonic().saturating_sub(leadership.waiting_since) > STUCK_AFTER {
                        self.turn_all_away();
                        leadership.turn_away(&Unready::Stuck);
                    }
                }
            }
        };
        tokio::spawn(leadership.step_down());
        over
    }

    /// Reads the clock and notes a stall: the loop wakes at least once a tick while any lease lives.
    fn wake(&self, leadership: &mut Leadership) -> Duration {
        let at = self.clock.monotonic();
        leadership.stalled |= leadership.next_deadline.is_some() && at.saturating_sub(leadership.awake) > 2 * TICK;
        leadership.awake = at;
        at
    }

    /// Gathers an entry around the order that woke the loop, stamps it after the last command, and proposes it.
    async fn gather(&mut self, leadership: &mut Leadership, upkeep: Option<Order>, wish: Option<Order>) {
        self.wake(leadership);
        if leadership.stalled {
            tokio::time::sleep(PASS).await;
            leadership.stalled = false;
        }
        let mut batch = Batch::drain(&mut leadership.again, (&mut self.upkeep, upkeep), (&mut self.wishes, wish));
        let known = self.consensus.rules();
        batch.turn_away_newer(known);
        let rules = known.max(RULES_MIN);
        let Batch { commands, replies, .. } = batch;
        if !commands.is_empty() {
            self.metrics.gathered(commands.len());
        }
        let at = self.clock.monotonic();
        leadership.time.wake(at);
        let now = leadership.time.read(at);
        leadership.awake = at;
        leadership.tell_of_stalls();
        self.shown.send_replace(Some(leadership.time));
        let entry = Entry { leader: leadership.leader, now, wall_ms: self.clock.wall_ms(), rules, commands };
        if leadership.in_flight.is_empty() {
            leadership.waiting_since = at;
        }
        let is_audited = at >= leadership.audit_at;
        if is_audited {
            leadership.audit_at = at + self.consensus.audits().pause(self.tuning.audit_interval);
        }
        let entry = Arc::new(entry);
        let answer = self.consensus.propose(entry.clone(), is_audited);
        leadership.in_flight.push(Box::pin(async move {
            ProposalResult { stamp: now, proposed: at, entry, replies, answer: answer.await }
        }));
    }
}

#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    replies: Vec<Reply>,
    renewals: usize,
    bytes: usize,
}

/// A queue, and what was taken from it already.
type Source<'a> = (&'a mut mpsc::Receiver<Order>, Option<Order>);

impl Batch {
    /// Takes what waits: upkeep first, but wishes keep at least a quarter of the entry.
    fn drain(again: &mut VecDeque<(Command, Reply)>, (upkeep, first): Source<'_>, (wishes, wish): Source<'_>) -> Self {
        let mut batch = Self::default();
        // Half an entry of them leaves room for those who wait.
        while batch.commands.len() < COMMANDS_MAX / 2 && batch.has_room() {
            let Some((command, reply)) = again.pop_front() else { break };
            batch.put(command, reply);
        }
        let wishes_waiting = wishes.len() + usize::from(wish.is_some());
        let upkeep_max = COMMANDS_MAX - wishes_waiting.min(COMMANDS_MAX / 4);
        first.into_iter().for_each(|order| batch.add(order));
        while batch.commands.len() < upkeep_max && batch.has_room() {
            let Ok(order) = upkeep.try_recv() else { break };
            batch.add(order);
        }
        wish.into_iter().for_each(|order| batch.add(order));
        while batch.commands.len() < COMMANDS_MAX && batch.bytes < ENTRY_BYTES_MAX {
            let Ok(order) = wishes.try_recv() else { break };
            batch.add(order);
        }
        batch
    }

    /// Turns away commands by newer rules than the entry will have: a member that knows no newer ones would skip a part of them.
    fn turn_away_newer(&mut self, known: u32) {
        if self.commands.iter().all(|command| command.rules() <= known) {
            return;
        }
        let (commands, replies) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.replies));
        for (command, reply) in commands.into_iter().zip(replies) {
            match command.rules() {
                needs if needs > known => reply.send(Err(Unready::OldMember { needs, known })),
                _ => {
                    self.commands.push(command);
                    self.replies.push(reply);
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.renewals < ENTRY_RENEWALS_MAX && self.bytes < ENTRY_BYTES_MAX
    }

    fn add(&mut self, order: Order) {
        self.put(order.command, order.reply);
    }

    fn put(&mut self, command: Command, mut reply: Reply) {
        reply.leg.proposed();
        self.bytes += command.bytes();
        if let Command::Renew(renew) = command.plain() {
            self.renewals += renew.leases.len();
        }
        self.commands.push(command);
        self.replies.push(reply);
    }
}

impl Leadership {
    /// How long the loop may sleep if nobody asks for anything; none while no lease lives.
    fn until_tick(&self, at: Duration) -> Option<Duration> {
        if self.unfinished || !self.again.is_empty() {
            return self.in_flight.is_empty().then_some(Duration::ZERO);
        }
        let next = self.next_deadline?;
        let due = self.time.until(next, at);
        Some(due.max(Duration::from_millis(1)).min(TICK))
    }

    /// An entry was applied, or its fate is unknown.
    fn landed(&mut self, ProposalResult { stamp, proposed, entry, replies, answer }: ProposalResult, at: Duration) {
        self.waiting_since = at;
        match answer {
            Ok(Answer { outcomes: Some(outcomes), next_deadline, unfinished, deeds }) => {
                self.metrics.landed(&deeds);
                self.time.applied(stamp, proposed, at);
                self.next_deadline = next_deadline;
                self.unfinished = unfinished;
                if next_deadline.is_none() && self.in_flight.is_empty() {
                    self.time.rest();
                }
                for ((reply, outcome), command) in replies.into_iter().zip(outcomes).zip(&entry.commands) {
                    match outcome {
                        // It changed nothing, so it is safe to propose it again.
                        Err(Refusal::Overloaded { .. }) => self.again.push_back((command.clone(), reply)),
                        outcome => reply.send(Ok(outcome)),
                    }
                }
            }
            Ok(Answer { outcomes: None, .. }) | Err(Lost::Refused) => {
                answer_all(replies, &Unready::NotLeader { leader: None });
            }
            Err(Lost::Unknown) => answer_all(replies, &Unready::Unknown),
        }
    }

    /// Says that time was dropped, once it goes on: it needs a stall of half a second, so it is not said often.
    fn tell_of_stalls(&mut self) {
        if self.time.is_running()
            && let Some(dropped_ms) = self.told.news(self.time.dropped())
        {
            let total_ms = self.told.total_ms;
            tracing::warn!(dropped_ms, total_ms, "a stall: service time was dropped, and leases end later by so much");
        }
    }

    /// Leadership is over. Whatever is under way is answered as the log decides.
    async fn step_down(mut self) {
        while let Some(result) = self.in_flight.next().await {
            let at = self.awake;
            self.landed(result, at);
        }
        self.turn_away(&Unready::NotLeader { leader: None });
    }

    /// Answers commands that were to be proposed again.
    fn turn_away(&mut self, why: &Unready) {
        answer_all(self.again.drain(..).map(|(_, reply)| reply).collect(), why);
    }
}

fn answer_all(replies: Vec<Reply>, unready: &Unready) {
    for reply in replies {
        reply.send(Err(unready.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Grant, Holder, Kind, LeaseId, Renew, Renewal, Ttl};

    fn lease(n: u64) -> LeaseId {
        LeaseId::from_number(n).unwrap()
    }

    fn put(queue: &Queue, command: Command) -> Result<(), Unready> {
        queue.put(command, Reply { door: oneshot::channel().0, leg: Leg::queued() })
    }

    fn renewal(leases: u64) -> Command {
        let leases = (1..=leases).map(|n| Renewal { lease: lease(n), ttl: None }).collect();
        Command::Renew(Renew { leases, kind: Kind::Auto })
    }

    fn wish() -> Command {
        let (holder, ttl) = (Holder::parse("ann").unwrap(), Ttl::from_millis(1_000).unwrap());
        Command::Grant(Grant::plain(lease(1), holder, ttl, 1))
    }

    #[test]
    fn upkeep_goes_first_and_wishes_keep_a_quarter() {
        let (upkeep_in, mut upkeep) = Queue::new();
        let (wishes_in, mut wishes) = Queue::new();
        for _ in 0..2 * COMMANDS_MAX {
            put(&upkeep_in, renewal(1)).unwrap();
            put(&wishes_in, wish()).unwrap();
        }
        let batch = Batch::drain(&mut VecDeque::new(), (&mut upkeep, None), (&mut wishes, None));
        let quarter = COMMANDS_MAX / 4;
        assert_eq!(batch.commands.len(), COMMANDS_MAX);
        assert!(batch.commands[..COMMANDS_MAX - quarter].iter().all(Command::is_upkeep));
        assert_eq!(batch.commands.iter().filter(|command| !command.is_upkeep()).count(), quarter);
    }

    #[test]
    fn an_entry_renews_no_more_than_so_many_leases_and_a_command() {
        let (upkeep_in, mut upkeep) = Queue::new();
        let (_wishes_in, mut wishes) = Queue::new();
        for _ in 0..40 {
            put(&upkeep_in, renewal(4_096)).unwrap();
        }
        let batch = Batch::drain(&mut VecDeque::new(), (&mut upkeep, None), (&mut wishes, None));
        assert_eq!(batch.renewals, ENTRY_RENEWALS_MAX);
        assert_eq!(upkeep.len(), 40 - ENTRY_RENEWALS_MAX / 4_096);
    }

    #[test]
    fn a_stall_is_told_of_once() {
        let mut told = Told::default();
        let news = [0, 110, 1_610, 1_611, 2_109, 2_110, 2_110].map(|ms| told.news(Duration::from_millis(ms)));
        assert_eq!(news, [None, None, Some(1_610), None, None, Some(500), None]);
    }

    #[test]
    fn commands_to_repeat_go_first_and_fill_half_an_entry() {
        let ((_upkeep_in, mut upkeep), (wishes_in, mut wishes)) = (Queue::new(), Queue::new());
        for _ in 0..COMMANDS_MAX {
            put(&wishes_in, wish()).unwrap();
        }
        let reply = || Reply { door: oneshot::channel().0, leg: Leg::queued() };
        let mut again: VecDeque<_> = (0..COMMANDS_MAX).map(|_| (renewal(1), reply())).collect();
        let batch = Batch::drain(&mut again, (&mut upkeep, None), (&mut wishes, None));
        assert_eq!((batch.commands.len(), again.len()), (COMMANDS_MAX, COMMANDS_MAX / 2));
        assert!(batch.commands[..COMMANDS_MAX / 2].iter().all(|command| *command == renewal(1)));
        assert!(batch.commands[COMMANDS_MAX / 2..].iter().all(|command| *command == wish()));
    }

    #[test]
    fn a_full_queue_refuses_and_says_when_to_come_back() {
        let (queue, mut orders) = Queue::new();
        let refused = (0..).find_map(|n| put(&queue, renewal(4_096)).err().map(|why| (n, why)));
        let (taken, why) = refused.unwrap();
        assert_eq!(why, Unready::Overloaded { retry_after: RETRY_AFTER });
        assert_eq!(
            taken,
            QUEUE_MAX / (1 + renewal(4_096).bytes() / QUEUE_BYTES_A_PLACE),
            "large orders take more than one place"
        );
        drop(orders.try_recv().unwrap());
        put(&queue, renewal(4_096)).expect("what was taken out makes room");
    }
}
