//! The limits of the keyspace and of its past, and what is forgotten in several entries: a restart in the middle of it is
//! not seen.

use crate::support::model::keys::Changed;
use crate::support::{
    acquire_on, all_accepted, entry, grant, grant_under, id, key, order, put, refusal, renew, restored, tick,
};
use std::sync::Arc;
use tenure_core::{
    Applied, Command, Compact, Delete, Entry, Hang, Keys, Ledger, Op, Part, Put, Range, Ranged, Refusal, Reply, Sort,
    SortBy, Txn, Wait, Way, Within, limits,
};

fn full(what: &'static str, max: usize) -> Refusal {
    Refusal::Full { what: what.into(), max }
}

fn all_keys() -> Keys {
    Keys::Prefix([][..].into())
}

fn compact(revision: u64) -> Command {
    Command::Compact(Compact { revision: i64::try_from(revision).expect("a test is short") })
}

fn at(revision: u64) -> Range {
    Range { revision: i64::try_from(revision).ok(), ..Range::of(all_keys()) }
}

/// What who watches from a revision on is told.
fn told(ledger: &Ledger, revision: u64) -> Result<Vec<Changed>, Refusal> {
    Ok(ledger.changes_from(revision)?.map(Changed::from).collect())
}

#[test]
fn bytes_of_keys() {
    let (mut ledger, max) = (Ledger::default(), limits::KEY_VALUE_BYTES_MAX);
    let put = |text: &str, value: &Arc<[u8]>| {
        Command::Put(Put { key: key(text), value: Some(value.clone()), lease: Hang::Free })
    };
    let bytes = |count: usize| -> Arc<[u8]> { vec![0; count].into() };
    ledger.apply(&tick(0));
    assert_eq!(refusal(&mut ledger, put("kkk", &bytes(max - 2))), full("bytes of a key with its value", max));
    order(&mut ledger, 0, put("kkk", &bytes(max - 3))).unwrap();
    order(&mut ledger, 0, Command::Delete(Delete { keys: Keys::One(key("kkk")) })).unwrap();
}

/// With what they were. What is refused is to write; to look, to delete, to compact and all about leases goes on.
#[test]
fn bytes_of_all_keys() {
    let (mut ledger, max) = (Ledger::default(), limits::KEYSPACE_BYTES_MAX);
    let on = |text: &str, value: &Arc<[u8]>, lease: Hang| {
        Command::Put(Put { key: key(text), value: Some(value.clone()), lease })
    };
    let put = |text: &str, value: &Arc<[u8]>| on(text, value, Hang::Free);
    let delete = |text: &str| Command::Delete(Delete { keys: Keys::One(key(text)) });
    let bytes = |count: usize| -> Arc<[u8]> { vec![0; count].into() };
    all_accepted(&mut ledger, 0, [grant(1, 1000)]);
    // They share the bytes of their value, so that this needs no memory.
    let cost = |value: usize| 5 + value as u64 + limits::KEY_COST_BYTES;
    let large = bytes(1_000_000);
    let count = max / cost(large.len());
    all_accepted(&mut ledger, 0, (1..count).map(|n| put(&format!("{n:05}"), &large)));
    all_accepted(&mut ledger, 0, [on("00000", &large, Hang::On(id(1)))]);
    let left = usize::try_from(max - count * cost(large.len()) - cost(0)).unwrap();
    let many = Err(full("bytes of all keys", usize::try_from(max).unwrap()));
    assert_eq!(order(&mut ledger, 0, put("12345", &bytes(left + 1))), many);
    let twice = ["12345", "12346"].map(|text| Put { key: key(text), value: Some(bytes(left)), lease: Hang::Free });
    let twice = Txn { then: twice.map(|put| Op::Put { put, prev: false }).to_vec(), ..Txn::default() };
    assert_eq!(order(&mut ledger, 0, Command::Txn(twice)), many, "a transaction is weighed whole");
    order(&mut ledger, 0, put("12345", &bytes(left))).unwrap();
    assert_eq!(ledger.kv_bytes(), max);
    assert_eq!(order(&mut ledger, 0, put("x", &bytes(0))), many, "every key costs something");
    assert_eq!(order(&mut ledger, 0, put("12345", &bytes(0))), many, "what it was is kept");
    assert_eq!(ledger.kv_revision(), 2 + count);

    all_accepted(&mut ledger, 0, [grant(2, 1000), renew([1]), acquire_on(1, "db", Wait::Never)]);
    assert_eq!(ledger.range(&Range::of(Keys::Prefix([][..].into()))).unwrap().count, count + 1);
    let count_all = Range { part: Part::CountOnly, ..Range::of(all_keys()) };
    let ops = vec![Op::Delete { keys: Keys::One(key("00002")), prev: true }, Op::Range(count_all)];
    order(&mut ledger, 0, Command::Txn(Txn { then: ops, ..Txn::default() })).unwrap();
    order(&mut ledger, 0, delete("00001")).unwrap();
    assert_eq!(order(&mut ledger, 0, put("x", &bytes(0))), many, "what was deleted is kept as well");
    ledger.apply(&tick(1000));
    assert!(ledger.key(b"00000").is_none() && ledger.lease_count() == 0, "keys end with their lease");
    assert_eq!(order(&mut ledger, 1000, put("x", &bytes(0))), many);
    let revision = i64::try_from(ledger.kv_revision()).unwrap();
    order(&mut ledger, 1000, Command::Compact(Compact { revision })).unwrap();
    order(&mut ledger, 1000, put("x", &bytes(0))).unwrap();
    let still_told = cost(0);
    assert_eq!(ledger.kv_bytes(), max - 3 * cost(large.len()) + cost(0) - 4 + still_told);
}

