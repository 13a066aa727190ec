//! Puts the label of its shard on a pod, so that the shard's watch shows it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::context::ReplicaContext;
use super::release_with_job::ReleaseWithJob;
use crate::cluster::fair_semaphore::Fenced;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ObservedPod, label_patch};
use crate::job::job_id::JobId;
use crate::job::names::SHARD_LABEL;
use crate::job::uid::Uid;
use crate::sharding::ShardId;

/// Failures of the API server after which it counts as refusing, as when the webhook that it must ask is down.
const LASTING_FAILURES: u32 = 3;
/// How long a label waits to be written before it is looked whether the pod still exists; then twice as long each time.
const WAITS: Duration = Duration::from_secs(30);

/// Whether a pod has the label of this shard.
pub fn has_label_of(pod: &ObservedPod, shard: ShardId) -> bool {
    pod.labels.get(SHARD_LABEL).is_some_and(|label| *label == *shard.to_string())
}

/// The labelling of one pod, repeated until it holds: a shard does not see a pod without its label.
pub struct Labelling {
    cx: ReplicaContext,
    fence: Fence,
    namespace: Arc<str>,
    name: Box<str>,
    pod: Uid,
    job: JobId,
    /// Its release, if the Job is its controller.
    release: Option<ReleaseWithJob>,
}

impl Labelling {
    /// Labels a pod with the shard of this Job, while the fence is open.
    pub fn new(cx: &ReplicaContext, fence: &Fence, pod: &ObservedPod, job: &JobId) -> Self {
        let release = pod.job().filter(|owner| *owner == job).map(|job| ReleaseWithJob {
            cx: cx.for_job(job),
            fence: fence.clone(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            pod: pod.pod.uid.clone(),
            job: job.clone(),
        });
        Self {
            cx: cx.for_job(job),
            fence: fence.clone(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            pod: pod.pod.uid.clone(),
            job: job.clone(),
            release,
        }
    }

    /// Writes the label, with pauses that grow between attempts, and before one of a pod that was labelled a short time ago:
    /// what makes it lose its shard again, such as a webhook that moves it to other Jobs, may do so for ever. Returns the pod
    /// once it is labelled, or needs no label since it has ended and is not tracked; `None` if it no longer exists, or has
    /// lost our finalizer since it is refused the label for good and its Job leaves. `refused` is told once why the label
    /// cannot be written, if something refuses it for good.
    ///
    /// # Errors
    /// When the fence is closed.
    pub async fn hold(self, refused: impl Fn(String)) -> Result<Option<Box<ObservedPod>>, Fenced> {
        let mut backoff = self.cx.api_backoff();
        let (mut failures, mut reported) = (0_u32, false);
        let begins = self.cx.label_pauses.next(&self.pod, || self.cx.api_backoff());
        tokio::select! {
            () = sleep_until(begins) => {}
            () = self.fence.closed() => return Err(Fenced),
        }
        loop {
            let (turns, fence) = (&self.cx.pod_writes, &self.fence);
            let (namespace, job) = (&self.namespace, Some(&self.job));
            let attempt = tokio::select! {
                biased;
                attempt = turns.run(fence, namespace, job, || self.attempt(&mut failures)) => attempt??,
                () = self.gone() => return Ok(None),
            };
            match attempt {
                ControlFlow::Break(pod) => return Ok(pod),
                ControlFlow::Continue(Some(why)) if !std::mem::replace(&mut reported, true) => refused(why),
                ControlFlow::Continue(_) => {}
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = self.fence.closed() => return Err(Fenced),
            }
        }
    }

    /// Writes the label once. `Break`: nothing more is to be done, and [`hold`](Self::hold) returns this. `Continue`: the label was
    /// not written; the text says why, if the refusal lasts.
    async fn attempt(
        &self,
        failures: &mut u32,
    ) -> Result<ControlFlow<Option<Box<ObservedPod>>, Option<String>>, Fenced> {
        let shard = self.cx.config.shards.shard_of(&self.job.uid().to_string());
        let order = Order::new(Priority::Finalizer, self.job.uid().clone(), self.fence.clone());
        let write = Write::PatchAndReadPod {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            body: label_patch(&self.pod, shard.0),
        };
        let (pod, refusal) = match self.cx.gate.submit(order, write).await {
            Ok(Answer::Pod(pod)) if has_label_of(&pod, shard) => return Ok(ControlFlow::Break(Some(pod))),
            Ok(Answer::Pod(pod)) => (Some(pod), "a webhook takes it off, or changes it".to_owned()),
            Ok(_) => return Ok(ControlFlow::Break(None)),
            Err(WriteError::Fenced) if self.fence.is_closed() => return Err(Fenced),
            Err(refusal) => {
                *failures = failures.saturating_add(u32::from(matches!(refusal, WriteError::Server { .. })));
                let pod = match refusal.is_lasting() || *failures >= LASTING_FAILURES {
                    true => match self.cx.reads.find_pod(&self.namespace, &self.name, &self.pod).await {
                        Ok(None) => return Ok(ControlFlow::Break(None)),
                        read => read.ok().flatten(),
                    },
                    false => None,
                };
                (pod, refusal.to_string())
            }
        };
        tracing::warn!(pod = %self.pod, refusal, "a pod was not labelled with its shard");
        Ok(match pod {
            Some(pod) if pod.pod.is_done() => ControlFlow::Break(Some(pod)),
            Some(pod) if pod.pod.tracked && self.is_released_with_job().await => ControlFlow::Break(None),
            Some(_) => {
                let why = format!("Pod {} does not get the label {SHARD_LABEL}: {refusal}", self.name);
                ControlFlow::Continue(Some(why))
            }
            None => ControlFlow::Continue(None),
        })
    }

    /// Returns once live reads have shown that the pod is gone. No watch may show its end: another replica sees the shard in its
    /// label, or it has none. Its label must not wait for as long as a webhook holds up the writes of the namespace.
    async fn gone(&self) {
        let mut pause = WAITS;
        loop {
            sleep(pause).await;
            let read = Box::pin(self.cx.reads.find_pod(&self.namespace, &self.name, &self.pod));
            if let Ok(None) = read.await {
                return;
            }
            pause *= 2;
        }
    }

    async fn is_released_with_job(&self) -> bool {
        match &self.release {
            Some(release) => release.if_job_leaves().await,
            None => false,
        }
    }
}
