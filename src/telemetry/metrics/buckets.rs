//! Bounds of histograms.

use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::latency::TracedHistogram;

/// A family of histograms of durations.
pub type DurationFamily<L> = Family<L, Histogram, Buckets>;

/// Bounds of a histogram, in seconds.
#[derive(Clone, Copy, Debug)]
pub enum Buckets {
    /// Each bound is a multiple of the one before.
    Exponential {
        /// The first bound.
        start: f64,
        /// The factor between two bounds.
        factor: f64,
        /// How many bounds there are.
        count: u16,
    },
    /// These bounds.
    Fixed(&'static [f64]),
}

impl Buckets {
    /// The built-in's buckets for syncs: 4 ms to 65 s.
    pub(super) const SYNC: Self = Self::doubling(0.004, 15);
    /// The built-in's buckets for deletions after the TTL: 0.1 s to 14 min.
    pub(super) const TTL: Self = Self::doubling(0.1, 14);
    /// Buckets for requests: 1 ms to 33 s.
    pub(super) const REQUEST: Self = Self::doubling(0.001, 16);
    /// Buckets for the waits of users: 1 ms to 17 min.
    pub(super) const LATENCY: Self = Self::doubling(0.001, 21);
    /// client-go's buckets for requests.
    pub(super) const REST_CLIENT: Self =
        Self::Fixed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);
    /// client-go's buckets for work queues: 10 ns to 1,000 s.
    pub(super) const WORK_QUEUE: Self = Self::Exponential { start: 1e-8, factor: 10.0, count: 12 };

    const fn doubling(start: f64, count: u16) -> Self {
        Self::Exponential { start, factor: 2.0, count }
    }

    fn bounds(self) -> Vec<f64> {
        match self {
            Self::Exponential { start, factor, count } => exponential_buckets(start, factor, count).collect(),
            Self::Fixed(bounds) => bounds.to_vec(),
        }
    }

    pub(super) fn histogram(self) -> Histogram {
        Histogram::new(self.bounds())
    }

    pub(super) fn traced(self) -> TracedHistogram {
        TracedHistogram::new(self.bounds().into_iter())
    }
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        self.histogram()
    }
}
