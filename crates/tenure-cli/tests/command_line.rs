//! The command line as people and scripts meet it: what is printed where, and the exit codes.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{Server, binary, text};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn started() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

#[test]
fn a_handle_goes_through_its_life() {
    let (_directory, server) = started();
    let acquired = server.tenure(&["acquire", "jobs/nightly", "--ttl", "30s", "--holder", "ann"]);
    assert_eq!((text(&acquired.stdout).as_str(), text(&acquired.stderr).as_str()), ("jobs/nightly@1\n", ""));
    let taken = server.tenure(&["acquire", "jobs/nightly"]);
    assert_eq!(taken.status.code(), Some(75));
    assert!(text(&taken.stderr).contains("jobs/nightly is held by ann"), "{}", text(&taken.stderr));
    assert_eq!(text(&taken.stdout), "");
    let renewed = server.tenure(&["renew", "jobs/nightly@1", "--ttl", "1m"]);
    assert!(renewed.status.success() && text(&renewed.stderr).contains("for 1m00s"));
    assert!(server.tenure(&["verify", "jobs/nightly@1"]).status.success());
    assert!(server.tenure(&["release", "jobs/nightly@1"]).status.success());
    assert!(server.tenure(&["release", "jobs/nightly@1"]).status.success(), "a retry finds that it worked");
    let stale = server.tenure(&["verify", "jobs/nightly@1"]);
    assert_eq!(stale.status.code(), Some(1));
    assert!(text(&stale.stderr).contains("its claim was released"));
    assert_eq!(server.tenure(&["verify", "nonsense"]).status.code(), Some(2));
    assert_eq!(server.tenure(&["acquire", "a//b"]).status.code(), Some(2));
    assert_eq!(server.tenure(&["acquire", "a", "--ttl", "soon"]).status.code(), Some(2));
    assert_eq!(server.tenure(&["acquire", "a", "--ttl", "1ms"]).status.code(), Some(2));
}

#[test]
fn what_cannot_be_read_is_told_like_every_other_no() {
    let run = |args: &[&str]| Command::new(binary()).args(args).env_remove("TENURE_ADDR").output().unwrap();
    for args in [&["acquire", "a", "--ttl", "soon"][..], &["explain", "30s"], &["aquire"], &["acquire"]] {
        let refused = run(args);
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words}");
        let first = words.lines().next().unwrap().trim_end_matches(':');
        assert!(first.starts_with("tenure: ") && first.ends_with("; nothing was changed"), "{words}");
    }
    let nowhere = run(&["ping", "--addr", "127.0.0.1:99999"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", text(&nowhere.stderr));
    assert!(text(&nowhere.stderr).contains("--addr http://"), "{}", text(&nowhere.stderr));
    let bare = text(&run(&[]).stderr);
    assert!(bare.starts_with("Leases: ") && bare.contains("\nEveryday:\n"), "help is no failure: {bare}");
    let foreign = text(&run(&["ping", "--addr", "ftp://127.0.0.1:1"]).stderr);
    assert!(foreign.contains("only http:// and https:// are spoken"), "{foreign}");
}

#[test]
fn what_is_done_in_part_is_told_and_everything_is_never_meant() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("made/by/serve");
    let server = Server::start(&data);
    for name in ["a", "b"] {
        assert!(server.tenure(&["acquire", name, "--ttl", "1m"]).status.success());
    }
    let partly = server.tenure(&["release", "a@1", "b@9", "b@2"]);
    assert_eq!(partly.status.code(), Some(1));
    assert!(text(&partly.stderr).contains("2 of 3 were released"), "{}", text(&partly.stderr));
    assert!(server.tenure(&["key", "put", "k", "v"]).status.success());
    assert_eq!(server.tenure(&["key", "rm", "--prefix", ""]).status.code(), Some(2));
    assert!(server.tenure(&["key", "get", "k"]).status.success(), "and nothing was deleted");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&data).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700, "what the server makes is the server's");
}

