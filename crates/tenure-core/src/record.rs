//! The shape of entries on disk and between nodes, as protocol buffers. A field's number is for ever; a new field must
//! mean nothing when it is absent, so that its absence encodes to the bytes of before. It never applies anything.

use crate::command::{
    Acquire, Cancel, Command, Entry, Grant, Leader, On, Release, Renew, RenewHandle, Renewal, Revoke, Wait,
};
use crate::fence::{Fence, Handle};
use crate::limits::RULES_MAX;
use crate::names::{Holder, LeaseId, Name, Note};
use crate::time::{Moment, Ttl};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;

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

#[derive(Clone, PartialEq, Message)]
struct CommandRecord {
    #[prost(oneof = "CommandKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    kind: Option<CommandKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum CommandKind {
    #[prost(message, tag = "1")]
    Grant(GrantRecord),
    #[prost(message, tag = "2")]
    Acquire(AcquireRecord),
    #[prost(message, tag = "3")]
    Renew(RenewRecord),
    #[prost(message, tag = "4")]
    RenewHandle(HandleRecord),
    #[prost(message, tag = "5")]
    Release(HandleRecord),
    #[prost(message, tag = "6")]
    Cancel(CancelRecord),
    #[prost(message, tag = "7")]
    Revoke(RevokeRecord),
}

#[derive(Clone, PartialEq, Message)]
struct GrantRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(fixed64, tag = "4")]
    request: u64,
}

#[derive(Clone, PartialEq, Message)]
struct AcquireRecord {
    /// The new lease; absent when the claim hangs on a given one.
    #[prost(message, optional, tag = "1")]
    grant: Option<GrantRecord>,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(string, tag = "3")]
    resource: String,
    #[prost(bool, tag = "4")]
    in_line: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RenewRecord {
    #[prost(fixed64, repeated, tag = "1")]
    leases: Vec<u64>,
    /// Empty when every lease keeps its TTL; else one for each lease, 0 for those that keep theirs.
    #[prost(uint64, repeated, tag = "2")]
    ttls_ms: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct HandleRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
    /// For a renewal: 0 keeps the TTL.
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct CancelRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    resource: String,
}

#[derive(Clone, PartialEq, Message)]
struct RevokeRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    by: String,
    #[prost(string, tag = "3")]
    reason: String,
}

pub(crate) fn lease_id(number: u64) -> Result<LeaseId, Damage> {
    LeaseId::from_number(number).ok_or_else(|| Damage::new("a lease id out of range"))
}

