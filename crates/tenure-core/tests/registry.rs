//! The guard against correlated loss, exactly: who is kept, until when, and who is not; against a second count over random
//! silences; and what the registry can hold. The rules themselves are in `scripts/registry_*.txt`.

#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::history::instance_plans;
use crate::support::witness::Witness;
use crate::support::{a_grant, all_accepted, entry, few_cases, id, name, refusal, renew, restored, runner, tick, ttl};
use proptest::collection;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Command, Counts, Details, Draft, End, Endpoint, Grant, Happening, InstanceKey, Judgement, LeaseId, Ledger,
    Lifetime, Moment, On, Refusal, Register, Span, Word, limits,
};

fn details(zone: Option<&str>) -> Details {
    let endpoint = Endpoint::parse("http://10.0.0.7:8080").unwrap();
    let zone = zone.map(|zone| Word::parse(zone).unwrap());
    Details::new(Draft { zone, ..Draft::at(vec![endpoint]) }).unwrap()
}

fn register_at(lease: u64, service: &str, ttl_ms: u64) -> Command {
    let instance = InstanceKey::parse(&format!("{service}/i{lease}")).unwrap();
    let grant = Grant { ttl: Some(ttl(ttl_ms)), ..a_grant(lease, ttl_ms) };
    Command::Register(Register {
        instance,
        epoch: None,
        on: On::New(grant),
        details: details(Some("z")),
        request: None,
    })
}

/// The leases that ended, and those that came to be suspect, with until when.
#[derive(Debug, Default, PartialEq)]
struct Done {
    ended: BTreeSet<LeaseId>,
    suspected: BTreeMap<LeaseId, (Moment, Judgement)>,
}

fn done(events: &[tenure_core::Event]) -> Done {
    let mut done = Done::default();
    for event in events {
        match &event.what {
            Happening::Ended { lease, how: End::Expired, .. } => drop(done.ended.insert(*lease)),
            Happening::Suspected { lease, until, judgement, .. } => {
                done.suspected.insert(*lease, (*until, *judgement));
            }
            _ => {}
        }
    }
    done
}

fn ids(range: std::ops::RangeInclusive<u64>) -> BTreeSet<LeaseId> {
    range.map(id).collect()
}

/// A hundred instances with a TTL of 15 s that renew every 5 s, until the first `silent` of them stop after 10 s.
fn hundred(silent: u64) -> Witness {
    let mut witness = Witness::default();
    witness.apply(&entry(0, (1..=100).map(|lease| register_at(lease, "api", 15_000)).collect()));
    for at_ms in [5_000, 10_000] {
        witness.apply(&entry(at_ms, vec![renew(1..=100)]));
    }
    for at_ms in [15_000, 20_000, 24_000] {
        witness.apply(&entry(at_ms, vec![renew(silent + 1..=100)]));
    }
    witness
}

#[test]
fn ninety_of_a_hundred_are_held_and_then_released_in_time() {
    let mut witness = hundred(90);
    assert_eq!(done(&witness.apply(&tick(24_999)).events), Done::default(), "nobody is due");
    let at = Moment::from_millis(25_000);
    let held = done(&witness.apply(&tick(25_000)).events);
    let judgement = Judgement { at, members: 100, late: 90 };
    assert_eq!(judgement.threshold(), 5 + 8 + 2);
    let until = Moment::from_millis(25_000 + 30_000);
    let all = ids(1..=90).into_iter().map(|lease| (lease, (until, judgement))).collect();
    assert_eq!(held, Done { suspected: all, ..Done::default() });
    let suspect = witness.ledger().lease(id(1)).unwrap().suspect().copied().unwrap();
    assert_eq!((suspect.until, suspect.judgement), (until, judgement));
    for at_ms in (26_000..55_000).step_by(5_000).chain([54_999]) {
        let events = witness.apply(&entry(at_ms, vec![renew(91..=100)])).events;
        assert_eq!(done(&events), Done::default(), "nothing ends before its time");
    }
    let released = done(&witness.apply(&tick(55_000)).events);
    assert_eq!(released, Done { ended: ids(1..=90), ..Done::default() }, "all that stayed silent, and no other");
    assert_eq!(witness.ledger().instance_count(), 10);
}

