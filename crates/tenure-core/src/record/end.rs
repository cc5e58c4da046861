//! The shape of how a lease, a claim or an instance ended. The number of a field never changes.

use super::{Damage, holder, lease_id, note};
use crate::event::End;
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
