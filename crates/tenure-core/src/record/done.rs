//! The shape of what transactions did, between nodes.

use super::{Damage, KeyRecord};
use crate::ledger::KeyValue;
use crate::names::Key;
use crate::txn::{OpDone, Ranged, TxnDone};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnDoneRecord {
    #[prost(uint64, tag = "1")]
    kv_revision: u64,
    #[prost(bool, tag = "2")]
    held: bool,
    #[prost(message, repeated, tag = "3")]
    ops: Vec<OpDoneRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct OpDoneRecord {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Range(RangedRecord),
    #[prost(message, tag = "2")]
    Put(PutDoneRecord),
    #[prost(message, tag = "3")]
    Deleted(DeletedRecord),
    #[prost(message, tag = "4")]
    Txn(TxnDoneRecord),
}

#[derive(Clone, PartialEq, Message)]
struct RangedRecord {
    #[prost(uint64, tag = "1")]
    kv_revision: u64,
    #[prost(message, repeated, tag = "2")]
    items: Vec<KeyRecord>,
    #[prost(bool, tag = "3")]
    more: bool,
    #[prost(uint64, tag = "4")]
    count: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PutDoneRecord {
    #[prost(uint64, tag = "1")]
    kv_revision: u64,
    #[prost(message, optional, tag = "2")]
    prev: Option<KeyRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct DeletedRecord {
    #[prost(uint64, tag = "1")]
    kv_revision: u64,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(message, repeated, tag = "3")]
    prev: Vec<KeyRecord>,
}

fn key_records(items: &[(Key, KeyValue)]) -> Vec<KeyRecord> {
    items.iter().map(|(key, value)| value.record(key)).collect()
}

fn key_values(records: Vec<KeyRecord>) -> Result<Vec<(Key, KeyValue)>, Damage> {
    records.into_iter().map(KeyValue::read).collect()
}

impl TxnDone {
    pub(super) fn record(&self) -> TxnDoneRecord {
        let ops = self.ops.iter().map(OpDone::record).collect();
        TxnDoneRecord { kv_revision: self.kv_revision, held: self.held, ops }
    }

    pub(super) fn read(record: TxnDoneRecord) -> Result<Self, Damage> {
        let ops = record.ops.into_iter().map(OpDone::read).collect::<Result<_, _>>()?;
        Ok(Self { kv_revision: record.kv_revision, held: record.held, ops })
    }
}

impl OpDone {
    fn record(&self) -> OpDoneRecord {
        let kind = match self {
            Self::Range { kv_revision, ranged } => Kind::Range(RangedRecord {
                kv_revision: *kv_revision,
                items: key_records(&ranged.items),
                more: ranged.more,
                count: ranged.count,
            }),
            Self::Put { kv_revision, prev } => Kind::Put(PutDoneRecord {
                kv_revision: *kv_revision,
                prev: prev.as_ref().map(|(key, value)| value.record(key)),
            }),
            Self::Deleted { kv_revision, count, prev } => {
                Kind::Deleted(DeletedRecord { kv_revision: *kv_revision, count: *count, prev: key_records(prev) })
            }
            Self::Txn(done) => Kind::Txn(done.record()),
        };
        OpDoneRecord { kind: Some(kind) }
    }

    fn read(record: OpDoneRecord) -> Result<Self, Damage> {
        let unknown = || Damage::new("something was done to keys that this build does not know");
        Ok(match record.kind.ok_or_else(unknown)? {
            Kind::Range(it) => Self::Range {
                kv_revision: it.kv_revision,
                ranged: Ranged { items: key_values(it.items)?, more: it.more, count: it.count },
            },
            Kind::Put(it) => Self::Put { kv_revision: it.kv_revision, prev: it.prev.map(KeyValue::read).transpose()? },
            Kind::Deleted(it) => {
                Self::Deleted { kv_revision: it.kv_revision, count: it.count, prev: key_values(it.prev)? }
            }
            Kind::Txn(it) => Self::Txn(TxnDone::read(it)?),
        })
    }
}
