//! All that is known of one Job while it is looked after.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::backoff::{BackoffPolicy, extend};
use super::gang::{Gang, GangAnswer, comes_first};
use super::plan::Plan;
use super::pod::{BackoffRecord, Place, Pod};
use super::pod_set::{PendingRequest, PodSet, Source};
use super::retry::{Retry, RetryPolicy};
use super::slow_start::SlowStart;
use super::spec::Job;
use super::uid::{Uid, UidSet};

/// How many settle periods the first of several failures waits at most.
const DEBOUNCE_PERIODS: u32 = 3;

/// Settings that hold for all Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Back-off between failed pods.
    pub pod_failure_backoff: BackoffPolicy,
    /// Back-off after refused requests.
    pub api_backoff: RetryPolicy,
    /// Most UIDs that one status write adds to `uncountedTerminatedPods`.
    pub max_uncounted_pods: usize,
    /// Most creations of one Job under way at once, and as many other requests about its pods.
    pub max_pods_per_sync: usize,
    /// Longest time a status change may wait for others to join it.
    pub batch_period: Duration,
    /// How long after a pod has failed others may still be judged together with it, while some are active. Deciding that a
    /// Job has failed, or starting a replacement, cannot be taken back.
    pub debounce_period: Duration,
    /// Whether finished Jobs are deleted after their TTL.
    pub ttl_controller: bool,
    /// Whether Jobs whose pods all run at once are scheduled as a gang.
    pub gang_scheduling: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pod_failure_backoff: BackoffPolicy::default(),
            api_backoff: RetryPolicy::default(),
            max_uncounted_pods: 500,
            max_pods_per_sync: 500,
            batch_period: Duration::from_secs(1),
            debounce_period: Duration::from_millis(100),
            ttl_controller: false,
            gang_scheduling: false,
        }
    }
}

/// How much one Job may ask for, as long as it shares the way to the API server with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Creations under way at once, and as many other requests about pods.
    pub at_once: usize,
    /// Least time from one status that only tells of progress to the next.
    pub status_period: Duration,
}

impl Pace {
    /// The pace of a Job that is alone.
    fn free(limits: Limits) -> Self {
        Self { at_once: limits.max_pods_per_sync, status_period: limits.batch_period }
    }
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
    /// Failures in a row.
    pub(super) streak: Option<BackoffRecord>,
    /// Since when we look after the Job while it is not suspended: its start time until that is written.
    pub(super) started: Option<Timestamp>,
    /// Pods that have ended and have not been judged.
    pub(super) unevaluated: Option<UnevaluatedFailures>,
    /// When the status was last written, and since when a change waits.
    pub(super) status_written: Option<Timestamp>,
    pub(super) status_waits_since: Option<Timestamp>,
    pub(super) status_in_flight: bool,
    pub(super) deletion_in_flight: bool,
    /// Adoptions under way: how many pods there are will be known when they have ended.
    pub(super) claims_in_flight: usize,
    /// The Job no longer exists: nothing is counted any more, its pods are set free.
    pub(super) gone: bool,
    pub(super) slow_start: SlowStart,
    /// What the way to the API server bears.
    pub(super) pace: Pace,
    pub(super) create_retry: Retry,
    pub(super) write_retry: Retry,
    /// For deletions of counted pods, which hold up nothing else.
    pub(super) prune_retry: Retry,
}

/// Pods that have ended and have not been judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnevaluatedFailures {
    /// When we learnt of the first of them, and of the last.
    first: Timestamp,
    last: Timestamp,
    pods: usize,
}

/// How a creation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The pod exists: created now, or found under its name with our Job as owner.
    Pod(Box<Pod>),
    /// The name belongs to something else: take the next one.
    NameTaken,
    /// Refused.
    Refused,
    /// The namespace is going away: nothing can be created and nothing needs to be said.
    NamespaceTerminating,
}

/// How a change of a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The pod as it is now.
    Pod(Box<Pod>),
    /// The pod has no tracking finalizer any more.
    Released,
    /// The pod does not exist.
    Gone,
    /// Refused, or the outcome is unknown.
    Refused,
}

