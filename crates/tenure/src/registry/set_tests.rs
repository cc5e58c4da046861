//! What a server may say, and what a watcher knows then.

use super::*;
use crate::v1::{Fresh, FreshInstance, RemovedInstance, WatchInstancesReply};

const TTL_MS: u64 = 10_000;

fn at(ms: u64) -> BootTime {
    BootTime::from_start(Duration::from_millis(ms))
}

fn instance(id: &str) -> v1::Instance {
    v1::Instance { service: "s".into(), id: id.into(), valid_for_ms: TTL_MS, routed: true, ..v1::Instance::default() }
}

fn snapshot(ids: &[&str], last: bool) -> WatchInstancesReply {
    let put = ids.iter().map(|id| instance(id)).collect();
    WatchInstancesReply { snapshot: true, last, put, revision: if last { 7 } else { 0 }, ..Default::default() }
}

fn delta(put: &[&str], removed: &[&str], revision: u64) -> WatchInstancesReply {
    let put = put.iter().map(|id| instance(id)).collect();
    let gone = |id: &&str| RemovedInstance { service: "s".into(), id: (*id).into(), end: None };
    WatchInstancesReply { put, removed: removed.iter().map(gone).collect(), last: true, revision, ..Default::default() }
}

fn fresh(valid_for_ms: u64, items: &[(&str, u64)]) -> WatchInstancesReply {
    let item = |(id, valid_for_ms): &(&str, u64)| FreshInstance { id: (*id).into(), valid_for_ms: *valid_for_ms };
    let fresh = Fresh { service: "s".into(), valid_for_ms, items: items.iter().map(item).collect() };
    WatchInstancesReply { fresh: vec![fresh], last: true, revision: 9, ..Default::default() }
}

/// Service time and this machine's time begin together here, and the service time is asked for before each message.
fn told(messages: Vec<(u64, WatchInstancesReply)>) -> Set {
    let mut set = Set::default();
    messages.into_iter().for_each(|(ms, reply)| tell(&mut set, reply, ms));
    set
}

fn tell(set: &mut Set, reply: WatchInstancesReply, ms: u64) {
    set.answered(Anchor { asked: at(ms), service_ms: ms });
    set.apply(WatchInstancesReply { now_ms: ms, ..reply });
}

fn ids(set: &Set, ms: u64) -> Vec<String> {
    set.living(at(ms), false).found.iter().map(|found| found.instance.id.clone()).collect()
}

#[test]
fn a_snapshot_counts_when_its_last_part_has_come() {
    let mut set = told(vec![(0, snapshot(&["old"], true))]);
    set.begin_anew();
    tell(&mut set, snapshot(&["a"], false), 10);
    assert_eq!((ids(&set, 10), set.revision()), (vec!["old".to_owned()], 0), "half of one replaces nothing");
    tell(&mut set, snapshot(&["b"], true), 20);
    assert_eq!((ids(&set, 20), set.revision()), (vec!["a".to_owned(), "b".to_owned()], 7));
    let mut broken = told(vec![(0, snapshot(&["gone"], false))]);
    broken.begin_anew();
    tell(&mut broken, snapshot(&["a"], true), 10);
    assert_eq!(ids(&broken, 10), ["a"], "a snapshot that broke off leaves nothing behind");
}

#[test]
fn changes_put_and_remove() {
    let set = told(vec![(0, snapshot(&["a", "b"], true)), (100, delta(&["c"], &["a"], 8))]);
    assert_eq!((ids(&set, 100), set.revision()), (vec!["b".to_owned(), "c".to_owned()], 8));
    let bookmark = WatchInstancesReply { last: true, revision: 12, ..Default::default() };
    let set = told(vec![(0, snapshot(&["a"], true)), (100, bookmark)]);
    assert_eq!((ids(&set, 100), set.revision()), (vec!["a".to_owned()], 12), "an idle watcher moves on");
}

#[test]
fn each_is_dropped_when_its_time_is_over_and_a_little_sooner_than_it_was_told() {
    let mut set = told(vec![(0, snapshot(&["a"], true))]);
    set.apply(WatchInstancesReply { now_ms: 5_000, ..delta(&["b"], &[], 8) });
    let safe_ms = u64::try_from(safe_for(Duration::from_millis(TTL_MS)).as_millis()).unwrap();
    assert!(safe_ms < TTL_MS);
    assert_eq!(ids(&set, safe_ms), ["a", "b"]);
    assert_eq!(ids(&set, safe_ms + 1), ["b"]);
    assert_eq!(set.next_end(at(safe_ms + 1)), Some(at(0) + safe_for(Duration::from_millis(5_000 + TTL_MS))));
    assert!(ids(&set, 5_000 + TTL_MS).is_empty());
    assert_eq!(set.next_end(at(20_000)), None);
}

#[test]
fn what_is_fresh_lasts_longer_and_what_ran_out_comes_back() {
    let set = told(vec![(0, snapshot(&["a", "b"], true)), (5_000, fresh(TTL_MS, &[("b", 1_000)]))]);
    assert_eq!(ids(&set, 9_950), ["a"], "one that is late is told apart, and what was told before is not taken away");
    assert_eq!(ids(&set, 9_000), ["a", "b"]);
    assert_eq!(ids(&set, 14_000), ["a"]);
    let set = told(vec![(0, snapshot(&["a", "b"], true)), (5_000, fresh(0, &[("b", TTL_MS)]))]);
    assert_eq!(ids(&set, 12_000), ["b"], "only those named are meant");
    // Renewals are no changes: after an outage nobody is put again who lived through it.
    let mut set = told(vec![(0, snapshot(&["a"], true))]);
    assert!(ids(&set, 60_000).is_empty());
    tell(&mut set, fresh(TTL_MS, &[]), 60_000);
    assert_eq!(ids(&set, 60_000), ["a"]);
}

