//! Pods with the label of this shard whose Job is another shard's. Other replicas may not see them, so they get the label of
//! their Job's shard.

use tokio_util::task::AbortOnDropHandle;

use super::ShardActor;
use crate::actors::labelling::Labelling;
use crate::cluster::wire::ObservedPod;
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap};

/// The labellings that are under way.
#[derive(Default)]
pub(super) struct Strangers {
    labelled: UidMap<AbortOnDropHandle<()>>,
    /// When labellings that have ended are dropped.
    tidying: Tidying,
}

impl Strangers {
    /// The pod is gone, or none of these.
    pub(super) fn forget(&mut self, pod: &Uid) {
        self.labelled.remove(pod);
        if self.labelled.is_empty() {
            self.labelled.shrink_to_fit();
        }
    }

    /// The number of pods.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.labelled.len()
    }
}

impl ShardActor {
    /// Gives a pod with the label of this shard that of its Job's.
    pub(super) fn send_home(&mut self, pod: &ObservedPod) {
        let uid = &pod.pod.uid;
        let here = Some(self.owned.id);
        let stranger = pod.job().filter(|job| Some(self.places.of_job(job)) != here);
        let Some(job) = stranger.filter(|_| self.places.of_label(pod) == here) else {
            return self.strangers.forget(uid);
        };
        let Strangers { labelled, tidying } = &mut self.strangers;
        if tidying.is_due(labelled.len()) {
            labelled.retain(|_, task| !task.is_finished());
            tidying.done(labelled.len());
        }
        if labelled.get(uid).is_none_or(AbortOnDropHandle::is_finished) {
            let labelling = Labelling::new(&self.cx, &self.owned.fence, pod, job);
            let task = self.owned.unit.spawn("a labelling", async move {
                // Closed, the fence is somebody else's who looks after the pod.
                let _ = Box::pin(labelling.hold()).await;
            });
            labelled.insert(uid.clone(), AbortOnDropHandle::new(task));
        }
    }
}
