//! Outcomes and events become messages here.

use crate::failure::failure;
use crate::registry::{of_instance, write_health, write_registered};
use crate::v1;
use crate::v1::acquire_reply::State;
use crate::v1::response::Body;
use std::collections::BTreeMap;
use tenure_core::{
    Class, Counts, End, Event, Happening, Labels, LeaseId, Leave, Lifetime, Mode, Moment, Name, Occupied, Outcome,
    Policy, Refusal, Renewed, Reply, Seat, Units,
};

/// The body of the response to one command.
pub fn write_outcome(outcome: &Outcome) -> Body {
    match outcome {
        Ok(reply) => write_reply(reply),
        Err(refusal) => Body::Failure(failure(refusal)),
    }
}

fn write_reply(reply: &Reply) -> Body {
    match reply {
        Reply::Granted { lease, ttl_ms, revision } => {
            Body::Grant(v1::GrantReply { lease: lease.number(), ttl_ms: *ttl_ms, revision: revision.0 })
        }
        Reply::Seated(seat) => Body::Acquire(write_seat(seat)),
        Reply::Waiting(place) => Body::Acquire(v1::AcquireReply {
            lease: place.lease.number(),
            ttl_ms: place.ttl_ms,
            revision: place.revision.0,
            state: Some(State::Place(place.place)),
            claims: Vec::new(),
        }),
        Reply::Renewed(each) => Body::Renew(write_renewed(each)),
        Reply::HandleRenewed(renewed) => Body::RenewHandle(v1::RenewHandleReply {
            lease: renewed.lease.number(),
            ttl_ms: renewed.ttl_ms,
            is_final: renewed.is_final,
            waiting: renewed.waiting,
            longest_wait_ms: renewed.longest_wait_ms,
            breaks_in_ms: renewed.breaks_in_ms,
            lost: renewed.lost,
        }),
        Reply::Released { free_in_ms } => Body::Release(v1::ReleaseReply { free_in_ms: *free_in_ms }),
        Reply::AlreadyReleased => Body::Release(v1::ReleaseReply::default()),
        Reply::Cancelled => Body::Cancel(v1::CancelReply {}),
        Reply::Revoked { count, next } => {
            Body::Revoke(v1::RevokeReply { count: *count, next: next.clone().unwrap_or_default() })
        }
        Reply::Broken { claims, free_in_ms } => {
            Body::BreakClaims(v1::BreakReply { claims: *claims, free_in_ms: *free_in_ms })
        }
        Reply::Defined { capacity } => Body::DefineResource(v1::DefineResourceReply { capacity: capacity.number() }),
        Reply::ClassSet => Body::SetClass(v1::SetClassReply {}),
        Reply::Put { kv_revision, version } => Body::Put(v1::PutReply { kv_revision: *kv_revision, version: *version }),
        Reply::Deleted { count, kv_revision } => {
            Body::Delete(v1::DeleteReply { count: *count, kv_revision: *kv_revision })
        }
        Reply::Registered(registered) => Body::Register(write_registered(registered)),
        Reply::Updated { revision } => Body::UpdateInstance(v1::UpdateInstanceReply { revision: revision.0 }),
        Reply::Drained { revision } => Body::Drain(v1::DrainReply { revision: revision.0 }),
        Reply::Deregistered { revision } => Body::Deregister(v1::DeregisterReply { revision: revision.0 }),
        Reply::HealthSet { overall, held_ms, revision } => Body::SetHealth(v1::SetHealthReply {
            health: write_health(*overall).into(),
            held_down_ms: *held_ms,
            revision: revision.0,
        }),
        Reply::Txn(_) | Reply::Compacted { .. } => unreachable!("no command of this treaty is answered so"),
    }
}

fn write_seat(seat: &Seat) -> v1::AcquireReply {
    let claim = |handle: &tenure_core::Handle| v1::Claim {
        resource: handle.resource.to_string(),
        fence: handle.fence.number(),
    };
    v1::AcquireReply {
        lease: seat.lease.number(),
        ttl_ms: seat.ttl_ms,
        revision: seat.revision.0,
        state: seat.claims.first().map(|first| State::Fence(first.fence.number())),
        claims: seat.claims.iter().map(claim).collect(),
    }
}

