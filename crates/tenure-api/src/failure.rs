//! One table of every refusal: its stable text code, its gRPC code, its HTTP status.

use crate::v1;
use crate::write::ended;
use prost::Message;
use tenure_core::Refusal;
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
    /// A holder's name that cannot be one.
    BadHolder = "bad_holder", InvalidArgument, 400;
    /// A reason that cannot be one.
    BadReason = "bad_reason", InvalidArgument, 400;
    /// A TTL out of range.
    BadTtl = "bad_ttl", InvalidArgument, 400;
    /// A lease id out of range.
    BadLease = "bad_lease", InvalidArgument, 400;
    /// A handle that cannot be one.
    BadHandle = "bad_handle", InvalidArgument, 400;
    /// More than one request may carry.
    TooMany = "too_many", InvalidArgument, 400;
    /// Another lease has this id.
    Exists = "exists", AlreadyExists, 409;
    /// There is no such lease.
    NoLease = "no_lease", NotFound, 404;
    /// The lease has ended.
    Lapsed = "lapsed", NotFound, 410;
    /// Somebody else holds the resource.
    Taken = "taken", FailedPrecondition, 409;
    /// The handle's claim does not hold its resource.
    Stale = "stale", FailedPrecondition, 412;
    /// The lease has no such claim.
    NoClaim = "no_claim", NotFound, 404;
    /// A limit of the ledger is reached.
    Full = "full", ResourceExhausted, 507;
    /// The watch cannot resume so far back.
    Compacted = "compacted", OutOfRange, 410;
    /// The watch asks to resume after something that has not happened here.
    Ahead = "ahead", OutOfRange, 409;
    /// This node does not lead; the answer says who does, if that is known.
    NotLeader = "not_leader", Unavailable, 503;
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
    let message = match refusal {
        Refusal::Lapsed { how, .. } => format!("{refusal}: it {}", how_it_ended(how)),
        Refusal::Stale { current, ended, .. } => match (current, ended) {
            (_, Some((how, ..))) => format!("{refusal}: its claim {}", how_it_ended(how)),
            (Some((holder, fence)), None) => format!("{refusal}: {holder} holds it with fence {fence}"),
            (None, None) => format!("{refusal}: nobody holds it, and no such claim is remembered"),
        },
        _ => refusal.to_string(),
    };
    let mut failure = v1::Failure { message: format!("{message}; nothing was changed"), ..v1::Failure::default() };
    let code = match refusal {
        Refusal::Exists { lease, holder } => {
            failure.lease = lease.number();
            failure.holder = holder.to_string();
            Code::Exists
        }
        Refusal::NoLease { lease } => {
            failure.lease = lease.number();
            Code::NoLease
        }
        Refusal::Lapsed { lease, how, when, wall_ms } => {
            failure.lease = lease.number();
            failure.end = Some(ended(how, *when, *wall_ms));
            Code::Lapsed
        }
        Refusal::Taken { resource, holder, fence, remaining_ms, waiting } => {
            failure.resource = resource.to_string();
            failure.holder = holder.to_string();
            failure.fence = fence.map_or(0, tenure_core::Fence::number);
            failure.remaining_ms = *remaining_ms;
            failure.waiting = *waiting;
            Code::Taken
        }
        Refusal::Stale { handle, current, ended: end } => {
            failure.resource = handle.resource.to_string();
            failure.fence = handle.fence.number();
            failure.holder = current.as_ref().map_or_else(String::new, |(holder, _)| holder.to_string());
            failure.end = end.as_ref().map(|(how, when, wall_ms)| ended(how, *when, *wall_ms));
            Code::Stale
        }
        Refusal::NoClaim { lease, resource } => {
            failure.lease = lease.number();
            failure.resource = resource.to_string();
            Code::NoClaim
        }
        Refusal::Full { .. } => Code::Full,
    };
    failure.code = code.text().into();
    failure
}

fn how_it_ended(how: &tenure_core::End) -> String {
    match how {
        tenure_core::End::Released => "was released".into(),
        tenure_core::End::Expired => "expired".into(),
        tenure_core::End::Revoked { by, reason } if reason.as_str().is_empty() => format!("was revoked by {by}"),
        tenure_core::End::Revoked { by, reason } => format!("was revoked by {by}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{End, Fence, Handle, Holder, LeaseId, Moment, Name};

    fn every_refusal() -> Vec<(Refusal, Code)> {
        let lease = LeaseId::from_number(7).unwrap();
        let (resource, holder) = (Name::parse("db").unwrap(), Holder::parse("ann").unwrap());
        let (fence, when) = (Fence::from_number(3).unwrap(), Moment::from_millis(5));
        let handle = Handle { resource: resource.clone(), fence };
        let ended = Some((End::Expired, when, 9));
        let taken = Refusal::Taken {
            resource: resource.clone(),
            holder: holder.clone(),
            fence: Some(fence),
            remaining_ms: 11,
            waiting: 2,
        };
        vec![
            (Refusal::Exists { lease, holder: holder.clone() }, Code::Exists),
            (Refusal::NoLease { lease }, Code::NoLease),
            (Refusal::Lapsed { lease, how: End::Expired, when, wall_ms: 9 }, Code::Lapsed),
            (taken, Code::Taken),
            (Refusal::Stale { handle: handle.clone(), current: Some((holder, fence)), ended: None }, Code::Stale),
            (Refusal::Stale { handle, current: None, ended }, Code::Stale),
            (Refusal::NoClaim { lease, resource }, Code::NoClaim),
            (Refusal::Full { what: "leases", max: 1 }, Code::Full),
        ]
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
