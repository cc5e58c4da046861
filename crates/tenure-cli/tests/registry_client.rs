//! Agents that come and go, from Rust: a guard that comes back by itself, and a view that forgets in time.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::cluster::Cluster;
use crate::support::proxy::Proxy;
use crate::support::{Server, soon};
use std::time::Duration;
use tempfile::TempDir;
use tenure::clock::Clock;
use tenure::registry::{Change, Changes, RegisterAsk, View, pushed};
use tenure::v1::Health;
use tenure::{Client, Code, Loss, v1};

const SERVICE: &str = "agents/planner";
const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

async fn house() -> (TempDir, Server, Client) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    (directory, server, client)
}

fn ask(client: &Client, id: &str) -> RegisterAsk {
    client.register(SERVICE).id(id).endpoint("http://127.0.0.1:9")
}

async fn shown(client: &Client, id: &str) -> v1::ShowInstanceReply {
    let request = v1::ShowInstanceRequest { service: SERVICE.into(), id: id.into(), stale: false };
    client.show_instance(request).await.unwrap()
}

async fn until(view: &mut View, what: &str, is_so: impl Fn(&View) -> bool) {
    soon(what, async {
        while !is_so(view) {
            view.changed().await;
        }
    })
    .await;
}

fn ids(view: &View) -> Vec<String> {
    view.instances().iter().map(|found| found.instance.id.clone()).collect()
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
async fn an_instance_says_what_it_is_and_how_it_is() {
    let (_directory, _server, client) = house().await;
    let listed =
        ask(&client, "a1").ttl(LONG).capability("gpu").zone("fra1").check(pushed("model")).begin().await.unwrap();
    let mut view = client.discover(SERVICE).near("fra1").view().await.unwrap();
    assert!(view.instances().is_empty(), "before it has told, nobody knows");
    assert_eq!(listed.status("model", Health::Passing, "loaded").await.unwrap(), Health::Passing);
    until(&mut view, "passing", |view| ids(view) == ["a1"]).await;
    assert_eq!(view.pick().unwrap().endpoint(), "http://127.0.0.1:9");
    assert_eq!(view.pick_for("some key").unwrap().instance.id, "a1");
    listed.update(|details| details.weight = Some(5)).await.unwrap();
    until(&mut view, "its weight", |view| view.instances()[0].weight() == 5).await;
    assert_eq!(view.instances()[0].instance.health(), Health::Passing, "what its checks found is kept");
    listed.drain("upgrade").await.unwrap();
    until(&mut view, "the drain", |view| ids(view).is_empty()).await;
    listed.undrain().await.unwrap();
    until(&mut view, "the undrain", |view| ids(view) == ["a1"]).await;
    let refused = listed.status("none", Health::Passing, "").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::NoCheck));
    let second = ask(&client, "a1").begin().await.unwrap_err();
    assert_eq!(second.code(), Some(Code::InstanceExists), "{second}");
    listed.deregister().await.unwrap();
    until(&mut view, "its end", |view| ids(view).is_empty()).await;
    let end = shown(&client, "a1").await.past[0].end.clone().unwrap();
    assert_eq!(end.how, "released");
}

/// Real time is the subject: heartbeats are no changes, and nobody may run out of what is told of them.
#[tokio::test]
async fn a_view_is_not_disturbed_while_an_instance_is_heard_of() {
    let (_directory, _server, client) = house().await;
    let _listed = ask(&client, "a1").ttl(Duration::from_secs(12)).begin().await.unwrap();
    let mut view = client.discover(SERVICE).view().await.unwrap();
    until(&mut view, "the instance", |view| ids(view) == ["a1"]).await;
    let changed = tokio::time::timeout(Duration::from_secs(25), view.changed()).await;
    assert!(changed.is_err(), "nothing has changed: {:?}", ids(&view));
    assert_eq!(ids(&view), ["a1"]);
}

#[tokio::test]
async fn a_guard_that_is_dropped_takes_its_instance_out_and_never_waits() {
    let (_directory, _server, client) = house().await;
    drop(ask(&client, "a1").ttl(LONG).begin().await.unwrap());
    assert_eq!(client.close(LONG).await, 0);
    assert_eq!(shown(&client, "a1").await.past[0].end.clone().unwrap().how, "released");
    // The same on a lease that holds other things, which lives on.
    let life = client.begin().ttl(LONG).begin().await.unwrap();
    let held = life.claim("db").acquire().await.unwrap();
    drop(ask(&client, "a2").on(life.lease()).begin().await.unwrap());
    assert_eq!(client.close(LONG).await, 0);
    assert_eq!(shown(&client, "a2").await.past[0].end.clone().unwrap().how, "released");
    assert!(life.ensure().is_ok() && held.ensure().is_ok());
    // And it ends with that lease.
    let listed = ask(&client, "a3").on(life.lease()).begin().await.unwrap();
    life.release().await.unwrap();
    assert_eq!(soon("its end", listed.over()).await, Loss::GivenBack);
    assert!(shown(&client, "a3").await.living.is_none());
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
async fn an_instance_whose_place_was_taken_does_not_come_back() {
    let (_directory, server, client) = house().await;
    let old = ask(&client, "a1").epoch(1).ttl(TTL).begin().await.unwrap();
    let other = server.client().await;
    let new = ask(&other, "a1").epoch(2).ttl(LONG).begin().await.unwrap();
    let over = soon("its end", old.over()).await;
    assert!(matches!(&over, Loss::Ended(end) if end.how == "superseded"), "{over:?}");
    // Nor does it do anything to the one in its place, even when it is dropped.
    assert_eq!(old.drain("its supervisor stops it").await.unwrap_err().code(), Some(Code::OtherLease));
    assert!(shown(&other, "a1").await.living.unwrap().draining.is_none());
    drop(old);
    client.close(LONG).await;
    assert_eq!(shown(&other, "a1").await.living.unwrap().lease, new.lease());
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

#[tokio::test]
async fn a_view_that_was_asked_to_keeps_the_last_good_ones_until_they_are_over() {
    let (_directory, server, agent) = house().await;
    let (clock, mover) = Clock::movable();
    let watcher = Client::builder().addrs(&server.addr).clock(clock).connect().await.unwrap();
    let listed = ask(&agent, "a1").ttl(LONG).begin().await.unwrap();
    let plain = watcher.discover(SERVICE).view().await.unwrap();
    let mut kept = watcher.discover(SERVICE).keep_last_good().view().await.unwrap();
    let mut plain = plain;
    listed.deregister().await.unwrap();
    until(&mut plain, "the end", |view| ids(view).is_empty()).await;
    until(&mut kept, "the end", View::is_last_good).await;
    assert_eq!(ids(&kept), ["a1"]);
    mover.sleep(LONG);
    assert!(ids(&kept).is_empty() && !kept.is_last_good());
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
