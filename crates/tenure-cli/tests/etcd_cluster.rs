//! The etcd dialect on three nodes: any of them is asked, watches and locks reach across them, and leases outlive a leader.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::cluster::Cluster;
use crate::support::soon;
use std::time::Duration;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion;
use tenure_api::etcd::v3lockpb::lock_client::LockClient;
use tenure_api::etcd::v3lockpb::{LockRequest, UnlockRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

async fn to(cluster: &Cluster, node: u64) -> Channel {
    Endpoint::from_shared(cluster.node(node).addr.clone()).unwrap().connect().await.unwrap()
}

fn put(key: &str, value: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), lease, ..pb::PutRequest::default() }
}

fn get(key: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), ..pb::RangeRequest::default() }
}

/// The key that was created first under a name.
fn oldest(from: &str, to: &str) -> pb::RangeRequest {
    let (order, target) = (pb::range_request::SortOrder::Ascend, pb::range_request::SortTarget::Create);
    let (sort_order, sort_target) = (order.into(), target.into());
    pb::RangeRequest { range_end: to.into(), limit: 1, sort_order, sort_target, ..get(from) }
}

/// How many keys are under a name.
async fn count(channel: &Channel, from: &str, to: &str) -> i64 {
    let range = pb::RangeRequest { range_end: to.into(), count_only: true, ..get(from) };
    KvClient::new(channel.clone()).range(range).await.unwrap().into_inner().count
}

