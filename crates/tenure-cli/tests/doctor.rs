//! The doctor against real servers: what is found, and what the exit code says.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{Server, binary, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Verdict and finding of each check, and the exit code.
fn doctor(addr: &str, directory: &Path) -> (BTreeMap<String, (String, String)>, i32) {
    let mut command = Command::new(binary());
    let output = command.args(["doctor", "-o", "json", "--addr", addr, "--data-dir"]).arg(directory).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let word = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
    let items = found["items"].as_array().unwrap().iter();
    let checks = items.map(|item| (word(item, "check"), (word(item, "verdict"), word(item, "found"))));
    (checks.collect(), output.status.code().unwrap())
}

#[test]
fn a_server_that_runs_is_found_with_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    let before = files();
    let (checks, code) = doctor(&server.addr, directory.path());
    assert_eq!(checks["server"].0, "ok");
    assert_eq!(checks["version"].0, "ok");
    assert!(checks["data in use"].1.ends_with(&format!("pid {}", server.pid())), "{checks:?}");
    assert!(checks["leases"].1.starts_with("0 of"), "{checks:?}");
    for check in
        ["clock source", "open files", "free disk", "disk sync", "data directory", "round trip", "time dropped"]
    {
        assert!(checks.contains_key(check), "{check}: {checks:?}");
    }
    let is_bad = checks.values().any(|(verdict, _)| verdict == "bad");
    assert_eq!(code, i32::from(is_bad), "{checks:?}");
    assert_eq!(files(), before, "nothing is left in the data directory");
    assert!(server.stop().success(), "and the server did not notice");
}

#[test]
fn nobody_and_nothing_are_told_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("not/yet");
    let (checks, code) = doctor("http://127.0.0.1:1", &missing);
    assert_eq!((checks["server"].0.as_str(), code), ("bad", 1));
    assert!(checks["data directory"].1.contains("not there yet"), "{checks:?}");
    assert_eq!(checks["data in use"].1, "by no server");
    assert!(!missing.exists() && std::fs::read_dir(directory.path()).unwrap().count() == 0);
    let (checks, _) = doctor("http://127.0.0.1:99999", &missing);
    assert!(checks["server"].1.ends_with("is not an address"), "{checks:?}");
    let people = Command::new(binary()).args(["doctor", "--addr", "http://127.0.0.1:1"]).output().unwrap();
    let words = text(&people.stdout);
    assert!(words.lines().any(|line| line.starts_with("bad") && line.contains("`tenure serve`")), "{words}");
}

#[test]
fn it_looks_where_the_settings_say_that_the_data_is() {
    let directory = tempfile::tempdir().unwrap();
    let (config, data) = (directory.path().join("tenure.toml"), directory.path().join("elsewhere"));
    std::fs::write(&config, format!("data_dir = {data:?}\n")).unwrap();
    let mut command = Command::new(binary());
    command.args(["doctor", "--addr", "http://127.0.0.1:1", "--config"]).arg(&config).env_remove("TENURE_DATA_DIR");
    let words = text(&command.output().unwrap().stdout);
    assert!(words.contains(&data.display().to_string()), "{words}");
}

#[test]
fn a_relative_directory_is_found_and_a_file_is_none() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let words = |data: &str| {
        let mut command = Command::new(binary());
        command.args(["doctor", "--addr", "http://127.0.0.1:1", "--data-dir", data]).current_dir(&directory);
        text(&command.output().unwrap().stdout)
    };
    assert!(words("data").contains("data, mode"), "{}", words("data"));
    assert!(words("file").contains("file is a file"), "{}", words("file"));
}
