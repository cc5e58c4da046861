//! Claims over HTTP: acquire, with a long poll if it is to wait, renew, release, cancel, verify, break, transfer.

use super::body::{Asked, Body};
use super::poll;
use super::problem::{NotDone, NotRead, Problem};
use super::{Answer, HttpDoor};
use crate::listen::Peer;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tenure_api::json::{Id, ModeWord};
use tenure_api::v1;
use tenure_api::v1::acquire_reply::State as Stands;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use utoipa::{IntoParams, ToSchema};

/// Claims one resource or several, for a new lease or one that lives.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"resource": "jobs/nightly", "holder": "ann", "ttl_ms": 30000, "wait": true}))]
pub(super) struct AcquireBody {
    /// One resource.
    resource: String,
    /// How it is claimed; exclusively unless said.
    mode: Option<ModeWord>,
    /// How many units, with the mode `units`.
    units: u64,
    /// The capacity that is expected of it: the first claim defines it, another one is refused.
    capacity: u64,
    /// Several resources, all or none of them: at most 16. Then `resource`, `mode`, `units` and `capacity` are not said.
    #[serde(deserialize_with = "tenure_api::json::objects")]
    wants: Vec<v1::Want>,
    /// Who claims it, for a new lease, which ends when the last of its claims is released.
    holder: String,
    /// How long the new lease lasts without a renewal.
    ttl_ms: i64,
    /// With a holder: the id of the new lease, drawn at random by the client, so that a retry is the same request.
    /// Without: the living lease that the claims are for.
    lease: Option<Id>,
    /// With the lease id and the holder it tells a retry from another request.
    request: u64,
    /// The class whose presets and policy the new lease follows.
    class: String,
    /// How long the new lease stays held and renewable after its deadline.
    grace_ms: Option<i64>,
    /// How long the new lease may be renewed at all.
    lifetime_ms: i64,
    /// That time counts only while others wait for what the lease holds.
    lifetime_while_others_wait: bool,
    /// The lease that the new one ends with.
    parent: Option<Id>,
    /// At most 16, for the new lease.
    #[serde(deserialize_with = "tenure_api::json::labels")]
    labels: BTreeMap<String, String>,
    /// What the new lease is for, in a sentence.
    reason: String,
    /// Wait in line. The request stays open until the claim is seated or over; the server renews its lease meanwhile.
    /// If the client hangs up, the claim leaves the line, unless the client has chosen the id of its lease.
    wait: bool,
    /// How long to stay in line. 0: one resource for ever, several for a minute.
    wait_limit_ms: i64,
    /// How long this request stays open at most. Then the answer is 202 with the place in line, and the claim stays
    /// there for the TTL of its lease: ask again with `lease` alone.
    poll_ms: Option<u64>,
    /// From -1000 to 1000. One step is worth ten seconds of arrival.
    priority: i32,
    /// How long each claim stays as a vacating stake after an end that its holder did not ask for.
    lock_delay_ms: i64,
    /// How often the holder has started, by its own count. Its claims of lower epochs are superseded.
    epoch: u64,
    /// With `lease` and without a holder: the number of this request, counted up from 1, so that a copy of it that arrives late
    /// takes nothing.
    number: u64,
    /// With `number`: every request about this lease with a lower number than this was answered.
    answered_below: u64,
    /// With which a release has to come so that the resources are free at once; any other release leaves them vacating until
    /// the deadline that was promised to their holder. It is never shown.
    release_secret: u64,
}

