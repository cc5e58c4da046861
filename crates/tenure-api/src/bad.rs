//! Input that is refused at the door: each kind with its stable code and a sentence that says what would do.

use crate::code::Code;
use crate::v1;
use tenure_core::limits::{CAPACITY_MAX, PRIORITY_MAX, RENEWALS_MAX, RESOURCES_MAX};
use tenure_core::{BadDetails, BadEndpoint, BadHandle, BadSpan, BadText, BadTtl, BadWanted, Name, Word};

/// Input that is refused at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The request says nothing.
    #[error("the request has no body that this server knows")]
    Empty,
    /// A claim or an instance on two leases, or on none.
    #[error("either `grant` or `lease` is needed, not both")]
    OneLease,
    /// A request that does not say what it is about.
    #[error("the request does not say {0}")]
    Missing(&'static str),
    /// Two things that cannot be said together.
    #[error("the request says both {0}")]
    Both(&'static str),
    /// Where to go on is not the `next` of a reply.
    #[error("`from` is not the `next` of a reply to the same request")]
    From,
    /// A resource name.
    #[error("the resource name is not valid: {0}")]
    Name(BadText),
    /// The start of names.
    #[error("the prefix is not valid: {0}")]
    Prefix(BadText),
    /// A holder's name.
    #[error("the holder is not valid: {0}")]
    Holder(BadText),
    /// A reason.
    #[error("the reason is not valid: {0}")]
    Reason(BadText),
    /// The name of a class.
    #[error("the name of the class is not valid: {0}")]
    Class(BadText),
    /// A label.
    #[error("the labels are not valid: {0}")]
    Label(BadText),
    /// A key.
    #[error("the key is not valid: {0}")]
    Key(BadText),
    /// A TTL that is out of range.
    #[error("{0}")]
    Ttl(BadTtl),
    /// A TTL below zero.
    #[error("a TTL of {0} ms is below zero")]
    NegativeTtl(i64),
    /// A length of time that is too long.
    #[error("{what} is not valid: {bad}")]
    Span {
        /// Which.
        what: &'static str,
        /// How long it was, and how long it may be.
        bad: BadSpan,
    },
    /// A length of time below zero.
    #[error("{what} of {ms} ms is below zero")]
    NegativeSpan {
        /// Which.
        what: &'static str,
        /// What was given.
        ms: i64,
    },
    /// When a maximum lifetime counts, without a maximum lifetime.
    #[error("`lifetime_while_others_wait` says when a maximum lifetime counts, and `lifetime_ms` names none")]
    NoLifetime,
    /// The number of a request about a lease that does not live yet.
    #[error(
        "`number` tells requests about a lease that lives apart: say it with `lease`; a new lease has the `request` of its grant"
    )]
    NumberOfNew,
    /// The number of a request.
    #[error(
        "{0} is not the number of a request: a whole number from 1 to 2^53 - 1, and `answered_below` goes with one"
    )]
    Number(u64),
    /// A limit to waiting for who does not wait.
    #[error("`wait_limit_ms` says how long to wait, and `wait` is not set")]
    NoWait,
    /// Too many starts of names in one watch.
    #[error("{given} prefixes in one watch, at most {max}")]
    ManyPrefixes {
        /// How many there were.
        given: usize,
        /// How many there may be.
        max: usize,
    },
    /// A lease id.
    #[error("{0} is not a lease id: a whole number from 1 to 2^63 - 1")]
    Lease(u64),
    /// A handle.
    #[error("the handle is not valid: {0}")]
    Handle(BadHandle),
    /// A fence.
    #[error("{0} is not a fence: a whole number from 1 to 2^53 - 1")]
    Fence(u64),
    /// A mode that there is not.
    #[error("{0} is not a mode: exclusive (1), shared (2), units (3)")]
    Mode(i32),
    /// Units with a mode that has none.
    #[error("`units` goes with the mode units only")]
    UnitsOfMode,
    /// A number of units.
    #[error("{0} is not a number of units: from 1 to {CAPACITY_MAX}")]
    Units(u64),
    /// A capacity.
    #[error("{0} is not a capacity: from 1 to {CAPACITY_MAX}")]
    Capacity(u64),
    /// A priority.
    #[error("{0} is not a priority: from -{PRIORITY_MAX} to {PRIORITY_MAX}")]
    Priority(i32),
    /// An epoch.
    #[error("{0} is not an epoch: a whole number from 1 to 2^63 - 1")]
    Epoch(u64),
    /// A kind of renewal that there is not.
    #[error("{0} is not a kind of renewal: auto (0), touch (1), explicit (2)")]
    Kind(i32),
    /// A policy that there is not.
    #[error("{0} is not what renews a class: auto (1), activity (2), explicit (3), never (4)")]
    Policy(i32),
    /// One resource and several.
    #[error("the request names one resource and several: say either")]
    OneOrSeveral,
    /// More resources than one request may name.
    #[error("{0} resources are more than the {RESOURCES_MAX} that one request may name")]
    ManyResources(usize),
    /// A resource that is named twice.
    #[error("{0} is named twice")]
    Twice(Name),
    /// TTLs that do not match the leases.
    #[error("a renewal needs one TTL for each lease, or none at all")]
    Ttls,
    /// The name of a service.
    #[error("the name of the service is not valid: {0}")]
    Service(BadText),
    /// Something that has to be a word.
    #[error("{what} is not valid: {bad}")]
    Word {
        /// What.
        what: &'static str,
        /// Why it is none.
        bad: BadText,
    },
    /// An endpoint of an instance.
    #[error("endpoint number {at}, counted from 0, is not valid: {bad}")]
    Endpoint {
        /// Which.
        at: usize,
        /// Why it is none.
        bad: BadEndpoint,
    },
    /// What an instance says of itself.
    #[error("the instance is not valid: {0}")]
    Details(BadDetails),
    /// A kind of check that there is not.
    #[error("{0} is not a kind of check: pushed (1), tcp (2), http (3), grpc (4)")]
    CheckKind(i32),
    /// A check says what checks of its kind do not have.
    #[error("check {name}: `{field}` is not for its kind")]
    CheckField {
        /// Which check.
        name: Word,
        /// What it says.
        field: &'static str,
    },
    /// A health that there is not.
    #[error("{0} is not a health: passing (1), degraded (2), critical (3), unknown (4)")]
    Health(i32),
    /// Something that becomes of a critical instance that there is not.
    #[error("{0} is not what becomes of a critical instance: mark (1), revoke (2), observe (3)")]
    OnCritical(i32),
    /// How long an instance may be critical, without anything that follows.
    #[error("`revoke_after_ms` says after how long a critical instance is revoked, and `on_critical` is not revoke")]
    RevokeAfter,
    /// An expression over capabilities.
    #[error("the expression over capabilities cannot be read: {0}")]
    Wanted(BadWanted),
    /// Too many renewals in one request.
    #[error("{0} leases are more than the {RENEWALS_MAX} that one renewal may name")]
    TooMany(usize),
}

