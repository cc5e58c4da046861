//! Owns the frame around one batch: what makes it whole, and how a whole one is found again behind a broken one. Never looks
//! inside the payload.
//!
//! ```text
//! 0   magic          4 bytes
//! 4   batch          u64   +1 for every frame, across segments
//! 12  first index    u64   of the first entry in the payload, 0 without entries
//! 20  payload length u32
//! 24  payload crc    u32
//! 28  header crc     u32   over the place of the frame and all of the above
//! 32  payload
//! ```
//!
//! The header checksum also covers the segment number and the offset, which are not stored. A frame is therefore whole only
//! where it was written: bytes of an old segment that a file system hands back, or a client's value that happens to hold a
//! copy of a frame, are not taken for one.

use std::fmt;

use crc32fast::Hasher;

use super::limits::BATCH_BYTES_MAX;

pub(super) const FRAME_HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = [0xB7, b'T', b'n', b'B'];
const HEADER_CRC_AT: usize = 28;

/// Where a frame stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: usize,
}

/// What the writer knows of a batch beside its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) place: Place,
    pub(super) batch: u64,
    pub(super) first_index: u64,
}

/// A whole frame, as found in a segment.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) batch: u64,
    pub(super) first_index: u64,
    pub(super) payload: &'a [u8],
    pub(super) payload_at: usize,
}

impl Frame<'_> {
    /// Where the next frame stands.
    pub(super) fn end(&self) -> usize {
        self.payload_at + self.payload.len()
    }
}

/// Why there is no whole frame at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    NothingThere,
    HeaderCutShort,
    NoMagic,
    HeaderChecksum,
    LengthBeyondLimit,
    PayloadCutShort,
    PayloadChecksum,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingThere => "is missing",
            Self::HeaderCutShort => "ends within its header",
            Self::NoMagic => "does not start like a batch",
            Self::HeaderChecksum => "has a header that does not match its checksum",
            Self::LengthBeyondLimit => "is longer than a batch can be",
            Self::PayloadCutShort => "ends within its payload",
            Self::PayloadChecksum => "has a payload that does not match its checksum",
        })
    }
}

/// Begins a frame in an empty buffer. The payload is appended by the caller, and `stamp` completes the frame.
pub(super) fn begin(frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(FRAME_HEADER_BYTES, 0);
}

/// Writes the header of a frame whose payload is complete.
pub(super) fn stamp(frame: &mut [u8], stamp: Stamp) {
    let (header, payload) = frame.split_at_mut(FRAME_HEADER_BYTES);
    let length = u32::try_from(payload.len()).expect("a batch is measured against its limit before it is encoded");
    header[0..4].copy_from_slice(&MAGIC);
    header[4..12].copy_from_slice(&stamp.batch.to_le_bytes());
    header[12..20].copy_from_slice(&stamp.first_index.to_le_bytes());
    header[20..24].copy_from_slice(&length.to_le_bytes());
    header[24..28].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    let crc = header_crc(&header[..HEADER_CRC_AT], stamp.place);
    header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

/// The frame at `place` of a segment, if it is whole.
pub(super) fn read(segment: &[u8], place: Place) -> Result<Frame<'_>, Flaw> {
    let bytes = segment.get(place.offset..).filter(|bytes| !bytes.is_empty()).ok_or(Flaw::NothingThere)?;
    let (header, rest) = bytes.split_at_checked(FRAME_HEADER_BYTES).ok_or(Flaw::HeaderCutShort)?;
    if header[0..4] != MAGIC {
        return Err(Flaw::NoMagic);
    }
    if u32_at(header, HEADER_CRC_AT) != header_crc(&header[..HEADER_CRC_AT], place) {
        return Err(Flaw::HeaderChecksum);
    }
    let length = u32_at(header, 20) as usize;
    if length > BATCH_BYTES_MAX {
        return Err(Flaw::LengthBeyondLimit);
    }
    let payload = rest.get(..length).ok_or(Flaw::PayloadCutShort)?;
    if u32_at(header, 24) != crc32fast::hash(payload) {
        return Err(Flaw::PayloadChecksum);
    }
    let payload_at = place.offset + FRAME_HEADER_BYTES;
    Ok(Frame { batch: u64_at(header, 4), first_index: u64_at(header, 12), payload, payload_at })
}

/// The first whole frame at or behind `from` whose batch number is at least `batch_min`, and where it stands.
///
/// It looks at every byte, because behind a broken length nothing says where the next frame begins.
pub(super) fn find_later(segment: &[u8], from: Place, batch_min: u64) -> Option<(usize, u64)> {
    let candidates = segment.windows(MAGIC.len()).enumerate().skip(from.offset).filter(|(_, bytes)| **bytes == MAGIC);
    for (offset, _) in candidates {
        match read(segment, Place { offset, ..from }) {
            Ok(frame) if frame.batch >= batch_min => return Some((offset, frame.batch)),
            _ => {}
        }
    }
    None
}

fn header_crc(header: &[u8], place: Place) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&place.segment.to_le_bytes());
    hasher.update(&(place.offset as u64).to_le_bytes());
    hasher.update(header);
    hasher.finalize()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}