#[test]
fn keys_of_one_delete() {
    let (mut ledger, max) = (Ledger::default(), limits::DELETED_MAX);
    all_accepted(&mut ledger, 0, (0..=max).map(|n| put(&format!("k/{n:06}"), Hang::Free)));
    let delete = |prefix: &str| Command::Delete(Delete { keys: Keys::Prefix(prefix.as_bytes().into()) });
    assert_eq!(refusal(&mut ledger, delete("k/")), full("keys in one delete", max));
    assert_eq!(refusal(&mut ledger, delete("")), full("keys in one delete", max));
    let both = ["k/0", "k/1"].map(|prefix| Op::Delete { keys: Keys::Prefix(prefix.as_bytes().into()), prev: false });
    let both = Command::Txn(Txn { then: both.to_vec(), ..Txn::default() });
    assert_eq!(refusal(&mut ledger, both.clone()), full("keys in one delete", max));
    order(&mut ledger, 0, delete("k/000000")).unwrap();
    assert!(ledger.clone().apply(&entry(0, vec![both])).outcomes[0].is_ok());
    let applied = ledger.apply(&entry(0, vec![delete("k/")]));
    let kv_revision = ledger.kv_revision();
    assert_eq!(applied.outcomes[0], Ok(Reply::Deleted { count: max as u64, kv_revision }));
    assert!(applied.events.iter().all(|event| event.revision == applied.events[0].revision));
    assert_eq!(ledger.key_count(), 0);
}

/// What a transaction would hang on each tree is counted, and each tree alone.
#[test]
fn keys_that_one_transaction_hangs_on_leases() {
    let (mut ledger, max) = (Ledger::default(), limits::ATTACHED_MAX);
    all_accepted(&mut ledger, 0, [grant(1, 60_000), grant(2, 60_000), grant_under(1, 3, 60_000)]);
    all_accepted(&mut ledger, 0, (1..max - 1).map(|n| put(&format!("1/{n}"), Hang::On(id(1)))));
    all_accepted(&mut ledger, 0, (1..max).map(|n| put(&format!("2/{n}"), Hang::On(id(2)))));
    let txn = |puts: &[(&str, u64)]| {
        let put = |(text, lease): &(&str, u64)| Put {
            key: key(text),
            value: Some([][..].into()),
            lease: Hang::On(id(*lease)),
        };
        let then = puts.iter().map(|of| Op::Put { put: put(of), prev: false }).collect();
        Command::Txn(Txn { then, ..Txn::default() })
    };
    let tree = full("things attached to one lease tree", max);
    assert_eq!(refusal(&mut ledger, txn(&[("a", 1), ("b", 1)])), tree);
    assert_eq!(refusal(&mut ledger, txn(&[("a", 1), ("b", 3)])), tree, "a child is of its parent's tree");
    order(&mut ledger, 0, txn(&[("a", 1), ("b", 2), ("1/1", 1)])).unwrap();
    assert_eq!([1, 2].map(|lease| ledger.lease(id(lease)).unwrap().carried()), [max; 2]);
    assert_eq!(refusal(&mut ledger, txn(&[("1/1", 1), ("c", 2)])), tree);
}

