//! Requests that arrive late, over a connection that stalled, and releases by clients that do not hold what they release: S2 and S12
//! as a holder sees them.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::time::Duration;
use tenure::{Client, Code, Error, Hold, Lease, Loss, v1};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_testkit as support;
use tenure_testkit::holds::{show, until, verify};
use tenure_testkit::http::get;
use tenure_testkit::proxy::Proxy;
use tenure_testkit::{Server, soon};

const TTL: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);

/// An acquire has more bytes, and what HTTP/2 says by itself has fewer.
const ACQUIRE_BYTES: u64 = 40;

/// A server, a client over a wire that may stall, and one without.
async fn house() -> (Server, Proxy, Client, Client) {
    let server = Server::start();
    let proxy = Proxy::start(&server.addr).await;
    let stalling = Client::connect(&proxy.addr).await.unwrap();
    let direct = server.client().await;
    (server, proxy, stalling, direct)
}

/// How often a call was answered, over a stream or not.
fn answered(server: &Server, call: &str) -> u64 {
    let metrics = String::from_utf8(get(server, "/metrics").body).unwrap();
    let of_call = format!("call=\"{call}\"");
    let lines = metrics.lines().filter(|line| line.starts_with("tenure_requests_total{") && line.contains(&of_call));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Lets arrive what was held back, and waits until the server has answered the calls in it.
async fn arrives(server: &Server, proxy: &Proxy, call: &str) {
    let before = answered(server, call);
    proxy.resume();
    support::until_so("what was late arrives", || answered(server, call) > before);
}

/// Holds a lease with something on it, so that the keeper has used its first connection.
async fn begun(client: &Client) -> (Lease, Hold) {
    let life = client.begin().ttl(LONG).holder("ann").begin().await.unwrap();
    let other = life.claim("other").acquire().await.unwrap();
    (life, other)
}

async fn takes(client: &Client, name: &str) -> Result<Hold, Error> {
    client.lease(name).ttl(LONG).holder("bob").acquire().await
}

#[tokio::test(flavor = "multi_thread")]
async fn late_cancel_ends_no_newer_claim() {
    let (server, proxy, client, direct) = house().await;
    let (life, _other) = begun(&client).await;
    let bob = takes(&direct, "db").await.unwrap();
    let waiter = tokio::spawn(life.claim("db").wait_for_ever().acquire());
    until(&direct, "db", |shown| shown.waiting == 1).await;
    proxy.stall();
    // The cancel lies in the stalled connection, and is sent again over another one.
    waiter.abort();
    until(&direct, "db", |shown| shown.waiting == 0).await;
    bob.release().await.unwrap();
    let hold = soon("the claim", life.claim("db").acquire()).await.unwrap();
    arrives(&server, &proxy, "cancel").await;
    assert_eq!(verify(&direct, &hold).await.unwrap().lease, life.lease());
    let refused = takes(&direct, "db").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Taken), "{refused}");
    assert!(hold.ensure().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn late_acquire_leaves_nothing_in_line() {
    let (server, proxy, client, direct) = house().await;
    let (life, _other) = begun(&client).await;
    proxy.stall();
    // Asked for over the stalled connection, and again over another one.
    let hold = soon("the claim", life.claim("db").wait_for_ever().acquire()).await.unwrap();
    hold.release().await.unwrap();
    let bob = takes(&direct, "db").await.unwrap();
    arrives(&server, &proxy, "acquire").await;
    let shown = show(&direct, "db").await;
    assert_eq!((shown.waiting, shown.holders.len()), (0, 1), "{shown:?}");
    bob.release().await.unwrap();
    assert!(show(&direct, "db").await.holders.is_empty(), "nothing was in line");
}

#[tokio::test(flavor = "multi_thread")]
async fn late_acquire_after_its_cancel_takes_nothing() {
    let (server, proxy, client, direct) = house().await;
    let (life, _other) = begun(&client).await;
    let bob = takes(&direct, "db").await.unwrap();
    proxy.stall();
    let asked = tokio::spawn(life.claim("db").wait_for_ever().acquire());
    support::until_so("the acquire lies in the stalled connection", || proxy.held() > ACQUIRE_BYTES);
    // The cancel arrives by another way, and before it.
    asked.abort();
    support::until_so("the cancel is answered", || answered(&server, "cancel") > 0);
    let request = v1::HistoryRequest { resource: "db".into(), ..v1::HistoryRequest::default() };
    let before = direct.history(request.clone()).await.unwrap().events;
    arrives(&server, &proxy, "acquire").await;
    let after = direct.history(request).await.unwrap().events;
    assert_eq!(after, before, "it does not stand in line for a moment");
    bob.release().await.unwrap();
    assert!(show(&direct, "db").await.holders.is_empty());
}

#[tokio::test]
async fn release_by_another_client_waits_for_the_holder() {
    let server = Server::start();
    let (client, direct) = (server.client().await, server.client().await);
    let hold = client.lease("db").ttl(TTL).holder("ann").acquire().await.unwrap();
    let waiter = tokio::spawn(direct.lease("db").ttl(TTL).wait_for_ever().acquire());
    until(&direct, "db", |shown| shown.waiting == 1).await;
    let handle = hold.claims()[0].handle();
    let reply = direct.release(v1::ReleaseRequest { handle, release_secret: 0 }).await.unwrap();
    assert!(reply.free_in_ms > 0, "the reply says how long the next holder waits");
    let shown = show(&direct, "db").await;
    assert_eq!((shown.holders.len(), shown.vacating.len(), shown.waiting), (0, 1, 1), "{shown:?}");
    let loss = soon("the loss", hold.lost()).await;
    let Loss::Ended(end) = &loss else { panic!("{loss:?}") };
    assert_eq!(end.how, "released");
    let next = soon("the seat", waiter).await.unwrap().unwrap();
    assert!(next.fence() > hold.fence() && hold.ensure().is_err());
}

#[tokio::test]
async fn holder_learns_of_a_claim_that_another_client_released() {
    let server = Server::start();
    let (client, direct) = (server.client().await, server.client().await);
    let life = client.begin().ttl(TTL).holder("ann").begin().await.unwrap();
    let (db, log) = (life.claim("db").acquire().await.unwrap(), life.claim("log").acquire().await.unwrap());
    let handle = db.claims()[0].handle();
    direct.release(v1::ReleaseRequest { handle, release_secret: 0 }).await.unwrap();
    soon("the loss", db.lost()).await;
    assert!(log.ensure().is_ok() && life.ensure().is_ok(), "only one of them was released");
    assert_eq!(show(&direct, "db").await.vacating.len(), 1, "others wait until the holder has certainly stopped");
}

#[tokio::test]
async fn what_a_holder_gives_back_is_free_at_once() {
    let server = Server::start();
    let client = server.client().await;
    let (life, other) = begun(&client).await;
    other.release().await.unwrap();
    takes(&client, "other").await.unwrap().release().await.unwrap();
    let hold = life.claim("other").acquire().await.unwrap();
    life.release().await.unwrap();
    drop(hold);
    let _again = takes(&client, "other").await.unwrap();
}

#[tokio::test]
async fn etcd_lease_revoke_leaves_claims_vacating() {
    let server = Server::start();
    let client = server.client().await;
    let hold = client.lease("db").ttl(LONG).holder("ann").acquire().await.unwrap();
    let channel = tonic::transport::Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap();
    let id = i64::try_from(hold.lease()).unwrap();
    LeaseClient::new(channel).lease_revoke(pb::LeaseRevokeRequest { id }).await.unwrap();
    let shown = show(&client, "db").await;
    assert_eq!((shown.holders.len(), shown.vacating.len()), (0, 1), "{shown:?}");
    assert_eq!(takes(&client, "db").await.unwrap_err().code(), Some(Code::Taken));
}
