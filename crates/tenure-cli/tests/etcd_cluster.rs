//! The etcd dialect on three nodes: any of them is asked, watches and locks reach across them, and leases outlive a leader.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::cluster::Cluster;
use crate::support::{PATIENCE, soon};
use std::time::{Duration, Instant};
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

/// Writes, as often as it takes: a machine that stalls may cost the cluster its leader, and then a write is refused or its
/// outcome is not known.
async fn write(channel: &Channel, put: pb::PutRequest) -> pb::PutResponse {
    let written = async {
        loop {
            match KvClient::new(channel.clone()).put(put.clone()).await {
                Ok(written) => return written.into_inner(),
                Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
            }
        }
    };
    soon("a write", written).await
}

/// Grants a lease, as often as it takes.
async fn grant(channel: &Channel, ttl: i64) -> i64 {
    let granted = async {
        loop {
            match LeaseClient::new(channel.clone()).lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await {
                Ok(granted) => return granted.into_inner().id,
                Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
            }
        }
    };
    soon("a lease", granted).await
}

fn get(key: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), ..pb::RangeRequest::default() }
}

/// The value of the last change that a watcher was sent, if it was one.
fn last_value(response: &pb::WatchResponse) -> &[u8] {
    response.events.last().and_then(|event| event.kv.as_ref()).map_or(&[], |kv| &kv.value[..])
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
        let written = write(&one, put("a", &value, 0)).await;
        let read = KvClient::new(other.clone()).range(get("a")).await.unwrap().into_inner();
        assert_eq!(read.kvs[0].value, value.as_bytes(), "what was acknowledged is seen everywhere");
        assert!(read.header.unwrap().revision >= written.header.unwrap().revision);
        // A write whose outcome was not known may have happened twice.
        let changed = async { while last_value(&told.message().await.unwrap().unwrap()) != value.as_bytes() {} };
        soon("the change", changed).await;
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
        let lease = grant(&channel, 600).await;
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

/// A follower that was stopped meanwhile sees the lock become free before it sees that the waiting lease has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_granted_to_a_lease_that_ended() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.followers().await[0];
    let (there, here) = (to(&cluster, leader).await, to(&cluster, follower).await);
    let first = LockRequest { name: b"db".to_vec(), lease: grant(&there, 600).await };
    let first = LockClient::new(there.clone()).lock(first).await.unwrap().into_inner().key;
    let short = grant(&there, 5).await;
    let mut client = LockClient::new(here);
    let waiting = tokio::spawn(async move { client.lock(LockRequest { name: b"db".to_vec(), lease: short }).await });
    until(&there, ("db/", "db0"), 2).await;
    cluster.pause(follower);
    LockClient::new(there.clone()).unlock(UnlockRequest { key: first }).await.unwrap();
    until(&there, ("db/", "db0"), 0).await;
    let other = LockRequest { name: b"db".to_vec(), lease: grant(&there, 600).await };
    soon("the lock", LockClient::new(there.clone()).lock(other)).await.unwrap();
    cluster.go_on(follower);
    let answer = soon("an answer", waiting).await.unwrap().expect_err("the lease of this lock has ended");
    // After its pause the follower may not be able to tell. It must not grant the lock.
    let words = ["session is expired", "request timed out", "no leader"];
    assert!(words.iter().any(|words| answer.message().contains(words)), "{answer}");
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_kept_alive_outlives_its_leader_with_its_key() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.followers().await[0];
    let channel = to(&cluster, follower).await;
    let lease = grant(&channel, 8).await;
    write(&channel, put("service", "here", lease)).await;
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

/// Cuts off a follower, writes, and gives a client of the follower, which has the old value. If the leader changes meanwhile the
/// wrong wires are cut, and it begins again.
async fn lagging(cluster: &mut Cluster) -> KvClient<Channel> {
    let start = Instant::now();
    loop {
        let leader = cluster.leader().await;
        let [one, behind] = cluster.living().into_iter().filter(|node| *node != leader).collect::<Vec<_>>()[..] else {
            panic!("two follow")
        };
        let (one_channel, mut there) = (to(cluster, one).await, KvClient::new(to(cluster, behind).await));
        write(&one_channel, put("a", "old", 0)).await;
        soon("a read", async { while there.range(get("a")).await.is_err() {} }).await;
        cluster.cut(leader, behind);
        cluster.cut(one, behind);
        write(&one_channel, put("a", "new", 0)).await;
        let stale = pb::RangeRequest { serializable: true, ..get("a") };
        if there.range(stale).await.unwrap().into_inner().kvs[0].value == b"old"[..] {
            return there;
        }
        cluster.heal();
        assert!(start.elapsed() < PATIENCE, "a node that is cut off never lags");
    }
}

/// A node that the leader cannot reach tells what it has to whoever is content with that, and to nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_not_denied_by_a_node_that_lags_behind() {
    let mut cluster = Cluster::start(3).await;
    let mut there = lagging(&mut cluster).await;
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
                return [range.into_inner().kvs.remove(0).value, looked.kvs[0].value.clone()];
            }
        }
    };
    assert_eq!(soon("an answer", caught_up).await, ["new", "new"]);
    cluster.tell_faults();
}

/// Nobody has to ask twice because a leader died: whoever asks meanwhile waits for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_next_leader() {
    let mut cluster = Cluster::start(3).await;
    let channel = to(&cluster, cluster.followers().await[0]).await;
    write(&channel, put("a", "here", 0)).await;
    let leader = cluster.leader().await;
    cluster.kill9(leader);
    let read = soon("an answer", KvClient::new(channel).range(get("a"))).await.unwrap().into_inner();
    assert_eq!(read.kvs[0].value, "here");
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
        let lease = grant(&channel, 600).await;
        let mut client = LockClient::new(channel);
        for _ in 0..50 {
            let key = client.lock(LockRequest { name: b"db".to_vec(), lease }).await.unwrap().into_inner().key;
            client.unlock(UnlockRequest { key }).await.unwrap();
        }
    });
    soon("all turns", futures::future::join_all(turns)).await;
}
