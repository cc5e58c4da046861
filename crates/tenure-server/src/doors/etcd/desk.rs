//! Where the calls of the etcd dialect are answered, whichever wire they came by: orders at the leader, looks at this node.

use crate::access::audit::Change;
use crate::access::{Caller, WatchRoom};
use crate::limits::{LEADER_PATIENCE, LEADER_PAUSE, REQUEST_BYTES_MAX};
use crate::metrics::OK;
use crate::node::Node;
use crate::shares::Client;
use crate::unready::Unready;
use tenure_api::etcd::{Fault, etcdserverpb as pb, header};
use tenure_api::v1::Failure;
use tenure_core::{Command, Holder, Keys, Lease, Ledger, Moment, Reply, Txn};

/// Whose leases those of etcd's clients are, where nothing more is known of them.
const HOLDER: &str = "etcd";

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
        Unready::OldMember { .. } => {
            let text =
                "tenure: a node of this cluster runs an older build that does not know this; nothing was changed";
            Fault::ours(tonic::Code::Unimplemented, text)
        }
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

    /// Tells the audit log how a change was answered, in the words of etcd.
    pub(super) async fn audited<T>(
        &self,
        change: Option<Change>,
        answer: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let answer = answer.await;
        if let Some(change) = change {
            let denied = Fault::denied();
            let code = match &answer {
                Ok(_) => OK,
                Err(fault) if *fault == denied => tenure_api::Code::Denied.text(),
                Err(fault) => &fault.text,
            };
            change.answered(self.node.wall_ms(), &self.caller, code, None);
        }
        answer
    }

    /// Whether the caller's key is still valid, and may name what a command names.
    pub(super) fn may_submit(&self, command: &Command) -> Result<(), Fault> {
        if !matches!(command, Command::ReleaseLease(_)) {
            self.has_its_key()?;
        }
        self.caller.may_order(command).map_err(denied)
    }

    /// Whether the caller's key is still valid.
    pub(super) fn has_its_key(&self) -> Result<(), Fault> {
        let retired =
            |failure: Failure| Fault::ours(tonic::Code::Unauthenticated, format!("tenure: {}", failure.message));
        self.caller.still_has_its_key().map_err(retired)
    }

    /// Does what a command says, once a node leads.
    pub(super) async fn submit(&self, command: Command) -> Result<Reply, Fault> {
        self.may_submit(&command)?;
        let command = self.caller.sign(command);
        let outcome = led(|| {
            let (node, command) = (self.node.clone(), command.clone());
            async move { node.submit(command).await }
        });
        outcome.await?.map_err(|refusal| Fault::from(&refusal))
    }

    /// Tells the audit log of a change that is no command.
    pub(super) fn audit_named(&self, call: &'static str, name: String, is_done: bool) {
        if let Some(change) = Change::named(call, name) {
            change.answered(self.node.wall_ms(), &self.caller, if is_done { OK } else { "refused" }, None);
        }
    }

    /// Whose leases those are that are granted here.
    pub(super) fn holder(&self) -> Holder {
        self.holder.clone()
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

/// What does not fit into one request is refused before it is looked at.
pub(super) fn small(asked: &impl prost::Message) -> Result<(), Fault> {
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
