//! The wrapper: starts a command behind its gate, has it guarded, hands signals and the terminal on, stops the group by
//! its limits, and sees it gone. The guard is told before anything is done, and anything is done before it is said, so
//! that a stderr which nobody reads delays nothing.

use super::course::{Act, Course};
use super::group::{Group, is_orphaned};
use super::guarding::{Guarded, Guarding};
use super::orders::Order;
use super::signals::{self, Signals, stop_ourselves};
use super::terminal::{self, Terminal};
use super::{Because, Ended, OnLost, Plan, Status, Told, cannot_start, gate};
use crate::failure::Failure;
use crate::print;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait, waitpid};
use std::io;
use std::time::Duration;
use tenure::clock::Clock;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// How often it is looked whether the group is gone, when it ends. Not all of it are children of ours, of whom we are told.
const LOOK: Duration = Duration::from_millis(50);

struct Wrapper {
    group: Group,
    course: Course,
    clock: Clock,
    guarding: Option<Guarding>,
    terminal: Option<Terminal>,
    /// How the command ended, once it has.
    status: Option<Status>,
    /// The last signal that was forwarded and by which people end programs.
    forwarded: Option<u8>,
}

/// Runs a command until its group is gone.
pub(super) async fn run(
    plan: Plan,
    mut told: watch::Receiver<Told>,
    mut signals: Signals,
    clock: Clock,
) -> Result<Ended, Failure> {
    let failed = |error: io::Error| cannot_start(&error.to_string());
    terminal::use_from_the_background().map_err(failed)?;
    let mut children = signal(SignalKind::child()).map_err(failed)?;
    let first = *told.borrow_and_update();
    let mut wrapper = Wrapper::start(&plan, first, clock, &mut children).await.map_err(failed)?;
    let mut is_fed = true;
    while !wrapper.is_over() {
        let is_ending = wrapper.status.is_some() || wrapper.course.is_killing();
        tokio::select! {
            biased;
            () = wrapper.clock.until(wrapper.course.next()) => wrapper.due(),
            _ = children.recv() => wrapper.reap(),
            changed = told.changed(), if is_fed => match changed {
                Ok(()) => wrapper.told(*told.borrow_and_update()),
                // Nobody keeps the lease any more; the last limits stand.
                Err(_) => is_fed = false,
            },
            signal = signals.next() => wrapper.forward(signal),
            guarded = guarded(&mut wrapper.guarding, &wrapper.course) => wrapper.heard(guarded),
            () = sleep(LOOK), if is_ending => wrapper.look_again(),
        }
    }
    Ok(wrapper.end().await)
}

async fn guarded(guarding: &mut Option<Guarding>, course: &Course) -> Guarded {
    match guarding {
        Some(guarding) => guarding.next(course).await,
        None => std::future::pending().await,
    }
}

impl Wrapper {
    /// Starts the command, behind its gate until it is guarded.
    async fn start(plan: &Plan, first: Told, clock: Clock, children: &mut Caught) -> io::Result<Self> {
        let (Told::Until(limits) | Told::EndedBySomebody(limits)) = first;
        // Those whose parents exit become our children, so that we hear of their end.
        set_child_subreaper(Some(getpid()))?;
        let group = Group::of(gate::start(plan)?);
        let mut wrapper = Self {
            group,
            course: Course::new(plan.ways, limits),
            clock,
            guarding: None,
            terminal: Terminal::open(),
            status: None,
            forwarded: None,
        };
        let guarded = wrapper.guard(children).await;
        if let Err(error) = guarded {
            let _ = group.signal(Signal::KILL);
            return Err(error);
        }
        wrapper.open(first);
        Ok(wrapper)
    }

    async fn guard(&mut self, children: &mut Caught) -> io::Result<()> {
        at_the_gate(self.group.leader(), children).await?;
        if self.course.ways().on_lost != OnLost::Ignore {
            self.guarding = Some(Guarding::start(self.group, &self.course).await?);
        }
        Ok(())
    }

    /// Lets the command through, unless its time is over already.
    fn open(&mut self, first: Told) {
        let group = self.group;
        if let Some(terminal) = self.terminal.as_mut().filter(|_| Terminal::is_for_the_command()) {
            terminal.lend(group);
        }
        self.told(first);
        if self.course.is_running() {
            self.perform(Act::Continue);
        }
    }

    /// Whether the command has ended, and nothing of its group lives.
    fn is_over(&self) -> bool {
        self.status.is_some() && self.group.is_gone()
    }

    async fn end(mut self) -> Ended {
        self.reap();
        if let Some(guarding) = self.guarding.take() {
            guarding.home().await;
        }
        let status = self.status.unwrap_or(Status::Signal(signals::number(Signal::KILL)));
        if let Some(terminal) = &mut self.terminal {
            let was_lent = terminal.is_lent();
            terminal.take_back();
            if was_lent && matches!(status, Status::Signal(_)) {
                terminal.restore();
            }
        }
        let because = match self.forwarded {
            _ if self.course.is_lost() => Because::Lost,
            Some(signal) => Because::Forwarded(signal),
            None => Because::Itself,
        };
        Ended { status, because }
    }

