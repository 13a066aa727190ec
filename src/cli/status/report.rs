//! A report on the whole cluster, or on a part of it, and how it is read.

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use futures::{FutureExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use kube::runtime::watcher;
use serde::Serialize;

use super::index_map::IndexMap;
use super::job::JobReport;
use super::results;
use super::wait_reasons::{Inquiry, Waiting};
use crate::cli::failures::Failures;
use crate::cli::job_name::not_found;
use crate::cli::lists::{objects, views};
use crate::cli::ownership::Ownership;
use crate::cli::pod_view::{PodView, controller_uid, index};
use crate::cli::readable::Readable;
use crate::cli::untrusted::Untrusted;
use crate::job::index_set::IndexSet;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::sharding::lease::LEASE_LABEL;

/// Jobs that are examined concurrently.
const AT_ONCE: usize = 8;

/// Controllers, replicas, shards and Jobs at one time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) time: Timestamp,
    #[serde(flatten)]
    pub(super) ownership: Ownership,
    /// The most interesting first.
    pub(super) jobs: Vec<JobReport>,
}

/// The Jobs that a report is about.
#[derive(Clone, Debug)]
pub(super) enum Selection {
    /// A single Job, of which more is read.
    One { namespace: String, name: String },
    /// All Jobs that match, of one namespace or of all.
    Many { namespace: Option<String>, selector: Option<String>, unfinished: bool },
}

impl Selection {
    /// Where the Jobs are.
    pub(super) fn api(&self, client: &Client) -> Api<Readable<Job>> {
        match self {
            Self::One { namespace, .. } | Self::Many { namespace: Some(namespace), .. } => {
                Api::namespaced(client.clone(), namespace)
            }
            Self::Many { namespace: None, .. } => Api::all(client.clone()),
        }
    }

    /// The configuration of a watch of the Jobs.
    pub(super) fn watch(&self) -> watcher::Config {
        // A page is read in one piece, and an object may have megabytes.
        let config = watcher::Config::default().page_size(50);
        match self {
            Self::One { name, .. } => config.fields(&format!("metadata.name={name}")),
            Self::Many { selector: Some(selector), .. } => config.labels(selector),
            Self::Many { selector: None, .. } => config,
        }
    }

    /// Whether all Jobs are of one namespace.
    pub(super) fn is_one_namespace(&self) -> bool {
        !matches!(self, Self::Many { namespace: None, .. })
    }

    /// Whether a Job of the list belongs to the report.
    pub(super) fn includes(&self, job: &JobReport) -> bool {
        !matches!(self, Self::Many { unfinished: true, .. }) || !job.is_finished()
    }
}

/// Reads a report, page by page.
pub(super) async fn read(
    client: &Client,
    selection: &Selection,
    lease_namespace: Option<&str>,
) -> anyhow::Result<Report> {
    let time = Timestamp::now();
    let ownership = Ownership::read(client, lease_namespace, LEASE_LABEL, time).await?;
    let inquiry = Inquiry::new(client.clone(), time);
    let api = selection.api(client);
    let mut jobs = Vec::new();
    match selection {
        Selection::One { namespace, name } => {
            let found = api.get_opt(name).await?;
            let Some(Readable(job)) = found else { return Err(not_found(client, namespace, name).await) };
            let report = JobReport::of(&job, &ownership, time);
            let waiting = known(&report, inquiry.why(&job).await);
            let report = JobReport { index_results: results::of(&job), ..report };
            jobs.push(
                with_logs(client, with_pods(client, JobReport { waiting, ..report }).await?, None).await,
            );
        }
        Selection::Many { selector, .. } => {
            let label_selector = selector.clone();
            let all = views::<_, Job>(api, &ListParams { label_selector, ..ListParams::default() });
            let all = all.map_ok(|job| (JobReport::of(&job, &ownership, time), inquiry.without_pods(&job)));
            let all = all.try_filter(|(job, _)| ready(selection.includes(job)));
            // The API server does not wait for long until a list is read.
            let all: Vec<(JobReport, _)> = all.try_collect().await?;
            let reports = all.into_iter().map(async |(job, waiting)| {
                let waiting = match waiting {
                    Some(waiting) => waiting,
                    None => inquiry.why_named(&job.namespace, &job.name).await,
                };
                JobReport { waiting: known(&job, waiting), ..job }
            });
            jobs = stream::iter(reports).buffered(AT_ONCE).collect().await;
        }
    }
    jobs.sort_by(JobReport::by_interest);
    Ok(Report { time, ownership, jobs })
}

/// The wait of a Job, as far as it was found out.
fn known(job: &JobReport, waiting: anyhow::Result<Option<Waiting>>) -> Option<Waiting> {
    waiting.unwrap_or_else(|error| {
        tracing::warn!(job = ?job.name, %error, "cannot find out what the Job waits for");
        None
    })
}

