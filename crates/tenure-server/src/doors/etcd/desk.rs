//! Where the calls of the etcd dialect are answered, whichever wire they came by: orders at the leader, looks at this node.

use crate::access::audit::Change;
use crate::access::{Caller, WatchRoom};
use crate::lessor::Unready;
use crate::limits::{LEADER_PATIENCE, LEADER_PAUSE, REQUEST_BYTES_MAX};
use crate::metrics::OK;
use crate::node::Node;
use crate::peers::v1::etcd_order::Body as Ask;
use crate::peers::v1::etcd_reply::Body as Tell;
use crate::peers::v1::{EtcdFault, EtcdOrder, KeepAlive, KeepAliveReply};
use crate::shares::Client;
use tenure_api::etcd::{
    Fault, etcdserverpb as pb, header, read_delete, read_lease, read_put, read_txn, write_delete, write_put, write_txn,
};
use tenure_api::v1::Failure;
use tenure_core::limits::TTL_MS_MAX;
use tenure_core::{
    Command, Compact, Grant, Holder, Keys, Kind, Lease, LeaseId, Ledger, Moment, OpDone, Outcome, Proof, ReleaseLease,
    Renew, Renewal, Reply, Ttl, Txn, TxnDone,
};

/// Whose leases those of etcd's clients are, where nothing more is known of them.
const HOLDER: &str = "etcd";

/// The TTL of a lease that asks for none, in seconds.
const TTL_SECONDS_MIN: i64 = 2;

#[derive(Clone)]
pub(crate) struct EtcdDesk {
    node: Node,
    /// Whose leases those are that are granted here.
    holder: Holder,
    /// In whose name it orders and looks.
    caller: Caller,
}

pub(super) fn unready(unready: &Unready) -> Fault {
    match unready {
        Unready::NotLeader { .. } => Fault::no_leader(),
        Unready::Overloaded { .. } => Fault::too_many_requests(),
        Unready::Stuck => Fault::timed_out(),
        Unready::Stopping => Fault::stopped(),
        Unready::Unknown => Fault::timed_out_by_leader(),
    }
}

impl EtcdDesk {
    pub(crate) fn new(node: Node) -> Self {
        Self { node, holder: Holder::parse(HOLDER).expect("it is a name"), caller: Caller::default() }
    }

    /// The same desk for somebody of whom this much is known: the name of a key, or an address. What cannot be the name of a
    /// holder says nothing.
    pub(crate) fn on_behalf_of(&self, who: &str, caller: Caller) -> Self {
        let named = Holder::parse(&format!("{HOLDER}:{who}")).ok().filter(|_| !who.is_empty());
        Self { node: self.node.clone(), holder: named.unwrap_or_else(|| self.holder.clone()), caller }
    }

    fn who(&self) -> &str {
        self.holder.as_str().strip_prefix(HOLDER).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default()
    }

