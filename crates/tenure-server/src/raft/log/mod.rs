//! Owns the Raft log on disk: entries, vote, committed place and last purge, in segments of framed batches. Never knows what
//! an entry means, and never acknowledges what a power cut could take back.
//!
//! # Torn or damaged
//!
//! A crash may leave a torn batch at the end of the log, which must be cut; damage anywhere else must be refused. The two are
//! told apart by order: batch n+1 is written only after batch n is on the disk, and segment k+1 is begun only after all of
//! segment k is. So a broken batch is torn only if nothing whole stands behind it: no frame of this or a later batch number
//! in the rest of the segment, found by looking at every byte, and no later segment file at all. A broken length, or a
//! broken header, hides nothing in this way. Zeros and holes at the end are torn like any other broken batch.
//!
//! Batch numbers go up by one without exception, and a cut batch's number is given again. That is unambiguous, because the
//! cut is synced before the next batch is written at the same place: either a crash undoes the cut, and nothing was written
//! after it, or the cut stands, and nothing old is left behind it. For file systems that hand back old blocks after a
//! crash, each frame's checksum also covers its segment and offset, so a frame counts only in the place it was written for.
//!
//! # The limit
//!
//! The last batch has nothing behind it that could vouch for it, so if it rots on the disk, it is cut as torn even though it
//! was acknowledged. An empty batch, a *seal*, narrows this: `close` writes one, so after a clean stop every batch with
//! records is vouched for, and losing the seal itself loses nothing; `open` writes one after a crash, so the exposure ends
//! with the next start, and without one it ends with the next batch. What remains is this: the machine crashes, and the very
//! last acknowledged batch is damaged before the next start. Likewise two neighbouring batches at the end that are both
//! damaged, and newest segment files removed by hand, look like a log that ended earlier.
//!
//! After a failed sync the kernel may go on showing bytes that are not on the disk. A restarted process reads them, and the
//! seal of `open` stands behind them; should a power cut then take them, the log is refused as damaged and not cut short.
//!
//! # What is durable
//!
//! A batch, when `write` returns. Everything that `open` reports, because `open` syncs what it has read before it answers: a
//! killed process may have left batches that only the page cache knows. The committed place is different: it may lag, as
//! `note_committed` only has the next batch carry it.

mod error;
mod frame;
mod limits;
mod reader;
mod record;
mod recover;
mod segment;
mod span;

use std::collections::VecDeque;
use std::io;

pub use error::LogError;
pub use limits::BATCH_BYTES_MAX;
pub use reader::{Location, LogReader};
pub use record::{Malformed, Record, records};
pub use recover::Torn;
pub use span::Purged;

use crate::disk::{Disk, SharedDisk};
use frame::Stamp;
use limits::BUFFER_BYTES_KEPT_MAX;
use recover::{End, Repair, Replay};
use segment::{Extent, SegmentHeader, Tail};
use span::State;

/// What an operator or a test may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// A segment that would grow beyond this is followed by a new one. Deleting works by whole segments.
    pub segment_bytes: u64,
    /// The log is known to have had so many batches. One with fewer was cut or replaced, and is refused as it is.
    pub batches_min: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, batches_min: 0 }
    }
}

/// What the log held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub vote: Option<Vec<u8>>,
    pub committed: Option<Vec<u8>>,
    pub purged: Option<Purged>,
    /// All entries that are held, in order and without a gap.
    pub entries: Vec<Location>,
    /// What was cut off because a crash had left it unfinished.
    pub torn: Option<Torn>,
    /// How many batches were found; the number never goes back.
    pub batches: u64,
}

/// The writer. There is one of it, and it writes one batch at a time.
pub struct Log {
    disk: SharedDisk,
    options: LogOptions,
    state: State,
    /// Oldest first; the last is the one that is open.
    segments: VecDeque<Extent>,
    next_batch: u64,
    /// Taken out while a write is under way and put back only when it succeeds. So a write that failed, or whose future was
    /// dropped halfway, leaves a log that refuses every other write.
    tail: Option<Tail>,
    failure: Option<LogError>,
    /// Always a `Record::Committed`.
    committed_noted: Option<Record>,
    sealed: bool,
    buffer: Vec<u8>,
}

