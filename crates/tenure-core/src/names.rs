//! The names people give: resources, holders, notes, labels, keys, and the ids of leases. A value that exists is valid.

use crate::limits::{
    HOLDER_BYTES_MAX, KEY_VALUE_BYTES_MAX, LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, NAME_BYTES_MAX,
    NOTE_BYTES_MAX,
};
use alloc::collections::BTreeMap;
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
    /// It holds a character that changes the order of the text or is not shown, so that two names could look alike.
    #[error("it has the character U+{:04X} at byte {at}, which is invisible or reorders text", u32::from(*character))]
    Hidden {
        /// Where the character starts.
        at: usize,
        /// The character.
        character: char,
    },
    /// A label's key with the character that ends it.
    #[error("it has a `=` at byte {at}")]
    Equals {
        /// Where the character is.
        at: usize,
    },
    /// The same thing is named twice.
    #[error("it is there twice")]
    Twice,
    /// More of them than are accepted.
    #[error("there are {count}, more than {max}")]
    TooMany {
        /// How many were given.
        count: usize,
        /// How many are accepted.
        max: usize,
    },
    /// A word with a character that has a meaning where words are written.
    #[error(
        "it has a character at byte {at} that is no part of a word: letters and digits, and after the first . _ - : + ~"
    )]
    NotOfWord {
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

/// Characters that are invisible or reorder the text around them.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// The same for sentences, where the scripts of some languages need the zero-width joiner and non-joiner.
fn is_hidden_in_sentence(c: char) -> bool {
    is_hidden(c) && !matches!(c, '\u{200c}' | '\u{200d}')
}

/// Refuses what only people are confused by. Logs of earlier builds may hold such text, so records are read without it.
fn check_shown(text: &str, is_hidden: fn(char) -> bool) -> Result<(), BadText> {
    match text.char_indices().find(|(_, c)| is_hidden(*c)) {
        Some((at, character)) => Err(BadText::Hidden { at, character }),
        None => Ok(()),
    }
}

/// The name of a resource: a `/`-path such as `jobs/nightly`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Reads a name, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        let name = Self::recorded(text)?;
        check_shown(text, is_hidden)?;
        Ok(name)
    }

    /// Reads a name from a record.
    pub(crate) fn recorded(text: &str) -> Result<Self, BadText> {
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
        let holder = Self::recorded(text)?;
        check_shown(text, is_hidden)?;
        Ok(holder)
    }

    /// Reads a holder's name from a record.
    pub(crate) fn recorded(text: &str) -> Result<Self, BadText> {
        check(text, HOLDER_BYTES_MAX)?;
        Ok(Self(text.into()))
    }

    /// The holder's name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A sentence for people: what a lease is for, why something was revoked. It may be empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note(Arc<str>);

impl Default for Note {
    fn default() -> Self {
        Self("".into())
    }
}

impl Note {
    /// Reads a note, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        let note = Self::recorded(text)?;
        check_shown(text, is_hidden_in_sentence)?;
        Ok(note)
    }

    /// Reads a note from a record.
    pub(crate) fn recorded(text: &str) -> Result<Self, BadText> {
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

/// What people and programs say about a lease: a few keys, each with a value that may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<Arc<str>, Arc<str>>);

impl Labels {
    /// Reads labels, or says why they are none.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, BadText> {
        Self::read(pairs, Label::parse)
    }

    /// Reads labels from a record.
    pub(crate) fn recorded<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, BadText> {
        Self::read(pairs, Label::recorded)
    }

    fn read<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        read: fn(&str, &str) -> Result<Label, BadText>,
    ) -> Result<Self, BadText> {
        let mut labels = BTreeMap::new();
        for (key, value) in pairs {
            let label = read(key, value)?;
            if labels.insert(label.key, label.value).is_some() {
                return Err(BadText::Twice);
            }
        }
        match labels.len() {
            count if count > LABELS_MAX => Err(BadText::TooMany { count, max: LABELS_MAX }),
            _ => Ok(Self(labels)),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether this one is among them.
    pub fn has(&self, label: &Label) -> bool {
        self.0.get(&label.key) == Some(&label.value)
    }
}

/// One label: a key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    key: Arc<str>,
    value: Arc<str>,
}

impl Label {
    /// Reads a label, or says why it is none.
    pub fn parse(key: &str, value: &str) -> Result<Self, BadText> {
        let label = Self::recorded(key, value)?;
        check_shown(key, is_hidden)?;
        check_shown(value, is_hidden)?;
        Ok(label)
    }

    /// Reads a label from a record.
    pub(crate) fn recorded(key: &str, value: &str) -> Result<Self, BadText> {
        check(key, LABEL_KEY_BYTES_MAX)?;
        if let Some(at) = key.find('=') {
            return Err(BadText::Equals { at });
        }
        match check(value, LABEL_VALUE_BYTES_MAX) {
            Ok(()) | Err(BadText::Empty) => Ok(Self { key: key.into(), value: value.into() }),
            Err(bad) => Err(bad),
        }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// The name of a key: any bytes, at least one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// Reads a key, or says why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadText> {
        match bytes.len() {
            0 => Err(BadText::Empty),
            bytes if bytes > KEY_VALUE_BYTES_MAX => Err(BadText::TooLong { bytes, max: KEY_VALUE_BYTES_MAX }),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
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
