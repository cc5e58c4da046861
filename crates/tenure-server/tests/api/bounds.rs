//! What one client can cost the others: memory, the ledger's lock, and room to watch.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure::v1;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_api::etcd::etcdserverpb::request_op::Request as Op;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion as Ask;
use tenure_api::v1::tenure_client::TenureClient;
use tenure_testkit::{Server, acquire, claim, soon};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

async fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap()
}

async fn kv(server: &Server) -> KvClient<Channel> {
    KvClient::new(channel(server).await).max_decoding_message_size(usize::MAX)
}

fn put(key: &str, value: Vec<u8>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value, ..pb::PutRequest::default() }
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest { key: b"k/".to_vec(), range_end: b"k0".to_vec(), ..pb::RangeRequest::default() }
}

/// Writes keys, as many at once as one transaction may.
async fn write(kv: &mut KvClient<Channel>, keys: std::ops::Range<usize>) {
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(128) {
        let put = |n: &usize| pb::RequestOp { request: Some(Op::RequestPut(put(&format!("k/{n:06}"), vec![b'0']))) };
        let txn = pb::TxnRequest { success: some.iter().map(put).collect(), ..pb::TxnRequest::default() };
        soon("a transaction", kv.txn(txn)).await.unwrap();
    }
}

/// A stream with so many watchers of one key, all of which were created.
async fn watchers(
    server: &Server,
    key: &str,
    count: usize,
) -> (mpsc::Sender<pb::WatchRequest>, Streaming<pb::WatchResponse>) {
    let (asks, asked) = mpsc::channel(64);
    let mut client = WatchClient::new(channel(server).await).max_decoding_message_size(usize::MAX);
    let create = pb::WatchCreateRequest { key: key.into(), ..pb::WatchCreateRequest::default() };
    let create = pb::WatchRequest { request_union: Some(Ask::CreateRequest(create)) };
    let sender = asks.clone();
    tokio::spawn(async move {
        for _ in 0..count {
            sender.send(create.clone()).await.unwrap();
        }
    });
    let mut replies = client.watch(ReceiverStream::new(asked)).await.unwrap().into_inner();
    for _ in 0..count {
        let created = soon("a watcher", replies.message()).await.unwrap().unwrap();
        assert!(created.created && !created.canceled, "{created:?}");
    }
    (asks, replies)
}

/// The most memory that this process has had since it was last asked, in bytes.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// As many watchers as a stream may have receive one value, and their client reads nothing for a while. A copy for each of them
/// would take 1 GiB. The test measures the whole process, so it needs one of its own, as `scripts/run-tests` gives it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_value_for_many_watchers_is_kept_once() {
    let server = Server::start();
    let (count, bytes) = (16_384, 64 * 1024);
    let (_asks, mut slow) = watchers(&server, "k/1", count).await;
    let (_others, mut other) = watchers(&server, "k/1", 1).await;
    let mut kv = kv(&server).await;
    peak();
    let before = peak();
    kv.put(put("k/1", vec![7; bytes])).await.unwrap();
    let told = soon("an event", other.message()).await.unwrap().unwrap();
    assert_eq!(told.events[0].kv.as_ref().unwrap().value.len(), bytes);
    // Others are served meanwhile.
    kv.put(put("k/2", vec![7])).await.unwrap();
    let mut seen = vec![false; count];
    for _ in 0..count {
        let told = soon("an event", slow.message()).await.unwrap().unwrap();
        assert_eq!(told.events.len(), 1);
        assert_eq!(told.events[0].kv.as_ref().unwrap().value.len(), bytes);
        let id = usize::try_from(told.watch_id).unwrap();
        assert!(!std::mem::replace(&mut seen[id], true), "watcher {id} is told once");
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more than before", grown >> 20);
}

