//! The HTTP door as a client without gRPC meets it: every call, the long poll, the stream of events.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it is surprised")]

use crate::support::http::{Line, post};
use crate::support::{Server, have, until_so as until};
use serde_json::json;
use std::process::Command;
use tenure_testkit::http_claims::{claim, show, stand_in_line, waiting};

fn start() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

#[test]
fn a_stop_answers_who_waits_and_leaves_nobody_in_line() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let mut waits: Vec<Line> = (0..3).map(|_| stand_in_line(&server, &waiting("a", "bob"))).collect();
    let own = json!({"resource": "a", "holder": "eve", "ttl_ms": 60_000, "wait": true, "lease": "e1"});
    waits.push(stand_in_line(&server, &own));
    let mut stream = Line::open(&server);
    stream.ask("GET", "/v1/watch", &[], b"");
    stream.head();
    server.signal("TERM");
    for line in &mut waits {
        assert_eq!(line.answer().no(), (503, "stopping".into()));
    }
    assert!(stream.is_closed());
    assert!(server.stop_ended().success());
    let server = Server::start(directory.path());
    let shown = show(&server, "a");
    assert_eq!((&shown["waiting"], &shown["line"][0]["holder"]), (&json!(1), &json!("eve")));
}

/// The guide's client, typed as it stands there.
#[test]
fn five_lines_of_shell_are_a_client() {
    if !have("curl") || !have("jq") {
        return;
    }
    let guide = include_str!("../../../docs/http.md");
    let script = guide.split("<!-- five lines -->\n```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert_eq!(script.lines().count(), 5, "{script}");
    let (directory, server) = start();
    let work = directory.path().join("nightly-report");
    std::fs::write(&work, "#!/bin/sh\necho \"working with fence $1\"\n").unwrap();
    Command::new("chmod").arg("+x").arg(&work).status().unwrap();
    let run = |script: &str| {
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-c", script])
            .env("TENURE", &server.addr)
            .env("PATH", path)
            .current_dir(&directory)
            .output()
            .unwrap()
    };
    post(&server, "/v1/acquire", &claim("jobs/nightly", "other")).yes();
    let waiting = std::thread::scope(|scope| {
        let client = scope.spawn(|| run(script));
        until("the script stands in line", || show(&server, "jobs/nightly")["waiting"] == 1);
        post(&server, "/v1/release", &json!({"handle": "jobs/nightly@1"})).yes();
        client.join().unwrap()
    });
    println!("{}", String::from_utf8_lossy(&waiting.stderr));
    assert!(waiting.status.success(), "{waiting:?}");
    assert_eq!(String::from_utf8_lossy(&waiting.stdout).lines().last(), Some("working with fence 2"));
    let shown = show(&server, "jobs/nightly");
    assert_eq!((&shown["state"], &shown["past"][0]["end"]["how"]), (&json!("free"), &json!("released")));
}
