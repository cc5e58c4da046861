//! The shape of keys on disk, and of what is asked of them.

use super::{Damage, key, lease_or_none};
use crate::command::{Hang, Keys, Put};
use crate::ledger::KeyValue;
use crate::names::{Key, LeaseId};
use crate::txn::{Compare, Op, Part, Range, Relation, Sort, SortBy, Subject, Txn, Way, Within};
use alloc::vec::Vec;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRecord {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    value: Option<Vec<u8>>,
    /// 0 hangs it on no lease.
    #[prost(fixed64, tag = "3")]
    lease: u64,
    #[prost(bool, tag = "4")]
    keep_lease: bool,
}

/// One key, unless one of the others is there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeysRecord {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bool, tag = "2")]
    prefix: bool,
    #[prost(bytes = "vec", optional, tag = "3")]
    end: Option<Vec<u8>>,
    #[prost(bool, tag = "4")]
    endless: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRecord {
    #[prost(message, repeated, tag = "1")]
    compares: Vec<CompareRecord>,
    #[prost(message, repeated, tag = "2")]
    then: Vec<OpRecord>,
    #[prost(message, repeated, tag = "3")]
    otherwise: Vec<OpRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct CompareRecord {
    #[prost(message, optional, tag = "1")]
    keys: Option<KeysRecord>,
    /// 0 equal, 1 greater, 2 less, 3 not equal.
    #[prost(uint32, tag = "2")]
    relation: u32,
    #[prost(oneof = "SubjectRecord", tags = "3, 4, 5, 6, 7")]
    subject: Option<SubjectRecord>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum SubjectRecord {
    #[prost(int64, tag = "3")]
    Version(i64),
    #[prost(int64, tag = "4")]
    Created(i64),
    #[prost(int64, tag = "5")]
    Modified(i64),
    #[prost(bytes = "vec", tag = "6")]
    Value(Vec<u8>),
    #[prost(int64, tag = "7")]
    Lease(i64),
}

#[derive(Clone, PartialEq, Message)]
struct OpRecord {
    #[prost(oneof = "OpKind", tags = "1, 2, 3, 4")]
    kind: Option<OpKind>,
    /// Whether to tell what was before.
    #[prost(bool, tag = "5")]
    prev: bool,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OpKind {
    #[prost(message, tag = "1")]
    Range(RangeRecord),
    #[prost(message, tag = "2")]
    Put(PutRecord),
    #[prost(message, tag = "3")]
    Delete(KeysRecord),
    #[prost(message, tag = "4")]
    Txn(TxnRecord),
}

#[derive(Clone, PartialEq, Message)]
struct RangeRecord {
    #[prost(message, optional, tag = "1")]
    keys: Option<KeysRecord>,
    #[prost(sint64, optional, tag = "2")]
    revision: Option<i64>,
    #[prost(uint64, optional, tag = "3")]
    limit: Option<u64>,
    /// 0 as they come, 1 by key, 2 by version, 3 by creation, 4 by modification, 5 by value.
    #[prost(uint32, tag = "4")]
    sort_by: u32,
    /// 0 neither, 1 up, 2 down.
    #[prost(uint32, tag = "5")]
    way: u32,
    /// 0 all, 1 keys only, 2 the count only.
    #[prost(uint32, tag = "6")]
    part: u32,
    #[prost(int64, tag = "7")]
    modified_min: i64,
    #[prost(int64, tag = "8")]
    modified_max: i64,
    #[prost(int64, tag = "9")]
    created_min: i64,
    #[prost(int64, tag = "10")]
    created_max: i64,
}

/// A key with what it has.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(crate) create_revision: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) mod_revision: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) version: u64,
    #[prost(fixed64, tag = "6")]
    pub(crate) lease: u64,
    #[prost(uint32, tag = "7")]
    pub(crate) n: u32,
}

fn unknown() -> Damage {
    Damage::new("something is asked of keys that this build does not know")
}

impl Put {
    pub(super) fn record(&self) -> PutRecord {
        let (lease, keep_lease) = match self.lease {
            Hang::Free => (0, false),
            Hang::Keep => (0, true),
            Hang::On(lease) => (lease.number(), false),
        };
        let value = self.value.as_ref().map(|value| value.to_vec());
        PutRecord { key: self.key.bytes().to_vec(), value, lease, keep_lease }
    }

    pub(super) fn read(record: PutRecord) -> Result<Self, Damage> {
        Ok(Self {
            key: key(&record.key)?,
            value: record.value.map(Into::into),
            lease: match (record.keep_lease, lease_or_none(record.lease)?) {
                (true, _) => Hang::Keep,
                (false, None) => Hang::Free,
                (false, Some(lease)) => Hang::On(lease),
            },
        })
    }
}

impl KeyValue {
    pub(crate) fn record(&self, key: &Key) -> KeyRecord {
        KeyRecord {
            key: key.bytes().to_vec(),
            value: self.value.to_vec(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease.map_or(0, LeaseId::number),
            n: self.n,
        }
    }

    pub(crate) fn read(record: KeyRecord) -> Result<(Key, Self), Damage> {
        let value = Self {
            value: record.value.into(),
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            version: record.version,
            lease: lease_or_none(record.lease)?,
            n: record.n,
        };
        Ok((key(&record.key)?, value))
    }
}

impl Keys {
    pub(super) fn record(&self) -> KeysRecord {
        let first = KeysRecord { key: self.first().to_vec(), ..KeysRecord::default() };
        match self {
            Self::One(_) => first,
            Self::Prefix(_) => KeysRecord { prefix: true, ..first },
            Self::From { end: Some(end), .. } => KeysRecord { end: Some(end.to_vec()), ..first },
            Self::From { end: None, .. } => KeysRecord { endless: true, ..first },
        }
    }

    pub(super) fn read(record: &KeysRecord) -> Result<Self, Damage> {
        let first = &record.key[..];
        match (record.prefix, &record.end, record.endless) {
            (false, None, false) => Ok(Self::One(key(first)?)),
            (true, None, false) => Ok(Self::Prefix(first.into())),
            (false, Some(end), false) => Ok(Self::From { first: first.into(), end: Some(end[..].into()) }),
            (false, None, true) => Ok(Self::From { first: first.into(), end: None }),
            _ => Err(unknown()),
        }
    }

    fn read_some(record: Option<KeysRecord>) -> Result<Self, Damage> {
        Self::read(&record.ok_or_else(unknown)?)
    }
}

impl Txn {
    pub(super) fn record(&self) -> TxnRecord {
        TxnRecord {
            compares: self.compares.iter().map(Compare::record).collect(),
            then: self.then.iter().map(Op::record).collect(),
            otherwise: self.otherwise.iter().map(Op::record).collect(),
        }
    }

    pub(super) fn read(record: TxnRecord) -> Result<Self, Damage> {
        Ok(Self {
            compares: record.compares.into_iter().map(Compare::read).collect::<Result<_, _>>()?,
            then: record.then.into_iter().map(Op::read).collect::<Result<_, _>>()?,
            otherwise: record.otherwise.into_iter().map(Op::read).collect::<Result<_, _>>()?,
        })
    }
}

impl Compare {
    fn record(&self) -> CompareRecord {
        let relation = match self.relation {
            Relation::Equal => 0,
            Relation::Greater => 1,
            Relation::Less => 2,
            Relation::NotEqual => 3,
        };
        let subject = match &self.subject {
            Subject::Version(given) => SubjectRecord::Version(*given),
            Subject::Created(given) => SubjectRecord::Created(*given),
            Subject::Modified(given) => SubjectRecord::Modified(*given),
            Subject::Value(given) => SubjectRecord::Value(given.to_vec()),
            Subject::Lease(given) => SubjectRecord::Lease(*given),
        };
        CompareRecord { keys: Some(self.keys.record()), relation, subject: Some(subject) }
    }

    fn read(record: CompareRecord) -> Result<Self, Damage> {
        Ok(Self {
            keys: Keys::read_some(record.keys)?,
            relation: match record.relation {
                0 => Relation::Equal,
                1 => Relation::Greater,
                2 => Relation::Less,
                3 => Relation::NotEqual,
                _ => return Err(unknown()),
            },
            subject: match record.subject.ok_or_else(unknown)? {
                SubjectRecord::Version(given) => Subject::Version(given),
                SubjectRecord::Created(given) => Subject::Created(given),
                SubjectRecord::Modified(given) => Subject::Modified(given),
                SubjectRecord::Value(given) => Subject::Value(given.into()),
                SubjectRecord::Lease(given) => Subject::Lease(given),
            },
        })
    }
}

impl Op {
    fn record(&self) -> OpRecord {
        let (kind, prev) = match self {
            Self::Range(range) => (OpKind::Range(range.record()), false),
            Self::Put { put, prev } => (OpKind::Put(put.record()), *prev),
            Self::Delete { keys, prev } => (OpKind::Delete(keys.record()), *prev),
            Self::Txn(txn) => (OpKind::Txn(txn.record()), false),
        };
        OpRecord { kind: Some(kind), prev }
    }

    fn read(record: OpRecord) -> Result<Self, Damage> {
        let prev = record.prev;
        Ok(match record.kind.ok_or_else(unknown)? {
            OpKind::Range(range) => Self::Range(Range::read(range)?),
            OpKind::Put(put) => Self::Put { put: Put::read(put)?, prev },
            OpKind::Delete(keys) => Self::Delete { keys: Keys::read(&keys)?, prev },
            OpKind::Txn(txn) => Self::Txn(Txn::read(txn)?),
        })
    }
}

impl Range {
    fn record(&self) -> RangeRecord {
        let sort_by = self.sort.map_or(0, |sort| match sort.by {
            SortBy::Key => 1,
            SortBy::Version => 2,
            SortBy::Created => 3,
            SortBy::Modified => 4,
            SortBy::Value => 5,
        });
        let way = match self.sort.and_then(|sort| sort.way) {
            None => 0,
            Some(Way::Up) => 1,
            Some(Way::Down) => 2,
        };
        let part = match self.part {
            Part::Whole => 0,
            Part::KeysOnly => 1,
            Part::CountOnly => 2,
        };
        RangeRecord {
            keys: Some(self.keys.record()),
            revision: self.revision,
            limit: self.limit.map(|limit| limit as u64),
            sort_by,
            way,
            part,
            modified_min: self.modified.min,
            modified_max: self.modified.max,
            created_min: self.created.min,
            created_max: self.created.max,
        }
    }

    fn read(record: RangeRecord) -> Result<Self, Damage> {
        let way = match record.way {
            0 => None,
            1 => Some(Way::Up),
            2 => Some(Way::Down),
            _ => return Err(unknown()),
        };
        let by = match record.sort_by {
            0 => None,
            1 => Some(SortBy::Key),
            2 => Some(SortBy::Version),
            3 => Some(SortBy::Created),
            4 => Some(SortBy::Modified),
            5 => Some(SortBy::Value),
            _ => return Err(unknown()),
        };
        Ok(Self {
            keys: Keys::read_some(record.keys)?,
            revision: record.revision,
            limit: record.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            sort: by.map(|by| Sort { by, way }),
            modified: Within { min: record.modified_min, max: record.modified_max },
            created: Within { min: record.created_min, max: record.created_max },
            part: match record.part {
                0 => Part::Whole,
                1 => Part::KeysOnly,
                2 => Part::CountOnly,
                _ => return Err(unknown()),
            },
        })
    }
}
