//! Every limit of `limits.rs` that a ledger in a test can reach: one below is accepted, one above is refused and changes
//! nothing. Those of single values are in `values.rs`, those of the past in `bounded_history.rs`, those of keys in
//! `keyspace.rs`, what is merely large in `large.rs`. Those of instances are in `registry.rs`
//! and `registry_values.rs`. Not reached: `LEASES_MAX`, `CLAIMS_MAX` and `INSTANCES_MAX` (memory), `RENEWALS_MAX` and `COMMANDS_MAX` (kept at the door,
//! not by the ledger).

use crate::support::witness::Witness;
use crate::support::{
    a_grant, acquire, acquire_all, acquire_on, all_accepted, cancel, entry, force, grant, grant_under, holder, id,
    name, order, put, refusal, release, renew, restored, revoke, span, tick, ttl, units,
};
use tenure_core::{
    Acquire, Class, Command, Define, Entry, Free, Grant, Hang, Happening, Label, Labels, Ledger, Mode, On, Outcome,
    Policy, Refusal, Reply, Revoke, Transfer, Units, Wait, Want, Which, limits,
};

fn ended_count(events: &[tenure_core::Event]) -> usize {
    events.iter().filter(|event| matches!(event.what, Happening::Ended { .. })).count()
}

fn seated_count(events: &[tenure_core::Event]) -> usize {
    events.iter().filter(|event| matches!(event.what, Happening::Seated { .. })).count()
}

#[test]
fn the_longest_line() {
    let (mut ledger, max) = (Ledger::default(), limits::WAITERS_MAX as u64);
    all_accepted(&mut ledger, 0, (0..max).map(|lease| acquire(lease + 1, "db", 60_000)));
    all_accepted(&mut ledger, 0, [grant(max + 2, 60_000)]);
    let place = |outcome: Outcome| match outcome {
        Ok(Reply::Waiting(waiting)) => waiting.place,
        other => panic!("{other:?}"),
    };
    let far = limits::PLACE_MAX as u64;
    assert_eq!(place(order(&mut ledger, 0, acquire(max + 1, "db", 60_000))), far);
    assert_eq!(ledger.resource(&name("db")).unwrap().waiting(), max, "everybody is counted, far places are not told");
    assert_eq!(place(order(&mut ledger, 0, acquire(far, "db", 60_000))), far - 1, "near ones are told exactly");
    let full = Refusal::Full { what: "waiters in one line".into(), max: limits::WAITERS_MAX };
    assert_eq!(refusal(&mut ledger, acquire(max + 3, "db", 60_000)), full);
    assert_eq!(refusal(&mut ledger, acquire_on(max + 2, "db", Wait::IN_LINE)), full);
    // A full line still answers who has a place in it, and takes the next one when somebody leaves.
    assert_eq!(place(order(&mut ledger, 0, acquire(max + 1, "db", 60_000))), far);
    order(&mut ledger, 0, cancel(2, "db")).unwrap();
    assert_eq!(place(order(&mut ledger, 0, acquire_on(max + 2, "db", Wait::IN_LINE))), far);
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
    let full = Refusal::Full { what: "things attached to one lease tree".into(), max };
    assert_eq!(refusal(&mut ledger, acquire_on(1, "one/more", Wait::Never)), full);
    assert_eq!(refusal(&mut ledger, acquire_on(1, "r/other", Wait::IN_LINE)), full);
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
        matches!(applied.outcomes[2], Ok(Reply::Seated(_))) && matches!(applied.outcomes[3], Ok(Reply::Waiting(_)))
    );
    assert_eq!((seated_count(&applied.events), applied.unfinished), (seats + 1, true));
    assert!(witness.ledger().resource(&name(&resource(emptied))).is_none(), "nobody asked for it");

    // And keeps it when the turn of that line would have come.
    let applied = witness.apply(&tick(3));
    assert_eq!((applied.events.len(), applied.unfinished), (0, false));
    let kept = witness.ledger().resource(&name(&resource(reused))).unwrap();
    let (fence, lease) = kept.holders().next().unwrap();
    assert_eq!((lease, kept.waiting()), (id(2), 1));
    let applied = witness.apply(&entry(4, vec![release(&format!("{}@{fence}", resource(reused)))]));
    assert_eq!((seated_count(&applied.events), applied.unfinished), (1, false));
}

