//! A pod, reduced to the fields that the rules read. It is small because a Job may have 100,000 of them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::lineage::Lineage;
use super::saturating::{after, seconds_before};
use super::second::Second;
use super::uid::Uid;

/// A pod of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.resourceVersion` as a number: the later of two readings of a pod has the larger one.
    pub version: u64,
    /// `metadata.creationTimestamp`.
    pub created: Second,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// It is being deleted by force: its object goes without a word of its node. A pod set keeps that only for Jobs with
    /// `lost-node-timeout`, for which such a pod has ended.
    pub forced: bool,
    /// The tracking finalizer is on the pod.
    pub tracked: bool,
    /// Somebody has applied fields of the pod (server-side apply). Its record of managers says which, and must stay: without it
    /// they could not take these fields off by applying.
    pub applied: bool,
    /// The selector of its Job selects it. A pod that is kept all the same ([`claim`](super::adoption::claim)) is released.
    /// As in Kubernetes, it is not counted.
    pub selected: bool,
    /// The completion index annotation; `None` when absent or not an index.
    pub index: Option<u32>,
    /// Place and attempt that the pod's name is derived from; `None` for pods that somebody else has created. A pod set keeps
    /// only places that its Job has given.
    pub place: Option<Place>,
    /// Failures of the pod's index before it (annotations; malformed values read as 0).
    pub index_failures: IndexFailures,
    /// The facts that few pods have.
    pub carried: Option<Box<Carried>>,
    /// `spec.nodeName` is set.
    pub scheduled: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// Since when the Ready condition is True; `None` when it is not.
    pub ready_since: Option<Second>,
    /// Sum of the restart counts of all containers and init containers.
    pub restarts: u32,
    /// The largest restart counts: scaling down removes pods that have restarted more often first.
    pub max_restarts: MaxRestarts,
    /// The begin of its current stage: its end or deletion, as computed by [`finish_time`]. Before that, the begin of its
    /// run, or of its wait to start.
    pub finished: Second,
    /// It is pending: it has never run. No scheduling gate holds the pod, and no init container runs.
    pub stalled: bool,
    /// Exit codes and conditions, for pod failure policies. Absent where no rule could match.
    pub outcome: Option<Box<Outcome>>,
}

/// A pod's place in its Job: the completion index (Indexed) and the number of names that the index has used before, or
/// else an ordinal with a name that nothing else is known to have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Completion index or ordinal.
    pub number: u32,
    /// 0 for the first pod at this index, and at any ordinal.
    pub attempt: u32,
}

/// Failures of an index, which annotations carry from pod to pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexFailures {
    /// Failures that count against `backoffLimitPerIndex`.
    pub counted: u32,
    /// Failures that a pod failure policy ignored.
    pub ignored: u32,
}

impl IndexFailures {
    /// All failures of the index. Its back-off grows with them.
    pub fn total(self) -> u32 {
        self.counted.saturating_add(self.ignored)
    }
}

/// Failures in a row. A back-off is computed from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackoffRecord {
    /// Failures since the last success; at least 1.
    pub failures: u32,
    /// When the last of them ended.
    pub last: Timestamp,
}

/// Facts that few pods have: those that a pod carries of the pods before it, in annotations, and signs of a lost node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The back-off that was in force when the pod was created.
    pub backoff: Option<BackoffRecord>,
    /// How often all pods of the Job were replaced together before this one.
    pub attempt: u32,
    /// Their lessons, as they are written. Only Jobs whose options ask for lessons read them, and none keeps the text.
    pub lessons: Box<str>,
    /// Since when its node may be lost: the node is not ready, or should have removed the pod.
    pub silent_since: Option<Second>,
}

impl Carried {
    /// A pod that carries these facts.
    pub fn of(backoff: Option<BackoffRecord>, lineage: &Lineage) -> Self {
        Self { backoff, attempt: lineage.attempt, lessons: lineage.to_string().into(), silent_since: None }
    }
}

impl From<BackoffRecord> for Carried {
    fn from(backoff: BackoffRecord) -> Self {
        Self { backoff: Some(backoff), ..Self::default() }
    }
}

/// Clocks that agree within this are believed.
pub(super) const AGREE: Duration = Duration::from_secs(1);

impl BackoffRecord {
    /// The record as it is believed at this time. A failure in the future is of a clock that was wrong, and
    /// has been set back. Its back-off, which is no longer than `longest`, is over.
    #[must_use]
    pub(super) fn believed_at(self, now: Timestamp, longest: Duration) -> Self {
        if self.last <= after(now, AGREE) {
            return self;
        }
        let longest = SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX);
        Self { last: now.saturating_sub(longest).unwrap_or(Timestamp::MIN), ..self }
    }
}

