//! Staying calm, by real processes and real time: many who fall silent at once are kept for a while, few are not, and who
//! flaps is held down and never taken out for it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, says what it saw, and gives up after a while"
)]

use crate::support::{PATIENCE, Server, text};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tenure::{Client, v1};

const TTL_MS: u64 = 5_000;

async fn house() -> (TempDir, Server, Client) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    (directory, server, client)
}

/// Registers so many of a service in one zone, and gives their leases by id.
async fn register(client: &Client, service: &str, count: u64) -> BTreeMap<String, u64> {
    let one = |n: u64| async move {
        let id = format!("a{n}");
        let grant = v1::GrantRequest {
            lease: (rand::random::<u64>() >> 1).max(1),
            holder: id.clone(),
            ttl_ms: i64::try_from(TTL_MS).unwrap(),
            request: 1,
            ..Default::default()
        };
        let details =
            v1::Details { endpoints: vec!["http://10.0.0.7:8080".into()], zone: "fra1".into(), ..Default::default() };
        let request = v1::RegisterRequest {
            service: service.into(),
            id: id.clone(),
            grant: Some(grant),
            details: Some(details),
            ..Default::default()
        };
        (id, client.register_instance(request).await.unwrap().lease)
    };
    futures::future::join_all((0..count).map(one)).await.into_iter().collect()
}

async fn renew(client: &Client, leases: impl Iterator<Item = u64>) {
    let request = v1::RenewRequest { leases: leases.collect(), ..Default::default() };
    let reply = client.renew(request).await.unwrap();
    assert!(reply.failures.is_empty(), "{:?}", reply.failures);
}

async fn all(client: &Client, service: &str) -> Vec<v1::Instance> {
    let request = v1::DiscoverRequest { service: service.into(), all: true, ..Default::default() };
    client.discover_page(request).await.unwrap().items
}

/// Beats for all, then for those that stay, until something is so; who stays is never lost.
async fn beat_until(
    client: &Client,
    service: &str,
    staying: &BTreeMap<String, u64>,
    what: &str,
    is_so: impl Fn(&[v1::Instance]) -> bool,
) -> Vec<v1::Instance> {
    let start = Instant::now();
    loop {
        renew(client, staying.values().copied()).await;
        let found = all(client, service).await;
        let is_there = |id: &String| found.iter().any(|item| item.id == *id);
        assert!(staying.keys().all(is_there), "who is heard of is there");
        if is_so(&found) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(TTL_MS / 10)).await;
    }
}

/// How each instance of a service has ended: how, and how long after it was heard of last, at the least.
async fn ends(client: &Client, service: &str, heard_ms: u64) -> BTreeMap<String, (String, u64)> {
    let request = v1::HistoryRequest { prefix: format!("{service}/"), limit: 10_000, ..Default::default() };
    let events = client.history(request).await.unwrap().events;
    let ended = events.into_iter().filter(|event| event.kind == "deregistered");
    ended.map(|event| (event.instance, (event.end.unwrap().how, event.at_ms - heard_ms))).collect()
}

async fn service_time(client: &Client) -> u64 {
    client.status(v1::StatusRequest {}).await.unwrap().now_ms
}

#[tokio::test(flavor = "multi_thread")]
async fn ninety_of_a_hundred_are_kept_as_suspects_and_let_go_in_time_and_five_of_a_hundred_end_at_once() {
    let (_directory, server, client) = house().await;
    let (many, few) = ("agents/many", "agents/few");
    let mut of_many = register(&client, many, 100).await;
    let mut of_few = register(&client, few, 100).await;
    // Twice: how often somebody is heard of is measured.
    for _ in 0..2 {
        renew(&client, of_many.values().chain(of_few.values()).copied()).await;
    }
    let heard_ms = service_time(&client).await;
    let silent_many = of_many.split_off("a18");
    let silent_few = of_few.split_off("a95");
    assert_eq!((silent_many.len(), silent_few.len()), (90, 5));
    let (client_, staying) = (server.client().await, of_few.clone());
    let beating =
        tokio::spawn(async move { beat_until(&client_, few, &staying, "five end", |is| is.len() == 95).await });
    let suspects = |found: &[v1::Instance]| found.iter().filter(|item| item.suspect.is_some()).count();
    let found = beat_until(&client, many, &of_many, "suspects", |found| suspects(found) == 90).await;
    assert_eq!(found.len(), 100, "nobody of the many is gone");
    let suspect = found.iter().find(|item| item.suspect.is_some()).unwrap();
    assert!(suspect.valid_for_ms > 0 && suspect.valid_for_ms <= TTL_MS, "{suspect:?}");
    let why = text(&server.tenure(&["why", &format!("{many}/{}", suspect.id)]).stdout);
    assert!(why.contains("suspect") && why.contains("100"), "the numbers are told:\n{why}");
    beating.await.unwrap();
    beat_until(&client, many, &of_many, "the suspects are let go", |found| found.len() == 10).await;

    let gone = ends(&client, few, heard_ms).await;
    assert_eq!(gone.len(), 5);
    let gone_of_many = ends(&client, many, heard_ms).await;
    assert_eq!(gone_of_many.len(), 90);
    // The sweep may need more than one entry, and time goes in ticks.
    let slack_ms = 1_000;
    for (id, (how, after_ms)) in &gone {
        assert!(how == "expired" && *after_ms <= TTL_MS + slack_ms, "{id}: {how} after {after_ms} ms");
    }
    for (id, (how, after_ms)) in &gone_of_many {
        let in_time = (TTL_MS + 1..=3 * TTL_MS + slack_ms).contains(after_ms);
        assert!(how == "expired" && in_time, "{id}: {how} after {after_ms} ms");
    }
    println!("faults: 95 agents fell silent; {:?} and {:?}", gone.values().next(), gone_of_many.values().next());
}

#[tokio::test]
async fn who_flaps_is_held_down_and_never_taken_out_for_it() {
    let (_directory, server, client) = house().await;
    let name = ("agents/planner", "a1");
    let listed = client
        .register(name.0)
        .id(name.1)
        .endpoint("http://127.0.0.1:9")
        .check(tenure::registry::pushed("model"))
        .begin()
        .await
        .unwrap();
    let lease = listed.lease();
    let mut shown = Vec::new();
    for _ in 0..4 {
        listed.status("model", v1::Health::Critical, "out of memory").await.unwrap();
        shown.push(listed.status("model", v1::Health::Passing, "loaded").await.unwrap());
    }
    assert_eq!(shown.first(), Some(&v1::Health::Passing), "one fall is forgiven");
    assert_eq!(shown.last(), Some(&v1::Health::Degraded), "{shown:?}");
    let found = all(&client, name.0).await;
    assert!(found[0].held_down_ms.is_some_and(|ms| ms > 0) && found[0].routed, "{found:?}");
    assert_eq!(found[0].lease, lease, "it lives on the lease that it had");
    let why = text(&server.tenure(&["why", "agents/planner/a1"]).stdout);
    assert!(why.contains("held down") || why.contains("flap"), "{why}");
    let history = text(&server.tenure(&["history", "agents/planner/a1"]).stdout);
    assert!(history.contains("registered") && history.contains("critical"), "{history}");
    let other = server.tenure(&["history", "agents/planner/a"]);
    assert!(other.status.success() && !text(&other.stdout).contains("a1"), "a name is not a prefix: {other:?}");
    println!("faults: 4 falls");
}