impl AcquireBody {
    /// The message that gRPC would have carried.
    fn message(self) -> v1::AcquireRequest {
        let lease = self.lease.map_or(0, |id| id.0);
        let is_new = !self.holder.is_empty() || self.lease.is_none();
        let one = v1::Want {
            resource: self.resource.clone(),
            mode: self.mode.map_or(0, |word| v1::Mode::from(word).into()),
            units: self.units,
            capacity: self.capacity,
        };
        let is_plain = one.mode == 0 && one.units == 0 && one.capacity == 0;
        let is_one = self.wants.is_empty() && !is_plain;
        v1::AcquireRequest {
            resource: if is_one { String::new() } else { self.resource },
            wants: if is_one { vec![one] } else { self.wants },
            lease: if is_new { 0 } else { lease },
            grant: is_new.then_some(v1::GrantRequest {
                lease,
                holder: self.holder,
                ttl_ms: self.ttl_ms,
                request: self.request,
                class: self.class,
                grace_ms: self.grace_ms,
                lifetime_ms: self.lifetime_ms,
                lifetime_while_others_wait: self.lifetime_while_others_wait,
                parent: self.parent.map_or(0, |id| id.0),
                labels: self.labels,
                reason: self.reason,
            }),
            wait: self.wait,
            priority: self.priority,
            lock_delay_ms: self.lock_delay_ms,
            epoch: self.epoch,
            wait_limit_ms: self.wait_limit_ms,
            number: self.number,
            answered_below: self.answered_below,
            release_secret: self.release_secret,
        }
    }

    /// What is said that the message has no place for.
    fn check(&self) -> Result<(), Problem> {
        let says = |what: bool, both: &'static str| if what { Err(tenure_api::BadRequest::Both(both)) } else { Ok(()) };
        let is_shaped = self.mode.is_some() || self.units > 0 || self.capacity > 0;
        says(!self.wants.is_empty() && is_shaped, "`wants` and how one resource is claimed")?;
        let has_terms = self.ttl_ms != 0 || !self.class.is_empty() || self.parent.is_some() || self.request != 0;
        let has_words = !self.labels.is_empty() || !self.reason.is_empty();
        let has_times = self.grace_ms.is_some() || self.lifetime_ms != 0 || self.lifetime_while_others_wait;
        let is_given = self.holder.is_empty() && self.lease.is_some();
        says(is_given && (has_terms || has_words || has_times), "a living `lease` and the terms of a new one")?;
        says(self.poll_ms.is_some() && !self.wait, "`poll_ms` and not to `wait`")?;
        Ok(())
    }
}

/// A claim that holds its resource.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Claim {
    /// `NAME@FENCE`: what renew, release and verify take.
    handle: String,
    resource: String,
    /// Higher than every fence before it. Whatever the lease protects refuses a lower one.
    fence: u64,
}

/// How an acquire stands.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Acquired {
    /// held, waiting
    state: &'static str,
    lease: Id,
    /// How long the lease lasts: count from the moment the request was sent. If it has waited, renew once before the
    /// work starts, and count from there.
    ttl_ms: u64,
    revision: u64,
    /// Whether it stood in line before it was seated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waited: bool,
    /// `NAME@FENCE` of the first claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    /// The fence of the first claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// The place in line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<u64>,
    /// Every claim, in the order asked; none while they wait.
    claims: Vec<Claim>,
}

impl Acquired {
    fn new(reply: v1::AcquireReply, waited: bool) -> (StatusCode, Self) {
        let claims = reply.claims.into_iter().map(|claim| Claim {
            handle: format!("{}@{}", claim.resource, claim.fence),
            resource: claim.resource,
            fence: claim.fence,
        });
        let claims: Vec<Claim> = claims.collect();
        let (status, state, place) = match reply.state {
            Some(Stands::Place(place)) => (StatusCode::ACCEPTED, "waiting", Some(place)),
            _ => (StatusCode::OK, "held", None),
        };
        let handle = claims.first().map(|claim| claim.handle.clone());
        let fence = claims.first().map(|claim| claim.fence);
        let (lease, ttl_ms, revision) = (Id(reply.lease), reply.ttl_ms, reply.revision);
        (status, Self { state, lease, ttl_ms, revision, waited, handle, fence, place, claims })
    }
}

