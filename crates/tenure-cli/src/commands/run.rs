//! `tenure run`: a command that holds a resource while it runs. It keeps the lease; `wrap` keeps the command.

use super::{Caller, default_holder, millis};
use crate::args::Run;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{self, Because, Limits, OnJeopardy, OnLost, Plan, Program, Signals, Told, Ways};
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::timing::{Timing, WRAPPED_TTL_GOOD, WRAPPED_TTL_MIN};
use tenure::v1::acquire_reply::State;
use tenure::{Client, v1};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long the server has to answer that a lease was given back. Without an answer the lease ends by itself.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn run(caller: &Caller, args: Run) -> Result<ExitCode, Failure> {
    let what = format!("cannot run under {}", args.name);
    let timing = check(&what, &args)?;
    let program = Program::find(args.command)?;
    let caught = Signals::catch();
    let mut signals = caught.map_err(|error| Failure::before(&what, &error.to_string(), "Type `tenure doctor`."))?;
    let client = caller.connect(&what).await?;
    let clock = Clock::system();
    let holder = args.holder.unwrap_or_else(default_holder);
    let request = request(&args.name, &holder, args.ttl);
    let lease = request.grant.as_ref().map(|grant| grant.lease).unwrap_or_default();
    let sent = clock.now();
    let reply = tokio::select! {
        reply = client.acquire(request) => reply.map_err(|error| Failure::of(&what, &error))?,
        signal = signals.given_up() => return Ok(ExitCode::from(128_u8.saturating_add(signal))),
    };
    let Some(State::Fence(fence)) = reply.state else {
        return Err(Failure::puzzled(&what));
    };
    let budget = timing.safe_until.saturating_sub(timing.stop);
    let (tell, told) = watch::channel(Told::Until(limits(sent, reply.ttl_ms, budget)));
    let env = [
        ("TENURE_RESOURCE", args.name),
        ("TENURE_FENCE", fence.to_string()),
        ("TENURE_HOLDER", holder),
        ("TENURE_TTL", args.ttl.as_millis().to_string()),
    ];
    let plan = Plan {
        program,
        env: env.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        ways: Ways { budget, on_lost: args.on_lost, on_jeopardy: args.on_jeopardy },
    };
    let keeping = tokio::spawn(keep(client.clone(), lease, sent, timing, tell, clock.clone()));
    let ended = wrap::supervise(plan, told, signals, clock).await;
    keeping.abort();
    let release = client.release_lease(v1::ReleaseLeaseRequest { lease });
    if timeout(RELEASE_PATIENCE, release).await.is_err() {
        print::say("the server does not answer: the lease was not given back, and ends by itself");
    }
    let ended = ended?;
    Ok(ExitCode::from(match ended.because {
        Because::Lost => args.lost_code,
        Because::Itself | Because::Forwarded(_) => ended.status.exit_code(),
    }))
}

fn check(what: &str, args: &Run) -> Result<Timing, Failure> {
    if args.ttl < WRAPPED_TTL_MIN {
        let why = "with a TTL below 1s there is no time to stop a command";
        return Err(Failure::usage(what, why, "Say a longer one: --ttl 15s"));
    }
    if args.on_lost == OnLost::Ignore && args.on_jeopardy == OnJeopardy::Pause {
        let why = "a command to which nothing is done cannot be paused";
        return Err(Failure::usage(what, why, "Leave out --on-lost ignore or --on-jeopardy pause."));
    }
    if args.ttl < WRAPPED_TTL_GOOD {
        print::say("with a TTL below 10s small hiccups stop the command; see `tenure explain --ttl 15s`");
    }
    Ok(match args.stop_timeout {
        Some(budget) => Timing::with_stop_budget(args.ttl, budget),
        None => Timing::of(args.ttl),
    })
}

fn request(name: &str, holder: &str, ttl: Duration) -> v1::AcquireRequest {
    let grant = v1::GrantRequest {
        lease: (rand::random::<u64>() >> 1).max(1),
        holder: holder.into(),
        ttl_ms: millis(ttl),
        request: rand::random(),
        ..v1::GrantRequest::default()
    };
    v1::AcquireRequest { resource: name.into(), grant: Some(grant), ..v1::AcquireRequest::default() }
}

/// By the effective TTL of an answer, from the moment at which what it answers was sent.
fn limits(sent: BootTime, ttl_ms: u64, budget: Duration) -> Limits {
    let timing = Timing::with_stop_budget(Duration::from_millis(ttl_ms), budget);
    Limits { stop: sent + timing.stop, kill: sent + timing.kill }
}

/// Renews a lease until it is told not to, or the lease is no more.
async fn keep(client: Client, lease: u64, mut sent: BootTime, timing: Timing, tell: watch::Sender<Told>, clock: Clock) {
    let budget = timing.safe_until.saturating_sub(timing.stop);
    loop {
        clock.until(sent + timing.renew).await;
        let trying = clock.now();
        let request = v1::RenewRequest { leases: vec![lease], ..v1::RenewRequest::default() };
        match timeout(timing.first_retry, client.renew(request)).await {
            Ok(Ok(reply)) if reply.failures.is_empty() => {
                sent = trying;
                let ttl_ms = reply.ttls_ms.first().copied().unwrap_or_default();
                tell.send_replace(Told::Until(limits(sent, ttl_ms, budget)));
            }
            Ok(Ok(_)) => {
                let (Told::Until(limits) | Told::EndedBySomebody(limits)) = *tell.borrow();
                tell.send_replace(Told::EndedBySomebody(limits));
                return;
            }
            _ => sleep(timing.retry).await,
        }
    }
}