    /// Whose share of watchers its calls take from.
    pub(super) fn client(&self) -> Client {
        self.caller.client()
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Says who answers, at a revision of the keyspace.
    pub(super) fn header(&self, kv_revision: u64) -> pb::ResponseHeader {
        self.signed(header(kv_revision))
    }

    /// Says who answers.
    pub(super) fn signed(&self, header: pb::ResponseHeader) -> pb::ResponseHeader {
        let identity = self.node.identity();
        let raft_term = self.node.consensus().term();
        pb::ResponseHeader { cluster_id: identity.cluster, member_id: identity.node, raft_term, ..header }
    }

    /// The header of an answer that has nothing else to say.
    pub(super) fn header_now(&self) -> pb::ResponseHeader {
        self.header(self.node.read_stale(Ledger::kv_revision))
    }

    /// Orders something, at the leader.
    pub(super) async fn order(&self, ask: Ask) -> Result<Tell, Fault> {
        let change = Change::of_etcd(&ask);
        let answer = self.order_anywhere(ask).await;
        self.audit(change, answer.as_ref());
        answer
    }

    /// Tells the audit log how a change was answered, in the words of etcd.
    fn audit(&self, change: Option<Change>, answer: Result<&Tell, &Fault>) {
        let Some(change) = change else { return };
        let drawn = match answer {
            Ok(Tell::LeaseGrant(reply)) => u64::try_from(reply.id).ok(),
            _ => None,
        };
        let denied = Fault::denied();
        let code = match answer {
            Ok(_) => OK,
            Err(fault) if *fault == denied => tenure_api::Code::Denied.text(),
            Err(fault) => &fault.text,
        };
        change.answered(self.node.wall_ms(), &self.caller, code, drawn);
    }

    /// Tells the audit log of a change that is no order.
    pub(super) fn audit_named(&self, call: &'static str, name: String, is_done: bool) {
        if let Some(change) = Change::named(call, name) {
            change.answered(self.node.wall_ms(), &self.caller, if is_done { OK } else { "refused" }, None);
        }
    }

    async fn order_anywhere(&self, ask: Ask) -> Result<Tell, Fault> {
        if !matches!(ask, Ask::LeaseRevoke(_)) {
            let retired =
                |failure: Failure| Fault::ours(tonic::Code::Unauthenticated, format!("tenure: {}", failure.message));
            self.caller.still_has_its_key().map_err(retired)?;
        }
        self.may_order(&ask)?;
        let once = || {
            let (desk, ask) = (self.clone(), ask.clone());
            async move {
                match desk.node.leader_elsewhere() {
                    Some(leader) => {
                        let (who, actor) = (desk.who().into(), desk.caller.actor());
                        desk.node.forward_etcd(leader, EtcdOrder { body: Some(ask), who, actor }).await
                    }
                    None => desk.order_once(ask).await,
                }
            }
        };
        match led(once).await? {
            Tell::Fault(fault) => Err(Fault::ours(tonic::Code::from(fault.code), fault.text)),
            tell => Ok(tell),
        }
    }

    /// Orders something at this node, which leads.
    pub(crate) async fn order_once(&self, ask: Ask) -> Result<Tell, Unready> {
        let told = match ask {
            Ask::Put(put) => self.put(&put).await,
            Ask::DeleteRange(delete) => self.delete(&delete).await,
            Ask::Txn(txn) => self.txn(&txn).await,
            Ask::Compact(compact) => self.compact(&compact).await,
            Ask::LeaseGrant(grant) => self.grant(grant).await,
            Ask::LeaseRevoke(revoke) => self.revoke(revoke).await,
            Ask::KeepAlive(KeepAlive { leases }) => self.keep_alive(&leases).await,
        };
        match told {
            Ok(tell) => Ok(tell),
            Err(No::NotNow(unready)) => Err(unready),
            Err(No::Fault(Fault { code, text })) => Ok(Tell::Fault(EtcdFault { code: code.into(), text })),
        }
    }

    /// Whether the caller may use the keys that an order is about. Other nodes do not look again.
    fn may_order(&self, ask: &Ask) -> Result<(), Fault> {
        if !self.caller.is_limited() {
            return Ok(());
        }
        match ask {
            Ask::Put(put) => self.may_do(&Txn::of(read_put(put)?)),
            Ask::DeleteRange(delete) => self.may_do(&Txn::of(read_delete(delete)?)),
            Ask::Txn(txn) => self.may_do(&read_txn(txn)?),
            // The ledger looks whose leases they are, and a compaction is refused before it comes here.
            Ask::Compact(_) | Ask::LeaseGrant(_) | Ask::LeaseRevoke(_) | Ask::KeepAlive(_) => Ok(()),
        }
    }

    pub(super) fn may_do(&self, txn: &Txn) -> Result<(), Fault> {
        self.caller.may_do(txn).map_err(denied)
    }

    /// Whether the caller may look at all of these keys.
    pub(super) fn may_see(&self, keys: &Keys) -> Result<(), Fault> {
        self.caller.may_use_keys(keys).map_err(denied)
    }

    /// Room for one more watcher of the caller's key, which counts as a request, too: it may read much of the past.
    pub(super) fn room_for_watcher(&self) -> Result<WatchRoom, Fault> {
        let full =
            |failure: Failure| Fault::ours(tonic::Code::ResourceExhausted, format!("tenure: {}", failure.message));
        self.caller.take_request(self.node.monotonic()).map_err(full)?;
        self.caller.take_watcher().map_err(full)
    }

    /// Whether the caller may look at a lease with this owner.
    pub(super) fn may_see_lease(&self, lease: Option<&Lease>) -> Result<(), Fault> {
        self.caller.may_see_lease(lease.and_then(Lease::owner)).map_err(denied)
    }

    async fn ordered(&self, command: Command) -> Result<Reply, No> {
        let outcome: Outcome = self.node.order(self.caller.sign(command)).await.map_err(No::NotNow)?;
        outcome.map_err(|refusal| No::Fault(Fault::from(&refusal)))
    }

    async fn did(&self, txn: Txn) -> Result<TxnDone, No> {
        match self.ordered(Command::Txn(txn)).await? {
            Reply::Txn(done) => Ok(done),
            other => unreachable!("a transaction is answered as one, not {other:?}"),
        }
    }

    async fn did_one(&self, op: tenure_core::Op) -> Result<OpDone, No> {
        let done = self.did(Txn::of(op)).await?;
        Ok(done.ops.into_iter().next().expect("one operation is answered by one"))
    }

    async fn put(&self, asked: &pb::PutRequest) -> Result<Tell, No> {
        let put = read_put(asked)?;
        small(asked)?;
        let done = self.did_one(put).await.map_err(|no| match no {
            // Of a put that lacks both its lease and the key that it would keep, etcd misses the lease; of a transaction, the
            // key, as the ledger does.
            No::Fault(fault) if fault == Fault::key_not_found() && self.lacks(asked.lease) => Fault::no_lease().into(),
            no => no,
        })?;
        let put = write_put(&done);
        Ok(Tell::Put(pb::PutResponse { header: put.header.map(|header| self.signed(header)), ..put }))
    }

    fn lacks(&self, lease: i64) -> bool {
        read_lease(lease).is_some_and(|lease| self.node.read_stale(|ledger| ledger.lease(lease).is_none()))
    }

    async fn delete(&self, asked: &pb::DeleteRangeRequest) -> Result<Tell, No> {
        let delete = read_delete(asked)?;
        small(asked)?;
        let deleted = write_delete(&self.did_one(delete).await?);
        let header = deleted.header.map(|header| self.signed(header));
        Ok(Tell::DeleteRange(pb::DeleteRangeResponse { header, ..deleted }))
    }

    async fn txn(&self, asked: &pb::TxnRequest) -> Result<Tell, No> {
        let txn = read_txn(asked)?;
        small(asked)?;
        let done = self.did(txn).await?;
        Ok(Tell::Txn(write_txn(&done, self.header(done.kv_revision))))
    }

    async fn compact(&self, asked: &pb::CompactionRequest) -> Result<Tell, No> {
        match self.ordered(Command::Compact(Compact { revision: asked.revision })).await? {
            Reply::Compacted { kv_revision } => {
                Ok(Tell::Compact(pb::CompactionResponse { header: Some(self.header(kv_revision)) }))
            }
            other => unreachable!("a compaction is answered as one, not {other:?}"),
        }
    }

    async fn grant(&self, asked: pb::LeaseGrantRequest) -> Result<Tell, No> {
        let seconds = if asked.ttl <= 0 { TTL_SECONDS_MIN } else { asked.ttl };
        let ms = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
        let ttl = ms.filter(|ms| *ms <= TTL_MS_MAX).and_then(|ms| Ttl::from_millis(ms).ok());
        let ttl = ttl.ok_or_else(Fault::long_ttl)?;
        let lease = match asked.id {
            0 => self.node.draw_lease(),
            number => read_lease(number).ok_or_else(|| {
                Fault::ours(tonic::Code::InvalidArgument, "tenure: the number of a lease is not negative")
            })?,
        };
        let grant = Grant::plain(lease, self.holder.clone(), ttl, self.node.draw_number());
        self.ordered(Command::Grant(grant)).await?;
        let id = i64::try_from(lease.number()).unwrap_or(i64::MAX);
        Ok(Tell::LeaseGrant(pb::LeaseGrantResponse {
            header: Some(self.header_now()),
            id,
            ttl: seconds,
            error: String::new(),
        }))
    }

    async fn revoke(&self, asked: pb::LeaseRevokeRequest) -> Result<Tell, No> {
        let lease = read_lease(asked.id).ok_or_else(Fault::no_lease)?;
        // Of claims on the lease, the caller need not know: their holders may still be at work.
        let release = ReleaseLease { lease, proof: Proof::Nothing };
        // To give a lease back twice is no error by our rules, and one by etcd's.
        if self.ordered(Command::ReleaseLease(release)).await? == Reply::AlreadyReleased {
            return Err(Fault::no_lease().into());
        }
        Ok(Tell::LeaseRevoke(pb::LeaseRevokeResponse { header: Some(self.header_now()) }))
    }

    async fn keep_alive(&self, asked: &[i64]) -> Result<Tell, No> {
        let ids: Vec<Option<LeaseId>> = asked.iter().map(|number| read_lease(*number)).collect();
        let leases: Vec<Renewal> = ids.iter().flatten().map(|lease| Renewal { lease: *lease, ttl: None }).collect();
        let mut renewed = match leases.is_empty() {
            true => Vec::new(),
            false => match self.ordered(Command::Renew(Renew { leases, kind: Kind::Auto })).await? {
                Reply::Renewed(each) => each,
                other => unreachable!("a renewal is answered as one, not {other:?}"),
            },
        }
        .into_iter();
        let ttl = |id: &Option<LeaseId>| match id.and_then(|_| renewed.next()) {
            Some(Ok(renewed)) => i64::try_from(renewed.ttl_ms / 1000).unwrap_or(i64::MAX).max(1),
            Some(Err(_)) | None => 0,
        };
        let ttls = ids.iter().map(ttl).collect();
        Ok(Tell::KeepAlive(KeepAliveReply { header: Some(self.header_now()), ttls }))
    }

    /// Looks at the ledger: as fresh as everything that was acknowledged before, or as this node has it.
    pub(super) async fn read<T>(&self, stale: bool, look: impl FnOnce(&Ledger, Moment) -> T) -> Result<T, Fault> {
        if stale {
            return Ok(self.node.read_stale(|ledger| look(ledger, ledger.now())));
        }
        let now = led(|| {
            let node = self.node.clone();
            async move { node.read(|_, now| now).await }
        })
        .await?;
        // Nothing is older now than what was asked for.
        Ok(self.node.read_stale(|ledger| look(ledger, now.max(ledger.now()))))
    }
}

/// Tries until somebody leads, for a while: nothing is under way meanwhile.
async fn led<T, F: Future<Output = Result<T, Unready>>>(once: impl Fn() -> F) -> Result<T, Fault> {
    let until = tokio::time::sleep(LEADER_PATIENCE);
    tokio::pin!(until);
    loop {
        match once().await {
            Err(Unready::NotLeader { .. }) => tokio::select! {
                () = &mut until => return Err(Fault::no_leader()),
                () = tokio::time::sleep(LEADER_PAUSE) => {}
            },
            done => return done.map_err(|other| unready(&other)),
        }
    }
}

/// etcd's clients know one word for it; why is in the words of the failure, which the log has at `debug`.
#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn denied(failure: Failure) -> Fault {
    tracing::debug!(why = failure.message, "a call of the etcd dialect was refused");
    Fault::denied()
}

/// Why an order was not done.
enum No {
    Fault(Fault),
    NotNow(Unready),
}

impl From<Fault> for No {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What does not fit into one request is refused before it is looked at.
fn small(asked: &impl prost::Message) -> Result<(), Fault> {
    if asked.encoded_len() > REQUEST_BYTES_MAX { Err(Fault::too_large()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RETRY_AFTER;
    use tonic::Code;

    #[test]
    fn whoever_is_not_answered_is_told_why_in_etcds_words() {
        for (why, code, text) in [
            (Unready::NotLeader { leader: None }, Code::Unavailable, "etcdserver: no leader"),
            (
                Unready::Overloaded { retry_after: RETRY_AFTER },
                Code::ResourceExhausted,
                "etcdserver: too many requests",
            ),
            (Unready::Stuck, Code::Unavailable, "etcdserver: request timed out"),
            (Unready::Stopping, Code::Unavailable, "etcdserver: server stopped"),
            (
                Unready::Unknown,
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
        ] {
            assert_eq!(unready(&why), Fault { code, text: text.into() });
        }
    }
}
