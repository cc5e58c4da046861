//! Linearizability of histories: whether what clients saw can be explained by operations that took effect one at a time, each
//! between its call and its answer. Pure: it reads no clock and knows nothing of nodes.
//!
//! The search is that of Wing and Gong with the memory of Lowe. An operation whose outcome is unknown may have taken effect at
//! any time after its call, or never. Histories are checked in parts that share nothing: one resource, or the keys that
//! transactions bind together.

pub mod keys;
pub mod lock;
mod search;
pub mod text;

pub use search::{OPERATIONS_MAX, STEPS_MAX, check};
use std::time::Duration;

/// A place in a history: simulated time, and a count for what happened at one and the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Simulated time.
    pub time: Duration,
    /// What was recorded before it.
    pub count: u64,
}

impl At {
    /// As early as that time can be.
    pub const fn time(time: Duration) -> Self {
        Self { time, count: 0 }
    }
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<A> {
    /// When it was called.
    pub from: At,
    /// When it was answered. None: its outcome is unknown, so it may have had an effect at any time after its call, or none.
    pub to: Option<At>,
    /// What was done, and what was answered.
    pub act: A,
}

/// What a history is compared with: a value that operations change one at a time.
pub trait Model {
    /// An operation with its answer.
    type Act: PartialEq;
    /// What operations change.
    type State: Clone + Default + Ord;

    /// What an operation leaves behind; none if it cannot have been answered so in this state.
    fn step(state: &Self::State, act: &Self::Act) -> Option<Self::State>;

    /// Whether an operation changes nothing, whatever it answers.
    fn only_reads(act: &Self::Act) -> bool;
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains all answers.
    Accepted,
    /// There is none.
    Refused {
        /// The operation that no order explains together with all that were answered before it: its index.
        operation: usize,
        /// Whether an order explains the history without its reads.
        only_reads: bool,
    },
    /// The history is too long, or the search took too many steps.
    NotDecided,
}
