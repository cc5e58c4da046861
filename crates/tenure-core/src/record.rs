//! The shape of entries on disk and between nodes, as protocol buffers. A field's number is for ever; a new field must
//! mean nothing when it is absent, so that its absence encodes to the bytes of before. It never applies anything.

mod bad_details;
mod commands;
mod done;
mod end;
mod keys;
mod kinds;
mod outcome;
mod refusal;
mod refused_instance;
mod registry;
mod reply;
mod requests;

use crate::actor::ApiKeyName;
use crate::command::{Command, Entry, Leader};
use crate::fence::Fence;
use crate::limits::{RULES_MAX, RULES_MIN, TTL_MS_MAX};
use crate::mode::{Class, Counts, Epoch, Lifetime, Mode, Policy, Priority, Units};
use crate::names::{Holder, Key, Labels, LeaseId, Name, Note};
use crate::time::{Moment, Span, Ttl};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use commands::CommandRecord;
pub(crate) use commands::ForceRecord;
pub(crate) use end::{EndRecord, end_record, read_end};
pub(crate) use keys::KeyRecord;
pub use outcome::{decode_outcome, encode_outcome};
use prost::Message;
pub(crate) use registry::{DetailsRecord, details, details_record, health, health_number, instance_key, word};

/// Bytes that are not what they should be. Nothing was read from them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable record: {0}")]
pub struct Damage(pub(crate) String);

impl Damage {
    pub(crate) fn new(what: &str) -> Self {
        Self(what.to_string())
    }
}

impl From<prost::DecodeError> for Damage {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.to_string())
    }
}

#[derive(Clone, PartialEq, Message)]
struct EntryRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(uint64, tag = "3")]
    now_ms: u64,
    #[prost(uint64, tag = "4")]
    wall_ms: u64,
    #[prost(uint32, tag = "5")]
    rules: u32,
    #[prost(message, repeated, tag = "6")]
    commands: Vec<CommandRecord>,
}

/// The version of an entry alone. Commands by other rules may have another shape, so this is read before them.
#[derive(Clone, PartialEq, Message)]
struct RulesRecord {
    #[prost(uint32, tag = "5")]
    rules: u32,
}

/// How a claim shares its resource: exclusive if there is nothing.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ModeRecord {
    #[prost(bool, tag = "1")]
    shared: bool,
    #[prost(uint32, tag = "2")]
    units: u32,
}

/// A maximum lifetime.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LifetimeRecord {
    #[prost(uint64, tag = "1")]
    ms: u64,
    #[prost(bool, tag = "2")]
    while_others_wait: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClassRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    ttl_ms: u64,
    #[prost(uint64, tag = "3")]
    ttl_min_ms: u64,
    #[prost(uint64, tag = "4")]
    ttl_max_ms: u64,
    /// 0 auto, 1 activity, 2 explicit, 3 never.
    #[prost(uint32, tag = "5")]
    renew: u32,
    #[prost(uint64, tag = "6")]
    grace_ms: u64,
    #[prost(message, optional, tag = "7")]
    lifetime: Option<LifetimeRecord>,
}

pub(crate) fn lease_id(number: u64) -> Result<LeaseId, Damage> {
    LeaseId::from_number(number).ok_or_else(|| Damage::new("a lease id out of range"))
}

pub(crate) fn lease_or_none(number: u64) -> Result<Option<LeaseId>, Damage> {
    if number == 0 { Ok(None) } else { lease_id(number).map(Some) }
}

