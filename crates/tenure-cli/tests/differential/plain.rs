//! Answers without what two servers may say differently: which cluster and member answered, in which term, and which
//! numbers they picked for leases. Whether a number was said at all stays.

use super::step::PICKED;
use tenure_api::etcd::etcdserverpb::request_op::Request;
use tenure_api::etcd::etcdserverpb::response_op::Response;
use tenure_api::etcd::etcdserverpb::{
    CompactionResponse, Compare, DeleteRangeResponse, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse,
    LeaseRevokeResponse, LeaseTimeToLiveResponse, PutResponse, RangeResponse, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse, WatchResponse, compare,
};
use tenure_api::etcd::mvccpb::KeyValue;

/// A lease may have lost so many seconds since it was granted or renewed: no test runs longer.
const AGE_SECONDS_MAX: i64 = 3600;

/// The leases that one server picked numbers for, in their order.
#[derive(Default)]
pub(super) struct Picked(pub(super) Vec<i64>);

impl Picked {
    /// The server's number of a lease.
    pub(super) fn real(&self, lease: i64) -> i64 {
        usize::try_from(lease - PICKED).ok().and_then(|place| self.0.get(place)).copied().unwrap_or(lease)
    }

    /// The test's number of a lease.
    fn plain(&self, lease: i64) -> i64 {
        let place = self.0.iter().position(|picked| *picked == lease);
        place.map_or(lease, |place| PICKED + i64::try_from(place).unwrap())
    }

    /// A transaction as this server must be asked.
    pub(super) fn real_txn(&self, mut txn: TxnRequest) -> TxnRequest {
        for Compare { target_union, .. } in &mut txn.compare {
            if let Some(compare::TargetUnion::Lease(lease)) = target_union {
                *lease = self.real(*lease);
            }
        }
        for RequestOp { request } in txn.success.iter_mut().chain(&mut txn.failure) {
            match request {
                Some(Request::RequestPut(put)) => put.lease = self.real(put.lease),
                Some(Request::RequestTxn(nested)) => *nested = self.real_txn(std::mem::take(nested)),
                _ => {}
            }
        }
        txn
    }
}

/// An answer that can be compared. Its revision is the last one that it tells.
pub(super) trait Plain {
    fn plain(&mut self, picked: &Picked);
    fn revision(&self) -> i64;
}

fn header(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        header.cluster_id = u64::from(header.cluster_id != 0);
        header.member_id = u64::from(header.member_id != 0);
        header.raft_term = u64::from(header.raft_term != 0);
    }
}

fn key(kv: &mut KeyValue, picked: &Picked) {
    kv.lease = picked.plain(kv.lease);
}

macro_rules! plain {
    ($($message:ty: |$it:ident, $picked:ident| $rest:expr;)*) => {
        $(impl Plain for $message {
            fn plain(&mut self, $picked: &Picked) {
                header(&mut self.header);
                let $it = self;
                $rest
            }

            fn revision(&self) -> i64 {
                self.header.as_ref().map_or(0, |header| header.revision)
            }
        })*
    };
}

plain! {
    RangeResponse: |it, picked| it.kvs.iter_mut().for_each(|kv| key(kv, picked));
    PutResponse: |it, picked| it.prev_kv.iter_mut().for_each(|kv| key(kv, picked));
    DeleteRangeResponse: |it, picked| it.prev_kvs.iter_mut().for_each(|kv| key(kv, picked));
    TxnResponse: |it, picked| it.responses.iter_mut().for_each(|op| match &mut op.response {
        Some(Response::ResponseRange(range)) => range.plain(picked),
        Some(Response::ResponsePut(put)) => put.plain(picked),
        Some(Response::ResponseDeleteRange(delete)) => delete.plain(picked),
        Some(Response::ResponseTxn(txn)) => txn.plain(picked),
        None => {}
    });
    CompactionResponse: |_it, _picked| {};
    LeaseGrantResponse: |it, picked| it.id = picked.plain(it.id);
    LeaseRevokeResponse: |_it, _picked| {};
    LeaseKeepAliveResponse: |it, picked| it.id = picked.plain(it.id);
    LeaseLeasesResponse: |it, picked| it.leases.iter_mut().for_each(|lease| lease.id = picked.plain(lease.id));
    LeaseTimeToLiveResponse: |it, picked| {
        it.id = picked.plain(it.id);
        // etcd tells the keys in no order.
        it.keys.sort();
        if it.ttl > 0 && (it.granted_ttl - AGE_SECONDS_MAX..=it.granted_ttl).contains(&it.ttl) {
            it.ttl = it.granted_ttl;
        }
    };
    WatchResponse: |it, picked| for event in &mut it.events {
        event.kv.iter_mut().chain(&mut event.prev_kv).for_each(|kv| key(kv, picked));
    };
}
