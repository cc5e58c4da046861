//! How clients call nodes: over a network that is a little slow and sometimes worse, at one node after the other. What they
//! call and what they are answered is recorded.

use crate::dice::Dice;
use crate::fault::Fault;
use crate::history::At;
use crate::mix::{self, Mix, Post};
use crate::net::{Net, machine_at};
use crate::recorder::Recorder;
use crate::run::Plant;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tenure_core::{Command, Fence, Key, KeyValue, Ledger, Name, On, Outcome, Reply};
use tenure_server::{Node, Unready};
use tokio::time::{sleep, timeout};

/// How often a client follows what it is told of the leader before it takes a breath.
const HOPS_MAX: usize = 3;

/// How long a read may take.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// Messages of one client that fare well after one that did not: a holder that keeps trying is heard in time.
const WELL_AFTER_ILL: u64 = 3;

pub(crate) struct Client {
    pub(crate) net: Net,
    pub(crate) dice: Dice,
    /// The machine that is asked next.
    at: AtomicUsize,
    pub(crate) recorder: Recorder,
    pub(crate) post: Post,
    pub(crate) plant: Option<Plant>,
    /// Whether it has its node forward commands to the leader.
    forwards: bool,
    /// Messages since the last one that fared ill.
    well: AtomicU64,
}

/// What befalls one message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fares {
    Well,
    Lost,
    Late,
    Twice,
    Unanswered,
}

/// A command that was called. It is recorded with an unknown outcome when this is dropped without an answer, also if its client
/// is aborted.
struct Called<'a> {
    recorder: &'a Recorder,
    from: At,
    command: &'a Command,
    is_known: bool,
}

impl Called<'_> {
    fn answered(mut self, outcome: &Outcome) {
        self.is_known = true;
        self.recorder.command(self.from, self.command, Some(outcome));
    }

    fn not_done(mut self) {
        self.is_known = true;
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.recorder.command(self.from, self.command, None);
        }
    }
}

/// What a client knows of a command.
enum Heard {
    Answer(Outcome),
    /// Every node that was asked says that it did nothing.
    NotDone,
    Nothing,
}

impl Client {
    pub(crate) fn new(net: Net, dice: Dice, recorder: Recorder, mix: Mix, plant: Option<Plant>) -> Self {
        let at = AtomicUsize::new(dice.between(0, net.machines() as u64 - 1) as usize);
        let forwards = mix.forwards > 0 && mix::choose(&dice, &[(2, false), (mix.forwards, true)]);
        Self { net, dice, at, recorder, post: mix.post, plant, forwards, well: AtomicU64::new(0) }
    }

    /// Sends a command and waits a little for the answer, at each node that it is sent on to. None: it is not answered.
    pub(crate) async fn ask(&self, command: Command, patience: Duration) -> Option<Outcome> {
        let called = Called { recorder: &self.recorder, from: self.recorder.now(), command: &command, is_known: false };
        match self.ask_around(&command, patience).await {
            Heard::Answer(outcome) => {
                called.answered(&outcome);
                Some(outcome)
            }
            Heard::NotDone => {
                called.not_done();
                None
            }
            Heard::Nothing => None,
        }
    }

    async fn ask_around(&self, command: &Command, patience: Duration) -> Heard {
        let first = self.at.load(Ordering::Relaxed);
        let (mut machine, mut heard) = (first, Heard::NotDone);
        for _ in 0..HOPS_MAX {
            let fares = self.fares(command);
            // A copy may be on its way, whatever is answered to the first.
            heard = if fares == Fares::Twice { Heard::Nothing } else { heard };
            match timeout(patience, self.ask_at(machine, command.clone(), fares)).await.ok().flatten() {
                Some(Ok(outcome)) => {
                    self.at.store(machine, Ordering::Relaxed);
                    return Heard::Answer(outcome);
                }
                Some(Err(Unready::NotLeader { leader: Some(leader) })) => match machine_at(&leader) {
                    Some(leader) => machine = leader,
                    None => break,
                },
                Some(Err(Unready::Unknown)) | None => {
                    heard = Heard::Nothing;
                    break;
                }
                Some(Err(_)) => break,
            }
        }
        // Whoever was asked first may know no better than to send everybody to a machine that is gone.
        self.at.store((first + 1) % self.net.machines(), Ordering::Relaxed);
        heard
    }

    async fn ask_at(&self, machine: usize, command: Command, fares: Fares) -> Option<Result<Outcome, Unready>> {
        match fares {
            Fares::Well | Fares::Unanswered => {}
            Fares::Lost => return std::future::pending().await,
            // Whoever called has given up by then, or not.
            Fares::Late => {
                self.deliver_later(machine, command, self.dice.ms(1_000, 8_000));
                return std::future::pending().await;
            }
            Fares::Twice => self.deliver_later(machine, command.clone(), self.dice.ms(5, 6_000)),
        }
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        let Some((life, node)) = self.net.life(machine) else {
            return Some(Err(Unready::NotLeader { leader: None }));
        };
        let answer = self.order(&node, command).await;
        if fares == Fares::Unanswered {
            return std::future::pending().await;
        }
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        // A process that is gone says nothing more.
        self.net.is_alive(life).then_some(answer)
    }

