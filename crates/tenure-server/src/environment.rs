//! What a node runs on: clock, randomness, disk, threads and network are given, so that whole nodes also run on simulated ones.

use crate::clock::{Clock, SystemClock};
use crate::disk::SharedDisk;
use crate::entropy::{Entropy, SystemEntropy};
use crate::peers::{Network, Nowhere};
use crate::place::Place;
use crate::tuning::Tuning;
use crate::workers::Workers;
use std::sync::Arc;

/// What a node stands on: clock, randomness, disk, and where work that blocks is done.
#[derive(Clone)]
pub struct Environment {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The data directory.
    pub disk: SharedDisk,
    /// Where work that blocks is done.
    pub workers: Workers,
    /// For simulations only.
    pub tuning: Tuning,
    /// The way to other nodes.
    pub network: Arc<dyn Network>,
    /// Where it is among others.
    pub place: Place,
}

impl Environment {
    /// For a node that is alone, by the clock of this machine.
    pub fn alone(disk: SharedDisk) -> Self {
        Self {
            clock: Arc::new(SystemClock::start()),
            entropy: Arc::new(SystemEntropy),
            disk,
            workers: Workers::Threads,
            tuning: Tuning::default(),
            network: Arc::new(Nowhere),
            place: Place::default(),
        }
    }
}
