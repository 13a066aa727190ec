//! The pods that lack the label of a Job's UID, as those of Jobs with a selector of their own do. Their
//! watch shows all other pods of the cluster, too, and a list of them may take long. So a shard has that
//! watch once it has such a Job, and only such Jobs wait for it. Pods of other Jobs that have lost the
//! label are read live, as if there were no such watch.
//!
//! A Job with a selector of its own may have pods of both kinds. So no list of the shard is complete for
//! it. After each, the Job's pods are listed live, by its selector and in its namespace. Either watch may
//! be behind the other, so a pod that is done stays known as such until both have come so far
//! ([`answers`](super::answers)).

use std::time::Duration;

use actix::{AsyncContext, Context};
use tokio::time::Instant;

use super::{RELIST_DELAY, ShardActor};
use crate::actors::messages::job_input::JobInput;
use crate::actors::messages::subscription::SubscriptionId;
use crate::actors::pods::pod_watch::Kind;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::JobId;

/// How long unlabelled pods are watched for no Job. A tenant that creates and deletes Jobs makes a shard
/// list them once in that time.
const LINGER: Duration = Duration::from_hours(1);

impl ShardActor {
    /// The kind of pods that a subscription shows, if its messages still count.
    pub(super) fn kind_of(&self, from: SubscriptionId) -> Option<Kind> {
        match from {
            _ if self.pod_feed.receives(from) => Some(Kind::Labelled),
            _ if self.unlabelled_feed.receives(from) => Some(Kind::Unlabelled),
            _ => None,
        }
    }

    /// Whether the shard will see the end of a Job's pod, as far as the label of a shard does not hide it.
    /// A watch that starts again shows the end in its list.
    pub(super) fn shows_end(&self, pod: &ObservedPod, job: &JobId) -> bool {
        match Kind::of(pod) {
            Kind::Labelled => true,
            Kind::Unlabelled => {
                self.watches_unlabelled()
                    && self.chooses_pods(job)
                    && self.jobs.get(job).is_some_and(|entry| entry.selects(pod))
            }
        }
    }

    /// Whether the shard is shown unlabelled pods, or will be.
    pub(super) fn watches_unlabelled(&self) -> bool {
        !self.unlabelled_feed.is_new()
    }

    /// Whether the lists are complete that a Job with a selector of its own waits for.
    pub(super) fn shows_all_kinds(&self) -> bool {
        self.pod_feed.version().is_some() && self.unlabelled_feed.version().is_some()
    }

    /// The Jobs with a selector of their own that are not passivated.
    pub(super) fn jobs_that_choose(&self) -> Vec<JobId> {
        let active = self.jobs.iter().filter(|(_, entry)| !entry.is_passivated());
        active.map(|(job, _)| job).filter(|job| self.chooses_pods(job)).cloned().collect()
    }

    /// Whether a Job may wait for a list of its own. A gone Job goes by the changes that the watches have
    /// shown.
    fn may_wait(&self, job: &JobId) -> bool {
        self.jobs.get(job).is_some_and(|entry| !entry.is_gone())
    }

    /// Lists the pods of Jobs with a selector of their own again.
    pub(super) fn show_chosen_again(&mut self, jobs: &[JobId], ctx: &mut Context<Self>) {
        for job in jobs {
            if self.may_wait(job) {
                self.show_again(job, ctx);
            }
        }
        // A gone Job may have waited for this list.
        self.schedule_search(RELIST_DELAY, ctx);
    }

    /// Watches unlabelled pods if this Job, which is new, needs that.
    pub(super) fn watch_unlabelled_for(&mut self, job: &JobId, ctx: &Context<Self>) {
        if self.chooses_pods(job) {
            self.watch_unlabelled(ctx);
        }
    }

