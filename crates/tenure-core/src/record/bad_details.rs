//! The shape of why an instance cannot be as it says, between nodes.

use super::outcome::{NothingRecord, size, what};
use super::{Damage, word};
use crate::registry::{BadCheck, BadDetails};
use alloc::string::{String, ToString};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct BadDetailsRecord {
    #[prost(oneof = "BadDetailsKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    kind: Option<BadDetailsKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum BadDetailsKind {
    #[prost(message, tag = "1")]
    NoEndpoint(NothingRecord),
    #[prost(message, tag = "2")]
    TooMany(TooManyRecord),
    #[prost(string, tag = "3")]
    Twice(String),
    #[prost(message, tag = "4")]
    Check(NamedCheckRecord),
    #[prost(uint64, tag = "5")]
    RevokeAfter(u64),
    #[prost(uint32, tag = "6")]
    Weight(u32),
    #[prost(uint64, tag = "7")]
    TooLong(u64),
}

#[derive(Clone, PartialEq, Message)]
struct TooManyRecord {
    #[prost(string, tag = "1")]
    what: String,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(uint64, tag = "3")]
    max: u64,
}

#[derive(Clone, PartialEq, Message)]
struct NamedCheckRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, required, tag = "2")]
    bad: BadCheckRecord,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct BadCheckRecord {
    #[prost(oneof = "BadCheckKind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    kind: Option<BadCheckKind>,
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
enum BadCheckKind {
    #[prost(message, tag = "1")]
    NoEndpoint(NoEndpointRecord),
    #[prost(uint64, tag = "2")]
    Interval(u64),
    #[prost(message, tag = "3")]
    Timeout(TimeoutRecord),
    #[prost(message, tag = "4")]
    Thresholds(NothingRecord),
    #[prost(uint64, tag = "5")]
    Pushed(u64),
    #[prost(message, tag = "6")]
    Path(NothingRecord),
    #[prost(message, tag = "7")]
    Statuses(NothingRecord),
    #[prost(message, tag = "8")]
    Service(NothingRecord),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct NoEndpointRecord {
    #[prost(uint64, tag = "1")]
    endpoint: u64,
    #[prost(uint64, tag = "2")]
    endpoints: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct TimeoutRecord {
    #[prost(uint64, tag = "1")]
    ms: u64,
    #[prost(uint64, tag = "2")]
    max_ms: u64,
}

fn unknown() -> Damage {
    Damage::new("an instance that is refused for a reason that this build does not know")
}

impl BadDetails {
    pub(super) fn record(&self) -> BadDetailsRecord {
        let kind = match self {
            Self::NoEndpoint => BadDetailsKind::NoEndpoint(NothingRecord {}),
            Self::TooMany { what, count, max } => {
                let what = what.to_string();
                BadDetailsKind::TooMany(TooManyRecord { what, count: *count as u64, max: *max as u64 })
            }
            Self::Twice { what } => BadDetailsKind::Twice(what.to_string()),
            Self::Check { name, bad } => {
                BadDetailsKind::Check(NamedCheckRecord { name: name.to_string(), bad: bad.record() })
            }
            Self::RevokeAfter { ms } => BadDetailsKind::RevokeAfter(*ms),
            Self::Weight { weight } => BadDetailsKind::Weight(*weight),
            Self::TooLong { bytes } => BadDetailsKind::TooLong(*bytes as u64),
        };
        BadDetailsRecord { kind: Some(kind) }
    }

    pub(super) fn read(record: BadDetailsRecord) -> Result<Self, Damage> {
        Ok(match record.kind.ok_or_else(unknown)? {
            BadDetailsKind::NoEndpoint(NothingRecord {}) => Self::NoEndpoint,
            BadDetailsKind::TooMany(it) => {
                Self::TooMany { what: what(it.what)?, count: size(it.count)?, max: size(it.max)? }
            }
            BadDetailsKind::Twice(text) => Self::Twice { what: what(text)? },
            BadDetailsKind::Check(it) => Self::Check { name: word(&it.name)?, bad: BadCheck::read(it.bad)? },
            BadDetailsKind::RevokeAfter(ms) => Self::RevokeAfter { ms },
            BadDetailsKind::Weight(weight) => Self::Weight { weight },
            BadDetailsKind::TooLong(bytes) => Self::TooLong { bytes: size(bytes)? },
        })
    }
}

impl BadCheck {
    const fn record(&self) -> BadCheckRecord {
        let kind = match *self {
            Self::NoEndpoint { endpoint, endpoints } => {
                BadCheckKind::NoEndpoint(NoEndpointRecord { endpoint: endpoint as u64, endpoints: endpoints as u64 })
            }
            Self::Interval { ms } => BadCheckKind::Interval(ms),
            Self::Timeout { ms, max_ms } => BadCheckKind::Timeout(TimeoutRecord { ms, max_ms }),
            Self::Thresholds => BadCheckKind::Thresholds(NothingRecord {}),
            Self::Pushed { ms } => BadCheckKind::Pushed(ms),
            Self::Path => BadCheckKind::Path(NothingRecord {}),
            Self::Statuses => BadCheckKind::Statuses(NothingRecord {}),
            Self::Service => BadCheckKind::Service(NothingRecord {}),
        };
        BadCheckRecord { kind: Some(kind) }
    }

    fn read(record: BadCheckRecord) -> Result<Self, Damage> {
        Ok(match record.kind.ok_or_else(unknown)? {
            BadCheckKind::NoEndpoint(it) => {
                Self::NoEndpoint { endpoint: size(it.endpoint)?, endpoints: size(it.endpoints)? }
            }
            BadCheckKind::Interval(ms) => Self::Interval { ms },
            BadCheckKind::Timeout(it) => Self::Timeout { ms: it.ms, max_ms: it.max_ms },
            BadCheckKind::Thresholds(NothingRecord {}) => Self::Thresholds,
            BadCheckKind::Pushed(ms) => Self::Pushed { ms },
            BadCheckKind::Path(NothingRecord {}) => Self::Path,
            BadCheckKind::Statuses(NothingRecord {}) => Self::Statuses,
            BadCheckKind::Service(NothingRecord {}) => Self::Service,
        })
    }
}
