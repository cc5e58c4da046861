//! Agents that come and go, from Rust: a guard that comes back by itself, and a view that forgets in time.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::cluster::Cluster;
use crate::support::proxy::Proxy;
use crate::support::{Server, soon};
use std::time::Duration;
use tempfile::TempDir;
use tenure::clock::Clock;
use tenure::registry::{Change, Changes, pushed};
use tenure::v1::Health;
use tenure::{Client, Loss, v1};
use tenure_testkit::agents::{SERVICE, ask, ids, shown, until};

const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

async fn house() -> (TempDir, Server, Client) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    (directory, server, client)
}

async fn change(changes: &mut Changes, what: &str, is_so: impl Fn(&Change) -> bool) -> Change {
    soon(what, async {
        loop {
            let change = changes.next().await.unwrap();
            if is_so(&change) {
                return change;
            }
        }
    })
    .await
}

#[tokio::test]
async fn after_a_long_outage_of_the_server_it_goes_on_as_if_nothing_had_been() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let listed = ask(&client, "a1").ttl(TTL).check(pushed("model")).begin().await.unwrap();
    let lease = listed.lease();
    listed.status("model", Health::Degraded, "slow").await.unwrap();
    let mut changes = listed.changes();
    server.kill9();
    change(&mut changes, "jeopardy", |change| *change == Change::Jeopardy).await;
    change(&mut changes, "the loss", |change| matches!(change, Change::Lost(Loss::Unanswered))).await;
    assert_eq!(listed.remaining(), Duration::ZERO);
    // Nobody hears this now; it is told again later.
    assert!(listed.status("model", Health::Critical, "no memory").await.is_err());
    assert!(listed.drain("upgrade").await.is_err());
    let server = Server::start_at(directory.path(), &addr);
    let back = change(&mut changes, "the return", |change| matches!(change, Change::Held | Change::Again { .. })).await;
    assert_eq!(back, Change::Held, "the server has not counted while it was away, so the lease lives");
    assert_eq!((listed.lease(), listed.epoch()), (lease, 1));
    assert!(!listed.remaining().is_zero());
    let client = server.client().await;
    let shown_now = shown(&client, "a1").await;
    let living = shown_now.living.unwrap();
    assert_eq!((living.lease, living.epoch, shown_now.penalty), (lease, 1, 0), "nobody was moved, and nobody flaps");
    assert_eq!((living.findings[0].health(), living.findings[0].note.as_str()), (Health::Critical, "no memory"));
    assert_eq!(living.draining.unwrap().reason, "upgrade");
    // It is kept, too: its lease is renewed again.
    let clock = Clock::system();
    clock.until(listed.safe_until() + TTL).await;
    assert_eq!(shown(&client, "a1").await.living.unwrap().lease, lease);
    listed.deregister().await.unwrap();
    assert!(shown(&client, "a1").await.living.is_none());
}

/// It answers everything at once that it was asked meanwhile, some of it long ago.
#[tokio::test]
async fn after_a_server_that_stood_still_everybody_goes_on_once() {
    let (_directory, server, client) = house().await;
    let mut all = Vec::new();
    for n in 0..12 {
        // Each with a connection of its own.
        let listed = ask(&server.client().await, &format!("a{n}")).ttl(TTL * 3 / 2).begin().await.unwrap();
        let changes = listed.changes();
        all.push((listed, changes));
    }
    server.signal("STOP");
    for (_, changes) in &mut all {
        change(changes, "the loss", |change| matches!(change, Change::Lost(_))).await;
    }
    // Real time is the subject: so long that the first who asked were told nothing that counts any more.
    tokio::time::sleep(2 * TTL).await;
    server.signal("CONT");
    for (listed, changes) in &mut all {
        assert_eq!(change(changes, "the return", |_| true).await, Change::Held);
        assert!(!listed.remaining().is_zero() && listed.epoch() == 1);
    }
    tokio::time::sleep(2 * TTL).await;
    for (listed, _) in &all {
        assert!(!listed.remaining().is_zero(), "{} is kept", listed.id());
        assert_eq!(shown(&client, &listed.id()).await.living.unwrap().lease, listed.lease());
    }
}