pub(crate) fn name(text: &str) -> Result<Name, Damage> {
    Name::recorded(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn name_or_none(text: &str) -> Result<Option<Name>, Damage> {
    if text.is_empty() { Ok(None) } else { name(text).map(Some) }
}

pub(crate) fn holder(text: &str) -> Result<Holder, Damage> {
    Holder::recorded(text).map_err(|bad| Damage(bad.to_string()))
}

/// The name of an API key.
pub(crate) fn api_key(text: &str) -> Result<ApiKeyName, Damage> {
    ApiKeyName::parse(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn api_key_or_none(text: &str) -> Result<Option<ApiKeyName>, Damage> {
    if text.is_empty() { Ok(None) } else { api_key(text).map(Some) }
}

pub(crate) fn note(text: &str) -> Result<Note, Damage> {
    Note::recorded(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn key(bytes: &[u8]) -> Result<Key, Damage> {
    Key::parse(bytes).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn labels(pairs: &BTreeMap<String, String>) -> Result<Labels, Damage> {
    let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Labels::recorded(pairs).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn label_pairs(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

pub(crate) fn ttl(ms: u64) -> Result<Ttl, Damage> {
    Ttl::from_millis(ms).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn ttl_or_none(ms: u64) -> Result<Option<Ttl>, Damage> {
    if ms == 0 { Ok(None) } else { ttl(ms).map(Some) }
}

pub(crate) fn span(ms: u64, max_ms: u64) -> Result<Span, Damage> {
    Span::at_most(ms, max_ms).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn fence(number: u64) -> Result<Fence, Damage> {
    Fence::from_number(number).ok_or_else(|| Damage::new("a fence out of range"))
}

pub(crate) fn units(number: u32) -> Result<Units, Damage> {
    Units::from_number(number.into()).ok_or_else(|| Damage::new("units out of range"))
}

pub(crate) fn units_or_none(number: u32) -> Result<Option<Units>, Damage> {
    if number == 0 { Ok(None) } else { units(number).map(Some) }
}

pub(crate) fn units_number(units: Option<Units>) -> u32 {
    units.and_then(|units| u32::try_from(units.number()).ok()).unwrap_or_default()
}

pub(crate) fn priority(number: i32) -> Result<Priority, Damage> {
    Priority::from_number(number).ok_or_else(|| Damage::new("a priority out of range"))
}

pub(crate) fn epoch(number: u64) -> Option<Epoch> {
    Epoch::from_number(number)
}

pub(crate) fn mode(record: Option<ModeRecord>) -> Result<Mode, Damage> {
    match record {
        None => Ok(Mode::Exclusive),
        Some(ModeRecord { shared: true, units: 0 }) => Ok(Mode::Shared),
        Some(ModeRecord { shared: false, units: number }) => units(number).map(Mode::Units),
        Some(_) => Err(Damage::new("a claim that is both shared and counted")),
    }
}

pub(crate) fn mode_record(mode: Mode) -> Option<ModeRecord> {
    match mode {
        Mode::Exclusive => None,
        Mode::Shared => Some(ModeRecord { shared: true, units: 0 }),
        Mode::Units(units) => Some(ModeRecord { shared: false, units: units_number(Some(units)) }),
    }
}

pub(crate) fn lifetime(record: Option<LifetimeRecord>) -> Result<Option<Lifetime>, Damage> {
    let Some(record) = record else { return Ok(None) };
    let counts = if record.while_others_wait { Counts::WhileOthersWait } else { Counts::Always };
    Ok(Some(Lifetime { span: span(record.ms, TTL_MS_MAX)?, counts }))
}

pub(crate) fn lifetime_record(lifetime: Option<Lifetime>) -> Option<LifetimeRecord> {
    lifetime.map(|lifetime| LifetimeRecord {
        ms: lifetime.span.millis(),
        while_others_wait: lifetime.counts == Counts::WhileOthersWait,
    })
}

fn policy(number: u32) -> Result<Policy, Damage> {
    match number {
        0 => Ok(Policy::Auto),
        1 => Ok(Policy::Activity),
        2 => Ok(Policy::Explicit),
        3 => Ok(Policy::Never),
        _ => Err(Damage::new("a renewal policy that this build does not know")),
    }
}

const fn policy_number(policy: Policy) -> u32 {
    match policy {
        Policy::Auto => 0,
        Policy::Activity => 1,
        Policy::Explicit => 2,
        Policy::Never => 3,
    }
}

pub(crate) fn class(record: &ClassRecord) -> Result<Class, Damage> {
    Ok(Class {
        name: name(&record.name)?,
        ttl: ttl(record.ttl_ms)?,
        ttl_min: ttl(record.ttl_min_ms)?,
        ttl_max: ttl(record.ttl_max_ms)?,
        renew: policy(record.renew)?,
        grace: span(record.grace_ms, crate::limits::GRACE_MS_MAX)?,
        lifetime: lifetime(record.lifetime)?,
    })
}

pub(crate) fn class_record(class: &Class) -> ClassRecord {
    ClassRecord {
        name: class.name.to_string(),
        ttl_ms: class.ttl.millis(),
        ttl_min_ms: class.ttl_min.millis(),
        ttl_max_ms: class.ttl_max.millis(),
        renew: policy_number(class.renew),
        grace_ms: class.grace.millis(),
        lifetime: lifetime_record(class.lifetime),
    }
}

impl Entry {
    /// The entry as it is written to disk and sent to peers.
    pub fn encode(&self) -> Vec<u8> {
        EntryRecord {
            term: self.leader.term,
            node: self.leader.node,
            now_ms: self.now.millis(),
            wall_ms: self.wall_ms,
            rules: self.rules,
            commands: self.commands.iter().map(Command::record).collect(),
        }
        .encode_to_vec()
    }

    /// Reads an entry back. Whatever the bytes are, it is read whole or refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        check_rules(RulesRecord::decode(bytes)?.rules)?;
        let record = EntryRecord::decode(bytes)?;
        Ok(Self {
            leader: Leader { term: record.term, node: record.node },
            now: Moment::from_millis(record.now_ms),
            wall_ms: record.wall_ms,
            rules: record.rules,
            commands: record.commands.into_iter().map(Command::read).collect::<Result<_, _>>()?,
        })
    }
}

impl Command {
    /// The command alone, in the shape that it has in an entry.
    pub fn encode(&self) -> Vec<u8> {
        self.record().encode_to_vec()
    }

    /// Reads a command back. Whatever the bytes are, they are read whole or refused. Those with a field that this build does not
    /// know are refused as well, because no version of the rules stands beside a command that is alone. Whether the log could
    /// read the command back is another question: see [`Command::can_be_read_back`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let command = Self::read(CommandRecord::decode(bytes)?)?;
        if command.encode() != bytes {
            return Err(Damage::new("a command with more in it than this build knows"));
        }
        Ok(command)
    }

    /// Whether the log could read this back. A command that cannot nest always can.
    pub fn can_be_read_back(&self) -> bool {
        let Self::Txn(txn) = self.plain() else { return true };
        if !txn.nests() {
            return true;
        }
        let record = EntryRecord { commands: alloc::vec![self.record()], ..EntryRecord::default() };
        let read = EntryRecord::decode(&record.encode_to_vec()[..]);
        read.is_ok_and(|mut read| read.commands.pop().map(Self::read).is_some_and(|read| read.as_ref() == Ok(self)))
    }
}

/// Whether this build can apply what was written by these rules.
pub(crate) fn check_rules(rules: u32) -> Result<(), Damage> {
    if rules > RULES_MAX {
        let text = format!("it is by rules version {rules}, and this build knows {RULES_MAX}: start a newer build");
        return Err(Damage(text));
    }
    if rules < RULES_MIN {
        let text = format!(
            "it is by rules version {rules}, which was never released, and this build begins at {RULES_MIN}: start with \
             an empty directory"
        );
        return Err(Damage(text));
    }
    Ok(())
}