#[test]
fn five_of_a_hundred_end_at_their_deadline() {
    let mut witness = hundred(5);
    assert_eq!(done(&witness.apply(&tick(24_999)).events), Done::default());
    assert_eq!(done(&witness.apply(&tick(25_000)).events).ended, ids(1..=5));
    // One below the threshold, and at it.
    let mut witness = hundred(14);
    assert_eq!(done(&witness.apply(&tick(25_000)).events).ended, ids(1..=14));
    let mut witness = hundred(15);
    assert_eq!(done(&witness.apply(&tick(25_000)).events).suspected.len(), 15);
}

#[test]
fn nine_are_too_few_to_tell_and_ten_are_not() {
    for (members, suspected) in [(9, 0), (10, 10)] {
        let mut witness = Witness::default();
        witness.apply(&entry(0, (1..=members).map(|lease| register_at(lease, "api", 15_000)).collect()));
        let done = done(&witness.apply(&tick(15_000)).events);
        assert_eq!(
            (done.suspected.len(), done.ended.len()),
            (suspected, usize::try_from(members).unwrap() - suspected)
        );
    }
}

#[test]
fn who_is_heard_of_in_time_is_cleared_and_judged_anew_in_its_next_silence() {
    let mut witness = hundred(90);
    witness.apply(&tick(25_000));
    let events = witness.apply(&entry(30_000, vec![renew([1]), renew(91..=100)])).events;
    let cleared: Vec<_> = events.iter().map(|event| (&event.what, event.what.lease())).collect();
    assert!(matches!(cleared[..], [(Happening::Cleared { .. }, Some(lease))] if lease == id(1)), "{cleared:?}");
    let lease = witness.ledger().lease(id(1)).unwrap();
    assert_eq!((lease.suspect(), lease.ends_at()), (None, Moment::from_millis(45_000)), "it ends when it says");
    let again = done(&witness.apply(&tick(45_000)).events);
    assert!(again.suspected.contains_key(&id(1)), "and is kept again then: {again:?}");
}

#[test]
fn a_graceful_end_counts_for_nothing() {
    let mut witness = hundred(13);
    let release = |lease| Command::ReleaseLease(tenure_core::ReleaseLease::plain(id(lease)));
    witness.apply(&entry(24_500, (50..=60).map(release).collect()));
    assert_eq!(done(&witness.apply(&tick(25_000)).events).ended, ids(1..=13));
}

/// Until when a suspect is kept is bounded, whatever its TTL.
#[test]
fn a_long_ttl_is_kept_for_five_minutes_more() {
    let mut witness = Witness::default();
    witness.apply(&entry(0, (1..=10).map(|lease| register_at(lease, "api", 3_600_000)).collect()));
    let until = done(&witness.apply(&tick(3_600_000)).events).suspected[&id(1)].0;
    assert_eq!(until, Moment::from_millis(3_600_000 + limits::SUSPECT_MS_MAX));
}

/// However silent, nobody outlives what it may live at most.
#[test]
fn a_suspect_is_kept_no_longer_than_its_lifetime() {
    let mut witness = Witness::default();
    let lifetime = Lifetime { span: Span::at_most(60_000, 60_000).unwrap(), counts: Counts::Always };
    let register = |lease| match register_at(lease, "api", 15_000) {
        Command::Register(Register { instance, epoch, on: On::New(grant), details, request }) => {
            let on = On::New(Grant { lifetime: Some(lifetime), ..grant });
            Command::Register(Register { instance, epoch, on, details, request })
        }
        other => panic!("{other:?}"),
    };
    witness.apply(&entry(0, (1..=10).map(register).collect()));
    for at_ms in [14_000, 28_000, 42_000] {
        witness.apply(&entry(at_ms, vec![renew(1..=10)]));
    }
    let suspected = done(&witness.apply(&tick(57_000)).events).suspected;
    let until = Moment::from_millis(60_000);
    assert!(suspected.len() == 10 && suspected.values().all(|(at, _)| *at == until), "{suspected:?}");
    assert_eq!(done(&witness.apply(&tick(60_000)).events).ended, ids(1..=10));
}