    /// Draws what befalls a message. Copies are only made of what carries a number by which they are known.
    fn fares(&self, command: &Command) -> Fares {
        if self.well.fetch_add(1, Ordering::Relaxed) < WELL_AFTER_ILL || !self.net.is_rough() {
            return Fares::Well;
        }
        let strikes = |one_in: u64| one_in > 0 && self.dice.one_in(one_in);
        let (fares, fault) = if strikes(self.post.loses) {
            (Fares::Lost, Fault::ClientLoss)
        } else if strikes(self.post.delays) && may_be_late(command) {
            (Fares::Late, Fault::ClientDelay)
        } else if strikes(self.post.repeats) && may_be_repeated(command) {
            (Fares::Twice, Fault::ClientRepeat)
        } else if strikes(self.post.forgets) {
            (Fares::Unanswered, Fault::ClientSilence)
        } else {
            return Fares::Well;
        };
        self.well.store(0, Ordering::Relaxed);
        self.net.tally.count(fault);
        fares
    }

    /// Delivers a command after a while, if the connection is still there.
    fn deliver_later(&self, machine: usize, command: Command, after: Duration) {
        let Some((life, node)) = self.net.life(machine) else { return };
        let net = self.net.clone();
        tokio::spawn(async move {
            sleep(after).await;
            net.reach(machine, Duration::ZERO).await;
            if net.is_alive(life) {
                // Nobody waits for the answer.
                let _ = node.propose(command).await;
            }
        });
    }

    /// Has a node do what is ordered, unless something else is planted.
    async fn order(&self, node: &Node, command: Command) -> Result<Outcome, Unready> {
        let Command::Put(put) = &command else { return self.submit(node, command).await };
        match self.plant {
            Some(Plant::DroppedWrites) if self.dice.one_in(10) && node.status().leads_in.is_some() => {
                let (version, kv_revision) = node.read_stale(|ledger| {
                    (ledger.key(put.key.bytes()).map_or(1, |has| has.version + 1), ledger.kv_revision() + 1)
                });
                Ok(Ok(Reply::Put { kv_revision, version }))
            }
            Some(Plant::RepeatedProposals) if self.dice.one_in(10) => {
                let answer = self.submit(node, command.clone()).await;
                // The copy, of which its client does not know.
                let _ = self.submit(node, command).await;
                answer
            }
            _ => self.submit(node, command).await,
        }
    }

    async fn submit(&self, node: &Node, command: Command) -> Result<Outcome, Unready> {
        if self.forwards { node.submit(command).await } else { node.propose(command).await }
    }

    /// Reads what is certain, at any node. None: it was not answered.
    async fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> Option<T> {
        let machine = self.dice.between(0, self.net.machines() as u64 - 1) as usize;
        let (life, node) = self.net.life(machine)?;
        let read = async {
            self.net.reach(machine, self.dice.ms(0, 30)).await;
            let found = match self.plant {
                Some(Plant::LocalReads) => node.read_stale(look),
                _ => node.read(|ledger, _| look(ledger)).await.ok()?,
            };
            self.net.reach(machine, self.dice.ms(0, 30)).await;
            self.net.is_alive(life).then_some(found)
        };
        timeout(READ_PATIENCE, read).await.ok().flatten()
    }

    /// Reads a key. None: it was not answered.
    pub(crate) async fn get(&self, key: &Key) -> Option<Option<KeyValue>> {
        let from = self.recorder.now();
        let found = self.read(|ledger| ledger.key(key.bytes()).cloned()).await?;
        self.recorder.get(from, key, found.as_ref());
        Some(found)
    }

    /// Reads who holds a lock.
    pub(crate) async fn look(&self, resource: &Name) {
        let from = self.recorder.now();
        let holder = |ledger: &Ledger| {
            let (fence, lease) = ledger.resource(resource)?.holders().next()?;
            Some((lease.number(), fence.number()))
        };
        if let Some(holder) = self.read(holder).await {
            self.recorder.look(from, resource, holder);
        }
    }

    /// Reads whether a fence is that of the holder.
    pub(crate) async fn verify(&self, resource: &Name, fence: Fence) {
        let from = self.recorder.now();
        let holds = |ledger: &Ledger| {
            ledger.resource(resource).is_some_and(|it| it.holders().any(|(current, _)| current == fence))
        };
        if let Some(holds) = self.read(holds).await {
            self.recorder.verify(from, resource, fence.number(), holds);
        }
    }
}

/// Whether a copy of a command that comes later is known as one, so that it changes nothing: it begins a lease, or has a number.
fn may_be_repeated(command: &Command) -> bool {
    match command {
        Command::Grant(_) | Command::Renew(_) | Command::Release(_) | Command::ReleaseLease(_) => true,
        Command::Acquire(acquire) => matches!(acquire.on, On::New(_)) || acquire.request.is_some(),
        Command::Cancel(cancel) => cancel.request.is_some(),
        Command::Register(register) => matches!(register.on, On::New(_)) || register.request.is_some(),
        Command::Deregister(order) => order.request.is_some(),
        _ => false,
    }
}

/// Whether a command may be done long after its sender has given up. Those without a number of their own would be done in the
/// wrong place.
fn may_be_late(command: &Command) -> bool {
    may_be_repeated(command) || matches!(command, Command::Put(_) | Command::Delete(_) | Command::Txn(_))
}
