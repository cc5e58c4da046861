//! Readers of the disk beside a writer that deletes what they read. A disk lets the writer act at one point between two
//! operations of the reader, and the tests go through all points: threads cannot interleave in another way that matters here.

use super::log::{Log, LogOptions};
use super::mark::Mark;
use super::shelf::{Shelf, Snapshot};
use super::store::Store;
use super::types::{RaftEntry, RaftLogId};
use crate::clock::SystemClock;
use crate::disk::{Disk, DiskFile, MemoryDisk, SharedDisk};
use crate::metrics::Metrics;
use crate::workers::Workers;
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, entry::RaftEntry as _};
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

type Act = Box<dyn FnOnce() + Send>;

/// A disk on which something happens before one of its operations.
struct Interleaved {
    disk: MemoryDisk,
    /// What happens, and before how many more operations.
    act: Mutex<Option<(usize, Act)>>,
}

impl Debug for Interleaved {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Interleaved")
    }
}

impl Interleaved {
    fn new(disk: &MemoryDisk) -> Arc<Self> {
        Arc::new(Self { disk: disk.attach(), act: Mutex::default() })
    }

    fn before(&self, operations: usize, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().unwrap() = Some((operations, Box::new(act)));
    }

    /// Whether it has not happened, because the reader was done before.
    fn is_over(&self) -> bool {
        self.act.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    fn step(&self) {
        let mut act = self.act.lock().unwrap();
        match act.take() {
            Some((0, now)) => {
                // What it does may use this disk.
                drop(act);
                now();
            }
            Some((operations, later)) => *act = Some((operations - 1, later)),
            None => {}
        }
    }
}

impl Disk for Interleaved {
    fn list(&self) -> io::Result<Vec<String>> {
        self.step();
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.step();
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.step();
        self.disk.read_at(name, offset, len)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
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

fn snapshot(index: u64) -> Snapshot {
    Snapshot { meta: index.to_le_bytes().to_vec(), body: Arc::new(vec![7; 100]) }
}

#[test]
fn a_snapshot_is_loaded_beside_a_save() {
    let mut points = 0;
    loop {
        let disk = MemoryDisk::new();
        let other = Shelf::new(Arc::new(disk.attach()));
        block_on(other.save(1, &snapshot(1))).unwrap();
        let interleaved = Interleaved::new(&disk);
        interleaved.before(points, move || block_on(other.save(2, &snapshot(2))).unwrap());
        let loaded = Shelf::new(interleaved.clone()).load().unwrap().expect("there is one at any time");
        assert!([1, 2_u64].map(|index| index.to_le_bytes().to_vec()).contains(&loaded.meta));
        if interleaved.is_over() {
            break;
        }
        points += 1;
    }
    assert!(points >= 2, "it acted before each operation: {points}");
}

#[test]
fn a_snapshot_that_goes_under_the_read_is_not_there() {
    let disk = MemoryDisk::new();
    block_on(Shelf::new(Arc::new(disk.attach())).save(1, &snapshot(1))).unwrap();
    let interleaved = Interleaved::new(&disk);
    let gone = disk.attach();
    // No other takes its place.
    interleaved.before(1, move || gone.remove(&format!("snapshot-{:020}.snap", 1)).unwrap());
    assert!(Shelf::new(interleaved).load().unwrap().is_none());
}

fn log_id(index: u64) -> RaftLogId {
    RaftLogId::new_term_index(1, index)
}

async fn open(disk: SharedDisk) -> Store {
    let options = LogOptions { segment_bytes: 300, ..LogOptions::default() };
    let (log, recovered) = Log::open(disk.clone(), options).await.unwrap();
    let metrics = Metrics::new(Arc::new(SystemClock::start()));
    Store::start(log, recovered, Mark::new(disk), Workers::Threads, (metrics, 1)).unwrap().0
}

/// The log with so many entries, none of them in memory.
async fn with_entries(disk: &MemoryDisk, entries: u64) -> (Store, Arc<Interleaved>) {
    let mut store = open(Arc::new(disk.attach())).await;
    for index in 1..=entries {
        let entry = RaftEntry::new(log_id(index), EntryPayload::Blank);
        store.append([entry], IOFlushed::noop()).await.unwrap();
        // A batch for each, so that there are several segments.
        store.settling().settle().await.unwrap();
    }
    disk.kill();
    let interleaved = Interleaved::new(disk);
    (open(interleaved.clone()).await, interleaved)
}

fn oldest_segment(disk: &MemoryDisk) -> String {
    disk.attach().list().unwrap().into_iter().find(|name| name.starts_with("log-")).unwrap()
}

async fn indices(store: &mut Store) -> io::Result<Vec<u64>> {
    let entries = store.try_get_log_entries(1..=20).await?;
    Ok(entries.iter().map(|entry| entry.log_id.index()).collect())
}

#[tokio::test]
async fn entries_are_read_beside_a_purge() {
    let mut points = 0;
    loop {
        let disk = MemoryDisk::new();
        let (mut store, interleaved) = with_entries(&disk, 20).await;
        assert_eq!(indices(&mut store).await.unwrap().len(), 20);
        let first = oldest_segment(&disk);
        let mut other = store.clone();
        interleaved.before(points, move || block_on(other.purge(log_id(10))).unwrap());
        let read = indices(&mut store).await.expect("a purge is no fault of the disk");
        assert!(read == (1..=20).collect::<Vec<_>>() || read == (11..=20).collect::<Vec<_>>(), "{points}: {read:?}");
        if interleaved.is_over() {
            break;
        }
        assert!(oldest_segment(&disk) > first, "the purge deleted a file");
        points += 1;
    }
    assert!(points >= 20, "it acted before each read: {points}");
}

#[tokio::test]
async fn entries_are_read_beside_a_truncation() {
    let mut points = 0;
    loop {
        let disk = MemoryDisk::new();
        let (mut store, interleaved) = with_entries(&disk, 20).await;
        let mut other = store.clone();
        interleaved.before(points, move || block_on(other.truncate_after(Some(log_id(10)))).unwrap());
        let read = indices(&mut store).await.expect("a truncation is no fault of the disk");
        assert!(read == (1..=20).collect::<Vec<_>>() || read == (1..=10).collect::<Vec<_>>(), "{points}: {read:?}");
        if interleaved.is_over() {
            break;
        }
        points += 1;
    }
    assert!(points >= 20, "it acted before each read: {points}");
}
