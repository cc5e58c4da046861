//! The terminal of a wrapper: handed to the command's group, so that keys reach it once and it may read, and taken back.

use super::group::Group;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
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
        Some(Self { file, us: getpgrp(), modes, is_lent: false })
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
            in_the_background(|| {
                let _ = tcsetpgrp(&self.file, self.us);
            });
        }
    }

    /// Sets it as it was, after a command that had no time to do so.
    pub(super) fn restore(&self) {
        if let Some(modes) = &self.modes {
            in_the_background(|| {
                let _ = tcsetattr(&self.file, OptionalActions::Now, modes);
            });
        }
    }
}

/// Does something with the terminal that would stop a process which is not in its foreground.
fn in_the_background(work: impl FnOnce()) {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    if let Ok(before) = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
        work();
        let _ = before.thread_set_mask();
    }
}