#[test]
fn why_counts_all_that_the_first_in_line_waits_for() {
    let (_directory, server) = started();
    assert!(server.tenure(&["acquire", "docs/x", "--ttl", "1m", "--holder", "ann"]).status.success());
    assert!(server.tenure(&["acquire", "gpu/c", "--ttl", "10h", "--holder", "train"]).status.success());
    let mut command = Command::new(binary());
    command.args(["acquire", "docs/x", "gpu/c", "--holder", "multi", "--wait", "1h"]);
    let command = command.env("TENURE_ADDR", &server.addr).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waits = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waits.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("place 1"), "{line}");
    let why = text(&server.tenure(&["why", "docs/x"]).stdout);
    assert!(why.contains("multi can start in 9h"), "{why}");
    waits.kill().unwrap();
    waits.wait().unwrap();
}

#[test]
fn a_watch_tells_of_several_prefixes_and_where_to_go_on() {
    let (_directory, server) = started();
    for name in ["a/1", "b/1", "c/1"] {
        assert!(server.tenure(&["acquire", name, "--ttl", "1m", "--holder", "ann"]).status.success());
    }
    let mut command = Command::new(binary());
    command.args(["watch", "a/", "c/", "--after", "0"]).env("TENURE_ADDR", &server.addr);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for name in ["a/1@1", "c/1@3"] {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&format!("ann holds {name}")), "{line}");
    }
    assert!(server.tenure(&["acquire", "a/2", "--ttl", "1m", "--holder", "ann"]).status.success());
    assert!(lines.next().unwrap().unwrap().contains("ann holds a/2@4"));
    server.kill9();
    let ended = watch.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(69));
    assert!(text(&ended.stderr).contains("tenure watch a/ c/ --after 4"), "{}", text(&ended.stderr));
}

#[test]
fn ls_prints_what_it_promises_in_every_form() {
    let (_directory, server) = started();
    let empty = server.tenure(&["ls", "-o", "json"]);
    assert_eq!(text(&empty.stdout), "{\"items\":[]}\n");
    server.tenure(&["acquire", "b", "--ttl", "1h", "--holder", "bob"]);
    server.tenure(&["acquire", "a", "--ttl", "1h", "--holder", "ann"]);
    assert_eq!(text(&server.tenure(&["ls", "-o", "name"]).stdout), "a@2\nb@1\n");
    let json: serde_json::Value = serde_json::from_slice(&server.tenure(&["ls", "-o", "json"]).stdout).unwrap();
    let first = &json["items"][0];
    assert_eq!((first["name"].as_str(), first["holder"].as_str()), (Some("a"), Some("ann")));
    assert_eq!((first["state"].as_str(), first["fence"].as_u64()), (Some("held"), Some(2)));
    assert_eq!((first["ttl_ms"].as_u64(), first["waiting"].as_u64()), (Some(3_600_000), Some(0)));
    assert!(first["remaining_ms"].as_u64().unwrap() > 3_500_000);
    let lines = text(&server.tenure(&["ls", "-o", "jsonl"]).stdout);
    assert_eq!(lines.lines().count(), 2);
    let table = text(&server.tenure(&["ls", "b"]).stdout);
    assert!(table.starts_with("NAME") && table.contains("bob") && !table.contains("ann"), "{table}");
}

