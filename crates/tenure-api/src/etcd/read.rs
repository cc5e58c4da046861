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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> pb::RequestOp {
        let put = pb::PutRequest { key: key.into(), ..pb::PutRequest::default() };
        pb::RequestOp { request: Some(Ask::RequestPut(put)) }
    }

    fn delete(key: &str, end: &str) -> pb::RequestOp {
        let delete = pb::DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv: false };
        pb::RequestOp { request: Some(Ask::RequestDeleteRange(delete)) }
    }

    fn within(success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>) -> pb::RequestOp {
        let txn = pb::TxnRequest { compare: Vec::new(), success, failure };
        pb::RequestOp { request: Some(Ask::RequestTxn(txn)) }
    }

    fn read(success: Vec<pb::RequestOp>) -> Result<Txn, Fault> {
        read_txn(&pb::TxnRequest { compare: Vec::new(), success, failure: Vec::new() })
    }

    #[test]
    fn no_way_through_a_transaction_writes_a_key_twice() {
        let twice = Err(Fault::duplicate_key());
        assert_eq!(read(vec![put("a"), put("a")]), twice);
        assert_eq!(read(vec![put("a"), delete("a", "")]), twice);
        assert_eq!(read(vec![delete("a", "c"), put("b")]), twice);
        assert_eq!(read(vec![delete("a", "\0"), put("b")]), twice, "where etcd falls over");
        assert_eq!(read(vec![put("a"), within(vec![put("a")], vec![])]), twice);
        assert_eq!(read(vec![within(vec![put("a")], vec![]), within(vec![], vec![delete("a", "")])]), twice);
        for good in [
            vec![put("a"), put("b"), delete("c", "")],
            vec![delete("a", "c"), delete("b", "d"), put("d")],
            vec![within(vec![put("a")], vec![put("a")])],
            vec![delete("c", "a"), put("b")],
        ] {
            assert!(read(good.clone()).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_transaction_has_so_many_operations_over_all_its_levels() {
        let many = |count: usize| (0..count).map(|n| put(&format!("k{n}"))).collect::<Vec<_>>();
        assert!(read(many(TXN_OPS_MAX)).is_ok());
        assert_eq!(read(many(TXN_OPS_MAX + 1)), Err(Fault::too_many_ops()));
        assert!(read(vec![within(many(TXN_OPS_MAX - 1), vec![])]).is_ok());
        assert_eq!(read(vec![within(many(TXN_OPS_MAX), vec![])]), Err(Fault::too_many_ops()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_etcd() {
        let asked = |change: fn(&mut pb::PutRequest)| {
            let mut asked = pb::PutRequest { key: b"a".to_vec(), ..pb::PutRequest::default() };
            change(&mut asked);
            read_put(&asked).err()
        };
        assert_eq!(asked(|_| {}), None);
        assert_eq!(asked(|put| put.key.clear()), Some(Fault::empty_key()));
        assert_eq!(asked(|put| (put.ignore_value, put.value) = (true, b"x".to_vec())), Some(Fault::value_provided()));
        assert_eq!(asked(|put| (put.ignore_lease, put.lease) = (true, 7)), Some(Fault::lease_provided()));
        assert_eq!(asked(|put| put.lease = -7), Some(Fault::no_lease()));
        let range = |sort_order| pb::RangeRequest { key: b"a".to_vec(), sort_order, ..pb::RangeRequest::default() };
        assert_eq!(read_range(&range(9)).err(), Some(Fault::bad_sort()));
        assert!(read_range(&range(2)).is_ok());
        assert_eq!(read(vec![pb::RequestOp { request: None }]), Err(Fault::key_not_found()));
    }
}