/// A judgement of a moment ago is none for those who live for moments only.
#[test]
fn short_lives_are_judged_anew() {
    let mut witness = Witness::default();
    witness.apply(&entry(600, (1..=20).map(|lease| register_at(lease, "api", 300)).collect()));
    witness.apply(&entry(700, vec![renew(1..=20)]));
    witness.apply(&entry(800, vec![renew(2..=20)]));
    witness.apply(&entry(900, vec![renew(2..=20)]));
    assert_eq!(done(&witness.apply(&tick(1_000)).events).ended, ids(1..=1), "one of twenty");
    assert_eq!(done(&witness.apply(&tick(1_200)).events).suspected.len(), 19, "all of the others at once");
}

/// What is said to be valid is so whatever becomes of it: it may be heard of once more, and end one TTL later.
#[test]
fn a_suspect_is_valid_for_no_longer_than_one_that_was_just_heard_of() {
    let mut witness = hundred(90);
    witness.apply(&tick(25_000));
    let key = InstanceKey::parse("api/i1").unwrap();
    let valid = |ledger: &Ledger| ledger.valid_until(ledger.instance(&key).unwrap());
    assert_eq!(valid(witness.ledger()), Moment::from_millis(40_000));
    witness.apply(&tick(50_000));
    assert_eq!(valid(witness.ledger()), Moment::from_millis(55_000), "and not longer than it is kept");
}

/// Orders of all kinds about instances of a cohort that has fallen silent, so that whoever falls due is kept.
#[test]
fn whatever_happens_to_suspects_every_promise_is_kept() {
    let seen = Cell::new((0_usize, 0_usize, 0_usize));
    let result = runner(500, file!()).run(&instance_plans(40), |plans| {
        let mut witness = Witness::default();
        let crowd = (0..48).map(|n| {
            let instance = InstanceKey::parse(&format!("{}/crowd{n}", if n < 24 { "api" } else { "db/x" })).unwrap();
            let on = On::New(a_grant(1_000 + n, 600_000));
            let details = details((n % 2 == 0).then_some("z1"));
            Command::Register(Register { instance, epoch: None, on, details, request: None })
        });
        witness.apply(&entry(0, crowd.collect()));
        witness.apply(&tick(300_000));
        let (mut suspected, mut cleared, mut renewed) = seen.get();
        for plan in &plans {
            let entry = plan.entry(witness.ledger());
            let events = witness.apply(&entry).events;
            let count = |is: fn(&Happening) -> bool| events.iter().filter(|event| is(&event.what)).count();
            suspected += count(|what| matches!(what, Happening::Suspected { .. }));
            cleared += count(|what| matches!(what, Happening::Cleared { .. }));
            renewed += entry.commands.iter().filter(|command| matches!(command, Command::Renew(_))).count();
        }
        seen.set((suspected, cleared, renewed));
        Ok(())
    });
    result.unwrap();
    println!("{:?} suspected, cleared, renewals", seen.get());
    assert!(few_cases() || seen.get().0 > 100 && seen.get().1 > 10, "everything was put to the test: {:?}", seen.get());
}

/// What the guard does, counted once more with nothing but the renewals: no cohorts, no averages kept, no wheel.
struct Second {
    renewals: BTreeMap<u64, Vec<u64>>,
    kept: BTreeMap<u64, u64>,
    judged: Option<(u64, u64, u64)>,
}

const TTL_MS: u64 = 10_000;

impl Second {
    fn is_late(&self, lease: u64, now: u64) -> bool {
        let times = &self.renewals[&lease];
        let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]).min(TTL_MS));
        let usual = gaps.fold(0, |usual, gap| if usual == 0 { gap } else { (usual * 7 + gap) / 8 });
        let silence = now - times.last().unwrap();
        match usual {
            0 => silence >= TTL_MS / 2,
            usual => {
                let after = (usual * 3 / 2).min(u64::midpoint(usual, TTL_MS)).max(TTL_MS / 4);
                silence >= after
            }
        }
    }

    /// Who ends and who is kept at a moment, one after the other in the order of their deadlines.
    fn tick(&mut self, now: u64) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut ended, mut kept) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let ends = |(lease, times): (&u64, &Vec<u64>)| {
                (self.kept.get(lease).copied().unwrap_or(times.last().unwrap() + TTL_MS), *lease)
            };
            let Some((_, lease)) = self.renewals.iter().map(ends).min().filter(|(at, _)| *at <= now) else {
                return (ended, kept);
            };
            let until = self.renewals[&lease].last().unwrap() + 3 * TTL_MS;
            if !self.kept.contains_key(&lease) && self.judge(now) && until > now {
                self.kept.insert(lease, until);
                kept.insert(lease);
            } else {
                self.renewals.remove(&lease);
                self.kept.remove(&lease);
                ended.insert(lease);
            }
            if self.renewals.is_empty() {
                self.judged = None;
            }
        }
    }

    fn judge(&mut self, now: u64) -> bool {
        let (_, members, late) = match self.judged {
            Some(judged) if now - judged.0 < 250 => judged,
            _ => {
                let late = self.renewals.keys().filter(|lease| self.is_late(**lease, now)).count() as u64;
                (now, self.renewals.len() as u64, late)
            }
        };
        self.judged = Some((self.judged.filter(|it| now - it.0 < 250).map_or(now, |it| it.0), members, late));
        let spread = (0..=members).take_while(|root| root * root <= members * 19 / 25).last().unwrap();
        members >= 10 && late >= members / 20 + spread + 2
    }
}

