//! Live lists of the pods of single Jobs. Some of these Jobs doubt the shard's own list: their status counts
//! pods that it lacks, or they have known some with our finalizer. Others need their pods shown again: they
//! are rebuilt, or want pods that had been dropped. The shard's other Jobs notice nothing of that.
//!
//! A Job whose status another writer has changed, for example:
//!
//! ```text
//! JobActor                      ShardActor                        API server
//!    │──── JobReport::Relist ───────>│ the Job waits for a list of its own
//!    │ Lifecycle: ListingPods{1}     │
//!    │<─── PodsListing ──────────────│
//!    │<─── RelistAccepted ───────────│
//!    │ ListingPods{0}                │ 10 ms later ─────────────────>│ lists the pods of up to 50 such Jobs
//!    │<─── Pod … ────────────────────│<──────── Sought ──────────────│ as of version 210
//!    │<─── PodsListed{listed} ───────│ the watch is at 180: its changes of these Jobs up to 210 are stale
//!    │ Lifecycle: Ready              │
//! ```
//!
//! A list that was complete before `RelistAccepted` does not count: it began before the request. If the shard itself lists
//! its pods meanwhile, the Job waits for that list, too. It is shown its pods again if that list is older than the one
//! before.

mod found;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context, Message, SpawnHandle};
use tokio::time::Instant as TokioInstant;
use tokio_util::task::AbortOnDropHandle;

use super::missed::{LIVE_LIST_PAUSE, Missed};
use super::rebuilt::Rebuilt;
use super::searches::Searches;
use super::{RELIST_DELAY, ShardActor};
use crate::actors::known_jobs::job_index::Owner;
use crate::actors::messages::job_input::JobInput;
use crate::actors::pacing::rest::rest_after;
use crate::actors::pods::pod_watch::Kind;
use crate::actors::shards::watch_feed::{list_selected, pod_decoder};
use crate::cluster::reads::PodList;
use crate::cluster::resource::Resource;
use crate::cluster::watch::Selection;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::{JobId, JobMap, JobSet};
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::tidying::{Tidying, give_back};
use crate::job::uid::{Uid, UidMap, UidSet};

/// The longest that a live list may take. Changes from the watch are remembered for no longer, so a list that
/// took longer is repeated.
pub(super) const LONGEST_LIST: Duration = Duration::from_secs(600);

/// The lists of pods that Jobs have asked for in doubt of the shard's own.
#[derive(Debug, Default)]
pub(super) struct LiveLists {
    /// Jobs that wait for the next list, with numbers in the order in which they began to.
    jobs: JobMap<u64>,
    /// The number of the next Job that waits.
    next: u64,
    /// Waiting Jobs that need their pods shown again.
    to_show: JobSet,
    /// Pods that the watch has shown while lists were in progress, or that have left it: their versions, and
    /// when that was. A list may show them as they were before, if it had begun by then.
    shown: UidMap<(u64, TokioInstant)>,
    /// When pods are dropped from these that were shown before all lists in progress.
    tidying: Tidying,
    /// The last time at which a pod was shown or a list began.
    ticked: Option<TokioInstant>,
    /// When the next look at the Jobs that wait is due.
    scheduled: Option<(TokioInstant, SpawnHandle)>,
    /// Until when no such look is taken.
    rests: Option<TokioInstant>,
    /// The lists that the Jobs of a namespace share.
    searches: Searches,
    /// The lists in progress of Jobs with a selector of their own, which may select pods without the label
    /// that the others are found by. These lists do not wait for each other.
    own: Searches<JobId>,
    /// Pods that such a Job may adopt and that were known as another's, and their versions in its last list.
    contested: JobMap<UidMap<u64>>,
    /// Lists that wait until all pods in them, and those that the Job may adopt, are shown.
    proven: JobMap<(UidSet, u64)>,
    /// Jobs that were shown their pods as of a version which the watch has not reached.
    ahead: Ahead,
    /// The same for the watch of unlabelled pods.
    unlabelled_ahead: Ahead,
    /// The Jobs that are rebuilt.
    pub(super) rebuilt: Rebuilt,
    /// Pods that live lists show and the watch has not.
    missed: Missed,
}

/// Jobs that were shown their pods as of a version which a watch has not reached: these, as of this version.
type Ahead = JobMap<(UidSet, u64)>;