/// A ledger, and one that is restored from it before each entry and goes on alone.
struct Restarted {
    lived: Ledger,
    others: Vec<Ledger>,
}

impl Restarted {
    fn new(lived: Ledger) -> Self {
        Self { lived, others: Vec::new() }
    }

    /// Applies an entry to all of them, which must not be told apart.
    fn apply(&mut self, entry: &Entry) -> Applied {
        self.others.push(restored(&self.lived));
        let applied = self.lived.apply(entry);
        let oldest = self.lived.kv_compacted().unwrap_or(0);
        for other in &mut self.others {
            let same = other.apply(entry);
            assert_eq!((&applied.outcomes, &applied.events), (&same.outcomes, &same.events));
            assert_eq!(applied.unfinished, same.unfinished, "all are behind alike");
            assert_eq!(self.lived.state_hash(), other.state_hash(), "all are equal");
            assert_eq!(self.lived.kv_bytes(), other.kv_bytes(), "all weigh the same");
            assert_eq!(told(&self.lived, oldest), told(other, oldest), "all remember the same");
        }
        applied
    }
}

/// What was compacted is taken out bit by bit, and cannot be looked at from the beginning on.
#[test]
fn a_compaction_takes_several_entries() {
    let (mut ledger, each) = (Ledger::default(), limits::CLEAR_MAX as u64);
    let writes = 2 * each + 5;
    all_accepted(&mut ledger, 0, (0..writes).map(|n| put(if n % 2 == 0 { "a" } else { "b" }, Hang::Free)));
    // Some are left alone by it.
    all_accepted(&mut ledger, 0, (0..3).map(|_| put("a", Hang::Free)));
    let (last, whole) = (1 + writes, ledger.kv_bytes());
    let mut all = Restarted::new(ledger);
    let applied = all.apply(&entry(1, vec![compact(last)]));
    assert_eq!(applied.outcomes, [Ok(Reply::Compacted { kv_revision: last + 3 })]);
    let mut weights = vec![whole, all.lived.kv_bytes()];
    assert!(applied.unfinished && weights[1] < whole);
    for others in [true, false] {
        assert_eq!(all.lived.range(&at(last - 1)), Err(Refusal::Compacted { compacted: last }));
        assert_eq!(all.lived.range(&at(last)).unwrap().count, 2);
        // Writing goes on meanwhile, also of what is being taken out.
        let applied = all.apply(&entry(1, vec![put("b", Hang::Free)]));
        assert_eq!(applied.unfinished, others, "{each} changes an entry");
        weights.push(all.lived.kv_bytes());
    }
    assert!(!all.apply(&tick(2)).unfinished);
    assert!(weights.is_sorted_by(|a, b| a > b), "{weights:?}");
    // Left are two keys, what both were at that revision, and what they were since.
    let one = 1 + 5 + limits::KEY_COST_BYTES;
    assert_eq!(all.lived.kv_bytes(), (2 + 2 + 2 + 1) * one);
    assert_eq!(told(&all.lived, last).unwrap().len(), 6);
    let mut revisions = all.lived.range(&at(last)).unwrap().items.into_iter().map(|(_, it)| it.mod_revision);
    assert!(revisions.any(|revision| revision == last));
}

