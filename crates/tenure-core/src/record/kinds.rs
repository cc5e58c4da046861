//! What kinds of commands an entry on disk holds, for an entry that cannot be applied or not even be decoded. It reads one number
//! of each command, never a name or a value, and its depth does not depend on the bytes.

use super::{Damage, Entry};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use prost::Message;
use prost::encoding::decode_key;

/// An entry whose commands stay bytes.
#[derive(Clone, PartialEq, Message)]
struct ShellRecord {
    #[prost(bytes = "vec", repeated, tag = "6")]
    commands: Vec<Vec<u8>>,
}

/// The kinds of commands, by their numbers in `CommandRecord`.
const KINDS: [&str; 21] = [
    "grant",
    "acquire",
    "renew",
    "renew by handle",
    "release",
    "cancel",
    "revoke",
    "release of a lease",
    "break",
    "transfer",
    "define",
    "class",
    "put",
    "delete",
    "transaction",
    "compact",
    "register",
    "update of an instance",
    "drain",
    "deregister",
    "health report",
];
const UNKNOWN: &str = "command that this build does not know";

impl Entry {
    /// How many commands of which kind the bytes of an entry hold, whether or not the commands can be decoded.
    pub fn kinds(bytes: &[u8]) -> Result<BTreeMap<&'static str, usize>, Damage> {
        let mut kinds = BTreeMap::new();
        for command in ShellRecord::decode(bytes)?.commands {
            *kinds.entry(kind(&command)).or_default() += 1;
        }
        Ok(kinds)
    }
}

fn kind(command: &[u8]) -> &'static str {
    let tag = decode_key(&mut &command[..]).ok().and_then(|(tag, _)| usize::try_from(tag).ok());
    tag.and_then(|tag| KINDS.get(tag.checked_sub(1)?).copied()).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Compact, Leader, ReleaseLease};
    use crate::names::LeaseId;
    use crate::time::Moment;
    use crate::txn::{Op, Txn};
    use alloc::vec;

    fn encoded(commands: Vec<Command>) -> Vec<u8> {
        let leader = Leader { term: 3, node: 1 };
        Entry { leader, now: Moment::from_millis(9), wall_ms: 1, rules: crate::limits::RULES_MAX, commands }.encode()
    }

    fn nested(depth: usize) -> Txn {
        (0..depth).fold(Txn::default(), |inner, _| Txn { then: vec![Op::Txn(inner)], ..Txn::default() })
    }

    #[test]
    fn kinds_are_counted_by_name() {
        let release = Command::ReleaseLease(ReleaseLease::plain(LeaseId::from_number(7).unwrap()));
        let compact = Command::Compact(Compact { revision: -1 });
        let kinds = Entry::kinds(&encoded(vec![release.clone(), compact, release])).unwrap();
        assert_eq!(kinds, BTreeMap::from([("compact", 1), ("release of a lease", 2)]));
        assert!(Entry::kinds(&encoded(vec![])).unwrap().is_empty());
    }

    #[test]
    fn kinds_of_an_entry_that_cannot_be_decoded_are_known() {
        let bytes = encoded(vec![Command::Txn(nested(60))]);
        assert!(Entry::decode(&bytes).is_err(), "it is nested too deeply");
        assert_eq!(Entry::kinds(&bytes).unwrap(), BTreeMap::from([("transaction", 1)]));
    }

    #[test]
    fn bytes_that_are_no_entry_are_refused() {
        assert!(Entry::kinds(&[0xff; 40]).is_err());
        assert_eq!(kind(&[]), UNKNOWN);
        assert_eq!(kind(&[0xb2, 0x01, 0]), UNKNOWN, "a number that no command has");
    }
}
