//! The types that openraft is used with, and their shape on disk. They never leave `raft/`.

use crate::peers::v1 as peer;
use crate::replica::Answer;
use openraft::impls::leader_id_std;
use openraft_rt::deterministic_rng::DeterministicRng;
use openraft_rt_tokio::TokioRuntime;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use tenure_core::Entry;

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Proposal,
        R = Answer,
        NodeId = u64,
        Node = Member,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = DeterministicRng<TokioRuntime>,
);

pub(crate) type RaftEntry = openraft::alias::EntryOf<Types>;
pub(crate) type RaftLogId = openraft::alias::LogIdOf<Types>;
pub(crate) type RaftVote = openraft::alias::VoteOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;
pub(crate) type Payload = openraft::EntryPayload<Proposal, u64, Member>;

/// An entry of the ledger's, shared between the log and apply.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) entry: Arc<Entry>,
    /// Whether every node notes the hash of its ledger after it.
    pub(crate) is_audited: bool,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands at {}", self.entry.commands.len(), self.entry.now)
    }
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) peer_addr: String,
    pub(crate) client_addr: String,
    /// Drawn when the data directory was made: a wiped node is not its old self.
    pub(crate) incarnation: u64,
    pub(crate) rules_max: u32,
    /// From when on the newest certificate is valid that a leader has seen of it, in seconds since 1970; 0 if none had an
    /// identity.
    pub(crate) certified: u64,
    /// Nodes that were removed from the cluster. Each member has all of them, because any of them may be removed next.
    pub(crate) removed: Vec<Removed>,
}

/// A node that was removed, and with which certificate it was a member last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
    pub(crate) certified: u64,
}

impl From<peer::Member> for Member {
    fn from(member: peer::Member) -> Self {
        let peer::Member { peer_addr, client_addr, incarnation, rules_max, .. } = member;
        Self { peer_addr, client_addr, incarnation, rules_max, ..Self::default() }
    }
}

impl Member {
    pub(crate) fn told_as(self, node: u64) -> peer::Member {
        let Self { peer_addr, client_addr, incarnation, rules_max, .. } = self;
        peer::Member { node, peer_addr, client_addr, incarnation, rules_max }
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LogIdRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct VoteRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(bool, tag = "3")]
    committed: bool,
}

#[derive(Clone, PartialEq, Message)]
struct MemberRecord {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(string, tag = "2")]
    peer_addr: String,
    #[prost(string, tag = "3")]
    client_addr: String,
    #[prost(fixed64, tag = "4")]
    incarnation: u64,
    #[prost(uint32, tag = "5")]
    rules_max: u32,
    #[prost(uint64, tag = "6")]
    certified: u64,
    #[prost(message, repeated, tag = "7")]
    removed: Vec<RemovedRecord>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct RemovedRecord {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(fixed64, tag = "2")]
    incarnation: u64,
    #[prost(uint64, tag = "3")]
    certified: u64,
}