impl JobState {
    /// Takes over a Job. Its pods are to be observed before the first plan is made.
    pub fn new(job: Job, limits: Limits) -> Self {
        Self {
            pods: PodSet::new(&job, limits.pod_failure_backoff),
            job,
            limits,
            gang: Gang::default(),
            streak: None,
            started: None,
            unevaluated: None,
            status_written: None,
            status_waits_since: None,
            status_in_flight: false,
            deletion_in_flight: false,
            claims_in_flight: 0,
            gone: false,
            slow_start: SlowStart::default(),
            pace: Pace::free(limits),
            create_retry: Retry::default(),
            write_retry: Retry::default(),
            prune_retry: Retry::default(),
        }
    }

    /// Takes in a new reading of the Job.
    pub fn observe_job(&mut self, mut job: Job) {
        job.share_template(&self.job.spec.template);
        // What has once been said to go never stays; a reading that says otherwise is late.
        job.deleting |= self.job.deleting;
        self.pods.follow(&job);
        self.job = job;
    }

    /// Takes in that the Job is being deleted, or has been, before a reading of it says so.
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

    /// Whether nothing is left to be done for a Job that no longer exists.
    pub fn is_over(&self) -> bool {
        self.gone && self.claims_in_flight == 0 && self.pods.tracked() == 0 && !self.pods.has_flights()
    }

    /// Takes in a complete list of the Job's pods: those of `version` and before that it does not name are gone. After the
    /// first one, what pods tell of earlier failures is complete.
    pub fn pods_listed(&mut self, listed: &UidSet, version: u64) {
        self.pods.retain_listed(listed, version);
        self.streak = self.streak.or(self.pods.take_history().streak());
    }

    /// Whether the Job is to be read before the next plan: its pods tell that somebody else has counted some of them, and
    /// watches of pods and Jobs keep no order between them. A plan made from the older status would run work again.
    pub fn doubts_status(&self) -> bool {
        self.pods.released_by_others() && !self.gone && self.job.status.finished().is_none()
    }

    /// Takes note that the Job is being read.
    pub fn reading_job(&mut self) {
        self.pods.reading_status();
    }

    /// Takes note of the pace for now. It is never faster than that of a Job alone.
    pub fn keep_pace(&mut self, pace: Pace) {
        let free = Pace::free(self.limits);
        self.pace = Pace {
            at_once: pace.at_once.min(free.at_once),
            status_period: pace.status_period.max(free.status_period),
        };
    }

    /// How many more requests about pods that there are may be sent now.
    pub(super) fn room(&self) -> usize {
        self.pace.at_once.saturating_sub(self.pods.flights())
    }

    /// Takes note that the adoption of a pod has begun.
    pub fn adoption_begun(&mut self) {
        self.claims_in_flight += 1;
    }

    /// Takes note that the adoption of a pod has ended, one way or the other.
    pub fn adoption_ended(&mut self) {
        self.claims_in_flight = self.claims_in_flight.saturating_sub(1);
    }

    /// Takes in a pod from the watch; true if it told something new.
    pub fn observe_pod(&mut self, pod: Pod, now: Timestamp) -> bool {
        let news = self.pods.observe(pod, Source::Watch);
        self.note_ended(now);
        news
    }

    /// Takes in from the watch that a pod is gone.
    pub fn pod_vanished(&mut self, uid: &Uid) -> bool {
        self.pods.vanished(uid)
    }

    fn note_ended(&mut self, now: Timestamp) {
        let pods = self.pods.newly_ended().len();
        self.unevaluated = match self.unevaluated {
            _ if pods == 0 => None,
            None => Some(UnevaluatedFailures { first: now, last: now, pods }),
            Some(known) if known.pods == pods => Some(known),
            Some(known) => Some(UnevaluatedFailures { last: now, pods, ..known }),
        };
    }

    /// Until when pods that have just ended wait for others to be judged with them.
    ///
    /// Only failures and success policies need this: a lone success decides nothing that a later event would decide
    /// otherwise. With no pod active there is nothing to wait for.
    pub(super) fn debounce_until(&self, now: Timestamp) -> Option<Timestamp> {
        let UnevaluatedFailures { first, last, .. } = self.unevaluated?;
        let matters =
            !self.job.spec.success_policy.is_empty() || self.pods.newly_ended().iter().any(|e| e.failed);
        if !matters || self.pods.active() + self.pods.pending_creates() == 0 {
            return None;
        }
        let quiet = after(last, self.limits.debounce_period);
        let at_latest = after(first, self.limits.debounce_period * DEBOUNCE_PERIODS);
        Some(quiet.min(at_latest)).filter(|at| *at > now)
    }

