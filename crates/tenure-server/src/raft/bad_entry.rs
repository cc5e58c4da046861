//! An entry of the log that this build cannot apply, and what is said of it. No node ever passes over one by itself: its copy of the
//! ledger would differ from the others.

use super::types::contents;
use std::fmt;
use std::io;

/// A reason is shown up to so many characters.
const WHY_CHARS_MAX: usize = 120;

/// An entry of the log that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEntry {
    /// Its place in the log.
    pub index: u64,
    /// What it holds, in words without names and values.
    pub contents: String,
    /// What it does.
    pub what: Fault,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be decoded.
    Unreadable(String),
    /// So many processes in a row ended while they applied it.
    Died(u32),
    /// The program panics when it applies it.
    Panics,
}

impl BadEntry {
    pub(super) fn unreadable(index: u64, bytes: &[u8], error: &io::Error) -> Self {
        Self { index, contents: contents(bytes), what: Fault::Unreadable(ending(&error.to_string())) }
    }

    /// Bytes that are not there belong to an entry that another node would send.
    pub(super) fn applied(index: u64, bytes: Option<&[u8]>, what: Fault) -> Self {
        let contents = bytes.map_or_else(|| "what this node does not have on its disk".into(), contents);
        Self { index, contents, what }
    }
}

/// The last part of a long reason: a decoder names each level, and says at the end what was wrong.
fn ending(why: &str) -> String {
    match why.char_indices().rev().nth(WHY_CHARS_MAX) {
        Some((at, _)) => format!("…{}", &why[at..]),
        None => why.into(),
    }
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, contents, what } = self;
        match what {
            Fault::Unreadable(why) => write!(f, "entry {index} of the log cannot be decoded ({why})")?,
            Fault::Died(count) => {
                write!(f, "the process ended {count} times in a row while it applied entry {index} of the log")?;
            }
            Fault::Panics => write!(f, "the program panics when it applies entry {index} of the log")?,
        }
        write!(f, "; the entry holds {contents}")
    }
}
