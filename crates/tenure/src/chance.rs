//! Where the random numbers of a client come from: the system, or a source that repeats itself, in simulations.

use std::fmt;
use std::sync::Arc;

/// A source of random numbers. Clones draw from the same one.
#[derive(Clone, Default)]
pub struct Chance {
    source: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.source.is_some() { "Chance::from_source" } else { "Chance::system" })
    }
}

impl Chance {
    /// Numbers that this function draws.
    pub fn from_source(source: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)) }
    }

    /// Any number.
    pub(crate) fn draw(&self) -> u64 {
        self.source.as_ref().map_or_else(rand::random, |source| source())
    }

    /// A number that is 0 or greater, and less than 1.
    pub(crate) fn fraction(&self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        (self.draw() >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
    }

    /// The id of a lease, so that a request that is repeated asks for the same one.
    pub(crate) fn lease(&self) -> u64 {
        (self.draw() >> 1).max(1)
    }
}

/// Draws the id of a lease, so that a request that is repeated asks for the same one.
pub fn draw_lease() -> u64 {
    Chance::default().lease()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_draws_stay_in_range() {
        let (lowest, highest) = (Chance::from_source(|| 0), Chance::from_source(|| u64::MAX));
        assert_eq!((lowest.lease(), highest.lease()), (1, u64::MAX >> 1));
        assert!(lowest.fraction() == 0.0 && (0.99..1.0).contains(&highest.fraction()));
    }
}
