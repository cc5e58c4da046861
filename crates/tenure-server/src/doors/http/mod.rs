//! The native HTTP/JSON door: `/v1/` for people with curl and for programs without gRPC, its description at
//! `/openapi.json`, and the probes. Each request becomes the message that gRPC would have carried, so that both doors
//! refuse and answer alike.

#![allow(unused_qualifications, reason = "what describes a call names its own types in full")]

/// Turns a message into an order and its answer into the JSON of that call.
macro_rules! ordered {
    ($door:ident, $kind:ident($message:expr)) => {
        ordered!($door, $kind($message) => $kind)
    };
    ($door:ident, $kind:ident($message:expr) => $answer:ident) => {
        match $door.desk.order(tenure_api::v1::request::Body::$kind($message)).await? {
            tenure_api::v1::response::Body::$answer(reply) => Ok(axum::Json(reply)),
            other => unreachable!("a command is answered by a reply of its own kind, not {other:?}"),
        }
    };
}

mod body;
mod claims;
mod cluster;
mod count;
mod discover;
mod events;
mod guard;
mod instances;
mod keys;
mod leases;
mod poll;
mod problem;
mod prometheus;
mod resources;

use super::desk::Desk;
use super::etcd::{EtcdDoor, gateway};
use crate::access::Caller;
use crate::limits::REQUEST_BYTES_MAX;
use crate::node::Node;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use problem::{NotRead, Problem};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::v1;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use guard::Guard;

type Answer<T> = Result<Json<T>, Problem>;

/// What every call needs.
#[derive(Clone)]
struct HttpDoor {
    desk: Desk,
    stop: Stop,
    /// Room for bodies that are being read, in KiB.
    bodies: Arc<Semaphore>,
}

/// Each request has a door of its own, for the caller that was let in with it.
impl FromRequestParts<Self> for HttpDoor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, door: &Self) -> Result<Self, Infallible> {
        Ok(Self { desk: door.desk.of(Caller::of(&parts.extensions)), ..door.clone() })
    }
}

/// Says when the server stops, so that nobody is kept waiting for it.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn new(end: watch::Receiver<bool>) -> Self {
        Self(end)
    }

    /// Returns when the server stops.
    async fn comes(&self) {
        let mut end = self.0.clone();
        // Whoever would have said it is gone: that is a stop, too.
        let _ = end.wait_for(|stops| *stops).await;
    }
}

/// A no that is said before this door is reached.
pub(super) fn refused(failure: v1::Failure) -> Response {
    Problem::from(failure).into_response()
}

/// Returns after so long; without a time, never.
async fn after_ms(ms: Option<u64>) {
    match ms {
        Some(ms) => sleep(Duration::from_millis(ms)).await,
        None => pending().await,
    }
}

/// The description of this door, but for its calls.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tenure",
        description = "Ownership that is bound to time and ends by itself. Times are milliseconds. Lease ids are \
            hexadecimal text. A field that says nothing is left out of an answer, an unknown field is refused in a \
            request. Every no is `application/problem+json` with a stable `code`. Where the server has API keys, each \
            call needs one: `Authorization: Bearer SECRET`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Problem))
)]
struct Described;

/// All calls, with their descriptions.
fn described() -> OpenApiRouter<HttpDoor> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(claims::acquire))
        .routes(routes!(claims::renew))
        .routes(routes!(claims::release))
        .routes(routes!(claims::cancel))
        .routes(routes!(claims::break_claims))
        .routes(routes!(claims::transfer))
        .routes(routes!(claims::verify))
        .routes(routes!(resources::list))
        .routes(routes!(resources::show, resources::define, resources::forget))
        .routes(routes!(leases::list, leases::grant))
        .routes(routes!(leases::renew))
        .routes(routes!(leases::show, leases::release))
        .routes(routes!(leases::revoke))
        .routes(routes!(leases::classes))
        .routes(routes!(leases::set_class))
        .routes(routes!(keys::list, keys::delete_under))
        .routes(routes!(keys::get, keys::put, keys::delete))
        .routes(routes!(events::history))
        .routes(routes!(events::watch))
        .routes(routes!(discover::discover))
        .routes(routes!(discover::services))
        .routes(routes!(discover::watch))
        .routes(routes!(prometheus::targets))
        .routes(routes!(instances::show, instances::register, instances::update, instances::deregister))
        .routes(routes!(instances::heartbeat))
        .routes(routes!(instances::set_health))
        .routes(routes!(instances::drain, instances::undrain))
        .routes(routes!(cluster::members, cluster::add))
        .routes(routes!(cluster::remove))
        .routes(routes!(cluster::transfer))
        .routes(routes!(cluster::backup))
        .routes(routes!(status))
}

/// All paths of this door.
pub(crate) fn router(node: Node, dialect: EtcdDoor, guard: Guard, stop: Stop, bodies: Arc<Semaphore>) -> Router {
    let (calls, description) = described().split_for_parts();
    // A name may have slashes: the router calls such a part of a path `{*name}`, a description knows only `{name}`.
    let description = description.to_json().expect("a description has only text keys").replace("{*", "{");
    let door = HttpDoor { desk: Desk::new(node), stop, bodies };
    let guarded = calls
        .route("/openapi.json", get(move || describe(description.clone())))
        .route("/metrics", get(metrics))
        .merge(gateway::router(dialect))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(middleware::from_fn_with_state(door.clone(), count::count));
    let probes = Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready));
    guarded.merge(probes).with_state(door)
}

async fn describe(description: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], description)
}

/// What the node measures about itself.
async fn metrics(door: HttpDoor) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], door.desk.node().metrics_text())
}

/// Who answers, whether it is ready, and what it has done.
#[utoipa::path(get, path = "/v1/status", tag = "server", responses(
    (status = 200, description = "How the node is doing.", body = v1::StatusReply),
    NotRead,
))]
async fn status(door: HttpDoor) -> Json<v1::StatusReply> {
    Json(door.desk.status())
}

/// The process runs.
async fn healthy() -> &'static str {
    "ok\n"
}

/// This node can be asked: it leads, or knows who does.
async fn ready(door: HttpDoor) -> (StatusCode, &'static str) {
    if door.desk.node().is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no node leads at the moment\n")
    }
}
