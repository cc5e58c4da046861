//! kill -9 under load, again and again on one data directory: every acknowledged operation is there, fences rise, and in
//! service time no deadline moves.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{Server, acquire, claim, deadlines, resources, rounds};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tenure::{Client, v1};

/// What the clients were told, and what they asked without an answer.
#[derive(Default)]
struct Told {
    /// Held for certain: name to fence and lease.
    held: BTreeMap<String, (u64, u64)>,
    /// Released for certain.
    released: BTreeMap<String, u64>,
    /// Asked to be released, answer unknown.
    unsure: BTreeMap<String, u64>,
    fence_max: u64,
}

const CLIENTS: u64 = 8;
const HOUR_MS: i64 = 3_600_000;

/// Acquires and now and then releases, until the server is gone.
async fn load(client: Client, number: u64, round: u64, told: Arc<Mutex<Told>>, done: Arc<AtomicU64>) {
    for n in 0.. {
        let lease = 1 + (round * CLIENTS + number) * 1_000_000 + n;
        let name = format!("load/{round}/{number}/{n}");
        let Ok(fence) = acquire(&client, claim(&name, lease, "kill9", HOUR_MS)).await else { return };
        {
            let mut told = told.lock().unwrap();
            told.held.insert(name.clone(), (fence, lease));
            told.fence_max = told.fence_max.max(fence);
        }
        if n % 3 == 0 {
            told.lock().unwrap().unsure.insert(name.clone(), fence);
            let handle = format!("{name}@{fence}");
            let released = client.release(v1::ReleaseRequest { handle, release_secret: 0 }).await;
            if released.is_ok() {
                let mut told = told.lock().unwrap();
                told.held.remove(&name);
                told.unsure.remove(&name);
                told.released.insert(name, fence);
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn check(client: &Client, told: &Mutex<Told>) {
    let there: BTreeMap<String, v1::Resource> =
        resources(client).await.into_iter().map(|resource| (resource.name.clone(), resource)).collect();
    let told = told.lock().unwrap();
    for (name, (fence, lease)) in &told.held {
        match there.get(name) {
            Some(resource) => assert_eq!((resource.fence, resource.lease), (*fence, *lease), "{name}"),
            None => assert!(told.unsure.contains_key(name), "{name}@{fence} was acknowledged and is gone"),
        }
    }
    for (name, fence) in &told.released {
        assert!(!there.contains_key(name), "{name}@{fence} was released and is back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    let mut before = BTreeMap::new();
    let (rounds, mut killed, mut operations) = (rounds(10), 0, 0);
    for round in 0..rounds {
        let server = Server::start(directory.path());
        let client = server.client().await;
        check(&client, &told).await;
        let now = deadlines(&client).await;
        for (lease, deadline) in &before {
            if let Some(again) = now.get(lease) {
                assert_eq!(again, deadline, "the deadline of lease {lease} moved in service time");
            }
        }
        let fence_max = told.lock().unwrap().fence_max;
        let first = acquire(&client, claim("after/start", 900_000_000 + round, "kill9", 60_000)).await.unwrap();
        assert!(first > fence_max, "fence {first} after {fence_max} was given out");
        client.release(v1::ReleaseRequest { handle: format!("after/start@{first}"), release_secret: 0 }).await.unwrap();
        told.lock().unwrap().fence_max = first;
        let done = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(load(client.clone(), number, round, told.clone(), done.clone())))
            .collect();
        while done.load(Ordering::Relaxed) < 150 + round * 13 % 100 {
            assert!(clients.iter().any(|client| !client.is_finished()), "the server stopped: {}", server.words());
            tokio::task::yield_now().await;
        }
        before = deadlines(&client).await;
        server.kill9();
        killed += 1;
        for client in clients {
            client.await.unwrap();
        }
        operations += done.load(Ordering::Relaxed);
    }
    let server = Server::start(directory.path());
    check(&server.client().await, &told).await;
    println!("{killed} times killed under load, {operations} claims acknowledged");
    assert_eq!(killed, rounds);
}
