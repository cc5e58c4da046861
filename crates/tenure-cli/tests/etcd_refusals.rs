//! Every no that etcd's clients look for, by its code and its words, over gRPC and as JSON. Where a real etcd is there it is
//! asked the same, and says the same. `etcdserver: too many requests`, `request timed out` and `server stopped` need a server in
//! distress: the desk's own tests have their words. `leader changed` is never said: whoever asks is passed on to the next leader.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::cluster::Cluster;
use crate::support::etcd::{Peer, reference};
use crate::support::http::Line;
use crate::support::raw::Wire;
use crate::support::soon;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Value, json};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::request_op::Request as Op;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::v3electionpb as election;
use tenure_api::etcd::v3lockpb as lock;
use tonic::Code;
use tonic::transport::Endpoint;

/// A call that is refused: how, and what is asked on either way.
struct Row {
    code: Code,
    text: &'static str,
    call: &'static str,
    message: Vec<u8>,
    path: &'static str,
    json: Value,
}

/// The status of HTTP that belongs to a code.
fn status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::ResourceExhausted => 429,
        Code::Unknown => 500,
        Code::Unavailable => 503,
        other => panic!("{other:?} is not in the table"),
    }
}

fn b64(bytes: impl AsRef<[u8]>) -> Value {
    STANDARD.encode(bytes).into()
}

fn put(key: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), ..pb::PutRequest::default() }
}

fn range(revision: i64) -> (pb::RangeRequest, Value) {
    let range = pb::RangeRequest { key: b"g".to_vec(), revision, ..pb::RangeRequest::default() };
    (range, json!({ "key": b64("g"), "revision": revision.to_string() }))
}

/// A transaction that puts these keys.
fn puts(keys: &[String]) -> (pb::TxnRequest, Value) {
    let ops = keys.iter().map(|key| pb::RequestOp { request: Some(Op::RequestPut(put(key))) });
    let said: Vec<Value> = keys.iter().map(|key| json!({ "request_put": { "key": b64(key) } })).collect();
    (pb::TxnRequest { success: ops.collect(), ..pb::TxnRequest::default() }, json!({ "success": said }))
}

macro_rules! row {
    ($code:ident, $text:literal, $call:literal at $path:literal, $message:expr, $json:expr) => {
        Row {
            code: Code::$code,
            text: $text,
            call: concat!("/", $call),
            message: $message.encode_to_vec(),
            path: $path,
            json: $json,
        }
    };
}