/// Random silences: who renews when is drawn, and both count alike.
#[test]
fn the_guard_agrees_with_a_second_count() {
    let seen = Cell::new((0_usize, 0_usize, 0_usize));
    let step = (100..2_500_u64, 0..100_u64, 0..1_000_u64);
    let histories = (10..40_u64, collection::vec(step, 10..60));
    let result = runner(300, file!()).run(&histories, |(members, steps)| {
        let mut witness = Witness::default();
        witness.apply(&entry(0, (1..=members).map(|lease| register_at(lease, "api", TTL_MS)).collect()));
        let renewals = (1..=members).map(|lease| (lease, vec![0])).collect();
        let mut second = Second { renewals, kept: BTreeMap::new(), judged: None };
        let (mut now, mut total) = (0, seen.get());
        for (pause, share, shift) in steps {
            now += pause;
            // Some hundredths of all are heard of, not always the same.
            let hears = |lease: &u64| (lease * 37 + shift) % 100 < share;
            let heard: Vec<u64> = second.renewals.keys().copied().filter(hears).collect();
            for lease in &heard {
                second.renewals.get_mut(lease).unwrap().push(now);
                second.kept.remove(lease);
            }
            let events = witness.apply(&entry(now, vec![renew(heard)])).events;
            let (ended, kept) = second.tick(now);
            let done = done(&events);
            assert_eq!(done.ended, ended.iter().copied().map(id).collect(), "who ends at {now}");
            assert_eq!(done.suspected.keys().copied().collect::<BTreeSet<_>>(), kept.iter().copied().map(id).collect());
            let cleared = events.iter().filter(|event| matches!(event.what, Happening::Cleared { .. })).count();
            total = (total.0 + ended.len(), total.1 + kept.len(), total.2 + cleared);
        }
        seen.set(total);
        Ok(())
    });
    result.unwrap();
    let (ended, kept, cleared) = seen.get();
    println!("{ended} ended, {kept} kept, {cleared} cleared");
    assert!(few_cases() || ended > 0 && kept > 0 && cleared > 0, "everything was put to the test");
}

/// Twenty thousand instances in cohorts of nine end at once, as many an entry as may.
#[test]
fn twenty_thousand_in_small_cohorts_end_within_the_bounds_of_the_sweep() {
    let mut ledger = Ledger::default();
    let service = |lease: u64| format!("s{}", lease / 9);
    all_accepted(&mut ledger, 0, (1..=20_000).map(|lease| register_at(lease, &service(lease), 15_000)));
    let (mut entries, mut ended) = (0, 0);
    loop {
        let applied = ledger.apply(&tick(15_000));
        let now = done(&applied.events);
        assert!(now.suspected.is_empty(), "nobody is kept");
        assert!(now.ended.len() * 2 <= limits::SWEEP_MAX + 2, "a lease and its instance count as two");
        (entries, ended) = (entries + 1, ended + now.ended.len());
        if !applied.unfinished {
            break;
        }
    }
    assert_eq!((entries, ended, ledger.instance_count(), ledger.service_count()), (10, 20_000, 0, 0));
}

