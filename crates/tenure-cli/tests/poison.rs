//! An entry of the log that no start survives: the restarts end with a code of their own, and a new cluster without the entry has
//! everything else.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{PATIENCE, Server, binary, text};
use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use tenure_core::{Entry, Leader, Moment, Op, Txn};
use tenure_server::disk::{Directory, Disk, DiskFile, SharedDisk};
use tenure_server::raft::log::{Log, LogOptions, Record};
use tenure_server::{Environment, Node};

const STUCK: i32 = 70;

/// A data directory with a held lease and three keys, of which the last was put by the last entry with a command. Its index.
fn made(directory: &Path) -> u64 {
    let server = Server::start(directory);
    assert!(server.tenure(&["acquire", "jobs/nightly", "--ttl", "1h"]).status.success());
    for key in ["a", "b", "app/secret"] {
        let put = server.tenure(&["key", "put", key, "hunter2"]);
        assert!(put.status.success(), "{}", text(&put.stderr));
    }
    assert!(server.stop().success());
    let (_, entries) = entries(directory);
    let has_command = |(_, bytes): &&(u64, Vec<u8>)| bytes.windows(10).any(|window| window == b"app/secret");
    entries.iter().rfind(has_command).expect("the put is in the log").0
}

/// The last index of a log, and all entries.
fn entries(directory: &Path) -> (u64, Vec<(u64, Vec<u8>)>) {
    let disk: SharedDisk = Arc::new(Directory::new(directory));
    futures::executor::block_on(async {
        let (log, recovered) = Log::open(disk, LogOptions::default()).await.unwrap();
        let reader = log.reader();
        let all: Vec<_> = recovered.entries.iter().map(|at| (at.index, reader.read(at).unwrap())).collect();
        (all.last().unwrap().0, all)
    })
}

fn types(words: &[&str], directory: &Path, more: &[&str]) -> Output {
    Command::new(binary()).args(words).arg(directory).args(more).env("TENURE_LOG_FORMAT", "text").output().unwrap()
}

fn serve(directory: &Path) -> Output {
    types(&["serve", "--listen", "127.0.0.1:0", "--data-dir"], directory, &[])
}

fn recover(from: &Path, new: &Path, skip: &[&str]) -> Output {
    types(&["cluster", "recover", "--from"], from, &[&["--data-dir", new.to_str().unwrap()], skip].concat())
}

/// What a new cluster without the last put has.
fn has_all_but_the_last(directory: &Path) {
    let server = Server::start(directory);
    let value = |key: &str| server.tenure(&["key", "get", key]);
    assert_eq!(text(&value("a").stdout).trim(), "hunter2");
    assert_eq!(text(&value("b").stdout).trim(), "hunter2");
    assert!(!value("app/secret").status.success());
    let shown = text(&server.tenure(&["show", "jobs/nightly"]).stdout);
    assert!(shown.contains("held"), "{shown}");
    assert!(server.tenure(&["acquire", "jobs/other", "--ttl", "1h"]).status.success());
}

#[test]
fn a_process_that_dies_at_one_entry_is_started_three_times() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    let index = made(&old);
    for _ in 0..3 {
        dies(&old, index);
    }
    for _ in 0..2 {
        let refused = serve(&old);
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(STUCK), "{words}");
        for said in [
            format!("the process ended 3 times in a row while it applied entry {index} of the log"),
            "the entry holds 1 x put".into(),
            "nothing was changed".into(),
            "--try-entry-again".into(),
            format!("tenure cluster recover --from {} --skip-entry {index} --data-dir NEW", old.display()),
        ] {
            assert!(words.contains(&said), "{said}: {words}");
        }
        assert!(!words.contains("hunter2") && !words.contains("app/secret"), "{words}");
    }
    let made = recover(&old, &new, &["--skip-entry", &index.to_string()]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stderr).contains("dropped: put key \"app/secret\""), "{}", text(&made.stderr));
    assert!(!text(&made.stderr).contains("hunter2"), "{}", text(&made.stderr));
    has_all_but_the_last(&new);
    // Nothing is wrong with the entry but who applied it.
    let address = tenure_testkit::ports::reserved().to_string();
    let server = Server::start_with(&["--listen", &address, "--data-dir", old.to_str().unwrap(), "--try-entry-again"]);
    assert_eq!(text(&server.tenure(&["key", "get", "app/secret"]).stdout).trim(), "hunter2");
}

