//! The actor of one shard: it owns the shard's Jobs and delivers every pod event to the right Job.
//!
//! The actor keeps no pods, only which Job holds each; Jobs keep the pods that they need. A Job that has
//! panicked is rebuilt from the cluster alone: from a live list of its own pods, which other Jobs do not
//! notice.

mod answers;
mod foreign_jobs;
mod handlers;
mod hidden_pods;
mod jobs;
mod live_lists;
mod messages;
mod missed;
mod pod_feed;
mod rebuilt;
mod searches;
mod timers;
mod unlabelled;

use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Context};
use jiff::Timestamp;
use tokio::time::Instant as TokioInstant;
use tokio_util::task::TaskTracker;

use self::answers::Answers;
pub use self::foreign_jobs::ForeignJobSeen;
use self::foreign_jobs::ForeignJobs;
use self::hidden_pods::HiddenPods;
use self::jobs::JobEntry;
use self::live_lists::LiveLists;
pub use self::messages::{
    Describe, Drain, End, ForeignJobVanished, JobSeen, JobVanished, JobsCaughtUp, JobsListed, ShardReport,
};
use self::pod_feed::PodFeed;
use self::timers::Timers;
use super::pod_owners::PodOwnerIndex;
use crate::actors::context::ReplicaContext;
use crate::actors::jobs::releases_in_flight::ReleasesInFlight;
use crate::actors::known_jobs::catch_up::CaughtUp;
use crate::actors::known_jobs::waiting_jobs::WaitingJobs;
use crate::actors::messages::job_input::{JobInput, ListOrigin};
use crate::actors::messages::protocol::{ProgressSender, ShardProgress};
use crate::actors::orphans::orphan_pods::OrphanPods;
use crate::actors::pods::pod_places::PodPlaces;
use crate::actors::pods::pod_watch::Kind;
use crate::actors::supervision::{PanicNotice, Unit};
use crate::cluster::gate::Fence;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::{JobId, JobMap};
use crate::job::uid::{Uid, UidMap};
use crate::mutants::{Mutant, is};
use crate::sharding::ShardId;
use crate::telemetry::traces::TakeoverSpan;

/// Pause before pods are listed live for a Job: Jobs that need a list at the same time share it.
const RELIST_DELAY: Duration = Duration::from_millis(10);

/// A shard that is ours.
pub struct Owned {
    /// The shard.
    pub id: ShardId,
    /// How often it has been claimed.
    pub epoch: u64,
    /// The right to act for it.
    pub fence: Fence,
    /// The board on which its Job actors say why they wait.
    pub waits: WaitingJobs,
    /// Requests of its Jobs in flight.
    pub in_flight: TaskTracker,
    /// The unit that fails when a part of the shard panics.
    pub unit: Unit,
}

/// The actor of one shard.
pub struct ShardActor {
    owned: Owned,
    /// When the shard became ours.
    claimed: Timestamp,
    /// Until the caches are synced.
    takeover: Option<TakeoverSpan>,
    cx: ReplicaContext,
    caught_up: CaughtUp,
    progress: ProgressSender,
    places: PodPlaces,
    orphan_pods: OrphanPods,
    jobs: JobMap<JobEntry>,
    foreign_jobs: ForeignJobs,
    pod_owners: PodOwnerIndex,
    pod_feed: PodFeed,
    /// The watch of the pods that lack the label of a Job's UID, once a Job has a selector of its own.
    unlabelled_feed: PodFeed,
    /// When a Job went that needed it, from then until it is seen whether others do.
    unneeded_since: Option<TokioInstant>,
    hidden: HiddenPods,
    answers: Answers,
    live_lists: LiveLists,
    timers: Timers,
    /// The release of pods that the selectors of Jobs no longer select.
    releasing: ReleasesInFlight,
    /// Jobs and pods last shown by the gauges.
    shown: (i64, i64),
    /// When the watch events arrived that are being handled.
    arrived: Instant,
    _notice: PanicNotice,
}

