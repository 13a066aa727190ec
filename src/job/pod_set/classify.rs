//! Classification of one pod: the tags that decide which queues of the set hold it.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::mem::discriminant;

use foldhash::fast::FixedState;

use super::entry::{Entry, PendingRequest};
use super::ledger::{Ledger, Termination};
use super::lineages::CurrentAttempt;
use crate::job::pod::{IndexFailures, Phase, Pod};
use crate::job::pod_failure_policy::judge;
use crate::job::second::Second;
use crate::job::spec::{Completion, JobSpec, PodFailureAction};
use crate::job::uid::Uid;
use crate::mutants::{Mutant, is};

/// The order in which active pods are removed if there are too many, first to last: unscheduled, pending, not
/// ready, ready for a shorter time, containers restarted more often, native sidecars restarted more often,
/// newer (Kubernetes' `ActivePods`). Among equals, pods that somebody else has created come first. Then a hash of the UID decides, so that all owners of the
/// Job choose the same pods.
///
/// Every active pod has a rank in ordered sets, so it is packed: the parts follow each other, the first in
/// the highest bits. They form one number, stored in words that need no padding next to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    words: [u32; 4],
    /// Hash of the UID.
    hash: u32,
}

/// The bits of a restart count in a rank. Two million restarts take longer than any pod lives.
const RESTART_BITS: u32 = 21;
const MAX_RESTARTS: u32 = (1 << RESTART_BITS) - 1;

impl Rank {
    fn of(pod: &Pod) -> Self {
        let later_first = |second: Second| (1_u128 << Second::BITS) - u128::from(second.number());
        let fewest_last = |restarts: u32| u128::from(MAX_RESTARTS.saturating_sub(restarts));
        let parts = [
            (1, pod.scheduled.into()),
            (3, pod.phase as u128),
            (1, pod.ready_since.is_some().into()),
            (Second::BITS, pod.ready_since.map_or(0, later_first)),
            (RESTART_BITS, fewest_last(pod.max_restarts.containers)),
            (RESTART_BITS, fewest_last(pod.max_restarts.sidecars)),
            (Second::BITS, later_first(pod.created)),
            (1, pod.place.is_some().into()),
        ];
        let number = parts.into_iter().fold(0_u128, |number, (bits, part)| number << bits | part);
        Self {
            words: [96, 64, 32, 0].map(|shift| (number >> shift) as u32),
            hash: FixedState::default().hash_one(&pod.uid) as u32,
        }
    }

    fn number(self) -> u128 {
        self.words.into_iter().fold(0, |number, word| number << u32::BITS | u128::from(word))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.number(), self.hash).cmp(&(other.number(), other.hash))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The stage of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodStage {
    /// Pending or running, and not being deleted.
    Active { rank: Rank, ready: bool },
    /// The same, but its removal has been sent. Until that is answered, it runs as before.
    Going { ready: bool },
    /// Being deleted and not ended; its place may get another pod meanwhile.
    Terminating,
    /// Being deleted and not ended; its place stays occupied meanwhile.
    Leaving,
    /// Succeeded or failed, or given up with its node.
    Ended,
}

/// The next step of counting that the pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracking {
    /// The pod has no tracking finalizer, or it is being removed.
    None,
    /// The pod has not ended.
    Unfinished,
    /// Record a success.
    RecordSuccess,
    /// Record a failure.
    RecordFailure,
    /// Remove the finalizer: everything is recorded, or there is nothing to record.
    Release,
    /// The same, once the deletion of the pod that is under way is answered: one request for a pod at a time.
    ReleaseLater,
}

impl Tracking {
    /// The states in which the pod needs an action.
    pub(super) const QUEUED: [Self; 3] = [Self::RecordSuccess, Self::RecordFailure, Self::Release];

    /// The part of this step that may be done while a request is under way.
    fn beside(self, flight: PendingRequest) -> Self {
        match self {
            Self::Release if flight == PendingRequest::Delete => Self::ReleaseLater,
            step => step,
        }
    }

