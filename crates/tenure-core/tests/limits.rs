//! Every limit of `limits.rs` that a test can reach: one below is accepted, one above is refused and changes nothing.
//! Not reached: `LEASES_MAX` (memory), `RENEWALS_MAX` and `COMMANDS_MAX` (kept at the door, not by the ledger).

mod support;

use support::witness::Witness;
use support::{
    acquire, acquire_on, cancel, entry, grant, handle, id, name, order, release, renew, restored, revoke, tick,
};
use tenure_core::{
    BadHandle, BadText, BadTtl, Command, Fence, Handle, Happening, Holder, LeaseId, Ledger, Name, Note, Outcome,
    Refusal, Reply, Ttl, Wait, limits,
};

/// The refusal of a command that must change nothing.
fn refusal(ledger: &mut Ledger, command: Command) -> Refusal {
    let (now_ms, before) = (ledger.now().millis(), ledger.state_hash());
    let refusal = order(ledger, now_ms, command).expect_err("this command goes over a limit");
    assert_eq!(before, ledger.state_hash(), "a refusal changes nothing: {refusal:?}");
    refusal
}

/// Applies commands at one moment, many an entry, and expects a yes to each.
fn all_accepted(ledger: &mut Ledger, at_ms: u64, commands: impl IntoIterator<Item = Command>) {
    let commands: Vec<_> = commands.into_iter().collect();
    for batch in commands.chunks(limits::COMMANDS_MAX) {
        let applied = ledger.apply(&entry(at_ms, batch.to_vec()));
        let refused = applied.outcomes.iter().find(|outcome| outcome.is_err());
        assert_eq!(refused, None, "within the limits everything is accepted");
    }
}

fn ended_count(events: &[tenure_core::Event]) -> usize {
    events.iter().filter(|event| matches!(event.what, Happening::Ended { .. })).count()
}

fn seated_count(events: &[tenure_core::Event]) -> usize {
    events.iter().filter(|event| matches!(event.what, Happening::Seated { .. })).count()
}

