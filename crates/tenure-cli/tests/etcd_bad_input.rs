//! Whatever comes in by the etcd dialect: a clear no or a closed stream, bounded memory, and everybody else unaffected. Where a
//! real etcd is there, it is asked too, and what is expected is what it answers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::etcd::{Peer, reference};
use crate::support::http::Line;
use crate::support::raw::{Call, Wire};
use crate::support::{Server, soon};
use prost::Message;
use serde_json::Value;
use std::time::{Duration, Instant};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// More than any message may be.
const HUGE: usize = 10 * 1024 * 1024;

/// The largest message of etcd's, and of ours.
const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Watchers on one stream, as docs/etcd.md says.
const WATCHERS_MAX: usize = 16_384;

const MIB: u64 = 1024 * 1024;

/// The server under test, after a real etcd if there is one: what is said of the one is seen of the other.
fn peers() -> Vec<Peer> {
    let etcd = reference().map(|program| Peer::etcd(&program));
    etcd.into_iter().chain([Peer::under_test()]).collect()
}

async fn channel(endpoint: &str) -> Channel {
    Endpoint::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap()
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..pb::PutRequest::default() }
}

fn everything() -> pb::RangeRequest {
    pb::RangeRequest { key: vec![0], range_end: vec![0], ..pb::RangeRequest::default() }
}

fn create(key: &str, start_revision: i64) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest { key: key.into(), start_revision, ..pb::WatchCreateRequest::default() };
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

/// A stream of watchers with one on a key.
async fn watching(wire: &Wire, key: &str) -> Call {
    let mut call = wire.call(WATCH).await;
    call.ask(&create(key, 0).encode_to_vec());
    let created: pb::WatchResponse = soon("a watcher", call.message()).await.unwrap();
    assert!(created.created && !created.canceled, "{created:?}");
    call
}

async fn keeping(wire: &Wire, lease: i64) -> Call {
    let mut call = wire.call(KEEP_ALIVE).await;
    renews(&mut call, lease).await;
    call
}

async fn renews(call: &mut Call, lease: i64) {
    call.ask(&pb::LeaseKeepAliveRequest { id: lease }.encode_to_vec());
    let kept: pb::LeaseKeepAliveResponse = soon("a renewal", call.message()).await.unwrap();
    assert!(kept.id == lease && kept.ttl > 0, "{kept:?}");
}

async fn grant(endpoint: &str, ttl: i64) -> i64 {
    let grant = pb::LeaseGrantRequest { ttl, id: 0 };
    LeaseClient::new(channel(endpoint).await).lease_grant(grant).await.unwrap().into_inner().id
}

/// What the server holds in memory at the moment, and at most until now.
fn memory(server: &Server) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    (kib("VmRSS:") * 1024, kib("VmHWM:") * 1024)
}

