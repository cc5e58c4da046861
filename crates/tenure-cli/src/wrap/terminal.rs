//! The terminal of a wrapper: handed to the command's group, so that keys reach it once and it may read, and taken back.

use super::group::{self, Group};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal};

/// The terminal that this process is controlled from.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    us: Pid,
    /// How it was set before the command changed it.
    modes: Option<Termios>,
    is_lent: bool,
}

impl Terminal {
    /// There is none for a service, or behind `setsid`.
    pub(super) fn open() -> Option<Self> {
        let file = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self { file, us: group::ours()?, modes, is_lent: false })
    }

    /// Whether the command is likely to talk with whoever types: nothing of it is piped. In `tenure run x -- a | less` the
    /// keys are for `less`.
    pub(super) fn is_for_the_command() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    pub(super) fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Hands it to a group if it is ours to give, and says whether the group has it.
    pub(super) fn lend(&mut self, group: Group) -> bool {
        let is_ours = tcgetpgrp(&self.file).is_ok_and(|owner| owner == self.us);
        self.is_lent |= is_ours && tcsetpgrp(&self.file, group.leader()).is_ok();
        self.is_lent
    }

    /// Takes back what was lent.
    pub(super) fn take_back(&mut self) {
        if self.is_lent {
            self.is_lent = false;
            let _ = tcsetpgrp(&self.file, self.us);
        }
    }

    /// Sets it as it was, after a command that had no time to do so.
    pub(super) fn restore(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.file, OptionalActions::Now, modes);
        }
    }
}

/// Lets this thread use the terminal while another group has it. It would be stopped otherwise: when it takes the terminal
/// back, and where `stty tostop` is set even when it says something.
pub(super) fn use_from_the_background() -> io::Result<()> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    Ok(mask.thread_block()?)
}
