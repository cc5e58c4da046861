//! Keys, as etcd's clients ask for them.

use super::EtcdDesk;
use crate::peers::v1::etcd_order::Body as Ask;
use crate::peers::v1::etcd_reply::Body as Tell;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::request_op::Request as Op;
use tenure_api::etcd::{Fault, read_range, read_txn, write_range, write_txn};

/// Has an order done, and its answer taken as what it must be.
macro_rules! ordered {
    ($desk:expr, $kind:ident($asked:expr)) => {
        match $desk.order(Ask::$kind($asked)).await? {
            Tell::$kind(reply) => Ok(reply),
            other => unreachable!("an order is answered by a reply of its own kind, not {other:?}"),
        }
    };
}
pub(super) use ordered;

impl EtcdDesk {
    pub(super) async fn range(&self, asked: &pb::RangeRequest) -> Result<pb::RangeResponse, Fault> {
        let range = read_range(asked)?;
        self.may_see(&range.keys)?;
        self.read(asked.serializable, |_, _| ()).await?;
        let (ranged, kv_revision) = self.look(&range).await?;
        Ok(write_range(&ranged, self.header(kv_revision)))
    }

    /// A transaction that only looks needs no entry of the log.
    pub(super) async fn transact(&self, asked: pb::TxnRequest) -> Result<pb::TxnResponse, Fault> {
        let txn = read_txn(&asked)?;
        if !txn.only_reads() {
            return ordered!(self, Txn(asked));
        }
        self.may_do(&txn)?;
        let done = self.read(is_serializable(&asked), |ledger, _| ledger.read_txn(&txn)).await?;
        let done = done.map_err(|refusal| Fault::from(&refusal))?;
        Ok(write_txn(&done, self.header(done.kv_revision)))
    }

    pub(super) async fn put_key(&self, asked: pb::PutRequest) -> Result<pb::PutResponse, Fault> {
        ordered!(self, Put(asked))
    }

    pub(super) async fn delete_range(&self, asked: pb::DeleteRangeRequest) -> Result<pb::DeleteRangeResponse, Fault> {
        ordered!(self, DeleteRange(asked))
    }

    pub(super) async fn compaction(&self, asked: pb::CompactionRequest) -> Result<pb::CompactionResponse, Fault> {
        ordered!(self, Compact(asked))
    }
}

/// Whether what this node knows is enough for all that a transaction looks at.
fn is_serializable(asked: &pb::TxnRequest) -> bool {
    asked.success.iter().chain(&asked.failure).all(|op| match &op.request {
        Some(Op::RequestRange(range)) => range.serializable,
        _ => false,
    })
}