/// Messages that are none: of a put, and of everything else.
const NO_MESSAGES: [&[u8]; 7] = [b"\x0a\xff", b"\x0a\x05ab", b"\x0f", b"\x08\x01\x08", b"hello", b"\x02\x00", b"\x0c"];

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_end_their_own_call_alone() {
    for peer in peers() {
        let lease = grant(&peer.endpoint, 600).await;
        let wire = Wire::to(peer.address()).await;
        let (mut watch, mut keep) = (watching(&wire, "k").await, keeping(&wire, lease).await);
        for bytes in NO_MESSAGES {
            let (code, text) = soon("a refusal", wire.unary(PUT, bytes)).await;
            assert_eq!(code, Code::Internal, "{} to {bytes:?}: {text}", peer.name);
        }
        for bytes in [&b"\x0a\xff"[..], b"\x0a\x05ab", b"\x0c", b"\x02\x00"] {
            for mut call in [watching(&wire, "j").await, keeping(&wire, lease).await] {
                call.ask(bytes);
                let (code, text) = soon("the end of a stream", call.end()).await;
                assert_eq!(code, Code::Internal, "{} to {bytes:?} in a stream: {text}", peer.name);
            }
        }
        assert_eq!(wire.unary(PUT, &put("k", "v").encode_to_vec()).await.0, Code::Ok);
        let event: pb::WatchResponse = soon("the change", watch.message()).await.unwrap();
        assert_eq!((event.events.len(), event.header.unwrap().revision), (1, 2), "{}: nothing else was put", peer.name);
        renews(&mut keep, lease).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_before_a_stream_broke_off_is_answered_before_that_is() {
    for peer in peers() {
        let lease = grant(&peer.endpoint, 600).await;
        let mut call = Wire::to(peer.address()).await.call(KEEP_ALIVE).await;
        let renewal = pb::LeaseKeepAliveRequest { id: lease }.encode_to_vec();
        (0..10).for_each(|_| call.ask(&renewal));
        for _ in 0..10 {
            let kept: pb::LeaseKeepAliveResponse = soon("a renewal", call.message()).await.unwrap();
            assert!(kept.ttl > 0, "{}: {kept:?}", peer.name);
        }
        call.ask(b"\x0c");
        assert_eq!(soon("its end", call.end()).await.0, Code::Internal, "{}", peer.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_ten_mebibytes_is_refused_on_every_call() {
    for peer in peers() {
        let wire = Wire::to(peer.address()).await;
        // A field that nobody knows, so that any message has it.
        let huge = [&[0xfa, 0x3e][..], &varint(HUGE), &vec![b'x'; HUGE]].concat();
        let refusal = format!("grpc: received message larger than max ({} vs. {MESSAGE_BYTES_MAX})", huge.len());
        for path in [
            PUT,
            RANGE,
            "/etcdserverpb.KV/Txn",
            "/etcdserverpb.Lease/LeaseGrant",
            "/etcdserverpb.Maintenance/Status",
            "/etcdserverpb.Cluster/MemberList",
            "/v3lockpb.Lock/Lock",
            "/v3electionpb.Election/Campaign",
        ] {
            let refused = soon("a refusal", wire.unary(path, &huge)).await;
            assert_eq!(refused, (Code::ResourceExhausted, refusal.clone()), "{} at {path}", peer.name);
        }
        let lease = grant(&peer.endpoint, 600).await;
        for mut call in [watching(&wire, "k").await, keeping(&wire, lease).await] {
            call.ask(&huge);
            let refused = soon("the end of a stream", call.end()).await;
            assert_eq!(refused, (Code::ResourceExhausted, refusal.clone()), "{} in a stream", peer.name);
        }
        // What can be read, and is more than a request may be.
        let large = put("k", vec![b'x'; 1_600_000]).encode_to_vec();
        let refused = wire.unary(PUT, &large).await;
        assert_eq!(refused, (Code::InvalidArgument, "etcdserver: request is too large".into()), "{}", peer.name);
        let found = KvClient::new(channel(&peer.endpoint).await).range(everything()).await.unwrap().into_inner();
        assert_eq!((found.count, found.header.unwrap().revision), (0, 1), "{}: nothing was put", peer.name);
    }
}

fn varint(number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(number as u64, &mut bytes);
    bytes
}

/// As JSON: what etcd's gateway reads whole and then refuses is refused here before all of it is read, so that whoever goes on
/// sending may not hear why.
#[test]
fn ten_mebibytes_of_json_are_refused() {
    let body = format!(r#"{{"key":"aw==","value":"{}"}}"#, "QUFB".repeat(HUGE / 3));
    for peer in peers() {
        let status = if peer.name == "etcd" { " 429 " } else { " 400 " };
        let mut line = Line::to(peer.address());
        let head = format!("POST /v3/kv/put HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
        line.send(format!("{head}content-type: application/json\r\n\r\n").as_bytes());
        line.try_send(body.as_bytes());
        let said = line.line();
        assert!(said.as_ref().is_none_or(|said| said.contains(status)), "{}: {said:?}", peer.name);
        let (_, found) = post(&peer, "/v3/kv/range", br#"{"key":"AA==","range_end":"AA=="}"#);
        assert_eq!((&found["header"]["revision"], &found["count"]), (&"1".into(), &Value::Null), "{}", peer.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_mebibytes_of_refused_requests_leave_no_trace_in_memory() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let address = server.addr.trim_start_matches("http://").to_owned();
    let huge = put("k", vec![b'x'; HUGE]).encode_to_vec();
    let wire = Wire::to(&address).await;
    assert_eq!(wire.unary(PUT, &huge).await.0, Code::ResourceExhausted);
    let (before, _) = memory(&server);
    for _ in 0..30 {
        assert_eq!(soon("a refusal", wire.unary(PUT, &huge)).await.0, Code::ResourceExhausted);
    }
    let (after, peak) = memory(&server);
    println!("memory: {} MiB before, {} MiB after, {} MiB at most", before / MIB, after / MIB, peak / MIB);
    assert!(peak < before + 32 * MIB, "{before} bytes before, {peak} at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_thousand_watchers_on_one_stream_those_beyond_the_limit_are_refused() {
    let asked = 100_000;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let (mut kv, mut watch) =
        (KvClient::new(channel(&server.addr).await), WatchClient::new(channel(&server.addr).await));
    let (before, _) = memory(&server);
    let (asks, stream) = mpsc::channel(64);
    let (asker, last) = (asks.clone(), asked - 1);
    let asking = tokio::spawn(async move {
        for n in 0..asked {
            asker.send(create(&format!("w/{n}"), 0)).await.unwrap();
        }
    });
    let mut told = watch.watch(ReceiverStream::new(stream)).await.unwrap().into_inner();
    let (mut created, mut refused) = (0, 0);
    for n in 0..asked {
        let answer = soon("an answer", told.message()).await.unwrap().unwrap();
        assert!(answer.created, "{answer:?}");
        match answer.canceled {
            false => {
                assert_eq!(answer.watch_id, n as i64, "those that come first are within the limit");
                created += 1;
            }
            true => {
                let reason = format!("tenure: a stream has at most {WATCHERS_MAX} watchers");
                assert_eq!((answer.watch_id, answer.cancel_reason), (-1, reason));
                refused += 1;
            }
        }
        // Somebody else is answered meanwhile.
        if n % 10_000 == 0 {
            soon("a put", kv.put(put("other", n.to_string()))).await.unwrap();
        }
    }
    asking.await.unwrap();
    assert_eq!((created, refused), (WATCHERS_MAX, asked - WATCHERS_MAX));
    let (_, peak) = memory(&server);
    println!("memory: {} MiB before, {} MiB at most", before / MIB, peak / MIB);
    assert!(peak < before + 64 * MIB, "{before} bytes before, {peak} at most");
    kv.put(put(&format!("w/{last}"), "nobody watches it")).await.unwrap();
    kv.put(put("w/16383", "somebody does")).await.unwrap();
    let event = soon("the change", told.message()).await.unwrap().unwrap();
    assert_eq!((event.watch_id, &event.events[0].kv.as_ref().unwrap().key[..]), (16_383, &b"w/16383"[..]));
    // Where one goes, another has room.
    let cancel = RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 7 });
    asks.send(pb::WatchRequest { request_union: Some(cancel) }).await.unwrap();
    asks.send(create("w/again", 0)).await.unwrap();
    let [gone, again] =
        [soon("a cancel", told.message()).await, soon("another", told.message()).await].map(|it| it.unwrap().unwrap());
    assert!(gone.canceled && gone.watch_id == 7 && again.created && !again.canceled, "{gone:?} {again:?}");
}

/// What the silent are not told yet lies in the past of keys, once for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_never_read_cost_nothing_and_miss_nothing_but_what_is_forgotten() {
    const PUTS: i64 = 400;
    const VALUE: usize = 256 * 1024;
    const SILENT: usize = 20;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let address = server.addr.trim_start_matches("http://").to_owned();
    let mut kv = KvClient::new(channel(&server.addr).await);
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let wire = Wire::to(&address).await;
        let mut call = wire.call(WATCH).await;
        call.ask(&create("k", 0).encode_to_vec());
        call.opened().await;
        silent.push((wire, call));
    }
    let (_asks, mut told) = reading(&server.addr, "k").await;
    // Whoever asked before them is watched for.
    soon("a first put", kv.put(put("k", "first"))).await.unwrap();
    assert_eq!(revision(&soon("the change", told.message()).await.unwrap().unwrap()), 2);
    let (before, _) = memory(&server);
    let reader = tokio::spawn(async move {
        for n in 3..3 + PUTS {
            let event = soon("a change", told.message()).await.unwrap().unwrap();
            assert_eq!(revision(&event), n, "everything, in order");
        }
    });
    for n in 0..PUTS {
        soon("a put", kv.put(put("k", vec![n as u8; VALUE]))).await.unwrap();
    }
    soon("all changes", reader).await.unwrap();
    let (_, peak) = memory(&server);
    println!("memory: {} MiB before, {} MiB at most", before / MIB, peak / MIB);
    // The past itself, the log, what is on its way, and what the allocator keeps for later: each of the twenty silent would
    // add as much as the past, 100 MiB.
    assert!(peak < before + 800 * MIB, "{before} bytes before, {peak} at most");
    let (_wire, mut late) = silent.pop().unwrap();
    assert!(soon("its creation", late.message::<pb::WatchResponse>()).await.unwrap().created);
    let mut next = 2;
    while next < 3 + PUTS {
        let response: pb::WatchResponse = soon("what it missed", late.message()).await.unwrap();
        for event in &response.events {
            assert_eq!(event.kv.as_ref().unwrap().mod_revision, next, "everything, in order");
            next += 1;
        }
    }
    let compaction = pb::CompactionRequest { revision: 2 + PUTS, physical: true };
    soon("a compaction", kv.compact(compaction)).await.unwrap();
    let (_wire, mut too_late) = silent.pop().unwrap();
    assert!(soon("its creation", too_late.message::<pb::WatchResponse>()).await.unwrap().created);
    let mut next = 2;
    loop {
        let response: pb::WatchResponse = soon("its end", too_late.message()).await.unwrap();
        if response.canceled {
            assert_eq!((response.compact_revision, response.events.len()), (2 + PUTS, 0));
            break;
        }
        for event in &response.events {
            assert_eq!(event.kv.as_ref().unwrap().mod_revision, next, "no gap before it is told");
            next += 1;
        }
    }
    assert!(next < 2 + PUTS, "it was behind");
}

fn revision(response: &pb::WatchResponse) -> i64 {
    assert_eq!(response.events.len(), 1, "{:?}", response.header);
    response.events[0].kv.as_ref().unwrap().mod_revision
}

async fn reading(endpoint: &str, key: &str) -> (mpsc::Sender<pb::WatchRequest>, tonic::Streaming<pb::WatchResponse>) {
    let (asks, stream) = mpsc::channel(4);
    asks.send(create(key, 0)).await.unwrap();
    let mut told =
        WatchClient::new(channel(endpoint).await).watch(ReceiverStream::new(stream)).await.unwrap().into_inner();
    assert!(soon("a watcher", told.message()).await.unwrap().unwrap().created);
    (asks, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keepalive_stream_that_is_cut_within_a_frame_harms_nobody() {
    const TTL: i64 = 4;
    for peer in peers() {
        let (lease, other) = (grant(&peer.endpoint, TTL).await, grant(&peer.endpoint, 600).await);
        let mut kv = KvClient::new(channel(&peer.endpoint).await);
        kv.put(pb::PutRequest { lease, ..put("k", "v") }).await.unwrap();
        let (_asks, mut told) = reading(&peer.endpoint, "k").await;
        let wire = Wire::to(peer.address()).await;
        let mut unharmed = keeping(&Wire::to(peer.address()).await, other).await;
        let sent = Instant::now();
        let mut keep = keeping(&wire, lease).await;
        // The head of the frame, and two bytes of it.
        wire.cut_after(9 + 2);
        keep.ask(&pb::LeaseKeepAliveRequest { id: lease }.encode_to_vec());
        assert!(soon("the end", keep.message::<pb::LeaseKeepAliveResponse>()).await.is_none());
        renews(&mut unharmed, other).await;
        let lives = pb::LeaseTimeToLiveRequest { id: lease, keys: true };
        let mut leases = LeaseClient::new(channel(&peer.endpoint).await);
        let lives = leases.lease_time_to_live(lives).await.unwrap().into_inner();
        assert!(lives.ttl >= 0 && lives.keys == [b"k"], "{}: {lives:?}", peer.name);
        let gone = soon("the end of the key", told.message()).await.unwrap().unwrap();
        assert_eq!(gone.events[0].r#type, i32::from(tenure_api::etcd::mvccpb::event::EventType::Delete));
        assert!(sent.elapsed() >= Duration::from_secs(TTL as u64), "{}: not before its time", peer.name);
        renews(&mut unharmed, other).await;
    }
}

fn post(peer: &Peer, path: &str, body: &[u8]) -> (u16, Value) {
    let mut line = Line::to(peer.address());
    line.ask("POST", path, &["content-type: application/json"], body);
    let answer = line.answer();
    (answer.status, answer.json())
}

/// What is refused with 400 and the code of a bad argument.
const NO_JSON: &[(&str, &str)] = &[
    ("/v3/kv/put", r#"{"key":"aw==""#),
    ("/v3/kv/put", "null"),
    ("/v3/kv/put", r#""x""#),
    ("/v3/kv/put", "[]"),
    ("/v3/kv/put", "nonsense"),
    ("/v3/kv/put", r#"{"key":"aw==","value":"!!!"}"#),
    ("/v3/kv/put", r#"{"key":"a","value":""}"#),
    ("/v3/kv/put", r#"{"key":"aw==","value":["a"]}"#),
    ("/v3/kv/put", r#"{"key":"aw==","value":{}}"#),
    ("/v3/kv/put", r#"{"key":"aw==","value":true}"#),
    ("/v3/kv/put", r#"{"key":"aw==","lease":"abc"}"#),
    ("/v3/kv/put", r#"{"key":"aw==","lease":1.5}"#),
    ("/v3/kv/put", r#"{"key":"aw==","lease":9223372036854775808}"#),
    ("/v3/kv/put", r#"{"key":"aw==","prev_kv":"yes"}"#),
    ("/v3/kv/put", r#"{"key":"aw==","prev_kv":1}"#),
    ("/v3/kv/put", r#"{"key":null}"#),
    ("/v3/kv/txn", r#"{"success":{"request_put":{"key":"aw=="}}}"#),
    ("/v3/kv/txn", r#"{"success":[{"request_put":[]}]}"#),
    ("/v3/kv/txn", r#"{"success":"all"}"#),
    ("/v3/lease/grant", r#"{"TTL":"soon"}"#),
    ("/v3/lock/lock", r#"{"name":"a"}"#),
];

/// What is not known is passed over, and what follows is not read: as etcd does.
const STILL_JSON: &[&str] = &[
    r#"{"key":"aw=="}"#,
    r#"{"key":"aw"}"#,
    r#"{"key":"a_8=","value":"Z-_="}"#,
    r#"{"surprise":{"a":[1,2,{"b":null}]},"key":"aw=="}"#,
    r#"{"key":"aw==","value":null}"#,
    r#"{"key":"aw==","lease":0.0}"#,
    r#"{"key":"aw=="} and more"#,
];

#[test]
fn json_that_is_not_what_was_expected_is_refused_as_etcd_refuses_it() {
    for peer in peers() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let deep_inside = format!(r#"{{"key":"aw==","value":{deep}}}"#);
        let deep = [("/v3/kv/put", &deep[..]), ("/v3/kv/put", &deep_inside)];
        for (path, body) in NO_JSON.iter().copied().chain(deep) {
            let (status, said) = post(&peer, path, body.as_bytes());
            let shown = &body[..body.len().min(80)];
            assert_eq!((status, &said["code"]), (400, &Value::from(3)), "{} to {path} {shown}: {said}", peer.name);
            assert!(!said["message"].as_str().unwrap().is_empty(), "{said}");
        }
        let (_, none) = post(&peer, "/v3/kv/range", br#"{"key":"AA==","range_end":"AA=="}"#);
        assert_eq!((&none["header"]["revision"], &none["count"]), (&"1".into(), &Value::Null), "{}", peer.name);
        for (n, body) in (2..).zip(STILL_JSON) {
            let (status, said) = post(&peer, "/v3/kv/put", body.as_bytes());
            assert_eq!((status, &said["header"]["revision"]), (200, &n.to_string().into()), "{} to {body}", peer.name);
        }
    }
}

/// etcd leaves whoever sends no JSON in a stream without a word; here they are told.
#[test]
fn streams_of_json_end_where_they_are_no_json() {
    let peer = Peer::under_test();
    let deep = format!(r#"{{"create_request":{}}}"#, "[".repeat(10_000) + &"]".repeat(10_000));
    for (path, body, results) in [
        ("/v3/watch", "nonsense", 0),
        ("/v3/watch", r#"{"create_request":{"key":"!!"}}"#, 0),
        ("/v3/watch", r#"{"create_request":5}"#, 0),
        ("/v3/watch", &deep, 0),
        ("/v3/watch", r#"{"create_request":{"key":"aw=="}} nonsense"#, 1),
        ("/v3/lease/keepalive", "nonsense", 0),
        ("/v3/lease/keepalive", r#"{"ID":"x"}"#, 0),
        ("/v3/lease/keepalive", r#"{"ID":"7"} {"ID":"8"} nonsense"#, 2),
    ] {
        let mut line = Line::to(peer.address());
        line.ask("POST", path, &["content-type: application/json"], body.as_bytes());
        assert_eq!(line.head().status, 200);
        let mut frames = std::iter::from_fn(|| line.line()).filter(|line| line.starts_with('{'));
        let mut frame = || serde_json::from_str::<Value>(&frames.next().expect("a frame")).unwrap();
        let shown = &body[..body.len().min(80)];
        (0..results).for_each(|_| assert!(frame()["result"].is_object(), "{path} {shown}"));
        let error = &frame()["error"];
        assert_eq!((&error["grpc_code"], &error["http_code"]), (&3.into(), &400.into()), "{path} {shown}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}

/// Messages that never end, to services with and without a key: all of them together have a bounded room, each of them has a
/// time, and a holder on another connection renews meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_never_end_cost_bounded_memory_and_time() {
    const CALLS: usize = 100;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let address = server.addr.trim_start_matches("http://").to_owned();
    let holder = Wire::to(&address).await;
    let lease = pb::LeaseGrantRequest { ttl: 600, id: 7 };
    LeaseClient::new(channel(&server.addr).await).lease_grant(lease).await.unwrap();
    let mut kept = keeping(&holder, 7).await;
    let (before, _) = memory(&server);
    let (mut wires, mut calls) = (Vec::new(), Vec::new());
    for path in ["/grpc.health.v1.Health/Check", "/etcdserverpb.Auth/Authenticate", PUT, PUT, PUT, PUT] {
        let wire = Wire::to(&address).await;
        for _ in 0..CALLS {
            let mut call = wire.call(path).await;
            call.begin(u32::try_from(MESSAGE_BYTES_MAX).unwrap() - 1, MESSAGE_BYTES_MAX / 2);
            calls.push((path, call));
        }
        wires.push(wire);
        renews(&mut kept, 7).await;
    }
    let mut ends = std::collections::BTreeMap::new();
    for (path, mut call) in calls {
        let (code, _) = soon("the end of a message that never ends", call.end()).await;
        *ends.entry((path, format!("{code:?}"))).or_insert(0) += 1;
    }
    renews(&mut kept, 7).await;
    let (_, peak) = memory(&server);
    println!("memory: {} MiB before, {} MiB at most; {ends:?}", before / MIB, peak / MIB);
    let of = |path: &'static str, code: &str| ends.get(&(path, code.to_owned())).copied().unwrap_or(0);
    assert_eq!(of("/grpc.health.v1.Health/Check", "OutOfRange"), CALLS, "its service takes a few bytes only");
    assert_eq!(of("/etcdserverpb.Auth/Authenticate", "ResourceExhausted"), CALLS, "in the words of etcd");
    let (late, refused) = (of(PUT, "DeadlineExceeded"), of(PUT, "ResourceExhausted"));
    assert!(late > 0 && refused > 0 && late + refused == 4 * CALLS, "{ends:?}");
    // 128 MiB for messages that arrive, twice where a buffer grows, and a window for each connection.
    assert!(peak < before + 320 * MIB, "{before} bytes before, {peak} at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_keys_are_bounded_in_bytes() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let mut watch = WatchClient::new(channel(&server.addr).await);
    let (asks, stream) = mpsc::channel(64);
    let mut told = {
        asks.send(create(&"k".repeat(1024 * 1024), 0)).await.unwrap();
        watch.watch(ReceiverStream::new(stream)).await.unwrap().into_inner()
    };
    let mut is_created = async |asks: &mpsc::Sender<pb::WatchRequest>, request: Option<pb::WatchRequest>| {
        if let Some(request) = request {
            asks.send(request).await.unwrap();
        }
        let created = soon("a watcher", told.message()).await.unwrap().unwrap();
        assert!(created.created);
        !created.canceled
    };
    assert!(is_created(&asks, None).await);
    for _ in 0..3 {
        assert!(is_created(&asks, Some(create(&"k".repeat(1024 * 1024), 0))).await);
    }
    assert!(!is_created(&asks, Some(create("one more", 0))).await, "4 MiB are watched");
}
