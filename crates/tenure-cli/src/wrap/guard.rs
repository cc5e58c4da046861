//! The guard: a process that stops a group when its wrapper does not, because that was killed or stands still. It goes
//! by its own copy of the limits, has no terminal, and nothing but SIGKILL ends it before its work is done.

use super::course::{Act, Course};
use super::group::Group;
use super::orders::{Lines, Order, Report};
use super::{GUARD, Limits, OnJeopardy, OnLost, Told, Ways, not_typed, ourselves};
use crate::failure::Failure;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, setsid};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;

/// By so much the wrapper comes first, so that a group is not asked twice.
const WRAPPER_FIRST: Duration = Duration::from_millis(50);

/// How often it is looked whether the group is gone. Whoever is not its parent is not told.
const LOOK: Duration = Duration::from_millis(20);

/// A guard for a group, ready to be started.
pub(super) fn command(group: Group, course: &Course) -> Command {
    let (Ways { budget, on_lost, on_jeopardy }, limits) = (course.ways(), course.limits());
    let mut command = ourselves(GUARD);
    command.arg(group.leader().as_raw_pid().to_string());
    command.arg(if on_lost == OnLost::Kill { "kill" } else { "term" });
    command.arg(if on_jeopardy == OnJeopardy::Pause { "pause" } else { "none" });
    command.args([budget.as_nanos().to_string(), limits.stop.nanos().to_string(), limits.kill.nanos().to_string()]);
    command
}

fn read(mut words: impl Iterator<Item = OsString>) -> Option<(Group, Course)> {
    let group = Pid::from_raw(super::read(&mut words)?).filter(|pid| !pid.is_init())?;
    let on_lost = match words.next()?.to_str()? {
        "term" => OnLost::Term,
        "kill" => OnLost::Kill,
        _ => return None,
    };
    let on_jeopardy = match words.next()?.to_str()? {
        "none" => OnJeopardy::None,
        "pause" => OnJeopardy::Pause,
        _ => return None,
    };
    let budget = Duration::from_nanos(super::read(&mut words)?);
    let limits = Limits {
        stop: BootTime::from_nanos(super::read(&mut words)?),
        kill: BootTime::from_nanos(super::read(&mut words)?),
    };
    let course = Course::new(Ways { budget, on_lost, on_jeopardy }, after_the_wrapper(limits));
    words.next().is_none().then_some((Group::of(group), course))
}

/// Guards a group until it is gone, or until it is told to go home.
pub(super) fn stand(words: impl Iterator<Item = OsString>) -> ExitCode {
    let Some((group, course)) = read(words) else {
        return not_typed(GUARD).report();
    };
    let guarded = apart().and_then(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let orders = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
            guard(group, course, Lines::of(orders)).await;
            Ok(())
        })
    });
    match guarded {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::before("cannot guard a group", &error.to_string(), "Type `tenure help run`.").report(),
    }
}

/// Out of reach of terminals, signals and directories that somebody wants to unmount.
fn apart() -> io::Result<()> {
    SigSet::all().thread_block()?;
    setsid()?;
    rustix::thread::set_name(c"tenure-guard")?;
    std::env::set_current_dir("/")
}

async fn guard(group: Group, mut course: Course, mut orders: Lines) {
    let clock = Clock::system();
    let mut is_heard = true;
    report(Report::Armed);
    loop {
        let due = course.due(clock.now());
        perform(group, due);
        let is_over = !is_heard || course.stopping().is_some() || course.is_killing();
        if is_over && group.is_gone() {
            return;
        }
        tokio::select! {
            biased;
            () = clock.until(course.next()) => {}
            order = orders.next(), if is_heard => {
                let now = clock.now();
                let act = match order {
                    Some(Order::Home) => return,
                    Some(Order::Until(limits)) => course.told(Told::Until(after_the_wrapper(limits)), now),
                    Some(Order::Stopping(kill)) => {
                        course.was_asked(kill);
                        None
                    }
                    // The wrapper is dead, or out of its mind.
                    None => {
                        is_heard = false;
                        course.told(Told::EndedBySomebody(course.limits()), now)
                    }
                };
                perform(group, act);
            }
            () = sleep(LOOK), if is_over => {
                // Whoever came in between is killed as well.
                perform(group, course.is_killing().then_some(Act::Kill));
            }
        }
    }
}

/// There is nobody to tell if it fails: the group belongs to somebody else then, and the fence has to do.
fn perform(group: Group, act: Option<Act>) {
    if let Some(act) = act {
        let _ = group.perform(act);
    }
}

/// The wrapper may be dead by now.
fn report(report: Report) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "{report}").and_then(|()| stdout.flush());
}

/// SIGKILL is sent by both at the same time.
fn after_the_wrapper(limits: Limits) -> Limits {
    Limits { stop: limits.stop + WRAPPER_FIRST, ..limits }
}
