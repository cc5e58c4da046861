//! The shape of how a lease, a claim or an instance ended. The number of a field never changes.

use super::{Damage, holder, lease_id, note};
use crate::event::End;
use crate::time::Moment;
use alloc::string::{String, ToString};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndRecord {
    #[prost(enumeration = "EndKind", tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    by: String,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(fixed64, tag = "4")]
    parent: u64,
    #[prost(string, tag = "5")]
    to: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
enum EndKind {
    Unspecified = 0,
    Released = 1,
    Expired = 2,
    Revoked = 3,
    ParentEnded = 4,
    Superseded = 5,
    MaxLifetime = 6,
    WaitedOut = 7,
    Transferred = 8,
    Unhealthy = 9,
}

pub(crate) fn end_record(how: &End) -> EndRecord {
    let mut record = EndRecord::default();
    let kind = match how {
        End::Released => EndKind::Released,
        End::Expired => EndKind::Expired,
        End::Revoked { by, reason } => {
            record.by = by.to_string();
            record.reason = reason.to_string();
            EndKind::Revoked
        }
        End::ParentEnded { parent } => {
            record.parent = parent.number();
            EndKind::ParentEnded
        }
        End::Superseded => EndKind::Superseded,
        End::MaxLifetime => EndKind::MaxLifetime,
        End::WaitedOut => EndKind::WaitedOut,
        End::Unhealthy => EndKind::Unhealthy,
        End::Transferred { to } => {
            record.to = to.to_string();
            EndKind::Transferred
        }
    };
    record.set_kind(kind);
    record
}

pub(crate) fn read_end(record: Option<EndRecord>) -> Result<End, Damage> {
    let record = record.ok_or_else(|| Damage::new("an end that does not say how"))?;
    match record.kind() {
        EndKind::Released => Ok(End::Released),
        EndKind::Expired => Ok(End::Expired),
        EndKind::Revoked => Ok(End::Revoked { by: holder(&record.by)?, reason: note(&record.reason)? }),
        EndKind::ParentEnded => Ok(End::ParentEnded { parent: lease_id(record.parent)? }),
        EndKind::Superseded => Ok(End::Superseded),
        EndKind::MaxLifetime => Ok(End::MaxLifetime),
        EndKind::WaitedOut => Ok(End::WaitedOut),
        EndKind::Unhealthy => Ok(End::Unhealthy),
        EndKind::Transferred => Ok(End::Transferred { to: holder(&record.to)? }),
        EndKind::Unspecified => Err(Damage::new("an end of a kind that this build does not know")),
    }
}

/// How something ended, and when.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EndedRecord {
    #[prost(message, optional, tag = "1")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "2")]
    when_ms: u64,
    #[prost(uint64, tag = "3")]
    wall_ms: u64,
}

impl EndedRecord {
    pub(super) fn of(how: &End, when: Moment, wall_ms: u64) -> Self {
        Self { how: Some(end_record(how)), when_ms: when.millis(), wall_ms }
    }

    /// The record of an end that may be forgotten.
    pub(super) fn of_known(ended: Option<&(End, Moment, u64)>) -> Option<Self> {
        ended.map(|(how, when, wall_ms)| Self::of(how, *when, *wall_ms))
    }

    /// How, when in service time, and when by the wall clock of the leader of that time.
    pub(super) fn read(self) -> Result<(End, Moment, u64), Damage> {
        Ok((read_end(self.how)?, Moment::from_millis(self.when_ms), self.wall_ms))
    }
}
