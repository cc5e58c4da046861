//! `tenure run`: a command that holds a resource while it runs.

use super::keeping::{Rules, give_back};
use super::wait::{self, NotGot};
use super::{Caller, stop_signal};
use crate::args::Run;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{Because, Program, Signals, Status};
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::timing::TTL_DEFAULT;
use tenure::{Ask, Client, Hold, v1};

pub(crate) async fn run(caller: &Caller, args: Run) -> Result<ExitCode, Failure> {
    let what = format!("cannot run under {}", args.name);
    let program = Program::find(args.command.clone())?;
    let rules = Rules::check(&what, &args.keeping, &program, TTL_DEFAULT)?;
    let mut signals = catch(&what)?;
    let client = caller.connect(&what).await?;
    rules.warn();
    let ask = rules.asking(ask(&client, &args));
    let hold = match wait::get(&client, ask, signals.given_up()).await {
        Ok(hold) => hold,
        Err(NotGot::GivenUp { by, has_left }) => return Ok(given_up(by, has_left)),
        Err(NotGot::Failed(error)) => return Err(Failure::of(&what, &error)),
    };
    let clock = Clock::system();
    let least = args.at_least.map(|least| clock.now() + least);
    let ended = rules.run(&hold, program, signals).await;
    if let (Ok(ended), Some(least)) = (&ended, least)
        && ended.because == Because::Itself
    {
        stay(&what, &hold, least.since(clock.now())).await?;
    }
    give_back(hold).await;
    Ok(rules.exit_code(ended?))
}

/// The exit code of whoever was stopped by a signal before its command ran. It says so if a claim may be left behind.
pub(super) fn given_up(signal: u8, has_left: bool) -> ExitCode {
    if !has_left {
        print::say(&format!("given up; {}", wait::MAY_STAY));
    }
    ExitCode::from(Status::Signal(signal).exit_code())
}

/// Catches signals, before anything is asked for.
pub(super) fn catch(what: &str) -> Result<Signals, Failure> {
    Signals::catch().map_err(|error| Failure::before(what, &error.to_string(), "Type `tenure doctor`."))
}

fn ask(client: &Client, args: &Run) -> Ask {
    let wants = vec![args.share.want(args.name.clone())];
    let (grant, priority) = (Some(v1::GrantRequest::default()), args.share.priority);
    let ask = client.ask(&v1::AcquireRequest { wants, grant, priority, ..v1::AcquireRequest::default() });
    match args.wait {
        _ if args.no_wait => ask,
        Some(patience) => ask.wait(patience),
        None => ask.wait_for_ever(),
    }
}

/// Holds on for a while after the command is done, unless somebody stops that.
async fn stay(what: &str, hold: &Hold, span: Duration) -> Result<(), Failure> {
    if span.is_zero() {
        return Ok(());
    }
    // Whoever reads that it holds on may stop it at once.
    let stopped = stop_signal().map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    print::say(&format!("done; holding on for {}, as --at-least says", print::span(span)));
    let clock = Clock::system();
    tokio::select! {
        () = clock.until(clock.now() + span) => {}
        _ = hold.lost() => print::say("the lease was lost before --at-least was over; the command had ended"),
        () = stopped => {}
    }
    Ok(())
}