/// Failures in one reply that come with a sentence. The others have the code and the facts, so that a reply to many dead
/// leases is not many times as large as the request.
const RENEW_MESSAGES_MAX: usize = 16;

fn write_renewed(each: &[Result<Renewed, Refusal>]) -> v1::RenewReply {
    let mut reply = v1::RenewReply { ttls_ms: Vec::with_capacity(each.len()), ..v1::RenewReply::default() };
    for (index, renewed) in (0..).zip(each) {
        match renewed {
            Ok(renewed) => {
                reply.ttls_ms.push(renewed.ttl_ms);
                reply.notices.extend(notice(index, renewed));
            }
            Err(refusal) => {
                reply.ttls_ms.push(0);
                let mut failure = failure(refusal);
                if reply.failures.len() >= RENEW_MESSAGES_MAX {
                    failure.message.clear();
                }
                reply.failures.push(v1::RenewFailure { index, failure: Some(failure) });
            }
        }
    }
    reply
}

/// What a renewed lease has to tell besides its TTL, if anything.
fn notice(index: u32, renewed: &Renewed) -> Option<v1::RenewNotice> {
    let Renewed { is_final, waiting, longest_wait_ms, breaks_in_ms, lost, .. } = *renewed;
    let notice = v1::RenewNotice { index, is_final, waiting, longest_wait_ms, breaks_in_ms, lost };
    (is_final || waiting > 0 || breaks_in_ms.is_some() || lost > 0).then_some(notice)
}

/// How something ended.
pub fn end(how: &End) -> v1::End {
    let plain = |how: &str| v1::End { how: how.into(), ..v1::End::default() };
    match how {
        End::Released => plain("released"),
        End::Expired => plain("expired"),
        End::Revoked { by, reason } => v1::End { by: by.to_string(), reason: reason.to_string(), ..plain("revoked") },
        End::ParentEnded { parent } => v1::End { parent: parent.number(), ..plain("parent_ended") },
        End::Superseded => plain("superseded"),
        End::MaxLifetime => plain("max_lifetime"),
        End::WaitedOut => plain("waited_out"),
        End::Unhealthy => plain("unhealthy"),
        End::Transferred { to } => v1::End { to: to.to_string(), ..plain("transferred") },
    }
}

/// How and when something ended.
pub fn ended(how: &End, when: Moment, wall_ms: u64) -> v1::End {
    v1::End { when_ms: when.millis(), wall_ms, ..end(how) }
}

/// A mode, and its units: 0 for a mode that has none.
pub const fn write_mode(mode: Mode) -> (v1::Mode, u64) {
    match mode {
        Mode::Exclusive => (v1::Mode::Exclusive, 0),
        Mode::Shared => (v1::Mode::Shared, 0),
        Mode::Units(units) => (v1::Mode::Units, units.number()),
    }
}

/// What renews the leases of a class.
pub const fn write_policy(policy: Policy) -> v1::RenewPolicy {
    match policy {
        Policy::Auto => v1::RenewPolicy::Auto,
        Policy::Activity => v1::RenewPolicy::Activity,
        Policy::Explicit => v1::RenewPolicy::Explicit,
        Policy::Never => v1::RenewPolicy::Never,
    }
}

/// In which way a resource is not free, in the words of `Resource.state`.
pub const fn write_occupied(state: Occupied) -> &'static str {
    match state {
        Occupied::Held => "held",
        Occupied::Vacating => "vacating",
        Occupied::InLine => "waited-for",
    }
}

/// Why a waiter left its line.
pub const fn write_leave(why: Leave) -> &'static str {
    match why {
        Leave::Cancelled => "cancelled",
        Leave::LeaseEnded => "lease_ended",
        Leave::WaitedOut => "waited_out",
        Leave::Superseded => "superseded",
        Leave::TooBig => "too_big",
        Leave::Transferred => "transferred",
    }
}

