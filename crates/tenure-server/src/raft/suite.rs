//! openraft's own storage suite on our log and state machine: fresh, and with the log reopened before every operation.

use super::log::{Log, LogOptions};
use super::machine::Machine;
use super::mark::Mark;
use super::shelf::Shelf;
use super::store::Store;
use super::types::{RaftEntry, RaftLogId, RaftVote, Types};
use crate::clock::SystemClock;
use crate::disk::MemoryDisk;
use crate::metrics::Metrics;
use crate::workers::Workers;
use openraft::OptionalSend;
use openraft::errors::ErrorSource;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

type StorageError = openraft::StorageError<Types>;

async fn open(disk: &MemoryDisk) -> io::Result<Store> {
    let options = LogOptions { segment_bytes: 300, ..LogOptions::default() };
    let (log, recovered) = Log::open(Arc::new(disk.attach()), options).await.map_err(io::Error::other)?;
    let mark = Mark::new(Arc::new(disk.attach()));
    let metrics = Metrics::new(Arc::new(SystemClock::start()));
    Ok(Store::start(log, recovered, mark, Workers::Tasks, (metrics, 1))?.0)
}

fn machine(disk: &MemoryDisk) -> io::Result<Machine> {
    Machine::load(Shelf::new(Arc::new(disk.attach())), Workers::Tasks)
}

fn storage_error(error: &io::Error) -> StorageError {
    StorageError::read(openraft::impls::BoxedErrorSource::from_error(error))
}

struct Fresh;

impl StoreBuilder<Types, Store, Machine> for Fresh {
    async fn build(&self) -> Result<((), Store, Machine), StorageError> {
        let disk = MemoryDisk::new();
        let store = open(&disk).await.map_err(|error| storage_error(&error))?;
        let machine = machine(&disk).map_err(|error| storage_error(&error))?;
        Ok(((), store, machine))
    }
}

/// A store whose process dies and starts again before every operation.
#[derive(Clone)]
struct Reopened {
    disk: MemoryDisk,
    store: Arc<Mutex<Store>>,
    reopened: Arc<AtomicU64>,
}

impl Reopened {
    async fn again(&self) -> io::Result<Store> {
        self.disk.kill();
        let mut store = self.store.lock().await;
        *store = open(&self.disk).await?;
        self.reopened.fetch_add(1, Ordering::Relaxed);
        Ok(store.clone())
    }
}

impl RaftLogReader<Types> for Reopened {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<RaftEntry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.again().await?.try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, io::Error> {
        self.again().await?.read_vote().await
    }
}

impl RaftLogStorage<Types> for Reopened {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        self.again().await?.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), io::Error> {
        self.again().await?.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        self.again().await?.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        self.again().await?.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        let (told, flushed) = <Types as TypeConfigExt>::oneshot();
        self.again().await?.append(entries, IOFlushed::signal(told)).await?;
        callback.io_completed(flushed.await.expect("the writer answers"));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<RaftLogId>) -> Result<(), io::Error> {
        self.again().await?.truncate_after(last).await
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), io::Error> {
        self.again().await?.purge(upto).await
    }
}

struct Reopening {
    reopened: Arc<AtomicU64>,
}

impl StoreBuilder<Types, Reopened, Machine> for Reopening {
    async fn build(&self) -> Result<((), Reopened, Machine), StorageError> {
        let disk = MemoryDisk::new();
        let store = open(&disk).await.map_err(|error| storage_error(&error))?;
        // The state machine has a disk of its own: it starts from its snapshot, which the suite does not take for granted.
        let machine = machine(&MemoryDisk::new()).map_err(|error| storage_error(&error))?;
        let reopened = self.reopened.clone();
        Ok(((), Reopened { disk, store: Arc::new(Mutex::new(store)), reopened }, machine))
    }
}

#[tokio::test]
async fn passes_the_storage_suite() {
    let suite = Suite::test_all(Fresh);
    DeterministicRng::<TokioRuntime>::scope(1, suite).await.unwrap();
}

#[tokio::test]
async fn passes_the_storage_suite_when_the_log_is_reopened_before_every_operation() {
    let reopened = Arc::new(AtomicU64::new(0));
    let suite = Suite::test_all(Reopening { reopened: reopened.clone() });
    DeterministicRng::<TokioRuntime>::scope(1, suite).await.unwrap();
    assert!(reopened.load(Ordering::Relaxed) > 100, "the suite reopened the log before its operations");
}

#[tokio::test]
async fn a_log_that_was_purged_under_a_sender_gives_no_entries_with_a_hole_before_them() {
    let mut store = open(&MemoryDisk::new()).await.unwrap();
    let entry =
        |index| RaftEntry { log_id: RaftLogId::new_term_index(1, index), payload: openraft::EntryPayload::Blank };
    let (told, flushed) = <Types as TypeConfigExt>::oneshot();
    store.append((0..10).map(entry), IOFlushed::signal(told)).await.unwrap();
    flushed.await.unwrap().unwrap();
    let indices = |entries: Vec<RaftEntry>| entries.iter().map(|entry| entry.log_id.index()).collect::<Vec<_>>();
    assert_eq!(indices(store.limited_get_log_entries(3, 8).await.unwrap()), [3, 4, 5, 6, 7]);
    assert!(!store.moved_on().load(Ordering::Acquire));
    store.purge(RaftLogId::new_term_index(1, 5)).await.unwrap();
    assert_eq!(indices(store.limited_get_log_entries(3, 8).await.unwrap()), [0_u64; 0]);
    assert!(store.moved_on().load(Ordering::Acquire), "the way to the peer is told");
    assert_eq!(indices(store.limited_get_log_entries(6, 8).await.unwrap()), [6, 7]);
}
