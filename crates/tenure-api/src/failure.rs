//! Refusals become failures here, with all their facts, and failures travel as the status of a call.

use crate::code::Code;
use crate::registry::refused_of_instance;
use crate::v1;
use crate::write::{ended, write_mode, write_occupied, write_policy};
use prost::Message;
use tenure_core::limits::CHAIN_SHOWN_MAX;
use tenure_core::{BadDetails, End, Holder, Refusal};
use tonic::{Code as Grpc, Status};

/// A failure as a gRPC status; the details carry the whole message.
pub fn failure_status(failure: &v1::Failure) -> Status {
    let code = code_of(failure).map_or(Grpc::Unknown, Code::grpc);
    Status::with_details(code, failure.message.clone(), failure.encode_to_vec().into())
}

/// The failure that a gRPC status carries, if it carries one.
pub fn read_status(status: &Status) -> Option<v1::Failure> {
    let failure = v1::Failure::decode(status.details()).ok()?;
    (!failure.code.is_empty()).then_some(failure)
}

/// The code of a failure, if this build knows it.
pub fn code_of(failure: &v1::Failure) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.text() == failure.code)
}

/// A refusal with all its facts: what failed, why, and what is unchanged.
pub fn failure(refusal: &Refusal) -> v1::Failure {
    let message = format!("{}; nothing was changed", sentence(refusal));
    let code = code(refusal).text().into();
    let failure = v1::Failure { code, message, ..v1::Failure::default() };
    match refusal {
        Refusal::Exists { .. } | Refusal::NoLease { .. } | Refusal::Lapsed { .. } | Refusal::OwnParent { .. } => {
            of_lease(refusal, failure)
        }
        Refusal::NoClass { .. } | Refusal::TtlOfClass { .. } | Refusal::NotRenewable { .. } => {
            of_class(refusal, failure)
        }
        Refusal::Taken { .. } | Refusal::Stale { .. } | Refusal::NoClaim { .. } | Refusal::NotHeld { .. } => {
            of_claim(refusal, failure)
        }
        Refusal::OtherMode { .. } | Refusal::Claimed { .. } | Refusal::OlderEpoch { .. } => {
            of_other_claim(refusal, failure)
        }
        Refusal::OtherCapacity { .. } | Refusal::TooBig { .. } => of_capacity(refusal, failure),
        Refusal::Answered { lease, .. } => v1::Failure { lease: lease.number(), ..failure },
        Refusal::WouldDeadlock { resource, circle } => v1::Failure {
            resource: resource.to_string(),
            circle: circle.iter().map(ToString::to_string).collect(),
            ..failure
        },
        Refusal::WaitTooLong { asked_ms, max_ms } => v1::Failure { asked: *asked_ms, max: *max_ms, ..failure },
        Refusal::NoKey { key } => v1::Failure { key: key.bytes().into(), ..failure },
        Refusal::Compacted { .. } | Refusal::NotYet { .. } => failure,
        Refusal::NoInstance { .. } | Refusal::InstanceExists { .. } | Refusal::OlderInstance { .. } => {
            refused_of_instance(refusal, failure)
        }
        Refusal::OtherLease { .. } | Refusal::NoCheck { .. } | Refusal::BadInstance { .. } => {
            refused_of_instance(refusal, failure)
        }
        Refusal::Denied { .. } => failure,
        Refusal::TooManyLeases { max, .. } => v1::Failure { max: (*max).into(), ..failure },
        Refusal::Full { what, max } | Refusal::Overloaded { what, max } => {
            v1::Failure { what: what.to_string(), max: *max as u64, ..failure }
        }
    }
}

const fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Exists { .. } => Code::Exists,
        Refusal::NoLease { .. } => Code::NoLease,
        Refusal::Lapsed { .. } => Code::Lapsed,
        Refusal::OwnParent { .. } => Code::OwnParent,
        Refusal::NoClass { .. } => Code::NoClass,
        Refusal::TtlOfClass { .. } => Code::TtlOfClass,
        Refusal::NotRenewable { .. } => Code::NotRenewable,
        Refusal::Taken { .. } => Code::Taken,
        Refusal::Stale { .. } => Code::Stale,
        Refusal::NoClaim { .. } => Code::NoClaim,
        Refusal::Answered { .. } => Code::Answered,
        Refusal::OtherMode { .. } => Code::OtherMode,
        Refusal::Claimed { .. } => Code::Claimed,
        Refusal::OtherCapacity { .. } => Code::OtherCapacity,
        Refusal::TooBig { .. } => Code::TooBig,
        Refusal::WouldDeadlock { .. } => Code::WouldDeadlock,
        Refusal::WaitTooLong { .. } => Code::WaitTooLong,
        Refusal::OlderEpoch { .. } | Refusal::OlderInstance { .. } => Code::OlderEpoch,
        Refusal::NotHeld { .. } => Code::NotHeld,
        Refusal::NoKey { .. } => Code::NoKey,
        Refusal::Compacted { .. } => Code::Compacted,
        Refusal::NotYet { .. } => Code::Ahead,
        Refusal::NoInstance { .. } => Code::NoInstance,
        Refusal::InstanceExists { .. } => Code::InstanceExists,
        Refusal::OtherLease { .. } => Code::OtherLease,
        Refusal::NoCheck { .. } => Code::NoCheck,
        Refusal::BadInstance { why: BadDetails::Check { .. }, .. } => Code::BadCheck,
        Refusal::BadInstance { .. } => Code::BadInstance,
        Refusal::Full { .. } => Code::Full,
        Refusal::Overloaded { .. } => Code::Overloaded,
        Refusal::Denied { .. } => Code::Denied,
        Refusal::TooManyLeases { .. } => Code::TooMany,
    }
}

fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Lapsed { how, .. } | Refusal::NoInstance { ended: Some((how, ..)), .. } => {
            format!("{refusal}: it {}", how_it_ended(how))
        }
        Refusal::Stale { current, ended, .. } => match (current, ended) {
            (_, Some((how, ..))) => format!("{refusal}: its claim {}", how_it_ended(how)),
            (Some((holder, fence)), None) => format!("{refusal}: {holder} holds it with fence {fence}"),
            (None, None) => format!("{refusal}: nobody holds it, and no such claim is remembered"),
        },
        Refusal::WouldDeadlock { circle, .. } => format!("{refusal}{}", around(circle)),
        _ => refusal.to_string(),
    }
}

/// Who would wait for whom: `: ann would wait for bob, bob waits for ann`. A long circle is cut.
fn around(circle: &[Holder]) -> String {
    let Some(first) = circle.first() else { return String::new() };
    let is_whole = circle.len() < CHAIN_SHOWN_MAX;
    let nexts = circle[1..].iter().chain(is_whole.then_some(first));
    let pairs = circle.iter().zip(nexts).enumerate().map(|(n, (who, next))| match n {
        0 => format!("{who} would wait for {next}"),
        _ => format!("{who} waits for {next}"),
    });
    let pairs: Vec<String> = pairs.collect();
    format!(": {}{}", pairs.join(", "), if is_whole { "" } else { " and so on" })
}

fn of_lease(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::Exists { lease, holder } => {
            v1::Failure { lease: lease.number(), holder: holder.to_string(), ..failure }
        }
        Refusal::NoLease { lease } | Refusal::OwnParent { lease } => v1::Failure { lease: lease.number(), ..failure },
        Refusal::Lapsed { lease, how, when, wall_ms } => {
            v1::Failure { lease: lease.number(), end: Some(ended(how, *when, *wall_ms)), ..failure }
        }
        _ => failure,
    }
}

fn of_class(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::NoClass { class } => v1::Failure { class: class.to_string(), ..failure },
        Refusal::TtlOfClass { class, ttl_ms, min_ms, max_ms } => {
            v1::Failure { class: class.to_string(), asked: *ttl_ms, min: *min_ms, max: *max_ms, ..failure }
        }
        Refusal::NotRenewable { lease, class, policy } => v1::Failure {
            lease: lease.number(),
            class: class.to_string(),
            policy: write_policy(*policy).into(),
            ..failure
        },
        _ => failure,
    }
}

