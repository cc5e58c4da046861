//! What etcd's clients ask, as the ledger is asked it. What makes no sense is refused here, in etcd's words.

use super::Fault;
use super::etcdserverpb as pb;
use super::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::etcdserverpb::range_request::{SortOrder, SortTarget};
use super::etcdserverpb::request_op::Request as Ask;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};
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
    txn.check_size().map_err(|refusal| Fault::from(&refusal))?;
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
#[derive(Default)]
struct Writes<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Spans<'a>,
}

/// No key is written twice, nor written and deleted, on any way through a transaction. Deletes may overlap.
fn check_writes(ops: &[Op]) -> Result<Writes<'_>, Fault> {
    let mut writes = Writes::default();
    for op in ops {
        if let Op::Delete { keys, .. } = op {
            writes.deletes.add(keys);
        }
    }
    for op in ops {
        if let Op::Put { put, .. } = op {
            writes.check_put(put.key.bytes())?;
            writes.puts.insert(put.key.bytes());
        }
    }
    for op in ops {
        let Op::Txn(txn) = op else { continue };
        // Both ways of a transaction within may be gone, but only one of them: they may write the same.
        let ways = [check_writes(&txn.then)?, check_writes(&txn.otherwise)?];
        for way in &ways {
            way.puts.iter().try_for_each(|put| writes.check_put(put))?;
            if way.deletes.cover_any(&writes.puts) {
                return Err(Fault::duplicate_key());
            }
        }
        ways.into_iter().for_each(|way| writes.extend(way));
    }
    Ok(writes)
}

impl<'a> Writes<'a> {
    fn check_put(&self, key: &[u8]) -> Result<(), Fault> {
        let is_taken = self.puts.contains(key) || self.deletes.cover(key);
        if is_taken { Err(Fault::duplicate_key()) } else { Ok(()) }
    }

    fn extend(&mut self, more: Self) {
        self.puts.extend(more.puts);
        more.deletes.0.into_iter().for_each(|(first, end)| self.deletes.add_span(first, end));
    }
}

/// Where a span of keys ends: before a key, after one, or nowhere. In this order, for spans with the same first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge<'a> {
    Before(&'a [u8]),
    After(&'a [u8]),
    Nowhere,
}

impl Edge<'_> {
    /// Whether a key that is not before the span's first is in it.
    fn holds(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => key < *end,
            Self::After(end) => key <= *end,
            Self::Nowhere => true,
        }
    }
}

/// Keys in spans that do not overlap, by their first key.
#[derive(Default)]
struct Spans<'a>(BTreeMap<&'a [u8], Edge<'a>>);

impl<'a> Spans<'a> {
    fn add(&mut self, keys: &'a Keys) {
        match keys {
            Keys::One(key) => self.add_span(key.bytes(), Edge::After(key.bytes())),
            Keys::From { first, end: None } => self.add_span(first, Edge::Nowhere),
            Keys::From { first, end: Some(end) } if first < end => self.add_span(first, Edge::Before(end)),
            Keys::From { .. } => {}
            // No request of etcd's says it so.
            Keys::Prefix(first) => self.add_span(first, Edge::Nowhere),
        }
    }

    /// Joins a span with those that it overlaps. Each is taken out once, so that n of them cost n log n.
    fn add_span(&mut self, mut first: &'a [u8], mut end: Edge<'a>) {
        if let Some((before, edge)) = self.0.range::<[u8], _>((Unbounded, Included(first))).next_back()
            && edge.holds(first)
        {
            (first, end) = (before, further(*edge, end));
        }
        while let Some((next, edge)) = self.0.range::<[u8], _>((Included(first), Unbounded)).next()
            && end.holds(next)
        {
            let next = *next;
            end = further(*edge, end);
            self.0.remove(next);
        }
        self.0.insert(first, end);
    }

    fn cover(&self, key: &[u8]) -> bool {
        self.0.range::<[u8], _>((Unbounded, Included(key))).next_back().is_some_and(|(_, edge)| edge.holds(key))
    }

    fn cover_any(&self, keys: &BTreeSet<&[u8]>) -> bool {
        let in_span = |(first, edge): (&&[u8], &Edge<'_>)| {
            keys.range::<[u8], _>((Included(*first), Unbounded)).next().is_some_and(|key| edge.holds(key))
        };
        self.0.iter().any(in_span)
    }
}

/// The edge that comes later.
fn further<'a>(one: Edge<'a>, other: Edge<'a>) -> Edge<'a> {
    match (one, other) {
        (Edge::Nowhere, _) | (_, Edge::Nowhere) => Edge::Nowhere,
        (Edge::Before(a) | Edge::After(a), Edge::Before(b) | Edge::After(b)) if a != b => {
            if a > b {
                one
            } else {
                other
            }
        }
        (Edge::After(_), _) => one,
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::limits::TXN_DEPTH_MAX;

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

    /// `levels` transactions within each other, the outer one included.
    fn nested(levels: usize) -> Vec<pb::RequestOp> {
        (1..levels).fold(vec![put("leaf")], |ops, _| vec![within(ops, vec![])])
    }

    #[test]
    fn transactions_within_each_other_are_bounded() {
        assert!(read(nested(TXN_DEPTH_MAX)).is_ok());
        assert_eq!(read(nested(TXN_DEPTH_MAX + 1)), Err(Fault::too_many_ops()));
        assert_eq!(read(nested(48)), Err(Fault::too_many_ops()), "as deep as a message can be");
    }

    #[test]
    fn levels_do_not_multiply_operations() {
        let many = |from: usize| (0..32).map(|n| put(&format!("k{}", from + n))).collect::<Vec<_>>();
        let of = |count: usize| (0..count).map(|n| within(many(n * 32), vec![])).collect::<Vec<_>>();
        assert!(read(of(31)).is_ok(), "31 * 33 operations");
        assert_eq!(read(of(32)), Err(Fault::too_many_ops()), "32 * 33 operations");
    }

    /// Spans say of each key what the deletes that made them say, in whatever order they came.
    #[test]
    fn spans_cover_what_their_deletes_cover() {
        let key = |n: u64| vec![b'a' + (n % 7) as u8; 1 + (n / 7 % 2) as usize];
        let mut dice = 7_u64;
        let mut next = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            dice >> 33
        };
        for _ in 0..20_000 {
            let deletes: Vec<Keys> = (0..next() % 6)
                .map(|_| match next() % 4 {
                    0 => read_keys(&key(next()), ENDLESS).unwrap(),
                    1 => read_keys(&key(next()), &[]).unwrap(),
                    _ => read_keys(&key(next()), &key(next())).unwrap(),
                })
                .collect();
            let mut spans = Spans::default();
            deletes.iter().for_each(|keys| spans.add(keys));
            let all: Vec<Vec<u8>> = (0..14).map(key).collect();
            for key in &all {
                let is_deleted = deletes.iter().any(|keys| keys.cover(key));
                assert_eq!(spans.cover(key), is_deleted, "{key:?} of {deletes:?}");
                assert_eq!(spans.cover_any(&BTreeSet::from([&key[..]])), is_deleted, "{key:?} of {deletes:?}");
            }
        }
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
