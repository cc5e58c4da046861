//! The node and its cluster, as etcd's clients ask for them; and who may ask.

use super::EtcdDesk;
use super::slices::Sink;
use crate::node::Node;
use crate::peers::v1::change::Body as Change;
use tenure_api::etcd::Fault;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_core::limits::{KEY_VALUE_BYTES_MAX, KEYSPACE_BYTES_MAX};
use tenure_core::{Ledger, Range, RangeSlice};
use xxhash_rust::xxh3::Xxh3;

/// The version of etcd whose calls these are.
pub(super) const VERSION: &str = "3.5.30";

impl EtcdDesk {
    /// The members, whose nodes speak to each other in the clear or not: a scheme.
    pub(super) fn member_list(&self, peer_scheme: &str) -> pb::MemberListResponse {
        let member = |standing: crate::peers::v1::Standing| {
            let crate::peers::v1::Member { node, peer_addr, client_addr, .. } = standing.member.unwrap_or_default();
            pb::Member {
                id: node,
                name: format!("node-{node}"),
                peer_ur_ls: vec![format!("{peer_scheme}://{peer_addr}")],
                client_ur_ls: vec![client_addr],
                is_learner: !standing.votes,
            }
        };
        let members = self.node().standings().into_iter().map(member).collect();
        pb::MemberListResponse { header: Some(self.signed(pb::ResponseHeader::default())), members }
    }

    pub(super) fn status(&self) -> pb::StatusResponse {
        let status = self.node().status();
        let bytes = i64::try_from(self.node().read_stale(Ledger::kv_bytes)).unwrap_or(i64::MAX);
        let votes = self.node().consensus().voters().contains(&status.identity.node);
        let errors = match status.leader {
            None => vec![Fault::no_leader().text],
            Some(_) => Vec::new(),
        };
        pb::StatusResponse {
            header: Some(self.header_now()),
            version: VERSION.into(),
            db_size: bytes,
            leader: status.leader.unwrap_or_default(),
            raft_index: status.committed,
            raft_term: status.term,
            raft_applied_index: status.applied,
            errors,
            db_size_in_use: bytes,
            is_learner: !votes,
        }
    }

    /// Alarms are raised and end by themselves: to take one back changes nothing, and none is raised by a client.
    pub(super) fn alarm(&self, asked: &pb::AlarmRequest) -> Result<pb::AlarmResponse, Fault> {
        match pb::alarm_request::AlarmAction::try_from(asked.action) {
            Ok(pb::alarm_request::AlarmAction::Get) => Ok(self.alarms()),
            Ok(pb::alarm_request::AlarmAction::Deactivate) => {
                Ok(pb::AlarmResponse { header: Some(self.header_now()), alarms: Vec::new() })
            }
            Ok(pb::alarm_request::AlarmAction::Activate) | Err(_) => {
                let text = "tenure: the server raises NOSPACE by itself and takes it back when there is room; no client \
                            raises an alarm. Nothing was changed";
                Err(Fault::ours(tonic::Code::Unimplemented, text))
            }
        }
    }

    /// Whether a large request would find no room. It ends by itself when there is some.
    fn alarms(&self) -> pb::AlarmResponse {
        let left = KEYSPACE_BYTES_MAX.saturating_sub(self.node().read_stale(Ledger::kv_bytes));
        let alarm = pb::AlarmMember { member_id: self.node().identity().node, alarm: pb::AlarmType::Nospace.into() };
        let alarms = if left < KEY_VALUE_BYTES_MAX as u64 { vec![alarm] } else { Vec::new() };
        pb::AlarmResponse { header: Some(self.header_now()), alarms }
    }

    /// There is nothing to defragment: what was compacted is gone from memory.
    pub(super) fn defragmented(&self) -> pb::DefragmentResponse {
        tracing::info!("a client asked for defragmentation, which this server does not need: nothing was done");
        pb::DefragmentResponse::default()
    }

    /// The hash of all keys as they are now.
    pub(super) async fn hash(&self) -> Result<pb::HashResponse, Fault> {
        let pb::HashKvResponse { header, hash, .. } = self.hash_kv(pb::HashKvRequest { revision: 0 }).await?;
        Ok(pb::HashResponse { header, hash })
    }

    /// The hash of all keys that can be looked at up to a revision. It is worked out slice by slice, beside the ledger.
    pub(super) async fn hash_kv(&self, asked: pb::HashKvRequest) -> Result<pb::HashKvResponse, Fault> {
        let everything = tenure_core::Keys::From { first: [][..].into(), end: None };
        let revision = Some(asked.revision).filter(|revision| *revision > 0);
        let range = Range { revision, ..Range::of(everything) };
        let mut hash = Hashed::default();
        let now = self.look_through(&range, &mut hash).await?;
        let compacted = self.node().read_stale(Ledger::kv_compacted);
        Ok(pb::HashKvResponse {
            header: Some(self.header(now)),
            hash: fold(hash.hash.digest()),
            compact_revision: compacted.map_or(-1, |compacted| i64::try_from(compacted).unwrap_or(i64::MAX)),
        })
    }

    pub(super) async fn move_leader(&self, asked: pb::MoveLeaderRequest) -> Result<pb::MoveLeaderResponse, Fault> {
        let node: &Node = self.node();
        if !node.consensus().voters().contains(&asked.target_id) {
            return Err(Fault::no_member());
        }
        let moved = node.change(Change::TransferTo(asked.target_id)).await;
        self.audit_named("transfer_lead", asked.target_id.to_string(), moved.is_ok());
        moved.map_err(|cannot| Fault::ours(tonic::Code::Unavailable, format!("tenure: {cannot}")))?;
        Ok(pb::MoveLeaderResponse { header: Some(self.header_now()) })
    }
}

/// A snapshot in etcd's own format is a database of etcd's, which is not there. A backup in another format would pass for one
/// until it is needed.
pub(super) fn no_snapshot() -> Fault {
    let text = "tenure: there are no snapshots in etcd's format. `tenure cluster backup FILE` writes a backup of everything, and \
                `tenure cluster restore` makes a cluster from it. Nothing was changed";
    Fault::ours(tonic::Code::Unimplemented, text)
}

fn fold(hash: u64) -> u32 {
    u32::try_from((hash ^ (hash >> 32)) & u64::from(u32::MAX)).expect("the upper half is masked")
}

/// A hash of keys as they come.
#[derive(Default)]
struct Hashed {
    hash: Xxh3,
}

impl Sink for Hashed {
    fn take(&mut self, _: &Range, slice: RangeSlice) -> Result<(), Fault> {
        for (key, value) in &slice.items {
            self.hash.update(key.bytes());
            self.hash.update(&value.value);
            for number in [value.create_revision, value.mod_revision, value.version] {
                self.hash.update(&number.to_le_bytes());
            }
        }
        Ok(())
    }

    fn gathered(&self) -> usize {
        0
    }

    fn begin_again(&mut self) {
        *self = Self::default();
    }
}