    /// Whether nothing is left to be recorded.
    pub(super) fn is_recorded(self) -> bool {
        matches!(self, Self::Release | Self::ReleaseLater)
    }
}

/// Everything that the set derives from one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    /// Completion index (Indexed; only if in range) or ordinal.
    pub(super) place: Option<u32>,
    pub(super) stage: PodStage,
    pub(super) tracking: Tracking,
    /// The failure, if the pod counts as failed. Boxed because few pods do.
    pub(super) failure: Option<Box<Failure>>,
    /// Container restarts that count against `backoffLimit` with `restartPolicy: OnFailure`.
    pub(super) restarts: u32,
    pub(super) prospect: Prospect,
    /// The pod has the tracking finalizer, as far as is known.
    pub(super) tracked: bool,
    pub(super) uncounted: InUncounted,
}

/// The outlook of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// The pod is gone, or its Job does not select it.
    NotOurs,
    /// Nothing in particular.
    Usual,
    /// The pod has not ended, and its index has no retry left: its failure would fail the index.
    LastChance,
    /// The pod belongs to an attempt that is over: all pods of the Job are being replaced together.
    Outdated,
}

/// The entry of a pod in `status.uncountedTerminatedPods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InUncounted {
    /// It does not list the pod.
    No,
    /// It lists the pod.
    Listed,
    /// It lists the pod as failed, as one that was being deleted, and the pod has succeeded since. Until it is released it
    /// counts as both, as in Kubernetes. Not in Indexed Jobs, where its index counts.
    LateSuccess,
}

/// How a pod failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) uid: Uid,
    /// It counts against the limits: no `Ignore` rule matched.
    pub(super) counts: bool,
    /// It fails its index: the retries are used up, or a `FailIndex` rule matched.
    pub(super) fails_index: bool,
    /// It fails the Job: a `FailJob` rule matched.
    pub(super) fails_job: bool,
    /// Failures of the index before this pod.
    pub(super) before: IndexFailures,
    pub(super) created: Second,
    pub(super) finished: Second,
}

/// The order of failed pods at an index: by failures of the index before the pod, by end, and then by UID, so
/// that all owners of a Job decide alike.
pub(super) type Lateness = (u32, Second, Uid);

impl Failure {
    /// The key of the order. The latest pod carries all failures of its index.
    pub(super) fn lateness(&self) -> Lateness {
        (self.before.total(), self.finished, self.uid.clone())
    }
}

impl Tags {
    pub(super) fn of(
        entry: &Entry,
        spec: &JobSpec,
        ledger: &Ledger,
        current: Option<CurrentAttempt>,
    ) -> Self {
        let pod = &entry.pod;
        let outdated = current.filter(|current| pod.attempt() < current.number);
        if entry.gone {
            return Self::gone();
        }
        if !pod.selected {
            return Self::of_unselected(entry, ledger);
        }
        let place = match spec.completion {
            Completion::Indexed(end) => pod.index.filter(|i| *i < end),
            _ => pod.place.map(|p| p.number),
        };
        let failure =
            pod.is_failed(spec.replace_only_failed).then(|| Box::new(failure(entry, spec, ledger, place)));
        let in_vain = outdated.is_some_and(|current| !current.keeps_succeeded);
        let tracking = tracking(entry, spec, ledger, place, failure.as_deref(), in_vain).beside(entry.flight);
        let may_end = tracking == Tracking::Unfinished && place.is_some();
        Self {
            place,
            prospect: match outdated {
                Some(_) => Prospect::Outdated,
                None if may_end && retries_used_up(pod, spec) => Prospect::LastChance,
                None => Prospect::Usual,
            },
            stage: stage(entry, spec),
            tracking,
            failure,
            restarts: if matches!(pod.phase, Phase::Running | Phase::Pending) { pod.restarts } else { 0 },
            tracked: pod.tracked,
            uncounted: uncounted(entry, spec, ledger),
        }
    }
}

