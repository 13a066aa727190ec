//! Counts the pods of one Job, as far as possible, and releases them.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use futures::future::try_join_all;
use jiff::Timestamp;

use super::cluster::{ATTEMPTS, Cluster};
use super::found::JobWithPods;
use crate::cluster::gate::{Answer, Write, WriteError};
use crate::cluster::wire::{ObservedJob, status_patch, untrack_patch, untrack_unchanged_patch};
use crate::job::limits::Limits;
use crate::job::pod::{Pod, PodRef};
use crate::job::reconcile::reconcile;
use crate::job::state::{Changed, JobState};
use crate::job::status::JobStatus;
use crate::job::uid::UidSet;

/// The result for a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Pods that have ended, and are counted by a status that was written.
    pub(super) counted: u64,
    /// Pods whose finalizer was taken off.
    pub(super) pods: usize,
    /// The part of `pods` that had not ended. No controller will count them.
    pub(super) unfinished: usize,
}

/// A Job whose controller is gone, and whose pods are released.
pub(super) struct Counting<'a> {
    cluster: &'a Cluster,
    seen: Arc<ObservedJob>,
    /// Absent if the Job's spec cannot be understood.
    state: Option<JobState>,
    pods: UidSet,
    released: Released,
}

impl<'a> Counting<'a> {
    pub(super) fn new(cluster: &'a Cluster, JobWithPods { job: seen, pods }: JobWithPods) -> Self {
        let state = seen.job.as_ref().ok().map(|job| {
            // Changes are written at once, since no others will follow.
            let at_once = Limits {
                batch_period: Default::default(),
                debounce_period: Default::default(),
                ..Limits::default()
            };
            let mut state = JobState::new(job.clone(), at_once);
            let now = Timestamp::now();
            let uids = pods.iter().map(|pod| pod.pod.uid.clone()).collect();
            for pod in pods {
                state.observe_pod(pod.of_job(&job.spec.selector), now);
            }
            state.pods_listed(&uids, 0);
            (state, uids)
        });
        let (state, pods) = state.unzip();
        Self { cluster, seen, state, pods: pods.unwrap_or_default(), released: Released::default() }
    }

    /// `job NAMESPACE/NAME`.
    pub(super) fn name(&self) -> String {
        format!("job {}/{}", self.seen.namespace, self.seen.name)
    }

    /// Pods with the finalizer: those that have ended, and the others.
    pub(super) fn tracked(&self) -> (usize, usize) {
        let pods = self.state.iter().flat_map(|state| self.tracked_pods(state));
        pods.fold(
            (0, 0),
            |(ended, others), pod| {
                if pod.phase.is_final() { (ended + 1, others) } else { (ended, others + 1) }
            },
        )
    }

    fn tracked_pods<'s>(&'s self, state: &'s JobState) -> impl Iterator<Item = &'s Pod> {
        self.pods.iter().filter(|uid| state.pods.is_tracked(uid)).filter_map(|uid| state.pods.get(uid))
    }

    /// Counts and releases until no pod has the finalizer.
    pub(super) async fn finish(mut self) -> anyhow::Result<Released> {
        let mut state = self.state.take().ok_or_else(|| anyhow!("its spec.completionMode is unknown"))?;
        let counted = |state: &JobState| total(&state.job.status);
        let before = counted(&state);
        for _ in 0..ATTEMPTS {
            self.count(&mut state).await?;
            if self.release_rest(&mut state).await? {
                self.released.counted = counted(&state).saturating_sub(before);
                return Ok(self.released);
            }
        }
        bail!("its pods change all the time")
    }

    /// Carries out the part of the Job's plans that counts, until nothing is left to count.
    async fn count(&mut self, state: &mut JobState) -> anyhow::Result<()> {
        loop {
            let now = Timestamp::now();
            let plan = reconcile(state, now).counting();
            if plan.status.is_none() && plan.releases.is_empty() {
                return Ok(());
            }
            state.begin(&plan, now);
            let released = try_join_all(plan.releases.iter().map(|pod| self.release(pod))).await?;
            for (pod, answer) in plan.releases.iter().zip(released) {
                state.changed(&pod.uid, answer, now);
                self.released.pods += 1;
            }
            if let Some(write) = plan.status {
                self.write_status(state, write.status, now).await?;
            }
        }
    }

