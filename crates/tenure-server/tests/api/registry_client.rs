//! Agents that come and go, from Rust: a guard that comes back by itself, and a view that forgets in time.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::registry::{View, pushed};
use tenure::v1::Health;
use tenure::{Client, Code, Loss, v1};
use tenure_testkit::agents::{SERVICE, ask, ids, shown, until};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::{Server, soon, until_so};

const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

async fn house() -> (Server, Client) {
    let server = Server::start();
    let client = server.client().await;
    (server, client)
}

#[tokio::test]
async fn an_instance_says_what_it_is_and_how_it_is() {
    let (_server, client) = house().await;
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

/// S21: messages that were on their way for seconds make nothing valid for longer.
#[tokio::test(flavor = "multi_thread")]
async fn slow_wire_does_not_lengthen_validity() {
    let (server, direct) = house().await;
    let (clock, ttl) = (Clock::system(), Duration::from_secs(12));
    let grant = v1::GrantRequest { ttl_ms: 12_000, holder: "ann".into(), ..Default::default() };
    let details = v1::Details { endpoints: vec!["http://127.0.0.1:9".into()], ..Default::default() };
    let request = v1::RegisterRequest {
        service: SERVICE.into(),
        id: "a1".into(),
        grant: Some(grant),
        details: Some(details),
        ..Default::default()
    };
    let lease = direct.register_instance(request).await.unwrap().lease;
    let proxy = Proxy::start(&server.addr).await;
    let client = Client::connect(&proxy.addr).await.unwrap();
    proxy.delay(Duration::from_secs(2));
    let mut view = client.discover(SERVICE).view().await.unwrap();
    let is_valid = |view: &View, ends: BootTime| view.instances().iter().all(|found| found.until <= ends);
    for _ in 0..2 {
        direct.renew(v1::RenewRequest { leases: vec![lease], ..Default::default() }).await.unwrap();
        // The lease ends by then at the latest, unless it is renewed again.
        let ends = clock.now() + ttl;
        let before = view.instances()[0].until;
        until_so("what the renewal has given", || view.instances().iter().any(|found| found.until > before));
        assert!(is_valid(&view, ends), "{:?} is after {ends:?}", view.instances()[0].until);
    }
    soon("its end", async {
        while !ids(&view).is_empty() {
            view.changed().await;
        }
    })
    .await;
}

/// Real time is the subject: heartbeats are no changes, and nobody may run out of what is told of them.
#[tokio::test]
async fn a_view_is_not_disturbed_while_an_instance_is_heard_of() {
    let (_server, client) = house().await;
    let _listed = ask(&client, "a1").ttl(Duration::from_secs(12)).begin().await.unwrap();
    let mut view = client.discover(SERVICE).view().await.unwrap();
    until(&mut view, "the instance", |view| ids(view) == ["a1"]).await;
    let changed = tokio::time::timeout(Duration::from_secs(25), view.changed()).await;
    assert!(changed.is_err(), "nothing has changed: {:?}", ids(&view));
    assert_eq!(ids(&view), ["a1"]);
}

#[tokio::test]
async fn a_guard_that_is_dropped_takes_its_instance_out_and_never_waits() {
    let (_server, client) = house().await;
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
async fn an_instance_whose_place_was_taken_does_not_come_back() {
    let (server, client) = house().await;
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
async fn a_view_that_was_asked_to_keeps_the_last_good_ones_until_they_are_over() {
    let (server, agent) = house().await;
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
