//! `tenure once` and `tenure elect` as they are typed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::wrapped::until;
use crate::support::{Running, Server, binary, text};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn server() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

#[test]
fn what_was_begun_is_not_begun_again_whatever_became_of_it() {
    let (_directory, server) = server();
    for (key, command, code) in [("good", "exit 0", 0), ("bad", "exit 3", 3)] {
        let first = server.tenure(&["once", key, "--", "sh", "-c", &format!("echo begun; {command}")]);
        assert_eq!((first.status.code(), text(&first.stdout).as_str()), (Some(code), "begun\n"), "{first:?}");
        let second = server.tenure(&["once", key, "--", "echo", "begun"]);
        assert_eq!((second.status.code(), text(&second.stdout).as_str()), (Some(0), ""), "{second:?}");
        assert!(text(&second.stderr).contains("was begun by ann@"), "{}", text(&second.stderr));
        let third = server.tenure(&["once", key, "--done-code", "9", "--", "echo", "begun"]);
        assert_eq!(third.status.code(), Some(9));
    }
    for useless in [&["once", "key", "--ttl", "5s", "--", "true"][..], &["elect", "primary", "--holder", "ann"]] {
        assert_eq!(
            server.tenure(useless).status.code(),
            Some(2),
            "an option that does nothing is refused: {useless:?}"
        );
    }
    let left = text(&server.tenure(&["ls", "-o", "json"]).stdout);
    let left: serde_json::Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["items"][0]["ttl_ms"], 72_000_000, "for 20 hours: {left}");
}

#[test]
fn the_mark_is_there_before_the_command_starts_and_after_a_crash() {
    let (directory, server) = server();
    let sign = directory.path().join("started");
    let mut crashed = Command::new(binary())
        .args(["once", "key", "--keep", "1h", "--", "sh", "-c", "touch \"$0\"; exec sleep 1000"])
        .arg(&sign)
        .env("TENURE_ADDR", &server.addr)
        .spawn()
        .unwrap();
    until("the command", || sign.exists());
    crashed.kill().unwrap();
    crashed.wait().unwrap();
    let again = server.tenure(&["once", "key", "--", "echo", "begun"]);
    assert_eq!(text(&again.stdout), "", "{again:?}");
    let kept: serde_json::Value = serde_json::from_slice(&server.tenure(&["ls", "-o", "json"]).stdout).unwrap();
    assert!(kept["items"][0]["remaining_ms"].as_u64().unwrap() > 3_000_000, "nobody is left to renew it: {kept}");
}

#[test]
fn a_failure_is_tried_again_if_that_was_said_and_a_success_is_not() {
    let (_directory, server) = server();
    let once = |command: &str| {
        server.tenure(&[
            "once",
            "key",
            "--retry-failed",
            "--keep",
            "1h",
            "--",
            "sh",
            "-c",
            &format!("echo begun; {command}"),
        ])
    };
    assert_eq!(once("exit 3").status.code(), Some(3));
    assert_eq!(text(&once("exit 0").stdout), "begun\n");
    assert_eq!(text(&once("exit 0").stdout), "");
    let kept: serde_json::Value = serde_json::from_slice(&server.tenure(&["ls", "-o", "json"]).stdout).unwrap();
    assert!(kept["items"][0]["remaining_ms"].as_u64().unwrap() > 3_000_000, "{kept}");
}

#[test]
fn a_candidate_leads_again_and_again_and_whoever_looks_on_sees_it() {
    let (_directory, server) = server();
    let spawn = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.args(args).env("TENURE_ADDR", &server.addr).stdin(Stdio::null()).stdout(Stdio::piped());
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    };
    let mut seeing = spawn(&["elect", "primary"]);
    let mut seen = BufReader::new(seeing.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(seen.next().unwrap(), "nobody leads primary");
    let mut leading =
        spawn(&["elect", "primary", "--holder", "ann", "--", "sh", "-c", "echo $TENURE_FENCE; sleep 0.1"]);
    let mut fences = BufReader::new(leading.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut fence = || fences.next().unwrap().parse::<u64>().unwrap();
    let (first, second) = (fence(), fence());
    assert!(second > first, "it stands again when its command has ended");
    let mut led = 0;
    while led < 2 {
        let line = seen.next().expect("whoever looks on is told of every change");
        led += u32::from(line.starts_with("ann leads primary with fence"));
    }
    for mut child in [leading, seeing] {
        assert!(Command::new("kill").args(["-s", "TERM", &child.0.id().to_string()]).status().unwrap().success());
        let code = child.0.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 143)), "{code:?}");
    }
    until("the end of the lead", || text(&server.tenure(&["ls", "-o", "name"]).stdout).is_empty());
}
