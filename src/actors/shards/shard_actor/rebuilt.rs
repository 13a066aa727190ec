//! Jobs that are rebuilt from the cluster, after a panic or when they are no longer left
//! alone: their new actors know no pod.
//!
//! A live list shows a Job its pods. If the list lacks a pod that the Job had, the pod is
//! gone, or has lost the labels that the list selects by. All pods of the Job's namespace
//! are searched for it.

use actix::{AsyncContext, Context, Handler, Message};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::ShardActor;
use super::searches::Searches;
use crate::actors::shards::watch_feed::list_namespace_metadata;
use crate::cluster::reads::PodList;
use crate::cluster::wire::{ObservedPod, Unreadable};
use crate::job::job_id::{JobId, JobMap, JobSet};
use crate::job::uid::UidSet;

/// Rebuilt Jobs that do not know all their pods yet.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    /// With the pods that they had before.
    before: JobMap<UidSet>,
    /// The searches for pods that the list did not show.
    searches: Searches<JobId>,
}

/// The pods of a Job that its list did not show and that exist.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Remaining {
    job: JobId,
    /// When the search began.
    begun: Instant,
    found: PodList,
}

impl Rebuilt {
    /// The Job is gone.
    pub(super) fn forget(&mut self, job: &JobId) {
        self.before.remove(job);
        self.searches.forget(job);
    }

    /// The Job gets another list.
    pub(super) fn forget_search(&mut self, job: &JobId) {
        self.searches.forget(job);
    }

    /// The pods that Jobs had before, and that are not in the list which was made for them: they are to be looked for.
    pub(super) fn missed_by(&mut self, to_show: &JobSet, found: &JobMap<UidSet>) -> JobMap<UidSet> {
        let mut missed = JobMap::default();
        for job in to_show {
            // A Job that has asked again has its answer from the next list.
            let Some(found) = found.get(job) else { continue };
            let Some(before) = self.before.get(job) else { continue };
            let of_job: UidSet = before.difference(found).cloned().collect();
            if of_job.is_empty() {
                self.before.remove(job);
            } else {
                missed.insert(job.clone(), of_job);
            }
        }
        missed
    }
}

impl ShardActor {
    /// A Job is rebuilt: its new actor knows no pod, not even those that the old one was
    /// shown.
    pub(super) fn knows_no_pod(&mut self, job: &JobId) {
        let known = self.pod_owners.remove_job(job);
        self.live_lists.forget_shown(&known);
        self.live_lists.rebuilt.before.entry(job.clone()).or_default().extend(known);
        self.none_seen(job);
    }

    /// Looks for pods of a Job among all pods of its namespace, with any labels.
    pub(super) fn seek_remaining(&mut self, job: &JobId, pods: UidSet, ctx: &Context<Self>) {
        let (cx, shard, of) = (self.cx.for_job(job), ctx.address(), job.clone());
        let begun = self.live_lists.tick();
        let task = self.owned.unit.spawn("a search for the pods of a rebuilt Job", async move {
            let is_meant = |pod: &ObservedPod| pod.job() == Some(&of) && pods.contains(&pod.pod.uid);
            let found = list_namespace_metadata(&cx, of.namespace(), is_meant).await;
            shard.do_send(Remaining { job: of, begun, found });
        });
        self.live_lists.rebuilt.searches.begin(job.clone(), begun, AbortOnDropHandle::new(task));
    }
}

impl Handler<Remaining> for ShardActor {
    type Result = ();

    fn handle(&mut self, Remaining { job, begun, found }: Remaining, ctx: &mut Self::Context) {
        if self.pod_feed.is_draining() || self.live_lists.rebuilt.searches.begun(&job) != Some(begun) {
            return;
        }
        self.live_lists.rebuilt.forget(&job);
        for pod in &found.pods {
            let uid = &pod.pod.uid;
            if self.pod_owners.job_of(uid) != Some(&job) && !self.hidden.holds(uid, &job, pod.pod.version) {
                self.read_live(pod, &job, ctx);
            }
        }
        let is_of_job = |pod: &&Unreadable| pod.job.as_ref() == Some(&job);
        found.unreadable.iter().filter(is_of_job).for_each(|pod| self.pod_unreadable(pod, ctx));
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.awaits_list(false);
        }
        self.deliver_proven(&job);
        self.show_held();
    }
}
