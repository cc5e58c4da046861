//! Long looks, slice by slice: others write between two slices, and what is found is of one revision all the same.

use super::EtcdDesk;
use crate::limits::{RANGE_BYTES_MAX, SLICE_LOOKS, SLICED_TRIES};
use tenure_api::etcd::Fault;
use tenure_core::{Key, KeyValue, LeaseId, Ledger, Moment, Range, RangeSlice, Ranged, Refusal};

/// Why a look did not come to its end.
enum Cut {
    /// The revision was compacted meanwhile.
    Compacted,
    No(Fault),
}

impl From<Refusal> for Cut {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Compacted { .. } => Self::Compacted,
            other => Self::No(Fault::from(&other)),
        }
    }
}

impl EtcdDesk {
    /// What a range finds, and the keyspace's revision when the look began. The caller has made sure that this node is as fresh
    /// as it needs.
    pub(super) async fn look(&self, range: &Range) -> Result<(Ranged, u64), Fault> {
        let mut found = Found::default();
        let now = self.look_through(range, &mut found).await?;
        Ok((range.finish(&found.items, found.count), now))
    }

    /// Goes through what a range finds, slice by slice. If the revision of now is compacted meanwhile, it begins again.
    pub(super) async fn look_through(&self, range: &Range, sink: &mut impl Sink) -> Result<u64, Fault> {
        for _ in 0..SLICED_TRIES {
            let now = self.node().read_stale(|ledger| {
                ledger.may_look_at(range.revision).map(|()| ledger.kv_revision()).map_err(|no| Fault::from(&no))
            })?;
            let asked = range.revision.and_then(|revision| u64::try_from(revision).ok());
            match self.look_at(range, asked.filter(|at| *at > 0).unwrap_or(now), sink).await {
                Ok(()) => return Ok(now),
                Err(Cut::No(fault)) => return Err(fault),
                Err(Cut::Compacted) if range.revision.is_some() => return Err(Fault::compacted()),
                Err(Cut::Compacted) => sink.begin_again(),
            }
        }
        Err(Fault::too_many_requests())
    }

    async fn look_at(&self, range: &Range, at: u64, sink: &mut impl Sink) -> Result<(), Cut> {
        let mut from: Option<Key> = None;
        loop {
            let most = range.most().saturating_sub(sink.gathered());
            let slice =
                self.node().read_stale(|ledger| ledger.range_slice(range, at, from.as_ref(), most, SLICE_LOOKS))?;
            from.clone_from(&slice.next);
            sink.take(range, slice).map_err(Cut::No)?;
            if from.is_none() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// All leases with when they end, each of which lived at some time during the look, and the keyspace's revision after it.
    pub(super) async fn look_at_leases(&self) -> (Vec<(Moment, LeaseId)>, u64) {
        let (mut all, mut first) = (Vec::new(), None);
        loop {
            let slice = |ledger: &Ledger| {
                let mut leases = ledger.leases_from(first).map(|(id, lease)| (lease.ends_at(), id));
                all.extend(leases.by_ref().take(SLICE_LOOKS));
                (leases.next().map(|(_, id)| id), ledger.kv_revision())
            };
            let (next, kv_revision) = self.node().read_stale(slice);
            if next.is_none() {
                return (all, kv_revision);
            }
            first = next;
            tokio::task::yield_now().await;
        }
    }
}

/// What takes the slices of a look.
pub(super) trait Sink: Send {
    fn take(&mut self, range: &Range, slice: RangeSlice) -> Result<(), Fault>;

    /// How many keys it has gathered.
    fn gathered(&self) -> usize;

    /// Forgets what it took.
    fn begin_again(&mut self);
}

/// What a look has found.
#[derive(Default)]
struct Found {
    items: Vec<(Key, KeyValue)>,
    count: u64,
    bytes: usize,
}

impl Sink for Found {
    fn take(&mut self, range: &Range, slice: RangeSlice) -> Result<(), Fault> {
        self.bytes += slice.bytes(range.part);
        self.count += slice.count;
        self.items.extend(slice.items);
        // What the revisions leave out counts as well: it is held until all is there.
        if self.bytes > RANGE_BYTES_MAX {
            let text = format!(
                "tenure: an answer has at most {} MiB, and these keys have more; ask for them page by page, with a limit",
                RANGE_BYTES_MAX >> 20
            );
            return Err(Fault::ours(tonic::Code::ResourceExhausted, text));
        }
        Ok(())
    }

    fn gathered(&self) -> usize {
        self.items.len()
    }

    fn begin_again(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::tests::alone;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tenure_api::etcd::etcdserverpb as pb;
    use tenure_core::{Command, Grant, Hang, Holder, Keys, Put, Ttl};

    /// Whether another task of this thread runs before a look has come to its end. Under one lock for all of it, none does.
    async fn lets_others_run(look: impl Future<Output = ()>) -> bool {
        let ran = AtomicBool::new(false);
        let other = async { ran.store(true, Ordering::Relaxed) };
        let look = async {
            look.await;
            ran.load(Ordering::Relaxed)
        };
        futures::future::join(look, other).await.0
    }

    #[tokio::test]
    async fn long_looks_let_writers_in() {
        let node = alone().await;
        for n in 0..2 * SLICE_LOOKS {
            let key = Key::parse(format!("k/{n}").as_bytes()).unwrap();
            let put = Command::Put(Put { key, value: Some([0][..].into()), lease: Hang::Free });
            let lease = LeaseId::from_number(n as u64 + 1).unwrap();
            let grant = Grant::plain(lease, Holder::parse("h").unwrap(), Ttl::from_millis(600_000).unwrap(), 1);
            let (put, grant) = futures::join!(node.propose(put), node.propose(Command::Grant(grant)));
            assert!(put.unwrap().is_ok() && grant.unwrap().is_ok());
        }
        let desk = EtcdDesk::new(node);
        let all = Range::of(Keys::Prefix(b"k/"[..].into()));
        let range = async { assert_eq!(desk.look(&all).await.unwrap().0.count, 2 * SLICE_LOOKS as u64) };
        assert!(lets_others_run(range).await, "a range");
        let leases = async { assert_eq!(desk.look_at_leases().await.0.len(), 2 * SLICE_LOOKS) };
        assert!(lets_others_run(leases).await, "a list of leases");
        let hash = async { assert!(desk.hash_kv(pb::HashKvRequest { revision: 0 }).await.is_ok()) };
        assert!(lets_others_run(hash).await, "a hash");
    }
}
