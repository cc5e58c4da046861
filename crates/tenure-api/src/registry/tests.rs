//! What is said of instances is read and written alike, and every bad value is refused by its own code.

use super::*;
use crate::code::Code;
use crate::failure::{code_of, failure};
use crate::read_details;
use crate::v1::request::Body;
use crate::write::{event, write_outcome};
use tenure_core::{
    BadDetails, Command, Deregister, Draft, Drain, Edit, End, Endpoint, Event, Force, Free, Grant, Holder, InstanceKey,
    Labels, LeaseId, Name, Note, On, Register, Reply, RequestNumber, Revision, SetHealth, Span, Ttl, UpdateInstance,
};

fn read(body: Body) -> Result<Command, Code> {
    crate::read_request(Some(body), &|| lease(99)).map_err(|bad| {
        let failure = bad.failure();
        assert!(failure.message.ends_with("; nothing was changed"), "{bad:?}");
        assert_eq!((failure.code.as_str(), bad.code().http()), (bad.code().text(), 400));
        bad.code()
    })
}

fn lease(number: u64) -> LeaseId {
    LeaseId::from_number(number).unwrap()
}

fn key() -> InstanceKey {
    InstanceKey::parse("a/b/i").unwrap()
}

fn word(text: &str) -> Word {
    Word::parse(text).unwrap()
}

fn ann() -> Holder {
    Holder::parse("ann").unwrap()
}

fn span(ms: u64) -> Span {
    Span::at_most(ms, u64::MAX).unwrap()
}

/// Makes a check into one that cannot be.
type Change = fn(&mut v1::Check);

fn full() -> v1::Details {
    let check =
        |name: &str, kind: v1::CheckKind| v1::Check { name: name.into(), kind: kind.into(), ..v1::Check::default() };
    let probed = |name: &str, kind| v1::Check {
        endpoint: 1,
        interval_ms: Some(5_000),
        timeout_ms: Some(400),
        degraded_after: Some(2),
        failures: Some(4),
        successes: Some(3),
        ..check(name, kind)
    };
    v1::Details {
        endpoints: vec!["http://10.0.0.7:8080".into(), "grpc://[::1]:9000".into()],
        capabilities: vec!["cuda12".into(), "gpu".into()],
        labels: [("k".into(), "v".into())].into(),
        zone: "eu-1".into(),
        weight: Some(0),
        version: "1.2+3".into(),
        checks: vec![
            v1::Check { ttl_ms: 30_000, ..check("pushed", v1::CheckKind::Pushed) },
            probed("tcp", v1::CheckKind::Tcp),
            v1::Check {
                path: "/healthz?x=1".into(),
                status_min: Some(200),
                status_max: Some(204),
                ..probed("http", v1::CheckKind::Http)
            },
            v1::Check { grpc_service: "svc".into(), ..probed("grpc", v1::CheckKind::Grpc) },
        ],
        on_critical: v1::OnCritical::Revoke.into(),
        revoke_after_ms: 60_000,
    }
}

#[test]
fn what_an_instance_says_is_read_as_it_is_written() {
    let details = read_details(&full()).unwrap();
    assert_eq!(write_details(&details), full());
    assert_eq!((details.weight, details.on_critical), (0, OnCritical::RevokeAfter(span(60_000))));
    let Source::Probed(http) = &details.checks[2].source else { panic!("{details:?}") };
    assert_eq!((http.endpoint, http.interval, http.timeout), (1, span(5_000), span(400)));
    assert_eq!((http.degraded_after, http.failures, http.successes), (2, 4, 3));
    assert_eq!(http.ask, Ask::Http { path: "/healthz?x=1".into(), statuses: 200..=204 });
}