impl ShardActor {
    /// An actor for a shard, which acts while its fence is open.
    pub fn new(owned: Owned, cx: ReplicaContext, progress: ProgressSender, this: &Addr<Self>) -> Self {
        let hears = this.clone().recipient();
        let orphan_pods =
            OrphanPods::new(cx.clone(), owned.id, owned.fence.clone(), owned.unit.clone(), hears);
        Self {
            places: PodPlaces(cx.config.shards),
            orphan_pods,
            takeover: Some(TakeoverSpan::begin(owned.id.0, owned.epoch)),
            _notice: owned.unit.notice(),
            owned,
            claimed: cx.clock.now(),
            progress,
            jobs: JobMap::default(),
            foreign_jobs: ForeignJobs::default(),
            pod_owners: PodOwnerIndex::default(),
            pod_feed: PodFeed::NEW,
            unlabelled_feed: PodFeed::NEW,
            unneeded_since: None,
            caught_up: CaughtUp::default(),
            hidden: HiddenPods::default(),
            answers: Answers::default(),
            live_lists: LiveLists::default(),
            timers: Timers::default(),
            releasing: ReleasesInFlight::default(),
            shown: (0, 0),
            arrived: Instant::now(),
            cx,
        }
    }

    /// Brings the gauges up to date.
    fn show_held(&mut self) {
        let held = (self.jobs.len() as i64, self.pod_owners.len() as i64);
        self.cx.metrics.held_jobs.inc_by(held.0 - self.shown.0);
        self.cx.metrics.held_pods.inc_by(held.1 - self.shown.1);
        self.shown = held;
    }

    /// Lists the pods, for the first time or again, then watches them.
    fn list_pods(&mut self, ctx: &Context<Self>) {
        let (cx, shard) = (&self.cx, self.owned.id);
        let join = || cx.pod_watch.join(shard, cx.next_subscription(), ctx.address().recipient());
        self.pod_feed.start(join);
    }

    /// Lists the pods again, unless a list still waits or is in progress: that list shows as much.
    fn relist_pods(&mut self, ctx: &Context<Self>) {
        self.live_lists.relisted();
        if self.pod_feed.version().is_some() {
            self.list_pods(ctx);
        }
    }

    /// The Job of the shard that controls a pod or would adopt it.
    fn job_of(&self, pod: &ObservedPod) -> Option<JobId> {
        let job = match &pod.controller {
            Some(_) => pod.job().cloned(),
            None => self.cx.job_index.adopter(pod),
        };
        // All its pods share the key.
        self.jobs.get_key_value(&job?).map(|(job, _)| job.clone())
    }

    /// Routes a pod from any source. If the watch may not show its later changes, it is read live.
    fn route_pod(&mut self, pod: Box<ObservedPod>, ctx: &mut Context<Self>) {
        let unwatched = self.unwatched(&pod);
        let uid = pod.pod.uid.clone();
        self.take_in(pod, ctx);
        match unwatched {
            Some(unwatched) => self.keep_reading(unwatched, ctx),
            None => self.no_longer_hidden(&uid),
        }
    }

    /// Applies a pod as it is now.
    fn take_in(&mut self, pod: Box<ObservedPod>, ctx: &mut Context<Self>) {
        let uid = pod.pod.uid.clone();
        self.live_lists.pod_shown(&uid, pod.pod.version);
        let job = self.job_of(&pod);
        self.lost_to(&uid, job.as_ref());
        self.orphan_pods.leave_other_jobs(&pod);
        match job {
            Some(job) => self.deliver_to_job(&job, pod, ctx),
            None => {
                self.pod_owners.remove(&uid);
                self.orphan_pods.consider(pod, self.watches_unlabelled());
            }
        }
    }

    /// Delivers a pod to its Job.
    fn deliver_to_job(&mut self, job: &JobId, pod: Box<ObservedPod>, ctx: &mut Context<Self>) {
        let uid = pod.pod.uid.clone();
        self.pod_feed.mark(job, &uid);
        if pod.pod.is_done() && self.watches_unlabelled() && self.chooses_pods(job) {
            self.answered(&pod.pod, ctx);
        }
        if pod.pod.is_done() && !is(Mutant::CountedPodsHeld) {
            self.pod_owners.remove(&uid);
        } else {
            self.pod_owners.insert(uid, job);
        }
        self.deliver_pod(job, pod, ctx);
    }

