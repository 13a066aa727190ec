//! Puts the label of its shard on a pod, so that the shard's watch shows it.

use std::sync::Arc;

use super::context::ReplicaContext;
use crate::cluster::gate::{Answer, Fence, Order, Priority, Write, WriteError};
use crate::cluster::wire::{ObservedPod, label_patch};
use crate::job::names::SHARD_LABEL;
use crate::job::uid::Uid;

/// The labelling of one pod, repeated until it holds: a shard does not see a pod without its label.
pub struct Labelling {
    cx: ReplicaContext,
    fence: Fence,
    namespace: Arc<str>,
    name: Box<str>,
    pod: Uid,
    job: Uid,
}

/// The fence was closed for good before the label was written.
pub struct Fenced;

impl Labelling {
    /// Labels a pod with the shard of this Job, while the fence is open.
    pub fn new(cx: &ReplicaContext, fence: &Fence, pod: &ObservedPod, job: &Uid) -> Self {
        Self {
            cx: cx.clone(),
            fence: fence.clone(),
            namespace: pod.namespace.clone(),
            name: pod.pod.name.clone(),
            pod: pod.pod.uid.clone(),
            job: job.clone(),
        }
    }

    /// Writes the label, with pauses that grow between attempts. Returns the labelled pod, or `None` if it no
    /// longer exists.
    ///
    /// # Errors
    /// When the fence is closed.
    pub async fn hold(self) -> Result<Option<Box<ObservedPod>>, Fenced> {
        let mut backoff = self.cx.api_backoff();
        let shard = self.cx.config.shards.shard_of(&self.job.to_string());
        loop {
            let order =
                Order { priority: Priority::Finalizer, flow: self.job.clone(), fence: self.fence.clone() };
            let write = Write::AdoptPod {
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                body: label_patch(&self.pod, shard.0),
            };
            match self.cx.gate.submit(order, write).await {
                Ok(Answer::Pod(pod)) if pod.labels.get(SHARD_LABEL).is_some() => return Ok(Some(pod)),
                Ok(Answer::Pod(_)) => {
                    tracing::warn!(pod = %self.pod, "a webhook takes the label of the shard off")
                }
                Ok(_) => return Ok(None),
                Err(WriteError::Fenced) if self.fence.is_closed() => return Err(Fenced),
                Err(refusal) => {
                    tracing::warn!(pod = %self.pod, %refusal, "a pod was not labelled with its shard");
                }
            }
            backoff.pause().await;
        }
    }
}
