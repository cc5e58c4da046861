//! The replica as openraft sees it: it applies what is committed and makes snapshots. It decides nothing.

use super::applying::Applying;
use super::shelf::{Shelf, Snapshot};
use super::types::{Payload, RaftEntry, RaftLogId, StoredMembership, Types, decode_meta, encode_meta};
use crate::audit::{Audits, Hash};
use crate::clock::Clock;
use crate::replica::{Answer, ProposedBy, Replica};
use crate::workers::Workers;
use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tenure_core::Ledger;
use tokio::sync::oneshot;

pub(super) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;
pub(super) type RaftSnapshot = openraft::alias::SnapshotOf<Types, Arc<Vec<u8>>>;

pub(crate) struct Machine {
    replica: Arc<Replica>,
    applied: Option<RaftLogId>,
    membership: StoredMembership,
    shelf: Shelf,
    workers: Workers,
    audits: Arc<Audits>,
    clock: Option<Arc<dyn Clock>>,
    applying: Applying,
}

/// Applying an entry panicked. The ledger may have half of it, so nothing is applied or read after it.
#[derive(Debug, thiserror::Error)]
#[error("the program panicked while it applied entry {index} of the log")]
struct Panicked {
    index: u64,
}

impl Machine {
    /// Starts from the newest snapshot, or from nothing.
    pub(crate) fn load(shelf: Shelf, workers: Workers) -> io::Result<Self> {
        let (applied, membership, ledger) = match shelf.load()? {
            Some(snapshot) => {
                let (applied, membership) = decode_meta(&snapshot.meta)?;
                (applied, membership, read_ledger(&snapshot.body)?)
            }
            None => (None, StoredMembership::default(), Ledger::default()),
        };
        let replica = Arc::new(Replica::new(ledger, applied.map_or(0, |id| id.index())));
        let (audits, applying) = (Arc::default(), Applying::none());
        Ok(Self { replica, applied, membership, shelf, workers, audits, clock: None, applying })
    }

    /// Notes from now on which entry is being applied.
    pub(super) fn noting(&mut self, applying: Applying) {
        self.applying = applying;
    }

    /// Notes hashes by this clock, and gives them away.
    pub(crate) fn audited(&mut self, clock: Arc<dyn Clock>) -> Arc<Audits> {
        self.clock = Some(clock);
        self.audits.clone()
    }

    /// Notes the hash of the ledger as it is after an entry. The copy is made now, the hash beside the hot path.
    fn audit(&self, index: u64) {
        let Some(clock) = &self.clock else { return };
        let begun = clock.monotonic();
        let ledger = self.replica.read(|ledger, _| ledger.clone());
        self.audits.held_up(clock.monotonic().saturating_sub(begun));
        let audits = self.audits.clone();
        let note = async move { audits.note(Hash { index, hash: ledger.state_hash() }) };
        if let Err(error) = self.workers.start("tenure-audit", note) {
            tracing::warn!(%error, "the hash of the ledger could not be taken");
        }
    }

    pub(crate) fn replica(&self) -> Arc<Replica> {
        self.replica.clone()
    }

    pub(crate) fn applied(&self) -> Option<RaftLogId> {
        self.applied
    }

    /// Applies an entry that nobody waits for.
    pub(super) fn replay(&mut self, entry: &RaftEntry) -> io::Result<()> {
        self.apply_noted(entry, ProposedBy::Another).map(drop)
    }

    /// Passes over an entry.
    pub(super) fn skip(&mut self, id: RaftLogId) {
        self.replica.skip(id.index());
        self.applied = Some(id);
    }

    /// Notes an entry, and applies it. A panic ends the process at once in a release. In other builds it becomes an error, which
    /// stops the node; a task that just ended would be missed by no one.
    fn apply_noted(&mut self, entry: &RaftEntry, by: ProposedBy) -> io::Result<Answer> {
        let index = entry.log_id.index();
        let apply = AssertUnwindSafe(|| {
            self.applying.apply(index)?;
            self.apply_one(entry.log_id, &entry.payload, by)
        });
        catch_unwind(apply).unwrap_or_else(|_| Err(io::Error::other(Panicked { index })))
    }

