//! `tenure elect`: a command that runs while this candidate leads, or who leads, as it changes.

use super::keeping::{Rules, give_back};
use super::run::{catch, given_up};
use super::wait::{self, NotGot};
use super::{Caller, lease_text, stop_signal};
use crate::args::{Elect, Output};
use crate::clock::Stopwatch;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{Because, Program};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tenure::{Client, Code, Leader};

/// How long a lead lives without a renewal, if nobody says it.
const TTL: Duration = Duration::from_secs(10);

/// Whoever has lost the lead or given it up waits for up to so long, by chance, before it stands again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The same, at most, if its command keeps ending at once: sooner than this.
const FAILING_PAUSE_MAX: Duration = Duration::from_secs(30);
const WORKS: Duration = Duration::from_secs(5);

/// Signals that are meant for the candidate as well: SIGINT, SIGQUIT, SIGTERM.
const STOPS: [u8; 3] = [2, 3, 15];

/// Stopped by SIGTERM or SIGINT while nothing ran, as shells say it of the first.
const STOPPED: u8 = 143;

pub(crate) async fn elect(caller: &Caller, args: Elect) -> Result<ExitCode, Failure> {
    if args.command.is_empty() {
        let keeping = &args.keeping;
        if keeping.ttl.or(keeping.stop_timeout).is_some() || keeping.holder.is_some() || keeping.reason.is_some() {
            let (what, why) =
                ("cannot stand for election", "no command was given, and without one it is only looked on");
            return Err(Failure::usage(what, why, "Say what to run while it leads: -- COMMAND"));
        }
        return observe(caller, &args.name).await;
    }
    let what = format!("cannot stand for {}", args.name);
    let program = Program::find(args.command.clone())?;
    let rules = Rules::check(&what, &args.keeping, &program, TTL)?;
    let stopped = stop_signal().map_err(|error| Failure::before(&what, &error.to_string(), ""))?;
    tokio::pin!(stopped);
    let client = caller.connect(&what).await?;
    rules.warn();
    let mut pause = PAUSE_MAX;
    loop {
        match lead(&client, &what, &args.name, &rules, program.clone()).await? {
            Led::Stopped(code) => return Ok(code),
            Led::For(ran) => pause = next_pause(pause, ran),
        }
        // Also if it came while nothing ran.
        tokio::select! {
            biased;
            () = &mut stopped => return Ok(ExitCode::from(STOPPED)),
            () = tokio::time::sleep(pause.mul_f64(rand::random())) => {}
        }
    }
}

/// A command that keeps ending at once is started less and less often.
fn next_pause(pause: Duration, ran: Duration) -> Duration {
    if ran < WORKS { (pause * 2).min(FAILING_PAUSE_MAX) } else { PAUSE_MAX }
}

/// What a candidate has come to.
enum Led {
    /// Somebody has stopped it.
    Stopped(ExitCode),
    /// Its command ran for so long, and it stands again.
    For(Duration),
}

/// Stands until it leads, and leads until it is over.
async fn lead(client: &Client, what: &str, name: &str, rules: &Rules, program: Program) -> Result<Led, Failure> {
    let mut signals = catch(what)?;
    let ask = rules.asking(client.lease(name).class("election").wait_for_ever());
    let hold = match wait::get(client, ask, signals.given_up()).await {
        Ok(hold) => hold,
        Err(NotGot::GivenUp { by, has_left }) => return Ok(Led::Stopped(given_up(by, has_left))),
        Err(NotGot::Failed(error)) if matches!(error.code(), Some(Code::Lapsed | Code::NoLease)) => {
            print::say(&format!("its lease was ended before it led {name}; standing again"));
            return Ok(Led::For(Duration::ZERO));
        }
        Err(NotGot::Failed(error)) => return Err(Failure::of(what, &error)),
    };
    print::say(&format!("leading {name} with fence {}", hold.fence()));
    let running = Stopwatch::start();
    let ended = rules.run(&hold, program, signals).await;
    let ran = running.elapsed();
    give_back(hold).await;
    let ended = ended?;
    match ended.because {
        Because::Forwarded(signal) if STOPS.contains(&signal) => return Ok(Led::Stopped(rules.exit_code(ended))),
        Because::Lost => print::say(&format!("no longer leading {name}; standing again")),
        // Other signals mean something to the command, not to the candidate.
        Because::Itself | Because::Forwarded(_) => {
            let code = ended.status.exit_code();
            print::say(&format!("the command ended with {code}; standing again for {name}"));
        }
    }
    Ok(Led::For(ran))
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    holder: Option<&'a str>,
    fence: Option<u64>,
    lease: Option<String>,
}

/// Prints who leads, at first and whenever it changes.
async fn observe(caller: &Caller, name: &str) -> Result<ExitCode, Failure> {
    let what = format!("cannot see who leads {name}");
    let stopped = stop_signal().map_err(|error| Failure::before(&what, &error.to_string(), ""))?;
    let client = caller.connect(&what).await?;
    let mut leaders = client.election(name).observe();
    tokio::pin!(stopped);
    loop {
        let leader = tokio::select! {
            leader = leaders.next() => leader.map_err(|error| Failure::of(&what, &error))?,
            () = &mut stopped => return Ok(ExitCode::SUCCESS),
        };
        print_leader(caller.output, name, leader.as_ref());
    }
}

fn print_leader(output: Output, name: &str, leader: Option<&Leader>) {
    let (holder, fence) = (leader.map(|leader| leader.holder.as_str()), leader.map(|leader| leader.fence));
    match (output, leader) {
        (Output::Json | Output::Jsonl, _) => {
            let lease = leader.map(|leader| lease_text(leader.lease));
            print::line(&print::json(&Line { name, holder, fence, lease }));
        }
        (Output::Name, _) => print::line(holder.unwrap_or_default()),
        (Output::Table, Some(leader)) => {
            print::line(&format!("{} leads {name} with fence {}", leader.holder, leader.fence));
        }
        (Output::Table, None) => print::line(&format!("nobody leads {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_keeps_ending_at_once_is_started_less_and_less_often() {
        let at_once = Duration::from_millis(10);
        let pauses = std::iter::successors(Some(PAUSE_MAX), |pause| Some(next_pause(*pause, at_once)));
        let seconds: Vec<u64> = pauses.take(7).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(next_pause(FAILING_PAUSE_MAX, WORKS), PAUSE_MAX, "one that works is not made to wait");
    }
}