    /// Back-off between failed pods: the Job's own, or that of all Jobs.
    pub fn backoff(&self) -> BackoffPolicy {
        self.job.options.backoff(self.limits.pod_failure_backoff)
    }

    /// The failures in a row, with the pods that have just ended.
    pub(super) fn streak_now(&self) -> Option<BackoffRecord> {
        extend(self.streak, self.pods.newly_ended())
    }

    /// Takes note that a plan is being carried out: everything in it counts as under way.
    pub fn begin(&mut self, plan: &Plan, now: Timestamp) {
        if let Some(judged) = plan.judged {
            self.streak = judged.streak;
            self.pods.clear_newly_ended();
            self.unevaluated = None;
        }
        if self.job.spec.suspend || comes_first(self) {
            self.started = None;
        } else {
            self.started.get_or_insert(now);
        }
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
        if plan.status.is_some() {
            self.status_in_flight = true;
            self.status_waits_since = None;
        } else if plan.status_waits {
            self.status_waits_since.get_or_insert(now);
        }
    }

    /// Takes in the answer to a creation.
    pub fn created(&mut self, place: Place, answer: Created, now: Timestamp) {
        match answer {
            Created::Pod(pod) => {
                self.slow_start.accepted();
                self.create_retry.accepted();
                self.pods.create_answered(place, Some(*pod));
            }
            Created::NameTaken => self.pods.skip_attempt(place),
            Created::Refused | Created::NamespaceTerminating => {
                self.slow_start.refused();
                self.create_retry.refused(self.limits.api_backoff, now);
                self.pods.create_answered(place, None);
            }
        }
        self.note_ended(now);
    }

    /// Takes in the answer to a request about the Job's gang.
    pub fn gang_answered(&mut self, answer: GangAnswer, now: Timestamp) {
        if answer == GangAnswer::Refused {
            self.create_retry.refused(self.limits.api_backoff, now);
        }
        self.gang.answered(answer);
    }

    /// Takes in the answer to the deletion of a pod or to the removal of its finalizer.
    pub fn changed(&mut self, uid: &Uid, answer: Changed, now: Timestamp) {
        let pruned = self.pods.is_counted_leaving(uid);
        self.pods.set_flight(uid, PendingRequest::None);
        match answer {
            Changed::Pod(_) | Changed::Gone if pruned => {
                self.prune_retry.accepted();
                self.pods.answered_gone(uid);
            }
            Changed::Refused if pruned => self.prune_retry.refused(self.limits.api_backoff, now),
            Changed::Pod(pod) => {
                self.write_retry.accepted();
                self.pods.observe(*pod, Source::Answer);
            }
            Changed::Released => {
                self.write_retry.accepted();
                self.pods.answered_released(uid);
            }
            Changed::Gone => self.pods.answered_gone(uid),
            Changed::Refused => self.write_retry.refused(self.limits.api_backoff, now),
        }
        self.note_ended(now);
    }

    /// Takes in that the status was written; the Job as it is now has been observed.
    pub fn status_written(&mut self, now: Timestamp) {
        self.status_in_flight = false;
        self.status_written = Some(now);
        self.write_retry.accepted();
    }

    /// Takes in that the status was not written. After a conflict the Job is to be read again before the next plan, and
    /// there is nothing to wait for.
    pub fn status_refused(&mut self, conflict: bool, now: Timestamp) {
        self.status_in_flight = false;
        if !conflict {
            self.write_retry.refused(self.limits.api_backoff, now);
        }
    }

    /// Takes in that the deletion of the Job was not accepted.
    pub fn deletion_refused(&mut self, now: Timestamp) {
        self.deletion_in_flight = false;
        self.write_retry.refused(self.limits.api_backoff, now);
    }
}

/// `at` plus a delay, without overflow.
pub(super) fn after(at: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    at.saturating_add(delay).unwrap_or(Timestamp::MAX)
}
