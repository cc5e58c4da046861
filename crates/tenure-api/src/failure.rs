//! One table of every refusal: its stable text code, its gRPC code, its HTTP status.

use crate::v1;
use crate::write::{ended, write_mode, write_occupied, write_policy};
use prost::Message;
use tenure_core::limits::CHAIN_SHOWN_MAX;
use tenure_core::{End, Holder, Refusal};
use tonic::{Code as Grpc, Status};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $grpc:ident, $http:literal;)*) => {
        /// What went wrong, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable text.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The gRPC code that goes with it.
            pub const fn grpc(self) -> Grpc {
                match self { $(Self::$name => Grpc::$grpc,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn http(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }
        }
    };
}

codes! {
    /// The bytes are not a message of the treaty.
    BadMessage = "bad_message", InvalidArgument, 400;
    /// The request lacks something, or says two things at once.
    BadRequest = "bad_request", InvalidArgument, 400;
    /// A resource name that cannot be one.
    BadName = "bad_name", InvalidArgument, 400;
    /// The start of names that cannot be one.
    BadPrefix = "bad_prefix", InvalidArgument, 400;
    /// A holder's name that cannot be one.
    BadHolder = "bad_holder", InvalidArgument, 400;
    /// A reason that cannot be one.
    BadReason = "bad_reason", InvalidArgument, 400;
    /// A class that cannot be one.
    BadClass = "bad_class", InvalidArgument, 400;
    /// A label that cannot be one, or too many of them.
    BadLabel = "bad_label", InvalidArgument, 400;
    /// A key that cannot be one.
    BadKey = "bad_key", InvalidArgument, 400;
    /// A TTL out of range.
    BadTtl = "bad_ttl", InvalidArgument, 400;
    /// Another length of time out of range.
    BadSpan = "bad_span", InvalidArgument, 400;
    /// A lease id out of range.
    BadLease = "bad_lease", InvalidArgument, 400;
    /// A handle that cannot be one.
    BadHandle = "bad_handle", InvalidArgument, 400;
    /// A mode that there is not.
    BadMode = "bad_mode", InvalidArgument, 400;
    /// A number of units out of range.
    BadUnits = "bad_units", InvalidArgument, 400;
    /// A capacity out of range.
    BadCapacity = "bad_capacity", InvalidArgument, 400;
    /// A priority out of range.
    BadPriority = "bad_priority", InvalidArgument, 400;
    /// An epoch out of range.
    BadEpoch = "bad_epoch", InvalidArgument, 400;
    /// A kind of renewal that there is not.
    BadKind = "bad_kind", InvalidArgument, 400;
    /// Too many resources, or one of them twice.
    BadWants = "bad_wants", InvalidArgument, 400;
    /// More than one request may carry.
    TooMany = "too_many", InvalidArgument, 400;
    /// The body is not the JSON that was expected.
    BadJson = "bad_json", InvalidArgument, 400;
    /// The part of the address after `?` is not what was expected.
    BadQuery = "bad_query", InvalidArgument, 400;
    /// The body does not say that it is JSON.
    BadContentType = "bad_content_type", InvalidArgument, 415;
    /// The body is too large.
    TooLarge = "too_large", ResourceExhausted, 413;
    /// The body did not come in time.
    TooSlow = "too_slow", DeadlineExceeded, 408;
    /// The request was meant for another host.
    BadHost = "bad_host", PermissionDenied, 421;
    /// The request was made by a page of another host.
    BadOrigin = "bad_origin", PermissionDenied, 403;
    /// An API key is needed, and none that is known was shown.
    Unauthenticated = "unauthenticated", Unauthenticated, 401;
    /// The API key may not do this.
    Denied = "denied", PermissionDenied, 403;
    /// There is nothing at this address.
    NoSuchPath = "no_such_path", Unimplemented, 404;
    /// What is at this address does not answer to this method.
    NoSuchMethod = "no_such_method", Unimplemented, 405;
    /// Another lease has this id.
    Exists = "exists", AlreadyExists, 409;
    /// There is no such lease.
    NoLease = "no_lease", NotFound, 404;
    /// The lease has ended.
    Lapsed = "lapsed", NotFound, 410;
    /// A lease cannot hang on itself.
    OwnParent = "own_parent", InvalidArgument, 400;
    /// There is no such class.
    NoClass = "no_class", NotFound, 404;
    /// The TTL is outside what the class allows.
    TtlOfClass = "ttl_of_class", InvalidArgument, 400;
    /// The class of the lease does not allow this kind of renewal.
    NotRenewable = "not_renewable", FailedPrecondition, 409;
    /// Somebody else is in the way.
    Taken = "taken", FailedPrecondition, 409;
    /// The handle's claim does not hold its resource.
    Stale = "stale", FailedPrecondition, 412;
    /// The lease has no such claim.
    NoClaim = "no_claim", NotFound, 404;
    /// The lease has a claim on this resource in another mode.
    OtherMode = "other_mode", FailedPrecondition, 409;
    /// The lease has a claim on this resource already.
    Claimed = "claimed", AlreadyExists, 409;
    /// The resource has another capacity than was expected.
    OtherCapacity = "other_capacity", FailedPrecondition, 409;
    /// More units are asked for than the resource has.
    TooBig = "too_big", FailedPrecondition, 409;
    /// To wait would close a circle of leases that wait for each other.
    WouldDeadlock = "would_deadlock", Aborted, 409;
    /// Several resources cannot be waited for so long.
    WaitTooLong = "wait_too_long", InvalidArgument, 400;
    /// The holder has claimed this resource in a higher epoch.
    OlderEpoch = "older_epoch", FailedPrecondition, 409;
    /// Nobody holds the resource.
    NotHeld = "not_held", NotFound, 404;
    /// There is no such key.
    NoKey = "no_key", NotFound, 404;
    /// There is no such instance.
    NoInstance = "no_instance", NotFound, 404;
    /// Another lease has an instance of this id, and it takes a higher epoch to replace it.
    InstanceExists = "instance_exists", AlreadyExists, 409;
    /// The instance was registered in a higher epoch.
    OlderInstance = "older_instance", FailedPrecondition, 409;
    /// The instance does not hang on the lease that was named.
    OtherLease = "other_lease", FailedPrecondition, 409;
    /// The instance has no such check.
    NoCheck = "no_check", NotFound, 404;
    /// The instance cannot be changed so.
    BadInstance = "bad_instance", InvalidArgument, 400;
    /// A limit of the ledger is reached.
    Full = "full", ResourceExhausted, 507;
    /// The watch cannot resume so far back.
    Compacted = "compacted", OutOfRange, 410;
    /// The watch asks to resume after something that has not happened here.
    Ahead = "ahead", OutOfRange, 409;
    /// This node does not lead; the answer says who does, if that is known.
    NotLeader = "not_leader", Unavailable, 503;
    /// The members of the cluster cannot be changed like that; nothing was changed.
    NotChanged = "not_changed", FailedPrecondition, 409;
    /// The queue is full; ask again later.
    Overloaded = "overloaded", ResourceExhausted, 429;
    /// The node is stopping, and nothing was changed.
    Stopping = "stopping", Unavailable, 503;
    /// Whether it was done is not known.
    Unknown = "unknown", DeadlineExceeded, 504;
}

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
        Refusal::WouldDeadlock { resource, circle } => v1::Failure {
            resource: resource.to_string(),
            circle: circle.iter().map(ToString::to_string).collect(),
            ..failure
        },
        Refusal::WaitTooLong { asked_ms, max_ms } => v1::Failure { asked: *asked_ms, max: *max_ms, ..failure },
        Refusal::NoKey { key } => v1::Failure { key: key.bytes().into(), ..failure },
        Refusal::Compacted { .. } | Refusal::NotYet { .. } => failure,
        Refusal::NoCheck { .. } | Refusal::BadInstance { .. } => failure,
        Refusal::NoInstance { ended: last, .. } => {
            let end = last.as_ref().map(|(how, when, wall_ms)| ended(how, *when, *wall_ms));
            v1::Failure { end, ..failure }
        }
        Refusal::InstanceExists { holder, remaining_ms, .. } => {
            v1::Failure { holder: holder.to_string(), remaining_ms: *remaining_ms, ..failure }
        }
        Refusal::OlderInstance { asked, .. } => v1::Failure { asked: *asked, ..failure },
        Refusal::OtherLease { lease, holder, .. } => {
            v1::Failure { lease: lease.number(), holder: holder.to_string(), ..failure }
        }
        Refusal::Full { what, max } => v1::Failure { what: (*what).into(), max: *max as u64, ..failure },
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
        Refusal::OtherMode { .. } => Code::OtherMode,
        Refusal::Claimed { .. } => Code::Claimed,
        Refusal::OtherCapacity { .. } => Code::OtherCapacity,
        Refusal::TooBig { .. } => Code::TooBig,
        Refusal::WouldDeadlock { .. } => Code::WouldDeadlock,
        Refusal::WaitTooLong { .. } => Code::WaitTooLong,
        Refusal::OlderEpoch { .. } => Code::OlderEpoch,
        Refusal::NotHeld { .. } => Code::NotHeld,
        Refusal::NoKey { .. } => Code::NoKey,
        Refusal::Compacted { .. } => Code::Compacted,
        Refusal::NotYet { .. } => Code::Ahead,
        Refusal::NoInstance { .. } => Code::NoInstance,
        Refusal::InstanceExists { .. } => Code::InstanceExists,
        Refusal::OlderInstance { .. } => Code::OlderInstance,
        Refusal::OtherLease { .. } => Code::OtherLease,
        Refusal::NoCheck { .. } => Code::NoCheck,
        Refusal::BadInstance { .. } => Code::BadInstance,
        Refusal::Full { .. } => Code::Full,
    }
}

fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Lapsed { how, .. } => format!("{refusal}: it {}", how_it_ended(how)),
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
        End::Transferred { to } => format!("was given to {to}"),
        End::Unhealthy => "ended because its instance was critical for too long".into(),
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
            (Refusal::Full { what: "leases", max: 1 }, Code::Full),
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
