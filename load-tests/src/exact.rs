//! Checks that everything was counted exactly once, from the final objects of the API server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::ledger::{Fate, Ledger};
use crate::views::{Counts, Job, Phase, Pod};
use crate::watch::Collection;

/// The tracking finalizers of both controller modes.
pub(crate) const FINALIZERS: [&str; 2] = ["batch.kubernetes.io/job-tracking", "yardmaster.dev/job-tracking"];
/// Limit for the removal of the last finalizers after the last Job's end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The verdict.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Exact {
    /// Completions that the Jobs ask for.
    pub(crate) expected: u64,
    /// `status.succeeded` of all Jobs.
    pub(crate) counted: u64,
    /// Excess pods. Each completion may have one pod, and one more for each that failed.
    pub(crate) duplicates: u64,
    /// Pods with a tracking finalizer whose Job has ended or is gone.
    pub(crate) orphans: u64,
    /// Most pods active at once.
    pub(crate) max_active: u64,
    /// Pods that failed.
    pub(crate) failed: u64,
    /// `status.failed` of all Jobs.
    pub(crate) failed_counted: u64,
    /// Most active pods of a Job beyond its parallelism.
    pub(crate) beyond_parallelism: u64,
    /// Jobs that have not ended.
    pub(crate) unfinished: u64,
    /// Jobs whose `status` does not say how many of their pods have succeeded and failed.
    #[serde(default)]
    pub(crate) miscounted: u64,
}

impl Exact {
    /// Whether nothing is wrong.
    pub(crate) fn holds(&self) -> bool {
        self.counted == self.expected
            && self.failed_counted == self.failed
            && [self.duplicates, self.orphans, self.beyond_parallelism, self.unfinished, self.miscounted]
                == [0; 5]
    }
}

/// Reads the final state of a namespace repeatedly, until no finalizer is left and the ledger knows of all ends, or
/// [`PATIENCE`] is over.
pub(crate) async fn check(namespace: &str, client: &kube::Client, ledger: &Ledger) -> Result<Exact> {
    let begun = Instant::now();
    loop {
        let verdict = look(namespace, client, ledger).await?;
        if verdict.orphans + verdict.miscounted == 0 || begun.elapsed() > PATIENCE {
            return Ok(verdict);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Counts of a Job's pods.
#[derive(Debug, Default)]
struct Pods {
    /// Pods by completion index. Pods of NonIndexed Jobs have `None`.
    by_index: Counts<Option<String>>,
    failed_by_index: Counts<Option<String>>,
    tracked: u64,
}

async fn look(namespace: &str, client: &kube::Client, ledger: &Ledger) -> Result<Exact> {
    let mut of_jobs: HashMap<String, Pods> = HashMap::new();
    let take = |pod: Pod| {
        let pods = of_jobs.entry(pod.metadata.labels.job.unwrap_or_default()).or_default();
        if pod.status.phase == Phase::Failed {
            *pods.failed_by_index.entry(pod.metadata.labels.index.clone()).or_default() += 1;
        }
        *pods.by_index.entry(pod.metadata.labels.index).or_default() += 1;
        pods.tracked += u64::from(pod.metadata.finalizers.iter().any(|name| FINALIZERS.contains(&&**name)));
    };
    Collection::new(format!("/api/v1/namespaces/{namespace}/pods")).list(client, take).await?;
    let totals = ledger.totals();
    let mut verdict = Exact {
        max_active: totals.max_active,
        beyond_parallelism: totals.beyond_parallelism,
        ..Exact::default()
    };
    let jobs = Collection::new(format!("/apis/batch/v1/namespaces/{namespace}/jobs"));
    jobs.list(client, |job: Job| {
        let name = &job.metadata.name;
        let fate = ledger.fate(name).unwrap_or_default();
        verdict.add(&job, of_jobs.remove(name).unwrap_or_default(), fate);
    })
    .await?;
    // The remaining pods belong to Jobs that are gone.
    verdict.orphans += of_jobs.values().map(|pods| pods.tracked).sum::<u64>();
    Ok(verdict)
}

impl Exact {
    fn add(&mut self, job: &Job, pods: Pods, fate: Fate) {
        self.expected += u64::from(job.spec.completions);
        self.counted += job.status.succeeded;
        self.failed_counted += job.status.failed;
        let counted = Fate { succeeded: job.status.succeeded, failed: job.status.failed };
        self.miscounted += u64::from(counted != fate);
        self.failed += pods.failed_by_index.values().sum::<u64>();
        for (index, count) in &pods.by_index {
            let completions = if index.is_some() { 1 } else { u64::from(job.spec.completions) };
            let failed = pods.failed_by_index.get(index).copied().unwrap_or_default();
            self.duplicates += count.saturating_sub(completions + failed);
        }
        if job.status.is_finished() {
            self.orphans += pods.tracked;
        } else {
            self.unfinished += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{Condition, JobSpec, JobStatus};

    #[test]
    fn pods_beyond_completions_and_failures_are_duplicates() {
        let complete = Condition { r#type: "Complete".into(), status: "True".into() };
        let job = Job {
            spec: JobSpec { completions: 2, parallelism: 2 },
            status: JobStatus { succeeded: 2, failed: 1, conditions: vec![complete], ..JobStatus::default() },
            ..Job::default()
        };
        let index = |n: u32| Some(n.to_string());
        for (pods, failed, duplicates) in [
            (vec![(index(0), 1), (index(1), 2)], vec![(index(1), 1)], 0),
            (vec![(index(0), 2), (index(1), 2)], vec![(index(1), 1)], 1),
            (vec![(None, 3)], vec![(None, 1)], 0),
            (vec![(None, 5)], vec![(None, 1)], 2),
        ] {
            let pods = Pods {
                by_index: pods.into_iter().collect(),
                failed_by_index: failed.into_iter().collect(),
                tracked: 0,
            };
            let mut verdict = Exact::default();
            verdict.add(&job, pods, Fate { succeeded: 2, failed: 1 });
            assert_eq!((verdict.duplicates, verdict.holds()), (duplicates, duplicates == 0), "{verdict:?}");
        }
    }

    #[test]
    fn a_job_whose_status_differs_from_the_ledger_is_miscounted() {
        for (fate, miscounted) in [
            (Fate { succeeded: 2, failed: 1 }, 0),
            (Fate { succeeded: 3, failed: 1 }, 1),
            (Fate { succeeded: 2, failed: 0 }, 1),
        ] {
            let status = JobStatus { succeeded: 2, failed: 1, ..JobStatus::default() };
            let mut verdict = Exact::default();
            verdict.add(&Job { status, ..Job::default() }, Pods::default(), fate);
            assert_eq!(verdict.miscounted, miscounted, "{fate:?}");
        }
    }
}