/// Two watchers of one stream: what one of them has yet to receive is compacted while the client reads nothing. The other one receives
/// every change all the same.
#[tokio::test]
async fn a_compacted_watcher_costs_others_no_change() {
    let server = Server::start();
    let mut kv = kv(&server).await;
    let now = kv.put(put("a", vec![0])).await.unwrap().into_inner().header.unwrap().revision;
    let (asks, asked) = mpsc::channel(4);
    let mut client = WatchClient::new(channel(&server).await).max_decoding_message_size(usize::MAX);
    let mut replies = client.watch(ReceiverStream::new(asked)).await.unwrap().into_inner();
    // More than fits between the server and a client that does not read.
    let (many, large) = (400, vec![7; 100_000]);
    let first = now + many + 1;
    for (key, start_revision) in [("a", now + 1), ("b", first)] {
        let create = pb::WatchCreateRequest { key: key.into(), start_revision, ..pb::WatchCreateRequest::default() };
        asks.send(pb::WatchRequest { request_union: Some(Ask::CreateRequest(create)) }).await.unwrap();
        let created = soon("a watcher", replies.message()).await.unwrap().unwrap();
        assert!(created.created && !created.canceled, "{created:?}");
    }
    for _ in 0..many {
        kv.put(put("a", large.clone())).await.unwrap();
    }
    for _ in 0..2 {
        kv.put(put("b", vec![1])).await.unwrap();
    }
    let compact = pb::CompactionRequest { revision: first - 1, ..pb::CompactionRequest::default() };
    kv.compact(compact).await.unwrap();
    let (mut is_compacted, mut seen) = (false, Vec::new());
    while !is_compacted || seen.len() < 2 {
        let told = soon("a change", replies.message()).await.unwrap().unwrap();
        match told.watch_id {
            0 => is_compacted |= told.canceled && told.compact_revision == first - 1,
            _ => seen.extend(told.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision)),
        }
    }
    assert_eq!(seen, [first, first + 1]);
}

/// A look that takes several slices finds one revision, although others write between them, and forget what was before.
#[tokio::test]
async fn a_long_range_is_of_one_revision() {
    let server = Server::start();
    let (mut client, keys) = (kv(&server).await, 10_000);
    write(&mut client, 0..keys).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, mut other) = (is_over.clone(), client.clone());
    let writer = tokio::spawn(async move {
        let mut writes = 0_u64;
        while !over.load(Ordering::Relaxed) {
            writes += 1;
            // The first, one in the middle and the last, together.
            let value = writes.to_string().into_bytes();
            let put =
                |n: usize| pb::RequestOp { request: Some(Op::RequestPut(put(&format!("k/{n:06}"), value.clone()))) };
            let success = [0, keys / 2, keys - 1].map(put).to_vec();
            let done = other.txn(pb::TxnRequest { success, ..pb::TxnRequest::default() }).await.unwrap().into_inner();
            if writes.is_multiple_of(50) {
                let revision = done.header.unwrap().revision;
                other.compact(pb::CompactionRequest { revision, physical: false }).await.unwrap();
            }
        }
        writes
    });
    let mut different = std::collections::BTreeSet::new();
    while different.len() < 30 {
        let range = soon("an answer", client.range(all())).await.unwrap().into_inner();
        assert_eq!((range.kvs.len(), range.count, range.more), (keys, keys as i64, false));
        let values = [0, keys / 2, keys - 1].map(|n| range.kvs[n].value.clone());
        assert!(values.iter().all(|value| *value == values[0]), "{values:?} were never so together");
        different.insert(values[0].clone());
        let newest = range.kvs.iter().map(|kv| kv.mod_revision).max();
        assert!(newest <= range.header.map(|header| header.revision));
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0);
    // A hash of a revision is the same later, and of another revision another.
    let mut maintenance = MaintenanceClient::new(channel(&server).await);
    let mut hash = async |revision| maintenance.hash_kv(pb::HashKvRequest { revision }).await.unwrap().into_inner();
    let now = hash(0).await;
    client.put(put("k/000001", b"other".to_vec())).await.unwrap();
    let revision = now.header.unwrap().revision;
    assert_eq!(hash(revision).await.hash, now.hash);
    assert_ne!(hash(0).await.hash, now.hash);
    let count = pb::RangeRequest { count_only: true, revision, ..all() };
    assert_eq!(client.range(count).await.unwrap().into_inner().count, keys as i64);
}

