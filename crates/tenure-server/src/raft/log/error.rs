//! Owns the ways in which the log says no, each with what to do next. Never decides to stop the process: the caller does.

use std::fmt;
use std::io;

/// Why the log could not be opened, read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// What is on the disk is not what was written. Going on would lose or change acknowledged entries.
    Damaged { file: String, offset: u64, why: String },
    /// The log has fewer batches than it is known to have had.
    Shortened { found: u64, known: u64 },
    /// A newer program wrote this segment.
    UnknownFormat { file: String, version: u32 },
    /// The disk refused something while the log was opened or read. Nothing is wrong with the log as far as we know.
    Disk { file: String, doing: &'static str, kind: io::ErrorKind, why: String },
    /// A write failed, or its outcome is not known. It is the answer to every later write too.
    Failed { file: String, offset: u64, kind: io::ErrorKind, why: String },
    /// The caller left a gap or wrote an index twice. Nothing was written.
    OutOfOrder { expected: u64, found: u64 },
    /// The caller's batch is too long. Nothing was written.
    TooLarge { bytes: usize, bytes_max: usize },
}

impl LogError {
    pub(super) fn disk(file: &str, doing: &'static str, error: &io::Error) -> Self {
        Self::Disk { file: file.to_owned(), doing, kind: error.kind(), why: error.to_string() }
    }

    pub(super) fn damaged(file: &str, offset: usize, why: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset: offset as u64, why: why.into() }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file, offset, why } => write!(
                f,
                "log segment {file} is damaged at byte {offset}: {why}. Going on could lose acknowledged entries. \
                 Keep the files for inspection, and rebuild this node from its peers or from a backup"
            ),
            Self::Shortened { found, known } => write!(
                f,
                "the log has {found} batches, and it is known to have had {known}: its newest files were cut or replaced. \
                 Going on would lose acknowledged entries. Nothing was changed; put the files back, or rebuild this node \
                 from its peers or from a backup"
            ),
            Self::UnknownFormat { file, version } => write!(
                f,
                "log segment {file} has format version {version} at byte 8, which this program cannot read. \
                 Start the newer program that wrote it"
            ),
            Self::Disk { file, doing, why, .. } => {
                write!(f, "could not {doing} {file}: {why}. Nothing was lost by this; mend the disk and start again")
            }
            Self::Failed { file, offset, why, .. } => write!(
                f,
                "writing log segment {file} at byte {offset} failed: {why}. No batch counts after the last one that was \
                 acknowledged. The process has to stop; mend the disk or free some space, and start it again"
            ),
            Self::OutOfOrder { expected, found } => write!(
                f,
                "the log was given entry {found} where entry {expected} had to follow. Nothing was written; this is a \
                 mistake in the program, please report it"
            ),
            Self::TooLarge { bytes, bytes_max } => write!(
                f,
                "the log was given a batch of {bytes} bytes, and a batch holds at most {bytes_max}. Nothing was written; \
                 write smaller batches"
            ),
        }
    }
}

impl std::error::Error for LogError {}