/// All pods of some Jobs, with any label.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Sought {
    of: SoughtFor,
    /// Jobs that need their pods shown.
    to_show: JobSet,
    list: PodList,
    /// When the list began, once it was its turn.
    began: TokioInstant,
}

/// The Jobs whose pods were looked for.
enum SoughtFor {
    /// Jobs of a namespace that share the list.
    Shared(Arc<str>, Vec<JobId>),
    /// A Job with a selector of its own.
    Own(JobId),
}

impl LiveLists {
    /// The number of Jobs that need their pods shown again.
    #[cfg(test)]
    pub(super) fn to_show(&self) -> usize {
        self.to_show.len()
    }

    /// The list that has waited until a Job's pods are all shown.
    pub(super) fn take_proven(&mut self, job: &JobId) -> Option<(UidSet, u64)> {
        self.proven.remove(job)
    }

    /// A Job waits for the next list.
    fn wait(&mut self, job: JobId) {
        self.next += 1;
        self.jobs.entry(job).or_insert(self.next);
    }

    fn is_listing(&self) -> bool {
        self.searches.is_listing() || self.own.is_listing()
    }

    /// A pod is shown at this version, or has left the watch then.
    pub(super) fn pod_shown(&mut self, pod: &Uid, version: u64) {
        if self.is_listing() {
            let now = self.tick();
            self.tidy(now);
            let shown = self.shown.entry(pod.clone()).or_insert((version, now));
            *shown = (version.max(shown.0), now);
        }
    }

    /// The time. It differs from all earlier ones, so that it is known whether a pod was shown before a list began.
    pub(super) fn tick(&mut self) -> TokioInstant {
        let later = self.ticked.map(|last| last + Duration::from_nanos(1));
        let now = later.map_or_else(TokioInstant::now, |later| later.max(TokioInstant::now()));
        self.ticked = Some(now);
        now
    }

    /// Drops entries that no list in progress may show as they were before. A namespace may have lists in
    /// progress at all times.
    fn tidy(&mut self, now: TokioInstant) {
        if !self.tidying.is_due(self.shown.len()) {
            return;
        }
        let first = self.searches.first_begun().into_iter().chain(self.own.first_begun()).min();
        let is_needed = |at: TokioInstant| {
            first.is_some_and(|first| first <= at) && now.saturating_duration_since(at) <= LONGEST_LIST
        };
        self.shown.retain(|_, (_, at)| is_needed(*at));
        give_back(&mut self.shown);
        self.tidying.done(self.shown.len());
    }

    /// Forgets that pods were shown: a new actor of their Job knows none.
    pub(super) fn forget_shown(&mut self, pods: &UidSet) {
        pods.iter().for_each(|pod| _ = self.shown.remove(pod));
    }

    /// The version at which a pod was shown since a list began.
    fn shown_since(&self, begun: TokioInstant, pod: &Uid) -> Option<u64> {
        self.shown.get(pod).filter(|(_, at)| *at >= begun).map(|(version, _)| *version)
    }

    /// A pod is gone, since an unknown version.
    pub(super) fn pod_left(&mut self, pod: &Uid) {
        self.pod_shown(pod, u64::MAX);
    }

    /// The Jobs that were shown their pods as of a version that the watch has not reached with this change of
    /// a pod. The watch brings changes in order.
    fn ahead_of(&mut self, pod: &ObservedPod) -> &Ahead {
        let ahead = match Kind::of(pod) {
            Kind::Labelled => &mut self.ahead,
            Kind::Unlabelled => &mut self.unlabelled_ahead,
        };
        ahead.retain(|_, (_, listed)| pod.pod.version <= *listed);
        ahead
    }

    /// Whether this Job was shown the pod as it was after it had left the watch: it has its labels back.
    pub(super) fn shows_later(&mut self, job: &JobId, left: &ObservedPod) -> bool {
        self.ahead_of(left).get(job).is_some_and(|(pods, _)| pods.contains(&left.pod.uid))
    }

    /// Unlabelled pods are listed: all Jobs that have such pods are shown them again.
    pub(super) fn unlabelled_listed(&mut self) {
        self.unlabelled_ahead.clear();
    }