/// A large cohort is judged once for many that fall due, and not twice within a quarter of a second; several large ones
/// are judged in several entries. A restart in between makes no difference.
#[test]
fn what_an_entry_looks_at_is_bounded() {
    let mut ledger = Ledger::default();
    let each = 50_000;
    let service = |lease: u64| format!("s{}", lease / each);
    all_accepted(&mut ledger, 0, (0..4 * each).map(|lease| register_at(1 + lease, &service(lease), 15_000)));
    // One of each falls silent a little earlier than all others, which never do.
    let silent: BTreeSet<u64> = (0..4).map(|cohort| 1 + cohort * each).collect();
    let others: Vec<u64> = (1..=4 * each).filter(|lease| !silent.contains(lease)).collect();
    for at_ms in [5_000, 10_000, 14_000] {
        for some in others.chunks(4096) {
            ledger.apply(&entry(at_ms, vec![renew(some.iter().copied())]));
        }
    }
    let mut replica = restored(&ledger);
    let mut ended = Vec::new();
    loop {
        let applied = ledger.apply(&tick(15_000));
        assert_eq!(replica.apply(&tick(15_000)).events, applied.events, "a replica looks at as many");
        replica = restored(&replica);
        ended.push(done(&applied.events).ended.len());
        if !applied.unfinished {
            break;
        }
    }
    assert_eq!(ended, [2, 2], "a hundred thousand leases are looked at in an entry, not two hundred thousand");
}

/// The points of an instance by hand: they halve every minute and fall along a line in between.
#[test]
fn points_halve_every_minute() {
    let mut ledger = Ledger::default();
    let check = |health| {
        let instance = InstanceKey::parse("api/i1").unwrap();
        let (check, note) = (Word::parse("up").unwrap(), tenure_core::Note::default());
        Command::SetHealth(tenure_core::SetHealth { instance, lease: id(1), check, health, note })
    };
    let Command::Register(mut register) = register_at(1, "api", 7_200_000) else { unreachable!() };
    let source = tenure_core::Source::Pushed { ttl: None };
    let up = tenure_core::Check { name: Word::parse("up").unwrap(), source };
    register.details =
        Details::new(Draft { checks: vec![up], ..Draft::at(register.details.endpoints.clone()) }).unwrap();
    all_accepted(&mut ledger, 0, [Command::Register(register)]);
    let (up, down) = (tenure_core::Health::Passing, tenure_core::Health::Critical);
    all_accepted(&mut ledger, 0, [check(up), check(down), check(up), check(down), check(up), check(down), check(up)]);
    let key = InstanceKey::parse("api/i1").unwrap();
    let points = |ms: u64| ledger.instance(&key).unwrap().penalty().at(Moment::from_millis(ms));
    assert_eq!([0, 30_000, 60_000, 90_000, 120_000, 660_000].map(points), [3000, 2250, 1500, 1125, 750, 1]);
    assert_eq!(points(u64::MAX), 0);
    assert!((0..200_000).is_sorted_by(|a, b| points(*a) >= points(*b)), "they never rise by themselves");
    let held = ledger.instance(&key).unwrap().held_until().unwrap();
    assert!(points(held.millis()) < limits::PENALTY_FREE && points(held.millis() - 1) >= limits::PENALTY_FREE);
    // However often it falls, it is held down for ten minutes at most.
    for _ in 0..2_000 {
        all_accepted(&mut ledger, 1, [check(down), check(up)]);
    }
    let held = ledger.instance(&key).unwrap().held_until().unwrap();
    assert_eq!(held, Moment::from_millis(1 + limits::HELD_MS_MAX));
}

#[test]
fn services_are_limited() {
    let mut ledger = Ledger::default();
    let (mut commands, max) = (Vec::new(), limits::SERVICES_MAX as u64);
    for lease in 1..=10 {
        commands.push(crate::support::grant(lease, 600_000));
    }
    all_accepted(&mut ledger, 0, commands);
    let on = |service: u64, lease: u64, instance: &str| {
        let instance = InstanceKey { service: name(&format!("s{service}")), id: key_id(instance) };
        let on = On::Given(id(lease));
        Command::Register(Register { instance, epoch: None, on, details: details(None), request: None })
    };
    let each = limits::ATTACHED_MAX as u64;
    all_accepted(&mut ledger, 0, (0..max).map(|service| on(service, 1 + service / each, "a")));
    assert_eq!(ledger.service_count(), limits::SERVICES_MAX);
    let many = Refusal::Full { what: "things attached to one lease tree".into(), max: limits::ATTACHED_MAX };
    assert_eq!(refusal(&mut ledger, on(0, 1, "b")), many, "instances count on their lease");
    all_accepted(&mut ledger, 0, [crate::support::grant(11, 600_000), on(0, 11, "b")]);
    let full = Refusal::Full { what: "services".into(), max: limits::SERVICES_MAX };
    assert_eq!(refusal(&mut ledger, on(max, 11, "a")), full);
}

