//! The stream, the watch and the reads as clients see them over the wire.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support;
use crate::support::{Server, acquire, claim, renew, soon};
use std::time::Duration;
use tenure::{Client, v1};
use tenure_testkit::holds::events;

const MINUTE_MS: i64 = 60_000;

async fn release(client: &Client, name: &str, fence: u64) {
    client.release(v1::ReleaseRequest { handle: format!("{name}@{fence}"), release_secret: 0 }).await.unwrap();
}

#[tokio::test]
async fn a_watch_is_exact_in_order_and_resumes_also_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    for n in 1..=20 {
        let fence = acquire(&client, claim(&format!("w/{n}"), n, "ann", MINUTE_MS)).await.unwrap();
        renew(&client, n).await.unwrap();
        release(&client, &format!("w/{n}"), fence).await;
    }
    let from_start = Some(v1::Cursor::default());
    let (all, _) = events(&client, from_start, 80).await;
    assert_eq!(all.len(), 80, "granted, seated, vacated and ended for each; a renewal makes none");
    for (event, next) in all.iter().zip(&all[1..]) {
        let follows = if event.last { (event.revision + 1, 0) } else { (event.revision, event.n + 1) };
        assert_eq!((next.revision, next.n), follows, "no gap and no repeat");
    }
    // Resumed in the middle of a revision, after the server was killed.
    server.kill9();
    let server = Server::start(directory.path());
    let client = server.client().await;
    let middle = &all[40];
    let after = Some(v1::Cursor { revision: middle.revision, n: middle.n });
    let (rest, cursor) = events(&client, after, 39).await;
    assert_eq!(rest, all[41..]);
    assert_eq!((cursor.revision, cursor.n), (all[79].revision, all[79].n));
    // A watch from now on sees only what is new, and only what it asked for.
    let request = v1::WatchRequest { prefix: "new/".into(), after: None, ..v1::WatchRequest::default() };
    let mut watch = client.watch_stream(request).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().events.is_empty(), "first it tells where it stands");
    acquire(&client, claim("old/thing", 100, "ann", MINUTE_MS)).await.unwrap();
    acquire(&client, claim("new/thing", 101, "ann", MINUTE_MS)).await.unwrap();
    let seen = loop {
        let reply = soon("an event", watch.message()).await.unwrap().unwrap();
        if !reply.events.is_empty() {
            break reply.events;
        }
    };
    assert_eq!(seen.iter().map(|event| event.resource.as_str()).collect::<Vec<_>>(), ["new/thing"]);
}

#[tokio::test]
async fn after_a_crash_time_goes_on_and_leases_end_though_nobody_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    acquire(&client, claim("long", 1, "ann", 60 * MINUTE_MS)).await.unwrap();
    let now = async |client: &Client| client.status(v1::StatusRequest {}).await.unwrap().now_ms;
    // Real time is the subject: the service has run for longer than any step.
    let two_seconds = async {
        while now(&client).await < 2_000 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("service time", two_seconds).await;
    acquire(&client, claim("short", 2, "ann", 1_000)).await.unwrap();
    let before = now(&client).await;
    server.kill9();
    let server = Server::start(directory.path());
    let client = server.client().await;
    let after = now(&client).await;
    assert!(after + 1_000 >= before, "service time went back from {before} to {after}");
    let ended = async {
        while support::resources(&client).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the end of the short lease", ended).await;
}
