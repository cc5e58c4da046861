//! The process group of a command: signals to all of it, and whether anything of it lives. It never decides.

use super::course::Act;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process_group, test_kill_process_group};

#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    leader: Pid,
}

/// The processes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    living: usize,
    /// Those that have exited, while whoever started them has not asked how.
    dead: usize,
}

impl Group {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader }
    }

    pub(super) fn leader(self) -> Pid {
        self.leader
    }

    /// Sends a signal to all of them. That nobody is left is no failure.
    pub(super) fn signal(self, signal: Signal) -> Result<(), Errno> {
        match kill_process_group(self.leader, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    pub(super) fn perform(self, act: Act) -> Result<(), Errno> {
        match act {
            // Whoever is stopped hears nothing before it goes on.
            Act::Ask => self.signal(Signal::TERM).and_then(|()| self.signal(Signal::CONT)),
            Act::Pause => self.signal(Signal::STOP),
            Act::Continue => self.signal(Signal::CONT),
            Act::Kill => self.signal(Signal::KILL),
        }
    }

    /// Whether nothing of it runs any more. Who has exited does not count, even if nobody ever asks for it.
    pub(super) fn is_gone(self) -> bool {
        match test_kill_process_group(self.leader) {
            Err(Errno::SRCH) => true,
            // Processes that hide from us live as well: only those that are seen to be dead are dead.
            _ => matches!(self.census(), Census { living: 0, dead: 1.. }),
        }
    }

    /// How many of it run.
    pub(super) fn living(self) -> usize {
        self.census().living
    }

    fn census(self) -> Census {
        let mut census = Census::default();
        let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let stats = names.filter_map(|path| std::fs::read_to_string(path.join("stat")).ok());
        for stat in stats.filter_map(|stat| Stat::read(&stat)).filter(|stat| stat.group == self.leader.as_raw_pid()) {
            match stat.is_living {
                true => census.living += 1,
                false => census.dead += 1,
            }
        }
        census
    }
}

/// Whether no shell looks after our own group: its ancestors beyond it are of another session.
pub(super) fn is_orphaned() -> bool {
    !is_looked_after(getpid().as_raw_pid(), Stat::of)
}

/// The number of our own group. It has none inside a container that it reaches into from outside.
pub(super) fn ours() -> Option<Pid> {
    Pid::from_raw(Stat::of(getpid().as_raw_pid())?.group)
}

/// In a container, groups and sessions from outside all have the number 0; whoever is of none of its own sessions is of the
/// one that the container was started in.
fn is_looked_after(pid: i32, stat_of: impl Fn(i32) -> Option<Stat>) -> bool {
    let Some(ours) = stat_of(pid) else { return false };
    let mut beyond = stat_of(ours.parent);
    while let Some(stat) = beyond.take_if(|stat| stat.group == ours.group) {
        beyond = stat_of(stat.parent);
    }
    beyond.is_some_and(|stat| stat.session == ours.session)
}

/// What the kernel says of a process, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    group: i32,
    session: i32,
    is_living: bool,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(line: &str) -> Option<Self> {
        // The name comes before all of this, and may have anything in it.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let has_exited = matches!(*fields.first()?, "Z" | "X");
        let threads: u64 = fields.get(17)?.parse().ok()?;
        // The first thread may have ended while others go on.
        let is_living = !has_exited || threads > 1;
        let number = |place: usize| fields.get(place)?.parse().ok();
        Some(Self { parent: number(1)?, group: number(2)?, session: number(3)?, is_living })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn the_kernels_line_is_read_whatever_the_name() {
        let line = |name: &str, state: &str, threads: u64| {
            format!("7 ({name}) {state} 1 42 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 100 0 0")
        };
        let is = |is_living| Some(Stat { parent: 1, group: 42, session: 7, is_living });
        for name in ["sh", "a b", ") Z 1 9 (", ""] {
            assert_eq!(Stat::read(&line(name, "S", 1)), is(true), "{name}");
        }
        assert_eq!(Stat::read(&line("sh", "Z", 1)), is(false));
        assert_eq!(Stat::read(&line("sh", "Z", 3)), is(true), "threads go on");
        assert_eq!(Stat::read("7 (sh) S"), None);
    }

    #[test]
    fn a_group_is_looked_after_by_a_shell_of_its_session_alone() {
        let ours = Stat { parent: 4, group: 4, session: 2, is_living: true };
        let starter = |group, session| Stat { parent: 1, group, session, is_living: true };
        let is_job_of = |shell: Option<Stat>| {
            let stats = [(5, Some(ours)), (4, Some(Stat { parent: 3, ..ours })), (3, shell)];
            is_looked_after(5, |pid| stats.iter().find(|(known, _)| *known == pid)?.1)
        };
        assert!(is_job_of(Some(starter(3, 2))), "by the shell that started it as a job");
        assert!(!is_job_of(Some(starter(3, 3))), "not from another session");
        assert!(!is_job_of(Some(starter(0, 0))), "not from outside the container");
        assert!(!is_job_of(None), "not by nobody");
    }

    fn start(script: &str) -> (Child, Group) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).process_group(0);
        let child = command.spawn().unwrap();
        let leader = Pid::from_child(&child);
        (child, Group::of(leader))
    }

    #[test]
    fn who_has_exited_and_is_not_asked_for_does_not_count() {
        let (mut child, group) = start("read line");
        assert!(!group.is_gone() && group.living() == 1);
        drop(child.stdin.take());
        while group.living() == 1 {
            std::thread::yield_now();
        }
        assert_eq!(group.census(), Census { living: 0, dead: 1 });
        assert!(group.is_gone(), "it has exited, and nobody has asked how");
        child.wait().unwrap();
        assert!(group.is_gone() && group.census() == Census::default());
        group.perform(Act::Kill).expect("that nobody is left is no failure");
    }

    #[test]
    fn all_of_a_group_are_stopped_and_killed() {
        let (mut child, group) = start("sleep 1000 & sleep 1000 & wait");
        while group.living() < 3 {
            std::thread::yield_now();
        }
        group.perform(Act::Pause).unwrap();
        group.perform(Act::Kill).unwrap();
        child.wait().unwrap();
        while !group.is_gone() {
            std::thread::yield_now();
        }
    }
}