/// Waits until so many keys are under a name.
async fn until(channel: &Channel, (from, to): (&str, &str), expected: i64) {
    let there = async {
        while count(channel, from, to).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("so many keys", there).await;
}

/// Starts to watch a key, and returns once the server says so.
async fn watch(channel: Channel, key: &str) -> (mpsc::Sender<pb::WatchRequest>, tonic::Streaming<pb::WatchResponse>) {
    let (asks, asked) = mpsc::channel(4);
    let create = pb::WatchCreateRequest { key: key.into(), ..pb::WatchCreateRequest::default() };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    asks.send(create).await.unwrap();
    let mut told = WatchClient::new(channel).watch(ReceiverStream::new(asked)).await.unwrap().into_inner();
    assert!(soon("a watcher", told.message()).await.unwrap().unwrap().created);
    (asks, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_orders_reads_and_watches() {
    let cluster = Cluster::start(3).await;
    let followers = cluster.followers().await;
    let (one, other) = (to(&cluster, followers[0]).await, to(&cluster, followers[1]).await);
    let (_asks, mut told) = watch(other.clone(), "a").await;
    for n in 0..20 {
        let value = n.to_string();
        let written = KvClient::new(one.clone()).put(put("a", &value, 0)).await.unwrap().into_inner();
        let read = KvClient::new(other.clone()).range(get("a")).await.unwrap().into_inner();
        assert_eq!(read.kvs[0].value, value.as_bytes(), "what was acknowledged is seen everywhere");
        assert!(read.header.unwrap().revision >= written.header.unwrap().revision);
        let event = soon("the change", told.message()).await.unwrap().unwrap();
        assert_eq!(event.events[0].kv.as_ref().unwrap().value, value.as_bytes());
    }
    let refused = KvClient::new(one).put(put("b", "", 77)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::NotFound, "etcdserver: requested lease not found"));
    cluster.are_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_handed_from_node_to_node() {
    let cluster = Cluster::start(3).await;
    let mut keys = Vec::new();
    for node in [1, 2, 3] {
        let channel = to(&cluster, node).await;
        let grant = pb::LeaseGrantRequest { ttl: 600, id: 0 };
        let lease = LeaseClient::new(channel.clone()).lease_grant(grant).await.unwrap().into_inner().id;
        let lock = LockRequest { name: b"db".to_vec(), lease };
        let (mut client, mut kv) = (LockClient::new(channel.clone()), KvClient::new(channel.clone()));
        let waiting = tokio::spawn(async move {
            let key = client.lock(lock).await.unwrap().into_inner().key;
            let oldest = kv.range(oldest("db/", "db0")).await.unwrap().into_inner();
            assert_eq!(oldest.kvs[0].key, key, "whoever came before is gone when it is told");
            key
        });
        // Each stands in line before the next one comes.
        until(&channel, ("db/", "db0"), node as i64).await;
        keys.push((channel, waiting));
    }
    for (place, (channel, waiting)) in keys.into_iter().enumerate() {
        let key = soon("the lock", waiting).await.unwrap();
        assert!(key.starts_with(b"db/"), "place {place}");
        LockClient::new(channel).unlock(UnlockRequest { key }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_kept_alive_outlives_its_leader_with_its_key() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.followers().await[0];
    let channel = to(&cluster, follower).await;
    let grant = pb::LeaseGrantRequest { ttl: 8, id: 0 };
    let lease = LeaseClient::new(channel.clone()).lease_grant(grant).await.unwrap().into_inner().id;
    KvClient::new(channel.clone()).put(put("service", "here", lease)).await.unwrap();
    let (_asks, mut told) = watch(channel.clone(), "service").await;
    let leader = cluster.leader().await;
    cluster.kill9(leader);
    // Whoever keeps trying is heard by the next leader; each try is a stream of its own, as a client that reconnects has.
    let kept = async {
        loop {
            let asked = tokio_stream::once(pb::LeaseKeepAliveRequest { id: lease });
            if let Ok(answers) = LeaseClient::new(channel.clone()).lease_keep_alive(asked).await
                && let Ok(Some(answer)) = answers.into_inner().message().await
            {
                return answer.ttl;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(soon("a renewal", kept).await, 8);
    let read = soon("a read", async { KvClient::new(channel.clone()).range(get("service")).await.unwrap() }).await;
    assert_eq!(read.into_inner().kvs[0].lease, lease);
    LeaseClient::new(channel.clone()).lease_revoke(pb::LeaseRevokeRequest { id: lease }).await.unwrap();
    let gone = soon("the end of the key", told.message()).await.unwrap().unwrap();
    assert_eq!(gone.events[0].r#type, i32::from(tenure_api::etcd::mvccpb::event::EventType::Delete));
    cluster.tell_faults();
}

/// A node that the leader cannot reach tells what it has to whoever is content with that, and to nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_not_denied_by_a_node_that_lags_behind() {
    let mut cluster = Cluster::start(3).await;
    let followers = cluster.followers().await;
    let (one, behind) = (to(&cluster, followers[0]).await, to(&cluster, followers[1]).await);
    let (mut here, mut there) = (KvClient::new(one), KvClient::new(behind));
    here.put(put("a", "old", 0)).await.unwrap();
    assert_eq!(there.range(get("a")).await.unwrap().into_inner().kvs[0].value, b"old");
    let leader = cluster.leader().await;
    cluster.cut(leader, followers[1]);
    cluster.cut(followers[0], followers[1]);
    here.put(put("a", "new", 0)).await.unwrap();
    let stale = pb::RangeRequest { serializable: true, ..get("a") };
    assert_eq!(there.range(stale).await.unwrap().into_inner().kvs[0].value, b"old", "it lags");
    let look = pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(get("a"))) };
    let looks = pb::TxnRequest { success: vec![look], ..pb::TxnRequest::default() };
    // Neither way has an answer before it has caught up.
    let mut again = there.clone();
    let (range, txn) = tokio::join!(there.range(get("a")), again.txn(looks.clone()));
    let no = |status: tonic::Status| (status.code(), status.message().to_owned());
    let expected = (tonic::Code::Unavailable, "etcdserver: no leader".to_owned());
    assert_eq!((range.map(drop).map_err(no), txn.map(drop).map_err(no)), (Err(expected.clone()), Err(expected)));
    cluster.heal();
    let caught_up = async {
        loop {
            if let (Ok(range), Ok(txn)) = (there.range(get("a")).await, there.txn(looks.clone()).await) {
                let pb::response_op::Response::ResponseRange(looked) =
                    txn.into_inner().responses.remove(0).response.unwrap()
                else {
                    panic!("a look is answered as one");
                };
                return (range.into_inner().kvs.remove(0).value, looked.kvs[0].value.clone());
            }
        }
    };
    assert_eq!(soon("an answer", caught_up).await, (b"new".to_vec(), b"new".to_vec()));
    cluster.tell_faults();
}

/// Nobody has to ask twice because a leader died: whoever asks meanwhile waits for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_next_leader() {
    let mut cluster = Cluster::start(3).await;
    let channel = to(&cluster, cluster.followers().await[0]).await;
    KvClient::new(channel.clone()).put(put("a", "here", 0)).await.unwrap();
    let leader = cluster.leader().await;
    cluster.kill9(leader);
    let read = soon("an answer", KvClient::new(channel).range(get("a"))).await.unwrap().into_inner();
    assert_eq!(read.kvs[0].value, b"here");
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_waiting_for_a_lock_leaves_the_line() {
    let cluster = Cluster::start(1).await;
    let channel = to(&cluster, 1).await;
    let lock = || LockRequest { name: b"db".to_vec(), lease: 0 };
    let held = LockClient::new(channel.clone()).lock(lock()).await.unwrap().into_inner().key;
    let mut client = LockClient::new(channel.clone());
    let waiting = tokio::spawn(async move { client.lock(lock()).await });
    until(&channel, ("db/", "db0"), 2).await;
    waiting.abort();
    until(&channel, ("db/", "db0"), 1).await;
    let left = KvClient::new(channel).range(oldest("db/", "db0")).await.unwrap().into_inner();
    assert_eq!(left.kvs[0].key, held);
}

/// However a hand-over and the next one in line meet, nobody waits for what is gone already.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_many_want_goes_round() {
    let cluster = Cluster::start(1).await;
    let turns = (0..8).map(|_| async {
        let channel = to(&cluster, 1).await;
        let grant = pb::LeaseGrantRequest { ttl: 600, id: 0 };
        let lease = LeaseClient::new(channel.clone()).lease_grant(grant).await.unwrap().into_inner().id;
        let mut client = LockClient::new(channel);
        for _ in 0..50 {
            let key = client.lock(LockRequest { name: b"db".to_vec(), lease }).await.unwrap().into_inner().key;
            client.unlock(UnlockRequest { key }).await.unwrap();
        }
    });
    soon("all turns", futures::future::join_all(turns)).await;
}
