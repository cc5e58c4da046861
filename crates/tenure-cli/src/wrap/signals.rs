//! The signals that a wrapper hands on. They are caught before a lease is asked for, so that none is lost in between.

use rustix::process::{Signal, getpid, kill_process};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// All that can be caught and that somebody may mean for the command. Not among them: what a process does to itself
/// (faults, SIGABRT, SIGPIPE, SIGXCPU, SIGXFSZ), what tells of our own children and our own use of the terminal
/// (SIGCHLD, SIGTTIN, SIGTTOU), and real-time signals.
const FORWARDED: [Signal; 15] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TERM,
    Signal::CONT,
    Signal::TSTP,
    Signal::URG,
    Signal::VTALARM,
    Signal::PROF,
    Signal::WINCH,
    Signal::IO,
    Signal::POWER,
];

/// Those that end no program unless it says so.
const HARMLESS: [Signal; 4] = [Signal::CONT, Signal::TSTP, Signal::URG, Signal::WINCH];

/// Those by which people stop a program in good order.
const STOPS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::QUIT];

/// The signals that came and were not looked at yet.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(Signal, Caught)>,
    /// Who is told before the first one that stops is handed on, and has to answer.
    announce: Option<mpsc::Sender<oneshot::Sender<()>>>,
    /// One that waits for that answer.
    held: Option<(Signal, oneshot::Receiver<()>)>,
}

/// Told when the command is about to be asked to stop. It is asked when this is answered, or dropped.
pub(crate) type Announced = mpsc::Receiver<oneshot::Sender<()>>;

impl Signals {
    /// Catches signals from now on. What was ignored when this process was started stays ignored, for it and for the
    /// command, as `nohup` wants it.
    pub(crate) fn catch() -> io::Result<Self> {
        Self::catch_but(ignored())
    }

    fn catch_but(ignored: u64) -> io::Result<Self> {
        let wanted = FORWARDED.into_iter().filter(|signal| !is_in(ignored, *signal) || *signal == Signal::CONT);
        let caught = wanted.map(|kind| Ok((kind, signal(SignalKind::from_raw(kind.as_raw()))?)));
        Ok(Self { caught: caught.collect::<io::Result<_>>()?, announce: None, held: None })
    }

    /// Holds the first one that stops back until somebody was told and has answered. A second one does not wait.
    pub(crate) fn announced(mut self) -> (Self, Announced) {
        let (announce, announced) = mpsc::channel(1);
        self.announce = Some(announce);
        (self, announced)
    }

    /// The next one. It may be given up and asked again.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            let signal = self.next_or_released().await;
            match self.announce.take_if(|_| STOPS.contains(&signal)) {
                Some(announce) => {
                    let (answer, answered) = oneshot::channel();
                    // Whoever is not there to be told has nothing to do before.
                    let _ = announce.try_send(answer);
                    self.held = Some((signal, answered));
                }
                None => return signal,
            }
        }
    }

    async fn next_or_released(&mut self) -> Signal {
        poll_fn(|context| {
            if let Some((signal, answered)) = &mut self.held
                && Pin::new(answered).poll(context).is_ready()
            {
                let signal = *signal;
                self.held = None;
                return Poll::Ready(signal);
            }
            let mut came = self.caught.iter_mut().filter_map(|(signal, caught)| match caught.poll_recv(context) {
                Poll::Ready(_) => Some(*signal),
                Poll::Pending => None,
            });
            let came = came.next();
            if came.is_some_and(|signal| STOPS.contains(&signal)) {
                // Whoever insists does not wait for those who were told.
                self.held = None;
            }
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next one that ends a program which has not started yet, by its number. Ctrl-Z works meanwhile.
    pub(crate) async fn given_up(&mut self) -> u8 {
        loop {
            match self.next().await {
                Signal::TSTP => stop_ourselves(),
                signal if HARMLESS.contains(&signal) => {}
                signal => return number(signal),
            }
        }
    }
}

pub(super) fn number(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or(u8::MAX)
}

/// Stands still until somebody sends SIGCONT.
pub(super) fn stop_ourselves() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// The signals that this process ignores, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

fn is_in(bits: u64, signal: Signal) -> bool {
    bits >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_bits_are_read() {
        // Rust's start ignores SIGPIPE, and nothing else.
        assert!(is_in(ignored(), Signal::PIPE));
        assert!(!is_in(ignored(), Signal::USR2));
        assert!(is_in(1, Signal::HUP) && is_in(1 << 14, Signal::TERM) && !is_in(1 << 14, Signal::HUP));
    }

    #[tokio::test]
    async fn what_is_caught_is_given_one_by_one() {
        // Whatever this process was started with, under `nohup` or in the background of a script.
        let mut signals = Signals::catch_but(0).unwrap();
        kill_process(getpid(), Signal::WINCH).unwrap();
        assert_eq!(signals.next().await, Signal::WINCH);
        kill_process(getpid(), Signal::URG).unwrap();
        kill_process(getpid(), Signal::USR1).unwrap();
        assert_eq!(signals.given_up().await, number(Signal::USR1), "what harms nobody gives nothing up");
        who_is_told_is_waited_for().await;
    }

    /// Signals are of the whole process, so that this is a part of the one test that sends some: the first one that stops waits
    /// until it was told, and a second one does not.
    async fn who_is_told_is_waited_for() {
        for insists in [false, true] {
            let (mut signals, mut announced) = Signals::catch_but(0).unwrap().announced();
            kill_process(getpid(), Signal::QUIT).unwrap();
            let answer = tokio::select! {
                answer = announced.recv() => answer.unwrap(),
                signal = signals.next() => panic!("{signal:?} did not wait"),
            };
            kill_process(getpid(), Signal::USR2).unwrap();
            assert_eq!(signals.next().await, Signal::USR2, "others go on");
            if insists {
                kill_process(getpid(), Signal::INT).unwrap();
                assert_eq!(signals.next().await, Signal::INT);
            } else {
                answer.send(()).unwrap();
                assert_eq!(signals.next().await, Signal::QUIT);
            }
        }
    }
}
