//! The one source of chance in a simulation: SplitMix64, shared by all who draw.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_server::Entropy;

/// Draws the same numbers for the same seed. Clones draw from the same sequence.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: Arc<Mutex<u64>>,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(seed)) }
    }

    /// A sequence of its own, so that one part's draws do not shift another's.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&self) -> u64 {
        let mut state = self.state.lock().expect("nobody panics while drawing");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A span of so many milliseconds.
    pub(crate) fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// True once in `n`.
    pub(crate) fn one_in(&self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// A clock's rate: within one percent of true.
    pub(crate) fn rate(&self) -> f64 {
        0.99 + 0.02 * (self.next() as f64 / u64::MAX as f64)
    }
}

impl Entropy for Dice {
    fn draw(&self) -> u64 {
        self.next()
    }
}
