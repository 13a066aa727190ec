//! The results of a live list, and their consequences for the Jobs that waited for it.

use std::time::{Duration, Instant};

use actix::{AsyncContext, Context, Handler};
use tokio::time::Instant as TokioInstant;

use super::{LIVE_LIST_PAUSE, LONGEST_LIST, Sought, SoughtFor};
use crate::actors::messages::job_input::{JobInput, ListOrigin};
use crate::actors::shards::shard_actor::{RELIST_DELAY, ShardActor};
use crate::cluster::reads::PodList;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::{JobId, JobMap, JobSet};
use crate::job::uid::{Uid, UidMap, UidSet};

impl ShardActor {
    /// Answers the Jobs that were in doubt: pods that the live list does not show do not exist.
    fn pods_sought(&mut self, Sought { of, to_show, list, began }: Sought, ctx: &mut Context<Self>) {
        // A list in progress shows no state that ever existed. When it is complete, Jobs may doubt it again.
        let known = self.listed_for(&of);
        let is_awaited = match &of {
            SoughtFor::Shared(namespace, _) => self.live_lists.searches.begun(namespace).is_some(),
            SoughtFor::Own(job) => self.live_lists.own.begun(job).is_some(),
        };
        // Otherwise the Job is gone.
        if !is_awaited {
            return;
        }
        let now = TokioInstant::now();
        let is_older = known.is_some_and(|known| list.version < known);
        let is_forgotten = now.saturating_duration_since(began) > LONGEST_LIST;
        let is_useless = is_older || is_forgotten || !to_show.is_empty() && known.is_none();
        let pause = if is_useless { LIVE_LIST_PAUSE } else { RELIST_DELAY };
        let (jobs, own) = match of {
            SoughtFor::Shared(namespace, jobs) => {
                self.live_lists.searches.end(&namespace, now, pause);
                (jobs, None)
            }
            SoughtFor::Own(job) => {
                self.live_lists.own.end(&job, now, pause);
                (vec![job.clone()], Some(job))
            }
        };
        let jobs: Vec<JobId> = jobs.into_iter().filter(|job| self.jobs.contains_key(job)).collect();
        if is_useless {
            // The shard's list is newer, so pods in it would seem to be gone; or it is not complete.
            jobs.into_iter().for_each(|job| self.live_lists.wait(job));
            self.live_lists.to_show.extend(to_show.into_iter().filter(|job| self.jobs.contains_key(job)));
            return self.schedule_search(LIVE_LIST_PAUSE, ctx);
        }
        // A Job that waits again needs a list that begins later, and shows as much.
        let waits_again = |job: &&JobId| self.live_lists.jobs.contains_key(*job);
        let waiting: Vec<JobId> = to_show.iter().filter(waits_again).cloned().collect();
        self.live_lists.to_show.extend(waiting);
        let jobs = jobs.into_iter().filter(|job| !self.live_lists.jobs.contains_key(job));
        let mut found: JobMap<UidSet> = jobs.map(|job| (job, UidSet::default())).collect();
        self.show_pods(&to_show, &found, &list, began, ctx);
        self.take_in_free(own.as_ref(), !to_show.is_empty(), &list, began, &mut found, ctx);
        self.take_in_found(&list, &to_show, began, &mut found, ctx);
        if known.is_some() {
            self.give_lists(found, &to_show, list.version, began, ctx);
        }
        self.schedule_search(Duration::ZERO, ctx);
    }

    /// The version of the shard's list that a live list is compared with, if that is complete.
    fn listed_for(&self, of: &SoughtFor) -> Option<u64> {
        let listed = self.pod_feed.version();
        match of {
            SoughtFor::Shared(..) => listed,
            SoughtFor::Own(_) => {
                listed.zip(self.unlabelled_feed.version()).map(|(one, other)| one.max(other))
            }
        }
    }

    /// Applies the pods without controller of a live list, which the Jobs may adopt. `own`: the Job whose
    /// own selector selects all of them.
    fn take_in_free(
        &mut self,
        own: Option<&JobId>,
        in_full: bool,
        list: &PodList,
        begun: TokioInstant,
        found: &mut JobMap<UidSet>,
        ctx: &mut Context<Self>,
    ) {
        let doubted = own.and_then(|job| self.live_lists.contested.remove(job)).unwrap_or_default();
        let mut contested: UidMap<u64> = UidMap::default();
        for pod in list.pods.iter().filter(|pod| pod.controller.is_none()) {
            let uid = &pod.pod.uid;
            let is_new = match own {
                Some(_) if self.is_of_another(pod, &doubted) => {
                    contested.insert(uid.clone(), pod.pod.version);
                    false
                }
                Some(_) => !self.is_older(pod, begun),
                None => self.is_unknown(pod, in_full, begun),
            };
            if is_new {
                self.route_pod(pod.clone(), ctx);
            }
            if let Some(pods) = self.job_of(pod).and_then(|job| found.get_mut(&job)) {
                pods.insert(uid.clone());
            }
        }
        if let Some(job) = own.filter(|_| !contested.is_empty()) {
            found.remove(job);
            self.live_lists.contested.insert(job.clone(), contested);
            self.look_later(job.clone(), ctx);
        }
    }

