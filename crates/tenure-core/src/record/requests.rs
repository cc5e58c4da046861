//! The shape on disk of what a request says of itself: its number, what it shows of being the holder's, and the API key that
//! it was sent with.

use super::{Damage, api_key};
use crate::actor::{Actor, Reach};
use crate::request::{Proof, RequestNumber, Secret};
use alloc::string::{String, ToString};
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

/// The API key that a command was sent with.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ActorRecord {
    #[prost(string, tag = "1")]
    key: String,
    /// 0 all, 1 named, 2 own.
    #[prost(uint32, tag = "2")]
    reach: u32,
    #[prost(uint32, optional, tag = "3")]
    leases_max: Option<u32>,
}

impl ActorRecord {
    pub(super) fn of(actor: &Actor) -> Self {
        let reach = match actor.reach {
            Reach::All => 0,
            Reach::Named => 1,
            Reach::Own => 2,
        };
        Self { key: actor.key.to_string(), reach, leases_max: actor.leases_max }
    }

    pub(super) fn read(&self) -> Result<Actor, Damage> {
        let reach = match self.reach {
            0 => Reach::All,
            1 => Reach::Named,
            2 => Reach::Own,
            _ => return Err(Damage::new("rights of a key that this build does not know")),
        };
        Ok(Actor { key: api_key(&self.key)?, reach, leases_max: self.leases_max })
    }
}
