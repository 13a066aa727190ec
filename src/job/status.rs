//! `status` of a Job.

use std::sync::Arc;

use jiff::Timestamp;

use super::index_set::IndexSet;
use super::second::Second;
use super::uid::Uid;

/// `status` of a Job, as stored by the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// The `conditions` that the rules know, each kind once, in the order in which they were added.
    pub conditions: Vec<Condition>,
    /// `startTime`: absent while suspended.
    pub start_time: Option<Timestamp>,
    /// `completionTime`: set with the Complete condition.
    pub completion_time: Option<Timestamp>,
    /// `active`: pods that are pending or running and not being deleted.
    pub active: u32,
    /// `ready`: active pods whose Ready condition is True. Absent before the first write.
    pub ready: Option<u32>,
    /// `terminating`: pods that are being deleted and have not ended. Absent before the first write.
    pub terminating: Option<u32>,
    /// `succeeded`; for Indexed Jobs the number of `completed_indexes`.
    pub succeeded: u32,
    /// `failed`.
    pub failed: u32,
    /// `uncountedTerminatedPods`: ended pods that are recorded here but not yet in `succeeded` and `failed`.
    /// Absent before the first write.
    pub uncounted: Option<Uncounted>,
    /// `completedIndexes` of an Indexed Job.
    pub completed_indexes: IndexSet,
    /// `failedIndexes`: `Some`, also when empty, for Jobs with `backoffLimitPerIndex`.
    pub failed_indexes: Option<IndexSet>,
    /// How many names pods have had, some of which may be gone, and which no owner gives again: all ordinals below this one, or
    /// all attempts below it at each index. No part of Kubernetes' status, but an annotation that is written together with it.
    pub names_used: u32,
    /// How often all pods were replaced together. An annotation, too.
    pub restarts: u32,
    /// When the first pod began to run, of a Job with a run deadline. An annotation, too.
    pub running_since: Option<Second>,
    /// How the indexes have ended, of a Job that keeps that. An annotation, too.
    pub results: Option<Arc<str>>,
    /// The names of Jobs before this one that have ended as wanted, in order, separated by commas. An annotation, too.
    pub after_met: Option<Arc<str>>,
}

/// `status.uncountedTerminatedPods`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// UIDs of pods that succeeded.
    pub succeeded: Vec<Uid>,
    /// UIDs of pods that failed.
    pub failed: Vec<Uid>,
}

impl Uncounted {
    /// Number of UIDs.
    pub fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    /// Whether nothing waits to be counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An entry of `status.conditions`. A Job has its status in several places, so copies share the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `type`.
    pub kind: ConditionKind,
    /// `status`.
    pub status: ConditionStatus,
    /// `reason`.
    pub reason: Arc<str>,
    /// `message`.
    pub message: Arc<str>,
    /// `lastProbeTime`, where set.
    pub last_probe_time: Option<Timestamp>,
    /// `lastTransitionTime`, where set.
    pub last_transition_time: Option<Timestamp>,
}

impl Condition {
    /// Whether it is True.
    fn holds(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether status, reason and message are the same.
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.status, &self.reason, &self.message) == (&other.status, &other.reason, &other.message)
    }
}

/// `type` of a Job condition, where a rule knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionKind {
    /// The Job is suspended.
    Suspended,
    /// The Job will fail once its pods have ended.
    FailureTarget,
    /// The Job will be Complete once its pods have ended.
    SuccessCriteriaMet,
    /// The Job has failed.
    Failed,
    /// The Job is complete.
    Complete,
    /// Ours: the Job creates no pods, for a reason that lasts.
    Waiting,
}

impl ConditionKind {
    const ALL: [Self; 6] = [
        Self::Suspended,
        Self::FailureTarget,
        Self::SuccessCriteriaMet,
        Self::Failed,
        Self::Complete,
        Self::Waiting,
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether the condition is terminal: a Job with it has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::FailureTarget => "FailureTarget",
            Self::SuccessCriteriaMet => "SuccessCriteriaMet",
            Self::Failed => "Failed",
            Self::Complete => "Complete",
            Self::Waiting => "yardmaster.dev/Waiting",
        }
    }
}

/// `status` of a condition. The API server accepts any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

