//! Waiting in line: the claims stand on the stream, their lease is renewed, and they are cancelled when patience ends.

use super::{millis, stop_signal};
use crate::failure::Failure;
use crate::print;
use std::time::Duration;
use tenure::v1::acquire_reply::State;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, Error, v1};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

const ACQUIRE: u64 = 1;
const RENEW: u64 = 2;
const CANCEL: u64 = 3;

/// How far a claim has come.
enum Stage {
    /// Asked for, not answered yet.
    Asked,
    /// In line.
    Waiting,
    /// Seated after waiting. Its holder counts from a renewal of its own, which is under way.
    Seated(v1::AcquireReply),
    /// Given up: the claim is being cancelled.
    Leaving(GivenUp),
}

/// Why a claim is given up.
#[derive(Clone, Copy)]
enum GivenUp {
    /// The time that was given for it is over.
    Patience,
    /// Somebody stopped it from the keyboard.
    Keyboard,
}

/// Acquires, in line if need be, for as long as `patience` lasts.
pub(super) async fn acquire_in_line(
    client: &Client,
    mut request: v1::AcquireRequest,
    patience: Duration,
    what: &str,
) -> Result<v1::AcquireReply, Failure> {
    let fail = |error: Error| Failure::of(what, &error);
    request.wait = true;
    if request.wants.len() > 1 {
        // Several resources are blocked for those behind, so the server has to know for how long.
        request.wait_limit_ms = millis(patience).max(1);
    }
    let (renew, cancel) = (renewal(&request), cancellation(&request));
    let stopped = stop_signal().map_err(|error| Failure::before(what, &error.to_string(), "Try it without --wait."))?;
    let mut stream = client.converse().await.map_err(fail)?;
    ask(&stream, ACQUIRE, Ask::Acquire(request)).await.map_err(fail)?;
    let mut heartbeat = beat(u64::MAX);
    let patience = sleep(patience);
    tokio::pin!(patience, stopped);
    let mut stage = Stage::Asked;
    loop {
        let answer = tokio::select! {
            answer = stream.next() => answer.map_err(fail)?,
            _ = heartbeat.tick(), if !matches!(stage, Stage::Asked) => {
                ask(&stream, RENEW, renew.clone()).await.map_err(fail)?;
                continue;
            }
            // Before the first answer there may be nothing to cancel yet.
            () = &mut patience, if matches!(stage, Stage::Waiting) => {
                stage = Stage::Leaving(GivenUp::Patience);
                ask(&stream, CANCEL, cancel.clone()).await.map_err(fail)?;
                continue;
            }
            () = &mut stopped, if !matches!(stage, Stage::Leaving(GivenUp::Keyboard)) => {
                if matches!(stage, Stage::Asked | Stage::Leaving(_)) {
                    return Err(given_up(what, GivenUp::Keyboard, None));
                }
                stage = Stage::Leaving(GivenUp::Keyboard);
                ask(&stream, CANCEL, cancel.clone()).await.map_err(fail)?;
                continue;
            }
        };
        match (answer.id, answer.body, &stage) {
            (ACQUIRE, Some(Tell::Acquire(reply)), Stage::Asked) => match reply.state {
                Some(State::Place(place)) => {
                    stage = Stage::Waiting;
                    heartbeat = beat(reply.ttl_ms);
                    print::say(&format!("waiting, place {place} in line"));
                }
                _ => return Ok(reply),
            },
            (ACQUIRE, Some(Tell::Acquire(reply)), Stage::Waiting) => {
                stage = Stage::Seated(reply);
                ask(&stream, RENEW, renew.clone()).await.map_err(fail)?;
            }
            (RENEW, Some(Tell::Renew(renewed)), stage) => match (renewed.failures.into_iter().next(), stage) {
                (None, Stage::Seated(reply)) => return Ok(confirmed(reply, &renewed.ttls_ms)),
                (None, _) => heartbeat = beat(renewed.ttls_ms.first().copied().unwrap_or_default()),
                // Its class takes no more renewals, so an earlier one has come after the seat and confirmed it.
                (Some(lost), Stage::Seated(reply)) if is_confirmed(&lost) => return Ok(reply.clone()),
                (Some(lost), Stage::Waiting | Stage::Seated(_)) if !is_confirmed(&lost) => {
                    return Err(lost_in_line(what, lost.failure.unwrap_or_default()));
                }
                _ => {}
            },
            // A renewal that was turned away is tried again with the next heartbeat.
            (RENEW, _, _) => {}
            (CANCEL, body, Stage::Leaving(why)) => return Err(given_up(what, *why, body)),
            (_, Some(Tell::Failure(failure)), Stage::Asked) => return Err(fail(failure.into())),
            (_, Some(Tell::Failure(failure)), Stage::Waiting) => return Err(lost_in_line(what, failure)),
            _ => {}
        }
    }
}

/// Whether a renewal was refused for the class of its lease. While that waits, and once after, every class takes one.
fn is_confirmed(refused: &v1::RenewFailure) -> bool {
    refused.failure.as_ref().is_some_and(|failure| failure.code == "not_renewable")
}

fn lease_of(request: &v1::AcquireRequest) -> u64 {
    request.grant.as_ref().map_or(request.lease, |grant| grant.lease)
}

fn renewal(request: &v1::AcquireRequest) -> Ask {
    Ask::Renew(v1::RenewRequest { leases: vec![lease_of(request)], ..v1::RenewRequest::default() })
}

fn cancellation(request: &v1::AcquireRequest) -> Ask {
    let resources = request.wants.iter().map(|want| want.resource.clone()).collect();
    Ask::Cancel(v1::CancelRequest { lease: lease_of(request), resource: String::new(), resources })
}

/// A seat with the TTL of the renewal that confirmed it.
fn confirmed(reply: &v1::AcquireReply, ttls_ms: &[u64]) -> v1::AcquireReply {
    v1::AcquireReply { ttl_ms: ttls_ms.first().copied().unwrap_or_default(), ..reply.clone() }
}

/// A heartbeat three times in each TTL, from now on.
fn beat(ttl_ms: u64) -> Interval {
    let mut heartbeat = interval(Duration::from_millis((ttl_ms / 3).clamp(30, 3_600_000)));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    heartbeat
}

async fn ask(stream: &Conversation, id: u64, body: Ask) -> Result<(), Error> {
    stream.send(v1::Request { id, body: Some(body) }).await
}

/// What is said when the claim ended before it was seated. The server's own limit is patience, too.
fn lost_in_line(what: &str, failure: v1::Failure) -> Failure {
    let waited_out = failure.end.as_ref().is_some_and(|end| end.how == "waited_out");
    if waited_out || failure.code == "no_claim" {
        return Failure::held(what, "it did not become free in time");
    }
    Failure::of(what, &failure.into())
}

/// What is said when the claim was given up, by what became of the cancel.
fn given_up(what: &str, why: GivenUp, body: Option<Tell>) -> Failure {
    let has_left = match body {
        Some(Tell::Cancel(_)) => true,
        Some(Tell::Failure(failure)) => failure.code == "lapsed" || failure.code == "no_claim",
        _ => false,
    };
    match why {
        GivenUp::Patience if has_left => Failure::held(what, "it did not become free in time"),
        GivenUp::Keyboard if has_left => Failure::interrupted(what, "it was stopped, and has left the line"),
        _ => Failure::new(
            what,
            "it was given up, and whether the claim left the line is not known",
            "It ends with its lease. Look with `tenure ls`.",
        ),
    }
}
