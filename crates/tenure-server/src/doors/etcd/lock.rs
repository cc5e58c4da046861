//! Locks and elections that the server waits for: keys under a name, each on a lease, of which the oldest wins. It is what
//! etcd's clients do by themselves with transactions and watches, done at the server.

use super::{EtcdDesk, Replies};
use crate::bells::Bell;
use crate::limits::WATCH_ANSWERS_MAX;
use futures::StreamExt;
use std::sync::Arc;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tenure_api::etcd::etcdserverpb::request_op::Request as Op;
use tenure_api::etcd::etcdserverpb::response_op::Response as Done;
use tenure_api::etcd::v3electionpb as election;
use tenure_api::etcd::v3lockpb as lock;
use tenure_api::etcd::{Fault, mvccpb, write_key};
use tenure_core::{Key, KeyValue, Keys, Ledger};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The TTL of a lease that is granted for a lock without one, in seconds.
const SESSION_SECONDS: i64 = 60;

/// A key of somebody who wants a name for itself.
#[derive(Clone)]
struct Stake {
    name: Vec<u8>,
    key: Vec<u8>,
    lease: i64,
}

/// A stake's key as it was put or found.
struct Staked {
    /// Its create revision.
    revision: i64,
    /// Its value, if it was there.
    value: Option<Vec<u8>>,
    header: Option<pb::ResponseHeader>,
}

impl Stake {
    fn new(name: &[u8], lease: i64) -> Self {
        let prefix = prefix(name);
        let key = [&prefix[..], format!("{lease:x}").as_bytes()].concat();
        Self { name: name.to_vec(), key, lease }
    }
}

fn prefix(name: &[u8]) -> Vec<u8> {
    [name, b"/"].concat()
}

fn op(request: Op) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn get(key: &[u8]) -> pb::RequestOp {
    op(Op::RequestRange(pb::RangeRequest { key: key.to_vec(), ..pb::RangeRequest::default() }))
}

/// Holds if a key was created at a revision; at 0, if it is not there.
fn created_at(key: &[u8], revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..pb::Compare::default()
    }
}

/// Takes a key away if the client that waits with it stops waiting.
struct Waiting {
    desk: EtcdDesk,
    stake: Option<Stake>,
    /// The create revision of its key: a later key of the same name belongs to another call.
    revision: i64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(stake) = self.stake.take() else { return };
        let (desk, revision) = (self.desk.clone(), self.revision);
        tokio::spawn(async move {
            if let Err(fault) = desk.delete_created(&stake.key, revision).await {
                tracing::debug!(fault.text, "the key of a client that waits no longer stays until its lease ends");
            }
        });
    }
}

/// Whatever goes wrong here, etcd says it with the code of what it does not know.
fn unknown(fault: Fault) -> Fault {
    Fault { code: tonic::Code::Unknown, ..fault }
}

impl EtcdDesk {
    pub(super) async fn lock(&self, asked: lock::LockRequest) -> Result<lock::LockResponse, Fault> {
        let lease = self.session(asked.lease).await.map_err(unknown)?;
        let stake = Stake::new(&asked.name, lease);
        let staked = self.stake(&stake, Vec::new()).await.map_err(unknown)?;
        self.first(&stake, staked.revision).await?;
        Ok(lock::LockResponse { header: Some(self.header_now()), key: stake.key })
    }

    pub(super) async fn unlock(&self, asked: lock::UnlockRequest) -> Result<lock::UnlockResponse, Fault> {
        let delete = pb::DeleteRangeRequest { key: asked.key, ..pb::DeleteRangeRequest::default() };
        let header = self.delete_range(delete).await?.header;
        Ok(lock::UnlockResponse { header })
    }

    /// The lease that was named, or a new one that nobody renews.
    async fn session(&self, lease: i64) -> Result<i64, Fault> {
        if lease != 0 {
            return Ok(lease);
        }
        Ok(self.lease_grant(pb::LeaseGrantRequest { ttl: SESSION_SECONDS, id: 0 }).await?.id)
    }

