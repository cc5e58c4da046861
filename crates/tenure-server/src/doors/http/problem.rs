//! The no as `application/problem+json`: a stable code, a sentence, and every fact that gRPC's failure carries.

use super::count::Refused;
use crate::unready::Unready;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use std::collections::BTreeMap;
use tenure_api::v1::Failure;
use tenure_api::{BadRequest, Code, code_of};
use utoipa::openapi::{Content, RefOr, Response as Documented, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// Why the answer is no: `code` is stable, `detail` is for people, and the other fields carry the facts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// What kind of no it is, in two or three words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What failed, why, and whether anything was changed.
    detail: String,
    #[serde(flatten)]
    facts: Box<Failure>,
}

impl Problem {
    /// A refusal that only this door can make.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Failure { code: code.text().into(), message: detail.into(), ..Failure::default() }.into()
    }
}

impl From<Failure> for Problem {
    fn from(mut failure: Failure) -> Self {
        let status = code_of(&failure).map_or(500, Code::http);
        let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let detail = std::mem::take(&mut failure.message);
        Self { title: title.unwrap_or("Refused"), status, detail, facts: Box::new(failure) }
    }
}

impl From<BadRequest> for Problem {
    fn from(bad: BadRequest) -> Self {
        bad.failure().into()
    }
}

impl From<Unready> for Problem {
    fn from(unready: Unready) -> Self {
        super::super::unready(&unready).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.facts.retry_after_ms > 0 {
            headers.insert(header::RETRY_AFTER, self.facts.retry_after_ms.div_ceil(1000).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let refused = Refused(self.facts.code.clone());
        (status, headers, Extension(refused), Json(self)).into_response()
    }
}

/// Statuses that any call may answer with.
const ANY: &[u16] = &[400, 401, 403, 404, 405, 421, 429, 503, 504];

/// The statuses of reads that are not what was asked for.
pub(super) struct NotRead;

/// The statuses of writes that were not done.
pub(super) struct NotDone;

impl IntoResponses for NotRead {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        documented(&[409, 410, 412])
    }
}

impl IntoResponses for NotDone {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        documented(&[408, 409, 410, 412, 413, 415, 507])
    }
}

fn documented(more: &[u16]) -> BTreeMap<String, RefOr<Documented>> {
    let describe = |status: &u16| {
        let codes = Code::ALL.iter().filter(|code| code.http() == *status).map(|code| format!("`{}`", code.text()));
        let schema = utoipa::openapi::Ref::from_schema_name("Problem");
        let response = ResponseBuilder::new()
            .description(codes.collect::<Vec<_>>().join(", "))
            .content("application/problem+json", Content::new(Some(schema)));
        (status.to_string(), response.build().into())
    };
    ANY.iter().chain(more).map(describe).collect()
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(Code::NoSuchPath, format!("there is nothing at {}; see /openapi.json", uri.path()))
}

pub(super) async fn no_such_method() -> Problem {
    Problem::new(
        Code::NoSuchMethod,
        "this address does not answer to this method; nothing was changed; see /openapi.json",
    )
}
