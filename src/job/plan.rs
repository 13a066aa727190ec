//! The plan for a Job: the outcome of [`reconcile`](super::reconcile::reconcile).

use std::time::Duration;

use jiff::Timestamp;

use super::pod::{BackoffRecord, NewPod, Pod, PodRef};
use super::predecessors::Obstacle;
use super::status::JobStatus;
use crate::mutants::{Mutant, is};

/// The actions due now, and the time of the next look if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Pods to create, in order.
    pub creates: Vec<NewPod>,
    /// The creations that have yet to leave are wanted no more.
    pub withdraw: bool,
    /// Pods to delete, in order.
    pub deletes: Vec<PodDeletion>,
    /// Pods to release: their tracking finalizer is removed.
    pub releases: Vec<PodRef>,
    /// The request about the Job's gang that must be answered before pods are created.
    pub gang: Option<GangRequest>,
    /// The status to write.
    pub status: Option<StatusWrite>,
    /// A status is due, and waits for its turn: it is composed when that comes.
    pub status_queued: Option<Urgency>,
    /// Delete the Job: its TTL has expired.
    pub delete_job: bool,
    /// The back-off, updated with the pods that have ended since.
    pub backoff_update: Option<BackoffUpdate>,
    /// A status write is due but waits for others to join it.
    pub status_waits: bool,
    /// Look again at this time at the latest.
    pub wake_at: Option<Timestamp>,
    /// Why no pod is created although the Job is not done.
    pub waiting: Option<Wait>,
    /// Events about what the plan does.
    pub events: Vec<JobEvent>,
}

impl Plan {
    /// The part that counts pods: statuses and releases. For a Job that nobody will run any more, nothing is created or
    /// deleted.
    pub fn counting(self) -> Self {
        let Self { withdraw, releases, status, status_queued, backoff_update, status_waits, wake_at, .. } =
            self;
        Self {
            withdraw,
            releases,
            status,
            status_queued,
            backoff_update,
            status_waits,
            wake_at,
            ..Self::default()
        }
    }

    /// Takes the status out of the plan, since its turn has not come.
    pub fn queue_status(&mut self) {
        if let Some(write) = self.status.take() {
            self.status_queued = Some(write.urgency);
            self.status_waits = true;
        }
    }
}

/// A request about a Job's gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangRequest {
    /// Look up its Workload and its PodGroup, and create the missing ones.
    Ensure,
    /// Look them up, and create only a PodGroup that the Workload lacks.
    Find,
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDeletion {
    /// The pod.
    pub pod: PodRef,
    /// Remove the tracking finalizer first: the pod will not count, whatever phase it reaches.
    pub forget: bool,
    /// How long its containers have from the signal to their end, if that is not the business of the pod.
    pub grace: Option<Duration>,
}

impl PodDeletion {
    /// The removal of a pod that will not be counted.
    pub(super) fn uncounted(pod: &Pod) -> Self {
        Self { pod: pod.into(), forget: !is(Mutant::RemovalsCountAsFailures), grace: None }
    }
}

/// Whether anything waits for a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nothing but its readers: it shows the start of the Job and the number of its pods.
    Progress,
    /// The next step of counting or of the Job's end.
    Step,
}

/// A status to write, and the events to emit once it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The whole new status.
    pub status: JobStatus,
    /// Whether anything waits for it.
    pub urgency: Urgency,
    /// Events about the Job.
    pub events: Vec<JobEvent>,
}

/// An event about a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// `reason`.
    pub reason: Box<str>,
    /// `message`.
    pub message: Box<str>,
    /// The event reports how the Job ended: it must not be dropped, however many events there are.
    pub terminal: bool,
}

impl JobEvent {
    /// A warning that does not report the end of the Job.
    pub(super) fn warning(reason: &str, message: impl Into<Box<str>>) -> Self {
        Self { warning: true, reason: reason.into(), message: message.into(), terminal: false }
    }
}

/// The back-off after a batch of ended pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffUpdate {
    /// Failures in a row, if the last pods failed.
    pub streak: Option<BackoffRecord>,
}

/// Why no pod is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// `spec.suspend`.
    Suspended,
    /// Another Job has to end before.
    After(Obstacle),
    /// The Job is being deleted.
    Deleting,
    /// Back-off after failed pods, until this time.
    PodBackoff(Timestamp),
    /// Back-off of indexes after failed pods, until this time.
    IndexBackoff(Timestamp),
    /// The API server refused a request; tried again at this time.
    Refused(Timestamp),
    /// The Job's Workload and PodGroup are being looked up or created.
    Gang,
    /// Pods are being adopted: their number is not known yet.
    Adopting,
    /// Not all pods of the Job are known. Some lack the label of their shard, were not looked for yet, or
    /// cannot be read.
    PodsUnknown,
    /// Pods being deleted have not ended.
    Terminating,
    /// Pods have just ended; they are evaluated at this time, together with others that end until then.
    FailureDebounce(Timestamp),
    /// All pods are being replaced together, and those of the attempt before have not ended.
    Restarting,
    /// The end of the Job is decided; its remaining pods have yet to go.
    Finishing,
}

impl Wait {
    /// All values of [`reason`](Self::reason).
    pub const REASONS: [&str; 16] = [
        "Suspended",
        "AfterUnfinished",
        "AfterMissing",
        "AfterCycle",
        "AfterFailed",
        "Deleting",
        "PodBackoff",
        "IndexBackoff",
        "Refused",
        "GangScheduling",
        "Adopting",
        "PodsUnknown",
        "PodsTerminating",
        "FailureDebounce",
        "Restarting",
        "Finishing",
    ];

    /// The reason in one word, for display.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::After(obstacle) => obstacle.cause.reason(),
            Self::Deleting => "Deleting",
            Self::PodBackoff(_) => "PodBackoff",
            Self::IndexBackoff(_) => "IndexBackoff",
            Self::Refused(_) => "Refused",
            Self::Gang => "GangScheduling",
            Self::Adopting => "Adopting",
            Self::PodsUnknown => "PodsUnknown",
            Self::Terminating => "PodsTerminating",
            Self::FailureDebounce(_) => "FailureDebounce",
            Self::Restarting => "Restarting",
            Self::Finishing => "Finishing",
        }
    }

    /// More than the reason says, if there is more.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::After(obstacle) => Some(obstacle.to_string()),
            _ => None,
        }
    }

    /// The end of the wait, if it is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::PodBackoff(at) | Self::IndexBackoff(at) | Self::Refused(at) | Self::FailureDebounce(at) => {
                Some(*at)
            }
            _ => None,
        }
    }
}

impl Plan {
    /// Whether the plan has no actions.
    pub fn is_idle(&self) -> bool {
        self.size() == 0
    }

    /// Number of requests in the plan.
    pub fn size(&self) -> usize {
        let single = [self.status.is_some(), self.gang.is_some(), self.delete_job];
        let single: usize = single.into_iter().map(usize::from).sum();
        self.creates.len() + self.deletes.len() + self.releases.len() + single
    }

    /// Schedules the next look for `at` at the latest.
    pub fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
