//! Resources over HTTP.

use super::body::{Asked, Body, Fresh, Named};
use super::problem::{NotDone, NotRead};
use super::{Answer, HttpDoor};
use axum::Json;
use serde::Deserialize;
use tenure_api::v1;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhichResources {
    /// Only names that start so.
    prefix: String,
    /// Only what this holder holds.
    holder: String,
    /// Only those that somebody holds.
    held: bool,
    /// Only those whose capacity is defined by an order.
    defined: bool,
    /// At most so many; 0 is 1,000, and more than 10,000 is 10,000.
    #[param(value_type = u64, maximum = 4_294_967_295_u32)]
    limit: u32,
    /// The `next` of the page before.
    from: String,
    /// From this node's own copy, without asking whether it is the newest.
    stale: bool,
}

/// Lists who holds what, page by page.
#[utoipa::path(get, path = "/v1/resources", tag = "resources", params(WhichResources), responses(
    (status = 200, description = "A page of resources.", body = v1::ListResourcesReply),
    NotRead,
))]
pub(super) async fn list(door: HttpDoor, Asked(asked): Asked<WhichResources>) -> Answer<v1::ListResourcesReply> {
    let WhichResources { prefix, holder, held, defined, limit, from, stale } = asked;
    let request = v1::ListResourcesRequest { prefix, limit, from, stale, holder, defined, held };
    Ok(Json(door.desk.list_resources(&request).await?))
}

/// Shows one resource in full: who holds it, who waits, who had it, and what stands in the way of the first in line.
#[utoipa::path(get, path = "/v1/resources/{*name}", tag = "resources",
    params(("name" = String, Path, description = "Its name, with slashes as they are or as %2F."), Fresh),
    responses((status = 200, description = "The resource.", body = v1::ShowReply), NotRead))]
pub(super) async fn show(door: HttpDoor, Named(resource): Named, Asked(fresh): Asked<Fresh>) -> Answer<v1::ShowReply> {
    Ok(Json(door.desk.show(&v1::ShowRequest { resource, stale: fresh.stale }).await?))
}

/// How many units a resource has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DefineBody {
    /// From 1 to 1,000,000,000.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    capacity: u64,
}

/// Says how many units a resource has.
#[utoipa::path(put, path = "/v1/resources/{*name}", tag = "resources",
    params(("name" = String, Path, description = "Its name, with slashes as they are or as %2F.")),
    request_body = DefineBody,
    responses((status = 200, description = "Defined.", body = v1::DefineResourceReply), NotDone))]
pub(super) async fn define(
    door: HttpDoor,
    Named(resource): Named,
    Body(body): Body<DefineBody>,
) -> Answer<v1::DefineResourceReply> {
    ordered!(door, DefineResource(v1::DefineResourceRequest { resource, capacity: Some(body.capacity) }))
}

/// Takes the definition of a resource back.
#[utoipa::path(delete, path = "/v1/resources/{*name}", tag = "resources",
    params(("name" = String, Path, description = "Its name, with slashes as they are or as %2F.")),
    responses((status = 200, description = "Taken back.", body = v1::DefineResourceReply), NotDone))]
pub(super) async fn forget(door: HttpDoor, Named(resource): Named) -> Answer<v1::DefineResourceReply> {
    ordered!(door, DefineResource(v1::DefineResourceRequest { resource, capacity: None }))
}
