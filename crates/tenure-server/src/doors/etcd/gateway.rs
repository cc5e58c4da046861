//! The dialect as JSON: each call at its path, in the way of etcd's gateway. What is said is what gRPC would have carried,
//! written by the rules of proto3: 64-bit numbers are text, bytes are base64, zeros are left out.

use super::json_values::JsonValues;
use super::{EtcdDoor, Replies, about, access};
use crate::limits::{BODY_PATIENCE, ETCD_MESSAGE_BYTES_MAX, LEADER_PATIENCE};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use std::sync::LazyLock;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::v3electionpb as election;
use tenure_api::etcd::v3lockpb as lock;
use tenure_api::etcd::{DESCRIPTORS, Fault};
use tokio::time::timeout;
use tonic::{Code, Status};

/// Each path with its call. Some have two, from an older version.
const PATHS: [(&str, &str); 32] = [
    ("/v3/kv/range", "KV/Range"),
    ("/v3/kv/put", "KV/Put"),
    ("/v3/kv/deleterange", "KV/DeleteRange"),
    ("/v3/kv/txn", "KV/Txn"),
    ("/v3/kv/compaction", "KV/Compact"),
    ("/v3/watch", "Watch/Watch"),
    ("/v3/lease/grant", "Lease/LeaseGrant"),
    ("/v3/lease/revoke", "Lease/LeaseRevoke"),
    ("/v3/kv/lease/revoke", "Lease/LeaseRevoke"),
    ("/v3/lease/keepalive", "Lease/LeaseKeepAlive"),
    ("/v3/lease/timetolive", "Lease/LeaseTimeToLive"),
    ("/v3/kv/lease/timetolive", "Lease/LeaseTimeToLive"),
    ("/v3/lease/leases", "Lease/LeaseLeases"),
    ("/v3/kv/lease/leases", "Lease/LeaseLeases"),
    ("/v3/lock/lock", "Lock/Lock"),
    ("/v3/lock/unlock", "Lock/Unlock"),
    ("/v3/election/campaign", "Election/Campaign"),
    ("/v3/election/proclaim", "Election/Proclaim"),
    ("/v3/election/leader", "Election/Leader"),
    ("/v3/election/observe", "Election/Observe"),
    ("/v3/election/resign", "Election/Resign"),
    ("/v3/auth/authenticate", "Auth/Authenticate"),
    ("/v3/auth/status", "Auth/AuthStatus"),
    ("/v3/cluster/member/list", "Cluster/MemberList"),
    ("/v3/maintenance/status", "Maintenance/Status"),
    ("/v3/maintenance/alarm", "Maintenance/Alarm"),
    ("/v3/maintenance/hash", "Maintenance/Hash"),
    ("/v3/maintenance/hashkv", "Maintenance/HashKV"),
    ("/v3/maintenance/defragment", "Maintenance/Defragment"),
    ("/v3/maintenance/snapshot", "Maintenance/Snapshot"),
    ("/v3/maintenance/transfer-leadership", "Maintenance/MoveLeader"),
    ("/v3/auth/enable", "Auth/AuthEnable"),
];

/// What can be asked without a key: whether this is an etcd, and whether it is well.
const OPEN: [&str; 2] = ["/version", "/health"];

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("the description of the calls was built with them"));

/// The call at a path.
pub(super) fn call(path: &str) -> Option<&'static str> {
    PATHS.iter().find(|(known, _)| *known == path).map(|(_, call)| *call)
}

pub(super) fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
}

/// All paths.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(door: EtcdDoor) -> Router<S> {
    let call = || post(answer).fallback(no_such_method);
    let calls = PATHS.iter().fold(Router::new(), |router, (path, _)| router.route(path, call()));
    let calls = calls.route("/v3/{*path}", any(no_such_path));
    calls.route("/version", get(version)).route("/health", get(health)).with_state(door)
}

async fn version() -> Response {
    axum::Json(json!({ "etcdserver": about::VERSION, "etcdcluster": "3.5.0" })).into_response()
}

async fn no_such_path() -> Response {
    (StatusCode::NOT_FOUND, axum::Json(json!({ "code": 5, "message": "Not Found" }))).into_response()
}

async fn no_such_method() -> Response {
    (StatusCode::NOT_IMPLEMENTED, axum::Json(json!({ "code": 12, "message": "Method Not Allowed" }))).into_response()
}

/// As etcd says it: healthy with a leader that a majority follows.
async fn health(State(door): State<EtcdDoor>) -> Response {
    match timeout(LEADER_PATIENCE, door.desk.led()).await {
        Ok(()) => r#"{"health":"true","reason":""}"#.into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, r#"{"health":"false","reason":"RAFT NO LEADER"}"#).into_response(),
    }
}

