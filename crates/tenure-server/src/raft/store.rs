//! The log as openraft sees it: a tail in memory over the log on disk. Writes are grouped: one batch is with the disk,
//! and what arrives meanwhile is the next batch.

use super::bad_entry::BadEntry;
use super::log::{Location, Log, LogError, LogReader, Record, Recovered};
use super::mark::Mark;
use super::types::{
    RaftEntry, RaftLogId, RaftVote, Types, decode_entry, decode_log_id, decode_vote, encode_log_id, encode_payload,
    encode_vote,
};
use crate::limits::{
    APPEND_BYTES_SOFT_MAX, BATCH_BYTES_SOFT_MAX, ENTRY_COST_BYTES, TAIL_BYTES_MAX, WRITE_SLOW, WRITES_MAX,
};
use crate::metrics::Metrics;
use crate::workers::Workers;
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::{mpsc, oneshot, watch};

#[derive(Clone)]
pub(crate) struct Store {
    tail: Arc<Mutex<Tail>>,
    reader: LogReader,
    writes: mpsc::Sender<Write>,
    written: watch::Receiver<u64>,
    /// Whether somebody wanted to send what was purged meanwhile.
    moved_on: Arc<AtomicBool>,
    unreadable: Arc<OnceLock<BadEntry>>,
}

/// What the log holds, by this process's knowledge, whether or not the disk has it yet.
#[derive(Debug, Default)]
struct Tail {
    vote: Option<RaftVote>,
    committed: Option<RaftLogId>,
    purged: Option<RaftLogId>,
    entries: BTreeMap<u64, Held>,
    cached_bytes: usize,
    /// What the disk has of them.
    bytes: u64,
    /// No entry before this index is cached.
    cached_from: u64,
}

/// An entry: in memory, on disk, or both.
#[derive(Debug)]
struct Held {
    term: u64,
    cached: Option<RaftEntry>,
    location: Option<Location>,
}

/// Where an entry was found.
enum Found {
    Cached(RaftEntry),
    OnDisk(Location),
}

impl Held {
    fn found(&self) -> Found {
        match (&self.cached, self.location) {
            (Some(entry), _) => Found::Cached(entry.clone()),
            (None, Some(location)) => Found::OnDisk(location),
            (None, None) => unreachable!("an entry is in memory until the disk has it"),
        }
    }
}

struct Write {
    what: What,
    done: Done,
}

enum What {
    Entries(Vec<RaftEntry>),
    Record(Record),
}

enum Done {
    Flushed(IOFlushed<Types>),
    Told(oneshot::Sender<io::Result<()>>),
}

impl Done {
    fn tell(self, result: io::Result<()>) {
        match self {
            Self::Flushed(flushed) => flushed.io_completed(result),
            // Whoever stopped waiting needs no answer.
            Self::Told(told) => drop(told.send(result)),
        }
    }
}

impl Store {
    /// Takes over a log that was opened, and starts its writer, which tells of its growth about every `news_bytes`.
    /// The receiver is told when the writer has sealed the log, after the last of the store's clones is dropped.
    pub(crate) fn start(
        log: Log,
        recovered: Recovered,
        mark: Mark,
        workers: Workers,
        (metrics, news_bytes): (Metrics, u64),
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let bytes = recovered.entries.iter().map(|location| cost(location) as u64).sum();
        let reader = log.reader();
        let tail = Arc::new(Mutex::new(Tail::recover(recovered)?));
        let (writes, queue) = mpsc::channel(WRITES_MAX);
        let (written_in, written) = watch::channel(bytes);
        let (sealed, is_sealed) = oneshot::channel();
        let written_in = Written { bytes: written_in, news_bytes };
        let writer = write_all(log, mark, queue, tail.clone(), (written_in, metrics));
        workers.start("tenure-log", async move {
            writer.await;
            // Nobody may be waiting for it.
            let _ = sealed.send(());
        })?;
        let (moved_on, unreadable) = (Arc::default(), Arc::default());
        Ok((Self { tail, reader, writes, written, moved_on, unreadable }, is_sealed))
    }

    /// The bytes of entries that the log holds or held since this process started. Not every change is told.
    pub(crate) fn written(&self) -> watch::Receiver<u64> {
        self.written.clone()
    }

    /// Told when somebody wants to send what was purged meanwhile.
    pub(crate) fn moved_on(&self) -> Arc<AtomicBool> {
        self.moved_on.clone()
    }

    /// The first entry that was read from the disk and cannot be decoded.
    pub(crate) fn unreadable(&self) -> Arc<OnceLock<BadEntry>> {
        self.unreadable.clone()
    }