/// One that fits is done at once, and one change more is not.
#[test]
fn a_compaction_that_fits_is_whole() {
    for (writes, is_left) in [(limits::CLEAR_MAX, false), (limits::CLEAR_MAX + 1, true)] {
        let mut ledger = Ledger::default();
        all_accepted(&mut ledger, 0, (0..writes).map(|_| put("k", Hang::Free)));
        let mut all = Restarted::new(ledger);
        let revision = all.lived.kv_revision();
        assert_eq!(all.apply(&entry(0, vec![compact(revision)])).unfinished, is_left);
        assert!(!all.apply(&tick(0)).unfinished);
        assert_eq!(all.lived.kv_bytes(), 1 + 5 + limits::KEY_COST_BYTES);
    }
}

/// The changes of one revision are taken out together, however many they are.
#[test]
fn a_revision_is_taken_out_whole() {
    let (mut ledger, keys) = (Ledger::default(), 2 * limits::CLEAR_MAX);
    all_accepted(&mut ledger, 0, (0..keys).map(|n| put(&format!("k/{n:05}"), Hang::Free)));
    let delete = Command::Delete(Delete { keys: all_keys() });
    all_accepted(&mut ledger, 0, [delete, put("k", Hang::Free)]);
    let mut all = Restarted::new(ledger);
    let deleted = all.lived.kv_revision() - 1;
    // First what was put, then in one step that it was deleted.
    assert!(all.apply(&entry(0, vec![compact(deleted)])).unfinished);
    assert_eq!(told(&all.lived, deleted).unwrap().len(), keys + 1);
    assert!(all.apply(&tick(0)).unfinished);
    assert!(!all.apply(&tick(0)).unfinished);
    assert_eq!(told(&all.lived, deleted).unwrap().len(), keys + 1, "that keys were deleted by it is still told");
    assert_eq!(all.lived.range(&at(deleted)).unwrap().count, 0);
    assert!(all.apply(&entry(0, vec![compact(deleted + 1)])).unfinished);
    assert!(!all.apply(&tick(0)).unfinished);
    assert_eq!(told(&all.lived, deleted + 1).unwrap().len(), 1, "the next compaction forgets it");
    assert_eq!(all.lived.kv_bytes(), 1 + 5 + limits::KEY_COST_BYTES);
}

/// Who never compacts does not run out of room: the oldest is forgotten, as much as must be.
#[test]
fn the_past_is_forgotten_by_its_weight() {
    let (mut ledger, value) = (Ledger::default(), Arc::<[u8]>::from(vec![7; 1_000_000]));
    let write = || Command::Put(Put { key: key("k"), value: Some(value.clone()), lease: Hang::Free });
    let one = 1 + value.len() as u64 + limits::KEY_COST_BYTES;
    let most = limits::KEYSPACE_PAST_BYTES_MAX / one;
    // The first writes the key, and each of the others makes one version past.
    all_accepted(&mut ledger, 0, (0..=most).map(|_| write()));
    assert_eq!((ledger.kv_compacted(), ledger.kv_bytes()), (None, (most + 1) * one));
    assert!(ledger.range(&at(2)).is_ok());
    all_accepted(&mut ledger, 0, [write()]);
    assert_eq!((ledger.kv_compacted(), ledger.kv_bytes()), (Some(3), (most + 1) * one));
    assert_eq!(ledger.range(&at(2)), Err(Refusal::Compacted { compacted: 3 }));
    assert_eq!(ledger.range(&at(3)).unwrap().items[0].1.mod_revision, 3);
    all_accepted(&mut ledger, 0, (0..10).map(|_| write()));
    assert_eq!((ledger.kv_compacted(), ledger.kv_bytes()), (Some(13), (most + 1) * one));
    assert_eq!(told(&ledger, 13).unwrap().len() as u64, most + 1);
}

