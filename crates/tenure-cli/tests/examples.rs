//! The examples do what they say, against a real server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::wrapped::until;
use crate::support::{PATIENCE, Server, binary, text};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Built beside the binary, by the same `cargo test`.
fn example(name: &str) -> PathBuf {
    Path::new(binary()).parent().unwrap().join("examples").join(name)
}

fn start(server: &Server, name: &str, args: &[&str]) -> Child {
    let mut command = Command::new(example(name));
    command.args(args).env("TENURE_ADDR", &server.addr).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for its end. One that never comes to it is killed, and has failed.
fn ends(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn said(server: &Server, name: &str, args: &[&str]) -> String {
    let output = ends(start(server, name, args));
    assert!(output.status.success(), "{name}: {output:?}");
    text(&output.stdout)
}

fn server() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

#[test]
fn every_shard_of_a_job_is_done_once() {
    let (_directory, server) = server();
    let workers: Vec<Child> = (0..3).map(|_| start(&server, "job", &["12"])).collect();
    let said: Vec<String> = workers.into_iter().map(|worker| text(&ends(worker).stdout)).collect();
    // Who found a shard taken may have left before it was done.
    let rest = self::said(&server, "job", &["12"]);
    let lines: Vec<&str> = said.iter().chain([&rest]).flat_map(|said| said.lines()).collect();
    let shards: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(" with").next()).collect();
    assert_eq!((lines.len(), shards.len()), (12, 12), "{lines:?}");
}

#[test]
fn another_one_leads_when_the_leader_dies() {
    let (_directory, server) = server();
    let lines = |child: &mut Child| BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut ann = start(&server, "leader", &["ann"]);
    let mut anns = lines(&mut ann);
    let first = anns.next().unwrap();
    let mut bob = start(&server, "leader", &["bob"]);
    ann.kill().unwrap();
    ann.wait().unwrap();
    let second = lines(&mut bob).next().unwrap();
    bob.kill().unwrap();
    bob.wait().unwrap();
    let fence = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(first.starts_with("ann leads") && second.starts_with("bob leads"), "{first} {second}");
    assert!(fence(&second) > fence(&first));
}

#[test]
fn a_session_ends_when_nobody_uses_it() {
    let (_directory, server) = server();
    let mut session = start(&server, "session", &["5"]);
    let mut stdin = session.stdin.take().unwrap();
    // For twice its TTL: it lives because it is used. One that has ended hears nothing more.
    for n in 1..=100 {
        let _ = writeln!(stdin, "line {n}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = text(&ends(session).stdout);
    assert!(said.contains("used: line 100\n") && said.ends_with("the session is over: its time is over\n"), "{said}");
    drop(stdin);
    // Its holder knows the end a little before anybody else can see it.
    let keys = || text(&server.tenure(&["key", "ls", "-o", "name"]).stdout);
    until("the end of what hangs on it", || keys().is_empty());
}

#[test]
fn a_reservation_is_kept_by_decision() {
    let (_directory, server) = server();
    assert!(server.tenure(&["acquire", "example/gpus", "--slots", "2/4", "--ttl", "10m"]).status.success());
    let said = said(&server, "reservation", &["2"]);
    assert!(said.contains("2 of 4 GPUs are ours") && said.contains("kept for 7200 s more"), "{said}");
    assert!(said.ends_with("given back\n"), "{said}");
}

#[test]
fn a_cache_is_dropped_before_it_is_overwritten() {
    let (_directory, server) = server();
    let said = said(&server, "cache", &[]);
    let expected = ["wrote 10", "read 10", "somebody wants to write: the copy is dropped", "wrote 12", "read 12"];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_holder_that_was_paused_is_refused_by_the_fence() {
    let (_directory, server) = server();
    let said = said(&server, "pause", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1] == "ann wrote \"one\"" && lines[4] == "bob wrote \"two\"", "{said}");
    assert!(lines[6].starts_with("ann was refused: fence ") && lines[6].contains("is stale"), "{said}");
    assert_eq!(lines[7..], ["the file says:", "ann one", "bob two"], "{said}");
}