    fn pod_vanished(&mut self, pod: &ObservedPod, ctx: &Context<Self>) {
        let uid = &pod.pod.uid;
        // A live list in progress may show it as it was before, or as it is since it has its label back.
        self.live_lists.pod_shown(uid, pod.pod.version);
        if self.may_exist(pod, ctx) {
            return;
        }
        self.orphan_pods.forget(uid);
        let holder = self.holder_of(uid).or_else(|| pod.job().cloned());
        // A pod with our finalizer is read live.
        if !pod.pod.tracked && holder.as_ref().is_some_and(|job| self.live_lists.shows_later(job, pod)) {
            return;
        }
        self.pod_owners.remove(uid);
        if let Some(job) = holder {
            self.send(&job, JobInput::PodGone(uid.clone()));
        }
        self.no_longer_hidden(uid);
    }

    /// A list shows pods in the order of their names. Until it is complete, a Job's view of its pods is no
    /// state that ever existed.
    fn pods_listing(&mut self) {
        self.pod_feed.list_begins();
        self.live_lists.list_begins();
        self.orphan_pods.list_begins(Kind::Labelled);
        self.jobs.values_mut().for_each(|entry| entry.send(JobInput::PodsListing));
    }

    fn pods_listed(&mut self, version: u64, ctx: &mut Context<Self>) {
        let Some((mut listing, first)) = self.pod_feed.list_complete(version) else { return };
        self.answers.list_complete(version, Kind::Labelled);
        self.orphan_pods.list_complete(Kind::Labelled);
        self.live_lists.list_complete(version).iter().for_each(|job| self.show_again(job, ctx));
        for (pod, job) in self.hidden.known() {
            listing.entry(job.clone()).or_default().insert(pod.clone());
        }
        // Other lists show the pods of these.
        let choosing = self.jobs_that_choose();
        for job in &choosing {
            listing.entry(job.clone()).or_default().extend(self.pod_owners.pods_of(job));
        }
        self.pod_owners.retain_listed(&listing);
        self.show_chosen_again(&choosing, ctx);
        let hidden = &self.hidden;
        let may_plan = |job: &JobId, entry: &JobEntry| !entry.awaits_pods() && !hidden.hold_back(job);
        for (uid, entry) in self.jobs.iter_mut().filter(|(uid, entry)| may_plan(uid, entry)) {
            let listed = listing.remove(uid).unwrap_or_default();
            entry.send(JobInput::PodsListed { listed, version, origin: ListOrigin::Shard });
        }
        if let Some(takeover) = self.takeover.take() {
            takeover.end(self.jobs.len());
        }
        if first {
            self.progress.report(ShardProgress::Synced(self.owned.id, self.owned.epoch));
        }
    }
}

impl ShardActor {
    /// A Job needs a list of its pods that begins now. No list that is in progress counts for it.
    fn relist_requested(&mut self, job: &JobId, ctx: &mut Context<Self>) {
        self.show_again(job, ctx);
        self.send(job, JobInput::RelistAccepted);
    }

    /// The list shows a pod as it was before it was last shown.
    fn still_listed(&mut self, pod: &Uid) {
        if let Some(job) = self.holder_of(pod) {
            self.pod_feed.mark(&job, pod);
        }
    }

    /// Whether a pod without a controller that a live list shows is known as another Job's. Either the list
    /// or that knowledge is older: the Job has adopted the pod, or has lost it. A later list that shows the
    /// same (`doubted`) is right.
    fn is_of_another(&self, pod: &ObservedPod, doubted: &UidMap<u64>) -> bool {
        let (uid, version) = (&pod.pod.uid, pod.pod.version);
        let known = self.holder_of(uid);
        known.is_some() && known != self.job_of(pod) && doubted.get(uid) != Some(&version)
    }

    /// The Job did not adopt this pod.
    fn pod_declined(&mut self, pod: Box<ObservedPod>) {
        if pod.controller.is_none() {
            self.pod_owners.remove(&pod.pod.uid);
            self.show_held();
            self.orphan_pods.consider(pod, self.watches_unlabelled());
        }
    }
}

impl Actor for ShardActor {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Self::Context) {
        self.pod_feed.drain();
        self.unlabelled_feed.drain();
    }
}

/// However it ends, its Jobs end with it.
impl Drop for ShardActor {
    fn drop(&mut self) {
        self.jobs.clear();
        self.pod_owners.clear();
        self.show_held();
    }
}

#[cfg(test)]
mod tests;
