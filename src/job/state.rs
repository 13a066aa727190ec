//! All that is known of one Job while it is managed.

mod adoptions;
mod answers;
mod lists;

use std::collections::BTreeSet;

use jiff::Timestamp;

use self::answers::Finds;
pub use self::answers::{Changed, Created};
use super::adoption::Claimant;
use super::backoff::{Ended, extend};
use super::exponential::Exponential;
use super::gang_state::Gang;
use super::limits::{Limits, Pace};
use super::plan::Plan;
use super::pod::{BackoffRecord, Place, Pod};
use super::pod_retries::PodRetries;
use super::pod_set::{Gauges, PendingRequest, PodSet, Source};
use super::predecessors::OrderState;
use super::retry::Retry;
use super::saturating::end_of_wait;
use super::slow_start::SlowStart;
use super::spec::Job;
use super::status::ConditionKind;
use super::uid::{Uid, UidSet};
use crate::mutants::{Mutant, is};

/// Most pods that have left the watch and that are remembered, of one Job.
const MAX_LEFT: usize = 256;

/// The wait of a status change for what may join it.
#[derive(Clone, Copy, Debug)]
struct StatusWait {
    since: Timestamp,
    /// There is nothing to show before the first pod.
    for_first_pod: bool,
}

/// A Job, its pods, and what is under way for it.
#[derive(Clone, Debug)]
pub struct JobState {
    /// The Job as last acknowledged by the API server.
    pub job: Job,
    /// Its pods.
    pub pods: PodSet,
    /// Settings.
    pub limits: Limits,
    /// Its gang.
    pub gang: Gang,
    /// Its predecessors.
    pub(super) order: OrderState,
    /// Failures in a row.
    pub(super) streak: Option<BackoffRecord>,
    /// Pods that the status lists as uncounted and that were shown without finalizer, since the last complete
    /// list.
    shown_released: UidSet,
    /// Pods that we have released and that left the watch since the last complete list. They may have lost their label
    /// only, and be shown again as they were before.
    released_and_left: UidSet,
    /// When we began to manage the unsuspended Job: its start time until one is written.
    pub(super) started: Option<Timestamp>,
    /// Whether pods were created since the Job was last seen suspended.
    pub(super) creates_pods: bool,
    /// Pods that have ended and are not evaluated yet.
    pub(super) unevaluated: Option<UnevaluatedFailures>,
    /// Since when containers of pods that have not ended have restarted too often.
    pub(super) restarted_too_often: Option<Timestamp>,
    /// When the status was last written.
    pub(super) status_written: Option<Timestamp>,
    /// Whether a status may be written before a period has passed since.
    between: Between,
    /// The wait of a status change.
    status_wait: Option<StatusWait>,
    pub(super) status_in_flight: bool,
    pub(super) status_turn: GateTurn,
    pub(super) deletion_in_flight: bool,
    /// Adoptions under way: the number of pods is unknown until they have ended.
    pub(super) adoptions_in_flight: usize,
    /// Adoptions under way without a first answer.
    pub(super) adoptions_unanswered: usize,
    /// The Job no longer exists: nothing is counted any more, its pods are released.
    pub(super) gone: bool,
    pub(super) slow_start: SlowStart,
    /// The pace that the write gate allows.
    pub(super) pace: Pace,
    pub(super) create_retry: Retry,
    finds: Finds,
    /// Places whose last creation was not answered, since the last live list.
    pub(super) lost_creations: BTreeSet<Place>,
    /// Why the Job waits, and since when, if that may get a condition.
    pub(super) waits_since: Option<(&'static str, Timestamp)>,
    /// For writes of the Job.
    pub(super) write_retry: Retry,
    pub(super) pod_retries: PodRetries,
}

/// The status that may be written once between two that are a period apart: it counts released pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// It has not been written.
    Free,
    /// It is being written.
    Writing,
    /// It has been written.
    Written,
}

/// The turn of the next status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateTurn {
    /// A status that is due is composed at once.
    NotAsked,
    /// A status waits for its turn, and is composed when that comes.
    Queued,
    /// It has come: whatever has changed is written, since another turn may take long.
    Here,
}

/// Pods that have ended and are not evaluated yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnevaluatedFailures {
    /// When we learnt of the first of them.
    pub(super) first: Timestamp,
    /// When we learnt of the last of them.
    pub(super) last: Timestamp,
    pods: usize,
}

