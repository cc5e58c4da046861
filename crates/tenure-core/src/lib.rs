//! The rules of Tenure: the ledger of leases as a plain value.
//!
//! A log tells the ledger what was asked and what time it is; every node that reads the same log holds the same
//! ledger. Nothing here reads a clock, opens a file, starts a thread or waits: the crate is `no_std`, so the compiler
//! keeps it that way.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod command;
mod event;
mod fence;
mod ledger;
pub mod limits;
mod names;
mod record;
mod time;

pub use command::{
    Acquire, Cancel, Command, Entry, Grant, Leader, On, Outcome, Refusal, Release, Renew, RenewHandle, Renewal,
    Renewed, Reply, Revoke, Seat, Wait,
};
pub use event::{End, Event, Happening, Revision};
pub use fence::{BadHandle, Fence, Handle};
pub use ledger::{Applied, EndedClaim, EndedLease, Holding, Lease, Ledger, Resource, Stake};
pub use names::{BadText, Holder, LeaseId, Name, Note};
pub use record::Damage;
pub use time::{BadTtl, Moment, Ttl};
