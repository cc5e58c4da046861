//! From one holder to the next, with the faults that happen: two programs under one lease never run at the same time. Each
//! stamps the machine's monotonic clock for as long as it lives.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised"
)]

use crate::support::{PATIENCE, Running, Server, binary, rounds};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the programs leave their stamps.
const STAMPS: &str = "TENURE_TEST_STAMPS";

/// The program that is wrapped: this test, by its own name, when it is told where to leave its stamps.
#[test]
fn stamps() {
    let Some(directory) = std::env::var_os(STAMPS) else { return };
    let fence = std::env::var("TENURE_FENCE").unwrap();
    let path = Path::new(&directory).join(format!("{fence}-{}", std::process::id()));
    let mut file = std::fs::File::options().create_new(true).append(true).open(path).unwrap();
    loop {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        writeln!(file, "{}", Duration::try_from(now).unwrap().as_nanos()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is typed to run it.
fn program() -> [String; 4] {
    let this = std::env::current_exe().unwrap();
    [this.to_str().unwrap().into(), "--exact".into(), "handover::stamps".into(), "--nocapture".into()]
}

/// When each program lived, by its fence.
fn lives(directory: &Path) -> BTreeMap<u64, (u128, u128)> {
    let mut lives = BTreeMap::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let fence = name.split('-').next().unwrap().parse().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // The last line may be torn: the program was killed while it wrote.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let stamps: Vec<u128> = whole.lines().map(|line| line.parse().unwrap()).collect();
        if let (Some(first), Some(last)) = (stamps.first(), stamps.last()) {
            assert!(lives.insert(fence, (*first, *last)).is_none(), "two programs had fence {fence}");
        }
    }
    lives
}

/// Whoever has the higher fence lived later, and nobody while another one did.
fn assert_no_overlap(lives: &BTreeMap<u64, (u128, u128)>) {
    let in_order: Vec<(&u64, &(u128, u128))> = lives.iter().collect();
    for pair in in_order.windows(2) {
        let ((_, (_, ended)), (fence, (began, _))) = (pair[0], pair[1]);
        assert!(ended < began, "the one with fence {fence} began {} ns before the other was gone", ended - began);
    }
}

/// Waits for so many programs to have begun.
fn until_begun(directory: &Path, count: usize) {
    let start = Instant::now();
    while lives(directory).len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} have begun", lives(directory).len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wrapped(server: &Server, stamps: &Path, args: &[&str]) -> Running {
    let mut command = Command::new(binary());
    command.args(args).arg("--").args(program()).env("TENURE_ADDR", &server.addr).env(STAMPS, stamps);
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Contends for a resource again and again, until it is told to stop.
fn contend(server: &Server, stamps: PathBuf, is_over: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let addr = server.addr.clone();
    std::thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) {
            let mut command = Command::new(binary());
            command.args(["run", "db", "--ttl", "1500ms", "-w", "20s", "--"]).args(program());
            command.env("TENURE_ADDR", &addr).env(STAMPS, &stamps).stdin(Stdio::null());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while child.try_wait().unwrap().is_none() {
                if is_over.load(Ordering::SeqCst) {
                    let _ = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    })
}

#[test]
fn two_contenders_and_a_server_that_is_paused_again_and_again_never_overlap() {
    let (data, stamps) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path());
    let is_over = Arc::new(AtomicBool::new(false));
    let contenders: Vec<_> = (0..2).map(|_| contend(&server, stamps.path().into(), is_over.clone())).collect();
    let rounds = rounds(5);
    let mut faults = 0;
    for round in 0..rounds {
        until_begun(stamps.path(), usize::try_from(round).unwrap() + 1);
        // Shorter than a program notices, then longer than its lease lives.
        for pause_ms in [200, 2_000] {
            server.signal("STOP");
            std::thread::sleep(Duration::from_millis(pause_ms));
            server.signal("CONT");
            faults += 1;
        }
    }
    until_begun(stamps.path(), usize::try_from(rounds).unwrap() + 1);
    is_over.store(true, Ordering::SeqCst);
    contenders.into_iter().for_each(|contender| contender.join().unwrap());
    let lives = lives(stamps.path());
    println!("{faults} pauses of the server, {} hand-overs", lives.len() - 1);
    assert!(faults > 0 && lives.len() > 1);
    assert_no_overlap(&lives);
}

/// Whoever leads at this moment; if nobody does, the next one.
fn leader(server: &Server) -> usize {
    let start = Instant::now();
    loop {
        let held = server.tenure(&["show", "primary", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_slice(&held.stdout).unwrap();
        let holder = shown["holders"][0]["holder"].as_str().unwrap_or_default();
        if let Some(n) = holder.strip_prefix("candidate-").and_then(|n| n.parse().ok()) {
            return n;
        }
        assert!(start.elapsed() < PATIENCE, "nobody leads: {shown}");
    }
}

#[test]
fn one_leads_at_a_time_however_often_the_leader_is_killed() {
    let (data, stamps) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path());
    let mut candidates: Vec<Running> = Vec::new();
    let stand = |n: u64| {
        let holder = format!("candidate-{n}");
        wrapped(&server, stamps.path(), &["elect", "primary", "--ttl", "1s", "--holder", &holder])
    };
    candidates.extend((0..3).map(stand));
    let rounds = 4 * rounds(2);
    for round in 0..rounds {
        until_begun(stamps.path(), usize::try_from(round).unwrap() + 1);
        let n = leader(&server);
        candidates[n].0.kill().unwrap();
        candidates[n].0.wait().unwrap();
        candidates[n] = stand(n as u64);
    }
    until_begun(stamps.path(), usize::try_from(rounds).unwrap() + 1);
    for mut candidate in candidates {
        let _ = Command::new("kill").args(["-s", "TERM", &candidate.0.id().to_string()]).status();
        candidate.0.wait().unwrap();
    }
    let lives = lives(stamps.path());
    println!("{rounds} leaders killed, {} led", lives.len());
    assert!(rounds > 0);
    assert_no_overlap(&lives);
}