async fn answer(State(door): State<EtcdDoor>, request: Request) -> Response {
    let desk = door.desk_for(request.extensions());
    let door = EtcdDoor { desk, ..door };
    let path = request.uri().path().to_owned();
    match call(&path).unwrap_or_default() {
        "Watch/Watch" => {
            let asked = values(request.into_body(), "etcdserverpb.WatchRequest");
            streamed(door.desk.watch(asked, None), "etcdserverpb.WatchResponse")
        }
        "Lease/LeaseKeepAlive" => {
            let asked = values(request.into_body(), "etcdserverpb.LeaseKeepAliveRequest");
            streamed(door.desk.keep_alives(asked.boxed()), "etcdserverpb.LeaseKeepAliveResponse")
        }
        call => match read(request.into_body()).await {
            Ok(body) => said(&door, call, &body).await.unwrap_or_else(|fault| problem(&fault)),
            Err(fault) => problem(&fault),
        },
    }
}

async fn read(body: Body) -> Result<Bytes, Fault> {
    let read = timeout(BODY_PATIENCE, to_bytes(body, ETCD_MESSAGE_BYTES_MAX)).await;
    read.map_err(|_| Fault::timed_out())?.map_err(|_| Fault::too_large())
}

/// Answers one call that is not a stream of requests.
async fn said(door: &EtcdDoor, call: &str, body: &[u8]) -> Result<Response, Fault> {
    let desk = &door.desk;
    macro_rules! unary {
        ($package:ident :: $request:ident, |$asked:ident| $answer:expr) => {{
            let $asked: $package::$request = message(package_of(stringify!($package)), stringify!($request), body)?;
            let reply = $answer?;
            let name = stringify!($request).replace("Request", "Response");
            Ok(axum::Json(told(package_of(stringify!($package)), &name, &reply)).into_response())
        }};
    }
    match call {
        "KV/Range" => unary!(pb::RangeRequest, |asked| desk.range(&asked).await),
        "KV/Put" => unary!(pb::PutRequest, |asked| desk.put_key(asked).await),
        "KV/DeleteRange" => unary!(pb::DeleteRangeRequest, |asked| desk.delete_range(asked).await),
        "KV/Txn" => unary!(pb::TxnRequest, |asked| desk.transact(asked).await),
        "KV/Compact" => unary!(pb::CompactionRequest, |asked| desk.compaction(asked).await),
        "Lease/LeaseGrant" => unary!(pb::LeaseGrantRequest, |asked| desk.lease_grant(asked).await),
        "Lease/LeaseRevoke" => unary!(pb::LeaseRevokeRequest, |asked| desk.lease_revoke(asked).await),
        "Lease/LeaseTimeToLive" => unary!(pb::LeaseTimeToLiveRequest, |asked| desk.time_to_live(asked).await),
        "Lease/LeaseLeases" => unary!(pb::LeaseLeasesRequest, |_asked| desk.leases().await),
        "Lock/Lock" => unary!(lock::LockRequest, |asked| desk.lock(asked).await),
        "Lock/Unlock" => unary!(lock::UnlockRequest, |asked| desk.unlock(asked).await),
        "Election/Campaign" => unary!(election::CampaignRequest, |asked| desk.campaign(asked).await),
        "Election/Proclaim" => unary!(election::ProclaimRequest, |asked| desk.proclaim(asked).await),
        "Election/Leader" => unary!(election::LeaderRequest, |asked| desk.leader(&asked).await),
        "Election/Resign" => unary!(election::ResignRequest, |asked| desk.resign(asked).await),
        "Election/Observe" => {
            let asked: election::LeaderRequest = message("v3electionpb", "LeaderRequest", body)?;
            Ok(streamed(desk.observe(&asked)?, "v3electionpb.LeaderResponse"))
        }
        "Auth/Authenticate" => unary!(pb::AuthenticateRequest, |asked| door.authenticate(&asked)),
        "Auth/AuthStatus" => unary!(pb::AuthStatusRequest, |_asked| Ok::<_, Fault>(door.auth_status())),
        "Cluster/MemberList" => {
            unary!(pb::MemberListRequest, |_asked| Ok::<_, Fault>(desk.member_list(door.peer_scheme)))
        }
        "Maintenance/Status" => unary!(pb::StatusRequest, |_asked| Ok::<_, Fault>(desk.status())),
        "Maintenance/Alarm" => unary!(pb::AlarmRequest, |asked| desk.alarm(&asked)),
        "Maintenance/Hash" => unary!(pb::HashRequest, |_asked| desk.hash().await),
        "Maintenance/HashKV" => unary!(pb::HashKvRequest, |asked| desk.hash_kv(asked).await),
        "Maintenance/Defragment" => unary!(pb::DefragmentRequest, |_asked| Ok::<_, Fault>(desk.defragmented())),
        "Maintenance/MoveLeader" => unary!(pb::MoveLeaderRequest, |asked| desk.move_leader(asked).await),
        "Maintenance/Snapshot" => Err(about::no_snapshot()),
        "Auth/AuthEnable" => Err(Fault::ours(Code::Unimplemented, format!("tenure: {}", access::NO_USERS))),
        other => Err(Fault::ours(Code::Unimplemented, format!("tenure: {other} is not supported"))),
    }
}

