//! Pods with the label of this shard whose Job is another shard's. Other replicas may not see them, so they get the label of
//! their Job's shard, unless the Job is another controller's: that may have another number of shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::AbortOnDropHandle;

use super::ShardActor;
use crate::actors::labelling::Labelling;
use crate::actors::orphan_pods::{Fate, fate_of};
use crate::cluster::fair_semaphore::Fenced;
use crate::cluster::wire::ObservedPod;
use crate::job::tidying::{Tidying, give_back};
use crate::job::uid::{Uid, UidMap};

/// The labellings that are under way, and the pods of others.
#[derive(Default)]
pub(super) struct Strangers {
    labelled: UidMap<Stranger>,
    /// When labellings that have ended are dropped.
    tidying: Tidying,
}

struct Stranger {
    task: AbortOnDropHandle<()>,
    is_others: Arc<AtomicBool>,
}

impl Stranger {
    /// Whether nothing is under way, and there may be something to do.
    fn is_over(&self) -> bool {
        self.task.is_finished() && !self.is_others.load(Ordering::Relaxed)
    }
}

impl Strangers {
    /// The pod is gone, or none of these.
    pub(super) fn forget(&mut self, pod: &Uid) {
        self.labelled.remove(pod);
        give_back(&mut self.labelled);
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
            labelled.retain(|_, stranger| !stranger.is_over());
            tidying.done(labelled.len());
        }
        if labelled.get(uid).is_none_or(Stranger::is_over) {
            let (cx, fence, job) = (self.cx.for_job(job), self.owned.fence.clone(), job.clone());
            let labelling = Labelling::new(&cx, &fence, pod, &job);
            let is_others = Arc::<AtomicBool>::default();
            let found = is_others.clone();
            let task = self.owned.unit.spawn("a labelling", async move {
                // Closed, the fence is somebody else's who looks after the pod.
                match Box::pin(fate_of(&cx, &fence, &job)).await {
                    Ok(Fate::Others) => found.store(true, Ordering::Relaxed),
                    Ok(Fate::Ours | Fate::Gone) => _ = Box::pin(labelling.hold()).await,
                    Err(Fenced) => {}
                }
            });
            labelled.insert(uid.clone(), Stranger { task: AbortOnDropHandle::new(task), is_others });
        }
    }
}
