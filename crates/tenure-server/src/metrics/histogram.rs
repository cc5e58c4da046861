//! A histogram made of atomics. The one of `prometheus-client` takes a lock for each value, and it cannot take what was
//! counted elsewhere.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How values are counted: whole numbers inside, and so many of them to one of what is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The upper bounds of the buckets but the last, which has none.
    pub(super) bounds: &'static [u64],
    pub(super) to_one: u64,
}

/// Counts of values by size. Clones are the same histogram.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    scale: Scale,
    cells: Arc<Cells>,
}

#[derive(Debug)]
struct Cells {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(scale: Scale) -> Self {
        let counts = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, cells: Arc::new(Cells { counts, sum: AtomicU64::new(0) }) }
    }

    pub(super) fn observe(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        self.cells.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.cells.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Notes a time, for a scale in nanoseconds.
    pub(super) fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes in what was counted elsewhere, by the same bounds.
    pub(super) fn add(&self, counts: &[u32], sum: u64) {
        for (cell, count) in self.cells.counts.iter().zip(counts).filter(|(_, count)| **count > 0) {
            cell.fetch_add((*count).into(), Ordering::Relaxed);
        }
        self.cells.sum.fetch_add(sum, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }

    #[expect(clippy::cast_precision_loss, reason = "what is shown has the precision of a float")]
    fn shown(&self, value: u64) -> f64 {
        value as f64 / self.scale.to_one as f64
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.scale.bounds.iter().map(|bound| self.shown(*bound)).chain([f64::MAX]);
        let counts = self.cells.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.shown(self.cells.sum.load(Ordering::Relaxed));
        let none: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
        encoder.encode_histogram(sum, count, &buckets, none)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