    /// The Job is gone.
    pub(super) fn forget_job(&mut self, job: &JobId) {
        self.jobs.remove(job);
        self.to_show.remove(job);
        self.own.forget(job);
        self.contested.remove(job);
        self.proven.remove(job);
        self.ahead.remove(job);
        self.unlabelled_ahead.remove(job);
        self.rebuilt.forget(job);
        self.missed.forget(job);
    }

    /// The Job waits for a list that begins later than the last result for it.
    pub(super) fn list_awaited(&mut self, job: &JobId) {
        self.proven.remove(job);
        self.rebuilt.forget_search(job);
    }

    /// The Job needs no list of its own any more.
    pub(super) fn forget_search(&mut self, job: &JobId) {
        self.jobs.remove(job);
        self.own.forget(job);
    }

    /// The shard lists its pods again, which shows the missed ones.
    pub(super) fn relisted(&mut self) {
        self.missed.relisted();
    }

    /// The shard lists its pods again: the lists that wait are older.
    pub(super) fn list_begins(&mut self) {
        self.proven.clear();
    }

    /// The shard's list is complete, at this version. Returns the Jobs that were shown newer pods before it, and may
    /// have been shown older ones by it.
    pub(super) fn list_complete(&mut self, version: u64) -> Vec<JobId> {
        let ahead = std::mem::take(&mut self.ahead);
        ahead.into_iter().filter(|(_, (_, listed))| *listed > version).map(|(job, _)| job).collect()
    }
}

impl ShardActor {
    /// A Job knows of pods that a complete list has not shown. A namespace's Jobs of this kind share a live
    /// list.
    pub(super) fn pods_missing(&mut self, job: JobId, ctx: &mut Context<Self>) {
        if self.pod_feed.is_draining() {
            return;
        }
        self.live_lists.wait(job);
        self.schedule_search(RELIST_DELAY, ctx);
    }

    pub(super) fn schedule_search(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        let now = TokioInstant::now();
        let at = self.live_lists.rests.map_or(now + pause, |until| until.max(now + pause));
        if self.live_lists.scheduled.as_ref().is_some_and(|(earlier, _)| *earlier <= at) {
            return;
        }
        let timer = ctx.run_later(at.saturating_duration_since(now), |shard, ctx| {
            shard.live_lists.scheduled = None;
            let begun = TokioInstant::now();
            let next = shard.seek_pods(ctx);
            let now = TokioInstant::now();
            // The time of a look grows with the number of Jobs that wait.
            shard.live_lists.rests = Some(now + rest_after(now.duration_since(begun)));
            if let Some(next) = next {
                shard.schedule_search(next.saturating_duration_since(now), ctx);
            }
        });
        if let Some((_, later)) = self.live_lists.scheduled.replace((at, timer)) {
            ctx.cancel_future(later);
        }
    }