#[test]
fn what_is_left_out_is_usual() {
    let plain = v1::Details { endpoints: vec!["tcp://h:1".into()], ..v1::Details::default() };
    let expected = Details::new(Draft::at(vec![Endpoint::parse("tcp://h:1").unwrap()])).unwrap();
    assert_eq!(read_details(&plain), Ok(expected), "a weight of 1, and no checks");
    let with =
        |check| read_details(&v1::Details { checks: vec![check], ..plain.clone() }).unwrap().checks[0].source.clone();
    let named = || v1::Check { name: "c".into(), ..v1::Check::default() };
    assert_eq!(with(named()), Source::Pushed { ttl: None });
    let http = v1::Check { kind: v1::CheckKind::Http.into(), ..named() };
    let ask = Ask::Http { path: "/".into(), statuses: 200..=299 };
    let (interval, timeout) = (span(10_000), span(2_000));
    let usual = Probe { endpoint: 0, ask, interval, timeout, degraded_after: 1, failures: 3, successes: 2 };
    assert_eq!(with(http.clone()), Source::Probed(usual.clone()));
    let quick = v1::Check { interval_ms: Some(1_000), status_min: Some(204), ..http };
    let ask = Ask::Http { path: "/".into(), statuses: 204..=204 };
    let often = Probe { interval: span(1_000), timeout: span(1_000), ask, ..usual };
    assert_eq!(with(quick), Source::Probed(often), "a timeout is no longer than the interval");
}

fn register() -> v1::RegisterRequest {
    let grant = v1::GrantRequest { holder: "ann".into(), ttl_ms: 5_000, ..v1::GrantRequest::default() };
    v1::RegisterRequest {
        service: "a/b".into(),
        id: "i".into(),
        epoch: 3,
        grant: Some(grant),
        lease: 0,
        details: Some(full()),
        ..v1::RegisterRequest::default()
    }
}

#[test]
fn every_order_becomes_the_command_that_it_says() {
    let grant = Grant {
        lease: lease(99),
        holder: ann(),
        request: 0,
        ttl: Some(Ttl::from_millis(5_000).unwrap()),
        class: Some(Name::parse("registration").unwrap()),
        grace: None,
        lifetime: None,
        parent: None,
        labels: Labels::default(),
        reason: Note::default(),
    };
    let registered = Register {
        instance: key(),
        epoch: Epoch::from_number(3),
        on: On::New(grant.clone()),
        details: read_details(&full()).unwrap(),
        request: None,
    };
    assert_eq!(read(Body::Register(register())), Ok(Command::Register(registered.clone())));
    let by_class = v1::RegisterRequest {
        grant: Some(v1::GrantRequest { holder: "ann".into(), ..v1::GrantRequest::default() }),
        ..register()
    };
    let on = On::New(Grant { ttl: None, ..grant });
    assert_eq!(read(Body::Register(by_class)), Ok(Command::Register(Register { on, ..registered.clone() })));
    let given = v1::RegisterRequest { grant: None, lease: 7, number: 2, answered_below: 1, ..register() };
    let (on, request) = (On::Given(lease(7)), RequestNumber::new(2, 1));
    assert_eq!(read(Body::Register(given)), Ok(Command::Register(Register { on, request, ..registered })));
    let of_new = v1::RegisterRequest { number: 2, ..register() };
    assert_eq!(read(Body::Register(of_new)), Err(Code::BadRequest));

    let (service, id) = (String::from("a/b"), String::from("i"));
    let nothing = v1::UpdateInstanceRequest { service: service.clone(), id: id.clone(), ..Default::default() };
    let unchanged = UpdateInstance { instance: key(), lease: None, edit: Edit::default() };
    assert_eq!(read(Body::UpdateInstance(nothing.clone())), Ok(Command::UpdateInstance(unchanged)));
    let taken_back = v1::UpdateInstanceRequest {
        lease: 7,
        zone: Some(String::new()),
        weight: Some(5),
        checks: Some(v1::Checks::default()),
        on_critical: v1::OnCritical::Observe.into(),
        ..nothing
    };
    let edit = Edit {
        zone: Some(None),
        weight: Some(5),
        checks: Some(Vec::new()),
        on_critical: Some(OnCritical::Observe),
        ..Edit::default()
    };
    let changed = UpdateInstance { instance: key(), lease: Some(lease(7)), edit };
    assert_eq!(read(Body::UpdateInstance(taken_back)), Ok(Command::UpdateInstance(changed)));

    let (by, reason) = (ann(), Note::parse("why").unwrap());
    let undrain = v1::DrainRequest {
        service: service.clone(),
        id: id.clone(),
        undrain: true,
        by: "ann".into(),
        reason: "why".into(),
        lease: 7,
    };
    let undrained = Drain { instance: key(), lease: Some(lease(7)), on: false, by: by.clone(), reason: reason.clone() };
    assert_eq!(read(Body::Drain(undrain)), Ok(Command::Drain(undrained)));
    let forced = Some(v1::Force { by: "ann".into(), reason: "why".into(), now: true });
    let order = v1::DeregisterRequest {
        service: service.clone(),
        id: id.clone(),
        lease: 7,
        force: forced,
        number: 4,
        answered_below: 1,
    };
    let force = Some(Force { by, reason, free: Free::Now });
    let deregister = Deregister { instance: key(), lease: Some(lease(7)), force, request: RequestNumber::new(4, 1) };
    assert_eq!(read(Body::Deregister(order)), Ok(Command::Deregister(deregister)));
    let health = v1::Health::Degraded.into();
    let set = v1::SetHealthRequest { service, id, lease: 7, check: "c".into(), health, note: "slow".into() };
    let note = Note::parse("slow").unwrap();
    let set_health = SetHealth { instance: key(), lease: lease(7), check: word("c"), health: Health::Degraded, note };
    assert_eq!(read(Body::SetHealth(set)), Ok(Command::SetHealth(set_health)));
}

