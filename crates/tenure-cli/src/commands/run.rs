//! `tenure run`: a command that holds a resource while it runs.

use super::keeping::{Rules, TTL, give_back};
use super::{Caller, stop_signal};
use crate::args::Run;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{Because, Program, Signals};
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::{Ask, Client, Error, Hold};
use tokio::sync::watch;

/// How long it takes at most to leave a line that was given up.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn run(caller: &Caller, args: Run) -> Result<ExitCode, Failure> {
    let what = format!("cannot run under {}", args.name);
    let program = Program::find(args.command.clone())?;
    let rules = Rules::check(&what, &args.keeping, &program, TTL)?;
    let mut signals = catch(&what)?;
    let client = caller.connect(&what).await?;
    rules.warn();
    let ask = rules.asking(ask(&client, &args));
    let hold = match get(&client, ask, &mut signals).await.map_err(|error| Failure::of(&what, &error))? {
        Ok(hold) => hold,
        Err(signal) => return Ok(ExitCode::from(128_u8.saturating_add(signal))),
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
    let ended = ended?;
    Ok(ExitCode::from(match ended.because {
        Because::Lost => rules.lost_code,
        Because::Itself | Because::Forwarded(_) => ended.status.exit_code(),
    }))
}

/// Catches signals, before anything is asked for.
pub(super) fn catch(what: &str) -> Result<Signals, Failure> {
    Signals::catch().map_err(|error| Failure::before(what, &error.to_string(), "Type `tenure doctor`."))
}

fn ask(client: &Client, args: &Run) -> Ask {
    let ask = client.lease(&args.name).priority(args.priority);
    let ask = match (&args.slots, args.shared) {
        (Some(slots), _) => ask.units(slots.units).of_capacity(slots.capacity.unwrap_or_default()),
        (None, true) => ask.shared(),
        (None, false) => ask,
    };
    match args.wait {
        _ if args.no_wait => ask,
        Some(patience) => ask.wait(patience),
        None => ask.wait_for_ever(),
    }
}

/// Gets what is asked for, or the signal by which somebody gave it up.
pub(super) async fn get(client: &Client, ask: Ask, signals: &mut Signals) -> Result<Result<Hold, u8>, Error> {
    let outcome = wait(ask, signals).await;
    let is_given_up = matches!(outcome, Ok(Err(_)) | Err(Error::WaitedOut));
    // The line is left before the process ends.
    if !is_given_up || client.close(LEAVE_PATIENCE).await == 0 {
        return outcome;
    }
    let why = "the server does not answer, and the claim may stay in line until its lease is over";
    match outcome {
        Err(_) => Err(Error::Broken(why.into())),
        given_up => {
            print::say(&format!("given up; {why}"));
            given_up
        }
    }
}

async fn wait(ask: Ask, signals: &mut Signals) -> Result<Result<Hold, u8>, Error> {
    let (tell, mut place) = watch::channel(0);
    let getting = ask.tell_place(tell).acquire();
    tokio::pin!(getting);
    loop {
        tokio::select! {
            biased;
            hold = &mut getting => return hold.map(Ok),
            signal = signals.given_up() => return Ok(Err(signal)),
            Ok(()) = place.changed() => print::say(&format!("waiting, place {} in line", *place.borrow_and_update())),
        }
    }
}

/// Holds on for a while after the command is done, unless somebody stops that.
async fn stay(what: &str, hold: &Hold, span: Duration) -> Result<(), Failure> {
    if span.is_zero() {
        return Ok(());
    }
    print::say(&format!("done; holding on for {}, as --at-least says", print::span(span)));
    let stopped = stop_signal().map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    let clock = Clock::system();
    tokio::select! {
        () = clock.until(clock.now() + span) => {}
        _ = hold.lost() => print::say("the lease was lost before --at-least was over; the command had ended"),
        () = stopped => {}
    }
    Ok(())
}
