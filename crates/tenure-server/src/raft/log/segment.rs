//! Owns the segment file: its name, its header, and appending to the newest one. Never reads a batch.
//!
//! ```text
//! 0   magic        8 bytes
//! 8   version      u32
//! 12  number       u64   the same as in the file name
//! 20  first batch  u64
//! 28  first index  u64   entries first..next were held when the segment was begun
//! 36  next index   u64
//! 44  header crc   u32
//! 48  first frame, which repeats the vote, the committed place and the last purge
//! ```
//!
//! Every later version keeps these 48 bytes, so that an older program says "too new" instead of taking the file for torn.

use super::error::LogError;
use super::frame::{Place, u32_at, u64_at};
use crate::disk::{Disk, DiskFile};

pub(super) const SEGMENT_HEADER_BYTES: usize = 48;

const MAGIC: [u8; 8] = *b"TENURLOG";
const VERSION: u32 = 1;
const CRC_AT: usize = 44;

/// What a file name says about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Segment(u64),
    /// It looks like a segment, and no segment is named like this.
    Misnamed,
    Stranger,
}

pub(super) fn file_name(number: u64) -> String {
    format!("log-{number:020}.seg")
}

pub(super) fn named(name: &str) -> Named {
    let Some(digits) = name.strip_prefix("log-").and_then(|rest| rest.strip_suffix(".seg")) else {
        return Named::Stranger;
    };
    match digits.parse() {
        Ok(number) if number > 0 && file_name(number) == name => Named::Segment(number),
        _ => Named::Misnamed,
    }
}

/// The head of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u64,
    pub(super) batch: u64,
    pub(super) first: u64,
    pub(super) next: u64,
}

/// Why the head of a segment file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFlaw {
    Unreadable,
    Version(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.batch.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.first.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.next.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(segment: &[u8]) -> Result<Self, HeaderFlaw> {
        let bytes = segment.get(..SEGMENT_HEADER_BYTES).ok_or(HeaderFlaw::Unreadable)?;
        if bytes[0..8] != MAGIC || u32_at(bytes, CRC_AT) != crc32fast::hash(&bytes[..CRC_AT]) {
            return Err(HeaderFlaw::Unreadable);
        }
        match u32_at(bytes, 8) {
            VERSION => Ok(Self {
                number: u64_at(bytes, 12),
                batch: u64_at(bytes, 20),
                first: u64_at(bytes, 28),
                next: u64_at(bytes, 36),
            }),
            version => Err(HeaderFlaw::Version(version)),
        }
    }
}

/// Which segments exist, and up to which entry each is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) number: u64,
    /// One past the last entry in it that is still held, 0 if there is none.
    pub(super) next: u64,
}

/// The newest segment, open for appending.
pub(super) struct Tail {
    pub(super) number: u64,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) len: usize,
    /// Where its batches begin, after the header and the first frame.
    pub(super) body_at: usize,
}

impl Tail {
    /// Begins a segment, which is in the directory for good when this returns.
    pub(super) async fn create(disk: &dyn Disk, number: u64, start: &[u8]) -> Result<Self, LogError> {
        let name = file_name(number);
        let file = disk.create(&name).map_err(|error| failed(number, 0, &error))?;
        let mut tail = Self { number, file, len: 0, body_at: start.len() };
        tail.write(start).await?;
        disk.sync_dir().map_err(|error| failed(number, tail.len, &error))?;
        Ok(tail)
    }

    pub(super) fn place(&self) -> Place {
        Place { segment: self.number, offset: self.len }
    }

    /// Appends and syncs. After an error the tail is of no use any more.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        let fail = |error| failed(self.number, self.len, &error);
        self.file.append(bytes).map_err(fail)?;
        self.file.sync().await.map_err(fail)?;
        self.len += bytes.len();
        Ok(())
    }

    /// Whether a frame of this length belongs into the next segment. A segment takes at least one batch, however long.
    pub(super) fn is_full_for(&self, frame_bytes: usize, segment_bytes: u64) -> bool {
        self.len > self.body_at && (self.len + frame_bytes) as u64 > segment_bytes
    }
}

fn failed(number: u64, offset: usize, error: &std::io::Error) -> LogError {
    LogError::Failed { file: file_name(number), offset: offset as u64, kind: error.kind(), why: error.to_string() }
}
