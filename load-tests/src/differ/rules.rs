//! The intended differences: a closed list. All other differences are faults of one of the two controllers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::class::Class;
use super::pair::Played;
use super::plan::{Change, End, Pick, Propagation, Step, What, job_name};
use super::state::{Difference, Differing, Field, State};

/// Reasons of Events about the end of a Job.
const ENDS: [&str; 7] = [
    "Completed",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
    "SuccessPolicy",
];

/// The fields in which a pod more shows after the deadline of its Job.
const AFTER_DEADLINE: [Field; 9] = [
    Field::Conditions,
    Field::Failed,
    Field::CompletionTime,
    Field::Active,
    Field::Ready,
    Field::Terminating,
    Field::Uncounted,
    Field::Pods,
    Field::Events,
];

/// A rule by which Yardmaster differs from the controller built into Kubernetes 1.36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Known {
    /// See [`Known::why`].
    OwnerRemovedFromTerminatingPod,
    EndsWhileSuspended,
    ActiveDuringBackoff,
    BackoffFromNewestFailure,
    BackoffSurvivesRestart,
    SurplusAmongEqualPods,
    ReleasedLater,
    EndsBeforeItIsGone,
    CreatesBeforeDeadline,
    CreatesInBetween,
    CreatesBeforeFailure,
    RefusedByQuota,
    SharesQuota,
    ActsAtOnce,
    Race,
}

impl Known {
    const ALL: [Self; 15] = [
        Self::OwnerRemovedFromTerminatingPod,
        Self::EndsWhileSuspended,
        Self::ActiveDuringBackoff,
        Self::BackoffFromNewestFailure,
        Self::BackoffSurvivesRestart,
        Self::SurplusAmongEqualPods,
        Self::ReleasedLater,
        Self::EndsBeforeItIsGone,
        Self::CreatesBeforeDeadline,
        Self::CreatesInBetween,
        Self::CreatesBeforeFailure,
        Self::RefusedByQuota,
        Self::SharesQuota,
        Self::ActsAtOnce,
        Self::Race,
    ];

    /// The reason of the difference.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::OwnerRemovedFromTerminatingPod => {
                "the built-in loses sight of a terminating pod whose owner reference is removed, and its finalizer \
                 stays; ours adopts the pod again, or releases it"
            }
            Self::EndsWhileSuspended => {
                "a Job that fails or is done while it is suspended hangs under the built-in, whose status without \
                 startTime is refused; ours sets startTime, and the Job ends"
            }
            Self::ActiveDuringBackoff => {
                "while a back-off delays pods, the built-in reports 0 active pods although others are active, or \
                 its status is refused and stale; ours reports the true number"
            }
            Self::BackoffFromNewestFailure => {
                "of failures that are reported together, the built-in counts the back-off from the one that it \
                 looks at last; ours from the newest"
            }
            Self::BackoffSurvivesRestart => {
                "a restart of the built-in forgets the back-off; that of ours follows from the pods"
            }
            Self::SurplusAmongEqualPods => {
                "which of several pods goes that were created within the same second and are equal but for their \
                 index, is chance under the built-in"
            }
            Self::ReleasedLater => {
                "a pod that is counted, or is being removed and does not run, and loses its label is released by a search; the \
                 built-in does so at once"
            }
            Self::EndsBeforeItIsGone => {
                "a deletion with the policy Orphan or Foreground takes its pods from a Job before the Job goes: ours sees \
                 that no pod is left, and ends the Job meanwhile; the built-in looks a second later, when the Job is gone"
            }
            Self::CreatesBeforeDeadline => {
                "ours replaces a pod at once, and the built-in a second later: if the deadline of the Job passes in \
                 between, ours has a pod more that has to end"
            }
            Self::CreatesInBetween => {
                "ours creates a pod at once, and an act of the same step makes it needless; the built-in creates none, since \
                 it looks a second later"
            }
            Self::CreatesBeforeFailure => {
                "ours creates a pod at once, before another pod fails in the same step; the built-in sees the failure, too, \
                 and waits for the back-off"
            }
            Self::RefusedByQuota => {
                "ours replaces a pod at once, when the quota does not know yet that the old one has ended, and is refused \
                 once more; the built-in creates it a second later"
            }
            Self::SharesQuota => "which of several Jobs gets the room that a quota leaves is chance",
            Self::ActsAtOnce => {
                "the built-in looks at a Job once a second, and takes several acts in at once; ours takes them in as \
                 they come, Jobs and pods by watches of their own, and ends as the built-in does when there are pauses \
                 between them"
            }
            Self::Race => {
                "the reference differs from itself, or ends as ours did, when the same acts are played again"
            }
        }
    }

    /// The rule that explains a difference.
    pub(super) fn explaining(played: &Played) -> Option<Self> {
        let difference = played.difference()?;
        Self::ALL.into_iter().find(|rule| rule.explains(played, difference))
    }

    fn explains(self, played: &Played, difference: &Difference) -> bool {
        match self {
            Self::Race | Self::ActsAtOnce => played.shown == Some(self),
            Self::OwnerRemovedFromTerminatingPod => {
                let explains =
                    |one: &Differing| one.field != Field::Exists && disowns_terminating(played, &one.job);
                difference.fields.iter().all(explains)
            }
            Self::EndsWhileSuspended => difference.fields.iter().all(|one| {
                let ended =
                    difference.ours.is_finished(&one.job) && !difference.reference.is_finished(&one.job);
                let ends = one.field == Field::StartTime && difference.ours.announces_end(&one.job);
                (ended || ends) && difference.reference.suspended.contains(&one.job)
            }),
            Self::ActiveDuringBackoff => is_active_during_backoff(played, difference),
            Self::BackoffFromNewestFailure => {
                is_wait(difference) && waits_longer(difference) && fails_at_different_times(played)
            }
            Self::BackoffSurvivesRestart => {
                is_wait(difference) && waits_longer(difference) && played.plan.restarts()
            }
            // A search in a cluster with many pods pauses for long.
            Self::ReleasedLater => {
                let is_held = difference.ours.pods.keys().any(|class| is_stripped(class) && class.tracked);
                is_of_stripped(difference) && (difference.healed_after_s.is_some() || !is_held)
            }
            Self::EndsBeforeItIsGone => {
                difference.is_only(&[Field::Events])
                    && difference.fields.iter().all(|one| {
                        loses_pods_first(played, &one.job)
                            && difference.ours.get(Field::Exists, &one.job).is_none()
                            && without_end(one.ours.as_deref()) == without_end(one.reference.as_deref())
                    })
            }
            Self::CreatesBeforeDeadline => {
                difference.is_only(&AFTER_DEADLINE)
                    && difference
                        .fields
                        .iter()
                        .all(|one| creates_before_deadline(played, difference, &one.job))
            }
            Self::CreatesInBetween => {
                acts_together(played)
                    && difference.is_only(&[Field::Terminating, Field::Pods, Field::Events])
                    && creates_more(difference)
                    && without_terminating(&difference.reference) == without_terminating(&difference.ours)
            }
            Self::CreatesBeforeFailure => {
                let has_failure = |step: &Step| step.0.iter().any(|act| act.what.changes_pods(fails));
                acts_together(played)
                    && played.plan.steps.last().is_some_and(has_failure)
                    && is_wait(difference)
                    && creates_more(difference)
            }
            Self::RefusedByQuota => {
                has_quota(played)
                    && difference.is_only(&[Field::Events])
                    && difference.fields.iter().all(|one| {
                        without_refusals(one.ours.as_deref()) == without_refusals(one.reference.as_deref())
                    })
            }
            Self::SharesQuota => has_quota(played) && shares_quota(difference),
            Self::SurplusAmongEqualPods => {
                difference.is_only(&[Field::Pods])
                    && without_indexes(&difference.reference) == without_indexes(&difference.ours)
            }
        }
    }
}

