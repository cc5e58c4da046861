//! The process side of `tenure run`: a command in a process group of its own, which is stopped in time. It knows no lease
//! and no server; it is told limits, and keeps them.
//!
//! Three processes of this binary take part. The *wrapper* is the one that was typed. The *gate* is what the command
//! starts as: it waits until the group is guarded, and then becomes the command. The *guard* has its own copy of the
//! limits, and stops the group if the wrapper no longer does.

mod checker;
mod course;
mod gate;
mod group;
mod guard;
mod guarding;
mod orders;
mod program;
mod signals;
mod terminal;
mod wrapper;

pub(crate) use checker::Checker;
pub(crate) use program::Program;
pub(crate) use signals::{Announced, Signals};

use crate::failure::Failure;
use clap::ValueEnum;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tokio::sync::{oneshot, watch};

/// When a group is asked to stop and when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) stop: BootTime,
    pub(crate) kill: BootTime,
}

/// What whoever keeps the lease says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It lives, and these are the newest limits.
    Until(Limits),
    /// It has ended before its time: the group is asked to stop at once, and the limits are the last ones.
    EndedBySomebody(Limits),
}

/// What is done to a group whose lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Ask it to stop with SIGTERM, and kill what does not.
    Term,
    /// Kill it without asking.
    Kill,
    /// Do nothing to it, ever: the fence has to do.
    Ignore,
}

/// What is done to a group when it would be asked to stop, because renewals fail, and its lease is not lost yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnJeopardy {
    /// Stop it as if the lease were lost: there is no time left for anything else.
    None,
    /// Pause it with SIGSTOP until a renewal is answered, and kill it if none is.
    Pause,
}

/// How a group is brought to an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// How long it has between being asked and being killed.
    pub(crate) budget: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) on_jeopardy: OnJeopardy,
}

/// What to run, and how to end it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    /// What the command finds in its environment beside ours.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) ways: Ways,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Code(u8),
    Signal(u8),
}

impl Status {
    /// As shells say it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// Why the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    Itself,
    /// Its lease was lost, so that it was stopped.
    Lost,
    /// Somebody sent a signal by which people end programs, and it was forwarded.
    Forwarded(u8),
}

/// A group that is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) because: Because,
}

/// Runs a command until its whole group is gone. `told` is fed by whoever keeps the lease; `signals` were caught before
/// the lease was asked for.
///
/// All of it happens in a thread of its own, so that nothing else that this process does can delay a signal, and because
/// the gate lives no longer than the thread that started it.
pub(crate) async fn supervise(
    plan: Plan,
    told: watch::Receiver<Told>,
    signals: Signals,
    clock: Clock,
) -> Result<Ended, Failure> {
    let (tell, ended) = oneshot::channel();
    let supervise = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let result = runtime.map_err(|error| cannot_start(&error.to_string()));
        let result = result.and_then(|runtime| runtime.block_on(wrapper::run(plan, told, signals, clock)));
        // Whoever asked waits for this alone, or has gone.
        let _ = tell.send(result);
    };
    let thread = std::thread::Builder::new().name("tenure-wrap".into());
    thread.spawn(supervise).map_err(|error| cannot_start(&error.to_string()))?;
    ended.await.unwrap_or_else(|_| Err(cannot_start("the thread that runs it has ended")))
}

/// What is said when the command could not be started, or not be guarded.
fn cannot_start(why: &str) -> Failure {
    let why = format!("{why}; it did not run");
    Failure::new("cannot start the command", &why, "Free some memory, processes or files: look with `ulimit -a`.")
}

const GATE: &str = "exec-behind-gate";
const GUARD: &str = "guard-group";
const CHECKER: &str = "check-again-and-again";

/// This process, if a wrapper has started it as a part of itself: to the end, and its exit code.
pub(crate) fn part() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next()?.to_str()? {
        GATE => Some(gate::stand(words)),
        GUARD => Some(guard::stand(words)),
        CHECKER => Some(checker::stand(words)),
        _ => None,
    }
}

/// This binary once more, even if its file has been replaced.
fn ourselves(part: &str) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("tenure").arg(part);
    command
}

/// What is said to whoever types the name of a part.
fn not_typed(part: &str) -> Failure {
    let what = format!("cannot do {part}");
    Failure::usage(
        &what,
        "it is a part of `tenure run` and `tenure register`, which start it by themselves",
        "Type `tenure help run`.",
    )
}

/// The next word, as what it has to be.
fn read<T: std::str::FromStr>(words: &mut impl Iterator<Item = OsString>) -> Option<T> {
    words.next()?.to_str()?.parse().ok()
}
