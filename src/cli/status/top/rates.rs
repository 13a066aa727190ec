//! How fast pods are created and end, from the counts of Jobs in reports.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::job::JobReport;
use super::super::report::Report;

/// Reports between whose first and last the rates are: ten seconds.
const KEPT: usize = 6;

/// Pods per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) created: f64,
    pub(super) succeeded: f64,
    pub(super) failed: f64,
}

/// Pods of a Job so far.
#[derive(Clone, Copy, Debug, Default)]
struct PodCounts {
    created: i64,
    succeeded: i64,
    failed: i64,
}

impl PodCounts {
    fn of(job: &JobReport) -> Self {
        let [active, succeeded, failed] = [job.active, job.succeeded, job.failed].map(i64::from);
        Self { created: active + succeeded + failed, succeeded, failed }
    }
}

/// The last reports.
#[derive(Debug, Default)]
pub(super) struct RateHistory {
    reports: VecDeque<Arc<Report>>,
    /// Of all Jobs, once there are two reports.
    rates: Option<Rates>,
    /// By the UID of the Job.
    by_job: HashMap<String, Rates>,
}

impl RateHistory {
    /// Adds a report. Returns whether it is newer than the last.
    pub(super) fn record(&mut self, report: Arc<Report>) -> bool {
        if self.reports.back().is_some_and(|last| last.time >= report.time) {
            return false;
        }
        self.reports.push_back(report);
        if self.reports.len() > KEPT {
            self.reports.pop_front();
        }
        self.compare();
        true
    }

    /// The newest report.
    pub(super) fn latest(&self) -> Option<&Report> {
        self.reports.back().map(|report| &**report)
    }

    /// The rates of all Jobs together; `None` while there is a single report.
    pub(super) fn rates(&self) -> Option<Rates> {
        self.rates
    }

    /// The rates of a Job.
    pub(super) fn of_job(&self, job: &JobReport) -> Rates {
        self.by_job.get(&job.uid).copied().unwrap_or_default()
    }

    fn compare(&mut self) {
        let (Some(first), Some(last)) = (self.reports.front(), self.reports.back()) else { return };
        let seconds = last.time.duration_since(first.time).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let before: HashMap<&str, PodCounts> =
            first.jobs.iter().map(|job| (job.uid.as_str(), PodCounts::of(job))).collect();
        let (mut all, mut by_job) = (Rates::default(), HashMap::new());
        for job in &last.jobs {
            // A Job that is new has created all of its pods since.
            let (before, after) =
                (before.get(job.uid.as_str()).copied().unwrap_or_default(), PodCounts::of(job));
            // Pods that were deleted, as of a suspended Job, are not counted any longer.
            let rate = |before: i64, after: i64| (after - before).max(0) as f64 / seconds;
            let rates = Rates {
                created: rate(before.created, after.created),
                succeeded: rate(before.succeeded, after.succeeded),
                failed: rate(before.failed, after.failed),
            };
            all.created += rates.created;
            all.succeeded += rates.succeeded;
            all.failed += rates.failed;
            by_job.insert(job.uid.clone(), rates);
        }
        (self.rates, self.by_job) = (Some(all), by_job);
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    use super::super::super::job::tests::job;
    use super::*;
    use crate::cli::ownership::Ownership;

    /// A report of this second with Jobs of these names, specs and statuses.
    pub(in super::super) fn report(second: i64, jobs: &[(&str, Value, Value)]) -> Arc<Report> {
        let jobs = jobs.iter().map(|(name, spec, status)| {
            let report = job(name, spec.clone(), status.clone());
            JobReport { uid: (*name).to_owned(), ..report }
        });
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let time = start + SignedDuration::from_secs(second);
        Arc::new(Report { time, ownership: Ownership::default(), jobs: jobs.collect() })
    }

    fn counts(active: i32, succeeded: i32, failed: i32) -> Value {
        json!({"active": active, "succeeded": succeeded, "failed": failed})
    }

    #[test]
    fn rates_follow_from_the_reports_of_the_last_ten_seconds() {
        let mut history = RateHistory::default();
        let none = || json!({});
        assert!(
            history
                .record(report(0, &[("old", none(), counts(10, 100, 1)), ("gone", none(), counts(1, 1, 1))]))
        );
        assert_eq!(history.rates(), None);
        assert!(!history.record(report(0, &[])), "the same report");
        let later = [("old", none(), counts(10, 140, 3)), ("new", none(), counts(4, 0, 0))];
        history.record(report(2, &later));
        assert_eq!(history.rates(), Some(Rates { created: 23.0, succeeded: 20.0, failed: 1.0 }));
        let old = history.latest().unwrap().jobs.first().unwrap().clone();
        assert_eq!(history.of_job(&old), Rates { created: 21.0, succeeded: 20.0, failed: 1.0 });
        for second in [4, 6, 8, 10, 12] {
            history.record(report(second, &later));
        }
        assert_eq!(history.rates(), Some(Rates::default()));
    }

    #[test]
    fn pods_that_are_deleted_are_no_negative_rate() {
        let mut history = RateHistory::default();
        history.record(report(0, &[("j", json!({}), counts(10, 5, 0))]));
        history.record(report(2, &[("j", json!({}), counts(0, 5, 0))]));
        assert_eq!(history.rates(), Some(Rates::default()));
    }
}