    /// Puts a stake's key, unless it is there.
    async fn stake(&self, stake: &Stake, value: Vec<u8>) -> Result<Staked, Fault> {
        let (key, lease) = (stake.key.clone(), stake.lease);
        let put = op(Op::RequestPut(pb::PutRequest { key, value, lease, ..pb::PutRequest::default() }));
        let txn = pb::TxnRequest {
            compare: vec![created_at(&stake.key, 0)],
            success: vec![put],
            failure: vec![get(&stake.key)],
        };
        let done = self.transact(txn).await?;
        let there = done.responses.into_iter().find_map(|done| match done.response {
            Some(Done::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let now = done.header.map_or(0, |header| header.revision);
        let (revision, value) = there.map_or((now, None), |kv| (kv.create_revision, Some(kv.value.to_vec())));
        Ok(Staked { revision, value, header: done.header })
    }

    /// Returns when no key under the name is older than this stake's. This node's own copy of the ledger says when to look;
    /// a linearizable read decides, since the copy may be behind by the end of this stake's own lease.
    async fn first(&self, stake: &Stake, revision: i64) -> Result<(), Fault> {
        let mut waiting = Waiting { desk: self.clone(), stake: Some(stake.clone()), revision };
        let revision = u64::try_from(revision).unwrap_or_default();
        let under = Keys::Prefix(prefix(&stake.name).into());
        let bell = Arc::new(Bell::default());
        let gone = |ledger: &Ledger| !matches!(ledger.key(&stake.key), Some(own) if own.create_revision == revision);
        loop {
            let before = self
                .node()
                .read_stale(|ledger| if gone(ledger) { Err(()) } else { Ok(last_before(ledger, &under, revision)) });
            let Ok(before) = before else {
                waiting.stake = None;
                return Err(Fault::session_expired());
            };
            let Some(before) = before else {
                if self.read(false, |ledger, _| gone(ledger)).await? {
                    continue;
                }
                waiting.stake = None;
                return Ok(());
            };
            let own = Key::parse(&stake.key).map_err(|_| Fault::too_large())?;
            let room = || Fault::too_many_requests();
            let _before =
                self.node().bells().hang(Keys::One(before.clone()), &bell, &self.client()).ok_or_else(room)?;
            let _own = self.node().bells().hang(Keys::One(own), &bell, &self.client()).ok_or_else(room)?;
            // It may have gone before the bell was hung up.
            let is_there = self.node().read_stale(|ledger| ledger.key(before.bytes()).is_some() && !gone(ledger));
            if is_there {
                bell.rung().await;
            }
        }
    }

    pub(super) async fn campaign(&self, asked: election::CampaignRequest) -> Result<election::CampaignResponse, Fault> {
        let lease = self.session(asked.lease).await.map_err(unknown)?;
        let stake = Stake::new(&asked.name, lease);
        let Staked { revision: rev, value, header } = self.stake(&stake, asked.value.clone()).await.map_err(unknown)?;
        let leader = election::LeaderKey { name: asked.name, key: stake.key.clone(), rev, lease };
        if value.is_some_and(|value| value != asked.value) {
            self.proclaimed(&leader, asked.value).await?;
        }
        self.first(&stake, rev).await?;
        // As with etcd, the revision is that of the stake, however long it took to win.
        Ok(election::CampaignResponse { header, leader: Some(leader) })
    }

    pub(super) async fn proclaim(&self, asked: election::ProclaimRequest) -> Result<election::ProclaimResponse, Fault> {
        let leader = asked.leader.ok_or_else(Fault::no_leader_key)?;
        let header = self.proclaimed(&leader, asked.value).await?;
        Ok(election::ProclaimResponse { header })
    }

    async fn proclaimed(
        &self,
        leader: &election::LeaderKey,
        value: Vec<u8>,
    ) -> Result<Option<pb::ResponseHeader>, Fault> {
        let (key, lease) = (leader.key.clone(), leader.lease);
        let put = op(Op::RequestPut(pb::PutRequest { key, value, lease, ..pb::PutRequest::default() }));
        let compare = vec![created_at(&leader.key, leader.rev)];
        let done = self.transact(pb::TxnRequest { compare, success: vec![put], failure: Vec::new() }).await?;
        if done.succeeded { Ok(done.header) } else { Err(Fault::election_not_leader()) }
    }

    pub(super) async fn resign(&self, asked: election::ResignRequest) -> Result<election::ResignResponse, Fault> {
        let leader = asked.leader.ok_or_else(Fault::no_leader_key)?;
        let done = self.delete_created(&leader.key, leader.rev).await?;
        Ok(election::ResignResponse { header: done.header })
    }

    /// Deletes a key if it is the one that was created at a revision.
    async fn delete_created(&self, key: &[u8], revision: i64) -> Result<pb::TxnResponse, Fault> {
        let delete = pb::DeleteRangeRequest { key: key.to_vec(), ..pb::DeleteRangeRequest::default() };
        let (compare, success) = (vec![created_at(key, revision)], vec![op(Op::RequestDeleteRange(delete))]);
        self.transact(pb::TxnRequest { compare, success, failure: Vec::new() }).await
    }

    pub(super) async fn leader(&self, asked: &election::LeaderRequest) -> Result<election::LeaderResponse, Fault> {
        let under = Keys::Prefix(prefix(&asked.name).into());
        self.may_see(&under)?;
        let (kv, kv_revision) = self.read(false, |ledger, _| (winner(ledger, &under), ledger.kv_revision())).await?;
        let kv = kv.ok_or_else(Fault::election_no_leader)?;
        Ok(election::LeaderResponse { header: Some(self.header(kv_revision)), kv: Some(kv) })
    }

    /// Tells who leads, and each change of that or of what it says.
    pub(super) fn observe(&self, asked: &election::LeaderRequest) -> Result<Replies<election::LeaderResponse>, Fault> {
        let (replies, receiver) = mpsc::channel(WATCH_ANSWERS_MAX);
        let (desk, under) = (self.clone(), Keys::Prefix(prefix(&asked.name).into()));
        self.may_see(&under)?;
        tokio::spawn(async move {
            let bell = Arc::new(Bell::default());
            let Some(_hanging) = desk.node().bells().hang(under.clone(), &bell, &desk.client()) else {
                // Whoever has hung up needs no reason.
                let _ = replies.send(Err(Fault::too_many_requests().status())).await;
                return;
            };
            let mut told: Option<mvccpb::KeyValue> = None;
            loop {
                let (kv, now) = desk.node().read_stale(|ledger| (winner(ledger, &under), ledger.kv_revision()));
                if let Some(kv) = kv.filter(|kv| told.as_ref() != Some(kv)) {
                    told = Some(kv.clone());
                    let header = Some(desk.header(now));
                    if replies.send(Ok(election::LeaderResponse { header, kv: Some(kv) })).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = bell.rung() => {}
                    () = replies.closed() => return,
                }
            }
        });
        Ok(ReceiverStream::new(receiver).boxed())
    }
}

/// The youngest key under a name that is older than a revision.
fn last_before(ledger: &Ledger, under: &Keys, revision: u64) -> Option<Key> {
    let older = under_name(ledger, under).filter(|(_, value)| value.create_revision < revision);
    older.max_by_key(|(_, value)| value.create_revision).map(|(key, _)| key.clone())
}

/// The oldest key under a name.
fn winner(ledger: &Ledger, under: &Keys) -> Option<mvccpb::KeyValue> {
    let oldest = under_name(ledger, under).min_by_key(|(_, value)| value.create_revision);
    oldest.map(|(key, value)| write_key(key, value))
}

fn under_name<'a>(ledger: &'a Ledger, under: &'a Keys) -> impl Iterator<Item = (&'a Key, &'a KeyValue)> {
    ledger.keys_from(under.first()).take_while(|(key, _)| under.cover(key.bytes()))
}