/// On the way to what weighs much it goes through so many changes an entry, and the next tick should follow at once.
#[test]
fn the_past_is_forgotten_in_several_entries() {
    let (mut ledger, value) = (Ledger::default(), Arc::<[u8]>::from(vec![7; 1_400_000]));
    let write = || Command::Put(Put { key: key("k"), value: Some(value.clone()), lease: Hang::Free });
    let small = limits::CLEAR_MAX + 100;
    all_accepted(&mut ledger, 0, (0..small).map(|n| put(&format!("s/{n}"), Hang::Free)));
    let most = limits::KEYSPACE_PAST_BYTES_MAX / (1 + value.len() as u64 + limits::KEY_COST_BYTES);
    let applied = ledger.apply(&entry(0, (0..most + 5).map(|_| write()).collect()));
    assert!(applied.unfinished, "all that was gone through weighs nothing that is past");
    assert!(ledger.kv_compacted().is_some());
    // Each of them is looked at twice: when it becomes the oldest, and when it no longer is.
    let ticks = (1..10).find(|_| !ledger.apply(&tick(0)).unfinished);
    assert_eq!(ticks, Some(2 * small / limits::CLEAR_MAX));
    // Revision 1 has nothing, then come the small ones, and four of the large ones had to go.
    assert_eq!(ledger.kv_compacted(), Some(1 + small as u64 + 5));
    assert_eq!(ledger.key_count(), small + 1, "the keys themselves are not forgotten");
}

/// What slices of a range come to, while `between` is done after each of them.
fn sliced(ledger: &mut Ledger, range: &Range, at: u64, looks: usize, between: impl Fn(&mut Ledger)) -> Ranged {
    let (mut items, mut count, mut from) = (Vec::new(), 0, None);
    loop {
        let most = range.most().saturating_sub(items.len());
        let slice = ledger.range_slice(range, at, from.as_ref(), most, looks).expect("nothing is compacted");
        assert!(slice.count as usize <= looks);
        items.extend(slice.items);
        count += slice.count;
        between(ledger);
        match slice.next {
            Some(next) => from = Some(next),
            None => return range.finish(&items, count),
        }
    }
}

/// A range that is looked at slice by slice finds what one look finds, whatever is written meanwhile.
#[test]
fn slices_find_what_one_look_finds() {
    let mut ledger = Ledger::default();
    all_accepted(&mut ledger, 0, (0..40).map(|n| put(&format!("k/{:02}", n * 7 % 23), Hang::Free)));
    let delete = |text: &str| Command::Delete(Delete { keys: Keys::One(key(text)) });
    all_accepted(&mut ledger, 0, ["k/03", "k/04", "k/11"].map(delete));
    all_accepted(&mut ledger, 0, (0..9).map(|n| put(&format!("k/{:02}", n * 2), Hang::Free)));
    let keys = Keys::From { first: b"k/02"[..].into(), end: Some(b"k/20"[..].into()) };
    let down = Sort { by: SortBy::Modified, way: Some(Way::Down) };
    let ranges = [Part::Whole, Part::KeysOnly, Part::CountOnly].into_iter().flat_map(|part| {
        let all = Range { part, ..Range::of(keys.clone()) };
        [
            all.clone(),
            Range { limit: Some(3), ..all.clone() },
            Range { limit: Some(3), sort: Some(down), ..all.clone() },
            Range { modified: Within { min: 20, max: 45 }, ..all },
        ]
    });
    for (range, looks) in ranges.flat_map(|range| [1, 2, 7, 100].map(|looks| (range.clone(), looks))) {
        for at in [1, 15, 40, 43, ledger.kv_revision()] {
            let whole = ledger.range(&Range { revision: i64::try_from(at).ok(), ..range.clone() }).unwrap();
            let write = |ledger: &mut Ledger| {
                all_accepted(ledger, 0, [put("k/05", Hang::Free), put("k/04", Hang::Free), delete("k/06")]);
            };
            let mut other = ledger.clone();
            assert_eq!(sliced(&mut other, &range, at, looks, write), whole, "{range:?} at {at} by {looks}");
        }
    }
    let range = Range::of(keys);
    order(&mut ledger, 0, compact(30)).unwrap();
    assert_eq!(ledger.range_slice(&range, 29, None, 1, 1), Err(Refusal::Compacted { compacted: 30 }));
    assert!(ledger.range_slice(&range, 30, None, 1, 1).is_ok());
}
