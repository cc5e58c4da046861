//! What the doctor finds of the server: whether it answers, how fast, and how it has fared.

use super::Finding;
use crate::clock::Stopwatch;
use crate::commands::members::{self, Asked, Votes};
use crate::commands::{are_addresses, connect_to};
use crate::print;
use std::time::Duration;
use tenure::{Code, Error, v1};

/// Round trips that are measured.
const ROUND_TRIPS: usize = 10;

/// Beyond this, a short TTL leaves little time for a second attempt.
const ROUND_TRIP_LONG: Duration = Duration::from_millis(100);

/// A stall drops at least so much service time. The start of a leadership drops less.
const STALL_MS: u64 = 500;

/// Leases that one ledger may have.
const LEASES_MAX: u64 = tenure_core::limits::LEASES_MAX as u64;

pub(super) async fn look(addr: &str) -> Vec<Finding> {
    let asked = match are_addresses(addr) {
        Ok(()) => ask(addr).await,
        Err(why) => Err(Error::Local(why)),
    };
    match asked {
        Ok((status, times, asked)) => {
            judge(&status, &times).into_iter().chain(judge_members(&asked, &status)).collect()
        }
        Err(error) => vec![Finding::bad("server", error.to_string(), remedy(&error))],
    }
}

fn remedy(error: &Error) -> &'static str {
    match (error, error.code()) {
        (Error::Handshake { .. }, _) => "Correct the address, TENURE_CA_FILE or the certificate.",
        (Error::KeyInTheClear { .. }, _) => "Write https:// in --addr, or use a tunnel that listens on 127.0.0.1.",
        (_, Some(Code::Unauthenticated)) => "Name the file that has your API key: TENURE_API_KEY_FILE=FILE.",
        _ => "Start one with `tenure serve`, or point --addr at one that runs.",
    }
}

async fn ask(addr: &str) -> Result<(v1::StatusReply, Vec<Duration>, Vec<Asked>), Error> {
    let client = connect_to(addr).await?;
    let mut status = client.status(v1::StatusRequest {}).await?;
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let watch = Stopwatch::start();
        status = client.status(v1::StatusRequest {}).await?;
        times.push(watch.elapsed());
    }
    times.sort();
    let asked = members::ask(members::known(&client).await?, &status).await;
    Ok((status, times, asked))
}

fn judge(status: &v1::StatusReply, times: &[Duration]) -> Vec<Finding> {
    let leads = match status.leads {
        true => Finding::ok("server", format!("node {} answers and leads", status.node)),
        false if status.leader != 0 => {
            Finding::ok("server", format!("node {} answers and follows node {}", status.node, status.leader))
        }
        false => Finding::bad("server", format!("node {} knows no leader", status.node), "Ask again in a moment."),
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
        ms if ms < STALL_MS => Finding::ok("time dropped", "no stall since it started"),
        ms => {
            let found = format!("{} since it started", print::span_ms(ms));
            let todo =
                "Disk or machine stalled for longer than 500 ms; no lease ended early. Look at the disk sync above.";
            Finding::warn("time dropped", found, todo)
        }
    };
    vec![leads, version, round_trip, dropped, judge_leases(status.leases)]
}

/// Each member that does not answer, or the word that all do. A node that is alone has no members to look at.
fn judge_members(asked: &[Asked], own: &v1::StatusReply) -> Vec<Finding> {
    let check = "members";
    if asked.len() < 2 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for Asked { member, said } in asked {
        match said {
            Err(why) => findings.push(Finding::bad(
                check,
                format!("node {} does not answer: {why}", member.node),
                "Start it, or take it out with `tenure cluster remove` and let another one in.",
            )),
            Ok(status) if status.leader == 0 && !status.leads => findings.push(Finding::bad(
                check,
                format!("node {} knows no leader", member.node),
                "Look whether it reaches its peers, and whether it was removed: its log says so.",
            )),
            Ok(status) if status.version != own.version => findings.push(Finding::warn(
                check,
                format!("node {} runs version {}, and node {} {}", member.node, status.version, own.node, own.version),
                "Run the same version everywhere.",
            )),
            Ok(_) => {}
        }
    }
    let votes = Votes::count(asked);
    if findings.is_empty() {
        let may_fail = votes.may_fail().unwrap_or_default();
        findings.push(Finding::ok(check, format!("all {} answer; {may_fail} may fail", asked.len())));
    }
    findings
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

    fn member(node: u64, said: Result<u64, &str>) -> Asked {
        let said =
            said.map(|leader| v1::StatusReply { node, leader, leads: leader == node, ..v1::StatusReply::default() });
        Asked {
            member: v1::Member { node, votes: true, ..v1::Member::default() },
            said: said.map_err(ToOwned::to_owned),
        }
    }

    #[test]
    fn members_that_do_not_answer_are_named() {
        let own = v1::StatusReply::default();
        assert!(judge_members(&[member(1, Ok(1))], &own).is_empty(), "a node that is alone");
        let well = judge_members(&[member(1, Ok(1)), member(2, Ok(1)), member(3, Ok(1))], &own);
        assert_eq!((well[0].verdict, well[0].found.as_str()), (Verdict::Ok, "all 3 answer; 1 may fail"));
        let ill = judge_members(&[member(1, Ok(1)), member(2, Err("refused")), member(3, Ok(0))], &own);
        let found: Vec<_> = ill.iter().map(|finding| (finding.verdict, finding.found.as_str())).collect();
        assert_eq!(
            found,
            [(Verdict::Bad, "node 2 does not answer: refused"), (Verdict::Bad, "node 3 knows no leader")]
        );
    }

    #[test]
    fn what_is_not_as_it_should_be_is_told() {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let well = v1::StatusReply { version, leads: true, ..v1::StatusReply::default() };
        assert_eq!(verdicts(&well, 1), [Verdict::Ok; 5]);
        let restarted = v1::StatusReply { dropped_ms: 110, ..well };
        assert_eq!(verdicts(&restarted, 1), [Verdict::Ok; 5], "a clean start drops this much");
        let ill = v1::StatusReply {
            version: "0.0.1".into(),
            leads: false,
            leader: 0,
            dropped_ms: 700,
            leases: LEASES_MAX,
            ..v1::StatusReply::default()
        };
        assert_eq!(verdicts(&ill, 100), [Verdict::Bad, Verdict::Warn, Verdict::Warn, Verdict::Warn, Verdict::Warn]);
    }
}
