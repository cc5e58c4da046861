//! The way to other nodes as openraft uses it: what it wants said is said to whoever the membership says is there.

use super::types::{Member, RaftLogId, RaftVote, Removed, Types, encode_meta};
use super::wire::{
    read_appended, read_ballot_reply, read_id, read_vote, write_append, write_ballot, write_id, write_transfer,
    write_vote,
};
use crate::certificates::PeerIdentities;
use crate::identity::Identity;
use crate::limits::{
    PEER_PAUSE_MAX, REMOVED_MAX, SNAPSHOT_INSTALL_TIMEOUT, SNAPSHOT_PART_BYTES, SNAPSHOT_PART_TIMEOUT,
};
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use crate::peers::{Network, v1};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Who we are to others, and where they are.
pub(crate) struct Book {
    network: Arc<dyn Network>,
    identities: Option<Arc<PeerIdentities>>,
    sending: Arc<()>,
    us: RwLock<Identity>,
    members: RwLock<Members>,
}

/// The members by the newest membership in our log, and the entry that it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    pub(super) at: Option<RaftLogId>,
    pub(super) by_node: BTreeMap<u64, Member>,
    removed: Vec<Removed>,
}

impl Members {
    pub(super) fn new(at: Option<RaftLogId>, by_node: BTreeMap<u64, Member>) -> Self {
        let removed = all_removed(&by_node);
        Self { at, by_node, removed }
    }

    /// For each removed number the time that a certificate has to be later than. A node whose removal is under way is still
    /// a member, with the certificate and the data directory that are to go.
    fn barred(&self) -> BTreeMap<u64, u64> {
        let is_leaving =
            |it: &Removed, member: &Member| member.incarnation == it.incarnation && member.certified <= it.certified;
        let is_barred = |it: &&Removed| !self.by_node.get(&it.node).is_some_and(|member| is_leaving(it, member));
        self.removed.iter().filter(is_barred).map(|it| (it.node, it.certified)).collect()
    }
}

/// What the members know of removed nodes, taken together: the newest certificate of each number.
pub(super) fn all_removed(by_node: &BTreeMap<u64, Member>) -> Vec<Removed> {
    let mut all: BTreeMap<u64, Removed> = BTreeMap::new();
    for removed in by_node.values().flat_map(|member| &member.removed) {
        let newest = all.entry(removed.node).or_insert(*removed);
        if removed.certified > newest.certified {
            *newest = *removed;
        }
    }
    let mut all: Vec<Removed> = all.into_values().collect();
    all.sort_by_key(|removed| std::cmp::Reverse(removed.certified));
    all.truncate(REMOVED_MAX);
    all
}

impl Book {
    pub(crate) fn new(network: Arc<dyn Network>, us: Identity) -> Self {
        let identities = network.identities();
        Self { network, identities, sending: Arc::default(), us: RwLock::new(us), members: RwLock::default() }
    }

    /// Which certificates of peers are accepted; none where peers show no certificates.
    pub(crate) fn identities(&self) -> Option<&Arc<PeerIdentities>> {
        self.identities.as_ref()
    }

    /// A node that a leader lets in, or that it is itself: with the newest certificate seen of it, and with what every member
    /// has to know of those that were removed.
    pub(crate) fn certified(&self, node: u64, member: Member) -> Member {
        let own = |identities: &PeerIdentities| if node == self.us().node { identities.own_certified() } else { 0 };
        let seen = self.identities.as_ref().map_or(0, |identities| identities.seen(node).max(own(identities)));
        let known = self.known();
        let before = known.by_node.get(&node).filter(|known| known.incarnation == member.incarnation);
        let certified = before.map_or(seen, |known| known.certified.max(seen));
        Member { certified, removed: known.removed.clone(), ..member }
    }

