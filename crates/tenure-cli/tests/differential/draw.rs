//! Draws the next step of a sequence from a seed and from where the servers stand. Few keys, leases and watchers, so that
//! calls meet each other often; every limit and every refusal now and then.

use super::side::Side;
use super::step::{PICKED, STREAMS, Step};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tenure_api::etcd::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tenure_api::etcd::etcdserverpb::request_op::Request;
use tenure_api::etcd::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};

const KEYS: &[&[u8]] = &[b"a", b"aa", b"ab", b"b", b"b\0", b"c", b"\xff"];

/// How deep transactions lie in each other.
const DEPTH_MAX: u32 = 2;

/// Operations in a transaction, and bytes in a request, that etcd refuses.
const TOO_MANY: usize = 129;
const TOO_LARGE: usize = 1_600_000;

/// Seconds. Nothing ends by itself while the sequence runs, and the order of ends is the same on both sides.
const LONG: i64 = 100_000;
const TTL_TOO_LARGE: i64 = 9_000_000_001;

pub(crate) struct Draw {
    random: StdRng,
    revision: i64,
    compacted: i64,
    picked: i64,
    deletes: Deletes,
}

/// Where a transaction deletes. etcd is supposed to refuse one that writes a key twice, but overlooks a delete without an
/// end, and a delete in a later inner transaction: it does both, and may fall over it, at once or after a compaction. It
/// never gets one that could.
#[derive(Clone, Copy)]
enum Deletes {
    Nowhere,
    /// Beside puts, and with an end.
    Outside,
    /// Without puts.
    Everywhere,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), revision: 1, compacted: 0, picked: 0, deletes: Deletes::Nowhere }
    }

    pub(crate) fn step(&mut self, side: &Side) -> Step {
        self.revision = side.revision;
        self.compacted = side.compacted;
        self.picked = i64::try_from(side.picked_leases()).unwrap();
        match self.random.random_range(0..1000) {
            0..=219 => Step::Put(self.put()),
            220..=419 => Step::Range(self.range()),
            420..=479 => Step::Delete(self.delete()),
            480..=659 => Step::Txn(self.whole_txn()),
            660..=669 => Step::Compact(self.compact()),
            670..=699 => Step::Grant(self.grant()),
            700..=714 => Step::Revoke(self.lease()),
            715..=739 => {
                let id = self.lease();
                Step::TimeToLive(LeaseTimeToLiveRequest { id, keys: self.one_in(2) })
            }
            740..=749 => Step::Leases,
            750..=779 => Step::KeepAlive(self.lease()),
            780..=781 => Step::Expire { ttl: self.pick(&[2, 2, 0, -5]), keys: self.some(4, Self::key) },
            782..=861 => Step::Watch { stream: self.stream(), create: self.watch() },
            862..=891 => self.cancel(side),
            892..=911 => Step::Progress { stream: self.stream() },
            912..=915 => Step::Reopen { stream: self.stream() },
            _ => Step::Settle,
        }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.random.random_ratio(1, many)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        *of.choose(&mut self.random).expect("there is something to pick from")
    }

    /// One to `most` of something.
    fn some<T>(&mut self, most: usize, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.random.random_range(1..=most);
        (0..count).map(|_| draw(self)).collect()
    }

    fn stream(&mut self) -> usize {
        self.random.random_range(0..STREAMS)
    }

    fn key(&mut self) -> Vec<u8> {
        self.pick(KEYS).to_vec()
    }

    /// A key as a request may carry it, which seldom is none.
    fn asked_key(&mut self) -> Vec<u8> {
        if self.one_in(100) { Vec::new() } else { self.key() }
    }

    /// A key alone, a prefix, all from a key on, everything, any pair (also an empty or turned one).
    fn keys(&mut self) -> (Vec<u8>, Vec<u8>) {
        let key = self.asked_key();
        match self.random.random_range(0..8) {
            0..=2 => (key, Vec::new()),
            3..=4 => {
                let end = after_prefix(&key);
                (key, end)
            }
            5 => (key, vec![0]),
            6 => (vec![0], vec![0]),
            _ => (key, self.key()),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.random_range(0..200) {
            0 => vec![b'x'; TOO_LARGE],
            1..=20 => Vec::new(),
            _ => self.pick::<&[u8]>(&[b"1", b"2", b"3", b"10"]).to_vec(),
        }
    }

    /// None, one that the test chose, or one that the server picked; some are not there.
    fn lease(&mut self) -> i64 {
        if self.picked > 0 && self.one_in(3) {
            PICKED + self.random.random_range(0..self.picked)
        } else {
            self.random.random_range(0..7)
        }
    }

    /// Now, lately, forgotten, not yet, or never.
    fn past(&mut self) -> i64 {
        let (compacted, now) = (self.compacted, self.revision);
        let back = self.random.random_range(0..40);
        self.pick(&[
            0,
            0,
            now,
            now - back,
            now - back,
            compacted,
            compacted - 1,
            compacted + 1,
            now + 1,
            now + back,
            -1,
        ])
    }

    fn put(&mut self) -> PutRequest {
        let ignore_value = self.one_in(12);
        let ignore_lease = self.one_in(12);
        let value = if ignore_value && !self.one_in(4) { Vec::new() } else { self.value() };
        let lease = if self.one_in(3) && (!ignore_lease || self.one_in(4)) { self.lease() } else { 0 };
        PutRequest { key: self.asked_key(), value, lease, prev_kv: self.one_in(3), ignore_value, ignore_lease }
    }

    fn bound(&mut self) -> i64 {
        if self.one_in(5) { (self.revision - self.random.random_range(-2..60)).max(0) } else { 0 }
    }

    fn range(&mut self) -> RangeRequest {
        let (key, range_end) = self.keys();
        RangeRequest {
            key,
            range_end,
            limit: self.pick(&[0, 0, 0, 1, 2, 5, -1]),
            revision: if self.one_in(3) { self.past() } else { 0 },
            sort_order: self.random.random_range(0..3),
            sort_target: self.random.random_range(0..5),
            serializable: self.one_in(4),
            keys_only: self.one_in(6),
            count_only: self.one_in(8),
            min_mod_revision: self.bound(),
            max_mod_revision: self.bound(),
            min_create_revision: self.bound(),
            max_create_revision: self.bound(),
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = self.keys();
        DeleteRangeRequest { key, range_end, prev_kv: self.one_in(2) }
    }

    fn compact(&mut self) -> CompactionRequest {
        let back = self.random.random_range(0..60);
        let (now, past) = (self.revision, self.past());
        let revision = self.pick(&[now - back, now - back, now, past]);
        CompactionRequest { revision, physical: self.one_in(2) }
    }

    fn grant(&mut self) -> LeaseGrantRequest {
        let id = self.random.random_range(0..7);
        let ttl = if self.one_in(15) { TTL_TOO_LARGE } else { LONG * self.random.random_range(1..1000) };
        LeaseGrantRequest { ttl, id }
    }

    fn whole_txn(&mut self) -> TxnRequest {
        self.deletes = self.pick(&[Deletes::Nowhere, Deletes::Outside, Deletes::Everywhere]);
        self.txn(0)
    }

    fn txn(&mut self, depth: u32) -> TxnRequest {
        let most = if depth == 0 && self.one_in(60) { TOO_MANY } else { 3 };
        let mut txn = TxnRequest::default();
        if !self.one_in(4) {
            txn.compare = self.some(3, Self::compare);
        }
        if !self.one_in(8) {
            txn.success = self.some(3, |draw| draw.operation(depth));
        }
        if !self.one_in(4) {
            txn.failure = self.some(3, |draw| draw.operation(depth));
        }
        if most == TOO_MANY {
            let crowd = (0..TOO_MANY - usize::from(self.one_in(2))).map(|_| range_of(b"a"));
            let branch = if self.one_in(2) { &mut txn.success } else { &mut txn.failure };
            *branch = crowd.collect();
        }
        txn
    }

    fn operation(&mut self, depth: u32) -> RequestOp {
        let request = match self.random.random_range(0..100) {
            0..=39 => Some(self.write(depth)),
            40..=69 => Some(Request::RequestRange(self.range())),
            70 if self.one_in(4) => None,
            71..=85 if depth < DEPTH_MAX => Some(Request::RequestTxn(self.txn(depth + 1))),
            _ => Some(self.write(depth)),
        };
        RequestOp { request }
    }

    fn write(&mut self, depth: u32) -> Request {
        let is_rare = self.one_in(3);
        match self.deletes {
            Deletes::Outside if depth == 0 && is_rare => {
                let key = self.asked_key();
                let range_end = if key < vec![u8::MAX] && self.one_in(2) { after_prefix(&key) } else { Vec::new() };
                Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: self.one_in(2) })
            }
            Deletes::Nowhere | Deletes::Outside => Request::RequestPut(self.put()),
            Deletes::Everywhere => Request::RequestDeleteRange(self.delete()),
        }
    }

    fn compare(&mut self) -> Compare {
        let (mut key, mut range_end) = (self.asked_key(), Vec::new());
        if self.one_in(3) {
            (key, range_end) = self.keys();
        }
        let result =
            self.pick(&[CompareResult::Equal, CompareResult::Greater, CompareResult::Less, CompareResult::NotEqual]);
        let about = self.revision - self.random.random_range(0..20);
        let (target, union) = match self.random.random_range(0..5) {
            0 => (CompareTarget::Version, TargetUnion::Version(self.random.random_range(0..4))),
            1 => (CompareTarget::Create, TargetUnion::CreateRevision(self.pick(&[0, 0, about]))),
            2 => (CompareTarget::Mod, TargetUnion::ModRevision(self.pick(&[0, about]))),
            3 => (CompareTarget::Value, TargetUnion::Value(self.pick::<&[u8]>(&[b"", b"1", b"2", b"10"]).to_vec())),
            _ => (CompareTarget::Lease, TargetUnion::Lease(self.compared_lease(result))),
        };
        let target_union = if self.one_in(40) { None } else { Some(union) };
        Compare { result: result.into(), target: target.into(), key, target_union, range_end }
    }

    /// Numbers that the servers picked are alike or not, but neither less nor greater.
    fn compared_lease(&mut self, result: CompareResult) -> i64 {
        match result {
            CompareResult::Equal | CompareResult::NotEqual => self.lease(),
            CompareResult::Greater | CompareResult::Less => self.random.random_range(0..7),
        }
    }

    fn watch(&mut self) -> WatchCreateRequest {
        let (key, range_end) = self.keys();
        WatchCreateRequest {
            key,
            range_end,
            start_revision: if self.one_in(2) { 0 } else { self.past() },
            progress_notify: self.one_in(4),
            filters: if self.one_in(4) { self.some(2, |draw| draw.random.random_range(0..2)) } else { Vec::new() },
            prev_kv: self.one_in(2),
            watch_id: if self.one_in(3) { self.random.random_range(1..6) } else { 0 },
            fragment: self.one_in(4),
        }
    }

    fn cancel(&mut self, side: &Side) -> Step {
        let stream = self.stream();
        let open = side.open_watches(stream);
        let watch = if open.is_empty() || self.one_in(6) { self.random.random_range(0..9) } else { self.pick(&open) };
        Step::Cancel { stream, watch }
    }
}

/// The first key behind all that begin with a prefix, as clients ask for it.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn range_of(key: &[u8]) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(RangeRequest { key: key.to_vec(), ..Default::default() })) }
}
