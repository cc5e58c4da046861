//! The etcd dialect on three nodes: any of them is asked, watches and locks reach across them, and leases outlive a leader.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

mod support;

use std::time::Duration;
use support::cluster::Cluster;
use support::soon;
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
        let mut client = LockClient::new(channel.clone());
        let waiting = tokio::spawn(async move { client.lock(lock).await.unwrap().into_inner().key });
        // Each stands in line before the next one comes.
        let line = pb::RangeRequest { range_end: b"db0".to_vec(), count_only: true, ..get("db/") };
        let stands = async {
            while KvClient::new(channel.clone()).range(line.clone()).await.unwrap().into_inner().count < node as i64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("a place in line", stands).await;
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
