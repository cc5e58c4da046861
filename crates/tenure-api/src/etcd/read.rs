//! What etcd's clients ask, as the ledger is asked it. What makes no sense is refused here, in etcd's words.

use super::Fault;
use super::etcdserverpb as pb;
use super::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::etcdserverpb::range_request::{SortOrder, SortTarget};
use super::etcdserverpb::request_op::Request as Ask;
use tenure_core::limits::TXN_OPS_MAX;
use tenure_core::{
    Compare, Hang, Key, Keys, LeaseId, Op, Part, Put, Range, Relation, Sort, SortBy, Subject, Txn, Way, Within,
};

/// The end of a range that has none.
const ENDLESS: &[u8] = b"\0";

/// A key, which cannot be empty.
pub fn read_key(bytes: &[u8]) -> Result<Key, Fault> {
    match bytes {
        [] => Err(Fault::empty_key()),
        bytes => Key::parse(bytes).map_err(|_| Fault::too_large()),
    }
}

/// The keys from one to another. Without an end it is one; with a zero byte for an end, all from there on.
pub fn read_keys(key: &[u8], end: &[u8]) -> Result<Keys, Fault> {
    let one = read_key(key)?;
    Ok(match end {
        [] => Keys::One(one),
        ENDLESS => Keys::From { first: key.into(), end: None },
        end => Keys::From { first: key.into(), end: Some(end.into()) },
    })
}

/// The lease with this number, if any has it.
pub fn read_lease(number: i64) -> Option<LeaseId> {
    u64::try_from(number).ok().and_then(LeaseId::from_number)
}

/// A look at keys.
pub fn read_range(asked: &pb::RangeRequest) -> Result<Range, Fault> {
    let keys = read_keys(&asked.key, &asked.range_end)?;
    let order = SortOrder::try_from(asked.sort_order).map_err(|_| Fault::bad_sort())?;
    let by = match SortTarget::try_from(asked.sort_target).map_err(|_| Fault::bad_sort())? {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::Created,
        SortTarget::Mod => SortBy::Modified,
        SortTarget::Value => SortBy::Value,
    };
    let sort = match (by, order) {
        (SortBy::Key, SortOrder::None) => None,
        (by, SortOrder::None) => Some(Sort { by, way: None }),
        (by, SortOrder::Ascend) => Some(Sort { by, way: Some(Way::Up) }),
        (by, SortOrder::Descend) => Some(Sort { by, way: Some(Way::Down) }),
    };
    Ok(Range {
        keys,
        revision: Some(asked.revision).filter(|revision| *revision > 0),
        limit: usize::try_from(asked.limit).ok().filter(|limit| *limit > 0),
        sort,
        modified: Within { min: asked.min_mod_revision, max: asked.max_mod_revision },
        created: Within { min: asked.min_create_revision, max: asked.max_create_revision },
        part: match (asked.count_only, asked.keys_only) {
            (true, _) => Part::CountOnly,
            (false, true) => Part::KeysOnly,
            (false, false) => Part::Whole,
        },
    })
}

/// A put.
pub fn read_put(asked: &pb::PutRequest) -> Result<Op, Fault> {
    let key = read_key(&asked.key)?;
    if asked.ignore_value && !asked.value.is_empty() {
        return Err(Fault::value_provided());
    }
    if asked.ignore_lease && asked.lease != 0 {
        return Err(Fault::lease_provided());
    }
    let lease = match (asked.ignore_lease, asked.lease) {
        (true, _) => Hang::Keep,
        (false, 0) => Hang::Free,
        (false, number) => Hang::On(read_lease(number).ok_or_else(Fault::no_lease)?),
    };
    let value = (!asked.ignore_value).then(|| asked.value[..].into());
    Ok(Op::Put { put: Put { key, value, lease }, prev: asked.prev_kv })
}

/// A delete.
pub fn read_delete(asked: &pb::DeleteRangeRequest) -> Result<Op, Fault> {
    Ok(Op::Delete { keys: read_keys(&asked.key, &asked.range_end)?, prev: asked.prev_kv })
}

/// A transaction.
pub fn read_txn(asked: &pb::TxnRequest) -> Result<Txn, Fault> {
    let txn = read_level(asked, TXN_OPS_MAX)?;
    check_writes(&txn.then)?;
    check_writes(&txn.otherwise)?;
    Ok(txn)
}

