//! What is to be released.

use std::collections::HashMap;
use std::sync::Arc;

use super::cluster::Cluster;
use crate::cluster::reads::ReadError;
use crate::cluster::resource::Resource;
use crate::cluster::watch::Selection;
use crate::cluster::wire::{JobDecoder, ObservedJob, ObservedPod, PodDecoder};
use crate::job::names::{JOB_NAME_LABEL, SHARD_LABEL};
use crate::job::uid::{Uid, UidMap};

/// Whose pods are released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of all namespaces.
    Cluster,
    /// Those of one namespace.
    Namespace(String),
    /// Those of one Job.
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

    /// Whether a pod is meant that has no Job any more.
    fn has_orphan(&self, pod: &ObservedPod) -> bool {
        let controller = pod.controller.as_ref().map(|controller| &*controller.name);
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
pub(super) struct Found {
    /// Jobs of the controller that have something left to release or to count.
    pub(super) jobs: Vec<JobWithPods>,
    pub(super) orphans: Vec<Orphan>,
}

/// Finds what is to be released.
pub(super) async fn find(cluster: &Cluster, scope: &Scope) -> Result<Found, ReadError> {
    // Listed before the pods: a status that is older than the pods is refused when it is written.
    let selection = Selection { namespace: scope.namespace(), ..Selection::all(Resource::JOBS) };
    let jobs = cluster.reads.list_selected(&JobDecoder::new(), &selection).await?.unwrap_or_default();
    let mut pods: UidMap<Box<ObservedPod>> = UidMap::default();
    let decoder = PodDecoder::new(cluster.controller.finalizer());
    // Pods of Jobs, and pods that somebody has taken from their Job.
    for label in [JOB_NAME_LABEL, SHARD_LABEL] {
        let selection = Selection { namespace: scope.namespace(), ..Selection::all(Resource::PODS) };
        let listed = cluster.reads.list_selected(&decoder, &selection.labelled(label)).await?;
        pods.extend(listed.unwrap_or_default().into_iter().map(|pod| (pod.pod.uid.clone(), pod)));
    }
    Ok(sort_out(pods.into_values(), jobs, scope, |job| cluster.controller.manages(job.managed_by.as_deref())))
}

/// Gives pods to their Jobs.
fn sort_out(
    pods: impl Iterator<Item = Box<ObservedPod>>,
    jobs: Vec<Arc<ObservedJob>>,
    scope: &Scope,
    is_ours: impl Fn(&ObservedJob) -> bool,
) -> Found {
    let mut of_jobs: HashMap<Uid, Vec<ObservedPod>> =
        jobs.iter().map(|job| (job.uid.clone(), Vec::new())).collect();
    let mut orphans = Vec::new();
    for pod in pods {
        match pod.controller.as_ref().and_then(|controller| of_jobs.get_mut(&controller.uid)) {
            Some(of_job) => of_job.push(*pod),
            None if pod.pod.tracked && scope.has_orphan(&pod) => orphans.push(Orphan { pod }),
            None => {}
        }
    }
    let mut found: Vec<_> = jobs
        .into_iter()
        .filter(|job| is_ours(job) && scope.has_job(&job.name))
        .filter_map(|job| Some(JobWithPods { pods: of_jobs.remove(&job.uid)?, job }))
        .filter(has_something_left)
        .collect();
    found.sort_by(|a, b| (&a.job.namespace, &a.job.name).cmp(&(&b.job.namespace, &b.job.name)));
    orphans.sort_by(|a, b| (&a.pod.namespace, &a.pod.pod.name).cmp(&(&b.pod.namespace, &b.pod.pod.name)));
    Found { jobs: found, orphans }
}

/// Whether a pod has the finalizer, or a recorded one is not counted yet.
fn has_something_left(found: &JobWithPods) -> bool {
    let uncounted = found.job.job.as_ref().ok().and_then(|job| job.status.uncounted.as_ref());
    found.pods.iter().any(|pod| pod.pod.tracked) || uncounted.is_some_and(|uncounted| !uncounted.is_empty())
}
