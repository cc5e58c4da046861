//! What the ledger answers, as etcd's clients read it.

use super::etcdserverpb as pb;
use super::etcdserverpb::response_op::Response as Tell;
use super::mvccpb;
use super::mvccpb::event::EventType;
use bytes::Bytes;
use tenure_core::{Change, Key, KeyValue, LeaseId, OpDone, Ranged, TxnDone};

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Bytes below this are copied: to share them would cost as much.
const SHARED_FROM: usize = 64;

/// The bytes of a key or of a value, shared with their owner.
fn shared(owner: &(impl AsRef<[u8]> + Clone + Send + 'static)) -> Bytes {
    match owner.as_ref() {
        few if few.len() < SHARED_FROM => Bytes::copy_from_slice(few),
        _ => Bytes::from_owner(owner.clone()),
    }
}

/// A key as it is or was. Its bytes and those of its value are not copied.
pub fn write_key(key: &Key, value: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: shared(key),
        create_revision: int(value.create_revision),
        mod_revision: int(value.mod_revision),
        version: int(value.version),
        value: shared(&value.value),
        lease: value.lease.map_or(0, |lease| int(LeaseId::number(lease))),
    }
}

/// A change of a key.
pub fn write_change(change: &Change<'_>, with_before: bool) -> mvccpb::Event {
    let deleted = || mvccpb::KeyValue {
        key: shared(change.key),
        mod_revision: int(change.kv_revision),
        ..mvccpb::KeyValue::default()
    };
    let kind = if change.became.is_some() { EventType::Put } else { EventType::Delete };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some(change.became.map_or_else(deleted, |value| write_key(change.key, value))),
        prev_kv: change.before.filter(|_| with_before).map(|value| write_key(change.key, value)),
    }
}

/// A header that says the revision alone. Whoever answers adds who it is.
pub fn header(kv_revision: u64) -> pb::ResponseHeader {
    pb::ResponseHeader { revision: int(kv_revision), ..pb::ResponseHeader::default() }
}

/// What a range found.
pub fn write_range(ranged: &Ranged, header: pb::ResponseHeader) -> pb::RangeResponse {
    pb::RangeResponse {
        header: Some(header),
        kvs: ranged.items.iter().map(|(key, value)| write_key(key, value)).collect(),
        more: ranged.more,
        count: int(ranged.count),
    }
}

/// What a transaction did. Its parts have headers that say the revision alone, or nothing, as etcd's have.
pub fn write_txn(done: &TxnDone, header: pb::ResponseHeader) -> pb::TxnResponse {
    let responses = done.ops.iter().map(|op| pb::ResponseOp { response: Some(write_op(op)) }).collect();
    pb::TxnResponse { header: Some(header), succeeded: done.held, responses }
}

fn write_op(done: &OpDone) -> Tell {
    match done {
        OpDone::Range { kv_revision, ranged } => Tell::ResponseRange(write_range(ranged, header(*kv_revision))),
        OpDone::Put { .. } => Tell::ResponsePut(write_put(done)),
        OpDone::Deleted { .. } => Tell::ResponseDeleteRange(write_delete(done)),
        OpDone::Txn(done) => Tell::ResponseTxn(write_txn(done, pb::ResponseHeader::default())),
    }
}

/// What a put did.
pub fn write_put(done: &OpDone) -> pb::PutResponse {
    let OpDone::Put { kv_revision, prev } = done else { return pb::PutResponse::default() };
    let prev_kv = prev.as_ref().map(|(key, value)| write_key(key, value));
    pb::PutResponse { header: Some(header(*kv_revision)), prev_kv }
}

/// What a delete did.
pub fn write_delete(done: &OpDone) -> pb::DeleteRangeResponse {
    let OpDone::Deleted { kv_revision, count, prev } = done else { return pb::DeleteRangeResponse::default() };
    pb::DeleteRangeResponse {
        header: Some(header(*kv_revision)),
        deleted: int(*count),
        prev_kvs: prev.iter().map(|(key, value)| write_key(key, value)).collect(),
    }
}