fn of_claim(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::Taken { resource, holder, state, fence, since_wall_ms, remaining_ms, waiting } => v1::Failure {
            since_wall_ms: since_wall_ms.unwrap_or_default(),
            resource: resource.to_string(),
            holder: holder.to_string(),
            state: write_occupied(*state).into(),
            fence: fence.map_or(0, tenure_core::Fence::number),
            remaining_ms: *remaining_ms,
            waiting: *waiting,
            ..failure
        },
        Refusal::Stale { handle, current, ended: end } => v1::Failure {
            resource: handle.resource.to_string(),
            fence: handle.fence.number(),
            holder: current.as_ref().map_or_else(String::new, |(holder, _)| holder.to_string()),
            current_fence: current.as_ref().map_or(0, |(_, fence)| fence.number()),
            end: end.as_ref().map(|(how, when, wall_ms)| ended(how, *when, *wall_ms)),
            ..failure
        },
        Refusal::NoClaim { lease, resource } => {
            v1::Failure { lease: lease.number(), resource: resource.to_string(), ..failure }
        }
        Refusal::NotHeld { resource } => v1::Failure { resource: resource.to_string(), ..failure },
        _ => failure,
    }
}

fn of_other_claim(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::OtherMode { lease, resource, has, asked } => {
            let ((mode, units), (asked_mode, asked_units)) = (write_mode(*has), write_mode(*asked));
            v1::Failure {
                lease: lease.number(),
                resource: resource.to_string(),
                mode: mode.into(),
                units,
                asked_mode: asked_mode.into(),
                asked_units,
                ..failure
            }
        }
        Refusal::Claimed { lease, resource } => {
            v1::Failure { lease: lease.number(), resource: resource.to_string(), ..failure }
        }
        Refusal::OlderEpoch { holder, resource, asked, current } => v1::Failure {
            holder: holder.to_string(),
            resource: resource.to_string(),
            asked: *asked,
            epoch: *current,
            ..failure
        },
        _ => failure,
    }
}

fn of_capacity(refusal: &Refusal, failure: v1::Failure) -> v1::Failure {
    match refusal {
        Refusal::OtherCapacity { resource, capacity, expected: asked }
        | Refusal::TooBig { resource, capacity, asked } => v1::Failure {
            resource: resource.to_string(),
            capacity: capacity.number(),
            asked: asked.number(),
            ..failure
        },
        _ => failure,
    }
}

fn how_it_ended(how: &End) -> String {
    match how {
        End::Released => "was released".into(),
        End::Expired => "expired".into(),
        End::Revoked { by, reason } if reason.as_str().is_empty() => format!("was revoked by {by}"),
        End::Revoked { by, reason } => format!("was revoked by {by}: {reason}"),
        End::ParentEnded { parent } => format!("ended with its parent, lease {parent}"),
        End::Superseded => "was superseded: its holder came back with a higher epoch".into(),
        End::MaxLifetime => "reached its maximum lifetime".into(),
        End::WaitedOut => "waited in line for as long as it was told to".into(),
        End::Unhealthy => "was critical for longer than it may be".into(),
        End::Transferred { to } => format!("was given to {to}"),
    }
}