/// Whether an act removed the owner of a pod of this Job that was terminating.
fn disowns_terminating(played: &Played, job: &str) -> bool {
    played.plan.acts().any(|what| match what {
        What::Pods { pick: Pick::Class(class), change: Change::Disown, .. } => {
            class.terminating && class.job == job
        }
        _ => false,
    })
}

/// Numbers of pods by their class without the index.
fn without_indexes(state: &State) -> BTreeMap<Class, u32> {
    counted_as(state, |class| Class { index: None, ..class.clone() })
}

/// Whether the last step has more than one act.
fn acts_together(played: &Played) -> bool {
    played.plan.steps.last().is_some_and(|step| step.singly().0.len() > 1)
}

/// Whether ours has created more pods for each Job that differs.
fn creates_more(difference: &Difference) -> bool {
    difference
        .fields
        .iter()
        .all(|one| difference.ours.created(&one.job) > difference.reference.created(&one.job))
}

/// Numbers of pods by their class, without those that are being deleted.
fn without_terminating(state: &State) -> BTreeMap<&Class, u32> {
    state.pods.iter().filter(|(class, _)| !class.terminating).map(|(class, count)| (class, *count)).collect()
}

/// Whether a quota was in force.
fn has_quota(played: &Played) -> bool {
    played.plan.acts().any(|what| matches!(what, What::Quota { pods: Some(_) }))
}

fn is_refusal(event: &str) -> bool {
    event.contains(" exceeded quota: ")
}

/// Events without those about refusals by a quota.
fn without_refusals(events: Option<&str>) -> Vec<&str> {
    events.unwrap_or_default().split("; ").filter(|event| !event.is_empty() && !is_refusal(event)).collect()
}

/// Whether more than one Job differs, and both sides have as many active pods, because of a quota.
fn shares_quota(difference: &Difference) -> bool {
    let jobs: BTreeSet<&str> = difference.fields.iter().map(|one| &*one.job).collect();
    let sides = [&difference.reference, &difference.ours];
    let [reference, ours] =
        sides.map(|side| -> u32 { jobs.iter().map(|job| side.count(job, Class::is_active)).sum() });
    let is_refused =
        |side: &&State| jobs.iter().any(|job| side.get(Field::Events, job).is_some_and(is_refusal));
    let shares = [Field::Active, Field::Ready, Field::Failed, Field::Pods, Field::Events];
    jobs.len() > 1 && difference.is_only(&shares) && reference == ours && sides.iter().all(is_refused)
}

