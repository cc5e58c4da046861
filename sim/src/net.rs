//! The simulated network: who is up, who hears whom, and how long a message takes. It carries; it never looks inside.
//!
//! A machine that is paused models a process that does not run: whatever is sent to it or by it is held until the pause is
//! over, its disk does not answer, and its clock shows the time at which it stopped. Timers inside it go on, so what they
//! make it say is said when it wakes, as by a process that finds its timers due.

use crate::dice::Dice;
use crate::fault::{Fault, Tally};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_server::Host;
use tenure_server::Node;
use tokio::sync::watch;
use tokio::time::sleep;

/// One life of a machine, from its start to the end of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) machine: usize,
    number: u64,
}

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Net {
    state: Arc<Mutex<State>>,
    /// Told whenever somebody who waits may go on.
    moved: watch::Sender<()>,
    pub(super) dice: Dice,
    pub(super) tally: Tally,
}

struct State {
    doors: Vec<Door>,
    /// From whom nothing comes to whom.
    cuts: BTreeSet<(usize, usize)>,
    weather: Weather,
    /// Whether clients' messages may fare ill.
    is_rough: bool,
}

#[derive(Default)]
struct Door {
    life: u64,
    is_up: bool,
    is_paused: bool,
    node: Option<Node>,
}

/// What befalls messages between machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The longest that one is on its way, in milliseconds.
    pub(crate) delay_ms_max: u64,
    /// One in so many is lost; none if 0.
    pub(crate) loses_one_in: u64,
    /// One in so many arrives twice; none if 0.
    pub(crate) repeats_one_in: u64,
}

impl Weather {
    pub(crate) const CALM: Self = Self { delay_ms_max: 5, loses_one_in: 0, repeats_one_in: 0 };
}

/// Where peers reach a machine.
pub(crate) fn peer_address(machine: usize) -> String {
    format!("m{machine}:7421")
}

/// Where clients reach a machine.
pub(crate) fn client_address(machine: usize) -> String {
    format!("http://m{machine}")
}

/// Which machine an address means.
pub(crate) fn machine_at(address: &str) -> Option<usize> {
    address.trim_start_matches("http://").strip_prefix('m')?.split(':').next()?.parse().ok()
}

impl Net {
    pub(crate) fn new(machines: usize, dice: Dice, tally: Tally) -> Self {
        let doors = (0..machines).map(|_| Door::default()).collect();
        let state = State { doors, cuts: BTreeSet::new(), weather: Weather::CALM, is_rough: true };
        Self { state: Arc::new(Mutex::new(state)), moved: watch::Sender::new(()), dice, tally }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while looking at the network")
    }

    pub(crate) fn machines(&self) -> usize {
        self.state().doors.len()
    }

    /// A machine begins a life. Nobody reaches its node before it is connected.
    pub(crate) fn begin(&self, machine: usize) -> Life {
        let mut state = self.state();
        let door = &mut state.doors[machine];
        door.life += 1;
        door.is_up = true;
        Life { machine, number: door.life }
    }

    pub(crate) fn connect(&self, life: Life, node: Node) {
        self.state().doors[life.machine].node = Some(node);
    }

    /// The life of a machine is over: from now on nothing is heard from it.
    pub(crate) fn end(&self, machine: usize) -> Option<Node> {
        let mut state = self.state();
        let door = &mut state.doors[machine];
        (door.is_up, door.is_paused) = (false, false);
        let node = door.node.take();
        drop(state);
        self.moved.send_replace(());
        node
    }

    pub(crate) fn node(&self, machine: usize) -> Option<Node> {
        self.state().doors[machine].node.clone()
    }

    /// The nodes that are up, and their lives.
    pub(crate) fn nodes(&self) -> Vec<(Life, Node)> {
        let state = self.state();
        let doors = state.doors.iter().enumerate();
        doors.filter_map(|(machine, door)| Some((Life { machine, number: door.life }, door.node.clone()?))).collect()
    }

    /// The node on a machine, and its life.
    pub(crate) fn life(&self, machine: usize) -> Option<(Life, Node)> {
        let state = self.state();
        let door = &state.doors[machine];
        Some((Life { machine, number: door.life }, door.node.clone()?))
    }

    pub(crate) fn is_alive(&self, life: Life) -> bool {
        let door = &self.state().doors[life.machine];
        door.is_up && door.life == life.number
    }

    pub(super) fn host(&self, machine: usize) -> Option<(Life, Host)> {
        self.life(machine).map(|(life, node)| (life, Host::new(node)))
    }

    pub(crate) fn pause(&self, machine: usize) {
        self.state().doors[machine].is_paused = true;
    }

    pub(crate) fn resume(&self, machine: usize) {
        self.state().doors[machine].is_paused = false;
        self.moved.send_replace(());
    }

    /// Nothing goes from one to the other, but perhaps back.
    pub(crate) fn cut(&self, pairs: impl IntoIterator<Item = (usize, usize)>) {
        self.state().cuts.extend(pairs);
        self.moved.send_replace(());
    }

    /// Messages from one machine to another pass again, those that were held first.
    #[cfg(test)]
    pub(crate) fn uncut(&self, from: usize, to: usize) {
        self.state().cuts.remove(&(from, to));
        self.moved.send_replace(());
    }

    /// Everybody hears everybody.
    pub(crate) fn mend(&self) {
        self.state().cuts.clear();
        self.moved.send_replace(());
    }

    /// From now on every message of a client arrives, and is answered.
    pub(crate) fn calm_clients(&self) {
        self.state().is_rough = false;
    }

    pub(crate) fn is_rough(&self) -> bool {
        self.state().is_rough
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    pub(super) fn weather(&self) -> Weather {
        self.state().weather
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.state().cuts.contains(&(from, to))
    }

    /// Returns when this is so.
    pub(super) async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let mut moved = self.moved.subscribe();
        while !is_so(self) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn runs(&self, machine: usize) -> bool {
        !self.state().doors[machine].is_paused
    }

    /// A delay as the weather has it.
    pub(super) fn delay(&self) -> Duration {
        let max = self.weather().delay_ms_max;
        if max > Weather::CALM.delay_ms_max {
            self.tally.count(Fault::Delay);
        }
        Duration::from_micros(self.dice.between(50, max * 1_000))
    }

    /// True if the weather says so, once in so many.
    pub(super) fn strikes(&self, one_in: u64) -> bool {
        one_in > 0 && self.dice.one_in(one_in)
    }

    /// Carries one message between machines. False: it is lost.
    pub(super) async fn carry(&self, from: usize, to: usize) -> bool {
        sleep(self.delay()).await;
        self.until(|net| net.runs(from) && net.runs(to)).await;
        if self.is_cut(from, to) {
            return false;
        }
        let is_lost = self.strikes(self.weather().loses_one_in);
        if is_lost {
            self.tally.count(Fault::Loss);
        }
        !is_lost
    }

    /// Carries a client's message to a machine, or the answer back: clients are near, and a process that does not run
    /// neither hears nor speaks.
    pub(crate) async fn reach(&self, machine: usize, time: Duration) {
        sleep(time).await;
        self.until(|net| net.runs(machine)).await;
    }
}

pub(super) fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens there")
}

pub(super) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")
}