/// A maximum lifetime: its milliseconds, 0 for none, and whether it counts only while others wait.
pub fn write_lifetime(lifetime: Option<Lifetime>) -> (u64, bool) {
    lifetime.map_or((0, false), |lifetime| (lifetime.span.millis(), lifetime.counts == Counts::WhileOthersWait))
}

/// What is said about a lease.
pub fn write_labels(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// A class.
pub fn write_class(class: &Class) -> v1::Class {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let (lifetime_ms, lifetime_while_others_wait) = write_lifetime(class.lifetime);
    v1::Class {
        name: class.name.to_string(),
        ttl_ms: signed(class.ttl.millis()),
        ttl_min_ms: signed(class.ttl_min.millis()),
        ttl_max_ms: signed(class.ttl_max.millis()),
        renew: write_policy(class.renew).into(),
        grace_ms: signed(class.grace.millis()),
        lifetime_ms: signed(lifetime_ms),
        lifetime_while_others_wait,
    }
}

/// One event.
pub fn event(event: &Event) -> v1::Event {
    let message = v1::Event {
        revision: event.revision.0,
        n: event.n,
        last: event.last,
        at_ms: event.at.millis(),
        wall_ms: event.wall_ms,
        lease: event.what.lease().map_or(0, LeaseId::number),
        resource: event.what.resource().map_or_else(String::new, ToString::to_string),
        key: event.what.key().map_or_else(Vec::new, |key| key.bytes().into()),
        instance: event.what.instance().map_or_else(String::new, ToString::to_string),
        kind: kind(&event.what).into(),
        api_key: event.api_key.as_ref().map_or_else(String::new, ToString::to_string),
        ..v1::Event::default()
    };
    match &event.what {
        Happening::Granted { .. }
        | Happening::Ended { .. }
        | Happening::ClassSet { .. }
        | Happening::Defined { .. }
        | Happening::Put { .. }
        | Happening::Deleted { .. } => of_lease_or_key(&event.what, message),
        _ if !message.instance.is_empty() => of_instance(&event.what, message),
        _ => of_claim(&event.what, message),
    }
}

const fn kind(what: &Happening) -> &'static str {
    match what {
        Happening::Granted { .. } => "granted",
        Happening::Queued { .. } => "queued",
        Happening::Seated { .. } => "seated",
        Happening::Vacated { .. } => "vacated",
        Happening::Freed { .. } => "freed",
        Happening::Breaking { .. } => "breaking",
        Happening::Left { .. } => "left",
        Happening::Ended { .. } => "ended",
        Happening::Defined { .. } => "defined",
        Happening::ClassSet { .. } => "class_set",
        Happening::Put { .. } => "put",
        Happening::Deleted { .. } => "deleted",
        Happening::Registered { .. } => "registered",
        Happening::Updated { .. } => "updated",
        Happening::Drained { .. } => "drained",
        Happening::Undrained { .. } => "undrained",
        Happening::HealthChanged { .. } => "health_changed",
        Happening::Deregistered { .. } => "deregistered",
        Happening::Suspected { .. } => "suspected",
        Happening::Cleared { .. } => "cleared",
    }
}

fn of_lease_or_key(what: &Happening, message: v1::Event) -> v1::Event {
    match what {
        Happening::Granted { holder, ttl_ms, parent, class, .. } => v1::Event {
            holder: holder.to_string(),
            ttl_ms: *ttl_ms,
            parent: parent.map_or(0, LeaseId::number),
            class: class.as_ref().map_or_else(String::new, Name::to_string),
            ..message
        },
        Happening::Ended { holder, how, .. } => {
            v1::Event { holder: holder.to_string(), end: Some(end(how)), ..message }
        }
        Happening::ClassSet { class } => v1::Event { class: class.to_string(), ..message },
        Happening::Defined { capacity, .. } => v1::Event { capacity: capacity.map(Units::number), ..message },
        Happening::Put { kv_revision, version, .. } => {
            v1::Event { kv_revision: *kv_revision, version: *version, ..message }
        }
        Happening::Deleted { kv_revision, .. } => v1::Event { kv_revision: *kv_revision, ..message },
        _ => message,
    }
}