/// Whether the last step deletes the Job with a policy by which its pods leave it before it goes.
fn loses_pods_first(played: &Played, job: &str) -> bool {
    played.plan.steps.last().is_some_and(|step| {
        step.0.iter().any(|act| match act.what {
            What::Delete { job: number, propagation: Propagation::Orphan | Propagation::Foreground } => {
                job_name(number) == job
            }
            _ => false,
        })
    })
}

/// Events without those about the end of a Job.
fn without_end(events: Option<&str>) -> Vec<&str> {
    let is_end = |event: &str| event.split(' ').nth(1).is_some_and(|reason| ENDS.contains(&reason));
    events.unwrap_or_default().split("; ").filter(|event| !event.is_empty() && !is_end(event)).collect()
}

/// Whether the deadline has ended a Job on both sides since the last step began, and ours had created more pods.
fn creates_before_deadline(played: &Played, difference: &Difference, job: &str) -> bool {
    let ended = |state: &State| state.has_any(job, &["FailureTarget=True DeadlineExceeded"]);
    let before = played.last_before().is_some_and(ended);
    let [reference, ours] = [&difference.reference, &difference.ours];
    !before && ended(reference) && ended(ours) && ours.created(job) > reference.created(job)
}

/// Whether a pod has lost its label, and only a search finds it.
fn is_stripped(class: &Class) -> bool {
    let leaves = class.terminating && class.phase != "Running";
    !class.labelled && !class.is_active() && (!class.tracked || leaves)
}

/// Numbers of pods by their class, without those that only a search finds.
fn without_stripped(state: &State) -> BTreeMap<&Class, u32> {
    state.pods.iter().filter(|(class, _)| !is_stripped(class)).map(|(class, count)| (class, *count)).collect()
}

fn counted_as(state: &State, what: impl Fn(&Class) -> Class) -> BTreeMap<Class, u32> {
    let mut pods = BTreeMap::new();
    for (class, count) in &state.pods {
        *pods.entry(what(class)).or_default() += count;
    }
    pods
}

/// Whether pods fail by a change.
fn fails(change: &Change) -> bool {
    matches!(change, Change::Fail { .. } | Change::Delete { .. })
}

/// Whether only pods wait, or what is said about them.
fn is_wait(difference: &Difference) -> bool {
    difference.is_only(&[Field::Active, Field::Ready, Field::Pods, Field::Events])
        && difference.healed_after_s.is_some()
}

/// Whether only pods differ that have lost their label, and that a search finds.
pub(super) fn is_of_stripped(difference: &Difference) -> bool {
    difference.is_only(&[Field::Pods])
        && without_stripped(&difference.reference) == without_stripped(&difference.ours)
}

/// Whether each Job that differs has fewer active pods under ours.
pub(super) fn waits_longer(difference: &Difference) -> bool {
    let active = |state: &State, job: &str| state.count(job, Class::is_active);
    let mut jobs = difference.fields.iter().map(|one| &*one.job);
    jobs.all(|job| active(&difference.ours, job) < active(&difference.reference, job))
}

/// Whether a step had failures of different times: one that has just happened, and another one.
fn fails_at_different_times(played: &Played) -> bool {
    let recent = |change: &Change| match change {
        Change::Delete { .. } => true,
        Change::Fail { end, .. } => *end != End::Past,
        _ => false,
    };
    let acts = |is: &dyn Fn(&Change) -> bool| played.plan.acts().filter(|what| what.changes_pods(is)).count();
    acts(&recent) > 0 && acts(&fails) > 1
}

/// Whether the reference says 0 active pods, or nothing new at all, while pods of a Job with failures are active.
fn is_active_during_backoff(played: &Played, difference: &Difference) -> bool {
    // A failure of an index is not counted before its pod is replaced.
    let is_failed = played.plan.acts().any(|what| what.changes_pods(fails));
    let backs_off = |job: &str| is_failed || difference.ours.number(Field::Failed, job) > 0;
    difference.fields.iter().all(|one| {
        let says_none =
            one.field == Field::Active && difference.reference.number(Field::Active, &one.job) == 0;
        let active = difference.ours.count(&one.job, Class::is_active) > 0;
        active && backs_off(&one.job) && (says_none || is_stale(played, difference, &one.job))
    })
}

/// Whether the status of the reference has stayed as it was before the last step. The API server refuses a
/// status with more ready pods than active ones.
fn is_stale(played: &Played, difference: &Difference, job: &str) -> bool {
    let Some(before) = played.last_before() else { return false };
    let fields = [Field::Conditions, Field::Succeeded, Field::Failed, Field::Active, Field::Ready];
    fields.iter().all(|field| before.get(*field, job) == difference.reference.get(*field, job))
        && before.number(Field::Ready, job).max(difference.ours.number(Field::Ready, job)) > 0
}

#[cfg(test)]
mod tests;
