//! Owns reading single entries back from their place on disk. Never answers with bytes that do not match their checksum.

use super::error::LogError;
use super::record::{self, Record};
use super::segment;
use crate::disk::SharedDisk;

/// Where an entry stands, with what identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub index: u64,
    pub term: u64,
    pub segment: u64,
    /// Of the entry's record in the segment file.
    pub offset: u64,
    /// Of the entry's record, which is somewhat longer than its bytes.
    pub len: u32,
}

/// Reads entries beside the writer. A location is good until its entry is purged.
#[derive(Clone, Debug)]
pub struct LogReader {
    disk: SharedDisk,
}

impl LogReader {
    pub fn new(disk: SharedDisk) -> Self {
        Self { disk }
    }

    /// The bytes of the entry at `location`.
    pub fn read(&self, location: &Location) -> Result<Vec<u8>, LogError> {
        let file = segment::file_name(location.segment);
        let stored = self
            .disk
            .read_at(&file, location.offset, location.len as usize)
            .map_err(|error| LogError::disk(&file, "read an entry from", &error))?;
        let mut records = record::records(&stored);
        match (records.next(), records.next()) {
            (Some(Ok((_, Record::Entry { index, term, bytes }))), None)
                if (index, term) == (location.index, location.term) =>
            {
                Ok(bytes)
            }
            (Some(Err(malformed)), _) => Err(damaged(file, location, malformed.why)),
            _ => Err(damaged(file, location, "something else is there")),
        }
    }
}

fn damaged(file: String, location: &Location, why: &str) -> LogError {
    let why = format!("entry {} of term {} cannot be read: {why}", location.index, location.term);
    LogError::Damaged { file, offset: location.offset, why }
}