impl JobState {
    /// Takes over a Job. Its pods must be observed before the first plan is made.
    pub fn new(mut job: Job, limits: Limits) -> Self {
        if is(Mutant::CountsFromZero) {
            (job.status.succeeded, job.status.failed) = (0, 0);
        }
        if is(Mutant::ResultsForgotten) {
            job.status.results = None;
        }
        Self {
            pods: PodSet::new(&job, limits.pod_failure_backoff),
            job,
            limits,
            gang: Gang::default(),
            order: OrderState::default(),
            streak: None,
            shown_released: UidSet::default(),
            released_and_left: UidSet::default(),
            started: None,
            creates_pods: false,
            unevaluated: None,
            restarted_too_often: None,
            status_written: None,
            between: Between::Free,
            status_wait: None,
            status_in_flight: false,
            status_turn: GateTurn::NotAsked,
            deletion_in_flight: false,
            adoptions_in_flight: 0,
            adoptions_unanswered: 0,
            gone: false,
            slow_start: SlowStart::default(),
            pace: Pace::free(limits),
            create_retry: Retry::default(),
            finds: Finds::None,
            lost_creations: BTreeSet::new(),
            waits_since: None,
            write_retry: Retry::default(),
            pod_retries: PodRetries::default(),
        }
    }

    /// Takes in a new reading of the Job.
    pub fn observe_job(&mut self, mut job: Job) {
        job.share_parts(&self.job.spec);
        // A deletion cannot be undone; a reading without it is an old one.
        job.deleting |= self.job.deleting;
        self.pods.follow(&job);
        let pods = &self.pods;
        self.shown_released.retain(|uid| pods.is_uncounted(uid));
        self.job = job;
    }

    /// Takes in that the Job is being or has been deleted, before a reading shows it.
    pub fn job_leaves(&mut self) {
        self.observe_job(Job { deleting: true, ..self.job.clone() });
    }

    /// Takes in that the Job no longer exists.
    pub fn job_vanished(&mut self) {
        self.gone = true;
    }

    /// Whether the Job no longer exists.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The rights of the Job over pods.
    pub fn claimant(&self) -> Claimant {
        if self.gone { Claimant::Leaves } else { Claimant::of(&self.job) }
    }

    /// Whether a Job that no longer exists needs nothing more.
    pub fn is_over(&self) -> bool {
        self.gone && self.adoptions_in_flight == 0 && self.pods.tracked() == 0 && !self.pods.has_flights()
    }

    /// Whether the Job must be read before the next plan. Its pods show that another client has counted
    /// some of them. The pod watch and the Job watch are not ordered relative to each other. A plan made
    /// from the older status would run work again. `version` is that of the known status.
    pub fn doubts_status(&self, version: u64) -> bool {
        !is(Mutant::StatusNeverDoubted)
            && self.pods.released_by_others_since(version)
            && !self.gone
            && self.job.status.finished().is_none()
    }

    /// Takes in that a read of the Job has begun.
    pub fn reading_job(&mut self) {
        self.pods.reading_status();
    }

    /// Sets the current pace. It is never faster than that of a Job that has the gate to itself.
    pub fn keep_pace(&mut self, pace: Pace) {
        let free = Pace::free(self.limits);
        self.pace = Pace {
            at_once: pace.at_once.min(free.at_once),
            status_period: pace.status_period.max(free.status_period),
            start_period: pace.start_period.max(free.start_period),
        };
    }

    /// How many more requests about existing pods may be sent now.
    pub(super) fn room(&self) -> usize {
        self.pace.at_once.saturating_sub(self.pods.flights())
    }

    /// Whether a pod counts as failed. A pod set keeps only for Jobs that ask for it that a pod is deleted by force.
    pub fn has_failed(&self, pod: &Pod) -> bool {
        let is_forced = pod.forced && self.job.options.lost_node_timeout.is_some();
        Pod::is_failed_by(pod.phase, pod.deleting, is_forced, self.job.spec.replace_only_failed)
    }

    /// The pods among these that requests may be sent about now, as many as there is room for. The plan
    /// comes back to those whose last request was refused.
    pub(super) fn ready<'a>(
        &self,
        pods: impl Iterator<Item = &'a Pod>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Vec<&'a Pod> {
        self.pod_retries.ready(pods, |pod| &pod.uid, self.room(), now, plan)
    }