#[test]
fn bad_instances_are_refused() {
    let with = |change: fn(&mut v1::RegisterRequest)| {
        let mut asked = register();
        change(&mut asked);
        Body::Register(asked)
    };
    let said = |change: fn(&mut v1::Details)| {
        let mut details = full();
        change(&mut details);
        Body::Register(v1::RegisterRequest { details: Some(details), ..register() })
    };
    let bad = [
        (with(|it| it.service.clear()), Code::BadName),
        (with(|it| it.id = "a/b".into()), Code::BadWord),
        (with(|it| it.epoch = u64::MAX), Code::BadEpoch),
        (with(|it| it.lease = 7), Code::BadRequest),
        (with(|it| it.grant = None), Code::BadRequest),
        (with(|it| it.details = None), Code::BadRequest),
        (with(|it| it.grant.as_mut().unwrap().ttl_ms = 1), Code::BadTtl),
        (said(|it| it.endpoints.clear()), Code::BadInstance),
        (said(|it| it.endpoints[0] = "http://h".into()), Code::BadEndpoint),
        (said(|it| it.endpoints[0] = "http://u@h:1/x".into()), Code::BadEndpoint),
        (said(|it| it.endpoints[1] = it.endpoints[0].clone()), Code::BadInstance),
        (said(|it| it.endpoints = (1..=17).map(|n| format!("http://h:{n}")).collect()), Code::BadInstance),
        (said(|it| it.capabilities[0] = "a b".into()), Code::BadWord),
        (said(|it| it.capabilities = (0..65).map(|n| format!("c{n}")).collect()), Code::BadInstance),
        (said(|it| it.labels = (0..10_000).map(|n| (format!("k{n}"), String::new())).collect()), Code::BadLabel),
        (said(|it| it.zone = "-".into()), Code::BadWord),
        (said(|it| it.version = "a=b".into()), Code::BadWord),
        (said(|it| it.weight = Some(65_536)), Code::BadInstance),
        (said(|it| it.on_critical = 9), Code::BadInstance),
        (said(|it| it.on_critical = 1), Code::BadInstance),
        (said(|it| it.revoke_after_ms = -1), Code::BadSpan),
        (said(|it| it.revoke_after_ms = 86_400_001), Code::BadSpan),
    ];
    for (body, code) in bad {
        assert_eq!(read(body.clone()), Err(code), "{body:?}");
    }
}