    /// A Job needs its pods shown again: lists them for this Job alone. Until the list is there, the Job knows that it may
    /// lack pods.
    pub(super) fn show_again(&mut self, job: &JobId, ctx: &mut Context<Self>) {
        if self.pod_feed.is_new() || !self.jobs.contains_key(job) {
            return;
        }
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.awaits_list(true);
            entry.send(JobInput::PodsListing);
        }
        self.live_lists.list_awaited(job);
        self.live_lists.to_show.insert(job.clone());
        self.pods_missing(job.clone(), ctx);
    }

    /// Begins the lists that Jobs wait for and that are not in progress. Returns when the next one may begin.
    fn seek_pods(&mut self, ctx: &Context<Self>) -> Option<TokioInstant> {
        let mut jobs: Vec<(u64, JobId)> =
            self.live_lists.jobs.iter().map(|(job, number)| (*number, job.clone())).collect();
        jobs.sort();
        let jobs = jobs.into_iter().map(|(_, job)| job);
        let (own, shared): (Vec<JobId>, Vec<JobId>) = jobs.partition(|job| self.chooses_pods(job));
        if !self.live_lists.is_listing() {
            self.live_lists.shown.clear();
            give_back(&mut self.live_lists.shown);
        }
        let now = TokioInstant::now();
        let may_choose = self.shows_all_kinds();
        for job in own {
            if may_choose && self.live_lists.own.is_free(&job, now) {
                self.seek_selected(job, ctx);
            }
        }
        for jobs in self.live_lists.searches.may_begin(shared, now) {
            self.seek_shared(jobs, ctx);
        }
        let waiting: HashSet<&Arc<str>> = self.live_lists.jobs.keys().map(JobId::namespace).collect();
        let own = self.live_lists.own.next(now, |job| self.live_lists.jobs.contains_key(job));
        self.live_lists
            .searches
            .next(now, |namespace| waiting.contains(namespace))
            .into_iter()
            .chain(own)
            .min()
    }

    /// Whether a Job has a selector of its own.
    pub(super) fn chooses_pods(&self, job: &JobId) -> bool {
        let seen = self.jobs.get(job).map(|entry| &entry.seen().job);
        seen.is_some_and(|job| job.as_ref().is_ok_and(|job| Owner::from(job).chooses_pods()))
    }

    /// Looks for the pods that a Job's own selector selects.
    fn seek_selected(&mut self, job: JobId, ctx: &Context<Self>) {
        self.live_lists.jobs.remove(&job);
        self.live_lists.to_show.remove(&job);
        let to_show = JobSet::from_iter([job.clone()]);
        let Some(Ok(known)) = self.jobs.get(&job).map(|entry| &entry.seen().job) else { return };
        // The rest of the Job must not wait with the search: the share of its namespace counts it only while it is known.
        let (namespace, selector) = (known.namespace.clone(), known.spec.selector.clone());
        let (cx, shard, of) = (self.cx.for_job(&job), ctx.address(), job.clone());
        let task = self.owned.unit.spawn("a search for missing pods", async move {
            let (list, began) = list_selected(&cx, &namespace, &selector).await;
            shard.do_send(Sought { of: SoughtFor::Own(of), to_show, list, began });
        });
        let begun = self.live_lists.tick();
        self.live_lists.own.begin(job, begun, AbortOnDropHandle::new(task));
    }

    /// Looks for the pods of these Jobs of a namespace in one list.
    fn seek_shared(&mut self, jobs: Vec<JobId>, ctx: &Context<Self>) {
        let Some(first) = jobs.first().cloned() else { return };
        let namespace = first.namespace().clone();
        jobs.iter().for_each(|job| _ = self.live_lists.jobs.remove(job));
        let to_show: JobSet = jobs.iter().filter_map(|job| self.live_lists.to_show.take(job)).collect();
        let uids: Vec<String> = jobs.iter().map(|job| job.uid().to_string()).collect();
        let selection = Selection {
            namespace: Some((*namespace).into()),
            ..Selection::all(Resource::PODS)
                .labelled(format!("{CONTROLLER_UID_LABEL} in ({})", uids.join(",")))
        };
        let (cx, fence, of) = (self.cx.for_job(&first), self.owned.fence.clone(), namespace.clone());
        let (shard, in_full) = (ctx.address(), !to_show.is_empty());
        let task = self.owned.unit.spawn("a search for missing pods", async move {
            let mut backoff = cx.api_backoff();
            let (list, began) = loop {
                let began = TokioInstant::now();
                let listed = match in_full {
                    true => cx.reads.list_pods(&pod_decoder(&cx), &selection).await,
                    false => cx.reads.list_pod_metadata(&selection, |_| true).await,
                };
                match listed {
                    Ok(list) => break (list, began),
                    Err(_) if fence.is_closed() => return,
                    Err(error) => tracing::warn!(%error, "missing pods were not looked for"),
                }
                backoff.pause().await;
            };
            shard.do_send(Sought { of: SoughtFor::Shared(of, jobs), to_show, list, began });
        });
        let begun = self.live_lists.tick();
        self.live_lists.searches.begin(namespace, begun, AbortOnDropHandle::new(task));
    }

    /// Whether a watch event of a pod is older than the state that its Job has seen. If the pod was counted
    /// and dropped, it would be taken for one to be counted.
    pub(super) fn is_late(&mut self, pod: &ObservedPod) -> bool {
        let ahead = self.live_lists.ahead_of(pod);
        let job = pod.job().filter(|job| ahead.contains_key(*job));
        job.and_then(|job| self.jobs.get(job)).is_some_and(|job| job.selects(pod))
    }
}

#[cfg(test)]
mod tests;