impl ConditionStatus {
    const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// The status of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl JobStatus {
    /// The condition of this kind, whatever its status.
    pub fn condition(&self, kind: ConditionKind) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// The condition of this kind, if it is True.
    pub fn holding(&self, kind: ConditionKind) -> Option<&Condition> {
        self.condition(kind).filter(|c| c.holds())
    }

    /// Whether a condition announces the end of the Job: SuccessCriteriaMet or FailureTarget.
    pub fn announces_end(&self) -> bool {
        [ConditionKind::SuccessCriteriaMet, ConditionKind::FailureTarget]
            .into_iter()
            .any(|kind| self.holding(kind).is_some())
    }

    /// The terminal condition, Complete or Failed. Its transition time is the end of the Job.
    pub fn finished(&self) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind.is_end() && c.holds())
    }

    /// The status as the API server stores it: with times in whole seconds.
    pub fn stored(mut self) -> Self {
        let times = [&mut self.start_time, &mut self.completion_time].into_iter();
        let conditions = self.conditions.iter_mut();
        let times =
            times.chain(conditions.flat_map(|c| [&mut c.last_probe_time, &mut c.last_transition_time]));
        // The seconds of a valid time are in range, so this cannot fail.
        times.flatten().for_each(|time| *time = Timestamp::from_second(time.as_second()).unwrap_or(*time));
        self
    }

    fn still_uncounted(&self) -> Option<&Uncounted> {
        self.uncounted.as_ref().filter(|pods| !pods.is_empty())
    }

    /// Whether a later reading counts and records the same pods. Of a Job that has finished, the numbers tell.
    pub fn counts_as(&self, later: &JobStatus) -> bool {
        let lists_agree = || {
            self.still_uncounted() == later.still_uncounted()
                && self.completed_indexes == later.completed_indexes
                && self.failed_indexes == later.failed_indexes
        };
        (self.succeeded, self.failed) == (later.succeeded, later.failed)
            && (later.finished().is_some() || lists_agree())
    }

    /// Drops the indexes, their results, the UIDs and the names.
    pub fn drop_lists(&mut self) {
        (self.uncounted, self.completed_indexes, self.failed_indexes, self.after_met) = Default::default();
        self.results = None;
    }

    /// The memory that the indexes, their results, the UIDs and the names take, in bytes.
    pub fn list_bytes(&self) -> usize {
        let sets = [Some(&self.completed_indexes), self.failed_indexes.as_ref()].into_iter().flatten();
        let uids = self.uncounted.iter().flat_map(|pods| pods.succeeded.iter().chain(&pods.failed));
        let results = self.results.iter().map(|results| results.len());
        let names = self.after_met.iter().map(|names| names.len());
        sets.map(IndexSet::bytes)
            .chain(uids.map(Uid::bytes))
            .chain(results)
            .chain(names)
            .fold(0, usize::saturating_add)
    }

    /// The memory that the texts of the conditions take, in bytes.
    pub fn condition_bytes(&self) -> usize {
        self.conditions.iter().map(|condition| condition.reason.len() + condition.message.len()).sum()
    }

    /// Drops the texts of the conditions.
    pub fn drop_condition_texts(&mut self) {
        for condition in &mut self.conditions {
            (condition.reason, condition.message) = Default::default();
        }
    }

    /// Adds a condition that was read, unless its kind is decided. Where a writer has left several, the
    /// first that is True decides, or the first.
    pub fn note(&mut self, condition: Condition) {
        match self.condition(condition.kind).map(Condition::holds) {
            Some(holds) if holds || !condition.holds() => return,
            Some(_) => self.conditions.retain(|c| c.kind != condition.kind),
            None => {}
        }
        self.conditions.push(condition);
    }

    /// Adds the condition or replaces that of its kind; true if status, reason or message changed. A False condition only
    /// replaces: a Job that was never suspended does not report it.
    pub fn ensure(&mut self, condition: Condition) -> bool {
        match self.conditions.iter_mut().find(|c| c.kind == condition.kind) {
            Some(old) if old.says_the_same(&condition) => return false,
            Some(old) => *old = condition,
            None if condition.status == ConditionStatus::False => return false,
            None => self.conditions.push(condition),
        }
        true
    }
}
