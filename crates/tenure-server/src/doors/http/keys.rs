//! Keys over HTTP. A key in a path is bytes, percent-encoded; in JSON it is text, or hex if it is not.

use super::body::{Asked, Body, Fresh, Keyed, bad_query};
use super::problem::{NotDone, NotRead, Problem};
use super::{Answer, HttpDoor};
use axum::Json;
use serde::Deserialize;
use tenure_api::json::{Bytes, Id, unhex};
use tenure_api::v1::delete_request::Which;
use tenure_api::{BadRequest, Code, failure, read_key, v1};
use tenure_core::Refusal;
use utoipa::{IntoParams, ToSchema};

/// What stands before a key in a path.
pub(super) const PATH: &str = "/v1/keys/";

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhichKeys {
    /// Only keys that start so.
    prefix: String,
    /// Leave the values out.
    keys_only: bool,
    /// At most so many; 0 is 1,000, and more than 10,000 is 10,000. A page ends after about 1 MiB, too.
    #[param(value_type = u64, maximum = 4_294_967_295_u32)]
    limit: u32,
    /// The `next` of the page before.
    from: String,
    /// From this node's own copy, without asking whether it is the newest.
    stale: bool,
}

/// Lists keys, page by page.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(WhichKeys), responses(
    (status = 200, description = "A page of keys.", body = v1::ListKeysReply),
    NotRead,
))]
pub(super) async fn list(door: HttpDoor, Asked(asked): Asked<WhichKeys>) -> Answer<v1::ListKeysReply> {
    let request = v1::ListKeysRequest {
        prefix: asked.prefix.into(),
        limit: asked.limit,
        from: unhex(&asked.from).ok_or(BadRequest::From)?,
        stale: asked.stale,
        keys_only: asked.keys_only,
    };
    Ok(Json(door.desk.list_keys(&request).await?))
}

/// Reads a key.
#[utoipa::path(get, path = "/v1/keys/{*key}", tag = "keys",
    params(("key" = String, Path, description = "The key, percent-encoded; slashes may stay."), Fresh),
    responses((status = 200, description = "The key.", body = v1::GetKeyReply), NotRead))]
pub(super) async fn get(door: HttpDoor, Keyed(key): Keyed, Asked(fresh): Asked<Fresh>) -> Answer<v1::GetKeyReply> {
    let request = v1::GetKeyRequest { key, stale: fresh.stale };
    let reply = door.desk.get_key(&request).await?;
    match reply.item {
        Some(_) => Ok(Json(reply)),
        None => Err(failure(&Refusal::NoKey { key: read_key(&request.key)? }).into()),
    }
}

/// A value, the lease that the key hangs on, or both.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"value": "10.0.0.7:8080", "lease": "6b1f0c9d2e5a7348"}))]
pub(super) struct PutBody {
    /// Absent: it keeps the value that it has.
    value: Option<Bytes>,
    /// The lease that it hangs on from now on; absent: none.
    lease: Option<Id>,
    /// It stays on the lease that it hangs on.
    keep_lease: bool,
}

/// Writes a key, or attaches it to a lease, or detaches it.
#[utoipa::path(put, path = "/v1/keys/{*key}", tag = "keys",
    params(("key" = String, Path, description = "The key, percent-encoded; slashes may stay.")),
    request_body = PutBody, responses((status = 200, description = "Written.", body = v1::PutReply), NotDone))]
pub(super) async fn put(door: HttpDoor, Keyed(key): Keyed, Body(body): Body<PutBody>) -> Answer<v1::PutReply> {
    let not_hex = || Problem::new(Code::BadJson, "`hex` is not two hexadecimal digits a byte; nothing was changed");
    let value = body.value.map(|value| value.into_vec().ok_or_else(not_hex)).transpose()?;
    let lease = body.lease.map_or(0, |id| id.0);
    ordered!(door, Put(v1::PutRequest { key, value, lease, keep_lease: body.keep_lease }))
}

/// Removes a key.
#[utoipa::path(delete, path = "/v1/keys/{*key}", tag = "keys",
    params(("key" = String, Path, description = "The key, percent-encoded; slashes may stay.")),
    responses((status = 200, description = "Removed, if it was there.", body = v1::DeleteReply), NotDone))]
pub(super) async fn delete(door: HttpDoor, Keyed(key): Keyed) -> Answer<v1::DeleteReply> {
    ordered!(door, Delete(v1::DeleteRequest { which: Some(Which::Key(key)) }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Under {
    /// All that start so; not empty.
    prefix: String,
}

/// Removes keys.
#[utoipa::path(delete, path = "/v1/keys", tag = "keys", params(Under), responses(
    (status = 200, description = "So many were removed.", body = v1::DeleteReply),
    NotDone,
))]
pub(super) async fn delete_under(door: HttpDoor, Asked(asked): Asked<Under>) -> Answer<v1::DeleteReply> {
    if asked.prefix.is_empty() {
        // Everything at once is never what somebody meant who forgot to say what.
        return Err(bad_query("an empty prefix would remove every key"));
    }
    ordered!(door, Delete(v1::DeleteRequest { which: Some(Which::Prefix(asked.prefix.into())) }))
}