#[test]
fn names() {
    let max = limits::NAME_BYTES_MAX;
    let of_bytes = |bytes: usize| "n".repeat(bytes);
    assert_eq!(Name::parse(&of_bytes(max)).unwrap().as_str(), of_bytes(max));
    assert_eq!(Name::parse(&of_bytes(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    // Bytes are counted, not characters.
    assert!(Name::parse(&"é".repeat(max / 2)).is_ok());
    assert_eq!(Name::parse(&"é".repeat(max / 2 + 1)), Err(BadText::TooLong { bytes: max + 2, max }));
    assert_eq!(Name::parse(""), Err(BadText::Empty));
    assert_eq!(Name::parse("a/b\n"), Err(BadText::Control { at: 3 }));
    assert_eq!(Name::parse("é\u{85}"), Err(BadText::Control { at: 2 }), "also beyond ASCII");
    assert_eq!(Name::parse("a\u{7f}"), Err(BadText::Control { at: 1 }));
    assert_eq!(Name::parse("\0"), Err(BadText::Control { at: 0 }));
    assert_eq!(Name::parse("/a"), Err(BadText::EmptyPart { at: 0 }));
    assert_eq!(Name::parse("a/"), Err(BadText::EmptyPart { at: 2 }));
    assert_eq!(Name::parse("ab//c"), Err(BadText::EmptyPart { at: 3 }));
    assert_eq!(Name::parse("/"), Err(BadText::EmptyPart { at: 0 }));
    for good in ["a", "a/b/c", "jobs/nightly@eu", "with space", "日本/語"] {
        assert_eq!(Name::parse(good).unwrap().to_string(), good);
    }
}

#[test]
fn holders_and_notes() {
    let max = limits::HOLDER_BYTES_MAX;
    assert!(Holder::parse(&"h".repeat(max)).is_ok());
    assert_eq!(Holder::parse(&"h".repeat(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Holder::parse(""), Err(BadText::Empty));
    assert_eq!(Holder::parse("a\tb"), Err(BadText::Control { at: 1 }));
    assert_eq!(Holder::parse("/ann@host:7/").unwrap().as_str(), "/ann@host:7/", "a holder is no path");

    let max = limits::NOTE_BYTES_MAX;
    assert!(Note::parse(&"n".repeat(max)).is_ok());
    assert_eq!(Note::parse(&"n".repeat(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Note::parse("").unwrap().as_str(), "", "a note may be empty");
    assert_eq!(Note::parse("one\ntwo"), Err(BadText::Control { at: 3 }));
}

#[test]
fn ttls_and_lease_ids() {
    for ms in [limits::TTL_MS_MIN, limits::TTL_MS_MAX] {
        assert_eq!(Ttl::from_millis(ms).unwrap().millis(), ms);
    }
    for ms in [0, limits::TTL_MS_MIN - 1, limits::TTL_MS_MAX + 1, u64::MAX] {
        assert_eq!(Ttl::from_millis(ms), Err(BadTtl { ms }));
    }
    let said = BadTtl { ms: 99 }.to_string();
    assert!(said.contains("100 ms") && said.contains("9000000000000 ms"), "the refusal names the range: {said}");

    let max = (1 << 63) - 1;
    assert_eq!([1, max].map(|n| LeaseId::from_number(n).unwrap().number()), [1, max]);
    assert_eq!([0, max + 1, u64::MAX].map(LeaseId::from_number), [None; 3]);
}

#[test]
fn handles() {
    let max = limits::FENCE_MAX;
    assert_eq!(max, 9_007_199_254_740_991, "a JSON number holds every fence");
    for good in ["jobs/nightly@7", "a@b@7", "@@1", "a@9007199254740991"] {
        assert_eq!(Handle::parse(good).unwrap().to_string(), good);
    }
    let split = handle("jobs@eu@7");
    assert_eq!((split.resource.as_str(), split.fence.number()), ("jobs@eu", 7), "split at the last @");
    for junk in ["a@", "a@0", "a@9007199254740992", "a@18446744073709551616", "a@-1", "a@+1", "a@1 ", "a@x", "a@１"] {
        assert_eq!(Handle::parse(junk), Err(BadHandle::Fence), "{junk}");
    }
    assert_eq!(Handle::parse("jobs/nightly"), Err(BadHandle::NoFence));
    assert_eq!(Handle::parse(""), Err(BadHandle::NoFence));
    assert_eq!(Handle::parse("@7"), Err(BadHandle::Name(BadText::Empty)));
    assert_eq!(Handle::parse("a//b@7"), Err(BadHandle::Name(BadText::EmptyPart { at: 2 })));
    let long = "n".repeat(limits::NAME_BYTES_MAX + 1) + "@7";
    assert!(matches!(Handle::parse(&long), Err(BadHandle::Name(BadText::TooLong { .. }))));
    assert_eq!([0, max + 1].map(Fence::from_number), [None; 2]);
    assert_eq!(Fence::from_number(max).unwrap().number(), max);
}

#[test]
fn the_longest_line() {
    let (mut ledger, max) = (Ledger::default(), limits::WAITERS_MAX as u64);
    all_accepted(&mut ledger, 0, (0..max).map(|lease| acquire(lease + 1, "db", 60_000)));
    all_accepted(&mut ledger, 0, [grant(max + 2, 60_000)]);
    let place = |outcome: Outcome| match outcome {
        Ok(Reply::Waiting { place, .. }) => place,
        other => panic!("{other:?}"),
    };
    let far = limits::PLACE_MAX as u64;
    assert_eq!(place(order(&mut ledger, 0, acquire(max + 1, "db", 60_000))), far);
    assert_eq!(ledger.resource(&name("db")).unwrap().waiting(), max, "everybody is counted, far places are not told");
    assert_eq!(place(order(&mut ledger, 0, acquire(far, "db", 60_000))), far - 1, "near ones are told exactly");
    let full = Refusal::Full { what: "waiters in one line", max: limits::WAITERS_MAX };
    assert_eq!(refusal(&mut ledger, acquire(max + 3, "db", 60_000)), full);
    assert_eq!(refusal(&mut ledger, acquire_on(max + 2, "db", Wait::InLine)), full);
    // A full line still answers who has a place in it, and takes the next one when somebody leaves.
    assert_eq!(place(order(&mut ledger, 0, acquire(max + 1, "db", 60_000))), far);
    order(&mut ledger, 0, cancel(2, "db")).unwrap();
    assert_eq!(place(order(&mut ledger, 0, acquire_on(max + 2, "db", Wait::InLine))), far);
    // The holder is not counted: when it goes, one more may come.
    order(&mut ledger, 0, release("db@1")).unwrap();
    assert_eq!(place(order(&mut ledger, 0, acquire(max + 3, "db", 60_000))), far);
    assert_eq!(restored(&ledger).state_hash(), ledger.state_hash());
}

#[test]
fn the_heaviest_lease() {
    let (mut ledger, max) = (Ledger::default(), limits::ATTACHED_MAX);
    all_accepted(&mut ledger, 0, [grant(1, 1000), grant(2, 1000), acquire(3, "r/other", 60_000)]);
    all_accepted(&mut ledger, 0, (0..max).map(|n| acquire_on(1, &format!("r/{n}"), Wait::Never)));
    let full = Refusal::Full { what: "things attached to one lease", max };
    assert_eq!(refusal(&mut ledger, acquire_on(1, "one/more", Wait::Never)), full);
    assert_eq!(refusal(&mut ledger, acquire_on(1, "r/other", Wait::InLine)), full);
    assert!(
        matches!(order(&mut ledger, 0, acquire_on(1, "r/0", Wait::Never)), Ok(Reply::Seated(_))),
        "a retry is fine"
    );
    order(&mut ledger, 0, release("r/0@2")).unwrap();
    order(&mut ledger, 0, acquire_on(1, "one/more", Wait::Never)).unwrap();

    // It is heavier than a sweep, and ends in one step nevertheless; the next lease waits for the next entry.
    let revision = ledger.revision().0;
    let applied = ledger.apply(&tick(1000));
    assert_eq!((applied.events.len(), applied.unfinished), (max + 1, true));
    assert!(applied.events.iter().all(|event| event.revision.0 == revision + 1));
    assert!(applied.events.iter().enumerate().all(|(n, event)| event.n as usize == n && event.last == (n == max)));
    let applied = ledger.apply(&tick(1000));
    assert_eq!((ended_count(&applied.events), applied.unfinished), (1, false));
    assert_eq!(ledger.lease_count(), 1);
}

#[test]
fn a_sweep_is_cut_and_goes_on() {
    let (mut witness, sweep) = (Witness::default(), limits::SWEEP_MAX as u64);
    // Each weighs two: itself and its claim.
    let leases = sweep + 1;
    let commands = (1..=leases).map(|lease| acquire(lease, &format!("r/{lease}"), 1000));
    witness.apply(&entry(0, commands.collect()));
    witness.apply(&tick(999));
    let applied = witness.apply(&tick(1000));
    assert_eq!((ended_count(&applied.events) as u64, applied.unfinished), (sweep / 2, true));
    assert_eq!(applied.next_deadline, Some(entry(1000, Vec::new()).now));
    assert!(witness.ledger().lease(id(sweep / 2)).is_none() && witness.ledger().lease(id(sweep / 2 + 1)).is_some());
    // Who was not reached is alive by every rule: it can be renewed, release, and be asked for.
    let late = sweep / 2 + 1;
    let held = format!("r/{}@{}", late + 1, late + 1);
    let applied = witness.apply(&entry(1000, vec![renew([late, 1]), release(&held)]));
    let Ok(Reply::Renewed(answers)) = &applied.outcomes[0] else { panic!("{:?}", applied.outcomes) };
    assert!(answers[0].is_ok() && matches!(answers[1], Err(Refusal::Lapsed { .. })));
    // The sweep of this entry came before its release, and reached the lease first.
    assert!(matches!(applied.outcomes[1], Err(Refusal::Stale { .. })));
    assert_eq!((ended_count(&applied.events) as u64, applied.unfinished), (sweep / 2, false));
    assert_eq!(witness.ledger().lease_count(), 1, "the renewed one lives");
    witness.apply(&tick(2000));
    assert_eq!(witness.ledger().lease_count(), 0);
}

#[test]
fn a_sweep_that_fits_is_whole() {
    let (mut witness, sweep) = (Witness::default(), limits::SWEEP_MAX as u64);
    witness.apply(&entry(0, (1..=sweep).map(|lease| grant(lease, 1000)).collect()));
    let applied = witness.apply(&tick(1000));
    assert_eq!((ended_count(&applied.events) as u64, applied.unfinished), (sweep, false));
    witness.apply(&entry(2000, (1..=sweep + 1).map(|lease| grant(sweep + lease, 1000)).collect()));
    let applied = witness.apply(&tick(3000));
    assert_eq!((ended_count(&applied.events) as u64, applied.unfinished), (sweep, true));
    let applied = witness.apply(&tick(3000));
    assert_eq!((ended_count(&applied.events), applied.unfinished), (1, false));
}

#[test]
fn seating_is_cut_and_goes_on() {
    let (mut witness, seats) = (Witness::default(), limits::SEAT_MAX);
    let resource = |n: usize| format!("r/{n:05}");
    let waiter = |n: usize| 10 + n as u64;
    let (emptied, reused) = (2 * seats, 2 * seats + 1);
    witness.apply(&entry(0, vec![grant(1, 60_000)]));
    let claims = (0..=reused).map(|n| acquire_on(1, &resource(n), Wait::Never));
    let lines = (0..=reused).map(|n| acquire(waiter(n), &resource(n), 60_000));
    witness.apply(&entry(0, claims.chain(lines).collect()));
    let applied = witness.apply(&entry(1, vec![revoke(1)]));
    assert_eq!((seated_count(&applied.events), applied.unfinished), (seats, true));

    // The others are free, but promised: nobody barges in.
    let mut ledger = restored(witness.ledger());
    let commands = vec![grant(2, 60_000), acquire_on(2, &resource(reused), Wait::Never)];
    let taken = ledger.apply(&entry(1, commands)).outcomes.remove(1);
    let Err(Refusal::Taken { fence: None, waiting: 1, remaining_ms: 59_999, holder, .. }) = taken else {
        panic!("{taken:?}")
    };
    assert_eq!(holder.as_str(), format!("h{}", waiter(reused)));

    // If a line empties before its turn comes, whoever asks next has the resource.
    let leave = [emptied, reused].map(|n| cancel(waiter(n), &resource(n)));
    let come = [2, 3].map(|lease| acquire(lease, &resource(reused), 60_000));
    let applied = witness.apply(&entry(2, leave.into_iter().chain(come).collect()));
    assert!(
        matches!(applied.outcomes[2], Ok(Reply::Seated(_))) && matches!(applied.outcomes[3], Ok(Reply::Waiting { .. }))
    );
    assert_eq!((seated_count(&applied.events), applied.unfinished), (seats + 1, true));
    assert!(witness.ledger().resource(&name(&resource(emptied))).unwrap().holding().is_none());

    // And keeps it when the turn of that line would have come.
    let applied = witness.apply(&tick(3));
    assert_eq!((applied.events.len(), applied.unfinished), (0, false));
    assert!(witness.ledger().resource(&name(&resource(emptied))).is_none(), "nobody asked for it");
    let kept = witness.ledger().resource(&name(&resource(reused))).unwrap();
    assert_eq!((kept.holding().unwrap().lease, kept.waiting()), (id(2), 1));
    let fence = kept.holding().unwrap().fence;
    let applied = witness.apply(&entry(4, vec![release(&format!("{}@{fence}", resource(reused)))]));
    assert_eq!((seated_count(&applied.events), applied.unfinished), (1, false));
}
