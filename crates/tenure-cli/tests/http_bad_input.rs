//! Whatever comes in at the HTTP door: refused with a stable code and nothing changed, or bounded; and the server up.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::Server;
use crate::support::http::{Line, get};

const JSON: &str = "content-type: application/json";

fn start() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

/// The memory that a process has, in bytes.
fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn watchers_that_never_read_cost_no_more_than_their_sockets() {
    let (_directory, server) = start();
    let watchers: Vec<Line> = (0..40)
        .map(|_| {
            let mut line = Line::open(&server);
            line.ask("GET", "/v1/watch?after=0", &[], b"");
            assert_eq!(line.head().status, 200);
            line
        })
        .collect();
    let before = memory(&server);
    // Each event has a key of 8 KiB, which every watcher would be told: 940 MiB in all, of which the sockets take a fifth.
    let key = "k".repeat(8 * 1024);
    let mut writer = Line::open(&server);
    for n in 0..3000 {
        writer.ask("PUT", &format!("/v1/keys/{key}{n}"), &[JSON], br#"{"value":"v"}"#);
        writer.answer().yes();
    }
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 300 * 1024 * 1024, "{} MiB for watchers that never read", grown >> 20);
    drop(watchers);
    assert_eq!(get(&server, "/v1/status").status, 200);
}