fn package_of(alias: &str) -> &'static str {
    match alias {
        "lock" => "v3lockpb",
        "election" => "v3electionpb",
        _ => "etcdserverpb",
    }
}

/// Reads a message of a kind. An empty body is an empty message.
fn message<T: Message + Default>(package: &str, name: &str, body: &[u8]) -> Result<T, Fault> {
    let body = if body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { body };
    let bad = |error: &dyn std::fmt::Display| Fault::ours(Code::InvalidArgument, error.to_string());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let kind = kind(&format!("{package}.{name}"));
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let dynamic = DynamicMessage::deserialize_with_options(kind, &mut reader, &options);
    let dynamic = dynamic.map_err(|error| bad(&error))?;
    T::decode(&dynamic.encode_to_vec()[..]).map_err(|error| bad(&error))
}

fn kind(name: &str) -> prost_reflect::MessageDescriptor {
    let known = POOL.get_message_by_name(name);
    // Generated names write abbreviations as words.
    let known = known.or_else(|| POOL.get_message_by_name(&name.replace("HashKv", "HashKV")));
    known.expect("every message that is said is described")
}

fn told(package: &str, name: &str, reply: &impl Message) -> Value {
    json_of(&format!("{package}.{name}"), reply)
}

fn json_of(name: &str, reply: &impl Message) -> Value {
    let mut dynamic = DynamicMessage::new(kind(name));
    dynamic.merge(&reply.encode_to_vec()[..]).expect("what was written can be read");
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(true);
    dynamic.serialize_with_options(serde_json::value::Serializer, &options).expect("a message is JSON")
}

/// A no, as etcd's gateway says it.
pub(crate) fn problem(fault: &Fault) -> Response {
    let body = json!({ "error": fault.text, "code": i32::from(fault.code), "message": fault.text });
    (http_status(fault.code), axum::Json(body)).into_response()
}

const fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A stream of replies, one line each.
fn streamed<T: Message + 'static>(replies: Replies<T>, name: &'static str) -> Response {
    let lines = replies.map(move |reply| {
        let line = match reply {
            Ok(reply) => json!({ "result": json_of(name, &reply) }),
            Err(status) => json!({ "error": {
                "grpc_code": i32::from(status.code()),
                "http_code": http_status(status.code()).as_u16(),
                "message": status.message(),
                "http_status": http_status(status.code()).canonical_reason().unwrap_or_default(),
            }}),
        };
        Ok::<_, std::convert::Infallible>(Bytes::from(format!("{line}\n")))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

/// The JSON values of a body, one after the other as they come, each as a message.
fn values<T: Message + Default + 'static>(
    body: Body,
    name: &'static str,
) -> impl Stream<Item = Result<T, Status>> + Send + 'static {
    let parts = body.into_data_stream();
    stream::unfold((parts, JsonValues::default(), false), move |(mut parts, mut left, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            match left.next() {
                Ok(Some(value)) => {
                    let read =
                        message(name.rsplit_once('.')?.0, name.rsplit_once('.')?.1, value.to_string().as_bytes());
                    let is_over = read.is_err();
                    return Some((read.map_err(|fault| fault.status()), (parts, left, is_over)));
                }
                Ok(None) => {}
                Err(fault) => return Some((Err(fault.status()), (parts, left, true))),
            }
            match parts.next().await {
                Some(Ok(part)) => {
                    if let Err(fault) = left.push(&part) {
                        return Some((Err(fault.status()), (parts, left, true)));
                    }
                }
                Some(Err(_)) | None => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that only a server in distress says.
    #[tokio::test]
    async fn a_no_is_said_with_the_status_that_belongs_to_its_code() {
        for (fault, status, code) in [
            (Fault::too_many_requests(), 429, 8),
            (Fault::no_space(), 429, 8),
            (Fault::timed_out(), 503, 14),
            (Fault::stopped(), 503, 14),
        ] {
            let said = problem(&fault);
            assert_eq!(said.status(), status, "{fault:?}");
            let body: Value = serde_json::from_slice(&to_bytes(said.into_body(), 1024).await.unwrap()).unwrap();
            assert_eq!(body, json!({ "error": fault.text, "code": code, "message": fault.text }));
        }
    }
}