pub(crate) fn name(text: &str) -> Result<Name, Damage> {
    Name::parse(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn holder(text: &str) -> Result<Holder, Damage> {
    Holder::parse(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn note(text: &str) -> Result<Note, Damage> {
    Note::parse(text).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn ttl(ms: u64) -> Result<Ttl, Damage> {
    Ttl::from_millis(ms).map_err(|bad| Damage(bad.to_string()))
}

pub(crate) fn fence(number: u64) -> Result<Fence, Damage> {
    Fence::from_number(number).ok_or_else(|| Damage::new("a fence out of range"))
}

fn kept_or(ms: u64) -> Result<Option<Ttl>, Damage> {
    if ms == 0 { Ok(None) } else { ttl(ms).map(Some) }
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
            commands: self.commands.iter().map(encode_command).collect(),
        }
        .encode_to_vec()
    }

    /// Reads an entry back. Whatever the bytes are, it is read whole or refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let record = EntryRecord::decode(bytes)?;
        if record.rules > RULES_MAX {
            let (rules, known) = (record.rules, RULES_MAX);
            let text = format!("an entry by rules version {rules}, and this build knows {known}: start a newer build");
            return Err(Damage(text));
        }
        Ok(Self {
            leader: Leader { term: record.term, node: record.node },
            now: Moment::from_millis(record.now_ms),
            wall_ms: record.wall_ms,
            rules: record.rules,
            commands: record.commands.into_iter().map(decode_command).collect::<Result<_, _>>()?,
        })
    }
}

fn encode_grant(grant: &Grant) -> GrantRecord {
    GrantRecord {
        lease: grant.lease.number(),
        holder: grant.holder.to_string(),
        ttl_ms: grant.ttl.millis(),
        request: grant.request,
    }
}

fn encode_renew(renew: &Renew) -> RenewRecord {
    let changes_ttl = renew.leases.iter().any(|renewal| renewal.ttl.is_some());
    let ttls = renew.leases.iter().map(|renewal| renewal.ttl.map_or(0, Ttl::millis));
    RenewRecord {
        leases: renew.leases.iter().map(|renewal| renewal.lease.number()).collect(),
        ttls_ms: if changes_ttl { ttls.collect() } else { Vec::new() },
    }
}

fn encode_handle(handle: &Handle, ttl: Option<Ttl>) -> HandleRecord {
    HandleRecord {
        resource: handle.resource.to_string(),
        fence: handle.fence.number(),
        ttl_ms: ttl.map_or(0, Ttl::millis),
    }
}

fn encode_command(command: &Command) -> CommandRecord {
    let kind = match command {
        Command::Grant(grant) => CommandKind::Grant(encode_grant(grant)),
        Command::Acquire(acquire) => {
            let (grant, lease) = match &acquire.on {
                On::New(grant) => (Some(encode_grant(grant)), 0),
                On::Given(lease) => (None, lease.number()),
            };
            let in_line = acquire.wait == Wait::InLine;
            CommandKind::Acquire(AcquireRecord { grant, lease, resource: acquire.resource.to_string(), in_line })
        }
        Command::Renew(renew) => CommandKind::Renew(encode_renew(renew)),
        Command::RenewHandle(renew) => CommandKind::RenewHandle(encode_handle(&renew.handle, renew.ttl)),
        Command::Release(release) => CommandKind::Release(encode_handle(&release.handle, None)),
        Command::Cancel(cancel) => {
            CommandKind::Cancel(CancelRecord { lease: cancel.lease.number(), resource: cancel.resource.to_string() })
        }
        Command::Revoke(revoke) => CommandKind::Revoke(RevokeRecord {
            lease: revoke.lease.number(),
            by: revoke.by.to_string(),
            reason: revoke.reason.to_string(),
        }),
    };
    CommandRecord { kind: Some(kind) }
}

fn decode_grant(record: &GrantRecord) -> Result<Grant, Damage> {
    Ok(Grant {
        lease: lease_id(record.lease)?,
        holder: holder(&record.holder)?,
        ttl: ttl(record.ttl_ms)?,
        request: record.request,
    })
}

fn decode_renew(record: &RenewRecord) -> Result<Renew, Damage> {
    if !record.ttls_ms.is_empty() && record.ttls_ms.len() != record.leases.len() {
        return Err(Damage::new("a renewal whose TTLs do not match its leases"));
    }
    let ttls = record.ttls_ms.iter().copied().chain(core::iter::repeat(0));
    let pairs = record.leases.iter().zip(ttls);
    let leases = pairs.map(|(lease, ms)| Ok(Renewal { lease: lease_id(*lease)?, ttl: kept_or(ms)? }));
    Ok(Renew { leases: leases.collect::<Result<_, Damage>>()? })
}

fn decode_handle(record: &HandleRecord) -> Result<Handle, Damage> {
    Ok(Handle { resource: name(&record.resource)?, fence: fence(record.fence)? })
}

fn decode_command(record: CommandRecord) -> Result<Command, Damage> {
    let kind = record.kind.ok_or_else(|| Damage::new("a command of a kind that this build does not know"))?;
    Ok(match kind {
        CommandKind::Grant(grant) => Command::Grant(decode_grant(&grant)?),
        CommandKind::Acquire(acquire) => Command::Acquire(Acquire {
            on: match &acquire.grant {
                Some(grant) => On::New(decode_grant(grant)?),
                None => On::Given(lease_id(acquire.lease)?),
            },
            resource: name(&acquire.resource)?,
            wait: if acquire.in_line { Wait::InLine } else { Wait::Never },
        }),
        CommandKind::Renew(renew) => Command::Renew(decode_renew(&renew)?),
        CommandKind::RenewHandle(renew) => {
            Command::RenewHandle(RenewHandle { handle: decode_handle(&renew)?, ttl: kept_or(renew.ttl_ms)? })
        }
        CommandKind::Release(release) => Command::Release(Release { handle: decode_handle(&release)? }),
        CommandKind::Cancel(cancel) => {
            Command::Cancel(Cancel { lease: lease_id(cancel.lease)?, resource: name(&cancel.resource)? })
        }
        CommandKind::Revoke(revoke) => Command::Revoke(Revoke {
            lease: lease_id(revoke.lease)?,
            by: holder(&revoke.by)?,
            reason: note(&revoke.reason)?,
        }),
    })
}
