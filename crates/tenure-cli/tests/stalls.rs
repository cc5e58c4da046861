//! A server that stands still, a disk that is stuck, a disk that fails: holders that keep trying keep their leases, and
//! nothing is acknowledged that is not on disk.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and real time is the subject"
)]

use crate::support;
use crate::support::{Server, acquire, claim, have, renew};
use std::time::{Duration, Instant};
use tenure::{Client, v1};
use tokio::task::JoinHandle;

const TTL_MS: i64 = 4_000;

/// A holder that tries to renew every fifth of its TTL, whatever happens, and tells how its last answered try went.
fn keep_trying(client: Client, lease: u64) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let patience = Duration::from_millis(TTL_MS as u64 / 10);
            if let Ok(Ok(reply)) = tokio::time::timeout(patience, renew(&client, lease)).await {
                assert!(reply.failures.is_empty(), "a holder that kept trying lost its lease: {:?}", reply.failures);
            }
            tokio::time::sleep(patience).await;
        }
    })
}

async fn verify(client: &Client, fence: u64) -> Result<v1::VerifyReply, tenure::Error> {
    client.verify(v1::VerifyRequest { handle: format!("db/leader@{fence}") }).await
}

async fn dropped_ms(client: &Client) -> u64 {
    client.status(v1::StatusRequest {}).await.unwrap().dropped_ms
}

/// The lease still holds, and ends by itself when its holder stops.
async fn holds_and_then_ends(client: &Client, fence: u64, holder: JoinHandle<()>) {
    assert!(!holder.is_finished(), "the holder was told that its lease is gone");
    verify(client, fence).await.expect("the lease of a holder that kept trying is still there");
    holder.abort();
    let start = Instant::now();
    while verify(client, fence).await.is_ok() {
        assert!(start.elapsed() < support::PATIENCE, "the lease of a holder that is gone never ends");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stopped_for_longer_than_the_ttl_loses_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let client = server.client().await;
    let fence = acquire(&client, claim("db/leader", 7, "ann", TTL_MS)).await.unwrap();
    let holder = keep_trying(client.clone(), 7);
    for _ in 0..2 {
        server.signal("STOP");
        // Real time is the subject: the server stands still for more than two TTLs.
        tokio::time::sleep(Duration::from_millis(2 * TTL_MS as u64 + 500)).await;
        server.signal("CONT");
        verify(&client, fence).await.expect("the lease survives the stop");
        tokio::time::sleep(Duration::from_millis(TTL_MS as u64)).await;
    }
    let dropped = dropped_ms(&client).await;
    println!("2 stops of {} ms; {dropped} ms of service time dropped", 2 * TTL_MS + 500);
    assert!(dropped >= TTL_MS as u64, "the stops were not noticed, so nothing was tested");
    holds_and_then_ends(&client, fence, holder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_stuck_for_eight_seconds_loses_nobody() {
    if !have("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The twentieth fdatasync of the writer's thread takes eight seconds; the start needs fewer, two seconds of ticks more.
    let inject = "inject=fdatasync:delay_enter=8000000:when=20";
    let server = Server::start_under(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject], directory.path());
    let client = server.client().await;
    let fence = acquire(&client, claim("db/leader", 7, "ann", TTL_MS)).await.unwrap();
    let holder = keep_trying(client.clone(), 7);
    let start = Instant::now();
    while dropped_ms(&client).await < 5_000 {
        assert!(start.elapsed() < support::PATIENCE, "the disk was never stuck, so nothing was tested");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("1 sync of 8 s; {} ms of service time dropped", dropped_ms(&client).await);
    holds_and_then_ends(&client, fence, holder).await;
}

/// Acquires until the server stops itself, and gives what was acknowledged.
async fn acquire_until_it_stops(server: &mut Server) -> Vec<(String, u64)> {
    let client = server.client().await;
    let mut told = Vec::new();
    for n in 1..10_000 {
        let name = format!("held/{n}");
        match acquire(&client, claim(&name, n, "ann", 3_600_000)).await {
            Ok(fence) => told.push((name, fence)),
            Err(_) => break,
        }
    }
    let status = server.ends();
    assert!(!status.success(), "a server whose disk failed says so: {}", server.words());
    server.until_said("the server has stopped itself");
    told
}

async fn all_there(directory: &std::path::Path, told: &[(String, u64)]) {
    assert!(told.len() > 5, "the disk failed before anything was acknowledged");
    let server = Server::start(directory);
    let there = support::resources(&server.client().await).await;
    for (name, fence) in told {
        let found = there.iter().find(|resource| resource.name == *name);
        assert_eq!(found.map(|resource| resource.fence), Some(*fence), "{name}@{fence} was acknowledged");
    }
    assert!(there.len() <= told.len() + 1, "no more than the one without an answer was added");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_fsync_stops_the_server_and_loses_nothing() {
    if !have("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for inject in ["inject=fdatasync:error=EIO:when=40", "inject=fdatasync:error=EIO:when=25+"] {
        let below = directory.path().join(inject.replace([':', '='], "-"));
        let mut server = Server::start_under(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject], &below);
        let told = acquire_until_it_stops(&mut server).await;
        println!("{inject}: {} claims were acknowledged before", told.len());
        all_there(&below, &told).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_server_and_loses_nothing() {
    if !have("strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let segment = directory.path().join("log-00000000000000000001.seg");
    // The file must be there before strace can watch it by its path.
    Server::start(directory.path()).stop();
    let segment = segment.to_str().unwrap();
    let inject = "inject=write:error=ENOSPC:when=30+";
    let wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", segment, "-e", inject];
    let mut server = Server::start_under(&wrapper, directory.path());
    let told = acquire_until_it_stops(&mut server).await;
    println!("{inject}: {} claims were acknowledged before", told.len());
    all_there(directory.path(), &told).await;
}

/// A file system of its own, gone with its owner.
struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    /// Only root may mount one. Without it the test is skipped, but never in CI.
    fn mount(size: &str) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], at.path());
        assert!(mounted || std::env::var_os("CI").is_none(), "CI needs to mount a small file system");
        if !mounted {
            println!("skipped: only root may mount a small file system");
        }
        mounted.then_some(Self { at })
    }

    fn grow(&self, size: &str) {
        assert!(mount(&["-o", &format!("remount,size={size}")], self.at.path()));
    }
}

fn mount(args: &[&str], at: &std::path::Path) -> bool {
    let mut command = std::process::Command::new("mount");
    command.args(args).arg(at).stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.at.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_system_that_fills_up_loses_nothing_and_can_grow() {
    let Some(disk) = SmallDisk::mount("256k") else { return };
    let mut server = Server::start(disk.at.path());
    let told = acquire_until_it_stops(&mut server).await;
    server.until_said("No space left on device");
    println!("a file system of 256 KiB: {} claims were acknowledged before it was full", told.len());
    disk.grow("64m");
    all_there(disk.at.path(), &told).await;
}
