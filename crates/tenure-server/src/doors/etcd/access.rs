//! Who may make which call of the dialect, and how a no is said to etcd's clients. An API key is a token, or the password
//! that one is asked for with.

use super::{EtcdDoor, gateway};
use crate::access::Need;
use crate::metrics::Door;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use tenure_api::Code;
use tenure_api::etcd::Fault;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::v1::Failure;

/// The packages of the dialect.
const PACKAGES: [&str; 3] = ["/etcdserverpb.", "/v3lockpb.", "/v3electionpb."];

/// Calls that change nothing. A transaction may.
const READS: [&str; 10] = [
    "KV/Range",
    "Watch/Watch",
    "Lease/LeaseTimeToLive",
    "Lease/LeaseLeases",
    "Cluster/MemberList",
    "Maintenance/Status",
    "Maintenance/HashKV",
    "Auth/AuthStatus",
    "Election/Leader",
    "Election/Observe",
];

/// The call by which a token is asked for.
const AUTHENTICATE: &str = "Auth/Authenticate";

/// The call of a path, if it is one of this dialect.
fn call(door: Door, path: &str) -> Option<String> {
    match door {
        Door::Http => gateway::call(path).map(ToOwned::to_owned),
        _ => PACKAGES.iter().find_map(|package| path.strip_prefix(package)).map(ToOwned::to_owned),
    }
}

pub(crate) fn is_etcd(door: Door, path: &str) -> bool {
    call(door, path).is_some() || door == Door::Http && gateway::is_open(path)
}

/// What a call needs of whoever makes it.
pub(crate) fn need(door: Door, path: &str) -> Need {
    match call(door, path) {
        None => Need::Nothing,
        Some(call) if call == AUTHENTICATE => Need::Nothing,
        Some(call) if READS.contains(&call.as_str()) => Need::Read,
        Some(_) => Need::Full,
    }
}

/// The token that is shown: etcd's clients say it without a scheme.
pub(crate) fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut said = headers.get_all("token").iter().chain(headers.get_all(header::AUTHORIZATION));
    let first = said.next()?.as_bytes();
    let is_one = said.next().is_none();
    let bearer = first.split_at_checked("Bearer ".len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    is_one.then_some(bearer.map_or(first, |(_, secret)| secret))
}

/// How a no is said to etcd's clients.
pub(crate) fn refusal(door: Door, headers: &HeaderMap, failure: &Failure) -> Response {
    let fault = match failure.code.as_str() {
        code if code == Code::Denied.text() => Fault::denied(),
        _ if token(headers).is_none() => Fault::no_user(),
        _ => Fault::bad_token(),
    };
    match door {
        Door::Http => gateway::problem(&fault),
        _ => fault.status().into_http::<Body>(),
    }
}

impl EtcdDoor {
    /// Whether whoever asks is asked for a key.
    pub(super) fn auth_status(&self) -> pb::AuthStatusResponse {
        let header = Some(self.desk.header_now());
        pb::AuthStatusResponse { header, enabled: self.access.is_asked_for(), auth_revision: 1 }
    }

    /// The password is an API key, and so is the token. Nothing is kept: a token is good for as long as the key is.
    pub(super) fn authenticate(&self, asked: &pb::AuthenticateRequest) -> Result<pb::AuthenticateResponse, Fault> {
        if !self.access.is_asked_for() {
            return Err(Fault::auth_not_enabled());
        }
        if !self.access.belongs_to(&asked.name, asked.password.as_bytes()) {
            return Err(Fault::auth_failed());
        }
        Ok(pb::AuthenticateResponse { header: Some(self.desk.header_now()), token: asked.password.clone() })
    }
}
