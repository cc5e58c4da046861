//! What is over is remembered up to a limit, oldest forgotten first, and a snapshot remembers the same.

use crate::support::{
    a_grant, acquire, acquire_on, entry, grant, holder, id, name, order, release, renew, restored, revoke, tick,
};
use tenure_core::{
    Acquire, Command, Delete, End, Epoch, Grant, Hang, Key, Keys, Ledger, On, Put, Refusal, Reply, RequestNumber,
    Revision, Wait, limits,
};

fn apply_all(ledger: &mut Ledger, at_ms: u64, commands: impl Iterator<Item = Command>) {
    let commands: Vec<_> = commands.collect();
    for batch in commands.chunks(limits::COMMANDS_MAX) {
        let applied = ledger.apply(&entry(at_ms, batch.to_vec()));
        assert!(applied.outcomes.iter().all(Result::is_ok), "within the limits everything is accepted");
    }
}

fn renewal_of(ledger: &mut Ledger, lease: u64) -> Refusal {
    let now_ms = ledger.now().millis();
    match order(ledger, now_ms, renew([lease])) {
        Ok(Reply::Renewed(answers)) => answers[0].clone().expect_err("this lease ended"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ended_leases() {
    let (mut ledger, max) = (Ledger::default(), limits::ENDED_LEASES_MAX as u64);
    let lives = |lease: u64| [grant(lease, 60_000), revoke(lease)];
    apply_all(&mut ledger, 5, (1..=max).flat_map(lives));
    assert_eq!(ledger.ended_lease(id(1)).unwrap().when.millis(), 5);
    // Another life of the oldest makes it the youngest, and forgets nobody.
    let again = Command::Grant(Grant { request: 2, ..a_grant(1, 60_000) });
    apply_all(&mut ledger, 6, [again, revoke(1)].into_iter());
    assert!(ledger.ended_lease(id(2)).is_some());
    apply_all(&mut ledger, 7, lives(max + 1).into_iter());
    for mut ledger in [restored(&ledger), ledger] {
        assert!(ledger.ended_lease(id(2)).is_none() && ledger.ended_lease(id(3)).is_some());
        assert_eq!(ledger.ended_lease(id(1)).unwrap().when.millis(), 6);
        assert_eq!(renewal_of(&mut ledger, 2), Refusal::NoLease { lease: id(2) });
        assert!(matches!(renewal_of(&mut ledger, 3), Refusal::Lapsed { how: End::Revoked { .. }, .. }));
        apply_all(&mut ledger, 8, lives(max + 2).into_iter());
        assert!(ledger.ended_lease(id(3)).is_none() && ledger.ended_lease(id(4)).is_some());
        assert!(ledger.ended_lease(id(1)).is_some() && ledger.ended_lease(id(max + 2)).is_some());
    }
}

#[test]
fn ended_claims_of_one_resource() {
    let (mut ledger, max) = (Ledger::default(), limits::ENDED_CLAIMS_PER_RESOURCE_MAX as u64);
    let lives = |n: u64| [acquire(n, "db", 60_000), release(&format!("db@{n}"))];
    let fences = |ledger: &Ledger| ledger.ended_claims(&name("db")).map(|it| it.fence.number()).collect::<Vec<_>>();
    apply_all(&mut ledger, 0, (1..=max).flat_map(lives));
    assert_eq!(fences(&ledger), (1..=max).collect::<Vec<_>>(), "oldest first");
    assert_eq!(order(&mut ledger, 0, release("db@1")), Ok(Reply::Released { free_in_ms: 0 }), "a retry is recognized");
    apply_all(&mut ledger, 0, lives(max + 1).into_iter());
    for mut ledger in [restored(&ledger), ledger] {
        assert_eq!(fences(&ledger), (2..=max + 1).collect::<Vec<_>>());
        let stale = order(&mut ledger, 0, release("db@1")).expect_err("it is forgotten");
        assert!(matches!(stale, Refusal::Stale { current: None, ended: None, .. }), "{stale:?}");
        assert_eq!(order(&mut ledger, 0, release("db@2")), Ok(Reply::Released { free_in_ms: 0 }));
        apply_all(&mut ledger, 0, lives(max + 2).into_iter());
        assert_eq!(fences(&ledger), (3..=max + 2).collect::<Vec<_>>());
    }
}

#[test]
fn ended_claims_of_all_resources() {
    let (mut ledger, max) = (Ledger::default(), limits::ENDED_CLAIMS_MAX as u64);
    let resource = |n: u64| format!("r/{}", n / 2);
    let lives = |n: u64| [acquire(n, &resource(n), 60_000), release(&format!("{}@{n}", resource(n)))];
    let count = |ledger: &Ledger, n: u64| ledger.ended_claims(&name(&resource(n))).count();
    apply_all(&mut ledger, 0, (1..=max).flat_map(lives));
    assert_eq!([1, 2, 4].map(|n| count(&ledger, n)), [1, 2, 2]);
    // The oldest goes first, and a resource of which nothing is remembered is forgotten whole.
    apply_all(&mut ledger, 0, lives(max + 1).into_iter());
    assert_eq!([1, 2, 4].map(|n| count(&ledger, n)), [0, 2, 2]);
    for mut ledger in [restored(&ledger), ledger] {
        apply_all(&mut ledger, 0, lives(max + 2).into_iter());
        assert_eq!([1, 2, 4].map(|n| count(&ledger, n)), [0, 1, 2]);
        apply_all(&mut ledger, 0, lives(max + 3).into_iter());
        assert_eq!([1, 2, 4].map(|n| count(&ledger, n)), [0, 0, 2]);
    }
}

/// S12: one client that begins and ends leases without a pause does not make the ledger forget the ends of others.
#[test]
fn a_busy_holder_forgets_its_own_ends_only() {
    let (mut ledger, max) = (Ledger::default(), limits::ENDED_LEASES_MAX as u64);
    let by = |lease: u64, who: &str| {
        let grant = Grant { holder: holder(who), ..a_grant(lease, 60_000) };
        [Command::Acquire(Acquire::exclusive(On::New(grant), name(&format!("r/{lease}")), Wait::Never)), revoke(lease)]
    };
    apply_all(&mut ledger, 0, (1..=3).flat_map(|lease| by(lease, "calm")));
    apply_all(&mut ledger, 1, (4..max + 1000).flat_map(|lease| by(lease, "busy")));
    for mut ledger in [restored(&ledger), ledger] {
        assert!((1..=3).all(|lease| ledger.ended_lease(id(lease)).is_some()), "the ends of the calm holder are there");
        assert!((1..=3).all(|n| ledger.ended_claims(&name(&format!("r/{n}"))).count() == 1), "and of its claims");
        assert!(ledger.ended_lease(id(4)).is_none() && ledger.ended_lease(id(max + 999)).is_some());
        apply_all(&mut ledger, 2, (max + 1000..max + 1010).flat_map(|lease| by(lease, "busy")));
        assert!((1..=3).all(|lease| ledger.ended_lease(id(lease)).is_some()));
    }
}

/// S12: an epoch is remembered for its holder, however many others have had the resource since.
#[test]
fn an_epoch_outlives_the_claims_of_others() {
    let (mut ledger, others) = (Ledger::default(), limits::ENDED_CLAIMS_MAX as u64 + 100);
    let in_epoch = |lease: u64, who: &str, epoch: u64| {
        let grant = Grant { holder: holder(who), ..a_grant(lease, 60_000) };
        let acquire = Acquire::exclusive(On::New(grant), name("db"), Wait::Never);
        Command::Acquire(Acquire { epoch: Epoch::from_number(epoch), ..acquire })
    };
    apply_all(&mut ledger, 0, [in_epoch(1, "ann", 5), release("db@1")].into_iter());
    let lives = |n: u64| [in_epoch(n, "bob", n), release(&format!("db@{n}"))];
    apply_all(&mut ledger, 0, (2..others).flat_map(lives));
    for mut ledger in [restored(&ledger), ledger] {
        let late = order(&mut ledger, 0, in_epoch(others, "ann", 4)).expect_err("epoch 5 was there");
        assert!(matches!(late, Refusal::OlderEpoch { asked: 4, current: 5, .. }), "{late:?}");
        order(&mut ledger, 0, in_epoch(others, "ann", 5)).expect("the same epoch may come back");
    }
}

/// The same, when the claim in that epoch is forgotten because its holder has ended too many others.
#[test]
fn an_epoch_outlives_claims_of_its_holder() {
    let (mut ledger, max) = (Ledger::default(), limits::ENDED_CLAIMS_MAX as u64);
    let by = |lease: u64, resource: &str, epoch: u64| {
        let grant = Grant { holder: holder("ann"), ..a_grant(lease, 60_000) };
        let acquire = Acquire::exclusive(On::New(grant), name(resource), Wait::Never);
        Command::Acquire(Acquire { epoch: Epoch::from_number(epoch), ..acquire })
    };
    apply_all(&mut ledger, 0, [by(1, "db", 5), release("db@1")].into_iter());
    let lives = |n: u64| [by(n, &format!("r/{n}"), 0), release(&format!("r/{n}@{n}"))];
    apply_all(&mut ledger, 0, (2..max + 2).flat_map(lives));
    for mut ledger in [restored(&ledger), ledger] {
        assert_eq!(ledger.ended_claims(&name("db")).count(), 0, "the claim itself is forgotten");
        let late = order(&mut ledger, 0, by(max + 2, "db", 4)).expect_err("epoch 5 was there");
        assert!(matches!(late, Refusal::OlderEpoch { asked: 4, current: 5, .. }), "{late:?}");
    }
}

/// A lease remembers so many numbers. What is further behind is refused, and never taken for new.
#[test]
fn answered_requests_of_a_lease() {
    let (mut ledger, max) = (Ledger::default(), limits::ANSWERED_MAX as u64);
    let numbered = |number: u64| {
        let acquire = Acquire::exclusive(On::Given(id(1)), name(&format!("r/{number}")), Wait::Never);
        Command::Acquire(Acquire { request: RequestNumber::new(number, 0), ..acquire })
    };
    apply_all(&mut ledger, 0, [grant(1, 60_000)].into_iter());
    // Each second number is open: it may still come.
    apply_all(&mut ledger, 0, (1..=max).map(|n| numbered(2 * n)));
    apply_all(&mut ledger, 0, [numbered(1), numbered(5)].into_iter());
    // 3 is the lowest that is open. The next two answers leave no room for it.
    apply_all(&mut ledger, 0, (1..=4).map(|n| numbered(2 * max + 2 * n)));
    for mut ledger in [restored(&ledger), ledger] {
        let (late, number) = (order(&mut ledger, 0, numbered(3)), 3);
        assert_eq!(late, Err(Refusal::Answered { lease: id(1), number }));
        assert!(ledger.resource(&name("r/3")).is_none(), "it took nothing");
        assert!(order(&mut ledger, 0, numbered(2 * max + 7)).is_ok(), "what is not far behind is new");
    }
}

#[test]
fn events() {
    let (mut ledger, max) = (Ledger::default(), limits::EVENTS_MAX as u64);
    let first_after = |ledger: &Ledger, revision: u64, n: u32| {
        let mut events = ledger.events_after((Revision(revision), n))?;
        Ok::<_, Revision>(events.next().map(|event| (event.revision.0, event.n)))
    };
    assert_eq!(first_after(&ledger, 0, 0), Ok(None));
    // Each grant is one event at a revision of its own.
    apply_all(&mut ledger, 0, (1..=max).map(|lease| grant(lease, 1_000_000)));
    assert_eq!(ledger.events_after((Revision(0), 0)).unwrap().count() as u64, max);
    assert_eq!(first_after(&ledger, 0, 0), Ok(Some((1, 0))));
    assert_eq!(first_after(&ledger, max - 1, 0), Ok(Some((max, 0))));
    assert_eq!(first_after(&ledger, max, 0), Ok(None));
    // One more, and the first is forgotten: a watch that saw it may go on, one that did not is told where it could.
    apply_all(&mut ledger, 0, [grant(max + 1, 1_000_000)].into_iter());
    for mut ledger in [restored(&ledger), ledger] {
        assert_eq!(first_after(&ledger, 0, 0), Err(Revision(1)));
        assert_eq!(first_after(&ledger, 1, 0), Ok(Some((2, 0))));
        apply_all(&mut ledger, 0, (1..=2).map(|more| acquire(max + 1 + more, "db", 1_000_000)));
        assert_eq!(first_after(&ledger, 4, 0), Err(Revision(5)));
        assert_eq!(first_after(&ledger, 5, 0), Ok(Some((6, 0))));
        // A watch resumes also in the middle of a revision.
        assert_eq!(first_after(&ledger, max + 2, 0), Ok(Some((max + 2, 1))));
        assert_eq!(first_after(&ledger, max + 2, 1), Ok(Some((max + 3, 0))));
        assert_eq!(ledger.events_after((Revision(5), 0)).unwrap().count() as u64, max);
    }
}

#[test]
fn a_restart_between_two_ticks_is_not_seen() {
    let mut ledger = Ledger::default();
    apply_all(&mut ledger, 0, (1..=9).map(|lease| acquire(lease, "db", 1000 * lease)));
    apply_all(&mut ledger, 500, [renew([1, 3, 5])].into_iter());
    let mut other = restored(&ledger);
    for at_ms in [999, 1000, 1500, 2000, 3600, 10_000] {
        let (one, two) = (ledger.apply(&tick(at_ms)), other.apply(&tick(at_ms)));
        assert_eq!((one.events, one.unfinished), (two.events, two.unfinished), "at {at_ms} ms");
        assert_eq!(ledger.state_hash(), other.state_hash());
    }
}

#[test]
fn events_by_their_weight() {
    let (mut ledger, each) = (Ledger::default(), 1_000_000);
    let put = |n: u8| {
        let key = Key::parse(&vec![n; each]).expect("any bytes are a key");
        Command::Put(Put { key, value: Some([0][..].into()), lease: Hang::Free })
    };
    let most = u8::try_from(limits::EVENTS_BYTES_MAX / each).expect("few of them are heavy enough");
    apply_all(&mut ledger, 0, (1..most).map(put));
    assert_eq!(ledger.events_after((Revision(0), 0)).unwrap().count(), usize::from(most) - 1);
    apply_all(&mut ledger, 0, (most..most + 3).map(put));
    for ledger in [restored(&ledger), ledger] {
        let oldest = ledger.events_after((Revision(0), 0)).map(Iterator::count).expect_err("the first are forgotten");
        let kept = ledger.events_after((oldest, u32::MAX)).unwrap().count();
        assert!((usize::from(most) - 1..=usize::from(most)).contains(&kept), "{kept} of {most} are kept");
        assert_eq!(ledger.key_count(), usize::from(most) + 2, "the keys themselves are not forgotten");
    }
}

/// Events of one revision are forgotten together, so that a watch resumes after any revision that is remembered.
#[test]
fn a_revision_is_forgotten_whole() {
    let (mut ledger, max) = (Ledger::default(), limits::EVENTS_MAX as u64);
    let things = 100;
    apply_all(&mut ledger, 0, [grant(1, 1_000_000)].into_iter());
    apply_all(&mut ledger, 0, (0..things).map(|n| acquire_on(1, &format!("r/{n}"), Wait::Never)));
    apply_all(&mut ledger, 0, [revoke(1)].into_iter());
    let end = ledger.revision();
    // So many more that all before the end of the lease are forgotten, and one event of that end would have to be.
    apply_all(&mut ledger, 0, (0..max - things).map(|n| grant(10 + n, 1_000_000)));
    assert_eq!(ledger.events_after((Revision(end.0 - 1), u32::MAX)).map(Iterator::count), Err(end));
    assert_eq!(ledger.events_after((end, u32::MAX)).map(Iterator::count), Ok(usize::try_from(max - things).unwrap()));
    assert_eq!(restored(&ledger).state_hash(), ledger.state_hash());
}

/// A delete of many keys is one revision. Who is up to date can go on after it, and it pushes no event of a lease out.
#[test]
fn a_delete_of_many_keys_pushes_out_no_other_event() {
    let (mut ledger, keys) = (Ledger::default(), limits::DELETED_MAX);
    let put = |n: usize| {
        let key = Key::parse(format!("k/{n:06}").as_bytes()).expect("it is a key");
        Command::Put(Put { key, value: Some([][..].into()), lease: Hang::Free })
    };
    apply_all(&mut ledger, 0, (1..=10).map(|lease| grant(lease, 1_000_000)));
    apply_all(&mut ledger, 0, (0..keys).map(put));
    apply_all(&mut ledger, 0, [grant(11, 1_000_000)].into_iter());
    let before = (ledger.revision(), u32::MAX);
    let delete = Command::Delete(Delete { keys: Keys::Prefix(b"k/"[..].into()) });
    apply_all(&mut ledger, 0, [delete].into_iter());
    apply_all(&mut ledger, 0, [grant(12, 1_000_000)].into_iter());
    for mut ledger in [restored(&ledger), ledger] {
        let places: Vec<_> = ledger.events_after(before).unwrap().map(|event| (event.revision, event.n)).collect();
        assert_eq!(places.len(), keys + 1, "who is up to date misses nothing");
        assert!(places.is_sorted_by(|a, b| a < b), "in order");
        let back: Vec<_> = ledger.events_back().take(keys + 1).map(|event| (event.revision, event.n)).collect();
        assert!(back.iter().rev().eq(&places), "the same backwards");
        let beside = |ledger: &Ledger| ledger.events_beside_keys_after((Revision(0), 0)).map(Iterator::count);
        assert_eq!(beside(&ledger), Ok(12), "all events of leases are there");
        assert!(ledger.events_after((Revision(10), 0)).is_err(), "the puts are forgotten, and that is said");
        // One more change of a key, and the delete is forgotten whole.
        apply_all(&mut ledger, 0, [put(1)].into_iter());
        let deleted = Revision(before.0.0 + 1);
        assert_eq!(ledger.events_after(before).map(Iterator::count), Err(deleted));
        assert_eq!(ledger.events_after((deleted, u32::MAX)).map(Iterator::count), Ok(2));
        assert_eq!(beside(&ledger), Ok(12));
        assert_eq!(restored(&ledger).state_hash(), ledger.state_hash());
    }
}
