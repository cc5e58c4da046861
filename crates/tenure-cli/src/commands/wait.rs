//! Waiting in line: the claim stands on the stream, its lease is renewed, and it is cancelled when patience ends.

use crate::failure::Failure;
use crate::print;
use std::time::Duration;
use tenure::v1::acquire_reply::State;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, Error, v1};
use tokio::time::{MissedTickBehavior, interval, sleep};

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
    Leaving,
}

/// Acquires, in line if need be, for as long as `patience` lasts.
pub(super) async fn acquire_in_line(
    client: &Client,
    mut request: v1::AcquireRequest,
    patience: Duration,
    what: &str,
) -> Result<v1::AcquireReply, Failure> {
    let fail = |error: Error| Failure::of(what, &error);
    let grant = request.grant.clone().unwrap_or_default();
    let renew = Ask::Renew(v1::RenewRequest { leases: vec![grant.lease], ttls_ms: Vec::new() });
    let cancel = Ask::Cancel(v1::CancelRequest { lease: grant.lease, resource: request.resource.clone() });
    request.wait = true;
    let mut stream = client.converse().await.map_err(fail)?;
    ask(&stream, ACQUIRE, Ask::Acquire(request)).await.map_err(fail)?;
    let third = u64::try_from(grant.ttl_ms).unwrap_or_default() / 3;
    let mut heartbeat = interval(Duration::from_millis(third.max(30)));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let patience = sleep(patience);
    tokio::pin!(patience);
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
                stage = Stage::Leaving;
                ask(&stream, CANCEL, cancel.clone()).await.map_err(fail)?;
                continue;
            }
        };
        match (answer.id, answer.body, &stage) {
            (ACQUIRE, Some(Tell::Acquire(reply)), Stage::Asked) => match reply.state {
                Some(State::Place(place)) => {
                    stage = Stage::Waiting;
                    print::say(&format!("waiting, place {place} in line"));
                }
                _ => return Ok(reply),
            },
            (ACQUIRE, Some(Tell::Acquire(reply)), Stage::Waiting) => {
                stage = Stage::Seated(reply);
                ask(&stream, RENEW, renew.clone()).await.map_err(fail)?;
            }
            (RENEW, Some(Tell::Renew(renewed)), stage) => match (renewed.failures.into_iter().next(), stage) {
                (None, Stage::Seated(reply)) => return Ok(*reply),
                (Some(lost), Stage::Waiting | Stage::Seated(_)) => {
                    return Err(fail(lost.failure.unwrap_or_default().into()));
                }
                _ => {}
            },
            // A renewal that was turned away is tried again with the next heartbeat.
            (RENEW, _, _) => {}
            (CANCEL, body, _) => return Err(given_up(what, body)),
            (_, Some(Tell::Failure(failure)), Stage::Asked | Stage::Waiting) => return Err(fail(failure.into())),
            _ => {}
        }
    }
}

async fn ask(stream: &Conversation, id: u64, body: Ask) -> Result<(), Error> {
    stream.send(v1::Request { id, body: Some(body) }).await
}

/// What is said when patience has ended, by what became of the cancel.
fn given_up(what: &str, body: Option<Tell>) -> Failure {
    match body {
        Some(Tell::Cancel(_)) => Failure::held(what, "it did not become free in time"),
        Some(Tell::Failure(failure)) if failure.code == "lapsed" || failure.code == "no_claim" => {
            Failure::held(what, "it did not become free in time")
        }
        _ => Failure::new(
            what,
            "it did not become free in time, and whether the claim left the line is not known",
            "It ends by itself within its TTL. Look with `tenure ls`.",
        ),
    }
}
