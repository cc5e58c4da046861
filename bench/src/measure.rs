//! Rates and latencies.

use std::time::{Duration, Instant};

/// What one client did: when each operation ended, and how long it took.
#[derive(Default)]
pub(crate) struct Tally {
    latencies: Vec<Duration>,
    items: u64,
}

impl Tally {
    /// One thing that took so long.
    pub(crate) fn add_latency(&mut self, took: Duration) {
        self.latencies.push(took);
        self.items += 1;
    }

    pub(crate) fn add(&mut self, started: Instant, items: u64) {
        self.latencies.push(started.elapsed());
        self.items += items;
    }
}

/// What one run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

pub(crate) fn figures(tallies: Vec<Tally>, took: Duration) -> Figures {
    let items: u64 = tallies.iter().map(|tally| tally.items).sum();
    let mut latencies: Vec<Duration> = tallies.into_iter().flat_map(|tally| tally.latencies).collect();
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        latencies.get(place.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    Figures { rate: items as f64 / took.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
}

/// The run in the middle, by rate.
pub(crate) fn median(runs: &[Figures]) -> Option<Figures> {
    let mut runs = runs.to_vec();
    runs.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    runs.get(runs.len() / 2).copied()
}
