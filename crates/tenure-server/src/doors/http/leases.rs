//! Leases and classes over HTTP.

use super::body::{Asked, Body, Fresh, Leased, Named, read_from};
use super::problem::{NotDone, NotRead, Problem};
use super::{Answer, HttpDoor};
use axum::Json;
use serde::{Deserialize, Serialize};
use tenure_api::json::{Bytes, Id};
use tenure_api::v1::revoke_request::Which;
use tenure_api::v1::show_lease_reply::State as Stands;
use tenure_api::{BadRequest, v1};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhichLeases {
    /// Only those of this holder,
    holder: String,
    /// with this label, as `KEY=VALUE`,
    label: String,
    /// of this class,
    class: String,
    /// that hold a resource whose name starts so.
    holds_prefix: String,
    /// At most so many; 0 is 1,000, and more than 10,000 is 10,000.
    #[param(value_type = u64, maximum = 4_294_967_295_u32)]
    limit: u32,
    /// The `next` of the page before.
    from: String,
    /// From this node's own copy, without asking whether it is the newest.
    stale: bool,
}

/// Lists leases, page by page.
#[utoipa::path(get, path = "/v1/leases", tag = "leases", params(WhichLeases), responses(
    (status = 200, description = "A page of leases.", body = v1::ListLeasesReply),
    NotRead,
))]
pub(super) async fn list(door: HttpDoor, Asked(asked): Asked<WhichLeases>) -> Answer<v1::ListLeasesReply> {
    let label = match asked.label.split_once('=') {
        Some((key, value)) => Some(v1::Label { key: key.into(), value: value.into() }),
        None if asked.label.is_empty() => None,
        None => return Err(super::body::bad_query("a label is asked for as KEY=VALUE")),
    };
    let request = v1::ListLeasesRequest {
        limit: asked.limit,
        from: read_from(&asked.from)?,
        stale: asked.stale,
        holder: asked.holder,
        label,
        class: asked.class,
        holds_prefix: asked.holds_prefix,
    };
    Ok(Json(door.desk.list_leases(&request).await?))
}

/// Begins a lease that lives on without claims.
#[utoipa::path(post, path = "/v1/leases", tag = "leases", request_body = v1::GrantRequest, responses(
    (status = 200, description = "Granted. Count the TTL from the moment the request was sent.", body = v1::GrantReply),
    NotDone,
))]
pub(super) async fn grant(door: HttpDoor, Body(body): Body<v1::GrantRequest>) -> Answer<v1::GrantReply> {
    ordered!(door, Grant(body))
}

/// Extends leases, each answered on its own.
#[utoipa::path(post, path = "/v1/leases/renew", tag = "leases", request_body = v1::RenewRequest, responses(
    (status = 200, description = "The TTL of each, in the order asked; 0 for those that have a failure.", body = v1::RenewReply),
    NotDone,
))]
pub(super) async fn renew(door: HttpDoor, Body(body): Body<v1::RenewRequest>) -> Answer<v1::RenewReply> {
    ordered!(door, Renew(body))
}

/// A lease in full: either it lives, or it is remembered how it ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShownLease {
    #[serde(skip_serializing_if = "Option::is_none")]
    living: Option<v1::Lease>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<v1::EndedLease>,
    /// The leases that end with it, the first 100.
    children: Vec<Id>,
    /// Its keys, the first 100.
    keys: Vec<Bytes>,
    revision: u64,
    /// The service time from which the remaining times count.
    now_ms: u64,
}

impl From<v1::ShowLeaseReply> for ShownLease {
    fn from(reply: v1::ShowLeaseReply) -> Self {
        let (living, ended) = match reply.state {
            Some(Stands::Living(lease)) => (Some(lease), None),
            Some(Stands::Ended(lease)) => (None, Some(lease)),
            None => (None, None),
        };
        Self {
            living,
            ended,
            children: reply.children.into_iter().map(Id).collect(),
            keys: reply.keys.iter().map(|key| Bytes::of(key)).collect(),
            revision: reply.revision,
            now_ms: reply.now_ms,
        }
    }
}

