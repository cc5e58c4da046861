//! The checker: a process of its own that runs one command again and again, and tells what it found, a line each time. It
//! ends with whoever started it. A command that takes too long is killed, with its group, and so is what it leaves behind.

use super::group::Group;
use super::{CHECKER, not_typed, ourselves};
use rustix::process::{Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tenure::clock::Clock;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};

/// As much of what a command prints is kept, and as much of that is told.
const PRINTED_MAX: usize = 4096;
const NOTE_CHARS_MAX: usize = 200;

/// What one run of the command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) is_well: bool,
    pub(crate) note: String,
}

/// A checker that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Checker {
    child: Child,
    lines: pipe::Receiver,
    unread: Vec<u8>,
}

impl Checker {
    /// Starts to run a command so often, each time for at most as long.
    pub(crate) fn start(command: &str, interval: Duration) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut checker = ourselves(CHECKER);
        checker.arg(interval.as_millis().to_string()).arg(command);
        checker.stdin(Stdio::piped()).stdout(writer).process_group(0);
        let child = checker.spawn()?;
        Ok(Self { child, lines: pipe::Receiver::from_owned_fd(reader.into())?, unread: Vec::new() })
    }

    /// What it found next; none when it has ended. It may be given up and asked again.
    pub(crate) async fn next(&mut self) -> Option<Found> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let (word, note) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
                return Some(Found { is_well: word == "ok", note: note.into() });
            }
            if !matches!(self.lines.read_buf(&mut self.unread).await, Ok(1..)) {
                return None;
            }
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // It ends when its stdin does. Somebody else of this process may have asked for its end already.
        drop(self.child.stdin.take());
        let _ = self.child.try_wait();
    }
}

/// Checks until whoever started it is gone.
pub(super) fn stand(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(interval_ms), Some(command)) = (super::read::<u64>(&mut words), words.next()) else {
        return not_typed(CHECKER).report();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let checked = runtime.and_then(|runtime| runtime.block_on(check(Duration::from_millis(interval_ms), &command)));
    match checked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::cannot_start(&error.to_string()).report(),
    }
}

async fn check(interval: Duration, command: &OsStr) -> io::Result<()> {
    let clock = Clock::system();
    let mut starter = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut children = signal(SignalKind::child())?;
    let checking = async {
        loop {
            let until = clock.now() + interval;
            let found = attempt(command, interval, &clock, &mut children)
                .await
                .unwrap_or_else(|error| Found { is_well: false, note: format!("it cannot be run: {error}") });
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "{} {}", if found.is_well { "ok" } else { "no" }, found.note)?;
            stdout.flush()?;
            drop(stdout);
            clock.until(until).await;
        }
    };
    let mut byte = [0];
    tokio::select! {
        failed = checking => failed,
        _ = starter.read(&mut byte) => Ok(()),
    }
}

/// A command that runs. Dropping it kills its group.
struct Running {
    child: Child,
    group: Group,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.group.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

async fn attempt(command: &OsStr, limit: Duration, clock: &Clock, children: &mut Caught) -> io::Result<Found> {
    let until = clock.now() + limit;
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
    let child = shell.spawn()?;
    drop(shell);
    let group = Group::of(Pid::from_child(&child));
    let mut running = Running { child, group };
    let mut printed = pipe::Receiver::from_owned_fd(reader.into())?;
    let (mut said, mut is_open) = (Vec::new(), true);
    loop {
        if let Some(status) = running.child.try_wait()? {
            // What it printed last may lie unread. It is asked for directly: the runtime may not have heard of it yet. Who was
            // left behind may hold the pipe open and print for ever, so that there is a limit to this as well.
            let mut rest = File::from(printed.into_nonblocking_fd()?).take(PRINTED_MAX as u64);
            let _ = rest.read_to_end(&mut said);
            return Ok(Found { is_well: status.success(), note: note(status, &said) });
        }
        tokio::select! {
            _ = children.recv() => {}
            read = printed.read_buf(&mut said), if is_open => {
                is_open = matches!(read, Ok(1..));
                said.truncate(PRINTED_MAX);
            }
            () = clock.until(until) => {
                let took = crate::print::span(limit);
                return Ok(Found { is_well: false, note: format!("it took longer than {took}, and was killed") });
            }
        }
    }
}

/// How it ended, and the first line that it printed.
fn note(status: ExitStatus, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(NOTE_CHARS_MAX).collect();
    match status.code() {
        Some(0) => line,
        _ if line.is_empty() => status.to_string(),
        _ => format!("{status}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ran(command: &str, limit: Duration) -> Found {
        let clock = Clock::system();
        let mut children = signal(SignalKind::child()).unwrap();
        attempt(OsStr::new(command), limit, &clock, &mut children).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_tells_by_its_exit_code_and_its_first_line() {
        let long = Duration::from_secs(60);
        let well = ran("echo; echo fine; echo more", long).await;
        assert_eq!(well, Found { is_well: true, note: "fine".into() });
        let ill = ran("echo 'no disk' >&2; exit 3", long).await;
        assert_eq!(ill, Found { is_well: false, note: "exit status: 3: no disk".into() });
        assert_eq!(ran("exit 7", long).await.note, "exit status: 7");
        let loud = ran("head -c 1000000 /dev/zero | tr '\\0' x; echo", long).await;
        assert_eq!((loud.is_well, loud.note.len()), (true, NOTE_CHARS_MAX), "whatever it prints is bounded");
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait", pid.display());
        let found = ran(&command, Duration::from_secs(5)).await;
        assert!(!found.is_well && found.note.contains("longer than 5.0s"), "{found:?}");
        let child: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !is_gone() {
            tokio::task::yield_now().await;
        }
    }
}
