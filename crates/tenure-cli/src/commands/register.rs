//! `tenure register`: an instance that is listed for as long as this process, or its command, lives.

use super::checks::{self, CheckWanted, Local};
use super::run::{catch, given_up};
use super::{Caller, LAST_ANSWER, lease_text};
use crate::args::{Output, Register};
use crate::failure::Failure;
use crate::print;
use crate::wrap::{self, Announced, Limits, OnJeopardy, OnLost, Plan, Program, Signals, Told, Ways};
use futures::future::join_all;
use serde::Serialize;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::registry::{Change, RegisterAsk, Registration};
use tenure::{Client, Loss, v1};
use tokio::sync::watch;

/// How long it drains after a signal if no command does.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// What processes are given to stop that a command leaves behind.
const LEFT_OVER: Duration = Duration::from_secs(5);

/// How often it looks whether the server makes its checks, and how long apart: each is made within a second or two.
const UNPROBED_LOOKS: u32 = 10;
const UNPROBED_PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn register(caller: &Caller, args: Register) -> Result<ExitCode, Failure> {
    let what = format!("cannot register {}", args.service);
    let program = match args.command.is_empty() {
        true => None,
        false => Some(Program::find(args.command.clone())?),
    };
    let mut signals = catch(&what)?;
    let client = caller.connect(&what).await?;
    let (checks, locals) = checks::all(&args.checks);
    let ask = checks.into_iter().fold(ask(&client, &args), RegisterAsk::check);
    let listed = tokio::select! {
        listed = ask.begin() => listed.map_err(|error| Failure::of(&what, &error))?,
        signal = signals.given_up() => {
            // Dropped with what was asked for: the keeper takes it back.
            let left = client.close(LAST_ANSWER).await;
            return Ok(given_up(signal, left == 0));
        }
    };
    tell_listed(caller.output, &listed, program.is_some());
    let stay = async {
        match program {
            Some(program) => with_command(&listed, program, signals, args.drain_for.unwrap_or_default()).await,
            None => alone(&listed, signals, args.drain_for.unwrap_or(DRAIN_FOR)).await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = stay => ended,
        never = mind(&listed, &locals) => match never {},
        never = tell_unprobed(&client, &listed, &args.checks) => match never {},
    };
    take_out(listed).await;
    ended
}

fn ask(client: &Client, args: &Register) -> RegisterAsk {
    let mut ask = client.register(&args.service).ttl(args.ttl).zone(&args.zone).weight(args.weight);
    ask = ask.version(&args.version_tag).on_critical(args.on_critical.said());
    ask = args.endpoints.iter().fold(ask, RegisterAsk::endpoint);
    ask = args.capabilities.iter().fold(ask, RegisterAsk::capability);
    ask = args.labels.iter().fold(ask, |ask, label| ask.label(&label.key, &label.value));
    ask = args.id.iter().fold(ask, RegisterAsk::id);
    ask = args.holder.iter().fold(ask, RegisterAsk::holder);
    args.epoch.iter().fold(ask, |ask, epoch| ask.epoch(*epoch))
}

#[derive(Serialize)]
struct Listed {
    service: String,
    id: String,
    lease: String,
    epoch: u64,
    ttl_ms: u128,
}

/// The name of the instance is data, unless stdout is the command's.
fn tell_listed(output: Output, listed: &Registration, has_command: bool) {
    let (service, id) = (listed.service(), listed.id());
    let name = format!("{service}/{id}");
    let (ttl, lease) = (listed.ttl(), lease_text(listed.lease()));
    if has_command {
        return print::say(&format!("registered {name} for {}", print::span(ttl)));
    }
    print::one(output, &name, &Listed { service, id, lease, epoch: listed.epoch(), ttl_ms: ttl.as_millis() });
}

/// Tells what becomes of it, and makes the checks that run here.
async fn mind(listed: &Registration, locals: &[Local]) -> Infallible {
    let tell = async {
        let mut changes = listed.changes();
        while let Some(change) = changes.next().await {
            say(&change);
        }
        std::future::pending::<()>().await;
    };
    let checks = join_all(locals.iter().map(|check| checks::run(listed, check)));
    tokio::join!(tell, checks);
    std::future::pending().await
}

/// Says why checks of the server say nothing, as when it may not make them: nobody should wait for work that never comes.
async fn tell_unprobed(client: &Client, listed: &Registration, wanted: &[CheckWanted]) -> Infallible {
    let mut told = BTreeSet::new();
    let looks = if wanted.iter().any(CheckWanted::is_of_the_server) { UNPROBED_LOOKS } else { 0 };
    for _ in 0..looks {
        tokio::time::sleep(UNPROBED_PAUSE).await;
        let request = v1::ShowInstanceRequest { service: listed.service(), id: listed.id(), stale: true };
        // Whether the server answers is told by others.
        let Ok(shown) = client.show_instance(request).await else { continue };
        for v1::Finding { check, note, health, .. } in shown.living.into_iter().flat_map(|living| living.findings) {
            if health == i32::from(v1::Health::Unknown) && !note.is_empty() && told.insert(check.clone()) {
                print::say(&format!("the check {check} says nothing yet: {note}"));
            }
        }
    }
    std::future::pending().await
}

fn say(change: &Change) {
    match change {
        Change::Jeopardy => print::say("the server does not answer; it is still registered"),
        Change::Held => print::say("the server answers again; it is registered"),
        Change::Lost(loss) => {
            print::say(&format!("perhaps no longer registered: {loss}; it goes on as soon as a server answers"));
        }
        Change::Again { epoch, .. } => print::say(&format!("registered again, in epoch {epoch}")),
        // What it comes to is told by whoever waits for it.
        Change::Over(_) | Change::Missed(_) => {}
    }
}

/// Until a signal comes: it drains, and then it is over.
async fn alone(listed: &Registration, mut signals: Signals, drain_for: Duration) -> Result<ExitCode, Failure> {
    tokio::select! {
        _ = signals.given_up() => {}
        loss = listed.over() => return Err(over(listed, &loss)),
    }
    drain(listed, "it stops").await;
    tokio::select! {
        _ = signals.given_up() => {}
        () = tokio::time::sleep(drain_for) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn over(listed: &Registration, loss: &Loss) -> Failure {
    let name = format!("{}/{}", listed.service(), listed.id());
    Failure::lost(
        &format!("no longer registered: {name}"),
        &loss.to_string(),
        &format!("Ask `tenure why {}`, and register again when it may.", print::quoted(&name)),
    )
}

/// While a command runs. It is drained before the command is asked to stop, and nothing is done to the command when it is no
/// longer listed: others have been told, and what it holds is a matter of other leases.
async fn with_command(
    listed: &Registration,
    program: Program,
    signals: Signals,
    drain_for: Duration,
) -> Result<ExitCode, Failure> {
    let (signals, announced) = signals.announced();
    let env = [("TENURE_SERVICE", listed.service()), ("TENURE_INSTANCE", listed.id())];
    let env = env.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let ways = Ways { budget: LEFT_OVER, on_lost: OnLost::Ignore, on_jeopardy: OnJeopardy::None };
    let never = BootTime::from_start(Duration::MAX);
    let (_tell, told) = watch::channel(Told::Until(Limits { stop: never, kill: never }));
    let running = wrap::supervise(Plan { program, env, ways }, told, signals, Clock::system());
    let ended = tokio::select! {
        biased;
        ended = running => ended?,
        never = drain_when_told(listed, announced, drain_for) => match never {},
        never = tell_over(listed) => match never {},
    };
    Ok(ExitCode::from(ended.status.exit_code()))
}

async fn drain_when_told(listed: &Registration, mut announced: Announced, drain_for: Duration) -> Infallible {
    if let Some(answer) = announced.recv().await {
        drain(listed, "its command was asked to stop").await;
        tokio::time::sleep(drain_for).await;
        // A second signal did not wait.
        let _ = answer.send(());
    }
    std::future::pending().await
}

async fn tell_over(listed: &Registration) -> Infallible {
    let loss = listed.over().await;
    print::say(&format!("no longer registered: {loss}; it does not come back, and the command goes on"));
    std::future::pending().await
}

async fn drain(listed: &Registration, reason: &str) {
    match tokio::time::timeout(LAST_ANSWER, listed.drain(reason)).await {
        Ok(Ok(())) => print::say("draining: no new work comes"),
        Ok(Err(error)) => print::say(&format!("cannot drain: {error}; it goes on without")),
        Err(_) => print::say("cannot drain: the server does not answer; it goes on without"),
    }
}

/// Takes it out, now that it has stopped.
async fn take_out(listed: Registration) {
    let was_listed = !listed.remaining().is_zero();
    if tokio::time::timeout(LAST_ANSWER, listed.deregister()).await.is_err() && was_listed {
        print::say("the server does not answer: the instance was not taken out, and ends by itself");
    }
}