#[test]
fn the_last_good_ones_are_kept_only_if_asked_for_and_only_while_they_are_valid() {
    let mut set = told(vec![(0, snapshot(&["a", "b"], true)), (1_000, delta(&[], &["a"], 8))]);
    tell(&mut set, delta(&[], &["b"], 9), 2_000);
    assert!(set.living(at(2_000), false).found.is_empty());
    let kept = set.living(at(2_000), true);
    assert_eq!((kept.found.len(), kept.is_last_good), (1, true));
    assert_eq!(kept.found[0].instance.id, "b");
    assert!(set.living(at(9_900), true).found.is_empty(), "nobody is kept beyond its time");
    tell(&mut set, delta(&["c"], &[], 10), 3_000);
    let living = set.living(at(3_000), true);
    assert_eq!((living.found[0].instance.id.as_str(), living.found.len(), living.is_last_good), ("c", 1, false));
    // The same if it was away when the last one went.
    let mut set = told(vec![(0, snapshot(&["a"], true))]);
    set.begin_anew();
    tell(&mut set, snapshot(&[], true), 1_000);
    assert!(set.living(at(1_000), true).is_last_good && set.living(at(1_000), false).found.is_empty());
}

#[test]
fn only_what_can_be_seen_is_a_change() {
    let mut set = told(vec![(0, snapshot(&["a"], true))]);
    let before = set.living(at(0), false);
    tell(&mut set, fresh(TTL_MS, &[]), 5_000);
    assert!(set.living(at(5_000), false).is_like(&before));
    set.begin_anew();
    tell(
        &mut set,
        WatchInstancesReply { put: vec![v1::Instance { valid_for_ms: 1, ..instance("a") }], ..snapshot(&[], true) },
        0,
    );
    assert!(set.living(at(0), false).is_like(&before), "a snapshot of the same is the same");
    let ill = v1::Instance { health: v1::Health::Degraded.into(), ..instance("a") };
    tell(&mut set, WatchInstancesReply { put: vec![ill], ..delta(&[], &[], 8) }, 0);
    assert!(!set.living(at(0), false).is_like(&before));
}

#[test]
fn whose_time_is_over_was_told_until_a_server_takes_it_back() {
    let mut set = told(vec![(0, snapshot(&["a", "b"], true)), (0, fresh(0, &[("b", 10 * TTL_MS)]))]);
    let names = |found: &[Found]| found.iter().map(|found| found.instance.id.clone()).collect::<Vec<_>>();
    let living = set.living(at(2 * TTL_MS), false);
    assert_eq!((names(&living.found), names(living.told())), (vec!["b".into()], vec!["a".into(), "b".into()]));
    tell(&mut set, delta(&[], &["a"], 8), 2 * TTL_MS);
    let after = set.living(at(2 * TTL_MS), false);
    assert_eq!(names(after.told()), ["b"]);
    assert!(!after.is_like(&living), "that is news for whoever keeps them");
}

#[test]
fn silence_for_three_quarters_of_the_longest_validity_is_doubted() {
    let set = told(vec![(0, snapshot(&["a"], true)), (0, fresh(0, &[("a", 20_000)]))]);
    let until = at(0) + safe_for(Duration::from_millis(20_000));
    assert_eq!(set.doubt_at(at(0)), Some(at(0) + until.since(at(0)) * 3 / 4));
    assert_eq!(set.doubt_at(at(30_000)), None, "there is nothing left to lose");
    assert_eq!(Set::default().doubt_at(at(0)), None);
}

/// S21: what was on its way for long counts from when the service time was asked for, not from when it came.
#[test]
fn late_message_is_valid_for_no_longer() {
    let mut set = told(vec![(0, snapshot(&["a"], true))]);
    let before = set.next_end(at(1)).unwrap();
    // Sent at 1 s of service time, it comes 8 s later.
    set.apply(WatchInstancesReply { now_ms: 1_000, ..fresh(TTL_MS, &[]) });
    let after = set.next_end(at(9_000)).unwrap();
    assert!(before < after && after <= at(1_000 + TTL_MS), "{after:?}");
    // Asked again, what is left of it is counted by a newer answer, which is nearer to its end and not beyond.
    set.answered(Anchor { asked: at(10_000), service_ms: 10_000 });
    let asked = set.next_end(at(10_001)).unwrap();
    assert!(after < asked && asked <= at(1_000 + TTL_MS), "{asked:?}");
    // An answer that was itself on its way for long promises less, and takes nothing back.
    set.answered(Anchor { asked: at(10_000), service_ms: 10_900 });
    assert_eq!(set.next_end(at(10_001)), Some(asked));
}

#[test]
fn service_time_is_asked_for_in_a_third_of_the_shortest_validity() {
    let set = told(vec![(0, snapshot(&["a"], true)), (0, fresh(0, &[("a", 3_000)]))]);
    let due = set.ask_at(at(1)).unwrap();
    assert!(at(3_000) < due && due < at(3_400), "{due:?}: a third of ten seconds, since the longer one counts");
    assert_eq!(told(vec![(0, snapshot(&[], true))]).ask_at(at(1)), Some(at(60_000)));
    assert_eq!(Set::default().ask_at(at(1)), None);
}
