//! The members of the cluster over HTTP.

use super::body::{Body, Named};
use super::problem::{NotDone, NotRead, Problem};
use super::{Answer, HttpDoor};
use axum::Json;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Deserialize;
use tenure_api::{Code, v1};
use utoipa::ToSchema;

/// Lists the members of the cluster, as far as the asked node knows them.
#[utoipa::path(get, path = "/v1/cluster/members", tag = "cluster", responses(
    (status = 200, description = "The members.", body = v1::MembersReply),
    NotRead,
))]
pub(super) async fn members(door: HttpDoor) -> Json<v1::MembersReply> {
    Json(door.desk.members())
}

/// Lets a node that waits for it join the cluster. It votes once it has caught up.
#[utoipa::path(post, path = "/v1/cluster/members", tag = "cluster", request_body = v1::AddMemberRequest,
    responses((status = 200, description = "It votes.", body = v1::MembersReply), NotDone))]
pub(super) async fn add(door: HttpDoor, Body(request): Body<v1::AddMemberRequest>) -> Answer<v1::MembersReply> {
    Ok(Json(door.desk.add_member(&request).await?))
}

/// Takes a node out of the cluster. It never comes back as its old self.
#[utoipa::path(delete, path = "/v1/cluster/members/{node}", tag = "cluster",
    params(("node" = u64, Path, description = "Its number.", minimum = 1)),
    responses((status = 200, description = "It is out.", body = v1::MembersReply), NotDone))]
pub(super) async fn remove(door: HttpDoor, Named(node): Named) -> Answer<v1::MembersReply> {
    let no_member = || Problem::new(Code::NotChanged, format!("{node:?} is no number of a node; nothing was changed"));
    let node = node.parse().map_err(|_| no_member())?;
    Ok(Json(door.desk.remove_member(node).await?))
}

/// Hands the lead to another voter.
#[utoipa::path(post, path = "/v1/cluster/leader", tag = "cluster", request_body = v1::TransferLeadRequest,
    responses((status = 200, description = "It leads.", body = v1::MembersReply), NotDone))]
pub(super) async fn transfer(door: HttpDoor, Body(request): Body<v1::TransferLeadRequest>) -> Answer<v1::MembersReply> {
    Ok(Json(door.desk.transfer_lead(request.node).await?))
}

/// There is nothing to say.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Takes a backup: a file, complete and checksummed, of everything that was acknowledged before the call.
#[utoipa::path(post, path = "/v1/cluster/backup", tag = "cluster", request_body = Nothing, responses(
    (status = 200, description = "The file.", body = Vec<u8>, content_type = "application/octet-stream"),
    NotDone,
))]
pub(super) async fn backup(door: HttpDoor, _: Body<Nothing>) -> Result<impl IntoResponse, Problem> {
    let backup = door.desk.backup().await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], backup))
}