    async fn apply_all<S>(&mut self, entries: &mut S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let by = if responder.is_some() { ProposedBy::ThisProcess } else { ProposedBy::Another };
            let answer = self.apply_noted(&entry, by)?;
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    fn apply_one(&mut self, id: RaftLogId, payload: &Payload, by: ProposedBy) -> io::Result<Answer> {
        let term = id.committed_leader_id().term;
        let answer = match payload {
            Payload::Blank => {
                self.replica.begin_term(term, id.index());
                Answer::default()
            }
            Payload::Normal(proposal) => {
                let applied = self.replica.apply(term, id.index(), &proposal.entry, by);
                let applied = applied.map_err(io::Error::other)?;
                if proposal.is_audited {
                    self.audit(id.index());
                }
                applied
            }
            Payload::Membership(membership) => {
                self.replica.skip(id.index());
                self.membership = StoredMembership::new(Some(id), membership.clone());
                Answer::default()
            }
        };
        self.applied = Some(id);
        Ok(answer)
    }
}

/// The entry at which the program panicked, if that is the error.
pub(super) fn panicked(error: &io::Error) -> Option<u64> {
    error.get_ref().and_then(|error| error.downcast_ref::<Panicked>()).map(|panicked| panicked.index)
}

pub(super) fn read_ledger(bytes: &[u8]) -> io::Result<Ledger> {
    Ledger::read_snapshot(bytes).map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage.to_string()))
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Arc<Vec<u8>>;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let result = self.apply_all(&mut entries).await;
        // After a panic the note goes on accusing the entry.
        if result.as_ref().is_err_and(|error| panicked(error).is_some()) {
            return result;
        }
        result.and(self.applying.applied(self.applied.map_or(0, |id| id.index())))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            ledger: Some(self.replica.read(|ledger, _| ledger.clone())),
            meta: SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() },
            shelf: self.shelf.clone(),
            workers: self.workers,
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Arc<Vec<u8>>) -> Result<(), io::Error> {
        let ledger = read_ledger(&snapshot)?;
        save(&self.shelf, self.workers, meta, move || snapshot).await?;
        self.replica.install(ledger, meta.last_log_id.map_or(0, |id| id.index()));
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<RaftSnapshot>, io::Error> {
        let Some(snapshot) = self.shelf.load()? else { return Ok(None) };
        let (last_log_id, last_membership) = decode_meta(&snapshot.meta)?;
        Ok(Some(RaftSnapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: snapshot.body }))
    }
}

/// Encodes a copy of the ledger beside the hot path.
pub(crate) struct Builder {
    /// Taken by the worker that encodes it.
    ledger: Option<Ledger>,
    meta: SnapshotMeta,
    shelf: Shelf,
    workers: Workers,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Arc<Vec<u8>>;

    async fn build_snapshot(&mut self) -> Result<RaftSnapshot, io::Error> {
        let ledger = self.ledger.take().ok_or_else(|| io::Error::other("a snapshot is built once"))?;
        let encode = move || {
            let mut body = Vec::new();
            ledger.write_snapshot(|bytes| body.extend_from_slice(bytes));
            Arc::new(body)
        };
        let body = save(&self.shelf, self.workers, &self.meta, encode).await?;
        tracing::info!(index = self.meta.last_log_id.map(|id| id.index()), bytes = body.len(), "snapshot taken");
        Ok(RaftSnapshot { meta: self.meta.clone(), snapshot: body })
    }
}

/// Makes a snapshot and puts it on the shelf, both on a worker of its own.
async fn save(
    shelf: &Shelf,
    workers: Workers,
    meta: &SnapshotMeta,
    make: impl FnOnce() -> Arc<Vec<u8>> + Send + 'static,
) -> io::Result<Arc<Vec<u8>>> {
    let meta_bytes = encode_meta(meta.last_log_id, &meta.last_membership);
    let index = meta.last_log_id.map_or(0, |id| id.index());
    let shelf = shelf.clone();
    let (told, saved) = oneshot::channel();
    workers.start("tenure-snapshot", async move {
        let snapshot = Snapshot { meta: meta_bytes, body: make() };
        let saved = shelf.save(index, &snapshot).await.map(|()| snapshot.body);
        // The node may have stopped waiting because it is stopping.
        let _ = told.send(saved);
    })?;
    saved.await.map_err(|_| io::Error::other("the snapshot writer has stopped"))?
}
