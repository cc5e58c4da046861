//! `tenure explain`: what a TTL comes to, in times. It asks no server.

use crate::args::{Explain, Output};
use crate::failure::Failure;
use crate::page::Page;
use crate::print::{self, Draw};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tenure::timing::{DRIFT_PERCENT, Timing, WRAPPED_TTL_GOOD, WRAPPED_TTL_MIN};
use tenure::v1;
use tenure::v1::request::Body;
use tenure_server::TICK;

/// Below this a stall of the service can end a lease that its holder was renewing.
const STALL_PROOF_MS: u64 = 1_500;

#[derive(Serialize)]
struct Explained {
    ttl_ms: u64,
    grace_ms: u64,
    lock_delay_ms: u64,
    rtt_ms: u64,
    drift_percent: u32,
    renew_ms: u64,
    first_retry_ms: u64,
    retry_ms: u64,
    safe_until_ms: u64,
    next_from_ms: u64,
    next_by_ms: u64,
    outage_ms: u64,
    run: Run,
    warnings: Vec<String>,
}

/// What happens to a program that runs under the lease.
#[derive(Serialize)]
struct Run {
    outage_ms: u64,
    sigterm_ms: u64,
    sigkill_ms: u64,
}

pub(crate) fn explain(output: Output, args: &Explain) -> Result<ExitCode, Failure> {
    let what = format!("cannot explain a TTL of {}", print::span(args.ttl));
    check(args).map_err(|why| Failure::usage(&what, &why, "Say another one, for example: tenure explain --ttl 15s"))?;
    print::draw(output, &explained(args));
    Ok(ExitCode::SUCCESS)
}

/// Asks the treaty whether a server would take it.
fn check(args: &Explain) -> Result<(), String> {
    let grant = v1::GrantRequest {
        holder: "explain".into(),
        ttl_ms: super::millis(args.ttl),
        grace_ms: Some(super::millis(args.grace)),
        ..v1::GrantRequest::default()
    };
    let (resource, lock_delay_ms) = ("explain".into(), super::millis(args.lock_delay));
    let acquire = v1::AcquireRequest { resource, grant: Some(grant), lock_delay_ms, ..v1::AcquireRequest::default() };
    let read =
        tenure_api::read_request(Some(Body::Acquire(acquire)), &|| tenure_api::read_lease(1).expect("1 is a lease id"));
    read.map(|_| ()).map_err(|error| error.to_string())
}

fn explained(args: &Explain) -> Explained {
    let timing = match args.stop_timeout {
        Some(budget) => Timing::with_stop_budget(args.ttl, budget),
        None => Timing::of(args.ttl),
    };
    let next_from = args.ttl + args.grace + args.lock_delay;
    Explained {
        ttl_ms: ms(args.ttl),
        grace_ms: ms(args.grace),
        lock_delay_ms: ms(args.lock_delay),
        rtt_ms: ms(args.rtt),
        drift_percent: DRIFT_PERCENT,
        renew_ms: ms(timing.renew),
        first_retry_ms: ms(timing.first_retry),
        retry_ms: ms(timing.retry),
        safe_until_ms: ms(timing.safe_until),
        next_from_ms: ms(next_from),
        next_by_ms: ms(next_from + args.rtt + TICK),
        outage_ms: ms(timing.outage_before(timing.safe_until, args.rtt)),
        run: Run {
            outage_ms: ms(timing.outage_before(timing.stop, args.rtt)),
            sigterm_ms: ms(timing.stop),
            sigkill_ms: ms(timing.kill),
        },
        warnings: warnings(args, &timing),
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A span to the hundredth, because here that is what it is about.
fn exact(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{:02}s", ms / 1000, ms % 1000 / 10),
        _ => print::span_ms(ms),
    }
}

fn warnings(args: &Explain, timing: &Timing) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |is_so: bool, words: &str| {
        if is_so {
            warnings.push(words.to_owned());
        }
    };
    let (least, good) = (print::span(WRAPPED_TTL_MIN), print::span(WRAPPED_TTL_GOOD));
    warn(
        ms(args.ttl) < STALL_PROOF_MS,
        "below 1.5s a stall of the service can end a lease that its holder was renewing",
    );
    warn(args.ttl < WRAPPED_TTL_MIN, &format!("a program needs a TTL of at least {least} to run under it"));
    let is_short = (WRAPPED_TTL_MIN..WRAPPED_TTL_GOOD).contains(&args.ttl);
    warn(is_short, &format!("below {good} a short outage already stops the program"));
    warn(timing.stop <= timing.renew, "it would be asked to stop before its first renewal: take a longer TTL");
    let none = timing.outage_before(timing.stop, args.rtt).is_zero();
    warn(none && timing.stop > timing.renew, "no outage at all is survived: take a longer TTL");
    warnings
}