    fn due(&mut self) {
        let act = self.course.due(self.clock.now());
        self.follow(act);
    }

    fn told(&mut self, told: Told) {
        if let Told::Until(limits) = told {
            self.tell(Order::Until(limits));
        }
        let act = self.course.told(told, self.clock.now());
        self.follow(act);
    }

    /// Does what the limits ask for, and says so.
    fn follow(&mut self, act: Option<Act>) {
        let Some(act) = act else { return };
        self.perform(act);
        let left = print::span(self.course.next().map_or(Duration::ZERO, |next| next.since(self.clock.now())));
        print::say(&match act {
            Act::Ask => format!("the lease is lost: the command was asked to stop, and is killed in {left}"),
            Act::Kill if self.course.is_lost() => "the lease is lost: the command was killed".into(),
            Act::Kill => "what did not stop in time was killed".into(),
            Act::Pause => format!("renewals fail: the command is paused, and killed in {left} if they go on"),
            Act::Continue => "renewed: the command goes on".into(),
        });
    }

    fn perform(&mut self, act: Act) {
        if let Some(kill) = self.course.stopping() {
            self.tell(Order::Stopping(kill));
        }
        if let Err(error) = self.group.perform(act) {
            print::say(&format!(
                "cannot send a signal to the command: {error}; it goes on, and only the fence is left"
            ));
        }
    }

    fn tell(&mut self, order: Order) {
        if let Some(guarding) = &mut self.guarding {
            guarding.tell(order);
        }
    }

    fn heard(&mut self, guarded: Guarded) {
        match guarded {
            Guarded::Still => {}
            Guarded::No => {
                self.guarding = None;
                print::say("the guard of the command died, and no other can be started; it goes on without one");
            }
        }
    }

    /// Asks for all children that have ended or stopped, our own and those that were left to us.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid != self.group.leader() {
                continue;
            }
            match (ended(status), status.stopping_signal().and_then(Signal::from_named_raw)) {
                (Some(status), _) => self.command_ended(status),
                (None, Some(signal)) => self.command_stopped(signal),
                (None, None) => {}
            }
        }
    }

    /// Those that the command leaves behind end with it: nobody else would look after them.
    fn command_ended(&mut self, status: Status) {
        // If its time was over, the guard may have ended it before we looked at the clock.
        self.due();
        self.status = Some(status);
        let left = u64::try_from(self.group.living()).unwrap_or(u64::MAX);
        if left == 0 {
            return;
        }
        let act = self.course.left_over(self.clock.now());
        if let Some(act) = act {
            self.perform(act);
        }
        let left = print::count(left, "process of its group is left", "processes of its group are left");
        let then = if act.is_some() { "asked to stop" } else { "waited for" };
        print::say(&format!("the command has ended; {left}, and {then}"));
    }

    /// As if the command were a job of the shell: Ctrl-Z gives the prompt back, and `fg` goes on.
    fn command_stopped(&mut self, signal: Signal) {
        let group = self.group;
        let is_for_a_shell =
            matches!(signal, Signal::TSTP | Signal::STOP | Signal::TTIN | Signal::TTOU) && !self.course.is_paused();
        let Some(terminal) = self.terminal.as_mut().filter(|_| is_for_a_shell) else { return };
        if matches!(signal, Signal::TTIN | Signal::TTOU) && !terminal.is_lent() && terminal.lend(group) {
            // It wanted the terminal, and now it has it.
            self.perform(Act::Continue);
            return;
        }
        match is_orphaned() {
            false => {
                terminal.take_back();
                stop_ourselves();
            }
            // Nobody would ever let us go on, so it goes on at once, as it would without us.
            true if signal == Signal::TSTP => self.perform(Act::Continue),
            true => {}
        }
    }

    fn forward(&mut self, signal: Signal) {
        if matches!(signal, Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM) {
            self.forwarded = Some(signals::number(signal));
        }
        if signal == Signal::CONT {
            if self.course.is_paused() {
                return;
            }
            if let Some(terminal) = self.terminal.as_mut().filter(|_| Terminal::is_for_the_command()) {
                terminal.lend(self.group);
            }
        }
        if let Err(error) = self.group.signal(signal) {
            print::say(&format!("cannot forward a signal to the command: {error}; it goes on"));
        }
    }

    fn look_again(&mut self) {
        self.reap();
        // Whoever came in between is killed as well.
        if self.course.is_killing() {
            let _ = self.group.perform(Act::Kill);
        }
    }
}

/// Returns when the gate stands.
async fn at_the_gate(gate: Pid, children: &mut Caught) -> io::Result<()> {
    loop {
        match waitpid(Some(gate), WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => return Ok(()),
            Some(_) => return Err(io::Error::other("the process that it starts as has ended")),
            None => children.recv().await.ok_or(io::ErrorKind::BrokenPipe)?,
        }
    }
}

fn ended(status: WaitStatus) -> Option<Status> {
    let number = |number| u8::try_from(number).unwrap_or(u8::MAX);
    let code = status.exit_status().map(|code| Status::Code(number(code)));
    code.or_else(|| status.terminating_signal().map(|signal| Status::Signal(number(signal))))
}
