//! The shape on disk of what a request says of itself: its number, and what it shows of being the holder's.

use super::Damage;
use crate::request::{Proof, RequestNumber, Secret};
use prost::Message;

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct NumberRecord {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    answered_below: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReleaseLeaseRecord {
    #[prost(fixed64, tag = "1")]
    pub(super) lease: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) secret: u64,
    /// It shows not even that it knows of claims.
    #[prost(bool, tag = "3")]
    pub(super) shows_nothing: bool,
}

pub(super) fn number_record(request: Option<RequestNumber>) -> Option<NumberRecord> {
    request.map(|it| NumberRecord { number: it.number(), answered_below: it.answered_below() })
}

pub(super) fn number(record: Option<NumberRecord>) -> Result<Option<RequestNumber>, Damage> {
    let read = |it: NumberRecord| RequestNumber::new(it.number, it.answered_below);
    record.map(|it| read(it).ok_or_else(|| Damage::new("the number of a request out of range"))).transpose()
}

pub(super) const fn secret_number(proof: Proof) -> u64 {
    match proof {
        Proof::Secret(secret) => secret.number(),
        Proof::Handle | Proof::Nothing => 0,
    }
}

pub(super) fn proof(secret: u64, shows_nothing: bool) -> Result<Proof, Damage> {
    match (Secret::new(secret), shows_nothing) {
        (None, true) => Ok(Proof::Nothing),
        (secret, false) => Ok(Proof::of(secret)),
        (Some(_), true) => Err(Damage::new("a release that shows a secret and nothing")),
    }
}
