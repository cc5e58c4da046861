//! The client crate against a real server: what is held is held, what is lost is known in time, what is let go is free.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::proxy::Proxy;
use crate::support::{Server, soon};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::{Client, Loss, Standing, v1};
use tenure_testkit::holds::{show, until, verify};

const TTL: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);

async fn house() -> (tempfile::TempDir, Server, Client) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    (directory, server, client)
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_within_the_ttl_costs_neither_the_lease_nor_the_place_in_line() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let hold = client.lease("db").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let waiter = tokio::spawn(client.lease("db").ttl(Duration::from_secs(20)).wait_for_ever().acquire());
    let line = until(&client, "db", |shown| shown.waiting == 1).await.line;
    let proxy = Proxy::start(&server.addr).await;
    let far = Client::connect(&proxy.addr).await.unwrap();
    let far_waiter = tokio::spawn(far.lease("db").ttl(Duration::from_secs(20)).wait_for_ever().acquire());
    until(&client, "db", |shown| shown.waiting == 2).await;
    server.kill9();
    let mut standing = hold.standing();
    soon("jeopardy", standing.wait_for(|standing| *standing == Standing::Jeopardy)).await.unwrap();
    // Whoever waits knocks now and then, and not as fast as it is turned away.
    let clock = Clock::system();
    let knocks = proxy.connections();
    clock.until(clock.now() + Duration::from_secs(1)).await;
    let knocks = proxy.connections() - knocks;
    assert!(knocks < 20, "{knocks} connections in a second");
    far_waiter.abort();
    let _server = Server::start_at(directory.path(), &addr);
    soon("the all-clear", standing.wait_for(|standing| *standing == Standing::Held)).await.unwrap();
    let client = Client::connect(&addr).await.unwrap();
    assert_eq!(verify(&client, &hold).await.unwrap().lease, hold.lease());
    hold.release().await.unwrap();
    let seated = soon("the seat", waiter).await.unwrap().unwrap();
    assert_eq!(seated.lease(), line[0].lease, "it kept its place");
}

#[tokio::test]
async fn what_is_lost_is_known_in_time_without_any_network() {
    let (_directory, server, client) = house().await;
    let hold = client.lease("db").ttl(TTL).acquire().await.unwrap();
    server.signal("STOP");
    let loss = soon("the loss", hold.lost()).await;
    let late = Clock::system().now().since(hold.safe_until());
    assert!(Clock::system().now() >= hold.safe_until() && late < Duration::from_secs(5), "in its time: {late:?} late");
    assert_eq!((loss, hold.ensure()), (Loss::Unanswered, Err(Loss::Unanswered)));
    assert!(hold.cancellation_token().is_cancelled());
    server.signal("CONT");
    // It is over for good, also if the server would have taken a renewal.
    until(&client, "db", |shown| shown.holders.is_empty()).await;
    assert!(hold.ensure().is_err());
}

#[tokio::test]
async fn close_tells_what_could_not_be_given_back() {
    let (_directory, server, client) = house().await;
    let hold = client.lease("db").ttl(LONG).acquire().await.unwrap();
    server.signal("STOP");
    drop(hold);
    let (clock, patience) = (Clock::system(), Duration::from_millis(300));
    let begun = clock.now();
    assert_eq!(client.close(patience).await, 1);
    assert!(clock.now() >= begun + patience, "it waited for as long as it was allowed to");
    server.signal("CONT");
    assert_eq!(client.close(LONG).await, 0);
    assert!(show(&client, "db").await.holders.is_empty());
}

#[tokio::test]
async fn a_watch_goes_on_where_it_stopped_when_the_server_was_away() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let revision = client.status(v1::StatusRequest {}).await.unwrap().revision;
    let mut watch = client.watch("db/").after(v1::Cursor { revision, n: u32::MAX });
    let put = |client: Client, n: u64| async move {
        let hold = client.lease(format!("db/{n}")).ttl(LONG).acquire().await.unwrap();
        hold.leave();
    };
    put(client.clone(), 0).await;
    let mut seen = Vec::new();
    let mut server = Some(server);
    for n in 0..4 {
        while seen.len() <= n {
            let reply = soon("an event", watch.next()).await.unwrap();
            seen.extend(reply.events.into_iter().filter(|event| event.kind == "seated").map(|event| event.resource));
        }
        drop(server.take());
        server = Some(Server::start_at(directory.path(), &addr));
        put(Client::connect(&addr).await.unwrap(), n as u64 + 1).await;
    }
    assert_eq!(seen, ["db/0", "db/1", "db/2", "db/3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_while_the_server_was_away_can_be_asked_for_again() {
    let (directory, server, client) = house().await;
    let addr = server.addr.trim_start_matches("http://").to_owned();
    let life = client.begin().ttl(LONG).begin().await.unwrap();
    server.kill9();
    let asked = life.claim("db").wait(LONG).acquire();
    let given_up = tokio::time::timeout(Duration::from_millis(100), asked).await;
    assert!(given_up.is_err(), "nobody is there to answer: {given_up:?}");
    let _server = Server::start_at(directory.path(), &addr);
    // Long before the lease is over, by which time nothing could be on its way.
    let hold = soon("the same claim", life.claim("db").acquire()).await.unwrap();
    assert!(hold.ensure().is_ok());
}