/// Starts a node in a process of its own, which is killed when it begins to apply this entry.
fn dies(directory: &Path, index: u64) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "poison::process_that_dies", "--ignored", "--nocapture"])
        .env("POISONED_DIRECTORY", directory)
        .env("POISONED_INDEX", index.to_string())
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert!(signal.is_some(), "it was killed: {child:?}");
}

#[tokio::test]
#[ignore = "a part of the test above, in a process of its own"]
async fn process_that_dies() {
    let directory = std::env::var_os("POISONED_DIRECTORY").unwrap();
    let index = std::env::var("POISONED_INDEX").unwrap().parse().unwrap();
    let disk = Deadly { disk: Directory::new(directory), index };
    if let Ok((node, _)) = Node::open(Environment::alone(Arc::new(disk))).await {
        let _ = tokio::time::timeout(PATIENCE, node.ready()).await;
    }
}

#[derive(Debug)]
struct Deadly {
    disk: Directory,
    index: u64,
}

struct DeadlyFile {
    file: Box<dyn DiskFile>,
    index: u64,
}

impl Disk for Deadly {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.disk.read_at(name, offset, len)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(name)?;
        Ok(if name == "applying" { Box::new(DeadlyFile { file, index: self.index }) } else { file })
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_append(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

impl DiskFile for DeadlyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        if bytes.get(12) == Some(&1) && bytes.starts_with(&self.index.to_le_bytes()) {
            std::process::abort();
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&mut self) -> futures::future::BoxFuture<'_, io::Result<()>> {
        self.file.sync()
    }
}

/// Puts an entry that no build decodes at the end of a log: transactions within each other, deeper than a record may be.
fn plant(directory: &Path) -> u64 {
    let index = entries(directory).0 + 1;
    let nested = (0..60).fold(Txn::default(), |inner, _| Txn::of(Op::Txn(inner)));
    let (leader, commands) = (Leader { term: 1, node: 1 }, vec![tenure_core::Command::Txn(nested)]);
    let rules = tenure_core::limits::RULES_MAX;
    let entry = Entry { leader, now: Moment::from_millis(1), wall_ms: 1, rules, commands }.encode();
    let mut bytes = vec![0x12];
    prost::encoding::encode_varint(entry.len() as u64, &mut bytes);
    bytes.extend_from_slice(&entry);
    let disk: SharedDisk = Arc::new(Directory::new(directory));
    futures::executor::block_on(async {
        let (mut log, _) = Log::open(disk, LogOptions::default()).await.unwrap();
        log.write(&[Record::Entry { index, term: 1, bytes }]).await.unwrap();
        log.close().await.unwrap();
    });
    index
}

#[test]
fn an_entry_that_cannot_be_decoded_is_passed_only_by_a_new_cluster() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    made(&old);
    let index = plant(&old);
    for _ in 0..2 {
        let refused = serve(&old);
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(STUCK), "{words}");
        assert!(words.contains(&format!("entry {index} of the log cannot be decoded")), "{words}");
        assert!(words.contains("the entry holds 1 x transaction; nothing was changed"), "{words}");
    }
    let refused = recover(&old, &new, &[]);
    let words = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(STUCK), "{words}");
    assert!(words.contains(&format!("entry {index} of the log")) && words.contains(&format!("--skip-entry {index}")));
    let refused = recover(&old, &new, &["--skip-entry", &index.to_string(), "--skip-entry", "999999"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains(&format!("to {index} after its snapshot")), "{}", text(&refused.stderr));

    let made = recover(&old, &new, &["--skip-entry", &index.to_string(), "-o", "json"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let told: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(told["dropped"][0]["entry"], index);
    assert_eq!(told["dropped"][0]["commands"][0], "1 x transaction (cannot be decoded)");
    assert!(text(&made.stderr).contains("dropped: 1 x transaction"), "{}", text(&made.stderr));
    let server = Server::start(&new);
    assert_eq!(text(&server.tenure(&["key", "get", "app/secret"]).stdout).trim(), "hunter2");
}
