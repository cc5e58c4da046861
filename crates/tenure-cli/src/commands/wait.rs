//! Waiting in line: the claim stands on the stream, its lease is renewed, and it is cancelled when patience ends.

use crate::failure::Failure;
use crate::print;
use std::time::Duration;
use tenure::v1::acquire_reply::State;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, v1};
use tokio::time::{MissedTickBehavior, interval, sleep};

const ACQUIRE: u64 = 1;
const RENEW: u64 = 2;
const CONFIRM: u64 = 3;
const CANCEL: u64 = 4;

/// Acquires, in line if need be, for as long as `patience` lasts.
pub(super) async fn acquire_in_line(
    client: &Client,
    mut request: v1::AcquireRequest,
    patience: Duration,
    what: &str,
) -> Result<v1::AcquireReply, Failure> {
    let fail = |error: tenure::Error| Failure::of(what, &error);
    let grant = request.grant.clone().unwrap_or_default();
    let lease = grant.lease;
    let cancel = v1::CancelRequest { lease, resource: request.resource.clone() };
    let renew = |id| {
        let leases = vec![lease];
        v1::Request { id, body: Some(Ask::Renew(v1::RenewRequest { leases, ttls_ms: Vec::new() })) }
    };
    request.wait = true;
    let mut stream = client.converse().await.map_err(fail)?;
    stream.send(v1::Request { id: ACQUIRE, body: Some(Ask::Acquire(request)) }).await.map_err(fail)?;
    let third = u64::try_from(grant.ttl_ms).unwrap_or_default() / 3;
    let mut heartbeat = interval(Duration::from_millis(third.max(30)));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let patience = sleep(patience);
    tokio::pin!(patience);
    let (mut waiting, mut cancelled) = (false, false);
    let mut seated = None;
    loop {
        let answer = tokio::select! {
            answer = stream.next() => answer.map_err(fail)?,
            _ = heartbeat.tick(), if waiting => {
                stream.send(renew(RENEW)).await.map_err(fail)?;
                continue;
            }
            () = &mut patience, if !cancelled => {
                cancelled = true;
                let body = Some(Ask::Cancel(cancel.clone()));
                stream.send(v1::Request { id: CANCEL, body }).await.map_err(fail)?;
                continue;
            }
        };
        match (answer.id, answer.body) {
            (ACQUIRE, Some(Tell::Acquire(reply))) => match reply.state {
                Some(State::Place(place)) => {
                    waiting = true;
                    print::say(&format!("waiting, place {place} in line"));
                }
                // Who waited counts from a renewal of its own, not from an answer that may have been under way for long.
                Some(State::Fence(_)) if waiting => {
                    seated = Some(reply);
                    stream.send(renew(CONFIRM)).await.map_err(fail)?;
                }
                _ => return Ok(reply),
            },
            (CONFIRM, Some(Tell::Renew(renewed))) if renewed.failures.is_empty() && !cancelled => {
                return Ok(seated.unwrap_or_default());
            }
            (CANCEL, _) => return Err(Failure::held(what, "it did not become free in time")),
            (_, Some(Tell::Failure(failure))) if !cancelled => return Err(Failure::of(what, &failure.into())),
            _ => {}
        }
    }
}