/// The largest restart counts of a pod's containers. Init containers that are no native sidecars do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaxRestarts {
    /// Of a container.
    pub containers: u32,
    /// Of a native sidecar: an init container with `restartPolicy: Always`.
    pub sidecars: u32,
}

/// `status.phase` of a pod, in the order in which scaling down removes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// The node does not answer.
    Unknown,
    /// At least one container runs.
    Running,
    /// All containers have succeeded.
    Succeeded,
    /// All containers have ended, at least one of them in failure.
    Failed,
}

impl Pod {
    /// The pod as it is read at this time: nothing in it has happened later. Nodes may be ahead of our clock, or it may
    /// have been set back, and a back-off must not last longer for that. Clocks that agree within a second are believed.
    #[must_use]
    pub fn read_at(mut self, now: Timestamp) -> Self {
        let soon = after(now, AGREE);
        if Timestamp::from(self.finished) > soon {
            self.finished = now.into();
        }
        let backoff = self.carried.as_mut().and_then(|carried| carried.backoff.as_mut());
        if let Some(record) = backoff.filter(|record| record.last > soon) {
            record.last = now;
        }
        self
    }

    /// The back-off that was in force when the pod was created.
    pub fn backoff(&self) -> Option<BackoffRecord> {
        self.carried.as_ref()?.backoff
    }

    /// The lessons of the pods before it.
    pub fn lineage(&self) -> Lineage {
        let carried = self.carried.as_ref();
        let read =
            carried.map(|carried| Lineage { attempt: carried.attempt, ..Lineage::read(&carried.lessons) });
        read.unwrap_or_default()
    }

    /// How often all pods of the Job were replaced together before this one.
    pub fn attempt(&self) -> u32 {
        self.carried.as_ref().map_or(0, |carried| carried.attempt)
    }

    /// Since when its node may be lost.
    pub fn silent_since(&self) -> Option<Second> {
        self.carried.as_ref()?.silent_since
    }

    /// Drops the text of its lessons, once they are learnt.
    pub(super) fn forget_lessons(&mut self) {
        self.carried.iter_mut().for_each(|carried| carried.lessons = Box::default());
    }

    /// Whether it has ended and is not tracked: it is counted, or was never ours to count.
    pub fn is_done(&self) -> bool {
        self.phase.is_final() && !self.tracked
    }
}

impl Phase {
    /// Whether the pod has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl From<&str> for Phase {
    fn from(name: &str) -> Self {
        match name {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

/// How the containers of a pod failed, and its conditions. A rule of a pod failure policy could name them.
/// Each is kept once, and no more than the decoder keeps. A Job keeps of it what decides
/// ([`decisive`](super::pod_failure_policy::decisive)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Failed containers in the order of `status.containerStatuses`.
    pub containers: Vec<ContainerExit>,
    /// Failed init containers in the order of `status.initContainerStatuses`.
    pub init_containers: Vec<ContainerExit>,
    /// (type, status) of `status.conditions`.
    pub conditions: Vec<(Box<str>, Box<str>)>,
    /// `spec.nodeName`. A Job learns from it, and does not keep it.
    pub node: Option<Arc<str>>,
}

/// A terminated container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Name of the container.
    pub name: Box<str>,
    /// `state.terminated.exitCode`.
    pub exit_code: i32,
    /// `state.terminated.reason` is `OOMKilled`: it has exceeded its memory.
    pub out_of_memory: bool,
}

/// The approximate memory of an allocation beside its bytes.
const ALLOCATION: usize = 16;

impl ContainerExit {
    /// The memory for one with this name.
    pub fn bytes(name: &str) -> usize {
        size_of::<Self>() + name.len() + ALLOCATION
    }
}

impl Outcome {
    /// The memory for a condition.
    pub fn condition_bytes(kind: &str, status: &str) -> usize {
        size_of::<(Box<str>, Box<str>)>() + kind.len() + status.len() + 2 * ALLOCATION
    }

    /// The memory for all of it.
    pub fn bytes(&self) -> usize {
        let exits =
            self.containers.iter().chain(&self.init_containers).map(|exit| ContainerExit::bytes(&exit.name));
        let conditions = self.conditions.iter().map(|(kind, status)| Self::condition_bytes(kind, status));
        size_of::<Self>() + exits.chain(conditions).sum::<usize>()
    }
}

/// How many more of a kind come after one of it, such as pods of a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// All that are needed if none fails.
    pub in_all: u32,
    /// The part that is wanted now, and does not wait for others to end.
    pub now: u32,
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    /// Its place in the Job; its name derives from this.
    pub place: Place,
    /// Failures carried over from its predecessor, for Jobs with `backoffLimitPerIndex`.
    pub index_failures: Option<IndexFailures>,
    /// The failures in a row so far. The next owner of the Job reads them from the pod.
    pub backoff: Option<BackoffRecord>,
    /// The lessons of the pods before it, if the Job's options ask for them.
    pub lineage: Option<Arc<Lineage>>,
    /// The pods that the Job needs after this one.
    pub behind: Behind,
}

