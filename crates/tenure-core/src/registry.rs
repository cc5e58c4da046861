//! What an instance says of itself, and what is asked of the registry. Plain values that are valid when they exist; the
//! rules are in the ledger.

mod check;
mod details;
mod endpoint;
mod judgement;
mod orders;
mod penalty;
mod wanted;

use crate::limits::WORD_BYTES_MAX;
use crate::names::{BadText, Name};
use alloc::sync::Arc;
use core::fmt;

pub use check::{Ask, BadCheck, Check, Health, Probe, Source};
pub use details::{BadDetails, Details, Draft, Edit, OnCritical};
pub use endpoint::{BadEndpoint, Endpoint};
pub use judgement::Judgement;
pub(crate) use judgement::{late_after_ms, next_gap_ms, suspect_for};
pub use orders::{Deregister, Drain, Register, SetHealth, UpdateInstance};
pub use penalty::Penalty;
pub use wanted::{BadWanted, Wanted};

/// A capability, a zone, a version or the name of a check. It reads the same in a URL, in a shell, in an expression over
/// capabilities and in the files of other programs: ASCII letters and digits and, after the first, `. _ - : + ~`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(Arc<str>);

impl Word {
    /// Reads a word, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        if text.is_empty() {
            return Err(BadText::Empty);
        }
        if text.len() > WORD_BYTES_MAX {
            return Err(BadText::TooLong { bytes: text.len(), max: WORD_BYTES_MAX });
        }
        let fits = |(at, c): &(usize, char)| c.is_ascii_alphanumeric() || *at > 0 && "._-:+~".contains(*c);
        match text.char_indices().find(|each| !fits(each)) {
            Some((at, _)) => Err(BadText::NotOfWord { at }),
            None => Ok(Self(text.into())),
        }
    }

    /// The word as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What an instance is called within its service: a word.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(Word);

impl InstanceId {
    /// Reads an id, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        Word::parse(text).map(Self)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl core::borrow::Borrow<str> for InstanceId {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Which instance: `agents/planner/a7` is the instance `a7` of the service `agents/planner`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// The service.
    pub service: Name,
    /// What it is called there.
    pub id: InstanceId,
}

impl InstanceKey {
    /// Reads `SERVICE/ID`, split at the last `/`.
    pub fn parse(text: &str) -> Result<Self, BadInstanceKey> {
        let (service, id) = text.rsplit_once('/').ok_or(BadInstanceKey::NoId)?;
        let service = Name::parse(service).map_err(BadInstanceKey::Service)?;
        Ok(Self { service, id: InstanceId::parse(id).map_err(BadInstanceKey::Id)? })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.service.as_str().len() + self.id.as_str().len()
    }

    /// Whether it begins so, as it is written.
    pub(crate) fn starts_with(&self, prefix: &str) -> bool {
        let service = self.service.as_str();
        match prefix.strip_prefix(service) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('/').is_some_and(|id| self.id.as_str().starts_with(id)),
            None => service.starts_with(prefix),
        }
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.id)
    }
}

/// Why a text cannot name an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadInstanceKey {
    /// There is no `/`.
    #[error("it has no `/`: an instance reads SERVICE/ID, as `tenure discover` prints it")]
    NoId,
    /// What stands before the last `/` is no name of a service.
    #[error("its service is no name: {0}")]
    Service(BadText),
    /// What stands after the last `/` is no id.
    #[error("its id is no word: {0}")]
    Id(BadText),
}

macro_rules! shown_as_text {
    ($($kind:ident),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    )*};
}
shown_as_text!(Word, InstanceId);
