//! Owns the encoding of what a batch holds. Never looks inside an entry, a vote or a log id: they are bytes.
//!
//! A record is a tag, then little-endian integers of fixed width, then a length and that many bytes:
//!
//! ```text
//! 1 entry           index u64, term u64, length u32, crc u32 over all of these and the bytes, bytes
//! 2 vote            length u32, bytes
//! 3 committed       length u32, bytes
//! 4 truncate after  index u64
//! 5 truncate all
//! 6 purge           index u64, length u32, bytes of the log id
//! ```
//!
//! An entry has a checksum of its own, beside its frame's, so that one entry can be read back without the rest of its batch.

use crc32fast::Hasher;

const ENTRY: u8 = 1;
const VOTE: u8 = 2;
const COMMITTED: u8 = 3;
const TRUNCATE_AFTER: u8 = 4;
const TRUNCATE_ALL: u8 = 5;
const PURGE: u8 = 6;

const ENTRY_HEADER_BYTES: usize = 1 + 8 + 8 + 4 + 4;

/// One thing that the log remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Entry {
        index: u64,
        term: u64,
        bytes: Vec<u8>,
    },
    Vote(Vec<u8>),
    Committed(Vec<u8>),
    /// Forgets every entry after `index`, or every entry if there is none to keep. Past the end it does nothing.
    TruncateAfter {
        index: Option<u64>,
    },
    /// Forgets every entry up to and including `index`; the log goes on after it even if it had not come so far.
    Purge {
        index: u64,
        log_id: Vec<u8>,
    },
}

/// The record at this place in the payload cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub offset: usize,
    pub why: &'static str,
}

impl Record {
    /// How much of a batch this record takes.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Entry { bytes, .. } => ENTRY_HEADER_BYTES + bytes.len(),
            Self::Vote(bytes) | Self::Committed(bytes) => 1 + 4 + bytes.len(),
            Self::TruncateAfter { index: Some(_) } => 1 + 8,
            Self::TruncateAfter { index: None } => 1,
            Self::Purge { log_id, .. } => 1 + 8 + 4 + log_id.len(),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Entry { index, term, bytes } => {
                let start = out.len();
                out.push(ENTRY);
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&term.to_le_bytes());
                out.extend_from_slice(&length(bytes).to_le_bytes());
                let crc = entry_crc([&out[start..], bytes]);
                out.extend_from_slice(&crc.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Vote(bytes) => {
                out.push(VOTE);
                encode_bytes(bytes, out);
            }
            Self::Committed(bytes) => {
                out.push(COMMITTED);
                encode_bytes(bytes, out);
            }
            Self::TruncateAfter { index: Some(index) } => {
                out.push(TRUNCATE_AFTER);
                out.extend_from_slice(&index.to_le_bytes());
            }
            Self::TruncateAfter { index: None } => out.push(TRUNCATE_ALL),
            Self::Purge { index, log_id } => {
                out.push(PURGE);
                out.extend_from_slice(&index.to_le_bytes());
                encode_bytes(log_id, out);
            }
        }
    }
}

/// Reads the records of a payload, each with the offset where it starts. Ends after the first that is malformed.
pub fn records(payload: &[u8]) -> impl Iterator<Item = Result<(usize, Record), Malformed>> {
    let mut rest = Some(payload);
    std::iter::from_fn(move || {
        let bytes = rest.take().filter(|bytes| !bytes.is_empty())?;
        let offset = payload.len() - bytes.len();
        let mut fields = Fields { rest: bytes };
        Some(match decode(&mut fields) {
            Ok(record) => {
                rest = Some(fields.rest);
                Ok((offset, record))
            }
            Err(why) => Err(Malformed { offset, why }),
        })
    })
}

/// Over the head of the record, which ends with the length, and the bytes of the entry.
fn entry_crc([head, bytes]: [&[u8]; 2]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&length(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a batch is measured against its limit before it is encoded")
}

fn decode(fields: &mut Fields) -> Result<Record, &'static str> {
    const SHORT: &str = "a record is cut short";
    let head = fields.rest;
    let record = match fields.byte().ok_or(SHORT)? {
        ENTRY => {
            let (index, term) = (fields.u64().ok_or(SHORT)?, fields.u64().ok_or(SHORT)?);
            let len = fields.u32().ok_or(SHORT)?;
            let head = &head[..head.len() - fields.rest.len()];
            let crc = fields.u32().ok_or(SHORT)?;
            let bytes = fields.take(len as usize).ok_or(SHORT)?;
            if entry_crc([head, bytes]) != crc {
                return Err("an entry does not match its checksum");
            }
            Record::Entry { index, term, bytes: bytes.to_vec() }
        }
        VOTE => Record::Vote(fields.bytes().ok_or(SHORT)?),
        COMMITTED => Record::Committed(fields.bytes().ok_or(SHORT)?),
        TRUNCATE_AFTER => Record::TruncateAfter { index: Some(fields.u64().ok_or(SHORT)?) },
        TRUNCATE_ALL => Record::TruncateAfter { index: None },
        PURGE => Record::Purge { index: fields.u64().ok_or(SHORT)?, log_id: fields.bytes().ok_or(SHORT)? },
        _ => return Err("a record has an unknown tag"),
    };
    Ok(record)
}

/// Takes fields off the front, and never reads past the end.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()?;
        self.take(len as usize).map(<[u8]>::to_vec)
    }
}