#[test]
fn bad_checks_are_refused() {
    let with = |at: usize, change: fn(&mut v1::Check)| {
        let mut details = full();
        change(&mut details.checks[at]);
        read(Body::Register(v1::RegisterRequest { details: Some(details), ..register() }))
    };
    let (pushed, tcp, http, grpc) = (0, 1, 2, 3);
    assert_eq!(with(pushed, |it| it.name.clear()), Err(Code::BadWord));
    let bad: [(usize, Change); 19] = [
        (pushed, |it| it.name = "tcp".into()),
        (pushed, |it| it.kind = 5),
        (pushed, |it| it.ttl_ms = 999),
        (pushed, |it| it.interval_ms = Some(5_000)),
        (pushed, |it| it.failures = Some(1)),
        (pushed, |it| it.endpoint = 1),
        (tcp, |it| it.ttl_ms = 5_000),
        (tcp, |it| it.path = "/".into()),
        (tcp, |it| it.interval_ms = Some(0)),
        (tcp, |it| it.interval_ms = Some(365 * 86_400_000)),
        (tcp, |it| it.timeout_ms = Some(5_001)),
        (tcp, |it| it.timeout_ms = Some(9)),
        (tcp, |it| it.endpoint = 2),
        (tcp, |it| it.successes = Some(0)),
        (tcp, |it| it.degraded_after = Some(5)),
        (http, |it| it.path = "healthz".into()),
        (http, |it| it.status_max = Some(70_000)),
        (http, |it| it.grpc_service = "s".into()),
        (grpc, |it| it.status_min = Some(200)),
    ];
    for (n, (at, change)) in bad.into_iter().enumerate() {
        let refused = with(at, change);
        let expected = if n == 0 { Code::BadInstance } else { Code::BadCheck };
        assert_eq!(refused, Err(expected), "number {n}");
    }
    assert_eq!(with(tcp, |it| it.interval_ms = Some(-1)), Err(Code::BadSpan));
    let set = |health, lease| {
        let set = v1::SetHealthRequest {
            service: "a".into(),
            id: "i".into(),
            lease,
            check: "c".into(),
            health,
            note: String::new(),
        };
        read(Body::SetHealth(set))
    };
    assert_eq!(set(0, 7), Err(Code::BadHealth));
    assert_eq!(set(5, 7), Err(Code::BadHealth));
    assert_eq!(set(1, 0), Err(Code::BadLease));
}

#[test]
fn every_reply_and_every_event_tells_its_facts() {
    let revision = Revision(5);
    let registered = Registered { lease: lease(7), ttl_ms: 9, overall: Health::Unknown, held_ms: Some(8), revision };
    let (unknown, degraded) = (v1::Health::Unknown.into(), v1::Health::Degraded.into());
    use crate::v1::response::Body as Tell;
    let told = [
        (
            Reply::Registered(registered),
            Tell::Register(v1::RegisterReply {
                lease: 7,
                ttl_ms: 9,
                health: unknown,
                held_down_ms: Some(8),
                revision: 5,
            }),
        ),
        (Reply::Updated { revision }, Tell::UpdateInstance(v1::UpdateInstanceReply { revision: 5 })),
        (Reply::Drained { revision }, Tell::Drain(v1::DrainReply { revision: 5 })),
        (Reply::Deregistered { revision }, Tell::Deregister(v1::DeregisterReply { revision: 5 })),
        (
            Reply::HealthSet { overall: Health::Degraded, held_ms: None, revision },
            Tell::SetHealth(v1::SetHealthReply { health: degraded, held_down_ms: None, revision: 5 }),
        ),
    ];
    for (reply, body) in told {
        assert_eq!(write_outcome(&Ok(reply)), body);
    }
    let (instance, lease, reason) = (key(), lease(7), Note::parse("why").unwrap());
    let judgement = Judgement { at: Moment::from_millis(4), members: 100, late: 90 };
    let until = Moment::from_millis(8);
    let of = |kind: &str| v1::Event { kind: kind.into(), lease: 7, instance: "a/b/i".into(), ..v1::Event::default() };
    let by = |kind: &str| v1::Event { by: "ann".into(), reason: "why".into(), ..of(kind) };
    let check = Some((word("c"), Health::Critical));
    let facts = v1::Judgement { members: 100, late: 90, threshold: judgement.threshold(), correlated: true, at_ms: 4 };
    let ended = v1::End { how: "unhealthy".into(), ..v1::End::default() };
    let happened = [
        (
            Happening::Registered { instance: instance.clone(), lease, holder: ann(), epoch: Epoch::from_number(3) },
            v1::Event { holder: "ann".into(), epoch: 3, ..of("registered") },
        ),
        (Happening::Updated { instance: instance.clone(), lease }, of("updated")),
        (Happening::Drained { instance: instance.clone(), lease, by: ann(), reason: reason.clone() }, by("drained")),
        (Happening::Undrained { instance: instance.clone(), lease, by: ann(), reason }, by("undrained")),
        (
            Happening::HealthChanged {
                instance: instance.clone(),
                lease,
                check,
                overall: Health::Degraded,
                held_until: Some(until),
            },
            v1::Event {
                check: "c".into(),
                check_health: v1::Health::Critical.into(),
                health: degraded,
                until_ms: Some(8),
                ..of("health_changed")
            },
        ),
        (
            Happening::Deregistered { instance: instance.clone(), lease, how: End::Unhealthy },
            v1::Event { end: Some(ended), ..of("deregistered") },
        ),
        (
            Happening::Suspected { instance: instance.clone(), lease, until, judgement },
            v1::Event { until_ms: Some(8), judgement: Some(facts), ..of("suspected") },
        ),
        (Happening::Cleared { instance, lease }, of("cleared")),
    ];
    for (what, expected) in happened {
        let message = event(&Event { revision, n: 0, last: true, at: until, wall_ms: 9, api_key: None, what });
        assert_eq!(v1::Event { revision: 0, last: false, at_ms: 0, wall_ms: 0, ..message }, expected);
    }
}

