//! What peers ask of the log: votes, entries, snapshots. It checks that a message is whole, and hands it to openraft.

use super::types::decode_meta;
use super::wire::{read_append, read_ballot, read_transfer, read_vote, write_appended, write_ballot_reply, write_vote};
use super::{Consensus, machine};
use crate::limits::{APPENDS_MAX, SNAPSHOT_BYTES_MAX, TERM_LEAP_MAX};
use crate::peers::v1;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// A snapshot that a leader is sending.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    transfer: u64,
    meta: Vec<u8>,
    bytes: Vec<u8>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

impl Incoming {
    /// Takes the next part; the whole body once it is complete.
    fn take(&mut self, part: &v1::SnapshotPart) -> io::Result<Option<Vec<u8>>> {
        if crc32fast::hash(&part.bytes) != part.checksum {
            return Err(bad("a part of a snapshot was damaged on its way"));
        }
        if part.total_bytes > SNAPSHOT_BYTES_MAX {
            return Err(bad("the snapshot is larger than a node takes"));
        }
        if part.offset == 0 {
            *self = Self { transfer: part.transfer, meta: part.meta.to_vec(), bytes: Vec::new() };
        }
        let is_next = part.transfer == self.transfer && part.offset == self.bytes.len() as u64;
        if !is_next || part.offset + part.bytes.len() as u64 > part.total_bytes {
            return Err(bad("a part of a snapshot does not follow the one before"));
        }
        self.bytes.extend_from_slice(&part.bytes);
        if (self.bytes.len() as u64) < part.total_bytes {
            return Ok(None);
        }
        let whole = std::mem::take(&mut self.bytes);
        if crc32fast::hash(&whole) != part.total_checksum {
            return Err(bad("a snapshot was damaged on its way"));
        }
        Ok(Some(whole))
    }
}

impl Consensus {
    /// No election makes a term leap: a vote that would is a fault, and would leave no terms for later.
    fn check_term(&self, vote: Option<v1::Vote>) -> io::Result<()> {
        let known = self.standing().term;
        match vote {
            Some(vote) if vote.term > known.saturating_add(TERM_LEAP_MAX) => Err(bad("the term of a vote leaps")),
            _ => Ok(()),
        }
    }

    pub(crate) async fn answer_vote(&self, request: &v1::VoteRequest) -> io::Result<v1::VoteReply> {
        self.check_term(request.vote)?;
        let reply = self.seeds.scope(self.raft.vote(read_ballot(request)?)).await.map_err(io::Error::other)?;
        Ok(write_ballot_reply(&reply))
    }

    pub(crate) async fn answer_pre_vote(&self, request: &v1::VoteRequest) -> io::Result<v1::VoteReply> {
        let reply = self.seeds.scope(self.raft.pre_vote(read_ballot(request)?)).await.map_err(io::Error::other)?;
        Ok(write_ballot_reply(&reply))
    }

    /// The vote that this node has now, as the Raft core has it: metrics may lag behind.
    pub(crate) async fn answer_current_vote(&self) -> io::Result<v1::Vote> {
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await.map_err(io::Error::other)?;
        Ok(write_vote(&vote))
    }

    pub(crate) async fn answer_transfer(&self, request: &v1::TransferRequest) -> io::Result<()> {
        let told = self.seeds.scope(self.raft.handle_transfer_leader(read_transfer(request)?)).await;
        let told = told.map_err(io::Error::other)?;
        told.map_err(io::Error::other)
    }