    /// Reads an entry from the disk. One that this build cannot decode is remembered.
    fn read(&self, location: &Location) -> io::Result<RaftEntry> {
        let bytes = self.reader.read(location).map_err(io::Error::other)?;
        decode_entry(location.term, location.index, &bytes).map_err(|error| {
            let bad = BadEntry::unreadable(location.index, &bytes, &error);
            io::Error::new(error.kind(), self.unreadable.get_or_init(|| bad).to_string())
        })
    }

    /// What waits until the disk has everything, for whoever must not keep the log open.
    pub(crate) fn settling(&self) -> Settling {
        Settling { writes: self.writes.downgrade() }
    }

    /// How large the log is, for whoever must not keep it open.
    pub(crate) fn extent(&self) -> Extent {
        Extent { tail: self.tail.clone() }
    }

    pub(crate) fn purged(&self) -> Option<RaftLogId> {
        self.tail().purged
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("nobody panics while holding the tail")
    }

    async fn send(&self, what: What, done: Done) -> io::Result<()> {
        self.writes.send(Write { what, done }).await.map_err(|_| io::Error::other("the log writer has stopped"))
    }

    /// Writes a record and returns when it is durable.
    async fn write(&self, record: Record) -> io::Result<()> {
        let (told, durable) = oneshot::channel();
        self.send(What::Record(record), Done::Told(told)).await?;
        durable.await.map_err(|_| io::Error::other("the log writer has stopped"))?
    }
}

/// Waits for the disk. Unlike the store it does not keep the log from being sealed.
#[derive(Clone)]
pub(crate) struct Settling {
    writes: mpsc::WeakSender<Write>,
}

impl Settling {
    /// Returns when all that the log was given before is durable.
    pub(crate) async fn settle(&self) -> io::Result<()> {
        let stopped = || io::Error::other("the log writer has stopped");
        let (told, durable) = oneshot::channel();
        // Nothing to write: it is only told of in its turn.
        let turn = Write { what: What::Entries(Vec::new()), done: Done::Told(told) };
        let writes = self.writes.upgrade().ok_or_else(stopped)?;
        writes.send(turn).await.map_err(|_| stopped())?;
        drop(writes);
        durable.await.map_err(|_| stopped())?
    }
}

/// How large the log is. Unlike the store it does not keep the log from being sealed.
#[derive(Clone)]
pub(crate) struct Extent {
    tail: Arc<Mutex<Tail>>,
}

impl Extent {
    /// What the entries that the log holds take on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.tail().bytes
    }

    /// The last entry that the log can do without if it keeps so many bytes of entries.
    pub(crate) fn keep(&self, bytes: u64) -> Option<u64> {
        self.tail().keep(bytes)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("nobody panics while holding the tail")
    }
}

impl Tail {
    fn recover(recovered: Recovered) -> io::Result<Self> {
        let purged = recovered.purged.map(|purged| decode_log_id(&purged.log_id)).transpose()?;
        let held = |location: Location| Held { term: location.term, cached: None, location: Some(location) };
        let after_purge = purged.map_or(0, |purged| purged.index() + 1);
        let next = recovered.entries.last().map_or(after_purge, |location| location.index + 1);
        Ok(Self {
            vote: recovered.vote.as_deref().map(decode_vote).transpose()?,
            committed: recovered.committed.as_deref().map(decode_log_id).transpose()?,
            purged,
            bytes: recovered.entries.iter().map(|location| u64::from(location.len)).sum(),
            entries: recovered.entries.into_iter().map(|location| (location.index, held(location))).collect(),
            cached_bytes: 0,
            cached_from: next,
        })
    }

    fn last(&self) -> Option<RaftLogId> {
        let entry = self.entries.last_key_value();
        entry.map(|(index, held)| RaftLogId::new_term_index(held.term, *index)).or(self.purged)
    }

    /// Whether the log still holds this entry at this place.
    fn is_at(&self, location: &Location) -> bool {
        self.entries.get(&location.index).is_some_and(|held| held.location.as_ref() == Some(location))
    }

    /// Notes where the disk has an entry. One that was truncated meanwhile is not there any more.
    fn locate(&mut self, location: Location) {
        if let Some(held) = self.entries.get_mut(&location.index)
            && held.term == location.term
        {
            held.location = Some(location);
            self.cached_bytes += cost(&location);
            self.bytes += u64::from(location.len);
        }
    }