#[rustfmt::skip]
fn table() -> Vec<Row> {
    let (many, many_json) = puts(&(0..129).map(|n| format!("k{n}")).collect::<Vec<_>>());
    let (twice, twice_json) = puts(&["a".into(), "a".into()]);
    let (past, past_json) = range(2);
    let (future, future_json) = range(9999);
    let large = vec![b'x'; 1_600_000];
    vec![
        row!(NotFound, "etcdserver: requested lease not found", "etcdserverpb.Lease/LeaseRevoke" at "/v3/lease/revoke",
            pb::LeaseRevokeRequest { id: 99 }, json!({ "ID": 99 })),
        row!(NotFound, "etcdserver: requested lease not found", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { lease: 99, ..put("k") }, json!({ "key": b64("k"), "lease": "99" })),
        row!(NotFound, "etcdserver: requested lease not found", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { lease: 99, ignore_value: true, ..put("none") },
            json!({ "key": b64("none"), "lease": "99", "ignore_value": true })),
        row!(FailedPrecondition, "etcdserver: lease already exists", "etcdserverpb.Lease/LeaseGrant" at "/v3/lease/grant",
            pb::LeaseGrantRequest { ttl: 100, id: 7 }, json!({ "TTL": 100, "ID": 7 })),
        row!(OutOfRange, "etcdserver: too large lease TTL", "etcdserverpb.Lease/LeaseGrant" at "/v3/lease/grant",
            pb::LeaseGrantRequest { ttl: 9_000_000_001, id: 0 }, json!({ "TTL": "9000000001" })),
        row!(OutOfRange, "etcdserver: mvcc: required revision has been compacted", "etcdserverpb.KV/Range" at "/v3/kv/range",
            past, past_json),
        row!(OutOfRange, "etcdserver: mvcc: required revision has been compacted", "etcdserverpb.KV/Compact" at "/v3/kv/compaction",
            pb::CompactionRequest { revision: 3, physical: false }, json!({ "revision": 3 })),
        row!(OutOfRange, "etcdserver: mvcc: required revision is a future revision", "etcdserverpb.KV/Range" at "/v3/kv/range",
            future, future_json),
        row!(OutOfRange, "etcdserver: mvcc: required revision is a future revision", "etcdserverpb.KV/Compact" at "/v3/kv/compaction",
            pb::CompactionRequest { revision: 9999, physical: false }, json!({ "revision": 9999 })),
        row!(InvalidArgument, "etcdserver: key is not provided", "etcdserverpb.KV/Put" at "/v3/kv/put",
            put(""), json!({})),
        row!(InvalidArgument, "etcdserver: key is not provided", "etcdserverpb.KV/Range" at "/v3/kv/range",
            pb::RangeRequest::default(), json!({})),
        row!(InvalidArgument, "etcdserver: key is not provided", "etcdserverpb.KV/DeleteRange" at "/v3/kv/deleterange",
            pb::DeleteRangeRequest::default(), json!({})),
        row!(InvalidArgument, "etcdserver: too many operations in txn request", "etcdserverpb.KV/Txn" at "/v3/kv/txn",
            many, many_json),
        row!(InvalidArgument, "etcdserver: duplicate key given in txn request", "etcdserverpb.KV/Txn" at "/v3/kv/txn",
            twice, twice_json),
        row!(InvalidArgument, "etcdserver: request is too large", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { value: large.clone(), ..put("k") }, json!({ "key": b64("k"), "value": b64(&large) })),
        row!(InvalidArgument, "etcdserver: key not found", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { ignore_value: true, ..put("none") }, json!({ "key": b64("none"), "ignore_value": true })),
        row!(InvalidArgument, "etcdserver: key not found", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { lease: 7, ignore_value: true, ..put("none") },
            json!({ "key": b64("none"), "lease": 7, "ignore_value": true })),
        row!(InvalidArgument, "etcdserver: value is provided", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { ignore_value: true, value: b"v".to_vec(), ..put("g") },
            json!({ "key": b64("g"), "value": b64("v"), "ignore_value": true })),
        row!(InvalidArgument, "etcdserver: lease is provided", "etcdserverpb.KV/Put" at "/v3/kv/put",
            pb::PutRequest { ignore_lease: true, lease: 7, ..put("g") },
            json!({ "key": b64("g"), "lease": 7, "ignore_lease": true })),
        row!(FailedPrecondition, "etcdserver: authentication is not enabled",
            "etcdserverpb.Auth/Authenticate" at "/v3/auth/authenticate",
            pb::AuthenticateRequest { name: "ann".into(), password: "secret".into() },
            json!({ "name": "ann", "password": "secret" })),
        row!(Unknown, "etcdserver: requested lease not found", "v3lockpb.Lock/Lock" at "/v3/lock/lock",
            lock::LockRequest { name: b"l".to_vec(), lease: 99 }, json!({ "name": b64("l"), "lease": 99 })),
        row!(Unknown, "election: no leader", "v3electionpb.Election/Leader" at "/v3/election/leader",
            election::LeaderRequest { name: b"e".to_vec() }, json!({ "name": b64("e") })),
    ]
}

fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut line = Line::to(address);
    line.ask("POST", path, &["content-type: application/json"], body.to_string().as_bytes());
    let answer = line.answer();
    (answer.status, answer.json())
}

