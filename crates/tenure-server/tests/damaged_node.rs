//! A whole node on damaged files: it refuses to start and names the file, or what it serves is what was acknowledged.
//! Never a wrong answer.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Acquire, Command, Grant, Holder, LeaseId, Ledger, Name, On, Reply, Ttl, Wait};
use tenure_server::disk::{Disk, MemoryDisk};
use tenure_server::{Clock, Entropy, Environment, Node, Tuning, Workers};

struct Fixed;

impl Clock for Fixed {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_ms(&self) -> u64 {
        1
    }
}

impl Entropy for Fixed {
    fn draw(&self) -> u64 {
        7
    }
}

type Files = BTreeMap<String, Vec<u8>>;

fn environment(disk: &MemoryDisk) -> Environment {
    Environment {
        clock: Arc::new(Fixed),
        entropy: Arc::new(Fixed),
        workers: Workers::Tasks,
        tuning: Tuning { snapshot_log_bytes: 20_000, ..Tuning::default() },
        ..Environment::alone(Arc::new(disk.attach()))
    }
}

fn files(disk: &MemoryDisk) -> Files {
    disk.list().unwrap().into_iter().map(|name| (name.clone(), disk.bytes(&name).unwrap())).collect()
}

/// What a client can see: every lease with its deadline and stakes, and the fence counter.
fn seen(ledger: &Ledger) -> (Vec<String>, u64) {
    (ledger.leases_from(None).map(|(id, lease)| format!("{id} {lease:?}")).collect(), ledger.last_fence())
}

async fn claim(node: &Node, n: u64) {
    let (lease, holder) = (LeaseId::from_number(n).unwrap(), Holder::parse("ann").unwrap());
    let grant = Grant::plain(lease, holder, Ttl::from_millis(3_600_000).unwrap(), n);
    let resource = Name::parse(&format!("r/{}", n % 50)).unwrap();
    let acquire = Command::Acquire(Acquire::exclusive(On::New(grant), resource, Wait::IN_LINE));
    let reply = node.propose(acquire).await.unwrap().unwrap();
    assert!(matches!(reply, Reply::Seated(_) | Reply::Waiting(_)));
}

/// A data directory with a snapshot and a log after it, and what it held.
async fn made() -> (Files, (Vec<String>, u64)) {
    let disk = MemoryDisk::new();
    let (node, _) = Node::open(environment(&disk)).await.unwrap();
    node.ready().await.unwrap();
    for n in 1..=600 {
        claim(&node, n).await;
    }
    let held = node.read_stale(seen);
    node.stop().await;
    let files = files(&disk);
    let snapshots: Vec<_> = files.keys().filter(|name| name.starts_with("snapshot-")).collect();
    assert_eq!(snapshots.len(), 1, "a snapshot was taken, and older ones are gone");
    assert!(!snapshots[0].contains(&"0".repeat(20)), "it says how far it goes");
    assert!(files.keys().any(|name| name.starts_with("log-")), "there is a log after it");
    (files, held)
}

/// Opens damaged files. Ok: it serves, and this is what it holds.
async fn open(files: &Files) -> Result<(Vec<String>, u64), String> {
    let disk = MemoryDisk::new();
    for (name, bytes) in files {
        disk.put(name, bytes);
    }
    open_on(&disk).await
}

async fn open_on(disk: &MemoryDisk) -> Result<(Vec<String>, u64), String> {
    let (node, _) = Node::open(environment(disk)).await.map_err(|error| error.to_string())?;
    let ready = tokio::time::timeout(Duration::from_secs(30), node.ready()).await;
    ready.expect("a node that opens becomes ready")?;
    let held = node.read_stale(seen);
    node.stop().await;
    Ok(held)
}

/// SplitMix64: the same damage for the same seed.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[tokio::test(start_paused = true)]
async fn an_undamaged_directory_opens_as_it_was() {
    let (files, held) = made().await;
    assert_eq!(open(&files).await.unwrap(), held);
}

#[tokio::test(start_paused = true)]
async fn flips_and_cuts_are_detected_or_harmless() {
    let (files, held) = made().await;
    let (mut dice, mut refused, mut harmless) = (42, 0, 0);
    for round in 0..200 {
        for name in files.keys() {
            let mut damaged = files.clone();
            let bytes = damaged.get_mut(name).unwrap();
            let at = draw(&mut dice) as usize % bytes.len();
            if round % 4 == 3 {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << (draw(&mut dice) % 8);
            }
            match open(&damaged).await {
                Ok(opened) => {
                    assert!(opened == held, "{name} was damaged at byte {at}, and another answer was served");
                    harmless += 1;
                }
                Err(why) => {
                    let stem = name.split('-').next().unwrap();
                    assert!(why.contains(stem), "damage to {name} is told as: {why}");
                    refused += 1;
                }
            }
        }
    }
    println!("{} faults: {refused} refused, {harmless} harmless", refused + harmless);
    assert!(refused > 300, "hardly anything was noticed");
}

#[tokio::test(start_paused = true)]
async fn a_missing_snapshot_is_noticed() {
    let (mut files, _) = made().await;
    files.retain(|name, _| !name.starts_with("snapshot-"));
    let why = open(&files).await.expect_err("the log starts after something that is gone");
    assert!(why.contains("a snapshot file is missing"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_shortened_log_is_refused_as_it_is_and_can_be_put_back() {
    let (files, held) = made().await;
    let disk = MemoryDisk::new();
    for (name, bytes) in &files {
        let kept = if name.starts_with("log-") { bytes.len() / 2 } else { bytes.len() };
        disk.put(name, &bytes[..kept]);
    }
    let before = self::files(&disk);
    let why = open_on(&disk).await.expect_err("half of the log is gone");
    assert!(why.contains("its newest files were cut or replaced"), "{why}");
    assert!(before == self::files(&disk), "what is refused is not changed");
    for (name, bytes) in &files {
        disk.put(name, bytes);
    }
    assert_eq!(open_on(&disk).await.unwrap(), held);
}

#[tokio::test(start_paused = true)]
async fn data_without_its_identity_is_refused() {
    let (mut files, _) = made().await;
    files.remove("identity");
    let why = open(&files).await.expect_err("whose data is this?");
    assert!(why.contains("is missing, but there is data beside it"), "{why}");
}