/// Shows one lease in full, or how it ended.
#[utoipa::path(get, path = "/v1/leases/{lease}", tag = "leases",
    params(("lease" = Id, Path, description = "The lease id."), Fresh),
    responses((status = 200, description = "The lease.", body = ShownLease), NotRead))]
pub(super) async fn show(door: HttpDoor, Leased(lease): Leased, Asked(fresh): Asked<Fresh>) -> Answer<ShownLease> {
    let shown = door.desk.show_lease(v1::ShowLeaseRequest { lease, stale: fresh.stale }).await?;
    Ok(Json(shown.into()))
}

/// Gives a lease back with all that hangs on it.
#[utoipa::path(delete, path = "/v1/leases/{lease}", tag = "leases",
    params(("lease" = Id, Path, description = "The lease id.")),
    responses((status = 200, description = "Given back.", body = v1::ReleaseReply), NotDone))]
pub(super) async fn release(door: HttpDoor, Leased(lease): Leased) -> Answer<v1::ReleaseReply> {
    ordered!(door, ReleaseLease(v1::ReleaseLeaseRequest { lease, ..v1::ReleaseLeaseRequest::default() }) => Release)
}

/// Ends leases, whoever holds them: one of `lease`, `prefix`, `holder` and `label` says which.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"holder": "ann", "by": "operator", "reason": "the host is gone"}))]
pub(super) struct RevokeBody {
    /// This lease.
    lease: Option<Id>,
    /// Those that hold a resource whose name starts so; not empty.
    prefix: Option<String>,
    /// Those of a holder.
    holder: Option<String>,
    /// Those with a label.
    #[serde(deserialize_with = "tenure_api::json::maybe_object")]
    label: Option<v1::Label>,
    /// Who orders it, for the history.
    by: String,
    reason: String,
    /// The `next` of the reply before.
    from: String,
    /// What they hold is free at once, and only the fence protects what their holders were doing. Else it stays
    /// vacating until the deadline that was promised to each holder.
    now: bool,
}

/// Ends leases, whoever holds them.
#[utoipa::path(post, path = "/v1/revoke", tag = "leases", request_body = RevokeBody, responses(
    (status = 200, description = "So many ended; if there is a `next`, go on from there.", body = v1::RevokeReply),
    NotDone,
))]
pub(super) async fn revoke(door: HttpDoor, Body(body): Body<RevokeBody>) -> Answer<v1::RevokeReply> {
    let lease = body.lease.map(|id| Which::Lease(id.0));
    let of_others = [body.prefix.map(Which::Prefix), body.holder.map(Which::Holder), body.label.map(Which::Label)];
    let mut said = lease.into_iter().chain(of_others.into_iter().flatten());
    let which = said.next();
    if said.next().is_some() {
        return Err(BadRequest::Both("two of `lease`, `prefix`, `holder` and `label`").into());
    }
    let request = v1::RevokeRequest { which, by: body.by, reason: body.reason, from: body.from, now: body.now };
    ordered!(door, Revoke(request))
}

/// Lists the classes of leases.
#[utoipa::path(get, path = "/v1/classes", tag = "leases", params(Fresh), responses(
    (status = 200, description = "All of them, by name.", body = v1::ListClassesReply),
    NotRead,
))]
pub(super) async fn classes(door: HttpDoor, Asked(fresh): Asked<Fresh>) -> Answer<v1::ListClassesReply> {
    Ok(Json(door.desk.list_classes(v1::ListClassesRequest { stale: fresh.stale }).await?))
}

/// Defines or changes a class. It touches later grants and renewals only.
#[utoipa::path(put, path = "/v1/classes/{*class}", tag = "leases",
    params(("class" = String, Path, description = "The name of the class.")),
    request_body = v1::Class, responses((status = 200, description = "Set.", body = v1::SetClassReply), NotDone))]
pub(super) async fn set_class(
    door: HttpDoor,
    Named(name): Named,
    Body(body): Body<v1::Class>,
) -> Answer<v1::SetClassReply> {
    if !body.name.is_empty() && body.name != name {
        return Err(Problem::from(BadRequest::Both("two names of one class")));
    }
    ordered!(door, SetClass(v1::SetClassRequest { class: Some(v1::Class { name, ..body }) }))
}