impl Tags {
    /// It is none of the Job's any more, but for its finalizer.
    fn of_unselected(entry: &Entry, ledger: &Ledger) -> Self {
        let uncounted = InUncounted::of(&entry.pod, ledger);
        let tracking = if is_tracked(entry) { Tracking::Release } else { Tracking::None };
        let tracking = tracking.beside(entry.flight);
        Self { tracking, tracked: entry.pod.tracked, uncounted, ..Self::gone() }
    }

    fn gone() -> Self {
        Self {
            place: None,
            stage: PodStage::Ended,
            tracking: Tracking::None,
            failure: None,
            restarts: 0,
            prospect: Prospect::NotOurs,
            tracked: false,
            uncounted: InUncounted::No,
        }
    }

    /// The key of queues by place.
    pub(super) fn key(&self) -> u32 {
        self.place.unwrap_or(u32::MAX)
    }

    /// The pod's rank in the removal order; `None` unless it is active.
    pub(super) fn rank(&self) -> Option<Rank> {
        match self.stage {
            PodStage::Active { rank, .. } => Some(rank),
            PodStage::Going { .. } | PodStage::Terminating | PodStage::Leaving | PodStage::Ended => None,
        }
    }

    /// Whether a new attempt, in which all pods are replaced, would change its classification.
    pub(super) fn is_of_attempt(&self) -> bool {
        match self.prospect {
            Prospect::Usual | Prospect::LastChance => true,
            Prospect::NotOurs | Prospect::Outdated => false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.stage, PodStage::Active { ready: true, .. })
    }

    /// Whether the removal of the pod has been sent and has changed nothing yet.
    pub(super) fn is_going(&self) -> bool {
        matches!(self.stage, PodStage::Going { .. })
    }

    /// The same, while the pod is ready.
    pub(super) fn is_going_ready(&self) -> bool {
        matches!(self.stage, PodStage::Going { ready: true })
    }

    /// Whether the pod is being deleted or removed and has not ended.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, PodStage::Going { .. } | PodStage::Terminating | PodStage::Leaving)
    }

    /// Whether the pod is being deleted or removed and has not ended, and its place may not get another pod meanwhile.
    pub(super) fn keeps_place(&self) -> bool {
        matches!(self.stage, PodStage::Going { .. } | PodStage::Leaving)
    }

    /// The failure, unless the pod is released or must not be counted.
    pub(super) fn counted_failure(&self) -> Option<&Failure> {
        self.failure.as_deref().filter(|_| self.tracking != Tracking::None)
    }

    /// The tags that the state of the pod's place depends on. For example, they stay equal when the pod
    /// becomes ready.
    pub(super) fn place_inputs(&self) -> impl PartialEq {
        (self.place, discriminant(&self.stage), self.tracking, self.failure.as_deref())
    }
}

impl InUncounted {
    fn of(pod: &Pod, ledger: &Ledger) -> Self {
        if ledger.records(&pod.uid) { Self::Listed } else { Self::No }
    }
}

fn uncounted(entry: &Entry, spec: &JobSpec, ledger: &Ledger) -> InUncounted {
    let Entry { pod, .. } = entry;
    let is_late = pod.phase == Phase::Succeeded
        && is_tracked(entry)
        && ledger.records_as_failed(&pod.uid)
        && spec.completion.indexes().is_none();
    if is_late { InUncounted::LateSuccess } else { InUncounted::of(pod, ledger) }
}

pub(super) fn policy_action(pod: &Pod, spec: &JobSpec) -> Option<PodFailureAction> {
    let (rules, outcome) = (spec.pod_failure_policy.as_ref()?, pod.outcome.as_ref()?);
    judge(rules, outcome).map(|m| m.action)
}

/// Whether a pod has failed and matched a `FailJob` rule.
pub(super) fn fails_job(pod: &Pod, spec: &JobSpec) -> bool {
    pod.selected
        && pod.is_failed(spec.replace_only_failed)
        && policy_action(pod, spec) == Some(PodFailureAction::FailJob)
}