    /// Forgets the oldest cached entries that the disk has, down to the limit.
    fn evict(&mut self) {
        while self.cached_bytes > TAIL_BYTES_MAX {
            let Some(held) = self.entries.get_mut(&self.cached_from) else { return };
            let Some(location) = held.location else { return };
            if held.cached.take().is_some() {
                self.cached_bytes = self.cached_bytes.saturating_sub(cost(&location));
            }
            self.cached_from += 1;
        }
    }

    /// Where a message with the entries from `start` on ends: after so many bytes, but never before the first.
    fn fit(&self, start: u64, end: u64) -> u64 {
        let mut bytes = 0;
        let too_many = self.entries.range(start..end).skip(1).find(|(_, held)| {
            // What the disk does not have yet is new, and entries are made no larger than this.
            bytes += held.location.map_or(ENTRY_COST_BYTES, |location| cost(&location));
            bytes > APPEND_BYTES_SOFT_MAX
        });
        too_many.map_or(end, |(index, _)| *index)
    }

    /// The last entry that can go while so many bytes of entries stay.
    fn keep(&self, bytes: u64) -> Option<u64> {
        let mut kept = 0;
        let first_gone = self.entries.iter().rev().find(|(_, held)| {
            kept += held.location.map_or(ENTRY_COST_BYTES, |location| cost(&location)) as u64;
            kept > bytes
        });
        first_gone.map(|(index, _)| *index)
    }

    fn forget(&mut self, held: &Held) {
        self.bytes = self.bytes.saturating_sub(held.location.map_or(0, |location| u64::from(location.len)));
        if let (Some(_), Some(location)) = (&held.cached, held.location) {
            self.cached_bytes = self.cached_bytes.saturating_sub(cost(&location));
        }
    }
}

/// What an entry counts for, in memory and towards the next snapshot.
fn cost(location: &Location) -> usize {
    location.len as usize + ENTRY_COST_BYTES
}

/// The writer: takes what waits as one batch, makes it durable, and says so. After a failure it says only that.
async fn write_all(
    mut log: Log,
    mark: Mark,
    mut queue: mpsc::Receiver<Write>,
    tail: Arc<Mutex<Tail>>,
    (written, metrics): (Written, Metrics),
) {
    let mut noted = None;
    let mut failure: Option<io::Error> = None;
    while let Some(first) = queue.recv().await {
        let mut bytes = 0;
        let mut records = Vec::new();
        let mut done = Vec::new();
        let mut next = Some(first);
        while let Some(write) = next.take() {
            match write.what {
                What::Record(record) => records.push(record),
                What::Entries(entries) => records.extend(entries.iter().map(|entry| {
                    let record = Record::Entry {
                        index: entry.log_id.index(),
                        term: entry.log_id.committed_leader_id().term,
                        bytes: encode_payload(&entry.payload),
                    };
                    bytes += record.encoded_bytes() + ENTRY_COST_BYTES;
                    record
                })),
            }
            done.push(write.done);
            if bytes < BATCH_BYTES_SOFT_MAX {
                next = queue.try_recv().ok();
            }
        }
        note_committed(&mut log, &mut noted, committed_by(&tail, &records));
        let begun = metrics.now();
        let result = write_in_batches(&mut log, &records).await;
        if let Ok(locations) = &result {
            let took = metrics.now().saturating_sub(begun);
            metrics.written(records.iter().map(Record::encoded_bytes).sum(), took);
            if took > WRITE_SLOW {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(took_ms, "the disk was slow to write and sync a batch of the log");
            }
            let mut tail = tail.lock().expect("nobody panics while holding the tail");
            locations.iter().for_each(|location| tail.locate(*location));
            tail.evict();
        }
        if let Err(error) = &result {
            tracing::error!(%error, "the log cannot be written");
        }
        // Whoever only waits for its turn is told of a failure before it, too.
        failure = failure.or(result.err().map(io::Error::other));
        let again = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        for done in done {
            done.tell(failure.as_ref().map_or(Ok(()), |error| Err(again(error))));
        }
        written.add(bytes as u64);
    }
    note_committed(&mut log, &mut noted, committed_by(&tail, &[]));
    let batches = log.batches();
    if let Err(error) = log.close().await {
        tracing::error!(%error, "the log could not be sealed");
        return;
    }
    if let Err(error) = mark.write(batches).await {
        tracing::error!(%error, "the end of the log could not be marked");
    }
}

/// Has the next batch carry the committed place, if that is news.
fn note_committed(log: &mut Log, noted: &mut Option<RaftLogId>, committed: Option<RaftLogId>) {
    if let Some(committed) = committed.filter(|committed| *noted != Some(*committed)) {
        log.note_committed(encode_log_id(committed));
        *noted = Some(committed);
    }
}