/// Why a call was never made: nobody listens there, so nothing can have been done. None if it may have been made.
pub fn never_made(status: &Status) -> Option<String> {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Some(error.to_string());
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Fence, Handle, Key, LeaseId, Mode, Moment, Name, Note, Occupied, Policy, Units};

    fn lease() -> LeaseId {
        LeaseId::from_number(7).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn ann() -> Holder {
        Holder::parse("ann").unwrap()
    }

    fn units(number: u64) -> Units {
        Units::from_number(number).unwrap()
    }

    fn refusals_of_leases() -> Vec<(Refusal, Code)> {
        let (lease, when) = (lease(), Moment::from_millis(5));
        let lapsed = |how| (Refusal::Lapsed { lease, how, when, wall_ms: 9 }, Code::Lapsed);
        let class = name("session");
        vec![
            (Refusal::Exists { lease, holder: ann() }, Code::Exists),
            (Refusal::NoLease { lease }, Code::NoLease),
            lapsed(End::Released),
            lapsed(End::Expired),
            lapsed(End::Revoked { by: ann(), reason: Note::default() }),
            lapsed(End::Revoked { by: ann(), reason: Note::parse("stuck").unwrap() }),
            lapsed(End::ParentEnded { parent: lease }),
            lapsed(End::Superseded),
            lapsed(End::MaxLifetime),
            lapsed(End::WaitedOut),
            lapsed(End::Transferred { to: ann() }),
            (Refusal::OwnParent { lease }, Code::OwnParent),
            (Refusal::NoClass { class: class.clone() }, Code::NoClass),
            (Refusal::TtlOfClass { class: class.clone(), ttl_ms: 1, min_ms: 2, max_ms: 3 }, Code::TtlOfClass),
            (Refusal::NotRenewable { lease, class, policy: Policy::Never }, Code::NotRenewable),
            (Refusal::NoKey { key: Key::parse(b"k").unwrap() }, Code::NoKey),
            (Refusal::Full { what: "leases".into(), max: 1 }, Code::Full),
            (Refusal::Overloaded { what: "keys".into(), max: 1 }, Code::Overloaded),
        ]
    }

    fn taken(state: Occupied, fence: Option<Fence>) -> (Refusal, Code) {
        let (resource, holder) = (name("db"), ann());
        (
            Refusal::Taken { resource, holder, state, fence, since_wall_ms: Some(5), remaining_ms: 11, waiting: 2 },
            Code::Taken,
        )
    }

    fn refusals_of_claims() -> Vec<(Refusal, Code)> {
        let (lease, fence) = (lease(), Fence::from_number(3).unwrap());
        let resource = || name("db");
        let handle = || Handle { resource: resource(), fence };
        let ended = Some((End::Expired, Moment::from_millis(5), 9));
        let (has, asked) = (Mode::Shared, Mode::Units(units(4)));
        vec![
            taken(Occupied::Held, Some(fence)),
            taken(Occupied::Vacating, Some(fence)),
            taken(Occupied::InLine, None),
            (Refusal::Stale { handle: handle(), current: Some((ann(), fence)), ended: None }, Code::Stale),
            (Refusal::Stale { handle: handle(), current: None, ended }, Code::Stale),
            (Refusal::Stale { handle: handle(), current: None, ended: None }, Code::Stale),
            (Refusal::NoClaim { lease, resource: resource() }, Code::NoClaim),
            (Refusal::OtherMode { lease, resource: resource(), has, asked }, Code::OtherMode),
            (Refusal::Claimed { lease, resource: resource() }, Code::Claimed),
            (
                Refusal::OtherCapacity { resource: resource(), capacity: units(2), expected: units(3) },
                Code::OtherCapacity,
            ),
            (Refusal::TooBig { resource: resource(), capacity: units(2), asked: units(3) }, Code::TooBig),
            (Refusal::WouldDeadlock { resource: resource(), circle: vec![ann(), ann()] }, Code::WouldDeadlock),
            (Refusal::WaitTooLong { asked_ms: 9, max_ms: 8 }, Code::WaitTooLong),
            (Refusal::OlderEpoch { holder: ann(), resource: resource(), asked: 1, current: 2 }, Code::OlderEpoch),
            (Refusal::NotHeld { resource: resource() }, Code::NotHeld),
            (Refusal::Answered { lease, number: 4 }, Code::Answered),
        ]
    }

    fn every_refusal() -> impl Iterator<Item = (Refusal, Code)> {
        refusals_of_leases().into_iter().chain(refusals_of_claims())
    }

    #[test]
    fn a_deadlock_is_told_around_its_circle() {
        let holders = |names: &[&str]| names.iter().map(|name| Holder::parse(name).unwrap()).collect::<Vec<_>>();
        assert_eq!(around(&holders(&["ann", "bob"])), ": ann would wait for bob, bob waits for ann");
        assert_eq!(around(&holders(&["ann"])), ": ann would wait for ann");
        assert_eq!(around(&[]), "");
        let long = around(&holders(&["ann"; CHAIN_SHOWN_MAX]));
        assert!(long.ends_with("ann waits for ann and so on"), "{long}");
    }

    #[test]
    fn the_facts_of_a_refusal_are_told() {
        let told = |refusal: &Refusal| {
            let mut failure = failure(refusal);
            failure.message.clear();
            failure.code.clear();
            failure
        };
        let plain = v1::Failure::default;
        let (lease, resource) = (7, || String::from("db"));
        let end = |how: &str| Some(v1::End { how: how.into(), when_ms: 5, wall_ms: 9, ..v1::End::default() });
        let leases: Vec<v1::Failure> = refusals_of_leases().iter().map(|(refusal, _)| told(refusal)).collect();
        assert_eq!(leases[0], v1::Failure { lease, holder: "ann".into(), ..plain() });
        assert_eq!(leases[1], v1::Failure { lease, ..plain() });
        assert_eq!(leases[2], v1::Failure { lease, end: end("released"), ..plain() });
        assert_eq!(leases[11], v1::Failure { lease, ..plain() });
        assert_eq!(leases[12], v1::Failure { class: "session".into(), ..plain() });
        assert_eq!(leases[13], v1::Failure { class: "session".into(), asked: 1, min: 2, max: 3, ..plain() });
        let policy = v1::RenewPolicy::Never.into();
        assert_eq!(leases[14], v1::Failure { lease, class: "session".into(), policy, ..plain() });
        assert_eq!(leases[15], v1::Failure { key: b"k".into(), ..plain() });
        assert_eq!(leases[16], v1::Failure { what: "leases".into(), max: 1, ..plain() });
        let claims: Vec<v1::Failure> = refusals_of_claims().iter().map(|(refusal, _)| told(refusal)).collect();
        let on_db = || v1::Failure { resource: resource(), ..plain() };
        let taken = v1::Failure { holder: "ann".into(), remaining_ms: 11, since_wall_ms: 5, waiting: 2, ..on_db() };
        assert_eq!(claims[0], v1::Failure { state: "held".into(), fence: 3, ..taken.clone() });
        assert_eq!(claims[1], v1::Failure { state: "vacating".into(), fence: 3, ..taken.clone() });
        assert_eq!(claims[2], v1::Failure { state: "waited-for".into(), ..taken });
        assert_eq!(claims[3], v1::Failure { fence: 3, current_fence: 3, holder: "ann".into(), ..on_db() });
        assert_eq!(claims[4], v1::Failure { fence: 3, end: end("expired"), ..on_db() });
        assert_eq!(claims[6], v1::Failure { lease, ..on_db() });
        let modes = v1::Failure {
            mode: v1::Mode::Shared.into(),
            asked_mode: v1::Mode::Units.into(),
            asked_units: 4,
            ..on_db()
        };
        assert_eq!(claims[7], v1::Failure { lease, ..modes });
        assert_eq!(claims[8], v1::Failure { lease, ..on_db() });
        assert_eq!(claims[9], v1::Failure { capacity: 2, asked: 3, ..on_db() });
        assert_eq!(claims[10], v1::Failure { capacity: 2, asked: 3, ..on_db() });
        assert_eq!(claims[11], v1::Failure { circle: vec!["ann".into(), "ann".into()], ..on_db() });
        assert_eq!(claims[12], v1::Failure { asked: 9, max: 8, ..plain() });
        assert_eq!(claims[13], v1::Failure { holder: "ann".into(), asked: 1, epoch: 2, ..on_db() });
        assert_eq!(claims[14], on_db());
    }

    #[test]
    fn every_refusal_is_in_the_table_and_survives_a_status() {
        for (refusal, code) in every_refusal() {
            let failure = failure(&refusal);
            assert_eq!(code_of(&failure), Some(code), "{refusal:?}");
            assert!(failure.message.ends_with("; nothing was changed"), "{}", failure.message);
            let status = failure_status(&failure);
            assert_eq!(status.code(), code.grpc());
            assert_eq!(read_status(&status), Some(failure), "the facts come through");
        }
    }

    #[test]
    fn every_code_has_a_text_of_its_own_and_is_a_failure_on_every_wire() {
        for (n, code) in Code::ALL.iter().enumerate() {
            assert!(Code::ALL[n + 1..].iter().all(|other| other.text() != code.text()), "{code:?}");
            assert!(code.grpc() != Grpc::Ok && (400..600).contains(&code.http()), "{code:?}");
        }
    }
}