#[derive(Clone, PartialEq, Message)]
struct VotersRecord {
    #[prost(uint64, repeated, tag = "1")]
    nodes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct MembershipRecord {
    #[prost(message, repeated, tag = "1")]
    voters: Vec<VotersRecord>,
    #[prost(message, repeated, tag = "2")]
    members: Vec<MemberRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct PayloadRecord {
    #[prost(oneof = "PayloadKind", tags = "1, 2, 3")]
    kind: Option<PayloadKind>,
    #[prost(bool, tag = "4")]
    is_audited: bool,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum PayloadKind {
    #[prost(bool, tag = "1")]
    Blank(bool),
    #[prost(bytes, tag = "2")]
    Entry(Vec<u8>),
    #[prost(message, tag = "3")]
    Membership(MembershipRecord),
}

/// What a snapshot says of the log before it.
#[derive(Clone, PartialEq, Message)]
struct MetaRecord {
    #[prost(message, optional, tag = "1")]
    last: Option<LogIdRecord>,
    #[prost(message, optional, tag = "2")]
    membership_at: Option<LogIdRecord>,
    #[prost(message, optional, tag = "3")]
    membership: Option<MembershipRecord>,
}

/// Whether the bytes are what they should be; a checksum vouched for them already.
fn damaged(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn log_id_record(id: RaftLogId) -> LogIdRecord {
    LogIdRecord { term: id.committed_leader_id().term, index: id.index() }
}

fn read_log_id(record: LogIdRecord) -> RaftLogId {
    RaftLogId::new_term_index(record.term, record.index)
}

pub(crate) fn encode_log_id(id: RaftLogId) -> Vec<u8> {
    log_id_record(id).encode_to_vec()
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> io::Result<RaftLogId> {
    LogIdRecord::decode(bytes).map(read_log_id).map_err(damaged)
}

pub(crate) fn encode_vote(vote: &RaftVote) -> Vec<u8> {
    let leader = vote.leader_id();
    VoteRecord { term: leader.term, node: leader.voted_for, committed: vote.is_committed() }.encode_to_vec()
}

pub(crate) fn decode_vote(bytes: &[u8]) -> io::Result<RaftVote> {
    let record = VoteRecord::decode(bytes).map_err(damaged)?;
    Ok(match record.committed {
        true => RaftVote::new_committed(record.term, record.node),
        false => RaftVote::new(record.term, record.node),
    })
}

fn removed_record(removed: &Removed) -> RemovedRecord {
    let Removed { node, incarnation, certified } = *removed;
    RemovedRecord { node, incarnation, certified }
}

fn read_removed(record: RemovedRecord) -> Removed {
    let RemovedRecord { node, incarnation, certified } = record;
    Removed { node, incarnation, certified }
}

fn membership_record(membership: &Membership) -> MembershipRecord {
    let voters = membership.get_joint_config().iter();
    let members = membership.nodes().map(|(node, member)| MemberRecord {
        node: *node,
        peer_addr: member.peer_addr.clone(),
        client_addr: member.client_addr.clone(),
        incarnation: member.incarnation,
        rules_max: member.rules_max,
        certified: member.certified,
        removed: member.removed.iter().map(removed_record).collect(),
    });
    MembershipRecord {
        voters: voters.map(|nodes| VotersRecord { nodes: nodes.iter().copied().collect() }).collect(),
        members: members.collect(),
    }
}

fn read_membership(record: MembershipRecord) -> io::Result<Membership> {
    let voters: Vec<BTreeSet<u64>> =
        record.voters.into_iter().map(|voters| voters.nodes.into_iter().collect()).collect();
    let members: BTreeMap<u64, Member> = record
        .members
        .into_iter()
        .map(|member| {
            let MemberRecord { node, peer_addr, client_addr, incarnation, rules_max, certified, removed } = member;
            let removed = removed.into_iter().map(read_removed).collect();
            (node, Member { peer_addr, client_addr, incarnation, rules_max, certified, removed })
        })
        .collect();
    if voters.is_empty() && members.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(voters, members).map_err(damaged)
}

pub(crate) fn encode_payload(payload: &Payload) -> Vec<u8> {
    let kind = match payload {
        Payload::Blank => PayloadKind::Blank(true),
        Payload::Normal(proposal) => PayloadKind::Entry(proposal.entry.encode()),
        Payload::Membership(membership) => PayloadKind::Membership(membership_record(membership)),
    };
    let is_audited = matches!(payload, Payload::Normal(proposal) if proposal.is_audited);
    PayloadRecord { kind: Some(kind), is_audited }.encode_to_vec()
}

pub(crate) fn decode_entry(term: u64, index: u64, bytes: &[u8]) -> io::Result<RaftEntry> {
    let record = PayloadRecord::decode(bytes).map_err(damaged)?;
    let is_audited = record.is_audited;
    let kind = record.kind.ok_or_else(|| damaged("an entry of a kind that this build does not know"))?;
    let payload = match kind {
        PayloadKind::Blank(_) => Payload::Blank,
        PayloadKind::Entry(bytes) => {
            let entry = Arc::new(Entry::decode(&bytes).map_err(damaged)?);
            Payload::Normal(Proposal { entry, is_audited })
        }
        PayloadKind::Membership(record) => Payload::Membership(read_membership(record)?),
    };
    Ok(RaftEntry { log_id: RaftLogId::new_term_index(term, index), payload })
}

/// What an entry on disk holds, in words without names and values, whether or not it can be decoded.
pub(super) fn contents(bytes: &[u8]) -> String {
    let kind = PayloadRecord::decode(bytes).ok().and_then(|record| record.kind);
    match kind {
        Some(PayloadKind::Blank(_)) => "the beginning of a leadership".into(),
        Some(PayloadKind::Membership(_)) => "a change of members".into(),
        Some(PayloadKind::Entry(bytes)) => match Entry::kinds(&bytes) {
            Ok(kinds) if kinds.is_empty() => "no command but the time".into(),
            Ok(kinds) => {
                let each: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
                each.join(", ")
            }
            Err(_) => "something that cannot be read".into(),
        },
        None => "something that cannot be read".into(),
    }
}

pub(crate) fn encode_meta(last: Option<RaftLogId>, membership: &StoredMembership) -> Vec<u8> {
    MetaRecord {
        last: last.map(log_id_record),
        membership_at: membership.log_id().map(log_id_record),
        membership: Some(membership_record(membership.membership())),
    }
    .encode_to_vec()
}

pub(crate) fn decode_meta(bytes: &[u8]) -> io::Result<(Option<RaftLogId>, StoredMembership)> {
    let record = MetaRecord::decode(bytes).map_err(damaged)?;
    let membership = read_membership(record.membership.unwrap_or_default())?;
    Ok((record.last.map(read_log_id), StoredMembership::new(record.membership_at.map(read_log_id), membership)))
}
