//! Which pods of a Job its trace shows: the first, those that failed, and the slowest.

use std::collections::BTreeMap;

use jiff::SignedDuration;

/// Pods that are shown because they are the first.
const FIRST: u32 = 24;
/// Pods that are shown because they failed.
const FAILED: u32 = 24;
/// Pods that are shown because they took longest.
const SLOWEST: usize = 16;

/// The choice of pods. Most of a large Job's pods are left out, so it holds few. `T`, the record of a pod,
/// is made only for pods that may be shown.
#[derive(Debug)]
pub struct PodSample<T> {
    first: u32,
    failed: u32,
    /// The slowest so far, by time and arrival.
    slowest: BTreeMap<(SignedDuration, u64), T>,
    ended: u64,
    left_out: u64,
}

impl<T> PodSample<T> {
    /// A choice among the pods of a Job of which `earlier` pods have ended before.
    pub fn new(earlier: u32) -> Self {
        let first = FIRST.saturating_sub(earlier);
        Self { first, failed: FAILED, slowest: BTreeMap::new(), ended: 0, left_out: 0 }
    }

    /// Whether a pod that has not been seen before is one of the first.
    pub fn takes_first(&mut self) -> bool {
        let takes = self.first > 0;
        self.first -= u32::from(takes);
        takes
    }

    /// Whether the first pods are still to come.
    pub fn awaits_first(&self) -> bool {
        self.first > 0
    }

    /// Records the end of a pod. Returns its record if it is to be shown now; otherwise it may be among the
    /// slowest, or is left out.
    pub fn ended(
        &mut self,
        is_first: bool,
        failed: bool,
        took: SignedDuration,
        record: impl FnOnce() -> T,
    ) -> Option<T> {
        self.ended += 1;
        if is_first {
            return Some(record());
        }
        if failed && self.failed > 0 {
            self.failed -= 1;
            return Some(record());
        }
        let fastest = self.slowest.keys().next().filter(|_| self.slowest.len() >= SLOWEST).copied();
        match fastest {
            Some((least, _)) if took <= least => self.left_out += 1,
            displaced => {
                if let Some(key) = displaced {
                    self.slowest.remove(&key);
                    self.left_out += 1;
                }
                self.slowest.insert((took, self.ended), record());
            }
        }
        None
    }

    /// The slowest pods, which are shown once nothing slower can come.
    pub fn take_slowest(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.slowest).into_values()
    }

    /// Pods that are not shown.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the pods shown at once and at last, and how many are left out.
    fn shown(earlier: u32, pods: impl IntoIterator<Item = (bool, i64)>) -> (Vec<usize>, Vec<usize>, u64) {
        let mut sample = PodSample::new(earlier);
        let mut at_once = Vec::new();
        for (number, (failed, seconds)) in pods.into_iter().enumerate() {
            let first = sample.takes_first();
            at_once.extend(sample.ended(first, failed, SignedDuration::from_secs(seconds), || number));
        }
        let slowest = sample.take_slowest().collect();
        (at_once, slowest, sample.left_out())
    }

    fn fine(seconds: impl IntoIterator<Item = i64>) -> impl Iterator<Item = (bool, i64)> {
        seconds.into_iter().map(|seconds| (false, seconds))
    }

    #[test]
    fn the_first_the_failed_and_the_slowest_are_shown() {
        let all = |of: std::ops::Range<usize>| of.collect::<Vec<_>>();
        // A small Job is shown whole.
        assert_eq!(shown(0, fine(0..40)), (all(0..24), all(24..40), 0));
        // The slowest pods of a large Job stay, wherever they come.
        assert_eq!(shown(0, fine(0..1000)), (all(0..24), all(984..1000), 960));
        let falling = shown(24, fine((0..1000).rev()));
        assert_eq!((falling.0, falling.2), (vec![], 984));
        assert_eq!(falling.1.iter().max(), Some(&15));
        // The failed are shown at once, up to a limit; after that they compete as the others do.
        let (at_once, slowest, left_out) = shown(24, (0..50).map(|number| (number % 2 == 1, 1)));
        assert_eq!(at_once, (0..48).filter(|number| number % 2 == 1).collect::<Vec<_>>());
        assert_eq!((slowest.len(), left_out), (16, 10));
    }

    #[test]
    fn a_job_that_was_taken_over_has_had_its_first_pods() {
        for (earlier, first) in [(0, 24), (20, 4), (24, 0), (100_000, 0)] {
            assert_eq!(shown(earlier, fine(vec![1; 100])).0.len(), first, "{earlier}");
        }
    }

    #[test]
    fn of_very_many_pods_a_few_are_shown_and_the_rest_is_counted() {
        let (at_once, slowest, left_out) = shown(0, (0..100_000).map(|n| (n % 3 == 0, n * 7919 % 100_003)));
        assert_eq!((at_once.len(), slowest.len()), (48, 16));
        assert_eq!(left_out, 100_000 - 64);
    }
}
