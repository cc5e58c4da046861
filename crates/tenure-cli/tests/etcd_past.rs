//! The past of keys by the etcd dialect: what is forgotten by itself, and what is sent in pieces.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::etcd::{Peer, reference};
use crate::support::{Server, soon, text};
use std::time::Duration;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_api::etcd::etcdserverpb::request_op::Request as Op;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

async fn channel(endpoint: &str) -> Channel {
    Endpoint::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap()
}

fn put(key: &str, value: Vec<u8>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value, ..pb::PutRequest::default() }
}

fn at(revision: i64) -> pb::RangeRequest {
    pb::RangeRequest { key: b"k".to_vec(), revision, ..pb::RangeRequest::default() }
}

/// By a number of revisions it goes every five minutes, which no test waits for: the same order is given, at another time.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_said_is_forgotten_by_itself() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--etcd-compaction", "10s", "--data-dir", data.path().to_str().unwrap()];
    let server = Server::start_with(&flags);
    let mut kv = KvClient::new(channel(&server.addr).await);
    for n in 0..5 {
        kv.put(put("k", vec![n])).await.unwrap();
    }
    assert_eq!(kv.range(at(2)).await.unwrap().into_inner().kvs[0].value[..], [0], "at first all of it is there");
    let forgotten = async {
        loop {
            match kv.range(at(5)).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(refused) => return refused,
            }
        }
    };
    let refused = soon("a compaction", forgotten).await;
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, compacted));
    assert_eq!(kv.range(at(6)).await.unwrap().into_inner().kvs[0].value[..], [4], "what is there stays");
    server.until_said("is forgotten");
}

/// Five keys, each written again with the first value: more than a message, if the values before are told.
const KEYS: [&str; 5] = ["f/a", "f/b", "f/c", "f/d", "f/e"];

fn puts(byte: u8) -> pb::TxnRequest {
    let op = |key: &&str| pb::RequestOp { request: Some(Op::RequestPut(put(key, vec![byte; 300_000]))) };
    pb::TxnRequest { success: KEYS.iter().map(op).collect(), ..pb::TxnRequest::default() }
}

/// The keys and the revisions of each response until all have been told.
async fn told(peer: &Peer, fragment: bool, start_revision: i64) -> Vec<(Vec<String>, bool)> {
    let (asks, stream) = mpsc::channel(4);
    let create = pb::WatchCreateRequest {
        key: b"f/".to_vec(),
        range_end: b"f0".to_vec(),
        prev_kv: true,
        fragment,
        start_revision,
        ..pb::WatchCreateRequest::default()
    };
    asks.send(pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await.unwrap();
    let channel = channel(&peer.endpoint).await;
    let mut client = WatchClient::new(channel.clone()).max_decoding_message_size(64 * 1024 * 1024);
    let mut stream = client.watch(ReceiverStream::new(stream)).await.unwrap().into_inner();
    assert!(soon("a watcher", stream.message()).await.unwrap().unwrap().created);
    if start_revision == 0 {
        KvClient::new(channel).txn(puts(2)).await.unwrap();
    }
    let (mut responses, mut left) = (Vec::new(), KEYS.len());
    while left > 0 {
        let response = soon("a piece", stream.message()).await.unwrap().unwrap();
        let keys = response.events.iter().map(|event| {
            let (now, before) = (event.kv.as_ref().unwrap(), event.prev_kv.as_ref().unwrap());
            assert_eq!((now.mod_revision, before.mod_revision), (3, 2));
            assert_eq!((now.value.len(), before.value.len()), (300_000, 300_000));
            text(&now.key)
        });
        responses.push((keys.collect(), response.fragment));
        left -= response.events.len();
    }
    responses
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_asks_for_pieces_gets_what_is_large_in_pieces() {
    let etcd = reference().map(|program| Peer::etcd(&program));
    let piece = |keys: &[&str], more: bool| (keys.iter().map(ToString::to_string).collect::<Vec<_>>(), more);
    for peer in etcd.into_iter().chain([Peer::under_test()]) {
        KvClient::new(channel(&peer.endpoint).await).txn(puts(1)).await.unwrap();
        let pieces = [piece(&KEYS[..3], true), piece(&KEYS[3..], false)];
        assert_eq!(told(&peer, true, 0).await, pieces, "{}", peer.name);
        assert_eq!(told(&peer, true, 3).await, pieces, "{}: of the past, too", peer.name);
        assert_eq!(told(&peer, false, 3).await, [piece(&KEYS, false)], "{}: whole, unless asked", peer.name);
    }
}

/// What a revision was is hashed alike whenever it is asked for, as long as it is there.
#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_a_revision_stays_what_it_was() {
    let peer = Peer::under_test();
    let (mut kv, mut maintenance) =
        (KvClient::new(channel(&peer.endpoint).await), MaintenanceClient::new(channel(&peer.endpoint).await));
    let mut hash = async |revision| maintenance.hash_kv(pb::HashKvRequest { revision }).await;
    kv.put(put("k", b"one".to_vec())).await.unwrap();
    let before = hash(0).await.unwrap().into_inner().hash;
    kv.put(put("k", b"two".to_vec())).await.unwrap();
    assert_ne!(hash(0).await.unwrap().into_inner().hash, before);
    assert_eq!(hash(2).await.unwrap().into_inner().hash, before);
    assert_eq!(hash(99).await.unwrap_err().message(), "etcdserver: mvcc: required revision is a future revision");
    kv.compact(pb::CompactionRequest { revision: 3, physical: true }).await.unwrap();
    assert_eq!(hash(2).await.unwrap_err().message(), "etcdserver: mvcc: required revision has been compacted");
}
