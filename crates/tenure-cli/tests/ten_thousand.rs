//! Ten thousand claims at once: lists have them all, in order and in straight columns. How long it took is printed.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and says how long it took"
)]

use crate::support::{Server, claim, soon, text};
use std::time::Instant;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, v1};

const CLAIMS: u64 = 10_000;
const HOUR_MS: i64 = 3_600_000;

/// Claims them all on one stream, without waiting for one before asking for the next.
async fn load(client: &Client) {
    let (asking, mut answers) = client.converse().await.unwrap().split();
    tokio::spawn(async move {
        for id in 1..=CLAIMS {
            let acquire = claim(&format!("load/{id:05}"), id, "loader", HOUR_MS);
            asking.send(v1::Request { id, body: Some(Ask::Acquire(acquire)) }).await.unwrap();
        }
    });
    for _ in 0..CLAIMS {
        let answer = soon("an answer", answers.message()).await.unwrap().unwrap();
        assert!(matches!(answer.body, Some(Tell::Acquire(_))), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_them_all() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    load(&server.client().await).await;
    for (args, first) in [(["ls", "load/"].as_slice(), "NAME"), (&["lease", "ls"], "LEASE")] {
        let start = Instant::now();
        let output = server.tenure(args);
        let took = start.elapsed();
        let table = text(&output.stdout);
        println!("{} of {CLAIMS} rows took {} ms", args.join(" "), took.as_millis());
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with(first), "{}", lines[0]);
        assert_eq!(lines.len() as u64, 1 + CLAIMS);
        let column = lines[0].find("HOLDER").unwrap();
        assert!(lines[1..].iter().all(|line| line[column..].starts_with("loader")), "columns are straight");
        assert!(lines[1..].is_sorted(), "rows are in order");
    }
}
