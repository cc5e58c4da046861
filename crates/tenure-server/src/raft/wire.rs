//! openraft's messages as peers send them, and back.

use super::types::{RaftEntry, RaftLogId, RaftVote, Types, decode_entry, encode_payload};
use crate::peers::v1;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, TransferLeaderRequest, VoteRequest, VoteResponse};
use std::io;

/// What a follower says of the entries that it was sent.
pub(super) type Appended = Result<Option<RaftLogId>, StreamAppendError<Types>>;

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a peer's message has no {what}"))
}

pub(super) fn write_id(id: RaftLogId) -> v1::LogId {
    v1::LogId { term: id.committed_leader_id().term, index: id.index() }
}

pub(super) fn read_id(id: v1::LogId) -> RaftLogId {
    RaftLogId::new_term_index(id.term, id.index)
}

pub(super) fn write_vote(vote: &RaftVote) -> v1::Vote {
    let leader = vote.leader_id();
    v1::Vote { term: leader.term, node: leader.voted_for, committed: vote.is_committed() }
}

pub(super) fn read_vote(vote: Option<v1::Vote>) -> io::Result<RaftVote> {
    let v1::Vote { term, node, committed } = vote.ok_or_else(|| missing("vote"))?;
    Ok(if committed { RaftVote::new_committed(term, node) } else { RaftVote::new(term, node) })
}

pub(super) fn write_ballot(request: &VoteRequest<Types>) -> v1::VoteRequest {
    v1::VoteRequest {
        vote: Some(write_vote(&request.vote)),
        last: request.last_log_id.map(write_id),
        is_transfer: request.leadership_transfer,
    }
}

pub(super) fn read_ballot(request: &v1::VoteRequest) -> io::Result<VoteRequest<Types>> {
    let mut ballot = VoteRequest::new(read_vote(request.vote)?, request.last.map(read_id));
    ballot.leadership_transfer = request.is_transfer;
    Ok(ballot)
}

pub(super) fn write_ballot_reply(reply: &VoteResponse<Types>) -> v1::VoteReply {
    let vote = Some(write_vote(&reply.vote));
    v1::VoteReply { vote, last: reply.last_log_id.map(write_id), granted: reply.vote_granted }
}

pub(super) fn read_ballot_reply(reply: v1::VoteReply) -> io::Result<VoteResponse<Types>> {
    Ok(VoteResponse::new(read_vote(reply.vote)?, reply.last.map(read_id), reply.granted))
}

pub(super) fn write_append(envelope: v1::Envelope, request: &AppendEntriesRequest<Types>) -> v1::AppendRequest {
    let entry = |entry: &RaftEntry| v1::Entry {
        term: entry.log_id.committed_leader_id().term,
        index: entry.log_id.index(),
        payload: encode_payload(&entry.payload).into(),
    };
    v1::AppendRequest {
        envelope: Some(envelope),
        vote: Some(write_vote(&request.vote)),
        previous: request.prev_log_id.map(write_id),
        entries: request.entries.iter().map(entry).collect(),
        committed: request.leader_commit.map(write_id),
    }
}

pub(super) fn read_append(request: &v1::AppendRequest) -> io::Result<AppendEntriesRequest<Types>> {
    let entries = request.entries.iter().map(|entry| decode_entry(entry.term, entry.index, &entry.payload));
    Ok(AppendEntriesRequest {
        vote: read_vote(request.vote)?,
        prev_log_id: request.previous.map(read_id),
        entries: entries.collect::<io::Result<_>>()?,
        leader_commit: request.committed.map(read_id),
    })
}

pub(super) fn write_appended(appended: &Appended) -> v1::AppendReply {
    use v1::append_reply::Body;
    let body = match appended {
        Ok(last) => Body::Matched(v1::Matched { last: last.map(write_id) }),
        Err(StreamAppendError::Conflict(id)) => Body::Conflict(write_id(*id)),
        Err(StreamAppendError::HigherVote(vote)) => Body::HigherVote(write_vote(vote)),
    };
    v1::AppendReply { body: Some(body) }
}

pub(super) fn read_appended(reply: v1::AppendReply) -> io::Result<Appended> {
    use v1::append_reply::Body;
    Ok(match reply.body.ok_or_else(|| missing("body"))? {
        Body::Matched(matched) => Ok(matched.last.map(read_id)),
        Body::Conflict(id) => Err(StreamAppendError::Conflict(read_id(id))),
        Body::HigherVote(vote) => Err(StreamAppendError::HigherVote(read_vote(Some(vote))?)),
    })
}

pub(super) fn write_transfer(request: &TransferLeaderRequest<Types>) -> v1::TransferRequest {
    v1::TransferRequest {
        from: Some(write_vote(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().copied().map(write_id),
    }
}

pub(super) fn read_transfer(request: &v1::TransferRequest) -> io::Result<TransferLeaderRequest<Types>> {
    Ok(TransferLeaderRequest::new(read_vote(request.from)?, request.to, request.last.map(read_id)))
}
