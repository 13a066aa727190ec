//! Pods that exist and cannot be read. Their Jobs are held back while they may be readable one day. A Job that is gone or
//! being deleted waits for no such pod, and the pod must not stay for good: nobody can delete one that has our finalizer.

use crate::actors::context::ReplicaContext;
use crate::cluster::gate::{Fence, Order, Priority, Write};
use crate::cluster::reads::ReadError;
use crate::cluster::wire::{ControllerRef, ObservedPod, Unreadable, untrack_patch};

/// A pod that exists and could not be read.
pub(super) struct UnreadablePod {
    pub(super) cx: ReplicaContext,
    /// The right to act for its Job's shard.
    pub(super) fence: Fence,
    pub(super) pod: Unreadable,
    /// Its Job.
    pub(super) owner: ControllerRef,
}

impl UnreadablePod {
    /// Reads it again; `None` if it does not exist. If it still cannot be read and its Job leaves, it loses our
    /// finalizer, and counts as one that does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or its finalizer was not removed.
    pub(super) async fn read(&self) -> Result<Option<Box<ObservedPod>>, ReadError> {
        let Unreadable { namespace, name, uid, .. } = &self.pod;
        match self.cx.reads.find_pod(namespace, name, uid).await {
            Err(ReadError::Unreadable(_)) if self.job_leaves().await && self.release().await => Ok(None),
            read => read,
        }
    }

    /// Whether a live read shows that the Job is gone, or that it is ours and being deleted.
    async fn job_leaves(&self) -> bool {
        match self.cx.reads.find_job(&self.pod.namespace, &self.owner.name, &self.owner.uid).await {
            Ok(None) => true,
            Ok(Some(job)) => {
                let deleting = job.job.as_ref().is_ok_and(|job| job.deleting);
                deleting && self.cx.config.manages(job.managed_by.as_deref())
            }
            Err(_) => false,
        }
    }

    /// Removes our finalizer. The patch names no version: nobody adopts a pod that cannot be read.
    async fn release(&self) -> bool {
        let Unreadable { namespace, name, uid, .. } = &self.pod;
        let body = untrack_patch(uid, self.cx.config.finalizer());
        let write = Write::PatchPod { namespace: namespace.clone(), name: (&**name).into(), body };
        let order =
            Order { priority: Priority::Finalizer, flow: self.owner.uid.clone(), fence: self.fence.clone() };
        match self.cx.gate.submit(order, write).await {
            Ok(_) => true,
            Err(refusal) => {
                tracing::warn!(pod = %uid, %refusal, "a pod that cannot be read was not released");
                false
            }
        }
    }
}
