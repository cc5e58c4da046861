//! What a command starts as: a process that has its own group already, stands still until that is guarded, and then
//! becomes the command. If the wrapper dies before, it dies as well.

use super::{GATE, Plan, not_typed, ourselves};
use crate::failure::Failure;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Starts the gate of a command. It stops itself when it is ready.
pub(super) fn start(plan: &Plan) -> io::Result<Pid> {
    let mut command = ourselves(GATE);
    command.arg(getpid().as_raw_pid().to_string()).arg(&plan.program.path).args(&plan.program.argv);
    command.envs(plan.env.iter().map(|(name, value)| (name, value))).process_group(0);
    Ok(Pid::from_child(&command.spawn()?))
}

/// Waits to be let through, and becomes the command. It comes back only with why not.
pub(super) fn stand(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let (wrapper, path) = (super::read::<i32>(&mut words), words.next());
    let (Some(wrapper), Some(path), Some(name)) = (wrapper, path, words.next()) else {
        return not_typed(GATE).report();
    };
    let ready = set_parent_process_death_signal(Some(Signal::KILL)).and_then(|()| {
        // The wrapper may have died before it was our death as well.
        match getppid().map(Pid::as_raw_pid) == Some(wrapper) {
            true => kill_process(getpid(), Signal::STOP).and_then(|()| set_parent_process_death_signal(None)),
            false => Err(rustix::io::Errno::SRCH),
        }
    });
    match ready {
        // By this the mask is emptied, and SIGPIPE is no longer ignored, as everywhere in Rust.
        Ok(()) => not_executed(&name, &path, &Command::new(&path).arg0(&name).args(words).exec()).report(),
        Err(error) => super::cannot_start(&error.to_string()).report(),
    }
}

/// The program was there when it was looked for.
fn not_executed(name: &OsString, path: &OsString, error: &io::Error) -> Failure {
    let what = format!("cannot run {}", name.display());
    let path = PathBuf::from(path);
    match error.kind() {
        io::ErrorKind::NotFound if path.exists() => {
            let why = format!("the interpreter that {} names is not there; it did not run", path.display());
            Failure::cannot_execute(&what, &why, &format!("Look at its first line: head -1 {}", path.display()))
        }
        io::ErrorKind::NotFound => {
            let why = format!("{} is no longer there; it did not run", path.display());
            Failure::command_not_found(&what, &why, "Put it back, and run it again.")
        }
        _ => {
            let why = format!("{}: {error}; it did not run", path.display());
            Failure::cannot_execute(&what, &why, &format!("Look at what it is: file {}", path.display()))
        }
    }
}