fn of_claim(what: &Happening, message: v1::Event) -> v1::Event {
    match what {
        Happening::Queued { holder, mode, .. } => {
            let (mode, units) = write_mode(*mode);
            v1::Event { holder: holder.to_string(), mode: mode.into(), units, ..message }
        }
        Happening::Seated { holder, fence, mode, ttl_ms, .. } => {
            let (mode, units) = write_mode(*mode);
            v1::Event {
                holder: holder.to_string(),
                fence: fence.number(),
                mode: mode.into(),
                units,
                ttl_ms: *ttl_ms,
                ..message
            }
        }
        Happening::Vacated { fence, how, until, .. } => {
            v1::Event { fence: fence.number(), end: Some(end(how)), until_ms: until.map(Moment::millis), ..message }
        }
        Happening::Freed { fence, .. } => v1::Event { fence: fence.number(), ..message },
        Happening::Breaking { fence, at, by, reason, .. } => v1::Event {
            fence: fence.number(),
            breaks_at_ms: at.millis(),
            by: by.to_string(),
            reason: reason.to_string(),
            ..message
        },
        Happening::Left { why, .. } => v1::Event { why: write_leave(*why).into(), ..message },
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Fence, Handle, Holder, Key, Note, Place, Revision};

    fn lease() -> LeaseId {
        LeaseId::from_number(7).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn ann() -> Holder {
        Holder::parse("ann").unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::from_number(number).unwrap()
    }

    #[test]
    fn an_acquire_tells_every_fence_or_the_place() {
        let claims = [("a", 3), ("b", 4)].map(|(text, n)| Handle { resource: name(text), fence: fence(n) });
        let seat = Seat { lease: lease(), claims: claims.to_vec(), ttl_ms: 9, revision: Revision(2) };
        let claim = |resource: &str, fence| v1::Claim { resource: resource.into(), fence };
        let reply = v1::AcquireReply {
            lease: 7,
            ttl_ms: 9,
            revision: 2,
            state: Some(State::Fence(3)),
            claims: vec![claim("a", 3), claim("b", 4)],
        };
        assert_eq!(write_outcome(&Ok(Reply::Seated(seat))), Body::Acquire(reply.clone()));
        let place = Place { lease: lease(), place: 5, ttl_ms: 9, revision: Revision(2) };
        let waiting = v1::AcquireReply { state: Some(State::Place(5)), claims: Vec::new(), ..reply };
        assert_eq!(write_outcome(&Ok(Reply::Waiting(place))), Body::Acquire(waiting));
    }

    #[test]
    fn only_leases_with_something_to_tell_have_a_notice() {
        let quiet = Renewed {
            lease: lease(),
            ttl_ms: 9,
            is_final: false,
            waiting: 0,
            longest_wait_ms: 0,
            breaks_in_ms: None,
            lost: 0,
        };
        let last = Renewed { is_final: true, ..quiet };
        let wanted = Renewed { waiting: 2, longest_wait_ms: 5, ..quiet };
        let breaking = Renewed { breaks_in_ms: Some(0), ..quiet };
        let each = vec![Ok(quiet), Ok(last), Err(Refusal::NoLease { lease: lease() }), Ok(wanted), Ok(breaking)];
        let Body::Renew(reply) = write_outcome(&Ok(Reply::Renewed(each))) else { panic!("a renewal is answered so") };
        assert_eq!(reply.ttls_ms, [9, 9, 0, 9, 9]);
        assert_eq!((reply.failures.len(), reply.failures[0].index), (1, 2));
        let plain = v1::RenewNotice::default();
        let notices = [
            v1::RenewNotice { index: 1, is_final: true, ..plain },
            v1::RenewNotice { index: 3, waiting: 2, longest_wait_ms: 5, ..plain },
            v1::RenewNotice { index: 4, breaks_in_ms: Some(0), ..plain },
        ];
        assert_eq!(reply.notices, notices);
        let all = Renewed { is_final: true, waiting: 2, longest_wait_ms: 5, breaks_in_ms: Some(6), lost: 7, ..quiet };
        let told = v1::RenewHandleReply {
            lease: 7,
            ttl_ms: 9,
            is_final: true,
            waiting: 2,
            longest_wait_ms: 5,
            breaks_in_ms: Some(6),
            lost: 7,
        };
        assert_eq!(write_outcome(&Ok(Reply::HandleRenewed(all))), Body::RenewHandle(told));
    }

    #[test]
    fn every_other_reply_tells_its_facts() {
        let told = |reply| write_outcome(&Ok(reply));
        let granted = Reply::Granted { lease: lease(), ttl_ms: 9, revision: Revision(2) };
        assert_eq!(told(granted), Body::Grant(v1::GrantReply { lease: 7, ttl_ms: 9, revision: 2 }));
        assert_eq!(told(Reply::Released { free_in_ms: 7 }), Body::Release(v1::ReleaseReply { free_in_ms: 7 }));
        assert_eq!(told(Reply::AlreadyReleased), Body::Release(v1::ReleaseReply::default()));
        assert_eq!(told(Reply::Cancelled), Body::Cancel(v1::CancelReply {}));
        let revoked = Reply::Revoked { count: 3, next: Some("jobs/m".into()) };
        assert_eq!(told(revoked), Body::Revoke(v1::RevokeReply { count: 3, next: "jobs/m".into() }));
        let broken = Reply::Broken { claims: 2, free_in_ms: 8 };
        assert_eq!(told(broken), Body::BreakClaims(v1::BreakReply { claims: 2, free_in_ms: 8 }));
        let defined = Reply::Defined { capacity: Units::ONE };
        assert_eq!(told(defined), Body::DefineResource(v1::DefineResourceReply { capacity: 1 }));
        assert_eq!(told(Reply::ClassSet), Body::SetClass(v1::SetClassReply {}));
        let put = Reply::Put { kv_revision: 4, version: 2 };
        assert_eq!(told(put), Body::Put(v1::PutReply { kv_revision: 4, version: 2 }));
        let deleted = Reply::Deleted { count: 1, kv_revision: 5 };
        assert_eq!(told(deleted), Body::Delete(v1::DeleteReply { count: 1, kv_revision: 5 }));
    }

    fn told(what: Happening) -> v1::Event {
        let (at, wall_ms) = (Moment::from_millis(5), 9);
        let message = event(&Event { revision: Revision(3), n: 1, last: true, at, wall_ms, api_key: None, what });
        assert_eq!((message.revision, message.n, message.last), (3, 1, true));
        assert_eq!((message.at_ms, message.wall_ms), (5, 9));
        v1::Event { revision: 0, n: 0, last: false, at_ms: 0, wall_ms: 0, ..message }
    }

    fn plain(kind: &str) -> v1::Event {
        v1::Event { kind: kind.into(), ..v1::Event::default() }
    }

    #[test]
    fn every_event_of_a_claim_tells_its_facts() {
        let (resource, lease) = (name("db"), lease());
        let on_db = |kind: &str| v1::Event { lease: 7, resource: "db".into(), ..plain(kind) };
        let mode = Mode::Units(Units::ONE);
        let queued = Happening::Queued { resource: resource.clone(), lease, holder: ann(), mode };
        let of_ann =
            |kind: &str| v1::Event { holder: "ann".into(), mode: v1::Mode::Units.into(), units: 1, ..on_db(kind) };
        assert_eq!(told(queued), of_ann("queued"));
        let seated =
            Happening::Seated { resource: resource.clone(), lease, holder: ann(), fence: fence(4), mode, ttl_ms: 6 };
        assert_eq!(told(seated), v1::Event { fence: 4, ttl_ms: 6, ..of_ann("seated") });
        for until in [None, Some(Moment::from_millis(8))] {
            let how = End::Expired;
            let vacated = Happening::Vacated { resource: resource.clone(), lease, fence: fence(4), how, until };
            let end = Some(v1::End { how: "expired".into(), ..v1::End::default() });
            let until_ms = until.map(Moment::millis);
            assert_eq!(told(vacated), v1::Event { fence: 4, end, until_ms, ..on_db("vacated") });
        }
        let freed = Happening::Freed { resource: resource.clone(), lease, fence: fence(4) };
        assert_eq!(told(freed), v1::Event { fence: 4, ..on_db("freed") });
        let (at, reason) = (Moment::from_millis(8), Note::parse("why").unwrap());
        let breaking =
            Happening::Breaking { resource: resource.clone(), lease, fence: fence(4), at, by: ann(), reason };
        let by_ann = v1::Event { by: "ann".into(), reason: "why".into(), ..on_db("breaking") };
        assert_eq!(told(breaking), v1::Event { fence: 4, breaks_at_ms: 8, ..by_ann });
        let whys = [
            (Leave::Cancelled, "cancelled"),
            (Leave::LeaseEnded, "lease_ended"),
            (Leave::WaitedOut, "waited_out"),
            (Leave::Superseded, "superseded"),
            (Leave::TooBig, "too_big"),
            (Leave::Transferred, "transferred"),
        ];
        for (why, text) in whys {
            let left = Happening::Left { resource: resource.clone(), lease, why };
            assert_eq!(told(left), v1::Event { why: text.into(), ..on_db("left") });
        }
    }

    #[test]
    fn every_other_event_tells_its_facts() {
        let lease = lease();
        let granted =
            Happening::Granted { lease, holder: ann(), ttl_ms: 6, parent: Some(lease), class: Some(name("lock")) };
        let of_ann = |kind: &str| v1::Event { lease: 7, holder: "ann".into(), ..plain(kind) };
        assert_eq!(told(granted), v1::Event { ttl_ms: 6, parent: 7, class: "lock".into(), ..of_ann("granted") });
        let ended = Happening::Ended { lease, holder: ann(), how: End::ParentEnded { parent: lease } };
        let end = v1::End { how: "parent_ended".into(), parent: 7, ..v1::End::default() };
        assert_eq!(told(ended), v1::Event { end: Some(end), ..of_ann("ended") });
        let defined = Happening::Defined { resource: name("db"), capacity: Some(Units::ONE) };
        assert_eq!(told(defined), v1::Event { resource: "db".into(), capacity: Some(1), ..plain("defined") });
        let forgotten = Happening::Defined { resource: name("db"), capacity: None };
        assert_eq!(told(forgotten), v1::Event { resource: "db".into(), ..plain("defined") });
        let set = Happening::ClassSet { class: name("lock") };
        assert_eq!(told(set), v1::Event { class: "lock".into(), ..plain("class_set") });
        let key = Key::parse(b"k").unwrap();
        let of_key = |kind: &str| v1::Event { key: b"k".into(), lease: 7, kv_revision: 4, ..plain(kind) };
        let put = Happening::Put { key: key.clone(), lease: Some(lease), kv_revision: 4, version: 2 };
        assert_eq!(told(put), v1::Event { version: 2, ..of_key("put") });
        let deleted = Happening::Deleted { key, lease: Some(lease), kv_revision: 4 };
        assert_eq!(told(deleted), of_key("deleted"));
    }

    #[test]
    fn every_end_has_a_word_of_its_own() {
        let reason = Note::parse("why").unwrap();
        let ends = [
            (End::Released, "released"),
            (End::Expired, "expired"),
            (End::Revoked { by: ann(), reason }, "revoked"),
            (End::ParentEnded { parent: lease() }, "parent_ended"),
            (End::Superseded, "superseded"),
            (End::MaxLifetime, "max_lifetime"),
            (End::WaitedOut, "waited_out"),
            (End::Transferred { to: ann() }, "transferred"),
        ];
        for (how, word) in ends {
            let told = ended(&how, Moment::from_millis(5), 9);
            assert_eq!((told.how.as_str(), told.when_ms, told.wall_ms), (word, 5, 9));
            assert_eq!(told.by == "ann" && told.reason == "why", word == "revoked");
            assert_eq!((told.parent == 7, told.to == "ann"), (word == "parent_ended", word == "transferred"));
        }
    }
}
