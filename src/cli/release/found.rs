//! Finds Jobs and pods that are to be released.

use std::sync::Arc;

use crate::actors::ControllerConfig;
use crate::cluster::reads::{ReadError, Reader};
use crate::cluster::resource::Resource;
use crate::cluster::watch::Selection;
use crate::cluster::wire::{JobDecoder, ObservedJob, ObservedPod, PodDecoder, Unreadable};
use crate::job::job_id::{JobMap, JobSet};
use crate::job::names::{JOB_NAME_LABEL, SHARD_LABEL};
use crate::job::uid::UidMap;

/// Whose pods are released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Pods of all namespaces.
    Cluster,
    /// Pods of one namespace.
    Namespace(String),
    /// Pods of one Job.
    Job { namespace: String, job: String },
}

impl Scope {
    fn namespace(&self) -> Option<Box<str>> {
        match self {
            Self::Cluster => None,
            Self::Namespace(namespace) | Self::Job { namespace, .. } => Some(namespace.as_str().into()),
        }
    }

    /// Whether a Job of this name is meant.
    fn has_job(&self, name: &str) -> bool {
        !matches!(self, Self::Job { job, .. } if job != name)
    }

    /// Whether a pod is meant that cannot be read, nor its Job.
    fn has_unreadable(&self, pod: &Unreadable) -> bool {
        !matches!(self, Self::Job { .. }) || pod.job.as_ref().is_some_and(|job| self.has_job(job.name()))
    }

    /// Whether a pod is meant that has no Job any more.
    fn has_orphan(&self, pod: &ObservedPod) -> bool {
        let controller = pod.job().map(|job| &**job.name());
        controller
            .or_else(|| pod.labels.get(JOB_NAME_LABEL))
            .map_or(*self == Self::Cluster, |job| self.has_job(job))
            || matches!(self, Self::Namespace(_))
    }
}

/// A Job with its pods.
pub(super) struct JobWithPods {
    pub(super) job: Arc<ObservedJob>,
    pub(super) pods: Vec<ObservedPod>,
}

/// A pod that has the finalizer, and no Job.
pub(super) struct Orphan {
    pub(super) pod: Box<ObservedPod>,
}

impl Orphan {
    /// `pod NAMESPACE/NAME`.
    pub(super) fn name(&self) -> String {
        format!("pod {}/{}", self.pod.namespace, self.pod.pod.name)
    }
}

/// Everything that is to be released.
#[derive(Default)]
pub(super) struct Found {
    /// Jobs of the controller that have something left to release or to count.
    pub(super) jobs: Vec<JobWithPods>,
    pub(super) orphans: Vec<Orphan>,
    /// Objects that cannot be read, and so stay as they are. A Job with such a pod does, too: it would be counted wrongly.
    pub(super) problems: Vec<String>,
}

/// The objects as listed.
#[derive(Default)]
struct Listed {
    jobs: Vec<Arc<ObservedJob>>,
    unreadable_jobs: Vec<Unreadable>,
    pods: UidMap<Box<ObservedPod>>,
    unreadable_pods: UidMap<Unreadable>,
}

/// Finds what is to be released.
pub(super) async fn find(
    reads: &Reader,
    controller: &ControllerConfig,
    scope: &Scope,
) -> Result<Found, ReadError> {
    // Listed before the pods: a status that is older than the pods is refused when it is written.
    let selection = Selection { namespace: scope.namespace(), ..Selection::all(Resource::JOBS) };
    let (jobs, unreadable_jobs) = reads.list_selected(&JobDecoder::new(), &selection).await?;
    let mut listed = Listed { jobs, unreadable_jobs, ..Listed::default() };
    let decoder = PodDecoder::new(controller.finalizer());
    // Pods of Jobs, and pods that were taken from their Job.
    for label in [JOB_NAME_LABEL, SHARD_LABEL] {
        let selection = Selection { namespace: scope.namespace(), ..Selection::all(Resource::PODS) };
        let (pods, unreadable) = reads.list_selected(&decoder, &selection.labelled(label)).await?;
        listed.pods.extend(pods.into_iter().map(|pod| (pod.pod.uid.clone(), pod)));
        listed.unreadable_pods.extend(unreadable.into_iter().map(|pod| (pod.uid.clone(), pod)));
    }
    Ok(sort_out(listed, scope, |job| controller.manages(job.managed_by.as_deref())))
}