    /// Takes entries in their order. Whatever is wrong with one of them ends the stream, and the leader begins anew.
    pub(crate) fn answer_append(
        &self,
        requests: impl Stream<Item = v1::AppendRequest> + Send + 'static,
    ) -> BoxStream<'static, io::Result<v1::AppendReply>> {
        let requests = requests.map(|request| read_append(&request)).take_while(|request| {
            if let Err(error) = request {
                tracing::error!(%error, "entries from the leader were not understood");
            }
            ready(request.is_ok())
        });
        let (raft, (replies, receiver)) = (self.raft.clone(), mpsc::channel(APPENDS_MAX));
        tokio::spawn(self.seeds.scope(async move {
            let mut appended = pin!(raft.stream_append(requests.filter_map(|request| ready(request.ok()))));
            while let Some(appended) = appended.next().await {
                let reply = appended.map(|appended| write_appended(&appended)).map_err(io::Error::other);
                if replies.send(reply).await.is_err() {
                    return;
                }
            }
        }));
        ReceiverStream::new(receiver).boxed()
    }

    pub(crate) async fn answer_snapshot(&self, part: v1::SnapshotPart) -> io::Result<v1::SnapshotReply> {
        self.check_term(part.vote)?;
        let vote = read_vote(part.vote)?;
        let whole = {
            let mut incoming = self.incoming.lock().await;
            match incoming.take(&part)? {
                Some(body) => Some((std::mem::take(&mut incoming.meta), body)),
                None => None,
            }
        };
        let Some((meta, body)) = whole else { return Ok(v1::SnapshotReply { vote: None }) };
        let (last_log_id, last_membership) = decode_meta(&meta)?;
        // A body that cannot be read must not reach the log: it would stop there.
        machine::read_ledger(&body)?;
        let meta = machine::SnapshotMeta { last_log_id, last_membership };
        let bytes = body.len();
        let snapshot = machine::RaftSnapshot { meta, snapshot: Arc::new(body) };
        let installed = self.seeds.scope(self.raft.install_full_snapshot(vote, snapshot)).await;
        let installed = installed.map_err(io::Error::other)?;
        // openraft needs no snapshot of what it has seen committed, and says yes at once: also of entries that wait for the
        // disk, and of a snapshot that is being saved. The leader takes it for good, so it has to be durable first.
        if installed.vote == vote {
            tokio::select! {
                _ = self.replica.reached(last_log_id.map_or(0, |id| id.index())) => self.settling.settle().await?,
                why = self.failed() => return Err(io::Error::other(why)),
            }
        }
        tracing::info!(bytes, index = last_log_id.map(|id| id.index()), "a snapshot came from the leader");
        Ok(v1::SnapshotReply { vote: Some(write_vote(&installed.vote)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(body: &[u8]) -> Vec<v1::SnapshotPart> {
        let part = |(n, bytes): (usize, &[u8])| v1::SnapshotPart {
            transfer: 7,
            total_bytes: body.len() as u64,
            total_checksum: crc32fast::hash(body),
            offset: n as u64 * 4,
            checksum: crc32fast::hash(bytes),
            bytes: bytes.to_vec().into(),
            ..v1::SnapshotPart::default()
        };
        body.chunks(4).enumerate().map(part).collect()
    }

    #[test]
    fn a_snapshot_is_whole_after_its_last_part() {
        let (parts, mut incoming) = (parts(b"0123456789"), Incoming::default());
        assert_eq!(incoming.take(&parts[0]).unwrap(), None);
        assert_eq!(incoming.take(&parts[1]).unwrap(), None);
        assert_eq!(incoming.take(&parts[0]).unwrap(), None, "it may begin anew");
        assert_eq!(incoming.take(&parts[1]).unwrap(), None);
        assert_eq!(incoming.take(&parts[2]).unwrap().unwrap(), b"0123456789");
    }

    #[test]
    fn what_is_damaged_missing_or_too_much_is_refused() {
        let whole = parts(b"0123456789");
        let taken = |change: &dyn Fn(&mut Vec<v1::SnapshotPart>)| {
            let (mut parts, mut incoming) = (whole.clone(), Incoming::default());
            change(&mut parts);
            parts.iter().map(|part| incoming.take(part)).collect::<io::Result<Vec<_>>>().is_err()
        };
        assert!(!taken(&|_| {}));
        assert!(taken(&|parts| parts[1].bytes = b"45x7".to_vec().into()));
        assert!(taken(&|parts| drop(parts.remove(1))));
        assert!(taken(&|parts| parts[1].transfer = 8));
        assert!(taken(&|parts| parts[2].total_checksum ^= 1));
        assert!(taken(&|parts| parts.iter_mut().for_each(|part| part.total_bytes = SNAPSHOT_BYTES_MAX + 1)));
        assert!(taken(&|parts| parts.iter_mut().for_each(|part| part.total_bytes = 9)));
    }
}