fn key_id(text: &str) -> tenure_core::InstanceId {
    tenure_core::InstanceId::parse(text).unwrap()
}

/// A class of its own policy is asked for each renewal, also if its leases are registrations.
#[test]
fn a_registration_is_renewed_as_its_class_says() {
    let mut ledger = Ledger::default();
    let class = |renew| tenure_core::Class {
        name: name("registration"),
        ttl: ttl(15_000),
        ttl_min: ttl(10_000),
        ttl_max: ttl(20_000),
        renew,
        grace: Span::ZERO,
        lifetime: None,
    };
    all_accepted(&mut ledger, 0, [register_at(1, "api", 15_000)]);
    let renewed = |ledger: &mut Ledger, command| match crate::support::order(ledger, 1_000, command).unwrap() {
        tenure_core::Reply::Renewed(mut answers) => answers.remove(0),
        other => panic!("{other:?}"),
    };
    assert_eq!(renewed(&mut ledger, renew([1])).unwrap().ttl_ms, 15_000);
    all_accepted(&mut ledger, 1_000, [Command::SetClass(class(tenure_core::Policy::Auto))]);
    let leases = vec![tenure_core::Renewal { lease: id(1), ttl: Some(ttl(60_000)) }];
    let too_long = Command::Renew(tenure_core::Renew { leases, kind: tenure_core::Kind::Auto });
    assert!(matches!(renewed(&mut ledger, too_long), Err(Refusal::TtlOfClass { .. })));
    all_accepted(&mut ledger, 1_000, [Command::SetClass(class(tenure_core::Policy::Explicit))]);
    assert!(matches!(renewed(&mut ledger, renew([1])), Err(Refusal::NotRenewable { .. })));
    assert!(matches!(renewed(&mut restored(&ledger), renew([1])), Err(Refusal::NotRenewable { .. })));
}

/// Ends are remembered up to a bound, for each id and over all, the oldest forgotten first; a restart remembers the same.
#[test]
fn ended_instances_are_remembered_up_to_a_bound() {
    let lives = |lease: u64, service: &str| {
        let Command::Register(register) = register_at(lease, service, 60_000) else { unreachable!() };
        let instance = InstanceKey { id: key_id("a"), ..register.instance.clone() };
        let gone = tenure_core::Deregister { instance: instance.clone(), lease: None, force: None, request: None };
        [Command::Register(Register { instance, ..register }), Command::Deregister(gone)]
    };
    let ends = |ledger: &Ledger, service: &str| -> Vec<u64> {
        let key = InstanceKey { service: name(service), id: key_id("a") };
        ledger.ended_instances(&key).map(|ended| ended.lease.number()).collect()
    };
    let (mut ledger, each) = (Ledger::default(), limits::ENDED_INSTANCES_PER_ID_MAX as u64);
    all_accepted(&mut ledger, 0, (1..=each + 2).flat_map(|lease| lives(lease, "api")));
    assert_eq!(ends(&ledger, "api"), (3..=each + 2).collect::<Vec<_>>());
    let all = limits::ENDED_INSTANCES_MAX as u64;
    all_accepted(&mut ledger, 0, (1..=all - each).flat_map(|n| lives(100 + n, &format!("s{n}"))));
    assert_eq!(ends(&ledger, "api").len() as u64, each, "there is room for all of them");
    for mut ledger in [restored(&ledger), ledger] {
        all_accepted(&mut ledger, 0, lives(99, "one/more"));
        assert_eq!(ends(&ledger, "api"), (4..=each + 2).collect::<Vec<_>>(), "the oldest is forgotten");
        assert_eq!((ends(&ledger, "s1"), ends(&ledger, "one/more")), (vec![101], vec![99]));
    }
}