#[test]
fn waiting_in_line_ends_with_the_handle_or_with_75() {
    let (_directory, server) = started();
    let at_once = server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann", "--wait", "0s"]);
    assert_eq!(text(&at_once.stdout), "db@1\n", "what is free is taken without patience");
    assert!(server.tenure(&["verify", "db@1"]).status.success(), "and it is kept");
    let impatient = server.tenure(&["acquire", "db", "--wait", "300ms"]);
    assert_eq!(impatient.status.code(), Some(75), "{}", text(&impatient.stderr));
    let leases: serde_json::Value =
        serde_json::from_slice(&server.tenure(&["lease", "ls", "-o", "json"]).stdout).unwrap();
    assert_eq!(leases["items"].as_array().unwrap().len(), 1, "whoever gave up left nothing behind");
    let patient = Command::new(binary())
        .args(["acquire", "db", "--wait", "1m", "--ttl", "2s"])
        .env("TENURE_ADDR", &server.addr)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let joined = (0..1_000).any(|_| {
        let listed: serde_json::Value = serde_json::from_slice(&server.tenure(&["ls", "-o", "json"]).stdout).unwrap();
        listed["items"][0]["waiting"] == 1
    });
    assert!(joined, "the waiter never joined the line");
    assert!(server.tenure(&["release", "db@1"]).status.success());
    let seated = patient.wait_with_output().unwrap();
    assert_eq!(text(&seated.stdout), "db@2\n", "{}", text(&seated.stderr));
}

#[test]
fn leases_are_granted_listed_and_revoked() {
    let (_directory, server) = started();
    let id = text(&server.tenure(&["lease", "grant", "--ttl", "1h", "--holder", "ann"]).stdout).trim().to_owned();
    assert_eq!(id.len(), 16);
    assert_eq!(text(&server.tenure(&["lease", "ls", "-o", "name"]).stdout).trim(), id);
    assert!(server.tenure(&["lease", "revoke", &id, "--reason", "test"]).status.success());
    assert!(server.tenure(&["lease", "revoke", &id]).status.success(), "a retry finds that it worked");
    assert_eq!(text(&server.tenure(&["lease", "ls", "-o", "name"]).stdout), "");
    assert_eq!(server.tenure(&["lease", "revoke", "0000000000000001"]).status.code(), Some(1));
    assert_eq!(server.tenure(&["lease", "revoke", "xyz"]).status.code(), Some(2));
    let pong: serde_json::Value = serde_json::from_slice(&server.tenure(&["ping", "-o", "json"]).stdout).unwrap();
    assert_eq!((pong["leads"].as_bool(), pong["leases"].as_u64()), (Some(true), Some(0)));
}

#[test]
fn without_a_server_the_exit_code_is_69_and_the_words_say_what_to_do() {
    let nobody = Command::new(binary()).args(["ls", "--addr", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(69));
    assert!(text(&nobody.stderr).contains("tenure serve"), "{}", text(&nobody.stderr));
}

#[test]
fn a_second_server_on_the_same_data_is_refused_and_the_first_goes_on() {
    let (directory, server) = started();
    let serve = |args: &[&str]| {
        Command::new(binary()).arg("serve").args(args).arg("--data-dir").arg(directory.path()).output().unwrap()
    };
    let second = serve(&["--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    let words = text(&second.stderr);
    assert!(words.contains("is in use by another tenure server (pid "), "{words}");
    let open = serve(&["--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(2), "beyond loopback only with --insecure");
    assert!(server.tenure(&["ping"]).status.success());
    assert!(server.stop().success(), "SIGTERM is a clean stop");
}

#[test]
fn after_kill_9_the_same_leases_are_there_with_the_time_they_had_left() {
    let (directory, server) = started();
    server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann"]);
    let remaining = |server: &Server| {
        let listed: serde_json::Value = serde_json::from_slice(&server.tenure(&["ls", "-o", "json"]).stdout).unwrap();
        assert_eq!(listed["items"][0]["name"], "db");
        listed["items"][0]["remaining_ms"].as_u64().unwrap()
    };
    let before = remaining(&server);
    server.kill9();
    let server = Server::start(directory.path());
    assert!(server.words().contains("(1 lease recovered)"), "{}", server.words());
    let after = remaining(&server);
    // Time goes on from the last entry that is on disk, at most two steps before what was shown.
    assert!(after <= before + 1_000 && after > before - 60_000, "{before} ms before, {after} ms after");
}
