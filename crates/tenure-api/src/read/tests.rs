//! Every request in full becomes the command that it says, and every bad value is refused by its own code.

use super::read_request;
use crate::code::Code;
use crate::v1;
use crate::v1::request::Body;
use crate::v1::{delete_request, revoke_request};
use std::collections::BTreeMap;
use tenure_core::{
    Acquire, Break, Cancel, Class, Command, Counts, Define, Delete, Epoch, Fence, Force, Free, Grant, Handle, Hang,
    Holder, Key, Keys, Kind, Label, Labels, LeaseId, Lifetime, Mode, Name, Note, On, Policy, Priority, Proof, Put,
    Release, ReleaseLease, Renew, RenewHandle, Renewal, RequestNumber, Revoke, Secret, Span, Transfer, Ttl, Units,
    Wait, Want, Which,
};

fn read(body: Body) -> Result<Command, Code> {
    read_request(Some(body), &|| lease(99)).map_err(|bad| {
        let failure = bad.failure();
        assert!(failure.message.ends_with("; nothing was changed") && !failure.message.starts_with(';'), "{bad:?}");
        assert_eq!((failure.code.as_str(), bad.code().http()), (bad.code().text(), 400));
        bad.code()
    })
}

fn lease(number: u64) -> LeaseId {
    LeaseId::from_number(number).unwrap()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn holder(text: &str) -> Holder {
    Holder::parse(text).unwrap()
}

fn note(text: &str) -> Note {
    Note::parse(text).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn span(ms: u64) -> Span {
    Span::at_most(ms, u64::MAX).unwrap()
}

fn units(number: u64) -> Units {
    Units::from_number(number).unwrap()
}

fn handle() -> Handle {
    Handle { resource: name("db"), fence: Fence::from_number(7).unwrap() }
}

fn force(free: Free) -> Force {
    Force { by: holder("op"), reason: note("why"), free }
}

fn full_grant() -> v1::GrantRequest {
    v1::GrantRequest {
        lease: 5,
        holder: "ann".into(),
        ttl_ms: 1_000,
        request: 6,
        class: "session".into(),
        grace_ms: Some(200),
        lifetime_ms: 3_000,
        lifetime_while_others_wait: true,
        parent: 4,
        labels: BTreeMap::from([("app".into(), "web".into()), ("zone".into(), String::new())]),
        reason: "tests".into(),
    }
}

fn grant() -> Grant {
    Grant {
        lease: lease(5),
        holder: holder("ann"),
        request: 6,
        ttl: Some(ttl(1_000)),
        class: Some(name("session")),
        grace: Some(span(200)),
        lifetime: Some(Lifetime { span: span(3_000), counts: Counts::WhileOthersWait }),
        parent: Some(lease(4)),
        labels: Labels::parse([("app", "web"), ("zone", "")]).unwrap(),
        reason: note("tests"),
    }
}

fn plain_grant() -> v1::GrantRequest {
    v1::GrantRequest { lease: 5, holder: "ann".into(), ttl_ms: 1_000, request: 6, ..v1::GrantRequest::default() }
}

fn want(resource: &str, mode: v1::Mode, units: u64, capacity: u64) -> v1::Want {
    v1::Want { resource: resource.into(), mode: mode.into(), units, capacity }
}

fn full_acquire() -> v1::AcquireRequest {
    v1::AcquireRequest {
        resource: String::new(),
        grant: Some(full_grant()),
        lease: 0,
        wait: true,
        wants: vec![
            want("a", v1::Mode::Unspecified, 0, 0),
            want("b", v1::Mode::Exclusive, 0, 0),
            want("c", v1::Mode::Shared, 0, 0),
            want("d", v1::Mode::Units, 2, 8),
        ],
        priority: -3,
        lock_delay_ms: 400,
        epoch: 12,
        wait_limit_ms: 5_000,
        release_secret: 9,
        ..v1::AcquireRequest::default()
    }
}

fn numbered() -> v1::CancelRequest {
    v1::CancelRequest { number: 3, answered_below: 2, release_secret: 9, ..v1::CancelRequest::default() }
}

fn shown(secret: u64) -> Proof {
    Proof::of(Secret::new(secret))
}

#[test]
fn a_grant_is_read_whole() {
    assert_eq!(read(Body::Grant(full_grant())), Ok(Command::Grant(grant())));
    let plain = Grant::plain(lease(5), holder("ann"), ttl(1_000), 6);
    assert_eq!(read(Body::Grant(plain_grant())), Ok(Command::Grant(plain.clone())));
    let drawn = v1::GrantRequest { lease: 0, ..plain_grant() };
    assert_eq!(read(Body::Grant(drawn)), Ok(Command::Grant(Grant { lease: lease(99), ..plain.clone() })));
    // No grace is not the same as a grace that is not said.
    let no_grace = v1::GrantRequest { grace_ms: Some(0), ..plain_grant() };
    assert_eq!(read(Body::Grant(no_grace)), Ok(Command::Grant(Grant { grace: Some(Span::ZERO), ..plain.clone() })));
    let as_the_class_says = v1::GrantRequest { ttl_ms: 0, class: "lock".into(), ..plain_grant() };
    let grant = Grant { ttl: None, class: Some(name("lock")), ..plain };
    assert_eq!(read(Body::Grant(as_the_class_says)), Ok(Command::Grant(grant)));
}

#[test]
fn an_acquire_is_read_whole() {
    let want = |resource, mode, capacity| Want { resource: name(resource), mode, capacity };
    let acquire = Acquire {
        on: On::New(grant()),
        wants: vec![
            want("a", Mode::Exclusive, None),
            want("b", Mode::Exclusive, None),
            want("c", Mode::Shared, None),
            want("d", Mode::Units(units(2)), Some(units(8))),
        ],
        wait: Wait::InLine { limit: Some(span(5_000)) },
        priority: Priority::from_number(-3).unwrap(),
        lock_delay: span(400),
        epoch: Epoch::from_number(12),
        request: None,
        secret: Secret::new(9),
    };
    assert_eq!(read(Body::Acquire(full_acquire())), Ok(Command::Acquire(acquire)));
    let given = v1::AcquireRequest { resource: "a".into(), lease: 5, ..v1::AcquireRequest::default() };
    let plain = |wait| Command::Acquire(Acquire::exclusive(On::Given(lease(5)), name("a"), wait));
    assert_eq!(read(Body::Acquire(given.clone())), Ok(plain(Wait::Never)));
    let numbered = Acquire {
        request: RequestNumber::new(7, 5),
        ..Acquire::exclusive(On::Given(lease(5)), name("a"), Wait::Never)
    };
    let asked = v1::AcquireRequest { number: 7, answered_below: 5, ..given.clone() };
    assert_eq!(read(Body::Acquire(asked)), Ok(Command::Acquire(numbered)));
    assert_eq!(read(Body::Acquire(v1::AcquireRequest { wait: true, ..given })), Ok(plain(Wait::IN_LINE)));
}

#[test]
fn renewals_are_read_whole() {
    let kinds = [
        (v1::RenewKind::Auto, Kind::Auto),
        (v1::RenewKind::Touch, Kind::Touch),
        (v1::RenewKind::Explicit, Kind::Explicit),
    ];
    for (asked, kind) in kinds {
        let renew = v1::RenewRequest { leases: vec![5, 6], ttls_ms: vec![1_000, 0], kind: asked.into() };
        let leases = vec![Renewal { lease: lease(5), ttl: Some(ttl(1_000)) }, Renewal { lease: lease(6), ttl: None }];
        assert_eq!(read(Body::Renew(renew)), Ok(Command::Renew(Renew { leases, kind })));
        let renew = v1::RenewHandleRequest { handle: "db@7".into(), ttl_ms: 1_000, kind: asked.into() };
        let renewed = RenewHandle { handle: handle(), ttl: Some(ttl(1_000)), kind };
        assert_eq!(read(Body::RenewHandle(renew)), Ok(Command::RenewHandle(renewed)));
    }
}

#[test]
fn what_gives_back_is_read_whole() {
    let release = v1::ReleaseRequest { handle: "db@7".into(), release_secret: 9 };
    assert_eq!(read(Body::Release(release)), Ok(Command::Release(Release { handle: handle(), proof: shown(9) })));
    let release = v1::ReleaseLeaseRequest { lease: 5, release_secret: 0 };
    assert_eq!(
        read(Body::ReleaseLease(release)),
        Ok(Command::ReleaseLease(ReleaseLease { lease: lease(5), proof: Proof::Handle }))
    );
    let one = v1::CancelRequest { lease: 5, resource: "a".into(), ..numbered() };
    let cancel = |resources| {
        Ok(Command::Cancel(Cancel { lease: lease(5), resources, request: RequestNumber::new(3, 2), proof: shown(9) }))
    };
    assert_eq!(read(Body::Cancel(one)), cancel(vec![name("a")]));
    let two = v1::CancelRequest { lease: 5, resources: vec!["a".into(), "b".into()], ..numbered() };
    assert_eq!(read(Body::Cancel(two)), cancel(vec![name("a"), name("b")]));
}

fn revoke(which: revoke_request::Which, from: &str) -> v1::RevokeRequest {
    let which = Some(which);
    v1::RevokeRequest { which, by: "op".into(), reason: "why".into(), from: from.into(), now: true }
}

#[test]
fn a_revoke_is_read_whole() {
    let label = v1::Label { key: "app".into(), value: "web".into() };
    let revokes = [
        (revoke(revoke_request::Which::Lease(5), ""), Which::Lease(lease(5))),
        (
            revoke(revoke_request::Which::Prefix("jobs/".into()), "jobs/m"),
            Which::Prefix { prefix: "jobs/".into(), from: "jobs/m".into() },
        ),
        (
            revoke(revoke_request::Which::Holder("ann".into()), "12"),
            Which::Holder { holder: holder("ann"), from: Some(lease(12)) },
        ),
        (
            revoke(revoke_request::Which::Label(label), ""),
            Which::Label { label: Label::parse("app", "web").unwrap(), from: None },
        ),
    ];
    for (asked, which) in revokes {
        let later = v1::RevokeRequest { now: false, ..asked.clone() };
        let revoke = |free| Ok(Command::Revoke(Revoke { which: which.clone(), force: force(free) }));
        assert_eq!(read(Body::Revoke(asked)), revoke(Free::Now));
        assert_eq!(read(Body::Revoke(later)), revoke(Free::WhenVacated));
    }
}

fn full_break() -> v1::BreakRequest {
    let (by, reason) = ("op".into(), "why".into());
    v1::BreakRequest { resource: "db".into(), fence: 7, by, reason, now: true, delay_ms: 300 }
}

#[test]
fn breaks_and_transfers_are_read_whole() {
    let order = Break { resource: name("db"), fence: Fence::from_number(7), force: force(Free::Now), delay: span(300) };
    assert_eq!(read(Body::BreakClaims(full_break())), Ok(Command::Break(order.clone())));
    let all_gently = v1::BreakRequest { fence: 0, now: false, delay_ms: 0, ..full_break() };
    let order = Break { fence: None, force: force(Free::WhenVacated), delay: Span::ZERO, ..order };
    assert_eq!(read(Body::BreakClaims(all_gently)), Ok(Command::Break(order)));
    let by_holder = v1::TransferRequest { handle: "db@7".into(), to: 6, force: None };
    let transfer = Transfer { handle: handle(), to: lease(6), force: None };
    assert_eq!(read(Body::Transfer(by_holder.clone())), Ok(Command::Transfer(transfer.clone())));
    for (now, free) in [(true, Free::Now), (false, Free::WhenVacated)] {
        let by_other = Some(v1::Force { by: "op".into(), reason: "why".into(), now });
        let asked = v1::TransferRequest { force: by_other, ..by_holder.clone() };
        let transfer = Transfer { force: Some(force(free)), ..transfer.clone() };
        assert_eq!(read(Body::Transfer(asked)), Ok(Command::Transfer(transfer)));
    }
}

fn full_class() -> v1::Class {
    v1::Class {
        name: "batch".into(),
        ttl_ms: 2_000,
        ttl_min_ms: 1_000,
        ttl_max_ms: 3_000,
        renew: v1::RenewPolicy::Explicit.into(),
        grace_ms: 100,
        lifetime_ms: 4_000,
        lifetime_while_others_wait: false,
    }
}

#[test]
fn definitions_are_read_whole() {
    for capacity in [Some(3), None] {
        let define = v1::DefineResourceRequest { resource: "pool".into(), capacity };
        let defined = Define { resource: name("pool"), capacity: capacity.map(units) };
        assert_eq!(read(Body::DefineResource(define)), Ok(Command::Define(defined)));
    }
    let class = Class {
        name: name("batch"),
        ttl: ttl(2_000),
        ttl_min: ttl(1_000),
        ttl_max: ttl(3_000),
        renew: Policy::Explicit,
        grace: span(100),
        lifetime: Some(Lifetime { span: span(4_000), counts: Counts::Always }),
    };
    let set = |class| Body::SetClass(v1::SetClassRequest { class: Some(class) });
    assert_eq!(read(set(full_class())), Ok(Command::SetClass(class.clone())));
    assert_eq!(crate::write::write_class(&class), full_class(), "what is written can be read");
    let wide = v1::Class { ttl_min_ms: 0, ttl_max_ms: 0, renew: 0, lifetime_ms: 0, ..full_class() };
    let wide_class =
        Class { ttl_min: ttl(100), ttl_max: ttl(9_000_000_000_000), renew: Policy::Auto, lifetime: None, ..class };
    assert_eq!(read(set(wide)), Ok(Command::SetClass(wide_class)));
}

#[test]
fn what_is_asked_of_keys_is_read_whole() {
    let key = Key::parse(b"k\0").unwrap();
    let asked = v1::PutRequest { key: b"k\0".into(), value: Some(b"v".into()), lease: 5, keep_lease: false };
    let put = Put { key: key.clone(), value: Some(b"v".as_slice().into()), lease: Hang::On(lease(5)) };
    assert_eq!(read(Body::Put(asked.clone())), Ok(Command::Put(put.clone())));
    let attach = v1::PutRequest { value: None, ..asked.clone() };
    assert_eq!(read(Body::Put(attach)), Ok(Command::Put(Put { value: None, ..put.clone() })));
    let empty = v1::PutRequest { value: Some(Vec::new()), lease: 0, ..asked.clone() };
    let nothing = Put { value: Some(b"".as_slice().into()), lease: Hang::Free, ..put.clone() };
    assert_eq!(read(Body::Put(empty)), Ok(Command::Put(nothing)));
    let keep = v1::PutRequest { lease: 0, keep_lease: true, ..asked };
    assert_eq!(read(Body::Put(keep)), Ok(Command::Put(Put { lease: Hang::Keep, ..put })));
    let delete = |which| Body::Delete(v1::DeleteRequest { which: Some(which) });
    let one = delete(delete_request::Which::Key(b"k\0".into()));
    assert_eq!(read(one), Ok(Command::Delete(Delete { keys: Keys::One(key) })));
    for prefix in [b"k".as_slice(), b""] {
        let all = delete(delete_request::Which::Prefix(prefix.into()));
        assert_eq!(read(all), Ok(Command::Delete(Delete { keys: Keys::Prefix(prefix.into()) })));
    }
}

#[test]
fn bad_values_of_a_grant_are_refused_one_by_one() {
    let labels = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        v1::GrantRequest { labels, ..plain_grant() }
    };
    let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    let bad = [
        (v1::GrantRequest { lease: u64::MAX, ..plain_grant() }, Code::BadLease),
        (v1::GrantRequest { holder: String::new(), ..plain_grant() }, Code::BadHolder),
        (v1::GrantRequest { ttl_ms: 0, ..plain_grant() }, Code::BadTtl),
        (v1::GrantRequest { ttl_ms: -1, class: "lock".into(), ..plain_grant() }, Code::BadTtl),
        (v1::GrantRequest { ttl_ms: 99, class: "lock".into(), ..plain_grant() }, Code::BadTtl),
        (v1::GrantRequest { class: "a//b".into(), ..plain_grant() }, Code::BadClass),
        (v1::GrantRequest { grace_ms: Some(-1), ..plain_grant() }, Code::BadSpan),
        (v1::GrantRequest { grace_ms: Some(86_400_001), ..plain_grant() }, Code::BadSpan),
        (v1::GrantRequest { lifetime_ms: -1, ..plain_grant() }, Code::BadSpan),
        (v1::GrantRequest { lifetime_ms: i64::MAX, ..plain_grant() }, Code::BadSpan),
        (v1::GrantRequest { lifetime_while_others_wait: true, ..plain_grant() }, Code::BadSpan),
        (v1::GrantRequest { parent: u64::MAX, ..plain_grant() }, Code::BadLease),
        (v1::GrantRequest { reason: "a\nb".into(), ..plain_grant() }, Code::BadReason),
        (labels(&[("", "v")]), Code::BadLabel),
        (labels(&[("a=b", "v")]), Code::BadLabel),
        (labels(&[("k", "a\nb")]), Code::BadLabel),
        (labels(&[(&"k".repeat(65), "v")]), Code::BadLabel),
        (labels(&[("k", &"v".repeat(257))]), Code::BadLabel),
        (labels(&many), Code::BadLabel),
    ];
    for (grant, code) in bad {
        assert_eq!(read(Body::Grant(grant.clone())), Err(code), "{grant:?}");
        let acquire = v1::AcquireRequest { grant: Some(grant), ..full_acquire() };
        assert_eq!(read(Body::Acquire(acquire)), Err(code), "and also within an acquire");
    }
}

#[test]
fn bad_values_of_an_acquire_are_refused_one_by_one() {
    let wants = |wants| v1::AcquireRequest { wants, ..full_acquire() };
    let one = |mode: i32, units, capacity| wants(vec![v1::Want { resource: "a".into(), mode, units, capacity }]);
    let several = |count: usize| (0..count).map(|n| want(&format!("r/{n}"), v1::Mode::Shared, 0, 0)).collect();
    let bad = [
        (v1::AcquireRequest { lease: 5, ..full_acquire() }, Code::BadRequest),
        (v1::AcquireRequest { grant: None, ..full_acquire() }, Code::BadRequest),
        (v1::AcquireRequest { resource: "x".into(), ..full_acquire() }, Code::BadWants),
        (wants(Vec::new()), Code::BadName),
        (wants(several(17)), Code::BadWants),
        (wants(vec![want("a", v1::Mode::Shared, 0, 0), want("a", v1::Mode::Exclusive, 0, 0)]), Code::BadWants),
        (wants(vec![want("", v1::Mode::Shared, 0, 0)]), Code::BadName),
        (one(4, 0, 0), Code::BadMode),
        (one(-1, 0, 0), Code::BadMode),
        (one(v1::Mode::Shared.into(), 1, 0), Code::BadMode),
        (one(v1::Mode::Units.into(), 0, 0), Code::BadUnits),
        (one(v1::Mode::Units.into(), 1_000_000_001, 0), Code::BadUnits),
        (one(v1::Mode::Units.into(), 1, 1_000_000_001), Code::BadCapacity),
        (v1::AcquireRequest { priority: 1_001, ..full_acquire() }, Code::BadPriority),
        (v1::AcquireRequest { priority: i32::MIN, ..full_acquire() }, Code::BadPriority),
        (v1::AcquireRequest { lock_delay_ms: -1, ..full_acquire() }, Code::BadSpan),
        (v1::AcquireRequest { lock_delay_ms: 3_600_001, ..full_acquire() }, Code::BadSpan),
        (v1::AcquireRequest { epoch: 1 << 63, ..full_acquire() }, Code::BadEpoch),
        (v1::AcquireRequest { wait_limit_ms: -1, ..full_acquire() }, Code::BadSpan),
        (v1::AcquireRequest { wait_limit_ms: i64::MAX, ..full_acquire() }, Code::BadSpan),
        (v1::AcquireRequest { wait: false, ..full_acquire() }, Code::BadRequest),
    ];
    for (acquire, code) in bad {
        assert_eq!(read(Body::Acquire(acquire.clone())), Err(code), "{acquire:?}");
    }
    assert!(read(Body::Acquire(wants(several(16)))).is_ok(), "one below the limit is accepted");
}

#[test]
fn bad_renewals_and_cancels_are_refused() {
    let renew = |leases, ttls_ms, kind| Body::Renew(v1::RenewRequest { leases, ttls_ms, kind });
    let handle =
        |handle: &str, ttl_ms, kind| Body::RenewHandle(v1::RenewHandleRequest { handle: handle.into(), ttl_ms, kind });
    let cancel = |resource: &str, resources: &[&str]| {
        let resources = resources.iter().map(ToString::to_string).collect();
        Body::Cancel(v1::CancelRequest { lease: 5, resource: resource.into(), resources, ..numbered() })
    };
    let bad = [
        (renew(vec![0], Vec::new(), 0), Code::BadLease),
        (renew(vec![1, 2], vec![1_000], 0), Code::BadRequest),
        (renew(vec![1], vec![-1], 0), Code::BadTtl),
        (renew(vec![1; 4_097], Vec::new(), 0), Code::TooMany),
        (renew(vec![1], Vec::new(), 3), Code::BadKind),
        (handle("db", 0, 0), Code::BadHandle),
        (handle("db@7", 1, 0), Code::BadTtl),
        (handle("db@7", 0, -1), Code::BadKind),
        (Body::Release(v1::ReleaseRequest { handle: "db@".into(), release_secret: 0 }), Code::BadHandle),
        (Body::ReleaseLease(v1::ReleaseLeaseRequest::default()), Code::BadLease),
        (Body::Cancel(v1::CancelRequest { lease: 0, ..v1::CancelRequest::default() }), Code::BadLease),
        (cancel("", &[]), Code::BadName),
        (cancel("a", &["b"]), Code::BadWants),
        (cancel("", &["a", "b", "a"]), Code::BadWants),
        (cancel("", &["a"; 17]), Code::BadWants),
        (cancel("", &["a", "b//"]), Code::BadName),
        (
            Body::Cancel(v1::CancelRequest { lease: 5, resource: "a".into(), number: 1 << 53, ..numbered() }),
            Code::BadRequest,
        ),
        (Body::Cancel(v1::CancelRequest { lease: 5, resource: "a".into(), number: 0, ..numbered() }), Code::BadRequest),
        (Body::Acquire(v1::AcquireRequest { number: 1, ..full_acquire() }), Code::BadRequest),
    ];
    for (body, code) in bad {
        assert_eq!(read(body.clone()), Err(code), "{body:?}");
    }
    assert_eq!(read_request(None, &|| lease(99)).map_err(|bad| bad.code()), Err(Code::BadRequest));
}

#[test]
fn bad_forced_ends_are_refused() {
    let label = |key: &str| revoke_request::Which::Label(v1::Label { key: key.into(), value: String::new() });
    let long = "n".repeat(1_025);
    let revokes = [
        (v1::RevokeRequest { which: None, ..revoke(label("a"), "") }, Code::BadRequest),
        (revoke(revoke_request::Which::Lease(0), ""), Code::BadLease),
        (revoke(revoke_request::Which::Lease(1), "1"), Code::BadRequest),
        (revoke(revoke_request::Which::Prefix(String::new()), ""), Code::BadPrefix),
        (revoke(revoke_request::Which::Prefix(long.clone()), ""), Code::BadPrefix),
        (revoke(revoke_request::Which::Prefix("a".into()), &long), Code::BadRequest),
        (revoke(revoke_request::Which::Holder(String::new()), ""), Code::BadHolder),
        (revoke(revoke_request::Which::Holder("ann".into()), "0"), Code::BadRequest),
        (revoke(revoke_request::Which::Holder("ann".into()), "next"), Code::BadRequest),
        (revoke(label(""), ""), Code::BadLabel),
        (revoke(label("a"), "-1"), Code::BadRequest),
        (v1::RevokeRequest { by: String::new(), ..revoke(label("a"), "") }, Code::BadHolder),
        (v1::RevokeRequest { reason: "r".repeat(1_025), ..revoke(label("a"), "") }, Code::BadReason),
    ];
    for (asked, code) in revokes {
        assert_eq!(read(Body::Revoke(asked.clone())), Err(code), "{asked:?}");
    }
    let breaks = [
        (v1::BreakRequest { resource: "/db".into(), ..full_break() }, Code::BadName),
        (v1::BreakRequest { fence: 1 << 53, ..full_break() }, Code::BadHandle),
        (v1::BreakRequest { by: String::new(), ..full_break() }, Code::BadHolder),
        (v1::BreakRequest { reason: "\t".into(), ..full_break() }, Code::BadReason),
        (v1::BreakRequest { delay_ms: -1, ..full_break() }, Code::BadSpan),
        (v1::BreakRequest { delay_ms: 86_400_001, ..full_break() }, Code::BadSpan),
    ];
    for (asked, code) in breaks {
        assert_eq!(read(Body::BreakClaims(asked.clone())), Err(code), "{asked:?}");
    }
    let transfer = |handle: &str, to, force| v1::TransferRequest { handle: handle.into(), to, force };
    let nobody = Some(v1::Force { by: String::new(), reason: "why".into(), now: false });
    let transfers = [
        (transfer("db", 6, None), Code::BadHandle),
        (transfer("db@7", 0, None), Code::BadLease),
        (transfer("db@7", 6, nobody), Code::BadHolder),
    ];
    for (asked, code) in transfers {
        assert_eq!(read(Body::Transfer(asked.clone())), Err(code), "{asked:?}");
    }
}

#[test]
fn bad_definitions_and_keys_are_refused() {
    let set = |class| Body::SetClass(v1::SetClassRequest { class: Some(class) });
    let define = |resource: &str, capacity| {
        Body::DefineResource(v1::DefineResourceRequest { resource: resource.into(), capacity })
    };
    let put =
        |key: &[u8], lease, keep_lease| Body::Put(v1::PutRequest { key: key.into(), value: None, lease, keep_lease });
    let delete = |which| Body::Delete(v1::DeleteRequest { which });
    let long = vec![b'k'; 1_500_001];
    let bad = [
        (Body::SetClass(v1::SetClassRequest { class: None }), Code::BadRequest),
        (set(v1::Class { name: String::new(), ..full_class() }), Code::BadClass),
        (set(v1::Class { ttl_ms: 0, ..full_class() }), Code::BadTtl),
        (set(v1::Class { ttl_min_ms: 99, ..full_class() }), Code::BadTtl),
        (set(v1::Class { ttl_max_ms: -1, ..full_class() }), Code::BadTtl),
        (set(v1::Class { renew: 5, ..full_class() }), Code::BadClass),
        (set(v1::Class { grace_ms: -1, ..full_class() }), Code::BadSpan),
        (set(v1::Class { lifetime_ms: 0, lifetime_while_others_wait: true, ..full_class() }), Code::BadSpan),
        (define("", Some(1)), Code::BadName),
        (define("pool", Some(0)), Code::BadCapacity),
        (define("pool", Some(1_000_000_001)), Code::BadCapacity),
        (put(b"", 0, false), Code::BadKey),
        (put(&long, 0, false), Code::BadKey),
        (put(b"k", u64::MAX, false), Code::BadLease),
        (put(b"k", 5, true), Code::BadRequest),
        (delete(None), Code::BadRequest),
        (delete(Some(delete_request::Which::Key(Vec::new()))), Code::BadKey),
        (delete(Some(delete_request::Which::Prefix(long.clone()))), Code::BadKey),
    ];
    for (body, code) in bad {
        assert_eq!(read(body), Err(code));
    }
}
