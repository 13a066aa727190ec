//! Answers to requests that were made for the Job.

use jiff::Timestamp;

use super::{Between, GateTurn, JobState};
use crate::job::gang_state::GangAnswer;
use crate::job::pod::{Place, Pod};
use crate::job::pod_set::{PendingRequest, Source};
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};

/// Ended pods that creations have found and the watch had not shown, since a pod was last created.
///
/// ```text
///        found          live list
///  None ───────> Found ───────────> Listed ──> each further find takes the back-off
///    ^                                 │
///    └───────── a pod is created ──────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finds {
    None,
    Found,
    /// A live list has shown all pods since. Creations can find others only if the list was wrong.
    Listed,
}

/// The outcome of a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The pod exists: created now.
    Pod(Box<Pod>),
    /// The pod exists already, under its name and with our Job as owner. The answer to its creation was
    /// lost, or another owner of the Job has created it.
    Found(Box<Pod>),
    /// The name belongs to something else.
    NameTaken,
    /// Refused.
    Refused,
    /// Wanted no more before it left.
    Withdrawn,
    /// There was no answer in time: the pod may exist, now or soon.
    Lost,
    /// The namespace is being deleted: nothing can be created, and no event reports it.
    NamespaceTerminating,
}

/// The outcome of a change of a pod.
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
    /// Whether the answer to a creation shows that a pod has ended before the watch has shown the pod at
    /// all. There may be other pods that the watch has not shown either. The answers to their creations
    /// were lost, or another owner of the Job has created them. Until they are known, the end of this one
    /// must not decide about the Job.
    pub fn outruns_watch(&self, place: Place, answer: &Created) -> bool {
        let has_ended = |pod: &Pod| pod.phase.is_final() || pod.is_failed(self.job.spec.replace_only_failed);
        matches!(answer, Created::Found(pod) if has_ended(pod)) && self.pods.awaits(place)
    }

    /// Takes in the answer to a creation.
    pub fn created(&mut self, place: Place, answer: Created, now: Timestamp) {
        let is_taken = matches!(answer, Created::Found(_) | Created::NameTaken);
        match answer {
            Created::Lost => _ = self.lost_creations.insert(place),
            Created::Pod(_) | Created::Found(_) | Created::NameTaken => {
                _ = self.lost_creations.remove(&place)
            }
            Created::Refused | Created::Withdrawn | Created::NamespaceTerminating => {}
        }
        let leads_nowhere = self.finds_another(place, &answer);
        match answer {
            Created::Pod(pod) | Created::Found(pod) => {
                if leads_nowhere {
                    self.creation_refused(now);
                } else {
                    self.slow_start.accepted();
                    self.create_retry.accepted();
                }
                self.pods.create_answered(place, Some(pod.read_at(now)));
            }
            // The API server does not hinder the Job, and there may be as many such names as it has had pods.
            Created::NameTaken => {
                self.slow_start.accepted();
                self.pods.name_taken(place);
            }
            Created::Withdrawn => self.pods.create_answered(place, None),
            Created::Refused | Created::Lost | Created::NamespaceTerminating => {
                self.creation_refused(now);
                self.pods.create_answered(place, None);
            }
        }
        // The next creation at the index would ask for the same name again, and get the same answer.
        if is_taken
            && self.job.spec.completion.indexes().is_some()
            && self.pods.next_at(place.number) == place
        {
            self.create_retry.refused(self.limits.api_backoff, now);
        }
        self.note_ended(now);
    }

    fn creation_refused(&mut self, now: Timestamp) {
        self.slow_start.refused();
        self.create_retry.refused(self.limits.api_backoff, now);
    }

    /// Records whether a creation has found an ended pod that the watch had not shown. True if a live list should have shown
    /// that pod: without a pause, creations and lists could follow each other for ever.
    fn finds_another(&mut self, place: Place, answer: &Created) -> bool {
        if matches!(answer, Created::Pod(_)) {
            self.finds = Finds::None;
        }
        if !self.outruns_watch(place, answer) {
            return false;
        }
        if self.finds == Finds::None {
            self.finds = Finds::Found;
        }
        self.finds == Finds::Listed
    }

    /// Takes in the answer to a request about the Job's gang.
    pub fn gang_answered(&mut self, answer: GangAnswer, now: Timestamp) {
        if answer == GangAnswer::Refused {
            self.create_retry.refused(self.limits.api_backoff, now);
        }
        self.gang.answered(answer);
    }

    /// Takes in the answer to a pod's deletion or to the removal of its finalizer.
    pub fn changed(&mut self, uid: &Uid, answer: Changed, now: Timestamp) {
        let pruned = self.pods.is_counted_leaving(uid);
        self.pods.set_flight(uid, PendingRequest::None);
        if answer == Changed::Refused {
            let pods = &self.pods;
            self.pod_retries.refused(uid, self.limits.api_backoff, now, |uid| pods.holds(uid));
        } else {
            self.pod_retries.accepted(uid);
        }
        match answer {
            Changed::Pod(_) | Changed::Gone if pruned => self.pods.answered_gone(uid),
            Changed::Pod(pod) => _ = self.pods.observe(pod.read_at(now), Source::Answer),
            Changed::Released => self.pods.answered_released(uid),
            Changed::Gone => self.pods.answered_gone(uid),
            Changed::Refused if is(Mutant::RefusedReleaseTakenForDone) => self.pods.answered_released(uid),
            Changed::Refused => {}
        }
        self.note_ended(now);
    }

    /// Takes in that a status may be sent. It is composed by the next plan.
    pub fn status_turn_came(&mut self) {
        self.status_turn = GateTurn::Here;
    }

    /// Takes in that the status that is due may not be sent now.
    pub fn status_turn_refused(&mut self, now: Timestamp) {
        self.status_turn = GateTurn::NotAsked;
        self.write_retry.refused(self.limits.api_backoff, now);
    }

    /// Takes in that the status was written; the resulting Job has been observed before.
    pub fn status_written(&mut self, now: Timestamp) {
        self.status_in_flight = false;
        if self.between == Between::Writing {
            self.between = Between::Written;
        } else {
            (self.status_written, self.between) = (Some(now), Between::Free);
        }
        self.write_retry.accepted();
    }

    /// Records that the status was not written. After a conflict the Job must be read again before the next plan, so the
    /// first few need no back-off.
    pub fn status_refused(&mut self, conflict: bool, now: Timestamp) {
        self.status_in_flight = false;
        if self.between == Between::Writing {
            self.between = Between::Free;
        }
        match conflict {
            true => self.write_retry.conflicted(self.limits.api_backoff, now),
            false => self.write_retry.refused(self.limits.api_backoff, now),
        }
    }

    /// Takes in that the Job was not deleted, since its TTL has not expired.
    pub fn deletion_not_due(&mut self) {
        self.deletion_in_flight = false;
    }

    /// Takes in that the deletion of the Job was not accepted.
    pub fn deletion_refused(&mut self, now: Timestamp) {
        self.deletion_in_flight = false;
        self.write_retry.refused(self.limits.api_backoff, now);
    }
}