pub(super) fn retries_used_up(pod: &Pod, spec: &JobSpec) -> bool {
    spec.per_index.is_some_and(|limit| pod.index_failures.counted >= limit.backoff_limit)
}

fn failure(entry: &Entry, spec: &JobSpec, ledger: &Ledger, place: Option<u32>) -> Failure {
    let pod = &entry.pod;
    let action = policy_action(pod, spec);
    let fails_index = match action {
        Some(PodFailureAction::FailIndex) => true,
        Some(PodFailureAction::Ignore) => false,
        _ => retries_used_up(pod, spec),
    };
    Failure {
        uid: pod.uid.clone(),
        counts: action != Some(PodFailureAction::Ignore),
        fails_index: fails_index
            && spec.per_index.is_some()
            && place.is_some()
            && !(ledger.announces_end() && entry.ends_with_job),
        fails_job: action == Some(PodFailureAction::FailJob),
        before: pod.index_failures,
        created: pod.created,
        finished: pod.finished,
    }
}

fn stage(entry: &Entry, spec: &JobSpec) -> PodStage {
    let (removes, ready) = (entry.flight.removes(), entry.pod.ready_since.is_some());
    // The object of a pod that is deleted by force says nothing more of its containers.
    if entry.pod.phase.is_final() || entry.pod.forced {
        PodStage::Ended
    } else if entry.pod.deleting {
        if spec.replace_only_failed || removes { PodStage::Leaving } else { PodStage::Terminating }
    } else if removes {
        PodStage::Going { ready }
    } else {
        PodStage::Active { rank: Rank::of(&entry.pod), ready }
    }
}

/// Whether the pod has the tracking finalizer, and nothing is under way to remove it.
fn is_tracked(entry: &Entry) -> bool {
    entry.pod.tracked && !matches!(entry.flight, PendingRequest::Forget | PendingRequest::Release)
}

fn tracking(
    entry: &Entry,
    spec: &JobSpec,
    ledger: &Ledger,
    place: Option<u32>,
    failure: Option<&Failure>,
    succeeds_in_vain: bool,
) -> Tracking {
    let pod = &entry.pod;
    if !is_tracked(entry) {
        return Tracking::None;
    }
    if pod.phase != Phase::Succeeded && failure.is_none() {
        return unfinished(entry, spec, ledger, place);
    }
    let indexed = spec.completion.indexes().is_some();
    let index_is_recorded = |i| ledger.completed_indexes.contains(i) || ledger.failed_indexes.contains(i);
    match failure {
        _ if indexed && place.is_none() => Tracking::Release,
        None if succeeds_in_vain => Tracking::Release,
        // Also after the pod was recorded as failed while it was being deleted: its index is complete.
        None if indexed && !place.is_some_and(index_is_recorded) => Tracking::RecordSuccess,
        None if indexed => Tracking::Release,
        _ if ledger.records(&pod.uid) => Tracking::Release,
        Some(_) if pod.deleting && is(Mutant::DeletedFailureUncounted) => Tracking::Release,
        Some(failure) if failure.counts => Tracking::RecordFailure,
        Some(_) => Tracking::Release,
        None => Tracking::RecordSuccess,
    }
}

/// The step for a pod that has neither succeeded nor failed: none, unless the Job is ending.
fn unfinished(entry: &Entry, spec: &JobSpec, ledger: &Ledger, place: Option<u32>) -> Tracking {
    let out_of_range = spec.completion.indexes().is_some() && place.is_none();
    let ignored = || policy_action(&entry.pod, spec) == Some(PodFailureAction::Ignore);
    match ledger.termination {
        Termination::No => Tracking::Unfinished,
        Termination::Failing if ledger.records(&entry.pod.uid) || out_of_range || ignored() => {
            Tracking::Release
        }
        Termination::Failing => Tracking::RecordFailure,
        // Active pods lose the finalizer when they are removed.
        Termination::Succeeding if matches!(stage(entry, spec), PodStage::Active { .. }) => {
            Tracking::Unfinished
        }
        Termination::Succeeding | Termination::Deleting => Tracking::Release,
    }
}
