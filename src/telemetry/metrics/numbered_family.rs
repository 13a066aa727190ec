//! Families whose label sets are numbered, on paths that are walked for every pod.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::OnceLock;

use prometheus_client::metrics::family::{Family, MetricConstructor};

/// Labels whose sets can be numbered.
pub(super) trait Numbered: Clone + Eq + Hash + Debug {
    /// The number of this set, below the `N` of its family.
    fn number(&self) -> usize;
}

/// A family that looks each of its `N` label sets up only once. As in any family, a series appears when it is
/// first used.
#[derive(Debug)]
pub(super) struct NumberedFamily<L: Eq + Hash, M, const N: usize, C = fn() -> M> {
    family: Family<L, M, C>,
    series: [OnceLock<M>; N],
}

impl<L: Numbered, M: Clone, C: MetricConstructor<M>, const N: usize> NumberedFamily<L, M, N, C> {
    pub(super) fn new(family: Family<L, M, C>) -> Self {
        Self { family, series: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// The series with these labels.
    pub(super) fn of(&self, labels: &L) -> &M {
        self.series[labels.number()].get_or_init(|| self.family.get_or_create_owned(labels))
    }
}