/// Answers have a bound, each by itself and all that are not read yet.
#[tokio::test]
async fn large_answers_are_bounded() {
    let server = Server::start();
    let mut client = kv(&server).await;
    for n in 0..130 {
        client.put(put(&format!("k/{n:06}"), vec![7; 1 << 20])).await.unwrap();
    }
    let refused = soon("an answer", client.range(all())).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("at most 128 MiB"), "{}", refused.message());
    for cheap in [pb::RangeRequest { keys_only: true, ..all() }, pb::RangeRequest { count_only: true, ..all() }] {
        assert_eq!(client.range(cheap).await.unwrap().into_inner().count, 130);
    }
    // 100 MiB each, which are not read: of one client two of them have room, since it leaves the others as much.
    let large = pb::RangeRequest { limit: 100, ..all() };
    let mut unread = Vec::new();
    let refused = leave_unread(&server, &large, &mut unread).await;
    assert_eq!((unread.len(), refused.code()), (2, Code::ResourceExhausted));
    assert!(refused.message().contains("unread"), "{}", refused.message());
    // Smaller ones fill it up.
    client.put(put("small", vec![7; 64 * 1024])).await.unwrap();
    let small = pb::RangeRequest { key: b"small".to_vec(), ..pb::RangeRequest::default() };
    for range in [pb::RangeRequest { limit: 1, ..all() }, small] {
        leave_unread(&server, &range, &mut unread).await;
    }
    // Small answers need no room, and the room comes back when those who took it are gone.
    assert_eq!(
        client.range(pb::RangeRequest { limit: 1, keys_only: true, ..all() }).await.unwrap().into_inner().kvs.len(),
        1
    );
    // Renewals find room in any case, also when their answer is long.
    let leases: Vec<u64> = (1..=4096).collect();
    let renewed = renewals(&server).await.renew(v1::RenewRequest { leases, ..v1::RenewRequest::default() }).await;
    assert_eq!(renewed.unwrap().into_inner().failures.len(), 4096, "there are no such leases");
    drop(unread);
    let mut tries = 0;
    while let Err(status) = soon("an answer", client.range(large.clone())).await {
        assert_eq!(status.code(), Code::ResourceExhausted);
        tries += 1;
        assert!(tries < 100_000, "the room never came back");
        tokio::task::yield_now().await;
    }
}

async fn renewals(server: &Server) -> TenureClient<Channel> {
    TenureClient::new(channel(server).await)
}

/// Asks for answers that are left unread until one is refused, and returns the refusal.
async fn leave_unread(
    server: &Server,
    range: &pb::RangeRequest,
    unread: &mut Vec<Streaming<pb::RangeResponse>>,
) -> tonic::Status {
    for _ in 0..1000 {
        match soon("an answer", unread_range(server, range.clone())).await {
            Ok(answer) => unread.push(answer),
            Err(refused) => return refused,
        }
    }
    panic!("there is no bound");
}

/// An answer to a range whose bytes are on their way, and of which nothing is read.
async fn unread_range(server: &Server, range: pb::RangeRequest) -> Result<Streaming<pb::RangeResponse>, tonic::Status> {
    let endpoint = Endpoint::from_shared(server.addr.clone()).unwrap().initial_stream_window_size(1024);
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = "/etcdserverpb.KV/Range".parse().unwrap();
    let codec = tonic_prost::ProstCodec::default();
    grpc.server_streaming(tonic::Request::new(range), path, codec).await.map(tonic::Response::into_inner)
}

/// A watch of resources that is up to date goes on when as many keys are deleted as can be at once.
#[tokio::test]
async fn a_watch_survives_a_delete_of_many_keys() {
    let server = Server::start();
    let (client, mut kv) = (server.client().await, kv(&server).await);
    write(&mut kv, 0..100_000).await;
    let watch = |prefix: &str| v1::WatchRequest { prefix: prefix.into(), ..v1::WatchRequest::default() };
    let mut jobs = client.watch_stream(watch("jobs/")).await.unwrap();
    let mut everything = client.watch_stream(watch("")).await.unwrap();
    for watch in [&mut jobs, &mut everything] {
        assert!(soon("a first reply", watch.message()).await.unwrap().unwrap().events.is_empty());
    }
    let pb::RangeRequest { key, range_end, .. } = all();
    let delete = pb::DeleteRangeRequest { key, range_end, prev_kv: false };
    assert_eq!(soon("a delete", kv.delete_range(delete)).await.unwrap().into_inner().deleted, 100_000);
    acquire(&client, claim("jobs/1", 1, "ann", 600_000)).await.unwrap();
    let mut heard = Vec::new();
    while heard.is_empty() {
        heard = soon("an event", jobs.message()).await.unwrap().unwrap().events;
    }
    assert!(heard.iter().all(|event| event.resource == "jobs/1"), "{heard:?}");
    // A watch of everything receives each of the deletes, in order.
    let (mut deleted, mut last) = (0, (0, 0));
    while deleted < 100_000 {
        for event in soon("an event", everything.message()).await.unwrap().unwrap().events {
            assert!((event.revision, event.n) > last);
            last = (event.revision, event.n);
            deleted += usize::from(event.kind == "deleted");
        }
    }
}
