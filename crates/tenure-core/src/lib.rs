//! The rules of Tenure: the ledger of leases as a plain value.
//!
//! A log tells the ledger what was asked and what time it is; every node that reads the same log holds the same
//! ledger. Nothing here reads a clock, opens a file, starts a thread or waits: the crate is `no_std`, so the compiler
//! keeps it that way.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod actor;
mod command;
mod event;
mod fence;
mod ledger;
pub mod limits;
mod mode;
mod names;
mod record;
mod registry;
mod reply;
mod request;
mod time;
mod txn;

pub use actor::{Actor, ApiKeyName, Attributed, Reach};
pub use command::{
    Acquire, Break, Cancel, Command, Compact, Define, Delete, Entry, Force, Free, Grant, Hang, Keys, Leader, On, Put,
    Release, ReleaseLease, Renew, RenewHandle, Renewal, Revoke, Transfer, Wait, Want, Which,
};
pub use event::{End, Event, Happening, Leave, Revision};
pub use fence::{BadHandle, Fence, Handle};
pub use ledger::{
    Applied, Blocker, Change, Draining, EndedClaim, EndedInstance, EndedLease, Finding, Holding, Instance, KeyValue,
    Lease, Ledger, RangeSlice, Resource, Service, Slack, Stake, Suspect, Timing, Vacating, Waiter,
};
pub use mode::{Class, Counts, Epoch, Kind, Lifetime, Mode, Policy, Priority, Units};
pub use names::{BadText, Holder, Key, Label, Labels, LeaseId, Name, Note};
pub use record::{Damage, decode_outcome, encode_outcome};
pub use registry::{
    Ask, BadCheck, BadDetails, BadEndpoint, BadInstanceKey, BadWanted, Check, Deregister, Details, Draft, Drain, Edit,
    Endpoint, Health, InstanceId, InstanceKey, Judgement, OnCritical, Penalty, Probe, Register, SetHealth, Source,
    UpdateInstance, Wanted, Word,
};
pub use reply::{Occupied, Outcome, Place, Refusal, Registered, Renewed, Reply, Seat};
pub use request::{Proof, RequestNumber, Secret};
pub use time::{BadSpan, BadTtl, Moment, Span, Ttl};
pub use txn::{
    Compare, Op, OpDone, Part, Range, Ranged, Relation, Sort, SortBy, Subject, TXN_DEPTH, TXN_OPS_ALL, Txn, TxnDone,
    Way, Within,
};
