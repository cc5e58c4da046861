//! Agents over HTTP, as one without gRPC meets the registry: it comes, is well or not, is found, and goes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it is surprised")]

use crate::support::http::ask;
use crate::support::{Server, have, until};
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use tenure_testkit::http_registry::{found, show, told, watch};

fn start() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

/// An agent of shell, and whatever it starts.
struct Agent(Child);

impl Agent {
    /// Kills all of it at once, as a machine that loses its power does.
    fn kill(&mut self) {
        let group = format!("-{}", self.0.id());
        Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The guide's agent, typed as it stands there but for its name and its times.
#[test]
fn five_lines_of_shell_are_an_agent() {
    if !have("curl") {
        return;
    }
    let guide = include_str!("../../../docs/registry.md");
    let script = guide.split("<!-- five lines -->\n```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert_eq!(script.lines().count(), 5, "{script}");
    let quick = [("$(hostname)", "a7"), ("15000", "5000"), ("sleep 4", "sleep 0.2")];
    let script = quick.iter().fold(script.to_owned(), |script, (slow, quick)| {
        assert!(script.contains(slow), "{slow}");
        script.replace(slow, quick)
    });
    let (_directory, server) = start();
    let run = || {
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("TENURE", &server.addr).process_group(0);
        Agent(bash.stdin(Stdio::null()).spawn().unwrap())
    };
    let mut agent = run();
    let mut line = watch(&server, "service=planner");
    until("it is there", || found(&server, "service=planner").pop());
    let (_, mut put) = told(&mut line);
    if put["put"] == json!([]) {
        (_, put) = told(&mut line);
    }
    let lease = put["put"][0]["lease"].clone();
    let began_ms = show(&server, "planner/a7")["now_ms"].as_u64().unwrap();
    until("it has lived for longer than its TTL", || {
        let shown = show(&server, "planner/a7");
        assert_eq!(shown["living"]["lease"], lease, "{shown}");
        (shown["now_ms"].as_u64().unwrap() > began_ms + 8_000).then_some(())
    });
    agent.kill();
    let last = show(&server, "planner/a7");
    assert_eq!(last["living"]["lease"], lease, "a crash is no end");
    let renewed_ms = last["now_ms"].as_u64().unwrap() - last["silent_ms"].as_u64().unwrap();
    let (_, gone) = told(&mut line);
    let end = &gone["removed"][0]["end"];
    assert_eq!((&end["how"], &gone["became_empty"]), (&json!("expired"), &json!(true)), "{gone}");
    // Service time is told in whole milliseconds, twice.
    let ended_ms = end["when_ms"].as_u64().unwrap();
    assert!(ended_ms + 2 >= renewed_ms + 5_000, "it ended {ended_ms}, and was last heard of at {renewed_ms}");

    let mut agent = run();
    let (_, back) = told(&mut line);
    assert_eq!(back["put"][0]["id"], "a7");
    // Taken out behind its back, it registers again by itself.
    ask(&server, "DELETE", "/v1/instances/planner/a7?by=ann", &[], b"").yes();
    assert_eq!(told(&mut line).1["removed"][0]["end"]["how"], "revoked");
    assert_eq!(told(&mut line).1["put"][0]["id"], "a7");
    Command::new("kill").arg(agent.0.id().to_string()).status().unwrap();
    assert_eq!(told(&mut line).1["removed"][0]["end"]["how"], "released");
    agent.0.wait().unwrap();
}