/// The waits of several Jobs, in their order.
pub(super) async fn waits(inquiry: &Inquiry, jobs: &[Arc<Job>]) -> Vec<anyhow::Result<Option<Waiting>>> {
    let waits: Vec<BoxFuture<'_, _>> = jobs.iter().map(|job| inquiry.why(job).boxed()).collect();
    stream::iter(waits).buffered(AT_ONCE).collect().await
}

/// Adds the number of pods by phase, and why pods failed. Only the Job's own pods count.
pub(super) async fn with_pods(client: &Client, job: JobReport) -> anyhow::Result<JobReport> {
    let pod = ApiResource::erase::<Pod>(&());
    let api: Api<PodView> = Api::namespaced_with(client.clone(), &job.namespace, &pod);
    let params = ListParams::default().labels(&format!("{CONTROLLER_UID_LABEL}={}", job.uid));
    let (mut phases, mut failures) = (BTreeMap::<String, u64>::new(), Failures::default());
    let (mut active, mut tried) = (IndexSet::new(), IndexSet::new());
    let mut pods = pin!(objects(api, &params));
    while let Some(pod) = pods.try_next().await? {
        if controller_uid(&pod) != Some(&job.uid) {
            continue;
        }
        failures.record(&pod);
        let index = index(&pod);
        let phase = pod.status.map(|status| status.phase.to_string()).filter(|phase| !phase.is_empty());
        let phase = phase.unwrap_or_else(|| "Pending".to_owned());
        match (index, phase.as_str()) {
            (Some(index), "Failed") => _ = tried.insert(index),
            (Some(index), "Running") => _ = active.insert(index),
            _ => {}
        }
        *phases.entry(phase).or_default() += 1;
    }
    let index_map = index_map(&job, &tried, &active);
    Ok(JobReport { pods: Some(phases), failures: Some(failures), index_map, ..job })
}

/// The state of each index of an Indexed Job.
fn index_map(job: &JobReport, tried: &IndexSet, active: &IndexSet) -> Option<IndexMap> {
    let completions = job.completions.and_then(|completions| u32::try_from(completions).ok());
    let completions = completions.filter(|_| job.is_indexed)?;
    let indexes = |text: &Option<Untrusted>| {
        IndexSet::parse_lenient(text.as_ref().map_or("", Untrusted::raw), completions)
    };
    let (succeeded, failed) = (indexes(&job.completed_indexes), indexes(&job.failed_indexes));
    let below = |indexes: &IndexSet| indexes.intersection(&IndexSet::below(completions));
    Some(IndexMap::new(completions, &succeeded, &failed, &below(tried), &below(active)))
}

/// Adds the ends of the logs of pods that failed; `earlier` has those that were read before.
pub(super) async fn with_logs(client: &Client, mut job: JobReport, earlier: Option<&Failures>) -> JobReport {
    if let Some(failures) = &mut job.failures {
        if let Some(earlier) = earlier {
            failures.keep_logs(earlier);
        }
        failures.read_logs(client, &job.namespace).await;
    }
    job
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::super::job::tests::{ended, job};
    use super::*;

    /// The paths of all fields, such as `jobs[].waiting.reason`.
    fn paths(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
                for (name, field) in fields {
                    let path = format!("{prefix}{name}");
                    into.insert(path.clone());
                    // The names in it are those of phases.
                    const COUNTS: [&str; 4] = [
                        "jobs[].pods",
                        "jobs[].failures.exitCodes",
                        "jobs[].failures.reasons",
                        "jobs[].failures.nodes",
                    ];
                    if !COUNTS.contains(&&*path) {
                        paths(field, &path, into);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{path}[]"), into)),
            _ => {}
        }
    }

    #[test]
    fn every_field_is_documented_and_no_other() {
        let time = "2026-01-01T00:00:20Z".parse().unwrap();
        let waiting = Waiting { reason: "Refused", until: Some(time), message: Some("no".into()) };
        let complete = job("complete", json!({"completions": 1}), ended("Complete", 1));
        let failed = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Failed"}});
        let mut failures = Failures::default();
        failures.record(&serde_json::from_value(failed).unwrap());
        let failures = Some(failures);
        let result = results::IndexResult {
            indexes: "0".into(),
            exit_code: None,
            tries: 1,
            created: None,
            ended: None,
        };
        let index_results = Some(vec![result]);
        let pods = Some(BTreeMap::new());
        let waits = JobReport { waiting: Some(waiting), pods, index_results, failures, ..complete };
        let ownership = crate::cli::ownership::tests::big(time);
        let report = serde_json::to_value(Report { time, ownership, jobs: vec![waits] }).unwrap();
        let mut written = BTreeSet::new();
        paths(&report, "", &mut written);

        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md");
        let page = std::fs::read_to_string(page).unwrap();
        let section = page.split("\n### ").find(|section| section.starts_with("Fields of status")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let fields = section
            .lines()
            .take_while(|line| !line.starts_with("## "))
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let documented: BTreeSet<_> = fields.map(str::to_owned).collect();
        assert_eq!(documented, written);
    }
}