impl Draw for Explained {
    fn draw(&self, page: &mut Page) {
        let (ttl, span) = (print::span_ms(self.ttl_ms), exact);
        page.line(&format!("A lease of {ttl}. Times count from when the last answered renewal was sent."));
        let mut row = |ms: u64, words: &str| page.line(&format!("  {:>6}  {words}", exact(ms)));
        let (first, retry) = (span(self.first_retry_ms), span(self.retry_ms));
        row(
            self.renew_ms,
            &format!("the next renewal is sent; without an answer again after {first}, then every {retry}"),
        );
        row(self.run.sigterm_ms, "a program under it is asked to stop (SIGTERM), if no renewal was answered");
        row(self.run.sigkill_ms, "a program that has not stopped is killed (SIGKILL)");
        row(
            self.safe_until_ms,
            &format!("the holder has stopped, also if clocks run {}% apart each", self.drift_percent),
        );
        let why = match (self.grace_ms, self.lock_delay_ms) {
            (0, 0) => String::new(),
            (grace, 0) => format!(", grace of {} included", span(grace)),
            (0, delay) => format!(", lock-delay of {} included", span(delay)),
            (grace, delay) => format!(", grace of {} and lock-delay of {} included", span(grace), span(delay)),
        };
        row(self.next_from_ms, &format!("the next holder starts, no earlier{why}"));
        row(self.next_by_ms, "the next holder has started, if the server runs");
        page.line("");
        page.facts(&[
            ("outage that no holder notices", span(self.outage_ms)),
            ("outage that no program notices", span(self.run.outage_ms)),
        ]);
        page.line("An outage that is longer costs the lease. While the server is down, nobody else gets it either.");
        page.line("\n`tenure run` keeps a program to these times. A paused program can wake up late, all the same:");
        page.line("only the fence stops what it writes then.");
        self.warnings.iter().for_each(|words| page.say(words));
    }

    fn names(&self) -> Vec<String> {
        vec![self.safe_until_ms.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ttl_ms: u64) -> Explain {
        let (ttl, rtt) = (Duration::from_millis(ttl_ms), Duration::from_millis(10));
        Explain { ttl, rtt, grace: Duration::ZERO, lock_delay: Duration::ZERO, stop_timeout: None }
    }

    #[test]
    fn times_are_exact() {
        let told = [(50, "50ms"), (14_702, "14.70s"), (59_999, "59.99s"), (60_000, "1m00s")];
        assert!(told.into_iter().all(|(ms, text)| exact(ms) == text));
    }

    #[test]
    fn others_start_after_grace_and_lock_delay_and_the_holder_stops_before_all_of_it() {
        let (grace, lock_delay) = (Duration::from_secs(2), Duration::from_secs(3));
        let told = explained(&Explain { grace, lock_delay, ..args(15_000) });
        assert_eq!((told.safe_until_ms, told.next_from_ms, told.next_by_ms), (14_702, 20_000, 20_210));
        assert_eq!((told.run.sigterm_ms, told.run.sigkill_ms, told.run.outage_ms), (11_702, 14_602, 5_567));
        assert!(told.warnings.is_empty(), "{:?}", told.warnings);
    }

    #[test]
    fn what_is_too_short_is_warned_of_and_what_no_server_takes_is_refused() {
        assert_eq!(explained(&args(500)).warnings.len(), 2);
        assert_eq!(explained(&args(1_000)).warnings.len(), 2);
        assert_eq!(explained(&args(9_999)).warnings.len(), 1);
        assert_eq!(explained(&args(10_000)).warnings.len(), 0);
        let hasty = Explain { stop_timeout: Some(Duration::from_secs(12)), ..args(15_000) };
        assert!(explained(&hasty).warnings[0].contains("before its first renewal"));
        assert!(check(&args(99)).unwrap_err().contains("100"), "the range is named");
        assert!(check(&args(100)).is_ok());
        assert!(check(&Explain { grace: Duration::from_secs(90_000), ..args(15_000) }).is_err());
        assert!(check(&Explain { lock_delay: Duration::from_secs(90_000), ..args(15_000) }).is_err());
    }
}
