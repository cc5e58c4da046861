//! A whole node whose log has an entry that cannot be applied: it stops with the entry's index, never passes over it, and after
//! the third death in a row does not start.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use futures::future::BoxFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Command, Define, Entry, Leader, Moment, Name, Op, Txn, Units};
use tenure_server::disk::{Disk, DiskFile, MemoryDisk, SharedDisk};
use tenure_server::raft::log::{Log, LogOptions, Record};
use tenure_server::raft::{BadEntry, Fault, OpenError, forget_deaths};
use tenure_server::{Environment, Node, Workers};

/// A disk that kills whoever notes that this entry is applied next, as the entry itself would.
#[derive(Debug)]
struct Deadly {
    disk: SharedDisk,
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
        let is_applied = bytes.get(12) == Some(&1);
        assert!(!(is_applied && bytes.starts_with(&self.index.to_le_bytes())), "this entry is poison");
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&mut self) -> BoxFuture<'_, io::Result<()>> {
        self.file.sync()
    }
}

fn define(n: u64) -> Command {
    let resource = Name::parse(&format!("pool/{n}")).unwrap();
    Command::Define(Define { resource, capacity: Units::from_number(2) })
}

/// A disk on which a node has defined resources 1 to 5, and the last index of its log.
async fn made() -> (MemoryDisk, u64) {
    let disk = MemoryDisk::new();
    let (node, _) = Node::open(environment(Arc::new(disk.attach()))).await.unwrap();
    node.ready().await.unwrap();
    for n in 1..=5 {
        node.propose(define(n)).await.unwrap().unwrap();
    }
    let last = node.status().last_index;
    node.stop().await;
    (disk, last)
}

fn environment(disk: SharedDisk) -> Environment {
    Environment { workers: Workers::Tasks, ..Environment::alone(disk) }
}

/// Opens a node that may stop before or after it is open: the resources that it has, or why it stopped.
async fn run(disk: SharedDisk) -> Result<usize, Stopped> {
    let (node, _) = Node::open(environment(disk)).await.map_err(Stopped::AtStart)?;
    let ready = tokio::time::timeout(Duration::from_secs(30), node.ready()).await.expect("it is ready, or it stops");
    ready.map_err(Stopped::Later)?;
    let held = node.read_stale(|ledger| ledger.resource_count());
    node.stop().await;
    Ok(held)
}

#[derive(Debug)]
enum Stopped {
    AtStart(OpenError),
    Later(String),
}

impl Stopped {
    fn text(&self) -> String {
        match self {
            Self::AtStart(error) => error.to_string(),
            Self::Later(why) => why.clone(),
        }
    }
}

fn deadly(disk: &MemoryDisk, index: u64) -> SharedDisk {
    disk.kill();
    Arc::new(Deadly { disk: Arc::new(disk.attach()), index })
}

#[tokio::test]
async fn third_death_at_one_entry_stops_the_next_start() {
    let (disk, last) = made().await;
    let index = last - 2;
    for death in 1..=3 {
        let why = run(deadly(&disk, index)).await.unwrap_err().text();
        assert!(why.contains(&format!("panicked while it applied entry {index} ")), "death {death}: {why}");
    }
    let refused = run(Arc::new(disk.attach())).await.unwrap_err();
    let Stopped::AtStart(OpenError::Entry(BadEntry { index: told, contents, what: Fault::Died(3) })) = &refused else {
        panic!("it started, or stopped otherwise: {refused:?}")
    };
    assert_eq!((*told, contents.as_str()), (index, "1 x define"), "{}", refused.text());
    disk.kill();
    forget_deaths(&(Arc::new(disk.attach()) as SharedDisk)).unwrap();
    assert_eq!(run(Arc::new(disk.attach())).await.unwrap(), 5, "nothing was passed over");
}

#[tokio::test]
async fn deaths_count_only_in_a_row() {
    let (disk, last) = made().await;
    for _ in 0..2 {
        run(deadly(&disk, last - 2)).await.unwrap_err();
    }
    disk.kill();
    assert_eq!(run(Arc::new(disk.attach())).await.unwrap(), 5);
    for _ in 0..2 {
        run(deadly(&disk, last - 2)).await.unwrap_err();
    }
    run(deadly(&disk, last - 3)).await.unwrap_err();
    disk.kill();
    assert_eq!(run(Arc::new(disk.attach())).await.unwrap(), 5);
}

/// Puts an entry that no build decodes at the end of the log: transactions within each other, deeper than a record may be.
async fn plant(disk: &SharedDisk, index: u64) {
    let nested = (0..60).fold(Txn::default(), |inner, _| Txn::of(Op::Txn(inner)));
    let commands = vec![Command::Txn(nested), define(6)];
    let leader = Leader { term: 1, node: 1 };
    let rules = tenure_core::limits::RULES_MAX;
    let entry = Entry { leader, now: Moment::from_millis(1), wall_ms: 1, rules, commands }.encode();
    let mut bytes = vec![0x12];
    prost::encoding::encode_varint(entry.len() as u64, &mut bytes);
    bytes.extend_from_slice(&entry);
    let (mut log, _) = Log::open(disk.clone(), LogOptions::default()).await.unwrap();
    log.write(&[Record::Entry { index, term: 1, bytes }]).await.unwrap();
    log.close().await.unwrap();
}

#[tokio::test]
async fn entry_that_cannot_be_decoded_stops_every_start() {
    let (disk, last) = made().await;
    disk.kill();
    plant(&(Arc::new(disk.attach()) as SharedDisk), last + 1).await;
    for _ in 0..2 {
        disk.kill();
        let refused = run(Arc::new(disk.attach())).await.unwrap_err();
        let Stopped::AtStart(OpenError::Entry(entry)) = &refused else { panic!("{refused:?}") };
        assert_eq!(entry.index, last + 1);
        assert_eq!(entry.contents, "1 x define, 1 x transaction");
        assert!(matches!(&entry.what, Fault::Unreadable(why) if why.contains("recursion limit")), "{entry:?}");
    }
}
