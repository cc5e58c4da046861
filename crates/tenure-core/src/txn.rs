//! What is asked of keys beyond one put or one delete: ranges, and transactions of them, by etcd's rules. Nothing here
//! decides anything.

use crate::command::{Keys, Put};
use crate::ledger::KeyValue;
use crate::limits::{TXN_DEPTH_MAX, TXN_OPS_ALL_MAX};
use crate::names::Key;
use crate::reply::Refusal;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a refusal of a transaction with too many levels counts.
pub const TXN_DEPTH: &str = "transactions within each other";

/// What a refusal of a transaction with too many operations counts.
pub const TXN_OPS_ALL: &str = "operations and conditions of a transaction over all its levels";

/// Look at keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which.
    pub keys: Keys,
    /// As they were at this revision of the keyspace; none, or one that never was, for now.
    pub revision: Option<i64>,
    /// How many at most; none for all.
    pub limit: Option<usize>,
    /// In which order; none for that of the keys.
    pub sort: Option<Sort>,
    /// Only those last written in these revisions.
    pub modified: Within,
    /// Only those created in these revisions.
    pub created: Within,
    /// What of them.
    pub part: Part,
}

impl Range {
    /// All of some keys, as they are now.
    pub const fn of(keys: Keys) -> Self {
        let (modified, created) = (Within::ANY, Within::ANY);
        Self { keys, revision: None, limit: None, sort: None, modified, created, part: Part::Whole }
    }

    /// Whether some keys are left out by their revisions.
    pub(crate) fn is_filtered(&self) -> bool {
        self.modified != Within::ANY || self.created != Within::ANY
    }
}

/// What is wanted of the keys that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Keys and values.
    Whole,
    /// Keys with empty values.
    KeysOnly,
    /// How many there are.
    CountOnly,
}

/// Revisions from one to another. 0 is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// The first.
    pub min: i64,
    /// The last.
    pub max: i64,
}

impl Within {
    /// All of them.
    pub const ANY: Self = Self { min: 0, max: 0 };

    pub(crate) fn holds(self, revision: u64) -> bool {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        (self.min == 0 || revision >= self.min) && (self.max == 0 || revision <= self.max)
    }
}

/// An order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub by: SortBy,
    /// Which way; none is upwards, but after a limit has chosen the first by their keys.
    pub way: Option<Way>,
}

/// What keys are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Their own bytes.
    Key,
    /// How often they were written.
    Version,
    /// When they were created.
    Created,
    /// When they were last written.
    Modified,
    /// The bytes of their values.
    Value,
}

/// Which way keys are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The least first.
    Up,
    /// The greatest first.
    Down,
}

/// What a range found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranged {
    /// The keys, in order.
    pub items: Vec<(Key, KeyValue)>,
    /// Whether the limit left some out.
    pub more: bool,
    /// How many keys are in the range, whatever the limit and the revisions leave out.
    pub count: u64,
}

/// Compare, then do one thing or another, in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold, all of it.
    pub compares: Vec<Compare>,
    /// What is done if it holds.
    pub then: Vec<Op>,
    /// What is done if it does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// One operation without a condition.
    pub fn of(op: Op) -> Self {
        Self { then: alloc::vec![op], ..Self::default() }
    }

    /// Whether it is no deeper and no larger than a transaction may be, over all its levels and both of its ways.
    pub fn check_size(&self) -> Result<(), Refusal> {
        self.size_within(TXN_DEPTH_MAX, &mut TXN_OPS_ALL_MAX.clone())
    }

    fn size_within(&self, depth: usize, left: &mut usize) -> Result<(), Refusal> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Refusal::Full { what: TXN_DEPTH.into(), max: TXN_DEPTH_MAX });
        };
        let here = self.compares.len() + self.then.len() + self.otherwise.len();
        *left = left.checked_sub(here).ok_or(Refusal::Full { what: TXN_OPS_ALL.into(), max: TXN_OPS_ALL_MAX })?;
        self.within().try_for_each(|txn| txn.size_within(depth, left))
    }

    /// The transactions right within it, on both of its ways.
    fn within(&self) -> impl Iterator<Item = &Self> {
        self.then.iter().chain(&self.otherwise).filter_map(|op| match op {
            Op::Txn(txn) => Some(txn),
            Op::Range(_) | Op::Put { .. } | Op::Delete { .. } => None,
        })
    }

    /// Whether there are transactions within it.
    pub fn nests(&self) -> bool {
        self.within().next().is_some()
    }

    /// Whether it changes nothing, whichever way it goes.
    pub fn only_reads(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(|op| match op {
            Op::Range(_) => true,
            Op::Put { .. } | Op::Delete { .. } => false,
            Op::Txn(txn) => txn.only_reads(),
        })
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let compares: usize = self.compares.iter().map(Compare::bytes).sum();
        compares + self.then.iter().chain(&self.otherwise).map(Op::bytes).sum::<usize>()
    }
}

/// One thing that a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Look at keys, as those before it in the transaction left them.
    Range(Range),
    /// Write a key.
    Put {
        /// What.
        put: Put,
        /// Whether to tell what it was before.
        prev: bool,
    },
    /// Remove keys.
    Delete {
        /// Which.
        keys: Keys,
        /// Whether to tell what they were.
        prev: bool,
    },
    /// A transaction within. What it compares was so before the whole one began.
    Txn(Txn),
}

impl Op {
    fn bytes(&self) -> usize {
        64 + match self {
            Self::Range(range) => range.keys.bytes(),
            Self::Put { put, .. } => put.bytes(),
            Self::Delete { keys, .. } => keys.bytes(),
            Self::Txn(txn) => txn.bytes(),
        }
    }
}

/// A condition on one key or on each of several. Of a key that is not there all numbers are 0, and no value holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which.
    pub keys: Keys,
    /// What it has.
    pub subject: Subject,
    /// How that is to what is given.
    pub relation: Relation,
}

impl Compare {
    fn bytes(&self) -> usize {
        let value = if let Subject::Value(value) = &self.subject { value.len() } else { 8 };
        self.keys.bytes() + value
    }
}

/// What of a key is compared, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// How often it was written.
    Version(i64),
    /// The revision when it was created.
    Created(i64),
    /// The revision when it was last written.
    Modified(i64),
    /// Its value.
    Value(Arc<[u8]>),
    /// The number of its lease; 0 for none.
    Lease(i64),
}

/// How what a key has must be to what is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// More.
    Greater,
    /// Less.
    Less,
    /// Another.
    NotEqual,
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnDone {
    /// The keyspace's revision after it.
    pub kv_revision: u64,
    /// Whether all that it compares held.
    pub held: bool,
    /// What each of its operations did.
    pub ops: Vec<OpDone>,
}

/// What one operation of a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpDone {
    /// What was found.
    Range {
        /// The keyspace's revision, as the operations before it left it.
        kv_revision: u64,
        /// The keys.
        ranged: Ranged,
    },
    /// The key was written.
    Put {
        /// The keyspace's revision of this change.
        kv_revision: u64,
        /// What it was before, if that was asked for.
        prev: Option<(Key, KeyValue)>,
    },
    /// The keys are gone.
    Deleted {
        /// The keyspace's revision after it.
        kv_revision: u64,
        /// How many there were.
        count: u64,
        /// What they were, if that was asked for.
        prev: Vec<(Key, KeyValue)>,
    },
    /// What the transaction within did.
    Txn(TxnDone),
}