/// The committed place as it stands when a batch is written, which costs no sync of its own: the batch carries it. Not one
/// that the disk does not have with this batch: a cluster may have committed what this node's disk still waits for.
fn committed_by(tail: &Mutex<Tail>, records: &[Record]) -> Option<RaftLogId> {
    let tail = tail.lock().expect("nobody panics while holding the tail");
    let committed = tail.committed?;
    let is_on_disk = tail.entries.get(&committed.index()).is_some_and(|held| held.location.is_some());
    let is_in_batch = |record: &Record| matches!(record, Record::Entry { index, .. } if *index == committed.index());
    (is_on_disk || records.iter().any(is_in_batch)).then_some(committed)
}

/// How much was written since this process started. Whoever waits for it to grow is not woken by every batch.
struct Written {
    bytes: watch::Sender<u64>,
    news_bytes: u64,
}

impl Written {
    fn add(&self, bytes: u64) {
        self.bytes.send_if_modified(|total| {
            let before = *total;
            *total += bytes;
            before / self.news_bytes != *total / self.news_bytes
        });
    }
}

/// A follower is handed what several messages brought at once, which may be more than one batch of the log can hold.
async fn write_in_batches(log: &mut Log, records: &[Record]) -> Result<Vec<Location>, LogError> {
    let mut locations = Vec::new();
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let is_beyond = |record: &Record| {
            bytes += record.encoded_bytes();
            bytes > BATCH_BYTES_SOFT_MAX
        };
        let end = rest.iter().position(is_beyond).unwrap_or(rest.len()).max(1);
        let (batch, later) = rest.split_at(end);
        locations.extend(log.write(batch).await?);
        rest = later;
    }
    Ok(locations)
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<RaftEntry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let empty = match (range.start_bound(), range.end_bound()) {
            (Bound::Included(from), Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        if empty {
            return Ok(Vec::new());
        }
        loop {
            let found: Vec<Found> = self.tail().entries.range(range.clone()).map(|(_, held)| held.found()).collect();
            let entries = found.into_iter().map(|found| match found {
                Found::Cached(entry) => Ok(Some(entry)),
                Found::OnDisk(location) => match self.read(&location) {
                    // A purge deletes files under a read. What the log holds since is read instead.
                    Err(_) if !self.tail().is_at(&location) => Ok(None),
                    entry => entry.map(Some),
                },
            });
            if let Some(entries) = entries.collect::<io::Result<Option<Vec<_>>>>()? {
                return Ok(entries);
            }
        }
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, io::Error> {
        Ok(self.tail().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<RaftEntry>, io::Error> {
        let fit = self.tail().fit(start, end);
        let entries = self.try_get_log_entries(start..fit).await?;
        if entries.first().is_some_and(|first| first.log_id.index() != start) {
            // The log was purged under whoever sends it. A hole must never go out: the way to the peer ends instead, and
            // the leader sees anew what the peer needs.
            self.moved_on.store(true, Ordering::Release);
            return Ok(Vec::new());
        }
        Ok(entries)
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let tail = self.tail();
        Ok(LogState { last_purged_log_id: tail.purged, last_log_id: tail.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), io::Error> {
        self.tail().vote = Some(*vote);
        self.write(Record::Vote(encode_vote(vote))).await
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        // The next batch carries it.
        self.tail().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        Ok(self.tail().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        {
            let mut tail = self.tail();
            for entry in &entries {
                let term = entry.log_id.committed_leader_id().term;
                let held = Held { term, cached: Some(entry.clone()), location: None };
                tail.entries.insert(entry.log_id.index(), held);
            }
        }
        self.send(What::Entries(entries), Done::Flushed(callback)).await
    }

    async fn truncate_after(&mut self, last: Option<RaftLogId>) -> Result<(), io::Error> {
        let index = last.map(|last| last.index());
        {
            let mut tail = self.tail();
            let first_gone = index.map_or(0, |index| index + 1);
            for held in tail.entries.split_off(&first_gone).values() {
                tail.forget(held);
            }
            tail.cached_from = tail.cached_from.min(first_gone);
        }
        self.write(Record::TruncateAfter { index }).await
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), io::Error> {
        {
            let mut tail = self.tail();
            let kept = tail.entries.split_off(&(upto.index() + 1));
            for held in std::mem::replace(&mut tail.entries, kept).values() {
                tail.forget(held);
            }
            tail.cached_from = tail.cached_from.max(upto.index() + 1);
            tail.purged = tail.purged.max(Some(upto));
        }
        self.write(Record::Purge { index: upto.index(), log_id: encode_log_id(upto) }).await
    }
}
