//! `tenure elect`: a command that runs while this candidate leads, or who leads, as it changes.

use super::keeping::{Rules, give_back};
use super::run::{catch, get};
use super::{Caller, lease_text, stop_signal};
use crate::args::{Elect, Output};
use crate::clock::Stopwatch;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{Because, Program};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tenure::{Client, Leader};

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
        let watch = Stopwatch::start();
        if let Some(code) = lead(&client, &what, &args.name, &rules, program.clone()).await? {
            return Ok(ExitCode::from(code));
        }
        // A command that cannot keep going is started less and less often.
        pause = if watch.elapsed() < WORKS { (pause * 2).min(FAILING_PAUSE_MAX) } else { PAUSE_MAX };
        // Also if it came while nothing ran.
        tokio::select! {
            biased;
            () = &mut stopped => return Ok(ExitCode::from(STOPPED)),
            () = tokio::time::sleep(pause.mul_f64(rand::random())) => {}
        }
    }
}

/// Stands until it leads, leads until it is over, and tells the exit code if somebody has stopped it.
async fn lead(client: &Client, what: &str, name: &str, rules: &Rules, program: Program) -> Result<Option<u8>, Failure> {
    let mut signals = catch(what)?;
    let ask = rules.asking(client.lease(name).class("election").wait_for_ever());
    let hold = match get(client, ask, &mut signals).await.map_err(|error| Failure::of(what, &error))? {
        Ok(hold) => hold,
        Err(signal) => return Ok(Some(signal.saturating_add(128))),
    };
    print::say(&format!("leading {name} with fence {}", hold.fence()));
    let ended = rules.run(&hold, program, signals).await;
    give_back(hold).await;
    let ended = ended?;
    let code = ended.status.exit_code();
    match ended.because {
        Because::Forwarded(signal) if STOPS.contains(&signal) => return Ok(Some(code)),
        Because::Lost => print::say(&format!("no longer leading {name}; standing again")),
        // Other signals mean something to the command, not to the candidate.
        Because::Itself | Because::Forwarded(_) => {
            print::say(&format!("the command ended with {code}; standing again for {name}"));
        }
    }
    Ok(None)
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
