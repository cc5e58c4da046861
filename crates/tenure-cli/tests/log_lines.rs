//! The log as programs read it: one JSON document a line, from the start to the stop, with what an operator wants to know
//! and nothing that is none of an operator's business.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support;
use crate::support::{PATIENCE, binary, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// A server whose log is read line by line. Dropping it kills it.
struct Logged {
    child: Child,
    /// Read by a thread, because a server whose log nobody reads stands still.
    lines: Receiver<String>,
    heard: Vec<Value>,
}

impl Logged {
    fn start(directory: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory).args(args);
        command.env_remove("TENURE_LOG_FORMAT").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (heard, lines) = sync_channel(1_000_000);
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
        Self { child, lines, heard: Vec::new() }
    }

    /// Reads on until a line with such a message. Every line has to be JSON.
    fn until(&mut self, message: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|why| panic!("{message} never came, {why}: {:?}", self.heard));
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            self.heard.push(value.clone());
            if value["message"].as_str().is_some_and(|words| words.starts_with(message)) {
                return value;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tenure(address: &str, args: &[&str]) {
    let output = Command::new(binary()).args(args).args(["--addr", address]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_life_from_start_to_stop_is_told_in_json_where_nobody_watches() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Logged::start(directory.path(), &[]);
    assert_eq!(server.until("starting")["version"], env!("CARGO_PKG_VERSION"));
    let ready = server.until("ready");
    assert!(ready["listen"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
    assert_eq!(ready["data_dir"], directory.path().to_str().unwrap());
    assert_eq!(
        (ready["leases"].as_u64(), ready["term"].as_u64(), ready["level"].as_str()),
        (Some(0), Some(1), Some("INFO"))
    );
    assert!(ready["took_ms"].is_u64(), "{ready}");

    tenure(ready["listen"].as_str().unwrap(), &["acquire", "db", "--ttl", "1h"]);
    server.signal("STOP");
    // Real time is the subject: a stall counts from half a second on.
    std::thread::park_timeout(Duration::from_millis(1_500));
    server.signal("CONT");
    let stall = server.until("a stall");
    assert_eq!(stall["level"], "WARN");
    assert!(stall["dropped_ms"].as_u64().unwrap() > 0 && stall["dropped_ms"] == stall["total_ms"], "{stall}");

    server.signal("TERM");
    server.until("stopping");
    server.until("stopped; everything acknowledged is on disk");
    assert!(server.child.wait().unwrap().success());
    assert!(server.lines.recv().is_err(), "it is the last line");
}

#[test]
fn what_went_wrong_is_the_last_line() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Logged::start(directory.path(), &[]);
    first.until("ready");
    let mut second = Logged::start(directory.path(), &[]);
    let why = second.until("cannot serve");
    assert_eq!(why["level"], "ERROR");
    assert!(why["message"].as_str().unwrap().contains("is in use by another tenure server"), "{why}");
    assert_eq!(second.child.wait().unwrap().code(), Some(1));
}

#[test]
fn no_log_however_long_holds_the_value_of_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Logged::start(directory.path(), &["--log", "trace"]);
    let ready = server.until("ready");
    tenure(ready["listen"].as_str().unwrap(), &["key", "put", "db/password", "correct-horse-battery"]);
    server.signal("TERM");
    server.until("stopped");
    let all = server.heard.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(server.heard.len() > 100, "trace says much: {}", server.heard.len());
    let as_numbers: Vec<String> = b"correct-horse".iter().map(ToString::to_string).collect();
    for form in ["correct-horse".to_owned(), as_numbers.join(", ")] {
        assert!(!all.contains(&form), "{}", all.lines().find(|line| line.contains(&form)).unwrap_or_default());
    }
}

#[test]
fn text_is_to_be_had_where_nobody_watches_and_nonsense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = support::Server::start(directory.path());
    assert!(server.words().starts_with("tenure: "), "{}", server.words());
    drop(server);
    let mut refused = Logged::start(directory.path(), &["--log", "tenure=loud"]);
    let words = refused.lines.recv_timeout(PATIENCE).unwrap();
    assert!(words.contains("tenure=loud is no filter for the log"), "{words}");
    assert_eq!(refused.child.wait().unwrap().code(), Some(2));
}
