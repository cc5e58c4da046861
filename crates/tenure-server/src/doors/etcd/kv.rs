//! Keys, as etcd's clients ask for them.

use super::EtcdDesk;
use super::desk::small;
use crate::access::audit::Change;
use prost::Message;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::request_op::Request;
use tenure_api::etcd::{
    Fault, read_delete, read_lease, read_put, read_range, read_txn, write_delete, write_put, write_range, write_txn,
};
use tenure_core::{Command, Compact, OpDone, Reply, Txn, TxnDone};

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
            let command = Command::Txn(txn);
            let done = self.audited(Change::of(&command), self.submit_txn(&asked, command)).await?;
            return Ok(write_txn(&done, self.header(done.kv_revision)));
        }
        self.may_do(&txn)?;
        let done = self.read(is_serializable(&asked), |ledger, _| ledger.read_txn(&txn)).await?;
        let done = done.map_err(|refusal| Fault::from(&refusal))?;
        Ok(write_txn(&done, self.header(done.kv_revision)))
    }

    pub(super) async fn put_key(&self, asked: pb::PutRequest) -> Result<pb::PutResponse, Fault> {
        let command = Command::Txn(Txn::of(read_put(&asked)?));
        let change = Change::of(&command).map(|change| change.called("put"));
        let answer = async {
            self.submit_op(&asked, command).await.map_err(|fault| match fault {
                // Of a put that lacks both its lease and the key that it would keep, etcd misses the lease; of a transaction,
                // the key, as the ledger does.
                fault if fault == Fault::key_not_found() && self.lacks(asked.lease) => Fault::no_lease(),
                fault => fault,
            })
        };
        let put = write_put(&self.audited(change, answer).await?);
        Ok(pb::PutResponse { header: put.header.map(|header| self.signed(header)), ..put })
    }

    fn lacks(&self, lease: i64) -> bool {
        read_lease(lease).is_some_and(|lease| self.node().read_stale(|ledger| ledger.lease(lease).is_none()))
    }

    pub(super) async fn delete_range(&self, asked: pb::DeleteRangeRequest) -> Result<pb::DeleteRangeResponse, Fault> {
        let command = Command::Txn(Txn::of(read_delete(&asked)?));
        let change = Change::of(&command).map(|change| change.called("delete"));
        let deleted = write_delete(&self.audited(change, self.submit_op(&asked, command)).await?);
        Ok(pb::DeleteRangeResponse { header: deleted.header.map(|header| self.signed(header)), ..deleted })
    }

    pub(super) async fn compaction(&self, asked: pb::CompactionRequest) -> Result<pb::CompactionResponse, Fault> {
        let command = Command::Compact(Compact { revision: asked.revision });
        match self.audited(Change::of(&command), self.submit(command)).await? {
            Reply::Compacted { kv_revision } => Ok(pb::CompactionResponse { header: Some(self.header(kv_revision)) }),
            other => unreachable!("a compaction is answered as one, not {other:?}"),
        }
    }

    /// Submits a transaction that fits into one request.
    async fn submit_txn(&self, asked: &impl Message, command: Command) -> Result<TxnDone, Fault> {
        self.may_submit(&command)?;
        small(asked)?;
        match self.submit(command).await? {
            Reply::Txn(done) => Ok(done),
            other => unreachable!("a transaction is answered as one, not {other:?}"),
        }
    }

    async fn submit_op(&self, asked: &impl Message, command: Command) -> Result<OpDone, Fault> {
        let done = self.submit_txn(asked, command).await?;
        Ok(done.ops.into_iter().next().expect("one operation is answered by one"))
    }
}

/// Whether what this node knows is enough for all that a transaction looks at.
fn is_serializable(asked: &pb::TxnRequest) -> bool {
    asked.success.iter().chain(&asked.failure).all(|op| match &op.request {
        Some(Request::RequestRange(range)) => range.serializable,
        _ => false,
    })
}