/// They were told that it is lost, and would not know that they hold something still.
#[tokio::test]
async fn a_lease_that_others_relied_on_too_is_left_to_end() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let listed = ask(&client, "a1").ttl(TTL).begin().await.unwrap();
    let wants = vec![v1::Want { resource: "db".into(), ..v1::Want::default() }];
    let claim = v1::AcquireRequest { wants, lease: listed.lease(), ..v1::AcquireRequest::default() };
    let held = client.ask(&claim).acquire().await.unwrap();
    let mut changes = listed.changes();
    server.kill9();
    change(&mut changes, "the loss", |change| matches!(change, Change::Lost(_))).await;
    assert_eq!(soon("the loss of the claim", held.lost()).await, Loss::Unanswered);
    drop(held);
    let server = Server::start_at(directory.path(), &addr);
    let again =
        change(&mut changes, "the return", |change| matches!(change, Change::Held | Change::Again { .. })).await;
    // Each attempt while the server was on its way raised it by one.
    assert!(matches!(again, Change::Again { epoch: 2.., .. }), "{again:?}");
    let other = server.client().await;
    let _next = soon("the claim ends", other.lease("db").ttl(LONG).wait_for_ever().acquire()).await.unwrap();
    assert_eq!(shown(&other, "a1").await.living.unwrap().lease, listed.lease());
}

#[tokio::test]
async fn an_instance_that_was_taken_out_while_it_heard_nobody_does_not_come_back() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    // Long enough for the server to be started twice before it ends by itself.
    let listed = ask(&client, "a1").ttl(2 * TTL).begin().await.unwrap();
    let mut changes = listed.changes();
    server.kill9();
    change(&mut changes, "the loss", |change| matches!(change, Change::Lost(_))).await;
    // Where the agent does not look for it.
    let server = Server::start(directory.path());
    let force = ["deregister", "agents/planner/a1", "--force", "--reason", "test"];
    assert!(server.tenure(&force).status.success());
    server.kill9();
    let server = Server::start_at(directory.path(), &addr);
    let over = soon("its end", listed.over()).await;
    assert!(matches!(&over, Loss::Ended(end) if end.how == "revoked"), "{over:?}");
    assert!(shown(&server.client().await, "a1").await.living.is_none());
}

#[tokio::test]
async fn a_view_forgets_in_time_without_any_network_and_learns_again() {
    let (directory, server, agent) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let (clock, mover) = Clock::movable();
    let watcher = Client::builder().addrs(&server.addr).clock(clock).connect().await.unwrap();
    let _listed = ask(&agent, "a1").ttl(LONG).begin().await.unwrap();
    let mut view = watcher.discover(SERVICE).view().await.unwrap();
    assert_eq!(ids(&view), ["a1"]);
    server.kill9();
    assert_eq!(ids(&view), ["a1"], "it is valid, whether or not a server is there");
    mover.sleep(LONG);
    assert!(ids(&view).is_empty(), "the machine has slept for longer than anybody has promised");
    soon("the change", view.changed()).await;
    // While the server was down time stood still: the lease lives, nothing has changed, and that is told.
    let _server = Server::start_at(directory.path(), &addr);
    until(&mut view, "its return", |view| ids(view) == ["a1"]).await;
}

/// The next server in its list may be one that knows nothing new, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_comes_to_a_node_without_a_leader_goes_on_to_the_next_one() {
    let mut cluster = Cluster::start(3).await;
    let (leader, followers) = (cluster.leader().await, cluster.followers().await);
    let addr = |node: u64| cluster.addrs_from(node).split(',').next().unwrap().to_owned();
    let proxy = Proxy::start(&addr(followers[0])).await;
    let addrs = [proxy.addr.clone(), addr(followers[1]), addr(leader)].join(",");
    let agent = cluster.client_of(leader).await;
    let ttl = Duration::from_secs(6);
    let _first = ask(&agent, "a1").ttl(ttl).begin().await.unwrap();
    let watcher = Client::connect(&addrs).await.unwrap();
    let mut view = watcher.discover(SERVICE).view().await.unwrap();
    until(&mut view, "the first one", |view| ids(view) == ["a1"]).await;
    cluster.isolate(followers[1]);
    proxy.mute();
    let _second = ask(&agent, "a2").ttl(ttl).begin().await.unwrap();
    until(&mut view, "the second one", |view| ids(view) == ["a1", "a2"]).await;
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_leaves_a_node_that_does_not_hear_of_the_leader() {
    let mut cluster = Cluster::start(3).await;
    let node = cluster.followers().await[0];
    let agent = cluster.client_of(cluster.leader().await).await;
    let ttl = Duration::from_secs(4);
    let listed = ask(&agent, "a1").ttl(ttl).begin().await.unwrap();
    let watcher = Client::connect(&cluster.addrs_from(node)).await.unwrap();
    let mut view = watcher.discover(SERVICE).view().await.unwrap();
    cluster.isolate(node);
    let _second = ask(&agent, "a2").ttl(ttl).begin().await.unwrap();
    // The node cannot tell of it, and is still connected: another one is asked before what is known has run out.
    until(&mut view, "the second one", |view| ids(view) == ["a1", "a2"]).await;
    listed.deregister().await.unwrap();
    until(&mut view, "one fewer", |view| ids(view) == ["a2"]).await;
    cluster.tell_faults();
}