    /// Takes in that the Job has adopted a pod: whatever was before, it may have our finalizer again.
    pub fn adopted(&mut self, uid: &Uid) {
        self.released_and_left.remove(uid);
    }

    /// Takes in a pod from the watch; true if the reading was new.
    pub fn observe_pod(&mut self, pod: Pod, now: Timestamp) -> bool {
        if pod.tracked && self.released_and_left.contains(&pod.uid) {
            return false;
        }
        if pod.phase.is_final() && !pod.tracked && self.pods.is_uncounted(&pod.uid) {
            self.shown_released.insert(pod.uid.clone());
        }
        let news = self.pods.observe(pod.read_at(now), Source::Watch);
        self.note_ended(now);
        news
    }

    /// Takes in from the watch that a pod is gone.
    pub fn pod_vanished(&mut self, uid: &Uid) -> bool {
        if self.pods.is_released(uid) {
            if self.released_and_left.len() >= MAX_LEFT {
                self.released_and_left.clear();
            }
            self.released_and_left.insert(uid.clone());
        } else {
            self.released_and_left.remove(uid);
        }
        // Its creation may have been refused because it is of an earlier attempt: the next one would be, too.
        let is_outdated = self.pods.get(uid).is_some_and(|pod| pod.attempt() < self.pods.restarts_together());
        let known = self.pods.vanished(uid);
        if known && !is_outdated {
            self.room_made();
        }
        known
    }

    /// A pod has ended or is gone: a quota that has refused others may have room for them.
    fn room_made(&mut self) {
        self.create_retry.ease(self.limits.api_backoff);
    }

    /// Whether the containers of running pods have restarted as often as the back-off limit allows, and at least once. Restarts of
    /// a pod that has ended do not count.
    pub(super) fn restarts_too_often(&self) -> bool {
        let spec = &self.job.spec;
        self.pods.restarts() >= u64::from(spec.backoff_limit.max(1)) && spec.template.restarts_on_failure()
    }

    fn note_ended(&mut self, now: Timestamp) {
        let since = self.restarts_too_often().then_some(now);
        self.restarted_too_often = since.and(self.restarted_too_often).or(since);
        let ended = self.pods.newly_ended();
        let (pods, known) = (ended.len(), self.unevaluated.map_or(0, |known| known.pods));
        let news = ended.get(known..).unwrap_or_default();
        let decides = news.iter().any(|ended| ended.failed || !self.job.spec.success_policy.is_empty());
        if pods > known {
            self.room_made();
        }
        self.unevaluated = match self.unevaluated {
            _ if pods == 0 => None,
            None => Some(UnevaluatedFailures { first: now, last: now, pods }),
            Some(known) if !decides => Some(UnevaluatedFailures { pods, ..known }),
            Some(known) => Some(UnevaluatedFailures { last: now, pods, ..known }),
        };
    }

    /// Back-off between failed pods: the Job's, or else the controller's.
    pub fn backoff(&self) -> Exponential {
        self.job.options.backoff(self.limits.pod_failure_backoff)
    }

    /// The failures in a row, including pods that have just ended. A success that a restart would make vain ends no row.
    pub(super) fn streak_now(&self, now: Timestamp) -> Option<BackoffRecord> {
        let longest = self.backoff().max;
        let counts = |ended: &&Ended| ended.failed || !self.holds_successes();
        let ended: Vec<Ended> = self.pods.newly_ended().iter().filter(counts).copied().collect();
        extend(self.streak.map(|streak| streak.believed_at(now, longest)), &ended)
    }

    /// Whether the Job's pods are scheduled as a gang.
    pub(super) fn schedules_gang(&self) -> bool {
        self.limits.gang_scheduling && self.job.spec.is_gang()
    }

    /// Whether nothing has ever been done for the Job. No sign suffices alone: pods may be deleted,
    /// suspending clears the start time, and only the condition shows that a Job was suspended early.
    pub fn is_new(&self) -> bool {
        let status = &self.job.status;
        self.pods.is_empty()
            && self.pods.pending_creates() + self.adoptions_in_flight == 0
            && status.start_time.is_none()
            && (status.succeeded, status.failed) == (0, 0)
            && status.condition(ConditionKind::Suspended).is_none()
    }