    /// Applies the pods of Jobs that a live list shows. Jobs with pods that the watch has not shown wait for
    /// another list.
    fn take_in_found(
        &mut self,
        list: &PodList,
        to_show: &JobSet,
        begun: TokioInstant,
        found: &mut JobMap<UidSet>,
        ctx: &mut Context<Self>,
    ) {
        let mut unshown: JobMap<Vec<Uid>> = JobMap::default();
        for pod in &list.pods {
            let Some(job) = pod.job() else { continue };
            let Some(uids) = found.get_mut(job) else { continue };
            let uid = &pod.pod.uid;
            uids.insert(uid.clone());
            if self.is_hidden(pod) {
                self.found_live(pod, job, ctx);
            } else if pod.pod.tracked
                && self.pod_owners.job_of(uid).is_none()
                && !self.hidden.contains(uid)
                && self.live_lists.shown_since(begun, uid).is_none()
            {
                // Its label does not hide it, and the shard's watch has not shown it.
                unshown.entry(job.clone()).or_default().push(uid.clone());
            }
        }
        for pod in &list.unreadable {
            if let Some(uids) = pod.job.as_ref().and_then(|job| found.get_mut(job)) {
                uids.insert(pod.uid.clone());
                self.pod_unreadable(pod, ctx);
            }
        }
        let mut must_relist = false;
        for (job, pods) in unshown {
            found.remove(&job);
            must_relist |= self.is_overdue(&job, &pods, to_show.contains(&job), ctx);
        }
        if must_relist && let Some(pause) = self.live_lists.missed.must_relist(TokioInstant::now()) {
            tracing::warn!(shard = %self.owned.id, "a list of pods was not complete; listing again");
            ctx.run_later(pause, |shard, ctx| shard.relist_pods(ctx));
        }
    }

    /// Gives Jobs the lists of their pods as of this version, unless they wait for more.
    fn give_lists(
        &mut self,
        found: JobMap<UidSet>,
        to_show: &JobSet,
        version: u64,
        begun: TokioInstant,
        ctx: &Context<Self>,
    ) {
        let mut missed = self.live_lists.rebuilt.missed_by(to_show, &found);
        for (job, listed) in found {
            self.live_lists.missed.forget(&job);
            if to_show.contains(&job) {
                self.are_shown(&job, &listed, version, begun);
            }
            let missed = missed.remove(&job);
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.awaits_list(missed.is_some());
            }
            if let Some(missed) = missed {
                self.seek_remaining(&job, missed, ctx);
            }
            if self.awaits_more_pods(&job) {
                self.live_lists.proven.insert(job, (listed, version));
            } else {
                self.send(&job, JobInput::PodsListed { listed, version, origin: ListOrigin::Live });
            }
        }
    }

    /// Whether pods of a Job that a live list shows are missing from the shard's own list. As long as the
    /// watch may merely be behind, the Job waits for another list.
    fn is_overdue(&mut self, job: &JobId, pods: &[Uid], to_show: bool, ctx: &mut Context<Self>) -> bool {
        if self.live_lists.missed.is_overdue(job, pods, TokioInstant::now()) {
            return true;
        }
        self.live_lists.to_show.extend(to_show.then(|| job.clone()));
        self.look_later(job.clone(), ctx);
        false
    }

    /// Looks again for the pods of a Job, after a pause in which the watch may show their later changes.
    fn look_later(&mut self, job: JobId, ctx: &mut Context<Self>) {
        self.timers.set(LIVE_LIST_PAUSE, ctx, move |shard, ctx| shard.pods_missing(job, ctx));
    }
}

impl ShardActor {
    /// Delivers the pods of Jobs that need them shown, as far as the watch has not shown more of them meanwhile.
    fn show_pods(
        &mut self,
        to_show: &JobSet,
        answered: &JobMap<UidSet>,
        list: &PodList,
        begun: TokioInstant,
        ctx: &mut Context<Self>,
    ) {
        self.arrived = Instant::now();
        for pod in &list.pods {
            let is_meant = pod.job().is_some_and(|job| to_show.contains(job) && answered.contains_key(job));
            if is_meant && !self.is_older(pod, begun) {
                if self.is_hidden(pod) {
                    // The pod gets its label back. Earlier events of the watch are older than this.
                    self.answered(&pod.pod, ctx);
                }
                self.route_pod(pod.clone(), ctx);
            }
        }
    }

    /// Whether no actor and no release of orphans knows this pod, which has no controller. Either it has the label of
    /// another shard, so that no watch shows it here. Or it has the label of this one, and only an actor that has panicked
    /// was shown it, before it could adopt or release it. Its Job may adopt it now; if the Job is gone, it is released.
    /// `in_full`: the list is one that shows rebuilt Jobs their pods.
    fn is_unknown(&self, pod: &ObservedPod, in_full: bool, begun: TokioInstant) -> bool {
        let uid = &pod.pod.uid;
        let is_missed = self.is_hidden(pod) || in_full && !self.is_older(pod, begun);
        is_missed && self.pod_owners.job_of(uid).is_none() && !self.hidden.contains(uid)
    }

    /// Whether the watch has shown as much of a pod as a live list, or more, since that list began.
    fn is_older(&self, pod: &ObservedPod, begun: TokioInstant) -> bool {
        self.live_lists.shown_since(begun, &pod.pod.uid).is_some_and(|shown| shown >= pod.pod.version)
    }

    /// A Job was shown all its pods by a live list.
    fn are_shown(&mut self, job: &JobId, listed: &UidSet, version: u64, begun: TokioInstant) {
        self.live_lists.ahead.insert(job.clone(), (listed.clone(), version));
        if self.chooses_pods(job) {
            self.live_lists.unlabelled_ahead.insert(job.clone(), (listed.clone(), version));
            for pod in self.pod_owners.pods_of(job).difference(listed) {
                if !self.hidden.contains(pod) && self.live_lists.shown_since(begun, pod).is_none() {
                    self.pod_owners.remove(pod);
                }
            }
        }
    }
}

impl Handler<Sought> for ShardActor {
    type Result = ();

    fn handle(&mut self, sought: Sought, ctx: &mut Self::Context) {
        if !self.pod_feed.is_draining() {
            self.pods_sought(sought, ctx);
            self.show_held();
        }
    }
}