fn full(what: &'static str, max: usize) -> Refusal {
    Refusal::Full { what: what.into(), max }
}

#[test]
fn a_lease_tree_carries_so_much_and_no_more() {
    let (mut ledger, max) = (Ledger::default(), limits::ATTACHED_MAX);
    let tree = full("things attached to one lease tree", max);
    // A root with two children; keys on one of them, claims on the other.
    all_accepted(&mut ledger, 0, [grant(1, 60_000), grant_under(1, 2, 60_000), grant_under(2, 3, 60_000)]);
    all_accepted(&mut ledger, 0, (0..5000).map(|n| put(&format!("k/{n}"), Hang::On(id(2)))));
    all_accepted(&mut ledger, 0, (5002..max).map(|n| acquire_on(3, &format!("r/{n}"), Wait::Never)));
    assert_eq!(ledger.lease(id(1)).unwrap().carried(), max);
    all_accepted(&mut ledger, 0, [grant(8, 60_000), acquire(9, "other", 60_000)]);
    // Whatever would hang on any lease of the tree is one too many.
    assert_eq!(refusal(&mut ledger, grant_under(3, 4, 60_000)), tree);
    assert_eq!(refusal(&mut ledger, put("one/more", Hang::On(id(1)))), tree);
    assert_eq!(refusal(&mut ledger, acquire_on(1, "one/more", Wait::Never)), tree);
    assert_eq!(refusal(&mut ledger, acquire_on(2, "other", Wait::IN_LINE)), tree);
    let child = On::New(Grant { parent: Some(id(3)), ..a_grant(4, 60_000) });
    let under = Command::Acquire(Acquire::exclusive(child, name("one/more"), Wait::Never));
    assert_eq!(refusal(&mut ledger, under.clone()), tree);
    let given = |force| {
        Command::Transfer(Transfer {
            handle: crate::support::handle(&format!("other@{}", max - 5001)),
            to: id(2),
            force,
        })
    };
    assert_eq!(refusal(&mut ledger, given(None)), tree);
    assert_eq!(refusal(&mut ledger, given(Some(force(Free::Now)))), tree);
    // What is there already may be written again, moved and given away within the tree.
    order(&mut ledger, 0, put("k/0", Hang::On(id(2)))).unwrap();
    order(&mut ledger, 0, put("k/0", Hang::Keep)).unwrap();
    let within = Transfer { handle: crate::support::handle("r/5002@1"), to: id(1), force: None };
    order(&mut ledger, 0, Command::Transfer(within)).unwrap();
    // A new child with a claim needs room for two.
    order(&mut ledger, 0, put("k/0", Hang::Free)).unwrap();
    assert_eq!(refusal(&mut ledger, under.clone()), tree);
    order(&mut ledger, 0, put("k/1", Hang::Free)).unwrap();
    order(&mut ledger, 0, under).unwrap();
    assert_eq!(ledger.lease(id(1)).unwrap().carried(), max);
    assert_eq!(restored(&ledger).lease(id(1)).unwrap().carried(), max);
    // And the whole of it ends at one revision.
    let applied = ledger.apply(&entry(1, vec![revoke(1)]));
    assert!(applied.events.iter().all(|event| event.revision == applied.events[0].revision));
    assert_eq!((applied.events.len(), ledger.lease_count()), (max + 1, 2));
}

#[test]
fn generations() {
    let (mut ledger, max) = (Ledger::default(), limits::GENERATIONS_MAX as u64);
    all_accepted(&mut ledger, 0, [grant(1, 60_000)]);
    all_accepted(&mut ledger, 0, (2..=max).map(|lease| grant_under(lease - 1, lease, 60_000)));
    let many = full("generations of leases", limits::GENERATIONS_MAX);
    assert_eq!(refusal(&mut ledger, grant_under(max, max + 1, 60_000)), many);
    let child = On::New(Grant { parent: Some(id(max)), ..a_grant(max + 1, 60_000) });
    assert_eq!(refusal(&mut ledger, Command::Acquire(Acquire::exclusive(child, name("a"), Wait::Never))), many);
    order(&mut ledger, 0, grant_under(max - 1, max + 1, 60_000)).unwrap();
}

