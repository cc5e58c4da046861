//! etcd-rust ENDPOINT: the calls of the crate etcd-client on keys, leases, watches, members and maintenance, and its Lock
//! and Election services. Stops at the first answer that is not the expected one.

use etcd_client::{
    AlarmAction, AlarmType, Client, CompactionOptions, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions,
    LeaseGrantOptions, LeaseTimeToLiveOptions, LockOptions, ProclaimOptions, PutOptions, ResignOptions, SortOrder,
    SortTarget, Txn, TxnOp, WatchOptions,
};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

type Answer = Result<(), Error>;

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} never came"))
}

fn refused<T>(words: &str, answer: Result<T, Error>) {
    let error = answer.err().unwrap_or_else(|| panic!("{words}: nothing was refused"));
    assert!(error.to_string().contains(words), "{error}");
}

async fn keys(client: &mut Client) -> Answer {
    client.put("rs/a", "15", None).await?;
    client.put("rs/b", "20", None).await?;
    let put = client.put("rs/b", "21", Some(PutOptions::new().with_prev_key())).await?;
    assert_eq!(put.prev_key().unwrap().value(), b"20");
    let then = put.header().unwrap().revision();
    assert_eq!(client.get("rs/b", None).await?.kvs()[0].value_str()?, "21");
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Mod, SortOrder::Descend).with_limit(1);
    let found = client.get("rs/", Some(options)).await?;
    assert_eq!((found.kvs()[0].key_str()?, found.more(), found.count()), ("rs/b", true, 2));
    assert_eq!(client.get("rs/b", Some(GetOptions::new().with_revision(then - 1))).await?.kvs()[0].value(), b"20");
    assert_eq!(client.get("", Some(GetOptions::new().with_all_keys().with_count_only())).await?.count(), 2);
    let txn = Txn::new()
        .when([Compare::value("rs/a", CompareOp::Equal, "15"), Compare::version("rs/b", CompareOp::Greater, 1)])
        .and_then([TxnOp::put("rs/a", "18", Some(PutOptions::new().with_ignore_lease())), TxnOp::get("rs/a", None)])
        .or_else([TxnOp::txn(Txn::new().and_then([TxnOp::delete("rs/a", None)]))]);
    assert!(client.txn(txn.clone()).await?.succeeded());
    assert!(!client.txn(txn).await?.succeeded());
    assert_eq!(client.get("rs/a", None).await?.count(), 0, "the transaction within the other deleted it");
    let gone = client.delete("rs/b", Some(DeleteOptions::new().with_prev_key())).await?;
    assert_eq!((gone.deleted(), gone.prev_kvs()[0].value()), (1, b"21".as_slice()));
    client.compact(then, Some(CompactionOptions::new().with_physical())).await?;
    refused("required revision has been compacted", client.compact(then, None).await);
    Ok(())
}