    pub(crate) fn us(&self) -> Identity {
        *self.us.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// We belong to a cluster from now on.
    pub(crate) fn adopted(&self, cluster: u64) {
        self.us.write().unwrap_or_else(PoisonError::into_inner).cluster = cluster;
    }

    fn known(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members by the newest membership in our log.
    pub(crate) fn members(&self) -> BTreeMap<u64, Member> {
        self.known().by_node.clone()
    }

    pub(crate) fn member(&self, node: u64) -> Option<Member> {
        self.known().by_node.get(&node).cloned()
    }

    /// The number of a member's data directory, and from when on its newest certificate is valid.
    pub(crate) fn known_as(&self, node: u64) -> Option<(u64, u64)> {
        self.known().by_node.get(&node).map(|member| (member.incarnation, member.certified))
    }

    /// The newest rules that all members know; none before it has members.
    pub(super) fn rules_of_members(&self) -> Option<u32> {
        self.known().by_node.values().map(|member| member.rules_max).min()
    }

    /// Whether somebody goes by a newer membership than the newest in our log.
    pub(crate) fn is_behind(&self, members: Option<v1::LogId>) -> bool {
        members.map(read_id) > self.known().at
    }

    /// Takes note of the members. True if they are not those that were known.
    pub(super) fn update(&self, members: Members) -> bool {
        if let Some(identities) = &self.identities {
            identities.set_removed(members.barred());
        }
        let mut known = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let is_news = known.by_node != members.by_node;
        *known = members;
        is_news
    }

    /// A snapshot is on its way for as long as what is returned is kept.
    fn sending(&self) -> Arc<()> {
        self.sending.clone()
    }

    /// Whether snapshots are on their way: the log after them is needed.
    pub(super) fn is_sending(&self) -> bool {
        Arc::strong_count(&self.sending) > 1
    }

    /// Asks a member, by its place in the membership.
    pub(crate) async fn ask(&self, node: u64, body: Ask, patience: Duration) -> io::Result<Tell> {
        let member = self.member(node).ok_or_else(|| io::Error::other(format!("node {node} is no member")))?;
        self.ask_member(node, &member, body, patience).await
    }

    async fn ask_member(&self, node: u64, member: &Member, body: Ask, patience: Duration) -> io::Result<Tell> {
        self.ask_at(&member.peer_addr, (node, member.incarnation), body, patience).await
    }

    /// Asks whoever listens at an address, if it is who we mean.
    pub(crate) async fn ask_at(
        &self,
        address: &str,
        (to, to_incarnation): (u64, u64),
        body: Ask,
        patience: Duration,
    ) -> io::Result<Tell> {
        let envelope = Some(self.envelope(to, to_incarnation));
        let answer = self.network.ask(address, v1::Question { envelope, body: Some(body) }, patience).await?;
        answer.body.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a peer's answer says nothing"))
    }

    fn envelope(&self, to: u64, to_incarnation: u64) -> v1::Envelope {
        let Identity { cluster, node, incarnation } = self.us();
        let members = self.known().at.map(write_id);
        v1::Envelope { cluster, from: node, from_incarnation: incarnation, to, to_incarnation, members }
    }
}

/// The peers of a node, as openraft asks for them.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) book: Arc<Book>,
    /// Whether the log was purged under somebody who sends it.
    pub(crate) moved_on: Arc<AtomicBool>,
}

/// The way to one peer.
pub(crate) struct Way {
    book: Arc<Book>,
    moved_on: Arc<AtomicBool>,
    node: u64,
    /// What was known of it when the way was made; the book may know better.
    member: Member,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Way;

    async fn new_client(&mut self, target: u64, node: &Member) -> Way {
        let (book, moved_on) = (self.book.clone(), self.moved_on.clone());
        Way { book, moved_on, node: target, member: node.clone() }
    }
}

impl Way {
    fn member(&self) -> Member {
        self.book.member(self.node).unwrap_or_else(|| self.member.clone())
    }

    async fn ask(&self, body: Ask, patience: Duration) -> io::Result<Tell> {
        self.book.ask_member(self.node, &self.member(), body, patience).await
    }

    async fn ballot(&self, body: Ask, option: RPCOption) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let reply = match self.ask(body, option.soft_ttl()).await.map_err(unreachable)? {
            Tell::Vote(reply) => read_ballot_reply(reply),
            _ => Err(beside_the_point()),
        };
        reply.map_err(unreachable)
    }

    async fn send_parts(&self, vote: &RaftVote, meta: Bytes, body: &Arc<Vec<u8>>) -> io::Result<RaftVote> {
        let whole = Bytes::from_owner(Shared(body.clone()));
        let total_checksum = crc32fast::hash(&whole);
        // Two transfers of one snapshot are the same to the receiver only if they are: both begin at its first byte.
        let transfer = self.book.us().incarnation ^ (whole.len() as u64).rotate_left(32) ^ u64::from(total_checksum);
        let mut offset = 0;
        loop {
            let end = whole.len().min(offset + SNAPSHOT_PART_BYTES);
            let (bytes, is_last) = (whole.slice(offset..end), end == whole.len());
            let part = v1::SnapshotPart {
                transfer,
                vote: Some(write_vote(vote)),
                meta: if offset == 0 { meta.clone() } else { Bytes::new() },
                total_bytes: whole.len() as u64,
                total_checksum,
                offset: offset as u64,
                checksum: crc32fast::hash(&bytes),
                bytes,
            };
            let patience = if is_last { SNAPSHOT_INSTALL_TIMEOUT } else { SNAPSHOT_PART_TIMEOUT };
            let Tell::Snapshot(reply) = self.ask(Ask::Snapshot(part), patience).await? else {
                return Err(beside_the_point());
            };
            if reply.vote.is_some() {
                return read_vote(reply.vote);
            }
            if is_last {
                return Err(beside_the_point());
            }
            offset = end;
        }
    }
}

/// Shared bytes that are not copied.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn beside_the_point() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a peer's answer is to another question")
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn unreachable(error: io::Error) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&error))
}