#[test]
fn holders_of_one_resource() {
    let (mut ledger, max) = (Ledger::default(), limits::HOLDERS_MAX as u64);
    let shared = |lease| acquire_all(lease, &["db"], Mode::Shared, 60_000);
    all_accepted(&mut ledger, 0, (1..=max).map(shared));
    let fences = ledger.last_fence();
    // Who would be one too many waits, until one of them leaves. A vacating stake counts.
    let waits = order(&mut ledger, 0, shared(max + 1));
    assert!(matches!(waits, Ok(Reply::Waiting(_))), "{waits:?}");
    let vacate = Revoke { which: Which::Lease(id(7)), force: force(Free::WhenVacated) };
    order(&mut ledger, 0, Command::Revoke(vacate)).unwrap();
    assert_eq!(ledger.last_fence(), fences);
    order(&mut ledger, 0, release("db@8")).unwrap();
    assert_eq!(ledger.last_fence(), fences + 1);
    assert_eq!(restored(&ledger).state_hash(), ledger.state_hash());
}

#[test]
fn units_of_one_resource() {
    let (mut ledger, max) = (Ledger::default(), limits::CAPACITY_MAX);
    let want = Want { resource: name("gpu"), mode: units(max), capacity: Units::from_number(max) };
    let all =
        Acquire { wants: vec![want], ..Acquire::exclusive(On::New(a_grant(1, 60_000)), name("gpu"), Wait::Never) };
    order(&mut ledger, 0, Command::Acquire(all)).unwrap();
    let waits = order(&mut ledger, 0, acquire_all(2, &["gpu"], units(max), 60_000));
    assert!(matches!(waits, Ok(Reply::Waiting(_))), "{waits:?}");
    assert_eq!(ledger.resource(&name("gpu")).unwrap().units_taken(), max);
}

#[test]
fn the_wait_for_several() {
    let (mut ledger, max) = (Ledger::default(), limits::WAIT_MS_MAX);
    all_accepted(&mut ledger, 0, [acquire(1, "a", 60_000)]);
    let wants = || ["a", "b"].map(|it| Want { resource: name(it), mode: Mode::Exclusive, capacity: None }).to_vec();
    let both = |limit_ms| {
        let wait = Wait::InLine { limit: Some(span(limit_ms)) };
        Command::Acquire(Acquire { wants: wants(), ..Acquire::exclusive(On::New(a_grant(2, 60_000)), name("a"), wait) })
    };
    let too_long = Refusal::WaitTooLong { asked_ms: max + 1, max_ms: max };
    assert_eq!(refusal(&mut ledger, both(max + 1)), too_long);
    order(&mut ledger, 0, both(max)).unwrap();
}

#[test]
fn classes() {
    let (mut ledger, max) = (Ledger::default(), limits::CLASSES_MAX);
    let class = |number: usize, ms: u64| {
        let (ttl, ttl_min, ttl_max) = (ttl(ms), ttl(100), ttl(limits::TTL_MS_MAX));
        let (renew, grace) = (Policy::Auto, span(0));
        Command::SetClass(Class {
            name: name(&format!("c/{number}")),
            ttl,
            ttl_min,
            ttl_max,
            renew,
            grace,
            lifetime: None,
        })
    };
    all_accepted(&mut ledger, 0, (1..=max).map(|number| class(number, 1000)));
    assert_eq!(refusal(&mut ledger, class(0, 1000)), full("classes", max));
    all_accepted(&mut ledger, 0, [class(1, 2000), class(2, 1000)]);
    assert_eq!(ledger.classes().count(), max + 6, "the built-in ones are not counted");
}