async fn leases(client: &mut Client) -> Answer {
    let lease = client.lease_grant(600, None).await?;
    let (id, ttl) = (lease.id(), lease.ttl());
    assert!(id > 0 && ttl == 600);
    client.put("leased/a", "1", Some(PutOptions::new().with_lease(id))).await?;
    let live = client.lease_time_to_live(id, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    assert!(live.ttl() > 590 && live.granted_ttl() == 600 && live.keys() == [b"leased/a".to_vec()], "{live:?}");
    let (mut keeper, mut beats) = client.lease_keep_alive(id).await?;
    keeper.keep_alive().await?;
    assert_eq!(soon("a beat", beats.message()).await?.unwrap().ttl(), 600);
    assert!(client.leases().await?.leases().iter().any(|lease| lease.id() == id));
    client.lease_revoke(id).await?;
    assert_eq!(client.get("leased/a", None).await?.count(), 0);
    assert_eq!(client.lease_time_to_live(id, None).await?.ttl(), -1);
    keeper.keep_alive().await?;
    assert_eq!(soon("a beat", beats.message()).await?.unwrap().ttl(), 0, "a lease that is gone has no time");
    refused("requested lease not found", client.lease_revoke(id).await);
    client.lease_grant(600, Some(LeaseGrantOptions::new().with_id(4711))).await?;
    refused("lease already exists", client.lease_grant(600, Some(LeaseGrantOptions::new().with_id(4711))).await);
    client.lease_revoke(4711).await?;
    Ok(())
}

async fn watches(client: &mut Client) -> Answer {
    let mut stream = client.watch("watched/", Some(WatchOptions::new().with_prefix().with_watch_id(1))).await?;
    let created = soon("a watcher", stream.message()).await?.unwrap();
    assert!(created.created() && created.watch_id() == 1);
    let first = client.put("watched/a", "1", None).await?.header().unwrap().revision();
    client.put("watched/a", "2", None).await?;
    client.delete("watched/a", None).await?;
    let mut heard = Vec::new();
    while heard.len() < 3 {
        let answer = soon("an event", stream.message()).await?.unwrap();
        heard.extend(answer.events().iter().map(|event| (event.event_type(), event.kv().unwrap().value().to_vec())));
    }
    let put = |value: &str| (EventType::Put, value.as_bytes().to_vec());
    assert_eq!(heard, [put("1"), put("2"), (EventType::Delete, Vec::new())]);
    stream.request_progress().await?;
    let progress = soon("progress", stream.message()).await?.unwrap();
    assert!(progress.events().is_empty() && progress.header().unwrap().revision() == first + 2, "{progress:?}");
    let options = WatchOptions::new().with_watch_id(2).with_start_revision(first + 1).with_prev_key();
    stream.watch("watched/a", Some(options)).await?;
    assert!(soon("a second watcher", stream.message()).await?.unwrap().created());
    let past = soon("the past", stream.message()).await?.unwrap();
    assert_eq!(past.watch_id(), 2);
    assert_eq!(past.events()[1].prev_kv().unwrap().value(), b"2");
    stream.cancel(2).await?;
    assert!(soon("an end", stream.message()).await?.unwrap().canceled());
    Ok(())
}

async fn locks(client: &mut Client) -> Answer {
    let alone = client.lock("rs", None).await?;
    client.unlock(alone.key()).await?;
    let lease = client.lease_grant(600, None).await?.id();
    let first = client.lock("rs", Some(LockOptions::new().with_lease(lease))).await?;
    assert!(first.key().starts_with(b"rs/"));
    let other = client.lease_grant(600, None).await?.id();
    let mut waiter = client.clone();
    let waiting =
        tokio::spawn(async move { waiter.lock("rs", Some(LockOptions::new().with_lease(other))).await.unwrap() });
    while client.get("rs/", Some(GetOptions::new().with_prefix().with_count_only())).await?.count() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "one at a time");
    client.unlock(first.key()).await?;
    let second = soon("the next", waiting).await.unwrap();
    assert!(second.key() != first.key());
    client.lease_revoke(other).await?;
    assert_eq!(client.get(second.key(), None).await?.count(), 0, "a lock goes with its lease");
    refused("requested lease not found", client.lock("rs", Some(LockOptions::new().with_lease(other))).await);
    client.lease_revoke(lease).await?;
    Ok(())
}

async fn elections(client: &mut Client) -> Answer {
    refused("election: no leader", client.leader("rs").await);
    let (ann, bob) = (client.lease_grant(600, None).await?.id(), client.lease_grant(600, None).await?.id());
    let campaign = client.campaign("rs", "ann", ann).await?;
    let leader = campaign.leader().unwrap();
    assert_eq!((leader.name(), leader.lease()), (b"rs".as_slice(), ann));
    let mut news = client.observe("rs").await?;
    assert_eq!(soon("a leader", news.message()).await?.unwrap().kv().unwrap().value(), b"ann");
    client.proclaim("ann at noon", Some(ProclaimOptions::new().with_leader(leader.clone()))).await?;
    assert_eq!(soon("news", news.message()).await?.unwrap().kv().unwrap().value(), b"ann at noon");
    let mut waiter = client.clone();
    let waiting = tokio::spawn(async move { waiter.campaign("rs", "bob", bob).await.unwrap() });
    assert_eq!(client.leader("rs").await?.kv().unwrap().value(), b"ann at noon");
    client.resign(Some(ResignOptions::new().with_leader(leader.clone()))).await?;
    let next = soon("the next", waiting).await.unwrap();
    assert_eq!(next.leader().unwrap().lease(), bob);
    assert_eq!(soon("news", news.message()).await?.unwrap().kv().unwrap().value(), b"bob");
    let late = client.proclaim("ann again", Some(ProclaimOptions::new().with_leader(leader.clone()))).await;
    refused("election: not leader", late);
    client.lease_revoke(bob).await?;
    client.lease_revoke(ann).await?;
    refused("election: no leader", client.leader("rs").await);
    Ok(())
}

async fn server(client: &mut Client) -> Answer {
    assert!(client.alarm(AlarmAction::Get, AlarmType::None, None).await?.alarms().is_empty());
    let status = client.status().await?;
    assert!(status.version().starts_with("3.5.") && status.leader() != 0, "{status:?}");
    client.hash_kv(0).await?;
    client.hash().await?;
    client.defragment().await?;
    let members = client.member_list().await?;
    assert!(members.members().iter().any(|member| member.id() == status.leader()));
    Ok(())
}

#[tokio::main]
async fn main() -> Answer {
    let endpoint = std::env::args().nth(1).expect("an endpoint");
    let mut client = Client::connect([endpoint], None).await?;
    keys(&mut client).await?;
    println!("keys: done");
    leases(&mut client).await?;
    println!("leases: done");
    watches(&mut client).await?;
    println!("watches: done");
    locks(&mut client).await?;
    println!("locks: done");
    elections(&mut client).await?;
    println!("elections: done");
    server(&mut client).await?;
    println!("rust etcd-client: done");
    Ok(())
}
