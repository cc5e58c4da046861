//! The names people give: resources, holders, notes, and the ids of leases. A value that exists is valid.

use crate::limits::{HOLDER_BYTES_MAX, NAME_BYTES_MAX, NOTE_BYTES_MAX};
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

/// Why a text cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// Nothing was given.
    #[error("it is empty")]
    Empty,
    /// It is longer than the limit.
    #[error("it has {bytes} bytes, more than {max}")]
    TooLong {
        /// The length that was given.
        bytes: usize,
        /// The longest length that is accepted.
        max: usize,
    },
    /// It holds a character that terminals and logs would act on.
    #[error("it has a control character at byte {at}")]
    Control {
        /// Where the character starts.
        at: usize,
    },
    /// A path with nothing between two slashes, or before the first, or after the last.
    #[error("it has an empty part at byte {at}: write parts/like/this")]
    EmptyPart {
        /// Where the part would have been.
        at: usize,
    },
}

fn check(text: &str, max: usize) -> Result<(), BadText> {
    if text.is_empty() {
        return Err(BadText::Empty);
    }
    if text.len() > max {
        return Err(BadText::TooLong { bytes: text.len(), max });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(BadText::Control { at }),
        None => Ok(()),
    }
}

/// The name of a resource: a `/`-path such as `jobs/nightly`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Reads a name, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        check(text, NAME_BYTES_MAX)?;
        let mut at = 0;
        for part in text.split('/') {
            if part.is_empty() {
                return Err(BadText::EmptyPart { at });
            }
            at += part.len() + 1;
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Who holds a lease, in its own words; `user@host:pid` unless said otherwise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// Reads a holder's name, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        check(text, HOLDER_BYTES_MAX)?;
        Ok(Self(text.into()))
    }

    /// The holder's name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A sentence for people: why something was revoked. It may be empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note(Arc<str>);

impl Note {
    /// Reads a note, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        match check(text, NOTE_BYTES_MAX) {
            Ok(()) | Err(BadText::Empty) => Ok(Self(text.into())),
            Err(bad) => Err(bad),
        }
    }

    /// The note as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a lease: a positive 63-bit number, drawn at random by whoever asks for the lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u64);

impl LeaseId {
    /// The id with this number, if it is from 1 to 2^63 - 1.
    pub const fn from_number(number: u64) -> Option<Self> {
        if number == 0 || number > i64::MAX as u64 { None } else { Some(Self(number)) }
    }

    /// The id as a number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

macro_rules! shown_as_text {
    ($($kind:ident),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    )*};
}
shown_as_text!(Name, Holder, Note);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
