//! Randomness as a parameter, so that a simulated node draws the same numbers for the same seed.

use tenure_core::LeaseId;

/// A source of random numbers.
pub trait Entropy: Send + Sync + 'static {
    /// A number that nobody can guess.
    fn draw(&self) -> u64;
}

/// The operating system's randomness.
#[derive(Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn draw(&self) -> u64 {
        rand::random()
    }
}

/// Draws the id of a lease.
pub(crate) fn draw_lease(entropy: &dyn Entropy) -> LeaseId {
    loop {
        if let Some(lease) = LeaseId::from_number(entropy.draw() >> 1) {
            return lease;
        }
    }
}
