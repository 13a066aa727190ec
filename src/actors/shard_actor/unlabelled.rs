//! The pods that lack the label of a Job's UID, as those of Jobs with a selector of their own do. Their watch shows all other pods
//! of the cluster, too, and a list of them may take long: a shard has that watch once it has such a Job, and only such Jobs wait
//! for it.
//!
//! A Job with a selector of its own may have pods of both kinds. So no list of the shard is complete for it: whenever one has
//! been, the Job's pods are listed live, by its selector and in its namespace.

use actix::{AsyncContext, Context};

use super::ShardActor;
use crate::actors::job_input::JobInput;
use crate::actors::pod_watch::Kind;
use crate::actors::subscription::SubscriptionId;
use crate::job::job_id::JobId;

impl ShardActor {
    /// The kind of pods that a subscription shows, if its messages still count.
    pub(super) fn kind_of(&self, from: SubscriptionId) -> Option<Kind> {
        match from {
            _ if self.pod_feed.receives(from) => Some(Kind::Labelled),
            _ if self.unlabelled_feed.receives(from) => Some(Kind::Unlabelled),
            _ => None,
        }
    }

    /// Whether the shard is shown the pods of a kind, or will be.
    pub(super) fn watches(&self, kind: Kind) -> bool {
        kind == Kind::Labelled || !self.unlabelled_feed.is_new()
    }

    /// Whether the lists are complete that a Job with a selector of its own waits for.
    pub(super) fn shows_all_kinds(&self) -> bool {
        self.pod_feed.version().is_some() && self.unlabelled_feed.version().is_some()
    }

    /// The Jobs with a selector of their own that have an actor.
    pub(super) fn jobs_that_choose(&self) -> Vec<JobId> {
        let active = self.jobs.iter().filter(|(_, entry)| entry.actor().is_some());
        active.map(|(job, _)| job).filter(|job| self.chooses_pods(job)).cloned().collect()
    }

    /// Watches unlabelled pods if a Job needs that, from when all Jobs are known.
    pub(super) fn watch_unlabelled(&mut self, ctx: &Context<Self>) {
        if self.pod_feed.is_new() || !self.unlabelled_feed.is_new() || self.jobs_that_choose().is_empty() {
            return;
        }
        let (cx, shard) = (&self.cx, self.owned.id);
        let join = || cx.unlabelled_pods.join(shard, cx.next_subscription(), ctx.address().recipient());
        self.unlabelled_feed.start(join);
        self.unseen.unlabelled_watched();
    }

    /// A list of unlabelled pods begins: it shows no state that ever existed.
    pub(super) fn unlabelled_listing(&mut self) {
        self.unlabelled_feed.list_begins();
        self.orphan_pods.list_begins(Kind::Unlabelled);
        for job in self.jobs_that_choose() {
            self.await_all_kinds(&job);
            self.send(&job, JobInput::PodsListing);
        }
    }

    /// The list is complete: what has gone meanwhile, the Jobs' own lists do not show.
    pub(super) fn unlabelled_listed(&mut self, version: u64, ctx: &mut Context<Self>) {
        if self.unlabelled_feed.list_complete(version).is_none() {
            return;
        }
        self.unseen.list_complete(version, Kind::Unlabelled);
        self.orphan_pods.list_complete(Kind::Unlabelled);
        self.doubts.unlabelled_listed();
        self.jobs_that_choose().iter().for_each(|job| self.show_again(job, ctx));
    }

    /// A Job with a selector of its own has a new actor. Its pods are listed, which shows those that are older than the Job; one
    /// that has finished adopts none. One that is being deleted may have pods with the label of no shard.
    pub(super) fn seek_own_pods(&mut self, job: &JobId, ctx: &mut Context<Self>) {
        if !self.shows_all_kinds() {
            self.await_all_kinds(job);
        } else if self.jobs.get(job).is_some_and(|entry| !entry.is_finished()) {
            self.show_again(job, ctx);
        }
    }

    /// A Job waits for a list of its own, which begins once the shard's lists are complete.
    fn await_all_kinds(&mut self, job: &JobId) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.awaits_list(true);
        }
    }

    /// A Job with a selector of its own is gone: it goes by what the watches have shown.
    pub(super) fn search_given_up(&mut self, job: &JobId) {
        self.doubts.forget_search(job);
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.awaits_list(false);
        }
        self.deliver_proven(job);
    }
}