/// That a call is refused so as JSON.
fn is_refused_as_json(address: &str, path: &str, body: &Value, (code, text): (Code, &str)) {
    let (found, said) = post(address, path, body);
    let asked = body.to_string();
    let asked = &asked[..asked.len().min(100)];
    assert_eq!((found, said["code"].as_i64()), (status(code), Some(code as i64)), "{path} {asked}: {said}");
    assert_eq!(said["message"], text, "{path} {asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_no_has_the_code_and_the_words_of_etcd_on_either_way() {
    let etcd = reference().map(|program| Peer::etcd(&program));
    for peer in etcd.into_iter().chain([Peer::under_test()]) {
        let g = json!({ "key": b64("g") });
        for (path, body) in [
            ("/v3/kv/put", &g),
            ("/v3/kv/put", &g),
            ("/v3/kv/put", &g),
            ("/v3/kv/compaction", &json!({ "revision": 3 })),
            ("/v3/lease/grant", &json!({ "TTL": 1000, "ID": 7 })),
        ] {
            assert_eq!(post(peer.address(), path, body).0, 200, "{}: {path}", peer.name);
        }
        let wire = Wire::to(peer.address()).await;
        for Row { code, text, call, message, path, json } in table() {
            let refused = soon("a refusal", wire.unary(call, &message)).await;
            assert_eq!(refused, (code, text.into()), "{} at {call}", peer.name);
            is_refused_as_json(peer.address(), path, &json, (code, text));
        }
        let (_, all) = post(peer.address(), "/v3/kv/range", &json!({ "key": "AA==", "range_end": "AA==" }));
        assert_eq!((&all["header"]["revision"], &all["count"]), (&json!("4"), &json!("1")), "nothing was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_revoked_once() {
    let etcd = reference().map(|program| Peer::etcd(&program));
    for peer in etcd.into_iter().chain([Peer::under_test()]) {
        assert_eq!(post(peer.address(), "/v3/lease/grant", &json!({ "TTL": 1000, "ID": 5 })).0, 200);
        let wire = Wire::to(peer.address()).await;
        let revoke = pb::LeaseRevokeRequest { id: 5 }.encode_to_vec();
        // All at the same time: exactly one of them ends it.
        let tries = (0..20).map(|_| wire.unary("/etcdserverpb.Lease/LeaseRevoke", &revoke));
        let ends = futures::future::join_all(tries).await;
        let (done, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(code, _)| *code == Code::Ok);
        assert_eq!(done.len(), 1, "{}", peer.name);
        let no = (Code::NotFound, "etcdserver: requested lease not found".to_owned());
        assert!(refused.iter().all(|refused| *refused == no), "{}: {refused:?}", peer.name);
    }
}

/// The node that is left of three knows nobody who leads.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_calls_and_streams_that_need_one_say_so() {
    let no = (Code::Unavailable, "etcdserver: no leader");
    let mut cluster = Cluster::start(3).await;
    let [last, other] = cluster.followers().await[..] else { panic!("two follow") };
    let address = cluster.node(last).addr.trim_start_matches("http://").to_owned();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let needs_leader = || {
        let mut needs = tonic::Request::new(tokio_stream::pending::<pb::WatchRequest>());
        needs.metadata_mut().insert("hasleader", "true".parse().unwrap());
        needs
    };
    let mut open = WatchClient::new(channel.clone()).watch(needs_leader()).await.unwrap().into_inner();
    let leader = cluster.leader().await;
    cluster.kill9(leader);
    cluster.kill9(other);
    let ended = soon("the end of the stream", open.message()).await.unwrap_err();
    assert_eq!((ended.code(), ended.message()), no);
    let wire = Wire::to(&address).await;
    let (code, text) = soon("a refusal", wire.unary("/etcdserverpb.KV/Range", &range(0).0.encode_to_vec())).await;
    assert_eq!((code, &text[..]), no);
    is_refused_as_json(&address, "/v3/kv/range", &range(0).1, no);
    // An order may have been on its way to the leader that was: then nobody knows what became of it.
    let lost = "etcdserver: request timed out, possibly due to previous leader failure";
    let (code, text) = soon("a refusal", wire.unary("/etcdserverpb.KV/Put", &put("g").encode_to_vec())).await;
    assert!(code == Code::Unavailable && (text == no.1 || text == lost), "{code:?} {text}");
    // One that is opened now is refused, or ends as soon as it is known.
    let refused = match soon("a stream", WatchClient::new(channel).watch(needs_leader())).await {
        Ok(open) => soon("the end of the stream", open.into_inner().message()).await.unwrap_err(),
        Err(refused) => refused,
    };
    assert_eq!((refused.code(), refused.message()), no);
    let mut line = Line::to(&address);
    line.ask("GET", "/health", &[], b"");
    let health = line.answer();
    assert_eq!((health.status, &health.json()["health"]), (503, &"false".into()));
    let stale = pb::RangeRequest { serializable: true, ..range(0).0 }.encode_to_vec();
    assert_eq!(wire.unary("/etcdserverpb.KV/Range", &stale).await.0, Code::Ok, "what it has, it tells");
    cluster.tell_faults();
}
