//! Back-off between failed pods: 10 s after the first failure in a row, doubled with each further one, at
//! most 10 min.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::pod::BackoffRecord;
use super::uid::Uid;

/// A pod that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// Whether it failed (ignored failures included).
    pub failed: bool,
}

/// The streak after one more batch of ended pods. Failures alone lengthen it, successes alone end it; with
/// both, only failures after the newest success count.
pub fn extend(streak: Option<BackoffRecord>, batch: &[Ended]) -> Option<BackoffRecord> {
    let newest_success = batch.iter().filter(|e| !e.failed).map(|e| e.at).max();
    let base = if newest_success.is_some() { None } else { streak };
    batch.iter().filter(|e| e.failed && newest_success.is_none_or(|success| e.at > success)).fold(
        base,
        |streak, failure| {
            Some(match streak {
                None => BackoffRecord { failures: 1, last: failure.at },
                Some(s) => {
                    BackoffRecord { failures: s.failures.saturating_add(1), last: s.last.max(failure.at) }
                }
            })
        },
    )
}

/// The streak before we watched, as recorded by the pods of a Job. A controller that takes over a Job
/// restores the back-off of its predecessor from it.
#[derive(Clone, Debug, Default)]
pub struct History {
    carried: Option<BackoffRecord>,
    newest_success: Option<Timestamp>,
    /// Failures after that success: a pod may be shown again and again.
    failures: BTreeSet<(Timestamp, Uid)>,
}

/// More failures in a row than these, the newest, make no back-off longer.
const MOST_FAILURES: usize = 64;

impl History {
    /// Takes in the streak that a pod has carried since its creation, when the pod is first seen.
    pub fn carry(&mut self, streak: Option<BackoffRecord>) {
        self.carried = self.carried.max_by_last(streak);
    }

    /// Takes in a pod that had ended and was counted before.
    pub fn counted(&mut self, pod: &Uid, ended: Ended) {
        if ended.failed {
            self.failures.insert((ended.at, pod.clone()));
        } else {
            self.newest_success = self.newest_success.max(Some(ended.at));
        }
        while self.failures.first().is_some_and(|(at, _)| {
            self.failures.len() > MOST_FAILURES || self.newest_success.is_some_and(|success| *at <= success)
        }) {
            self.failures.pop_first();
        }
    }

    /// The streak: the latest one carried by a pod, unless a success came after it, and the failures after
    /// both.
    pub fn streak(&self) -> Option<BackoffRecord> {
        let carried = self.carried.filter(|c| self.newest_success.is_none_or(|success| c.last > success));
        let known_until = carried.map(|carried| carried.last);
        let later: Vec<Ended> = self
            .failures
            .iter()
            .filter(|(at, _)| known_until.is_none_or(|known_until| *at > known_until))
            .map(|(at, _)| Ended { at: *at, failed: true })
            .collect();
        extend(carried, &later)
    }
}

trait MaxByLast {
    fn max_by_last(self, other: Option<BackoffRecord>) -> Option<BackoffRecord>;
}

impl MaxByLast for Option<BackoffRecord> {
    fn max_by_last(self, other: Option<BackoffRecord>) -> Option<BackoffRecord> {
        [self, other].into_iter().flatten().max_by_key(|s| (s.last, s.failures))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp::from_second(s).unwrap()
    }

    fn failed(s: i64) -> Ended {
        Ended { at: at(s), failed: true }
    }

    fn succeeded(s: i64) -> Ended {
        Ended { at: at(s), failed: false }
    }

    fn streak(failures: u32, last: i64) -> Option<BackoffRecord> {
        Some(BackoffRecord { failures, last: at(last) })
    }

    #[test]
    fn a_success_ends_the_streak_and_later_failures_start_a_new_one() {
        for (before, batch, after) in [
            (None, vec![], None),
            (streak(1, 5), vec![], streak(1, 5)),
            (None, vec![failed(10), failed(11)], streak(2, 11)),
            (streak(2, 5), vec![failed(10)], streak(3, 10)),
            (streak(2, 5), vec![succeeded(10)], None),
            (streak(2, 5), vec![failed(9), succeeded(10)], None),
            (None, vec![succeeded(10), failed(10)], None),
            (streak(2, 5), vec![failed(9), succeeded(10), failed(12)], streak(1, 12)),
        ] {
            assert_eq!(extend(before, &batch), after, "{before:?} {batch:?}");
        }
    }

    #[test]
    fn history_continues_the_streak_that_pods_carry() {
        for (carried, counted, expected) in [
            (None, vec![], None),
            (None, vec![failed(3), failed(9)], streak(2, 9)),
            (streak(1, 3), vec![failed(3), failed(9)], streak(2, 9)),
            (streak(4, 9), vec![failed(9)], streak(4, 9)),
            (streak(4, 9), vec![succeeded(9)], None),
            (streak(4, 9), vec![succeeded(10)], None),
            (streak(4, 9), vec![succeeded(8), failed(12)], streak(5, 12)),
            (streak(4, 9), vec![succeeded(10), failed(12)], streak(1, 12)),
        ] {
            let mut history = History::default();
            history.carry(carried);
            for shown in [1, 2] {
                let pods = counted.iter().enumerate();
                pods.for_each(|(pod, ended)| history.counted(&Uid::from(&*pod.to_string()), *ended));
                assert_eq!(history.streak(), expected, "{carried:?} {counted:?}, shown {shown} times");
            }
            (0..1_000).for_each(|pod| history.counted(&Uid::from(&*pod.to_string()), failed(pod)));
            assert!(history.failures.len() <= MOST_FAILURES);
        }
    }
}