/// One level of a transaction. What its longest part has, those within cannot have.
fn read_level(asked: &pb::TxnRequest, max: usize) -> Result<Txn, Fault> {
    let longest = asked.compare.len().max(asked.success.len()).max(asked.failure.len());
    let left = max.checked_sub(longest).ok_or_else(Fault::too_many_ops)?;
    let compares = asked.compare.iter().map(read_compare).collect::<Result<_, _>>()?;
    let ops = |ops: &[pb::RequestOp]| ops.iter().map(|op| read_op(op, left)).collect::<Result<Vec<_>, _>>();
    Ok(Txn { compares, then: ops(&asked.success)?, otherwise: ops(&asked.failure)? })
}

fn read_op(asked: &pb::RequestOp, left: usize) -> Result<Op, Fault> {
    match &asked.request {
        Some(Ask::RequestRange(range)) => {
            // Within a transaction a revision below zero is one that is forgotten, and not now.
            let revision = Some(range.revision).filter(|revision| *revision != 0);
            Ok(Op::Range(Range { revision, ..read_range(range)? }))
        }
        Some(Ask::RequestPut(put)) => read_put(put),
        Some(Ask::RequestDeleteRange(delete)) => read_delete(delete),
        Some(Ask::RequestTxn(txn)) => read_level(txn, left).map(Op::Txn),
        None => Err(Fault::key_not_found()),
    }
}

fn read_compare(asked: &pb::Compare) -> Result<Compare, Fault> {
    let keys = read_keys(&asked.key, &asked.range_end)?;
    let bad = |_| Fault::ours(tonic::Code::InvalidArgument, "tenure: there is no such comparison");
    let number = |of: fn(&TargetUnion) -> Option<i64>| asked.target_union.as_ref().and_then(of).unwrap_or_default();
    let subject = match CompareTarget::try_from(asked.target).map_err(bad)? {
        CompareTarget::Version => Subject::Version(number(|it| match it {
            TargetUnion::Version(number) => Some(*number),
            _ => None,
        })),
        CompareTarget::Create => Subject::Created(number(|it| match it {
            TargetUnion::CreateRevision(number) => Some(*number),
            _ => None,
        })),
        CompareTarget::Mod => Subject::Modified(number(|it| match it {
            TargetUnion::ModRevision(number) => Some(*number),
            _ => None,
        })),
        CompareTarget::Lease => Subject::Lease(number(|it| match it {
            TargetUnion::Lease(number) => Some(*number),
            _ => None,
        })),
        CompareTarget::Value => Subject::Value(match &asked.target_union {
            Some(TargetUnion::Value(value)) => value[..].into(),
            _ => [][..].into(),
        }),
    };
    let relation = match CompareResult::try_from(asked.result).map_err(bad)? {
        CompareResult::Equal => Relation::Equal,
        CompareResult::Greater => Relation::Greater,
        CompareResult::Less => Relation::Less,
        CompareResult::NotEqual => Relation::NotEqual,
    };
    Ok(Compare { keys, subject, relation })
}

/// What one way through a transaction may write.
#[derive(Clone, Default)]
struct Writes {
    puts: Vec<Key>,
    deletes: Vec<Keys>,
}

/// No key is written twice, nor written and deleted, on any way through a transaction. Deletes may overlap.
fn check_writes(ops: &[Op]) -> Result<Writes, Fault> {
    let mut writes = Writes::default();
    for op in ops {
        if let Op::Delete { keys, .. } = op {
            writes.deletes.push(keys.clone());
        }
    }
    for op in ops {
        if let Op::Put { put, .. } = op {
            writes.check_put(&put.key)?;
            writes.puts.push(put.key.clone());
        }
    }
    for op in ops {
        let Op::Txn(txn) = op else { continue };
        // Both ways of a transaction within may be gone, but only one of them: they may write the same.
        let (then, otherwise) = (check_writes(&txn.then)?, check_writes(&txn.otherwise)?);
        let before = writes.clone();
        for way in [then, otherwise] {
            for put in &way.puts {
                before.check_put(put)?;
            }
            let deletes = Writes { puts: Vec::new(), deletes: way.deletes.clone() };
            for put in &before.puts {
                deletes.check_put(put)?;
            }
            writes.puts.extend(way.puts);
            writes.deletes.extend(way.deletes);
        }
    }
    Ok(writes)
}

impl Writes {
    fn check_put(&self, key: &Key) -> Result<(), Fault> {
        let is_taken = self.puts.contains(key) || self.deletes.iter().any(|keys| keys.cover(key.bytes()));
        if is_taken { Err(Fault::duplicate_key()) } else { Ok(()) }
    }
}
