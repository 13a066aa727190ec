//! Sends a pod home whose label names another shard than its Job's: other replicas may not see it.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::release_with_job::ReleaseWithJob;
use crate::actors::context::ReplicaContext;
use crate::actors::pods::pod_places::PodPlaces;
use crate::cluster::fair_semaphore::Fenced;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ObservedPod, label_patch};
use crate::job::job_id::JobId;
use crate::sharding::ShardId;

/// Failures of the API server after which it counts as refusing, as when the webhook that it must ask is down.
const LASTING_FAILURES: u32 = 3;
/// How long a label waits to be written before it is looked whether the pod still exists; then twice as long each time.
const WAITS: Duration = Duration::from_secs(30);

/// The labelling of one pod with the shard of its Job.
pub struct Labelling {
    pod: ReleaseWithJob,
    home: ShardId,
}

impl Labelling {
    /// Labels a pod, which this Job controls, while the fence is open.
    pub fn new(cx: &ReplicaContext, fence: &Fence, pod: &ObservedPod, job: &JobId) -> Self {
        let home = PodPlaces(cx.config.shards).of_job(job);
        let pod = ReleaseWithJob {
            cx: cx.for_job(job),
            fence: fence.clone(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            pod: pod.pod.uid.clone(),
            job: job.clone(),
        };
        Self { pod, home }
    }

    /// Writes the label, with pauses that grow between attempts. If the pod was labelled a short
    /// time ago, a pause comes first. A webhook that moves the pod to other Jobs, for example, may
    /// undo the label forever. The task ends when the pod has the label, has another controller,
    /// or is gone. If the Job leaves while the label is refused, the pod loses our finalizer.
    ///
    /// # Errors
    /// When the fence is closed.
    pub async fn hold(self) -> Result<(), Fenced> {
        let ReleaseWithJob { cx, fence, namespace, pod, job, .. } = &self.pod;
        let (mut backoff, mut failures) = (cx.api_backoff(), 0);
        let begins = cx.label_pauses.next(pod, || cx.api_backoff());
        tokio::select! {
            () = sleep_until(begins) => {}
            () = fence.closed() => return Err(Fenced),
        }
        loop {
            let is_refused =
                |attempt: &Result<ControlFlow<()>, Fenced>| matches!(attempt, Ok(ControlFlow::Continue(())));
            let attempt = tokio::select! {
                biased;
                attempt = cx.pod_writes.attempt(fence, namespace, Some(job), is_refused, || self.attempt(&mut failures)) => attempt??,
                () = self.gone() => return Ok(()),
            };
            if attempt.is_break() {
                return Ok(());
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = fence.closed() => return Err(Fenced),
            }
        }
    }

    /// Writes the label once. `Break`: nothing more is to be done.
    async fn attempt(&self, failures: &mut u32) -> Result<ControlFlow<()>, Fenced> {
        let ReleaseWithJob { cx, fence, namespace, name, pod, job } = &self.pod;
        let order = Order::new(Priority::Finalizer, job.uid().clone(), fence.clone());
        let write = Write::PatchAndReadPod {
            namespace: namespace.clone(),
            name: name.clone(),
            body: label_patch(pod, self.home.0),
        };
        let (found, refusal) = match cx.gate.submit(order, write).await {
            Ok(Answer::Pod(found)) => (Some(found), "a webhook changes it".to_owned()),
            Ok(_) => return Ok(ControlFlow::Break(())),
            Err(WriteError::Fenced) if fence.is_closed() => return Err(Fenced),
            Err(refusal) => {
                *failures = failures.saturating_add(u32::from(matches!(refusal, WriteError::Server { .. })));
                let found = match refusal.is_lasting() || *failures >= LASTING_FAILURES {
                    true => match cx.reads.find_pod(namespace, name, pod).await {
                        Ok(None) => return Ok(ControlFlow::Break(())),
                        read => read.ok().flatten(),
                    },
                    false => None,
                };
                (found, refusal.to_string())
            }
        };
        let is_settled = |found: &ObservedPod| {
            let is_shown = !PodPlaces(cx.config.shards).is_hidden_from(found, self.home);
            is_shown || found.job() != Some(job)
        };
        if found.as_deref().is_some_and(is_settled) {
            return Ok(ControlFlow::Break(()));
        }
        tracing::warn!(%pod, refusal, "a pod was not labelled with the shard of its Job");
        Ok(match found {
            Some(found) if found.pod.tracked && self.pod.if_job_leaves().await => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    }

    /// Returns once live reads have shown that the pod is gone. Its label must not wait while a
    /// webhook holds up the writes of the namespace.
    async fn gone(&self) {
        let ReleaseWithJob { cx, namespace, name, pod, .. } = &self.pod;
        let mut pause = WAITS;
        loop {
            sleep(pause).await;
            let read = Box::pin(cx.reads.find_pod(namespace, name, pod));
            if let Ok(None) = read.await {
                return;
            }
            pause *= 2;
        }
    }
}
