//! The wrapper's end of a guard: it is started, told, heard, and replaced when it dies.

use super::course::Course;
use super::group::Group;
use super::guard;
use super::orders::{Lines, Order, Report};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// How many in a row may die before they are armed. One is enough for a Ctrl-C that was typed as it started.
const ATTEMPTS_MAX: u32 = 3;

/// How long a guard may take to be armed, or to go home.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Guarding {
    group: Group,
    guard: Option<Guard>,
    attempts: u32,
}

#[derive(Debug)]
struct Guard {
    process: OwnedFd,
    /// It never blocks: a guard that does not read is as bad as none.
    orders: ChildStdin,
    reports: Lines,
}

/// What a guard has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    /// Another one has taken its place, or takes it now.
    Still,
    /// There is none any more.
    No,
}

impl Guarding {
    /// Starts a guard, and returns when it is armed.
    pub(super) async fn start(group: Group, course: &Course) -> io::Result<Self> {
        let mut guarding = Self { group, guard: None, attempts: 0 };
        guarding.replace(course)?;
        loop {
            let armed = timeout(PATIENCE, guarding.report()).await;
            match armed.map_err(|_| io::Error::other("the guard is not ready in time"))? {
                Some(Report::Armed) => {
                    guarding.attempts = 0;
                    return Ok(guarding);
                }
                None => guarding.replace(course)?,
            }
        }
    }

    /// Tells the guard. One that does not listen is killed, and replaced when that is heard.
    pub(super) fn tell(&mut self, order: Order) {
        let Some(guard) = &mut self.guard else { return };
        // What is this short is written as a whole or not at all.
        if guard.orders.write(order.to_string().as_bytes()).is_err() {
            guard.kill();
        }
    }

    /// What the guard comes to next. It may be given up and asked again.
    pub(super) async fn next(&mut self, course: &Course) -> Guarded {
        match self.report().await {
            Some(Report::Armed) => {
                self.attempts = 0;
                Guarded::Still
            }
            None => self.replaced(course),
        }
    }

    /// Sends the guard home, and returns when it has gone.
    pub(super) async fn home(mut self) {
        self.tell(Order::Home);
        let Some(mut guard) = self.guard.take() else { return };
        let going = async { while guard.reports.next::<Report>().await.is_some() {} };
        let _ = timeout(PATIENCE, going).await;
        guard.kill();
        let _ = waitid(WaitId::PidFd(guard.process.as_fd()), WaitIdOptions::EXITED);
    }

    /// Reports end when the guard does; without one there are none.
    async fn report(&mut self) -> Option<Report> {
        match &mut self.guard {
            Some(guard) => guard.reports.next().await,
            None => std::future::pending().await,
        }
    }

    fn replaced(&mut self, course: &Course) -> Guarded {
        // It goes when its work is done, and may have seen that before us.
        if self.group.is_gone() {
            self.dismiss();
            return Guarded::Still;
        }
        match self.replace(course) {
            Ok(()) => Guarded::Still,
            Err(_) => Guarded::No,
        }
    }

    fn replace(&mut self, course: &Course) -> io::Result<()> {
        self.dismiss();
        if self.attempts == ATTEMPTS_MAX {
            return Err(io::Error::other("guards die before they are ready"));
        }
        self.attempts += 1;
        let mut command = guard::command(self.group, course);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let (Some(orders), Some(reports)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        ioctl_fionbio(&orders, true)?;
        let reports = Lines::of(Receiver::from_owned_fd(reports.into())?);
        self.guard = Some(Guard { process, orders, reports });
        if let Some(kill) = course.stopping() {
            self.tell(Order::Stopping(kill));
        }
        Ok(())
    }

    /// Kills the guard before it can hear that its orders have ended, which it would take for our death.
    fn dismiss(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.kill();
        }
    }
}

impl Guard {
    /// It may be dead already.
    fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}
