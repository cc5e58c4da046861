//! Owns what the log's tests share: a seeded choice, a model of the log, and ways to damage it. Never a test.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tenure_server::disk::{Disk, MemoryDisk};
use tenure_server::raft::log::{Log, LogError, LogOptions, LogReader, Record, Recovered};

/// Segments are small in most tests, so that a dozen batches fill several.
pub const SEGMENT_BYTES: u64 = 500;

/// The files of a disk, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Runs a future that never has to wait for anything.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here has to wait"),
    }
}

/// SplitMix64: the same choices for the same seed, everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// What a log has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub vote: Option<Vec<u8>>,
    pub committed: Option<Vec<u8>>,
    pub purged: Option<(u64, Vec<u8>)>,
    pub entries: BTreeMap<u64, (u64, Vec<u8>)>,
}

impl Model {
    pub fn apply(&mut self, batch: &[Record]) {
        for record in batch {
            match record.clone() {
                Record::Entry { index, term, bytes } => drop(self.entries.insert(index, (term, bytes))),
                Record::Vote(vote) => self.vote = Some(vote),
                Record::Committed(committed) => self.committed = Some(committed),
                Record::TruncateAfter { index } => self.entries.retain(|at, _| Some(*at) <= index),
                Record::Purge { index, log_id } => {
                    self.entries.retain(|at, _| *at > index);
                    self.purged = Some((index, log_id));
                }
            }
        }
    }

    /// What was recovered, with every entry read back from its place.
    pub fn read(recovered: &Recovered, reader: &LogReader) -> Self {
        let read = |at: &_| reader.read(at).expect("a recovered entry can be read");
        Self {
            vote: recovered.vote.clone(),
            committed: recovered.committed.clone(),
            purged: recovered.purged.clone().map(|purged| (purged.index, purged.log_id)),
            entries: recovered.entries.iter().map(|at| (at.index, (at.term, read(at)))).collect(),
        }
    }

    pub fn next(&self) -> u64 {
        let after_purge = self.purged.as_ref().map_or(0, |(index, _)| index + 1);
        self.entries.last_key_value().map_or(after_purge, |(index, _)| index + 1)
    }

    pub fn first(&self) -> u64 {
        self.entries.first_key_value().map_or(self.next(), |(index, _)| *index)
    }
}

pub fn small(segment_bytes: u64) -> LogOptions {
    LogOptions { segment_bytes, ..LogOptions::default() }
}

pub fn open<D: Disk + Clone>(disk: &D, options: LogOptions) -> Result<(Log, Recovered), LogError> {
    now(Log::open(Arc::new(disk.clone()), options))
}

/// Opens the log and reads all of it.
pub fn recover<D: Disk + Clone>(disk: &D) -> Result<(Model, Recovered), LogError> {
    let (log, recovered) = open(disk, LogOptions::default())?;
    Ok((Model::read(&recovered, &log.reader()), recovered))
}

pub fn entry(index: u64, bytes: &[u8]) -> Record {
    Record::Entry { index, term: 1 + index / 10, bytes: bytes.to_vec() }
}

/// A batch that may follow in a log like the model.
pub fn any_batch(rng: &mut Rng, model: &Model) -> Vec<Record> {
    let mut batch = Vec::new();
    if rng.below(6) == 0 {
        let len = rng.below(20);
        batch.push(Record::Vote(rng.bytes(len)));
    }
    let mut next = model.next();
    if rng.below(8) == 0 && model.first() < next {
        let keep = model.first() + rng.below(next - model.first());
        batch.push(Record::TruncateAfter { index: Some(keep) });
        next = keep + 1;
    }
    for _ in 0..rng.below(6) {
        let len = if rng.below(10) == 0 { 3000 + rng.below(15_000) } else { rng.below(200) };
        batch.push(Record::Entry { index: next, term: rng.below(9), bytes: rng.bytes(len) });
        next += 1;
    }
    if rng.below(12) == 0 && next > 0 {
        let index = if rng.below(4) == 0 {
            next + rng.below(3)
        } else {
            model.first() + rng.below(next - model.first().min(next - 1))
        };
        if model.purged.as_ref().is_none_or(|(old, _)| *old <= index) {
            batch.push(Record::Purge { index, log_id: rng.bytes(16) });
        }
    }
    batch
}

/// Where a written batch stands, and what the log held once it was written.
pub struct Written {
    pub file: String,
    pub start: usize,
    pub end: usize,
    pub model: Model,
}

/// A log of a dozen batches, some in earlier segments, whose last batch is `last`.
pub fn sample(disk: &MemoryDisk, options: LogOptions, last: &[Record]) -> (Log, Vec<Written>) {
    let (mut log, _) = open(&disk.attach(), options).expect("an empty disk opens");
    let mut model = Model::default();
    let mut written = Vec::new();
    let mut batches: Vec<Vec<Record>> = (0..10).map(|index| vec![entry(index, &[index as u8; 30])]).collect();
    batches[3].insert(0, Record::Vote(b"ann in term 3".to_vec()));
    batches[5].push(Record::Committed(b"four".to_vec()));
    batches.push(last.to_vec());
    for batch in batches {
        now(log.write(&batch)).expect("a healthy disk takes a batch");
        model.apply(&batch);
        let file = newest(disk);
        let end = disk.bytes(&file).expect("the newest segment exists").len();
        let start = end - 32 - batch.iter().map(Record::encoded_bytes).sum::<usize>();
        written.push(Written { file, start, end, model: model.clone() });
    }
    (log, written)
}

pub fn newest(disk: &MemoryDisk) -> String {
    disk.list().expect("a healthy disk lists").pop().expect("there is a segment")
}

pub fn files(disk: &MemoryDisk) -> Files {
    let names = disk.list().expect("a healthy disk lists");
    names.into_iter().map(|name| (name.clone(), disk.bytes(&name).expect("a listed file exists"))).collect()
}

/// A new disk with these files on it.
pub fn disk_of(files: &Files) -> MemoryDisk {
    let disk = MemoryDisk::new();
    for (name, bytes) in files {
        disk.put(name, bytes);
    }
    disk
}

pub fn last_batch() -> Vec<Record> {
    vec![Record::Vote(b"bob in term 4".to_vec()), entry(10, &[10; 40]), entry(11, &[11; 40])]
}

/// The files of the sample log, and its batches. The log is dropped as by a crash, so that no seal follows the last batch.
pub fn damaged_sample(last: &[Record]) -> (Files, Vec<Written>) {
    let disk = MemoryDisk::new();
    let (log, written) = sample(&disk, small(SEGMENT_BYTES), last);
    drop(log);
    (files(&disk), written)
}

/// Opens the log after its last file became `bytes`, and answers what it held and how much was cut.
pub fn reopen_with(files: &Files, bytes: &[u8]) -> (Model, u64) {
    let disk = disk_of(files);
    disk.put(&newest(&disk), bytes);
    let (found, recovered) = recover(&disk).unwrap_or_else(|error| panic!("{error}"));
    let (again, second) = recover(&disk).expect("a log that was recovered is recovered again");
    assert_eq!((&again, second.torn), (&found, None), "the cut is done once");
    (found, recovered.torn.map_or(0, |torn| torn.bytes))
}
