//! Outcomes and events become messages here.

use crate::failure::failure;
use crate::v1;
use crate::v1::acquire_reply::State;
use crate::v1::response::Body;
use tenure_core::{End, Event, Happening, Moment, Outcome, Refusal, Renewed, Reply};

/// The body of the response to one command.
pub fn write_outcome(outcome: &Outcome) -> Body {
    match outcome {
        Ok(reply) => write_reply(reply),
        Err(refusal) => Body::Failure(failure(refusal)),
    }
}

fn write_reply(reply: &Reply) -> Body {
    match reply {
        Reply::Granted { lease, ttl_ms, revision } => {
            Body::Grant(v1::GrantReply { lease: lease.number(), ttl_ms: *ttl_ms, revision: revision.0 })
        }
        Reply::Seated(seat) => Body::Acquire(v1::AcquireReply {
            lease: seat.lease.number(),
            ttl_ms: seat.ttl_ms,
            revision: seat.revision.0,
            state: Some(State::Fence(seat.fence.number())),
        }),
        Reply::Waiting { lease, place, ttl_ms, revision } => Body::Acquire(v1::AcquireReply {
            lease: lease.number(),
            ttl_ms: *ttl_ms,
            revision: revision.0,
            state: Some(State::Place(*place)),
        }),
        Reply::Renewed(each) => Body::Renew(write_renewed(each)),
        Reply::HandleRenewed(renewed) => {
            Body::RenewHandle(v1::RenewHandleReply { lease: renewed.lease.number(), ttl_ms: renewed.ttl.millis() })
        }
        Reply::Released => Body::Release(v1::ReleaseReply {}),
        Reply::Cancelled => Body::Cancel(v1::CancelReply {}),
        Reply::Revoked => Body::Revoke(v1::RevokeReply {}),
    }
}

/// Failures in one reply that come with a sentence. The others have the code and the facts, so that a reply to many dead
/// leases is not many times as large as the request.
const RENEW_MESSAGES_MAX: usize = 16;

fn write_renewed(each: &[Result<Renewed, Refusal>]) -> v1::RenewReply {
    let mut reply = v1::RenewReply { ttls_ms: Vec::with_capacity(each.len()), failures: Vec::new() };
    for (index, renewed) in (0..).zip(each) {
        match renewed {
            Ok(renewed) => reply.ttls_ms.push(renewed.ttl.millis()),
            Err(refusal) => {
                reply.ttls_ms.push(0);
                let mut failure = failure(refusal);
                if reply.failures.len() >= RENEW_MESSAGES_MAX {
                    failure.message.clear();
                }
                reply.failures.push(v1::RenewFailure { index, failure: Some(failure) });
            }
        }
    }
    reply
}

/// How something ended.
pub fn end(how: &End) -> v1::End {
    match how {
        End::Released => v1::End { how: "released".into(), ..v1::End::default() },
        End::Expired => v1::End { how: "expired".into(), ..v1::End::default() },
        End::Revoked { by, reason } => {
            v1::End { how: "revoked".into(), by: by.to_string(), reason: reason.to_string(), ..v1::End::default() }
        }
    }
}

/// How and when something ended.
pub(crate) fn ended(how: &End, when: Moment, wall_ms: u64) -> v1::End {
    v1::End { when_ms: when.millis(), wall_ms, ..end(how) }
}

/// One event.
pub fn event(event: &Event) -> v1::Event {
    let mut message = v1::Event {
        revision: event.revision.0,
        n: event.n,
        last: event.last,
        at_ms: event.at.millis(),
        wall_ms: event.wall_ms,
        lease: event.what.lease().number(),
        resource: event.what.resource().map_or_else(String::new, ToString::to_string),
        ..v1::Event::default()
    };
    let kind = match &event.what {
        Happening::Granted { holder, ttl, .. } => {
            message.holder = holder.to_string();
            message.ttl_ms = ttl.millis();
            "granted"
        }
        Happening::Queued { holder, .. } => {
            message.holder = holder.to_string();
            "queued"
        }
        Happening::Seated { holder, fence, ttl, .. } => {
            message.holder = holder.to_string();
            message.fence = fence.number();
            message.ttl_ms = ttl.millis();
            "seated"
        }
        Happening::Vacated { fence, how, .. } => {
            message.fence = fence.number();
            message.end = Some(end(how));
            "vacated"
        }
        Happening::Left { .. } => "left",
        Happening::Ended { holder, how, .. } => {
            message.holder = holder.to_string();
            message.end = Some(end(how));
            "ended"
        }
    };
    message.kind = kind.into();
    message
}