#[test]
fn defined_resources() {
    let (mut ledger, max) = (Ledger::default(), limits::DEFINED_MAX);
    let define = |number: usize, capacity| {
        Command::Define(Define { resource: name(&format!("r/{number}")), capacity: Units::from_number(capacity) })
    };
    all_accepted(&mut ledger, 0, (1..=max).map(|number| define(number, 2)));
    // Compared by what it would change: the hash of so many is not worth its time.
    let revision = ledger.revision();
    let many = Err(full("defined resources", max));
    assert_eq!(order(&mut ledger, 0, define(0, 2)), many);
    assert_eq!(ledger.revision(), revision);
    all_accepted(&mut ledger, 0, [define(1, 3), define(2, 2), acquire(1, "r/0", 1000)]);
    assert_eq!(order(&mut ledger, 0, define(0, 2)), many, "a claimed one is not a defined one");
    let undefine = Command::Define(Define { resource: name("r/1"), capacity: None });
    all_accepted(&mut ledger, 0, [undefine, define(0, 2)]);
}

/// Asks again and again where the reply says, and returns how many ended each time.
fn revoked_in_turns(ledger: &mut Ledger, which: impl Fn(Option<&str>) -> Which) -> Vec<u64> {
    let (mut counts, mut next) = (Vec::new(), None::<String>);
    loop {
        let revoke = Revoke { which: which(next.as_deref()), force: force(Free::Now) };
        match order(ledger, 1, Command::Revoke(revoke)) {
            Ok(Reply::Revoked { count, next: more }) => {
                counts.push(count);
                if more.is_none() {
                    return counts;
                }
                assert_ne!(more, next, "it goes on");
                next = more;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_revoke_of_many_ends_so_many_and_says_where_to_go_on() {
    let sweep = limits::SWEEP_MAX as u64;
    let whose = |lease: u64| Grant { holder: holder("ann"), ..a_grant(lease, 60_000) };
    let labels = || Labels::parse([("team", "web")]).unwrap();
    let grants = |count: u64| (1..=count).map(move |lease| Grant { labels: labels(), ..whose(lease) });
    let from = |next: Option<&str>| next.map(|text| id(text.parse().unwrap()));
    let by_holder = |next: Option<&str>| Which::Holder { holder: holder("ann"), from: from(next) };
    let by_label = |next: Option<&str>| Which::Label { label: Label::parse("team", "web").unwrap(), from: from(next) };
    for (count, turns) in [(sweep, vec![sweep]), (sweep + 1, vec![sweep, 1]), (2 * sweep + 5, vec![sweep, sweep, 5])] {
        let mut ledger = Ledger::default();
        all_accepted(&mut ledger, 0, grants(count).map(Command::Grant));
        all_accepted(&mut ledger, 0, [grant(1_000_000, 60_000)]);
        let mut other = ledger.clone();
        // After the last of a turn others may follow, so one of no leases may come last.
        let ended = |counts: Vec<u64>| counts.into_iter().filter(|count| *count > 0).collect::<Vec<_>>();
        assert_eq!(ended(revoked_in_turns(&mut ledger, by_holder)), turns);
        assert_eq!(ended(revoked_in_turns(&mut other, by_label)), turns);
        assert_eq!((ledger.lease_count(), other.lease_count()), (1, 1));
        // By what they hold; each weighs two: itself and its claim.
        let mut ledger = Ledger::default();
        all_accepted(&mut ledger, 0, (1..=count).map(|lease| acquire(lease, &format!("jobs/{lease:05}"), 60_000)));
        all_accepted(&mut ledger, 0, [acquire(1_000_000, "job", 60_000)]);
        let by_prefix =
            |next: Option<&str>| Which::Prefix { prefix: "jobs/".into(), from: next.unwrap_or_default().into() };
        let counts = revoked_in_turns(&mut ledger, by_prefix);
        assert!(counts.iter().all(|count| *count <= sweep / 2) && counts.iter().sum::<u64>() == count, "{counts:?}");
        assert_eq!(ledger.lease_count(), 1);
    }
}

#[test]
fn a_revoke_looks_at_so_many() {
    let (mut ledger, max) = (Ledger::default(), limits::SCAN_MAX as u64);
    all_accepted(&mut ledger, 0, (1..=max).map(|lease| grant(lease, 60_000)));
    let by_holder =
        |next: Option<&str>| Which::Holder { holder: holder("ann"), from: next.map(|text| id(text.parse().unwrap())) };
    assert_eq!(revoked_in_turns(&mut ledger, by_holder), [0]);
    all_accepted(&mut ledger, 0, [Command::Grant(Grant { holder: holder("ann"), ..a_grant(max + 1, 60_000) })]);
    assert_eq!(revoked_in_turns(&mut ledger, by_holder), [0, 1]);
}

/// What one entry may look at is shared by all that revoke in it: the second is told to come again, from where it was.
#[test]
fn all_revokes_of_an_entry_look_at_so_many() {
    let (mut ledger, max) = (Ledger::default(), limits::SCAN_MAX as u64);
    all_accepted(&mut ledger, 0, (1..=max).map(|lease| grant(lease, 60_000)));
    let revoke = || {
        let which = Which::Holder { holder: holder("nobody"), from: None };
        Command::Revoke(Revoke { which, force: force(Free::Now) })
    };
    let applied = ledger.apply(&entry(0, vec![revoke(), revoke()]));
    let next = |next: Option<&str>| Ok(Reply::Revoked { count: 0, next: next.map(ToString::to_string) });
    assert_eq!(applied.outcomes, [next(None), next(Some("1"))]);
    assert_eq!(order(&mut ledger, 0, revoke()), next(None), "the next entry begins anew");
}

#[test]
fn a_renewal_looks_at_so_many_lines() {
    let (mut ledger, max) = (Ledger::default(), limits::CONTENDED_MAX as u64);
    all_accepted(&mut ledger, 0, [grant(1, 60_000)]);
    all_accepted(&mut ledger, 0, (0..=max).map(|n| acquire_on(1, &format!("r/{n:04}"), Wait::Never)));
    all_accepted(&mut ledger, 5, (0..max).map(|n| acquire(10 + n, &format!("r/{n:04}"), 60_000)));
    let told = |ledger: &mut Ledger| match order(ledger, 9, renew([1])) {
        Ok(Reply::Renewed(answers)) => answers[0].clone().map(|it| (it.waiting, it.longest_wait_ms)).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut ledger), (max, 4));
    all_accepted(&mut ledger, 6, [acquire(9999, &format!("r/{max:04}"), 60_000)]);
    assert_eq!(told(&mut ledger), (max, 4), "one more line is not looked at");
}

#[test]
fn resources_of_one_acquire() {
    let max = limits::RESOURCES_MAX;
    let names: Vec<_> = (0..=max).map(|n| format!("r/{n}")).collect();
    let of = |count: usize| {
        let names: Vec<_> = names[..count].iter().map(String::as_str).collect();
        entry(0, vec![acquire_all(1, &names, Mode::Exclusive, 1000)])
    };
    // It is the log that keeps this one: whoever writes more than that could not read it back.
    assert_eq!(Entry::decode(&of(max).encode()), Ok(of(max)));
    assert!(Entry::decode(&of(max + 1).encode()).is_err());
    let twice = entry(0, vec![acquire_all(1, &["a", "a"], Mode::Exclusive, 1000)]);
    assert!(Entry::decode(&twice.encode()).is_err(), "each resource is named once");
}

/// Trees that end take as many changes as they carry. When an entry has made its changes, the next command changes nothing.
#[test]
fn changes_of_one_entry() {
    let mut ledger = Ledger::default();
    let (trees, things) = (5, limits::ATTACHED_MAX);
    for tree in 1..=trees {
        all_accepted(&mut ledger, 0, [grant(tree, 60_000)]);
        let keys = (0..things).map(|n| put(&format!("{tree}/{n}"), Hang::On(id(tree))));
        all_accepted(&mut ledger, 0, keys);
    }
    let commands: Vec<Command> = (1..=trees).map(revoke).chain([grant(99, 1000)]).collect();
    let applied = ledger.apply(&entry(1, commands));
    let overloaded = Err(Refusal::Overloaded { what: "changes made together".into(), max: limits::ENTRY_CHANGES_MAX });
    let refused: Vec<bool> = applied.outcomes.iter().map(|outcome| *outcome == overloaded).collect();
    assert_eq!(refused, [false, false, false, false, true, true]);
    assert!(applied.events.len() <= limits::ENTRY_CHANGES_MAX + things + 1);
    assert!(ledger.lease(id(trees)).is_some() && ledger.lease(id(99)).is_none(), "what was refused changed nothing");
    order(&mut ledger, 2, revoke(trees)).unwrap();
    assert_eq!(ledger.lease_count(), 0);
}
