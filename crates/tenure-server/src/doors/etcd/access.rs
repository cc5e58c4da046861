//! Who may make which call of the dialect, and how a no is said to etcd's clients. An API key is a token, or the password
//! that one is asked for with.

use super::{EtcdDesk, EtcdDoor, gateway};
use crate::access::{Caller, Rule, of_etcd};
use crate::limits::ETCD_MESSAGE_BYTES_MAX;
use crate::metrics::Door;
use axum::body::Body;
use axum::http::{Extensions, HeaderMap, header};
use axum::response::Response;
use std::net::IpAddr;
use tenure_api::Code;
use tenure_api::etcd::Fault;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::v1::Failure;
use tonic::Status;

/// The packages of the dialect.
const PACKAGES: [&str; 3] = ["/etcdserverpb.", "/v3lockpb.", "/v3electionpb."];

/// How the library that reads messages begins to refuse one that is too large; the bytes of it follow.
const TOO_LARGE: &str = "Error, decoded message length too large: found ";

/// The refusal of calls about users and roles.
pub(super) const NO_USERS: &str = "there are no users and roles here. Clients authenticate with API keys: `tenure cluster keygen \
     NAME` makes one, `tenure serve --api-keys FILE` lets it in, and `--user NAME:KEY` shows it. Nothing was changed";

/// The call of a path, if it is one of this dialect.
fn call(door: Door, path: &str) -> Option<&str> {
    match door {
        Door::Http => gateway::call(path),
        _ => PACKAGES.iter().find_map(|package| path.strip_prefix(package)),
    }
}

pub(crate) fn is_etcd(door: Door, path: &str) -> bool {
    call(door, path).is_some() || door == Door::Http && gateway::is_open(path)
}

/// What a call needs of whoever makes it.
pub(crate) fn rule(door: Door, path: &str) -> Rule {
    call(door, path).map_or(Rule::OPEN, of_etcd)
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
        code if code == Code::Overloaded.text() => Fault::too_many_requests(),
        code if code == Code::TooMany.text() => {
            Fault::ours(tonic::Code::ResourceExhausted, format!("tenure: {}", failure.message))
        }
        _ if token(headers).is_none() => Fault::no_user(),
        _ => Fault::bad_token(),
    };
    match door {
        Door::Http => gateway::problem(&fault),
        _ => fault.status().into_http::<Body>(),
    }
}

/// What is too large to be read at all is refused before this door is reached; it is said here as etcd says it.
pub(crate) fn in_words_of_etcd(response: Response) -> Response {
    let refused = Status::from_header_map(response.headers());
    refused.and_then(|status| too_large(&status)).map_or(response, |status| status.into_http::<Body>())
}

/// The same of a message of a stream, whose other faults are said as they are.
pub(super) fn of_stream(status: Status) -> Status {
    too_large(&status).unwrap_or(status)
}

fn too_large(status: &Status) -> Option<Status> {
    let found = status.message().strip_prefix(TOO_LARGE).filter(|_| status.code() == tonic::Code::OutOfRange);
    let bytes = found?.split(' ').next()?;
    let text = format!("grpc: received message larger than max ({bytes} vs. {ETCD_MESSAGE_BYTES_MAX})");
    Some(Status::resource_exhausted(text))
}

/// An address, as it stands before a port.
fn address(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

impl EtcdDoor {
    /// The desk for the caller.
    pub(super) fn desk_of<T>(&self, request: &tonic::Request<T>) -> EtcdDesk {
        self.desk_for(request.extensions())
    }

    /// The desk for who was let in with these: the name of an API key says more than an address.
    pub(super) fn desk_for(&self, extensions: &Extensions) -> EtcdDesk {
        let caller = Caller::of(extensions);
        let key = caller.key_name().map(ToString::to_string);
        let who = key.or_else(|| caller.address().map(address)).unwrap_or_default();
        self.desk.on_behalf_of(&who, caller)
    }

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
        if self.access.name_of(asked.password.as_bytes()).as_ref() != Some(&asked.name) {
            return Err(Fault::auth_failed());
        }
        Ok(pb::AuthenticateResponse { header: Some(self.desk.header_now()), token: asked.password.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Need;
    use axum::http::HeaderValue;

    #[test]
    fn what_is_too_large_to_be_read_is_refused_as_etcd_refuses_it() {
        let text = format!("{TOO_LARGE}3200385 bytes, the limit is: {ETCD_MESSAGE_BYTES_MAX} bytes");
        let said = |status: Status| {
            let response = in_words_of_etcd(status.into_http::<Body>());
            let status = Status::from_header_map(response.headers()).unwrap();
            (status.code(), status.message().to_owned())
        };
        let (code, text) = said(Status::out_of_range(text));
        assert_eq!(code, tonic::Code::ResourceExhausted);
        assert_eq!(text, "grpc: received message larger than max (3200385 vs. 2097152)");
        let compacted = Fault::compacted();
        assert_eq!(said(compacted.status()), (compacted.code, compacted.text), "other words stay");
    }

    #[test]
    fn as_json_a_call_needs_what_it_needs_over_grpc() {
        for (path, expected) in [
            ("/v3/kv/range", Need::Read),
            ("/v3/kv/put", Need::Hold),
            ("/v3/kv/txn", Need::Hold),
            ("/v3/watch", Need::Read),
            ("/v3/maintenance/snapshot", Need::Full),
            ("/v3/auth/authenticate", Need::Nothing),
            ("/version", Need::Nothing),
        ] {
            assert!(is_etcd(Door::Http, path), "{path}");
            assert_eq!(rule(Door::Http, path).need, expected, "{path}");
        }
        for path in ["/v3/kv/range/", "/v3", "/v1/keys", "/metrics"] {
            assert!(!is_etcd(Door::Http, path), "{path} is somebody else's");
        }
    }

    #[test]
    fn one_token_is_shown_or_none() {
        let shown = |said: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in said {
                headers.append(*name, HeaderValue::from_static(value));
            }
            token(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(shown(&[("token", "tnr_a")]), Some(b"tnr_a".to_vec()));
        assert_eq!(shown(&[("authorization", "tnr_a")]), Some(b"tnr_a".to_vec()));
        assert_eq!(shown(&[("authorization", "Bearer tnr_a")]), Some(b"tnr_a".to_vec()));
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[("token", "tnr_a"), ("authorization", "tnr_b")]), None);
    }
}
