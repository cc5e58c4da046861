//! Reading requests: a body, the part after `?`, a name in the path. Each is read whole or refused as a problem.

use super::HttpDoor;
use super::problem::Problem;
use crate::limits::{BODY_PATIENCE, REQUEST_BYTES_MAX, RETRY_AFTER};
use crate::unready::Unready;
use axum::body::{Bytes as RawBytes, HttpBody};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenure_api::json::{Id, Object};
use tenure_api::{BadRequest, Code};
use tokio::time::timeout;
use utoipa::IntoParams;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<HttpDoor> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &HttpDoor) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "a write needs the header `content-type: application/json`; nothing was changed";
            return Err(Problem::new(Code::BadContentType, detail));
        }
        let bytes = read(request, door).await?;
        let read = serde_json::from_slice(&bytes);
        read.map(|Object(body)| Self(body))
            .map_err(|error| Problem::new(Code::BadJson, format!("{error}; nothing was changed")))
    }
}

/// Reads a body that is not too large, not for too long, and not beside too many others.
async fn read(request: Request, door: &HttpDoor) -> Result<RawBytes, Problem> {
    let size = request.body().size_hint();
    if size.lower() > REQUEST_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let bytes = size.upper().map_or(REQUEST_BYTES_MAX, |upper| usize::try_from(upper).unwrap_or(REQUEST_BYTES_MAX));
    let room = u32::try_from(bytes / 1024 + 1).expect("a body has its limit");
    let overloaded = |_| Problem::from(Unready::Overloaded { retry_after: RETRY_AFTER });
    let _room = door.bodies.try_acquire_many(room).map_err(overloaded)?;
    match timeout(BODY_PATIENCE, RawBytes::from_request(request, door)).await {
        Ok(read) => read.map_err(|rejection| unread(&rejection)),
        Err(_) => Err(Problem::new(Code::TooSlow, "the body did not come in time; nothing was changed")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn too_large() -> Problem {
    let detail = format!("a body has at most {REQUEST_BYTES_MAX} bytes; nothing was changed");
    Problem::new(Code::TooLarge, detail)
}

fn unread(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => Problem::new(Code::BadJson, format!("{}; nothing was changed", rejection.body_text())),
    }
}

/// The part of an address after `?`.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        is_text(parts.uri.query().unwrap_or_default())?;
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(asked)| Self(asked)).map_err(|rejection| bad_query(&rejection.body_text()))
    }
}

/// Whoever reads a query puts another letter where bytes are no text; this refuses them before.
pub(super) fn is_text(query: &str) -> Result<(), Problem> {
    let decoded = percent_encoding::percent_decode_str(query).decode_utf8();
    decoded.map(drop).map_err(|_| bad_query("what stands after `?` is not text in UTF-8"))
}

/// How new an answer has to be.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fresh {
    /// From this node's own copy, without asking whether it is the newest.
    pub(super) stale: bool,
}

pub(super) fn bad_query(why: &str) -> Problem {
    Problem::new(Code::BadQuery, format!("{why}; nothing was changed"))
}

/// The last part of a path: a name, which may have slashes.
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::<String>::from_request_parts(parts, state).await;
        read.map(|Path(name)| Self(name))
            .map_err(|rejection| Problem::new(Code::BadName, format!("{}; nothing was changed", rejection.body_text())))
    }
}

/// A lease id as a part of a path.
pub(super) struct Leased(pub(super) u64);

impl<S: Send + Sync> FromRequestParts<S> for Leased {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Named(text) = Named::from_request_parts(parts, state).await?;
        read_id(&text).map(Self)
    }
}

/// The number of a lease.
pub(super) fn read_id(text: &str) -> Result<u64, Problem> {
    let detail = "a lease id is 1 to 16 hexadecimal digits, not 0; nothing was changed";
    Id::parse(text).map(|id| id.0).ok_or_else(|| Problem::new(Code::BadLease, detail))
}

/// Where a list goes on, if it says so: a lease.
pub(super) fn read_from(text: &str) -> Result<u64, Problem> {
    if text.is_empty() { Ok(0) } else { Id::parse(text).map(|id| id.0).ok_or_else(|| BadRequest::From.into()) }
}

/// The last part of a path as bytes: a key.
pub(super) struct Keyed(pub(super) Vec<u8>);

impl<S: Send + Sync> FromRequestParts<S> for Keyed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let key = parts.uri.path().strip_prefix(super::keys::PATH).unwrap_or_default();
        Ok(Self(percent_encoding::percent_decode_str(key).collect()))
    }
}