impl Log {
    /// Reads the log, repairs a torn end, and makes durable what it reports. Refuses a damaged log without changing it.
    pub async fn open(disk: SharedDisk, options: LogOptions) -> Result<(Self, Recovered), LogError> {
        let replay = recover::replay(&*disk)?;
        let found = replay.next_batch - 1;
        if found < options.batches_min {
            return Err(LogError::Shortened { found, known: options.batches_min });
        }
        let tail = match replay.end {
            Some(end) => Some(repair(&*disk, end, &replay).await?),
            None => None,
        };
        let Replay { state, entries, segments, next_batch, torn, sealed, .. } = replay;
        let recovered = Recovered {
            vote: state.vote.clone(),
            committed: state.committed.clone(),
            purged: state.purged.clone(),
            entries,
            torn: torn.map(|(torn, _)| torn),
            batches: next_batch - 1,
        };
        let mut log = Self {
            disk,
            options,
            state,
            segments,
            next_batch,
            tail,
            failure: None,
            committed_noted: None,
            sealed,
            buffer: Vec::new(),
        };
        log.begin().await?;
        Ok((log, recovered))
    }

    /// Reads entries back, beside this writer.
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.disk.clone())
    }

    /// How many batches were written, in this life of the log and before.
    pub fn batches(&self) -> u64 {
        self.next_batch - 1
    }

    /// Remembers the committed place for the next batch to carry. It costs no sync, and may be lost in a crash.
    pub fn note_committed(&mut self, committed: Vec<u8>) {
        self.committed_noted = Some(Record::Committed(committed));
    }

    /// Writes one batch and returns when it is durable, with the locations of its entries in order.
    ///
    /// After an error of kind `Failed` nothing is known of this batch, and the log takes no other: the process has to stop.
    pub async fn write(&mut self, batch: &[Record]) -> Result<Vec<Location>, LogError> {
        let Some(tail) = self.tail.take() else {
            return Err(self.failure());
        };
        if let Err(refusal) = self.admit(batch) {
            self.tail = Some(tail);
            return Err(refusal);
        }
        match self.write_frame(tail, batch).await {
            Ok((tail, locations)) => {
                self.tail = Some(tail);
                Ok(locations)
            }
            Err(failure) => {
                self.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Ends the log so that all of it is vouched for. Dropping the log instead is as safe as a crash.
    pub async fn close(mut self) -> Result<(), LogError> {
        if self.committed_noted.is_some() {
            self.write(&[]).await?;
        }
        self.seal().await
    }

    /// The log is ready when there is a segment to write to, the batches read are vouched for, and finished purges are swept.
    async fn begin(&mut self) -> Result<(), LogError> {
        if self.tail.is_some() {
            self.seal().await?;
        } else {
            // A first segment that a crash left unbegun is emptied by this.
            self.tail = Some(self.begin_segment(1).await?);
        }
        self.delete_purged()
    }

    async fn seal(&mut self) -> Result<(), LogError> {
        if self.sealed {
            return Ok(());
        }
        self.write(&[]).await.map(drop)
    }

    /// Refuses what recovery would refuse, before a byte of it is on the disk.
    fn admit(&self, batch: &[Record]) -> Result<(), LogError> {
        let mut span = self.state.span;
        let mut bytes = self.committed_noted.as_ref().map_or(0, Record::encoded_bytes);
        for record in batch {
            span.accept(record).map_err(|gap| LogError::OutOfOrder { expected: gap.expected, found: gap.found })?;
            bytes = bytes.saturating_add(record.encoded_bytes());
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(LogError::TooLarge { bytes, bytes_max: BATCH_BYTES_MAX });
        }
        Ok(())
    }

    async fn write_frame(&mut self, mut tail: Tail, batch: &[Record]) -> Result<(Tail, Vec<Location>), LogError> {
        let noted = self.committed_noted.take();
        let mut locations = encode(&mut self.buffer, noted.iter().chain(batch));
        if tail.is_full_for(self.buffer.len(), self.options.segment_bytes) {
            tail = self.begin_segment(tail.number + 1).await?;
        }
        let place = tail.place();
        let first_index = locations.first().map_or(0, |location| location.index);
        frame::stamp(&mut self.buffer, Stamp { place, batch: self.next_batch, first_index });
        tail.write(&self.buffer).await?;
        self.next_batch += 1;
        self.sealed = noted.is_none() && batch.is_empty();
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
        for location in &mut locations {
            location.segment = place.segment;
            location.offset += place.offset as u64;
        }
        for record in noted.iter().chain(batch) {
            self.settle(record);
        }
        if batch.iter().any(|record| matches!(record, Record::Purge { .. })) {
            self.delete_purged()?;
        }
        Ok((tail, locations))
    }

    /// Takes a record into account that is now on the disk.
    fn settle(&mut self, record: &Record) {
        self.state.apply(record).expect("a batch is admitted before it is written");
        match record {
            Record::Entry { index, .. } => {
                self.segments.back_mut().expect("the open segment is listed").next = index + 1;
            }
            Record::TruncateAfter { .. } => recover::shorten(&mut self.segments, self.state.span.next),
            Record::Purge { .. } | Record::Vote(_) | Record::Committed(_) => {}
        }
    }

    /// Begins a segment with all that older segments say beside their entries, so that they can be deleted.
    async fn begin_segment(&mut self, number: u64) -> Result<Tail, LogError> {
        let span = self.state.span;
        let header = SegmentHeader { number, batch: self.next_batch, first: span.first, next: span.next }.encode();
        let records = self.state.records();
        let mut first_frame = Vec::new();
        encode(&mut first_frame, records.iter());
        let place = frame::Place { segment: number, offset: header.len() };
        frame::stamp(&mut first_frame, Stamp { place, batch: self.next_batch, first_index: 0 });
        let tail = Tail::create(&*self.disk, number, &[&header[..], &first_frame].concat()).await?;
        self.next_batch += 1;
        self.sealed = true;
        self.segments.push_back(Extent { number, next: 0 });
        Ok(tail)
    }

    /// Deletes the segments that hold no entry any more, oldest first so that a crash leaves no gap. The purge that allows it
    /// is already durable.
    fn delete_purged(&mut self) -> Result<(), LogError> {
        let first = self.state.span.first;
        let mut deleted = false;
        while self.segments.len() > 1 && self.segments[0].next <= first {
            let name = segment::file_name(self.segments[0].number);
            self.disk.remove(&name).map_err(|error| deletion_failed(&name, &error))?;
            self.segments.pop_front();
            deleted = true;
        }
        if deleted {
            self.disk.sync_dir().map_err(|error| deletion_failed("the log directory", &error))?;
        }
        Ok(())
    }

    fn failure(&self) -> LogError {
        self.failure.clone().unwrap_or_else(|| LogError::Failed {
            file: segment::file_name(self.segments.back().map_or(1, |extent| extent.number)),
            offset: 0,
            kind: io::ErrorKind::Interrupted,
            why: "an earlier write was abandoned before its outcome was known".to_owned(),
        })
    }
}

/// Opens the newest segment without its torn end. Everything read from it, and its name, is durable when this returns.
async fn repair(disk: &dyn Disk, end: End, replay: &Replay) -> Result<Tail, LogError> {
    let name = segment::file_name(end.number);
    let fail = |doing| move |error: io::Error| (doing, error);
    let work = async {
        let mut file = disk.open_append(&name).map_err(fail("open"))?;
        match replay.torn {
            Some((_, Repair::Cut)) => file.truncate(end.len as u64).map_err(fail("cut the torn end off"))?,
            Some((_, Repair::Remove { number })) => {
                disk.remove(&segment::file_name(number)).map_err(fail("remove the segment begun after"))?;
            }
            None => {}
        }
        file.sync().await.map_err(fail("sync"))?;
        disk.sync_dir().map_err(fail("sync the directory of"))?;
        Ok(file)
    };
    let file = work.await.map_err(|(doing, error)| LogError::disk(&name, doing, &error))?;
    Ok(Tail { number: end.number, file, len: end.len, body_at: end.body_at })
}

/// Encodes an unstamped frame, and answers where its entries stand within it.
fn encode<'a>(frame: &mut Vec<u8>, batch: impl Iterator<Item = &'a Record>) -> Vec<Location> {
    frame::begin(frame);
    let mut locations = Vec::new();
    for record in batch {
        let offset = frame.len();
        record.encode(frame);
        if let Record::Entry { index, term, .. } = record {
            let len = u32::try_from(frame.len() - offset).expect("a batch is measured before it is encoded");
            locations.push(Location { index: *index, term: *term, segment: 0, offset: offset as u64, len });
        }
    }
    locations
}

fn deletion_failed(file: &str, error: &io::Error) -> LogError {
    LogError::Failed {
        file: file.to_owned(),
        offset: 0,
        kind: error.kind(),
        why: format!("deleting after a purge: {error}"),
    }
}