#[test]
fn every_refusal_of_an_instance_tells_its_facts() {
    let instance = key();
    let plain = || v1::Failure { instance: "a/b/i".into(), ..v1::Failure::default() };
    let end = v1::End { how: "expired".into(), when_ms: 5, wall_ms: 9, ..v1::End::default() };
    let ended = Some((End::Expired, Moment::from_millis(5), 9));
    let weight = BadDetails::Weight { weight: 70_000 };
    let bad = BadDetails::Check { name: word("c"), bad: tenure_core::BadCheck::Path };
    let refusals = [
        (Refusal::NoInstance { instance: instance.clone(), ended: None }, Code::NoInstance, plain()),
        (
            Refusal::NoInstance { instance: instance.clone(), ended },
            Code::NoInstance,
            v1::Failure { end: Some(end), ..plain() },
        ),
        (
            Refusal::InstanceExists { instance: instance.clone(), holder: ann(), epoch: Some(3), remaining_ms: 8 },
            Code::InstanceExists,
            v1::Failure { holder: "ann".into(), epoch: 3, remaining_ms: 8, ..plain() },
        ),
        (
            Refusal::OlderInstance { instance: instance.clone(), asked: 2, current: 3 },
            Code::OlderEpoch,
            v1::Failure { asked: 2, epoch: 3, ..plain() },
        ),
        (
            Refusal::OtherLease { instance: instance.clone(), lease: lease(7), holder: ann() },
            Code::OtherLease,
            v1::Failure { lease: 7, holder: "ann".into(), ..plain() },
        ),
        (
            Refusal::NoCheck { instance: instance.clone(), check: word("c") },
            Code::NoCheck,
            v1::Failure { check: "c".into(), ..plain() },
        ),
        (Refusal::BadInstance { instance: instance.clone(), why: weight }, Code::BadInstance, plain()),
        (Refusal::BadInstance { instance, why: bad }, Code::BadCheck, plain()),
    ];
    for (refusal, code, facts) in refusals {
        let told = failure(&refusal);
        assert_eq!(code_of(&told), Some(code), "{refusal:?}");
        assert!(told.message.ends_with("; nothing was changed"), "{}", told.message);
        assert_eq!(v1::Failure { code: String::new(), message: String::new(), ..told }, facts);
    }
}