/// Gives pods to their Jobs.
fn sort_out(listed: Listed, scope: &Scope, is_ours: impl Fn(&ObservedJob) -> bool) -> Found {
    let Listed { jobs, unreadable_jobs, pods, unreadable_pods } = listed;
    let mut found = Found::default();
    let mut of_jobs: JobMap<Vec<ObservedPod>> = jobs.iter().map(|job| (job.id(), Vec::new())).collect();
    for job in &unreadable_jobs {
        if scope.has_job(&job.name) {
            found.problems.push(format!("job {}/{} cannot be read: {}", job.namespace, job.name, job.error));
        }
    }
    let unreadable: JobSet = unreadable_jobs.iter().map(Unreadable::as_job).collect();
    for pod in pods.into_values() {
        match pod.job() {
            Some(job) if of_jobs.contains_key(job) => of_jobs.entry(job.clone()).or_default().push(*pod),
            Some(job) if unreadable.contains(job) => {}
            _ if pod.pod.tracked && scope.has_orphan(&pod) => found.orphans.push(Orphan { pod }),
            _ => {}
        }
    }
    let ours: JobMap<bool> =
        jobs.iter().map(|job| (job.id(), is_ours(job) && scope.has_job(&job.name))).collect();
    for pod in unreadable_pods.into_values() {
        let job = pod.job.as_ref();
        if job.and_then(|job| ours.get(job)).copied().unwrap_or_else(|| scope.has_unreadable(&pod)) {
            found.problems.push(format!("pod {}/{} cannot be read: {}", pod.namespace, pod.name, pod.error));
            job.into_iter().for_each(|job| _ = of_jobs.remove(job));
        }
    }
    found.jobs = jobs
        .into_iter()
        .filter(|job| ours.get(&job.id()) == Some(&true))
        .filter_map(|job| Some(JobWithPods { pods: of_jobs.remove(&job.id())?, job }))
        .filter(has_something_left)
        .collect();
    found.jobs.sort_by(|a, b| (&a.job.namespace, &a.job.name).cmp(&(&b.job.namespace, &b.job.name)));
    found
        .orphans
        .sort_by(|a, b| (&a.pod.namespace, &a.pod.pod.name).cmp(&(&b.pod.namespace, &b.pod.pod.name)));
    found.problems.sort();
    found
}

/// Whether a pod has the finalizer, or a recorded one is not counted yet.
fn has_something_left(found: &JobWithPods) -> bool {
    let uncounted = found.job.job.as_ref().ok().and_then(|job| job.status.uncounted.as_ref());
    found.pods.iter().any(|pod| pod.pod.tracked) || uncounted.is_some_and(|uncounted| !uncounted.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::test_api::TestApi;
    use crate::telemetry::metrics::Metrics;

    fn job(name: &str, parallelism: Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"parallelism": parallelism, "completions": 9, "completionMode": "NonIndexed",
                "managedBy": ControllerConfig::default().controller_name, "selector": {}, "template": {"spec": {}}},
        })
    }

    fn pod(name: &str, job: &str) -> Value {
        json!({"metadata": {
            "name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"batch.kubernetes.io/job-name": job}, "finalizers": ["yardmaster.dev/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}],
        }})
    }

    async fn found(scope: &Scope) -> (Vec<String>, Vec<String>, Vec<String>) {
        let mut broken = pod("broken-pod", "half-broken");
        broken["metadata"]["creationTimestamp"] = Value::Null;
        let jobs = json!([job("broken", json!({})), job("half-broken", json!(1)), job("sound", json!(1))]);
        let pods =
            json!(
                [pod("a", "broken"), pod("b", "half-broken"), pod("c", "sound"), pod("d", "gone"), broken,]
            );
        let api = TestApi::new(move |_, uri| {
            let items = if uri.contains("/jobs?") { &jobs } else { &pods };
            Some((200, json!({"metadata": {"resourceVersion": "9"}, "items": items})))
        });
        let controller = ControllerConfig::default();
        let reads =
            Reader::new(Arc::new(api), controller.finalizer(), JobDecoder::new(), Arc::new(Metrics::new()));
        let found = find(&reads, &controller, scope).await.unwrap();
        let subject = |problem: String| problem.split(" cannot be read: ").next().unwrap().to_owned();
        (
            found.jobs.iter().map(|found| found.job.name.to_string()).collect(),
            found.orphans.iter().map(Orphan::name).collect(),
            found.problems.into_iter().map(subject).collect(),
        )
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_and_left_and_the_rest_is_released() {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found(&Scope::Cluster).await,
            (named(&["sound"]), named(&["pod n/d"]), named(&["job n/broken", "pod n/broken-pod"]))
        );
        let sound = Scope::Job { namespace: "n".into(), job: "sound".into() };
        assert_eq!(found(&sound).await, (named(&["sound"]), vec![], vec![]));
    }
}
