//! The inputs of a Job actor.

use std::sync::Arc;

use super::inbox::{Input, Replaces};
use crate::cluster::gate::Turn;
use crate::cluster::reads::PodSpecReading;
use crate::cluster::wire::{ObservedJob, ObservedPod};
use crate::job::gang_state::GangAnswer;
use crate::job::plan::JobEvent;
use crate::job::pod::{Place, PodRef};
use crate::job::state::{Changed, Created};
use crate::job::uid::{Uid, UidSet};

/// Where a list of the pods of a Job comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrigin {
    /// A live list of all pods of the Job, with any labels: pods that it does not show do not exist.
    Live,
    /// The shard's list.
    Shard,
    /// The shard's memory: its list was complete before the Job could get it. It lacks pods that have ended
    /// and have no finalizer.
    Memory,
}

/// An input of a Job actor, from its shard or as the answer to a request.
#[derive(Debug)]
pub enum JobInput {
    /// The Job was added or changed.
    Job(Arc<ObservedJob>),
    /// The Job no longer exists.
    JobGone,
    /// A pod of the Job, or one that it may adopt, was added or changed.
    Pod(Box<ObservedPod>),
    /// A pod no longer exists, or is no longer the Job's.
    PodGone(Uid),
    /// The shard has accepted the request for a new list of pods: lists that completed before this do not
    /// count.
    RelistAccepted,
    /// A list of the pods begins.
    PodsListing,
    /// The list of pods is complete.
    PodsListed {
        /// The Job's pods in it.
        listed: UidSet,
        /// Its version: later changes may not be in it.
        version: u64,
        /// Where it comes from.
        origin: ListOrigin,
    },
    /// A pod of the Job has the label of another shard.
    Hidden(Box<ObservedPod>),
    /// A creation was answered.
    Created {
        /// The index or ordinal of the pod.
        place: Place,
        /// The answer.
        answer: Created,
        /// The Event about it.
        event: RequestEvent,
    },
    /// A pod's deletion was answered.
    Deleted {
        /// The pod.
        pod: PodRef,
        /// The answer.
        answer: Changed,
        /// The Event about it.
        event: RequestEvent,
    },
    /// The removal of a pod's finalizer was answered.
    Released {
        /// The pod.
        pod: Uid,
        /// The answer.
        answer: Changed,
    },
    /// An adoption has ended.
    Adopted {
        /// The pod.
        orphan: Orphan,
        /// The outcome.
        attempt: AdoptionAttempt,
    },
    /// A request about the Job's gang was answered.
    Gang {
        /// The answer.
        answer: GangAnswer,
        /// The Events about it.
        events: Vec<JobEvent>,
    },
    /// A Job that this one waits for has changed.
    PredecessorChanged,
    /// The status that is due may be sent; `None` if it may not.
    StatusTurn(Option<Turn>),
    /// The status was written: the Job as it is now. A refused write has no Job.
    StatusWritten(Option<Arc<ObservedJob>>),
    /// The status was not written because the Job has changed: the Job as it is now.
    StatusConflict {
        /// The version that the write named.
        sent: u64,
        /// The Job as a live read has shown it, if that has succeeded.
        read: Option<Arc<ObservedJob>>,
    },
    /// The Job as a live reading shows it; `None` if it no longer exists.
    Read(Option<Arc<ObservedJob>>),
    /// The Job was not read before the right to act for it ended.
    Unread,
    /// The spec of the Job's pods in protobuf; `None` if the read has failed.
    PodSpec(Option<PodSpecReading>),
    /// A request has panicked.
    Failed,
    /// The Job's deletion was refused.
    DeletionRefused,
    /// The Job was not deleted: its TTL has not expired, as a live reading shows.
    DeletionNotDue(Arc<ObservedJob>),
}

/// Stands for all predecessors: one input about them is enough.
static PREDECESSORS: Uid = Uid::LOWEST;

impl Input for JobInput {
    fn replaces(&self) -> Replaces<'_> {
        match self {
            Self::Pod(pod) => Replaces::Shows(&pod.pod.uid, pod.pod.version),
            Self::PodGone(pod) => Replaces::Ends(pod),
            Self::PredecessorChanged => Replaces::Shows(&PREDECESSORS, 0),
            Self::RelistAccepted | Self::PodsListing | Self::PodsListed { .. } => Replaces::Divides,
            _ => Replaces::Any,
        }
    }
}

impl JobInput {
    /// The name of the input, for traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Job(_) => "job",
            Self::JobGone => "job_gone",
            Self::Pod(_) => "pod",
            Self::PodGone(_) => "pod_gone",
            Self::Hidden(_) => "hidden",
            Self::RelistAccepted => "relist_accepted",
            Self::PodsListing => "pods_listing",
            Self::PodsListed { .. } => "pods_listed",
            Self::Created { .. } => "created",
            Self::Deleted { .. } => "deleted",
            Self::Released { .. } => "released",
            Self::Adopted { .. } => "adopted",
            Self::StatusTurn(_) => "status_turn",
            Self::StatusWritten(_) => "status_written",
            Self::StatusConflict { .. } => "status_conflict",
            Self::Read(_) => "read",
            Self::Unread => "unread",
            Self::PodSpec(_) => "pod_spec",
            Self::DeletionRefused => "deletion_refused",
            Self::DeletionNotDue(_) => "deletion_not_due",
            Self::Gang { .. } => "gang",
            Self::PredecessorChanged => "predecessor_changed",
            Self::Failed => "failed",
        }
    }

    /// Whether a pod has changed.
    pub fn is_about_a_pod(&self) -> bool {
        matches!(self, Self::Pod(_) | Self::PodGone(_))
    }
}

/// A pod that a Job adopts.
#[derive(Debug)]
pub struct Orphan {
    /// The pod.
    pub pod: PodRef,
    /// The version in which it was seen without a controller.
    pub version: u64,
    /// The pod had its finalizer then, and the Job held it. So if the finalizer is off later, the Job has
    /// counted it.
    pub held: bool,
    /// The Job has recorded it, and counts it once its finalizer is off.
    pub recorded: bool,
}

/// The outcome of an adoption.
#[derive(Debug)]
pub enum AdoptionAttempt {
    /// The pod is the Job's now.
    Adopted(Box<ObservedPod>),
    /// There is no such pod any more.
    PodGone,
    /// The pod cannot be the Job's any more: another controller has it, it is being deleted, or the Job has
    /// finished. Has the pod as it is now, if known.
    NotOurs(Option<Box<ObservedPod>>),
    /// The API server has refused it. A later attempt may succeed.
    Refused(Refusal),
    /// The Job is being deleted or is gone, and adopts nothing. The pod as it is now, if it exists.
    JobLeaves(Option<Box<ObservedPod>>),
}

/// How an adoption was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// By an answer that is no failure of the API server. The pod is not the Job's.
    Lasting,
    /// By a failure of the API server. The pod is not the Job's.
    Failure,
    /// The owner is unknown: the pod may be the Job's already, or become so later.
    Unknown,
}

/// The Event to record about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// No Event: nothing was done, or the Event is not ours to record.
    Nothing,
    /// The request was carried out, for the pod of this name.
    Done(Box<str>),
    /// The request was refused, for this reason.
    Refused(Box<str>),
}
