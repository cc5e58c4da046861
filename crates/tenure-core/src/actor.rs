//! Who sends a command: the API key that was shown, and how far its rights reach. Nodes log this with the command, so that
//! the ledger decides by it alike on each of them. It knows no secret and reads no key file.

use crate::command::{Break, Command, Force, Revoke, Transfer};
use crate::limits::{API_KEY_NAME_BYTES_MAX, HOLDER_BYTES_MAX};
use crate::names::{BadText, Holder};
use crate::registry::Deregister;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

/// The name of an API key: letters, digits and `-._`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKeyName(Arc<str>);

impl ApiKeyName {
    /// Reads the name of a key, or says why it is none.
    pub fn parse(text: &str) -> Result<Self, BadText> {
        if text.is_empty() {
            return Err(BadText::Empty);
        }
        if text.len() > API_KEY_NAME_BYTES_MAX {
            return Err(BadText::TooLong { bytes: text.len(), max: API_KEY_NAME_BYTES_MAX });
        }
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match text.char_indices().find(|(_, c)| !is_good(*c)) {
            Some((at, _)) => Err(BadText::NotOfWord { at }),
            None => Ok(Self(text.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ApiKeyName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApiKeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ApiKeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What a key may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Everything.
    #[default]
    All,
    /// Claims, keys and instances by their names, which were compared with the prefixes of the key before the command was
    /// logged; leases by their ids only if they were begun with the key.
    Named,
    /// Leases that were begun with the key, and what hangs on them.
    Own,
}

/// The API key that a command was sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name of the key.
    pub key: ApiKeyName,
    /// What it may change.
    pub reach: Reach,
    /// How many leases may live at once that were begun with it; none: as many as the ledger holds.
    pub leases_max: Option<u32>,
}

/// A command with the API key that it was sent with.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributed {
    actor: Actor,
    command: Box<Command>,
}

impl Command {
    /// The same command, sent with an API key. Who orders a forced end or a drain is the key, then; what the request says of
    /// that stays as a note behind its name.
    #[must_use]
    pub fn sent_with(mut self, actor: Actor) -> Self {
        match &mut self {
            Self::Attributed(before) => return before.command.as_ref().clone().sent_with(actor),
            Self::Revoke(Revoke { force, .. }) | Self::Break(Break { force, .. }) => sign(force, &actor.key),
            Self::Transfer(Transfer { force: Some(force), .. })
            | Self::Deregister(Deregister { force: Some(force), .. }) => sign(force, &actor.key),
            Self::Drain(drain) => drain.by = signed(&drain.by, &actor.key),
            _ => {}
        }
        Self::recorded_with(self, Some(actor))
    }

    /// A command as it was logged.
    pub(crate) fn recorded_with(self, actor: Option<Actor>) -> Self {
        match actor {
            Some(actor) => Self::Attributed(Attributed { actor, command: Box::new(self) }),
            None => self,
        }
    }

    /// The command without the key that it was sent with.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Attributed(attributed) => &attributed.command,
            plain => plain,
        }
    }

    /// The key that it was sent with; none if the server asks for no keys, or sends the command itself.
    pub const fn actor(&self) -> Option<&Actor> {
        match self {
            Self::Attributed(attributed) => Some(&attributed.actor),
            _ => None,
        }
    }
}

fn sign(force: &mut Force, key: &ApiKeyName) {
    force.by = signed(&force.by, key);
}

/// `KEY (SAID)`. The name of a key has neither spaces nor brackets, so what is said cannot pass for it. What does not fit is
/// left out.
fn signed(said: &Holder, key: &ApiKeyName) -> Holder {
    let room = HOLDER_BYTES_MAX - key.as_str().len() - " ()".len();
    let said = said.as_str();
    let cut = (0..=room.min(said.len())).rev().find(|at| said.is_char_boundary(*at)).unwrap_or_default();
    Holder::recorded(&format!("{key} ({})", &said[..cut])).expect("the name of a key and a part of a holder's make one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn key(text: &str) -> ApiKeyName {
        ApiKeyName::parse(text).unwrap()
    }

    #[test]
    fn name_of_a_key_is_short_and_plain() {
        assert!(ApiKeyName::parse(&"k".repeat(API_KEY_NAME_BYTES_MAX)).is_ok());
        for bad in ["", "a b", "a(b", "ä", &"k".repeat(API_KEY_NAME_BYTES_MAX + 1)] {
            assert!(ApiKeyName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_said_stands_behind_the_key() {
        let said = |text: &str| signed(&Holder::parse(text).unwrap(), &key("ops")).to_string();
        assert_eq!(said("ann (on call)"), "ops (ann (on call))");
        let long = said(&"ä".repeat(HOLDER_BYTES_MAX / 2));
        assert!(long.len() <= HOLDER_BYTES_MAX && long.starts_with("ops (ä") && long.ends_with("ä)"), "{long}");
    }
}