impl BadRequest {
    /// The stable code.
    pub const fn code(&self) -> Code {
        match self {
            Self::Empty | Self::OneLease | Self::Ttls | Self::From => Code::BadRequest,
            Self::Missing(_) | Self::Both(_) | Self::NoWait | Self::NumberOfNew | Self::Number(_) => Code::BadRequest,
            Self::Name(_) => Code::BadName,
            Self::Prefix(_) => Code::BadPrefix,
            Self::Holder(_) => Code::BadHolder,
            Self::Reason(_) => Code::BadReason,
            Self::Class(_) | Self::Policy(_) => Code::BadClass,
            Self::Label(_) => Code::BadLabel,
            Self::Key(_) => Code::BadKey,
            Self::Ttl(_) | Self::NegativeTtl(_) => Code::BadTtl,
            Self::Span { .. } | Self::NegativeSpan { .. } | Self::NoLifetime => Code::BadSpan,
            Self::Lease(_) => Code::BadLease,
            Self::Handle(_) | Self::Fence(_) => Code::BadHandle,
            Self::Mode(_) | Self::UnitsOfMode => Code::BadMode,
            Self::Units(_) => Code::BadUnits,
            Self::Capacity(_) => Code::BadCapacity,
            Self::Priority(_) => Code::BadPriority,
            Self::Epoch(_) => Code::BadEpoch,
            Self::Kind(_) => Code::BadKind,
            Self::OneOrSeveral | Self::ManyResources(_) | Self::Twice(_) => Code::BadWants,
            Self::Service(_) => Code::BadName,
            Self::Word { .. } => Code::BadWord,
            Self::Endpoint { .. } => Code::BadEndpoint,
            Self::Details(BadDetails::Check { .. }) | Self::CheckKind(_) | Self::CheckField { .. } => Code::BadCheck,
            Self::Details(_) | Self::OnCritical(_) | Self::RevokeAfter => Code::BadInstance,
            Self::Health(_) => Code::BadHealth,
            Self::Wanted(_) => Code::BadExpression,
            Self::TooMany(_) | Self::ManyPrefixes { .. } => Code::TooMany,
        }
    }

    /// What the client is told.
    pub fn failure(&self) -> v1::Failure {
        let message = format!("{self}; nothing was changed");
        v1::Failure { code: self.code().text().into(), message, ..v1::Failure::default() }
    }
}