    async fn release(&self, pod: &PodRef) -> anyhow::Result<Changed> {
        let body = untrack_patch(&pod.uid, self.cluster.controller.finalizer());
        let answer = self.patch(&pod.name, body).await.with_context(|| format!("pod {}", pod.name))?;
        Ok(if matches!(answer, Answer::Gone) { Changed::Gone } else { Changed::Released })
    }

    async fn patch(&self, pod: &str, body: bytes::Bytes) -> Result<Answer, WriteError> {
        let write = Write::PatchPod { namespace: self.seen.namespace.clone(), name: pod.into(), body };
        self.cluster.write(&self.seen.uid, write).await
    }

    async fn write_status(
        &mut self,
        state: &mut JobState,
        status: JobStatus,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let (namespace, name) = (self.seen.namespace.clone(), self.seen.name.clone());
        let body = status_patch(&state.job.status, &status, &self.seen.version);
        let write = Write::PatchJobStatus { namespace: namespace.clone(), name: name.clone(), body };
        match self.cluster.write(&self.seen.uid, write).await {
            Ok(Answer::Version(version)) => {
                self.observe(state, Arc::new(self.seen.with_status(version, status)));
                state.status_written(now);
            }
            Ok(_) => state.job_vanished(),
            // Another client may have counted pods. A plan from the old reading would count them again.
            Err(WriteError::Conflict(_)) => bail!("it has changed meanwhile: run the command again"),
            Err(error) => return Err(anyhow!(error).context("its status was not written")),
        }
        Ok(())
    }

    fn observe(&mut self, state: &mut JobState, seen: Arc<ObservedJob>) {
        if let Ok(job) = &seen.job {
            state.observe_job(job.clone());
        }
        self.seen = seen;
    }

    /// Releases the pods that have not ended, if they have not changed since they were read. False if some have,
    /// so that they must be looked at again.
    async fn release_rest(&mut self, state: &mut JobState) -> anyhow::Result<bool> {
        let rest: Vec<Rest> = self.tracked_pods(state).map(Rest::from).collect();
        let finalizer = self.cluster.controller.finalizer();
        let answers = rest.iter().map(|Rest { pod, version, .. }| {
            self.patch(&pod.name, untrack_unchanged_patch(&pod.uid, *version, finalizer))
        });
        let mut unchanged = true;
        for (rest, answer) in rest.iter().zip(futures::future::join_all(answers).await) {
            match answer {
                Ok(Answer::Gone) => _ = state.pod_vanished(&rest.pod.uid),
                Ok(_) => {
                    self.released.pods += 1;
                    self.released.unfinished += usize::from(!rest.ended);
                    self.pods.remove(&rest.pod.uid);
                }
                Err(WriteError::Conflict(_)) => {
                    unchanged = false;
                    self.read_pod(state, &rest.pod).await?;
                }
                Err(error) => return Err(anyhow!(error).context(format!("pod {}", rest.pod.name))),
            }
        }
        Ok(unchanged)
    }

    async fn read_pod(&self, state: &mut JobState, known: &PodRef) -> anyhow::Result<()> {
        match self.cluster.reads.find_pod(&self.seen.namespace, &known.name, &known.uid).await? {
            Some(pod) => {
                let pod = pod.of_job(&state.job.spec.selector);
                state.observe_pod(pod, Timestamp::now());
            }
            None => _ = state.pod_vanished(&known.uid),
        }
        Ok(())
    }
}

/// A pod that still has the finalizer once everything is counted.
struct Rest {
    pod: PodRef,
    version: u64,
    ended: bool,
}

impl From<&Pod> for Rest {
    fn from(pod: &Pod) -> Self {
        Self { pod: pod.into(), version: pod.version, ended: pod.phase.is_final() }
    }
}

/// Pods that a status counts.
fn total(status: &JobStatus) -> u64 {
    u64::from(status.succeeded) + u64::from(status.failed)
}