/// Claims resources, all or none of them.
#[utoipa::path(post, path = "/v1/acquire", tag = "claims", request_body = AcquireBody, responses(
    (status = 200, description = "Held.", body = Acquired),
    (status = 202, description = "In line, and `poll_ms` is over.", body = Acquired),
    NotDone,
))]
pub(super) async fn acquire(
    door: HttpDoor,
    Extension(peer): Extension<Peer>,
    Body(body): Body<AcquireBody>,
) -> Result<(StatusCode, Json<Acquired>), Problem> {
    body.check()?;
    let patience = poll::Patience { open_ms: body.poll_ms, peer };
    let message = body.message();
    let (reply, waited) = match message.wait {
        false => (acquired(door.desk.order(Ask::Acquire(message)).await?), false),
        true => poll::acquire(&door, message, patience).await?,
    };
    let (status, acquired) = Acquired::new(reply, waited);
    Ok((status, Json(acquired)))
}

/// The reply to an acquire.
pub(super) fn acquired(tell: Tell) -> v1::AcquireReply {
    match tell {
        Tell::Acquire(reply) => reply,
        other => unreachable!("an acquire is answered by a reply of its own kind, not {other:?}"),
    }
}

/// Extends the lease behind a handle.
#[utoipa::path(post, path = "/v1/renew", tag = "claims", request_body = v1::RenewHandleRequest, responses(
    (status = 200, description = "Extended. Count the TTL from the moment the request was sent.", body = v1::RenewHandleReply),
    NotDone,
))]
pub(super) async fn renew(door: HttpDoor, Body(body): Body<v1::RenewHandleRequest>) -> Answer<v1::RenewHandleReply> {
    ordered!(door, RenewHandle(body))
}

/// Gives a resource back.
#[utoipa::path(post, path = "/v1/release", tag = "claims", request_body = v1::ReleaseRequest, responses(
    (status = 200, description = "Given back.", body = v1::ReleaseReply),
    NotDone,
))]
pub(super) async fn release(door: HttpDoor, Body(body): Body<v1::ReleaseRequest>) -> Answer<v1::ReleaseReply> {
    ordered!(door, Release(body))
}

/// Leaves lines, or gives the resources back if the claims were seated meanwhile.
#[utoipa::path(post, path = "/v1/cancel", tag = "claims", request_body = v1::CancelRequest, responses(
    (status = 200, description = "Left.", body = v1::CancelReply),
    NotDone,
))]
pub(super) async fn cancel(door: HttpDoor, Body(body): Body<v1::CancelRequest>) -> Answer<v1::CancelReply> {
    ordered!(door, Cancel(body))
}

/// Ends claims on a resource, whoever holds it, at once or after a delay.
#[utoipa::path(post, path = "/v1/break", tag = "claims", request_body = v1::BreakRequest, responses(
    (status = 200, description = "Broken, or will be.", body = v1::BreakReply),
    NotDone,
))]
pub(super) async fn break_claims(door: HttpDoor, Body(body): Body<v1::BreakRequest>) -> Answer<v1::BreakReply> {
    ordered!(door, BreakClaims(body))
}

/// Gives a claim to another lease, with a new fence.
#[utoipa::path(post, path = "/v1/transfer", tag = "claims", request_body = v1::TransferRequest, responses(
    (status = 200, description = "The other lease holds it.", body = Acquired),
    (status = 202, description = "The next seat is reserved for the other lease.", body = Acquired),
    NotDone,
))]
pub(super) async fn transfer(
    door: HttpDoor,
    Body(body): Body<v1::TransferRequest>,
) -> Result<(StatusCode, Json<Acquired>), Problem> {
    let reply = acquired(door.desk.order(Ask::Transfer(body)).await?);
    let (status, acquired) = Acquired::new(reply, false);
    Ok((status, Json(acquired)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct OfHandle {
    /// `NAME@FENCE`
    handle: String,
}

/// Whether a handle's claim holds its resource.
#[utoipa::path(get, path = "/v1/verify", tag = "claims", params(OfHandle), responses(
    (status = 200, description = "It does.", body = v1::VerifyReply),
    NotRead,
))]
pub(super) async fn verify(door: HttpDoor, Asked(asked): Asked<OfHandle>) -> Answer<v1::VerifyReply> {
    Ok(Json(door.desk.verify(&v1::VerifyRequest { handle: asked.handle }).await?))
}