impl RaftNetworkV2<Types> for Way {
    type SnapshotData = Arc<Vec<u8>>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let (previous, last) = (rpc.prev_log_id, rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id));
        let mut replies = self.stream_append(futures::stream::iter([rpc]), option).await?;
        let nothing = || unreachable(io::ErrorKind::UnexpectedEof.into());
        Ok(match replies.next().await.ok_or_else(nothing)?? {
            Ok(matched) if matched == last => AppendEntriesResponse::Success,
            Ok(matched) => AppendEntriesResponse::PartialSuccess(matched.or(previous)),
            refused @ Err(_) => refused.into(),
        })
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let member = self.member();
        let envelope = self.book.envelope(self.node, member.incarnation);
        let moved_on = self.moved_on.clone();
        // What comes without entries may be what was left of entries that are gone: better to begin anew.
        let whole = input.take_while(move |request| {
            let is_over = request.entries.is_empty() && moved_on.swap(false, Ordering::AcqRel);
            ready(!is_over)
        });
        let requests = whole.map(move |request| write_append(envelope, &request)).boxed();
        let sent = self.book.network.append(self.node, &member.peer_addr, requests);
        let replies = sent.map(|replies| {
            let replies = replies.map_err(unreachable)?;
            let read = |reply: io::Result<v1::AppendReply>| reply.and_then(read_appended).map_err(broken);
            Ok(replies.map(read).boxed())
        });
        replies.boxed()
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ballot(Ask::Vote(write_ballot(&rpc)), option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ballot(Ask::PreVote(write_ballot(&rpc)), option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: openraft::alias::SnapshotOf<Types, Self::SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let meta = encode_meta(snapshot.meta.last_log_id, &snapshot.meta.last_membership);
        let _sending = self.book.sending();
        tokio::select! {
            sent = self.send_parts(&vote, meta.into(), &snapshot.snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    /// A peer that is away is tried again after a pause that grows: each try of a snapshot reads all of it.
    fn backoff(&self) -> Option<Backoff> {
        let pauses = (0..).map(|tries: u32| PAUSE_MIN.saturating_mul(1 << tries.min(8)).min(PEER_PAUSE_MAX));
        Some(Backoff::new(pauses))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        self.ask(Ask::Transfer(write_transfer(&request)), option.soft_ttl()).await.map_err(unreachable)?;
        Ok(Ok(()))
    }
}

/// A stream that broke is tried again at once; if nobody is there, that is seen then.
#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn broken(error: io::Error) -> RPCError<Types> {
    RPCError::Network(NetworkError::new(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Nowhere;

    #[test]
    fn whoever_goes_by_a_newer_membership_knows_better() {
        let book = Book::new(Arc::new(Nowhere), Identity { cluster: 7, node: 1, incarnation: 9 });
        let at = |term, index| Some(v1::LogId { term, index });
        assert!(book.is_behind(at(1, 0)), "a node without a log knows nobody");
        assert!(!book.is_behind(None));
        book.update(Members::new(at(8, 500).map(read_id), BTreeMap::new()));
        assert!(book.is_behind(at(8, 501)) && book.is_behind(at(9, 1)));
        assert!(!book.is_behind(at(8, 500)) && !book.is_behind(at(7, 900)) && !book.is_behind(None));
    }

    #[test]
    fn a_removed_number_is_barred_until_it_is_a_member_no_more() {
        let removed = |node, incarnation, certified| Removed { node, incarnation, certified };
        let member =
            |incarnation, removed: &[Removed]| Member { incarnation, removed: removed.to_vec(), ..Member::default() };
        let barred = |by_node: &[(u64, Member)]| Members::new(None, by_node.iter().cloned().collect()).barred();
        // One member may not have heard of all of them.
        let [one, two] = [member(1, &[removed(3, 33, 100)]), member(2, &[removed(3, 34, 200), removed(4, 44, 50)])];
        let all = BTreeMap::from([(3, 200), (4, 50)]);
        assert_eq!(barred(&[(1, one.clone()), (2, two.clone())]), all);
        // The removal is under way, and then the number is used again: with another data directory, or with another certificate.
        let three = |member| barred(&[(1, one.clone()), (2, two.clone()), (3, member)]);
        assert_eq!(three(member(34, &[])), BTreeMap::from([(4, 50)]));
        assert_eq!(three(member(35, &[])), all);
        assert_eq!(three(Member { certified: 201, ..member(34, &[]) }), all);
        // There is an end to what is remembered: the oldest certificates are forgotten first.
        let many: Vec<Removed> = (1..=REMOVED_MAX as u64 + 1).map(|node| removed(node, 1, node)).collect();
        let left = barred(&[(1_000, member(1, &many))]);
        assert_eq!((left.len(), left.contains_key(&1), left.contains_key(&2)), (REMOVED_MAX, false, true));
    }
}
