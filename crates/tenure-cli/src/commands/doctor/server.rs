//! What the doctor finds of the server: whether it answers, how fast, and how it has fared.

use super::Finding;
use crate::clock::Stopwatch;
use crate::commands::are_addresses;
use crate::print;
use std::time::Duration;
use tenure::{Client, Code, Error, v1};

/// Round trips that are measured.
const ROUND_TRIPS: usize = 10;

/// Beyond this, a short TTL leaves little time for a second attempt.
const ROUND_TRIP_LONG: Duration = Duration::from_millis(100);

/// Leases that one ledger may have.
const LEASES_MAX: u64 = tenure_core::limits::LEASES_MAX as u64;

pub(super) async fn look(addr: &str) -> Vec<Finding> {
    let asked = match are_addresses(addr) {
        Ok(()) => ask(addr).await,
        Err(why) => Err(Error::Local(why)),
    };
    match asked {
        Ok((status, times)) => judge(&status, &times),
        Err(error) => vec![Finding::bad("server", error.to_string(), remedy(&error))],
    }
}

fn remedy(error: &Error) -> &'static str {
    match (error, error.code()) {
        (Error::Handshake { .. }, _) => "Correct the address, TENURE_CA_FILE or the certificate.",
        (_, Some(Code::Unauthenticated)) => "Name the file that has your API key: TENURE_API_KEY_FILE=FILE.",
        _ => "Start one with `tenure serve`, or point --addr at one that runs.",
    }
}

async fn ask(addr: &str) -> Result<(v1::StatusReply, Vec<Duration>), Error> {
    let client = Client::builder().addrs(addr).security_from_env()?.connect().await?;
    let mut status = client.status(v1::StatusRequest {}).await?;
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let watch = Stopwatch::start();
        status = client.status(v1::StatusRequest {}).await?;
        times.push(watch.elapsed());
    }
    times.sort();
    Ok((status, times))
}

fn judge(status: &v1::StatusReply, times: &[Duration]) -> Vec<Finding> {
    let leads = match status.leads {
        true => Finding::ok("server", format!("node {} answers and leads", status.node)),
        false => Finding::bad("server", format!("node {} does not lead", status.node), "Ask again in a moment."),
    };
    let ours = env!("CARGO_PKG_VERSION");
    let version = match status.version == ours {
        true => Finding::ok("version", format!("{ours}, like this program")),
        false => {
            let found = format!("{}, and this program is {ours}", status.version);
            Finding::warn("version", found, "Run the same version on both sides.")
        }
    };
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let found = format!("{:.1} ms", median.as_secs_f64() * 1000.0);
    let round_trip = match median >= ROUND_TRIP_LONG {
        true => Finding::warn("round trip", found, "Take TTLs that allow for it: see `tenure explain --rtt`."),
        false => Finding::ok("round trip", found),
    };
    let dropped = match status.dropped_ms {
        0 => Finding::ok("time dropped", "none since it started"),
        ms => {
            let found = format!("{} since it started", print::span_ms(ms));
            let todo =
                "Disk or machine stalled for longer than 500 ms; no lease ended early. Look at the disk sync above.";
            Finding::warn("time dropped", found, todo)
        }
    };
    vec![leads, version, round_trip, dropped, judge_leases(status.leases)]
}

fn judge_leases(leases: u64) -> Finding {
    let found = format!("{leases} of at most {LEASES_MAX}");
    match leases > LEASES_MAX / 10 * 9 {
        true => Finding::warn("leases", found, "Further grants will be refused: shorten TTLs, or use another server."),
        false => Finding::ok("leases", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn verdicts(status: &v1::StatusReply, ms: u64) -> Vec<Verdict> {
        let findings = judge(status, &[Duration::from_millis(ms); ROUND_TRIPS]);
        findings.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn what_is_not_as_it_should_be_is_told() {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let well = v1::StatusReply { version, leads: true, ..v1::StatusReply::default() };
        assert_eq!(verdicts(&well, 1), [Verdict::Ok; 5]);
        let ill = v1::StatusReply {
            version: "0.0.1".into(),
            leads: false,
            dropped_ms: 700,
            leases: LEASES_MAX,
            ..v1::StatusReply::default()
        };
        assert_eq!(verdicts(&ill, 100), [Verdict::Bad, Verdict::Warn, Verdict::Warn, Verdict::Warn, Verdict::Warn]);
    }
}
