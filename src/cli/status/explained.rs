//! The same answers about one Job for the page.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::Serialize;

use super::detail::answer;
use super::job::JobReport;
use crate::cli::failures::Failures;
use crate::cli::ownership::Ownership;

/// Why pods of a Job failed, in the words of `status JOB`.
#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Explanation {
    /// How much failed, and why, each fact with its name.
    facts: Vec<(&'static str, String)>,
    /// Commands that tell more.
    next: Vec<String>,
    /// The failed pods.
    failures: Failures,
}

/// A Job as `status JOB -o json` prints it, without its pods. The page knows the owner and the wait from the replicas.
pub(in crate::cli) fn report(job: &Job) -> impl Serialize {
    JobReport::of(job, &Ownership::default(), Timestamp::now())
}

/// Explains the failures of a Job.
pub(in crate::cli) fn explain(job: &Job, failures: Failures) -> Explanation {
    let report = JobReport::of(job, &Ownership::default(), Timestamp::now());
    let report = JobReport { failures: Some(failures), ..report };
    let answer = answer(&report);
    let (facts, next) = (answer.facts(), answer.next);
    Explanation { facts, next, failures: report.failures.unwrap_or_default() }
}
