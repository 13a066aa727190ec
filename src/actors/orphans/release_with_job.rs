//! The release of a pod whose Job leaves: it is gone, or being deleted. If the Job cannot
//! decide about it, the pod must still not stay forever: a pod with our finalizer cannot
//! be deleted.

use std::sync::Arc;

use crate::actors::context::ReplicaContext;
use crate::cluster::gate::{Fence, Order, Priority, Write};
use crate::cluster::wire::untrack_patch;
use crate::job::job_id::JobId;
use crate::job::uid::Uid;

/// A pod that its Job cannot decide about, and its Job.
pub struct ReleaseWithJob {
    pub cx: ReplicaContext,
    /// The right to act for the Job's shard.
    pub fence: Fence,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub pod: Uid,
    pub job: JobId,
}

impl ReleaseWithJob {
    /// Removes our finalizer from the pod if a live read shows that its Job leaves. Returns whether it was removed.
    pub async fn if_job_leaves(&self) -> bool {
        self.job_leaves().await && self.release().await
    }

    /// Whether the Job is gone, or is ours and being deleted.
    async fn job_leaves(&self) -> bool {
        match self.cx.reads.find_job(&self.job).await {
            Ok(None) => true,
            Ok(Some(job)) => job.deleting && self.cx.config.manages(job.managed_by.as_deref()),
            Err(_) => false,
        }
    }

    /// The patch names no version. No Job adopts a pod that is unreadable, or of which
    /// only the finalizers can be written.
    async fn release(&self) -> bool {
        let body = untrack_patch(&self.pod, self.cx.config.finalizer());
        let write = Write::PatchPod { namespace: self.namespace.clone(), name: self.name.clone(), body };
        let order = Order::new(Priority::Finalizer, self.job.uid().clone(), self.fence.clone());
        match self.cx.gate.submit(order, write).await {
            Ok(_) => true,
            Err(refusal) => {
                tracing::warn!(pod = %self.pod, %refusal, "a pod whose Job leaves was not released");
                false
            }
        }
    }
}