/// A pod by name and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.name`.
    pub name: Box<str>,
}

impl From<&Pod> for PodRef {
    fn from(Pod { uid, name, .. }: &Pod) -> Self {
        Self { uid: uid.clone(), name: name.clone() }
    }
}

impl From<Pod> for PodRef {
    fn from(Pod { uid, name, .. }: Pod) -> Self {
        Self { uid, name }
    }
}

impl Pod {
    /// Whether the pod counts as failed. A pod that is being deleted counts before it ends, unless only
    /// failed pods are replaced, and unless it is deleted by force.
    pub fn is_failed(&self, replace_only_failed: bool) -> bool {
        Self::is_failed_by(self.phase, self.deleting, self.forced, replace_only_failed)
    }

    pub(super) fn is_failed_by(
        phase: Phase,
        deleting: bool,
        forced: bool,
        replace_only_failed: bool,
    ) -> bool {
        match phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            _ => forced || (deleting && !replace_only_failed),
        }
    }
}

/// The fields that [`finish_time`] is computed from.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinishClues {
    /// The newest `finishedAt`, if every container and native sidecar (no other init container) has one.
    pub containers_finished: Option<Timestamp>,
    /// `lastTransitionTime` of the Ready condition, if that is False.
    pub unready_since: Option<Timestamp>,
    /// `metadata.deletionTimestamp`.
    pub deletion: Option<Timestamp>,
    /// `metadata.deletionGracePeriodSeconds`.
    pub deletion_grace_seconds: i64,
}

/// When a pod ended: the newest finish time of its containers if all are known, else the time it stopped
/// being ready, else the time its deletion was requested, else its creation time.
pub fn finish_time(clues: FinishClues, created: Timestamp) -> Timestamp {
    let deletion_asked = || clues.deletion.map(|at| seconds_before(at, clues.deletion_grace_seconds));
    clues.containers_finished.or(clues.unready_since).or_else(deletion_asked).unwrap_or(created)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::job::tests::fixture::{at, pod};

    #[test]
    fn phases_have_the_names_of_the_api() {
        for (name, phase) in [
            ("Pending", Phase::Pending),
            ("Running", Phase::Running),
            ("Succeeded", Phase::Succeeded),
            ("Failed", Phase::Failed),
            ("Unknown", Phase::Unknown),
            ("", Phase::Pending),
        ] {
            assert_eq!(Phase::from(name), phase, "{name}");
        }
    }

    #[test]
    fn a_pod_is_done_once_it_has_ended_and_lost_its_finalizer() {
        for (phase, tracked, done) in [
            (Phase::Running, true, false),
            (Phase::Running, false, false),
            (Phase::Failed, true, false),
            (Phase::Failed, false, true),
            (Phase::Succeeded, false, true),
        ] {
            assert_eq!(Pod { phase, tracked, ..pod("a") }.is_done(), done, "{phase:?} {tracked}");
        }
    }

    /// Clocks that agree within a second are believed.
    #[test]
    fn a_back_off_begins_at_its_last_failure_or_now_if_that_is_in_the_future() {
        for (last, believed) in [(90, 90), (100, 100), (101, 101), (102, 100), (4_000, 100)] {
            let record = BackoffRecord { failures: 3, last: at(last) };
            let pod = Pod { carried: Some(Box::new(record.into())), ..pod("a") }.read_at(at(100));
            let read = pod.backoff().map(|record| (record.failures, record.last));
            assert_eq!(read, Some((3, at(believed))), "{last}");
        }
    }

    #[test]
    fn finish_time_uses_the_most_exact_field() {
        let all = FinishClues {
            containers_finished: Some(at(50)),
            unready_since: Some(at(40)),
            deletion: Some(at(90)),
            deletion_grace_seconds: 30,
        };
        let cases = [
            (all, 50),
            (FinishClues { containers_finished: None, ..all }, 40),
            (FinishClues { containers_finished: None, unready_since: None, ..all }, 60),
            (FinishClues::default(), 7),
        ];
        for (clues, expected) in cases {
            assert_eq!(finish_time(clues, at(7)), at(expected), "{clues:?}");
        }
    }
}