    /// Whether the gang must be ensured before anything else: after its first status a Job is no longer new.
    pub(super) fn gang_comes_first(&self) -> bool {
        self.schedules_gang()
            && !self.gang.is_ensured()
            && !self.job.deleting
            && !self.is_held_by_order()
            && self.is_new()
    }

    /// Begins a plan: everything in it counts as under way from now on.
    pub fn begin(&mut self, plan: &Plan, now: Timestamp) {
        if self.gone {
            // It creates no more pods, so it has no back-off.
            self.pods.clear_newly_ended();
        }
        self.note_obstacle(plan, now);
        if self.job.options.waiting_condition {
            self.note_wait(plan.waiting.as_ref(), now);
        }
        if let Some(update) = plan.backoff_update {
            self.streak = update.streak;
            self.pods.clear_newly_ended();
            self.unevaluated = None;
        }
        if self.job.spec.suspend || self.gang_comes_first() || self.is_held_by_order() {
            self.started = None;
        } else {
            // A start in the future is of a clock that was wrong, and has been set back.
            self.started = Some(self.started.map_or(now, |started| started.min(now)));
        }
        self.creates_pods = !self.job.spec.suspend && (self.creates_pods || !plan.creates.is_empty());
        for new in &plan.creates {
            self.pods.create_sent(new.place);
        }
        for deletion in &plan.deletes {
            let flight = if deletion.forget { PendingRequest::Forget } else { PendingRequest::Delete };
            self.pods.set_flight(&deletion.pod.uid, flight);
        }
        for pod in &plan.releases {
            self.pods.set_flight(&pod.uid, PendingRequest::Release);
        }
        if plan.gang.is_some() {
            self.gang.ask();
        } else if self.pods.pending_creates() == 0 {
            self.gang.forget();
        }
        self.deletion_in_flight |= plan.delete_job;
        self.status_turn = if plan.status_queued.is_some() { GateTurn::Queued } else { GateTurn::NotAsked };
        if let Some(write) = &plan.status {
            let is_early = self.status_written.is_some_and(|last| self.next_status(last, now) > now);
            if is_early && self.may_count_at_once() {
                self.between = Between::Writing;
            }
            if write.status.announces_end() && !self.job.status.announces_end() {
                self.pods.end_sent();
            }
            self.status_in_flight = !is(Mutant::StatusInFlightForgotten);
            self.status_wait = None;
        } else if plan.status_waits {
            let since = self.status_waits_since().unwrap_or(now);
            // A pod that came and went was the first.
            let is_first = self.status_wait.is_none_or(|wait| wait.for_first_pod);
            self.status_wait = Some(StatusWait { since, for_first_pod: is_first && self.awaits_first_pod() });
        }
    }

    /// Since when a status change waits. Once the first pod is there, the wait for it counts no more: it says nothing of how
    /// soon that pod will end.
    pub(super) fn status_waits_since(&self) -> Option<Timestamp> {
        let goes_on = |wait: &StatusWait| !wait.for_first_pod || self.awaits_first_pod();
        self.status_wait.filter(goes_on).map(|wait| wait.since)
    }

    /// When the status after one that was written at `last` is due.
    fn next_status(&self, last: Timestamp, now: Timestamp) -> Timestamp {
        end_of_wait(last, self.pace.status_period, now)
    }

    /// Whether all recorded pods are released, so that a status may count them although a period has not passed. Readers wait for
    /// that, but once a period is enough, and not where the API server is slow.
    pub(super) fn may_count_at_once(&self) -> bool {
        let counts = self.job.status.uncounted.as_ref().is_some_and(|listed| !listed.is_empty());
        let is_slow = self.pace.status_period != Pace::free(self.limits).status_period;
        counts && self.pods.listed_and_tracked() == 0 && self.between == Between::Free && !is_slow
    }

    /// Whether the start of the Job has yet to be written, and there is nothing to show before a creation is answered.
    pub(super) fn awaits_first_pod(&self) -> bool {
        let Gauges { active, terminating, .. } = self.pods.gauges();
        let shows_none = active + terminating == 0;
        self.job.status.start_time.is_none() && shows_none && self.pods.pending_creates() > 0
    }
}