    /// Watches unlabelled pods if a Job has a selector of its own, from when all Jobs are known. A
    /// finished Job may also have pods that are to be deleted or to lose their finalizer.
    pub(super) fn watch_unlabelled(&mut self, ctx: &Context<Self>) {
        let is_needed = || self.jobs.keys().any(|job| self.chooses_pods(job));
        if self.pod_feed.is_new() || self.watches_unlabelled() || !is_needed() {
            return;
        }
        let (cx, shard) = (&self.cx, self.owned.id);
        let join = || cx.unlabelled_pods.join(shard, cx.next_subscription(), ctx.address().recipient());
        self.unlabelled_feed.start(join);
        self.answers.unlabelled_watched(true);
    }

    /// A Job is gone. If it was the last with a selector of its own, unlabelled pods are watched for a
    /// while. A new watch would begin with a list, and other such Jobs may follow.
    pub(super) fn unwatch_unlabelled_after(&mut self, job: &JobId, ctx: &mut Context<Self>) {
        if self.chooses_pods(job) && self.watches_unlabelled() {
            let is_timed = self.unneeded_since.replace(Instant::now()).is_some();
            if !is_timed {
                self.timers.set(LINGER, ctx, Self::unwatch_unlabelled);
            }
        }
    }

    fn unwatch_unlabelled(&mut self, ctx: &mut Context<Self>) {
        let Some(since) = self.unneeded_since.take() else { return };
        if self.jobs.keys().any(|job| self.chooses_pods(job)) {
            return;
        }
        let remaining = LINGER.saturating_sub(since.elapsed());
        if !remaining.is_zero() {
            self.unneeded_since = Some(since);
            self.timers.set(remaining, ctx, Self::unwatch_unlabelled);
            return;
        }
        self.unlabelled_feed.stop();
        self.answers.unlabelled_watched(false);
        self.live_lists.unlabelled_listed();
        // Pods that it has shown may end unseen.
        self.orphan_pods.list_begins(Kind::Unlabelled);
        self.orphan_pods.list_complete(Kind::Unlabelled);
    }

    /// A list of unlabelled pods begins: it shows no state that ever existed.
    pub(super) fn unlabelled_listing(&mut self) {
        self.unlabelled_feed.list_begins();
        self.orphan_pods.list_begins(Kind::Unlabelled);
        for job in self.jobs_that_choose() {
            if self.may_wait(&job) {
                self.await_all_kinds(&job);
                self.send(&job, JobInput::PodsListing);
            }
        }
    }

    /// The list is complete: the Jobs' own lists do not show pods that have gone meanwhile.
    pub(super) fn unlabelled_listed(&mut self, version: u64, ctx: &mut Context<Self>) {
        if self.unlabelled_feed.list_complete(version).is_none() {
            return;
        }
        self.answers.list_complete(version, Kind::Unlabelled);
        self.orphan_pods.list_complete(Kind::Unlabelled);
        self.live_lists.unlabelled_listed();
        self.show_chosen_again(&self.jobs_that_choose(), ctx);
    }

    /// A Job with a selector of its own has a new actor. Its pods are listed, which shows those that are
    /// older than the Job; one that has finished adopts none. A Job that is being deleted may have pods
    /// with the label of no shard.
    pub(super) fn seek_own_pods(&mut self, job: &JobId, ctx: &mut Context<Self>) {
        if !self.shows_all_kinds() {
            self.await_all_kinds(job);
        } else if self.jobs.get(job).is_some_and(|entry| !entry.is_finished()) {
            self.show_again(job, ctx);
        }
    }

    /// A Job waits for a list of its own, which begins once the shard's lists are complete.
    fn await_all_kinds(&mut self, job: &JobId) {
        self.live_lists.list_awaited(job);
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.awaits_list(true);
        }
    }

    /// A Job with a selector of its own is gone: it goes by the changes that the watches have shown.
    pub(super) fn search_given_up(&mut self, job: &JobId) {
        self.live_lists.forget_search(job);
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.awaits_list(false);
        }
        self.deliver_proven(job);
    }
}
