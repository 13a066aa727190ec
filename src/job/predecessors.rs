//! The predecessors of a Job, and what is known of them. The rules are in [`order`](super::order).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::options::Predecessors;
use super::options::form::MOST_JOB_NAMES;
use super::saturating::end_of_wait;
use crate::mutants::{Mutant, is};

/// The outcome of a Job that another one may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It has not ended.
    Unfinished,
    /// It is complete.
    Succeeded,
    /// It has failed.
    Failed,
}

/// Why a predecessor holds a Job up. The greater one is shown, since it asks for an act of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// It has not ended.
    Unfinished,
    /// There is no Job of this name.
    Missing,
    /// It waits for this Job itself.
    Cycle,
    /// It has failed, and has to succeed.
    Failed,
}

/// A predecessor that holds a Job up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Why.
    pub cause: Hindrance,
    /// Its name.
    pub job: Arc<str>,
}

impl Hindrance {
    /// The reason in one word, for display.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unfinished => "AfterUnfinished",
            Self::Missing => "AfterMissing",
            Self::Cycle => "AfterCycle",
            Self::Failed => "AfterFailed",
        }
    }

    /// The reason in a sentence about any Job.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Unfinished => "A Job that this one is after has not ended",
            Self::Missing => "A Job that this one is after does not exist",
            Self::Cycle => "A Job that this one is after waits for this Job",
            Self::Failed => "A Job that this one is after has failed",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.cause {
            Hindrance::Unfinished => "has not ended",
            Hindrance::Missing => "does not exist",
            Hindrance::Cycle => "waits for this Job",
            Hindrance::Failed => "has failed, and has to succeed",
        };
        write!(f, "Job {} {why}", self.job)
    }
}

/// The most names that an owner of a Job writes: as many as `after` and `after-any` can have.
const MOST_MET: usize = 2 * MOST_JOB_NAMES;

/// Reads the annotation about the predecessors that have ended as wanted. Any user of the Job may write it, so only names that the Job
/// is after count. The names come back in order, each once, separated by commas. If there is none, returns `None`.
pub fn read_met(text: &str, after: &Predecessors) -> Option<Arc<str>> {
    let known: BTreeSet<&str> = after.iter().map(|(name, _)| name).collect();
    joined(text.split(',').take(MOST_MET).filter(|name| known.contains(name)).collect())
}

/// The names in a text of [`read_met`] or [`OrderLook::met`].
pub fn names_met(met: Option<&str>) -> impl Iterator<Item = &str> {
    met.into_iter().flat_map(|met| met.split(','))
}

fn joined(names: BTreeSet<&str>) -> Option<Arc<str>> {
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(",").into())
}

/// A look at the predecessors of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderLook {
    /// The one that holds the Job up; `None`: it may begin.
    pub obstacle: Option<Obstacle>,
    /// The Jobs that have ended as wanted, now or before: their names in order, separated by commas.
    pub met: Option<Arc<str>>,
}

impl OrderLook {
    /// Looks at the predecessors `after` of a Job. `was_met`: whether a Job of this name has ended as wanted before. `outcome` is that of
    /// a Job by its name, `None` if it does not exist. `waits_for_it`: whether a Job of this name waits for the asking one.
    pub fn new<'a>(
        after: &'a Predecessors,
        was_met: impl Fn(&str) -> bool,
        outcome: impl Fn(&str) -> Option<JobOutcome>,
        mut waits_for_it: impl FnMut(&'a str) -> bool,
    ) -> Self {
        let mut cause = |name: &'a str, must_succeed: bool| match outcome(name) {
            _ if was_met(name) => None,
            None if is(Mutant::MissingTakenForEnded) => None,
            None => Some(Hindrance::Missing),
            Some(JobOutcome::Unfinished) if waits_for_it(name) => Some(Hindrance::Cycle),
            Some(JobOutcome::Unfinished) => Some(Hindrance::Unfinished),
            Some(JobOutcome::Failed) if must_succeed && !is(Mutant::FailureTakenForSuccess) => {
                Some(Hindrance::Failed)
            }
            Some(JobOutcome::Failed | JobOutcome::Succeeded) => None,
        };
        let mut worst: Option<(Hindrance, &str)> = None;
        // A name may be in both lists.
        let mut all_met = BTreeMap::<&str, bool>::new();
        for (name, must_succeed) in after.iter() {
            let cause = cause(name, must_succeed);
            *all_met.entry(name).or_insert(true) &= cause.is_none();
            // Of equal ones the first.
            if let Some(cause) = cause.filter(|cause| worst.is_none_or(|(worst, _)| *cause > worst)) {
                worst = Some((cause, name));
            }
        }
        Self {
            obstacle: worst.map(|(cause, job)| Obstacle { cause, job: job.into() }),
            met: joined(all_met.into_iter().filter(|(_, met)| *met).map(|(name, _)| name).collect()),
        }
    }
}

/// The predecessors of a Job, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderState {
    /// The last look at them.
    pub(super) look: Option<OrderLook>,
    /// The one that holds the Job up.
    pub(super) hindered: Option<Hindered>,
    /// The searches for a cycle since the names were last changed.
    pub(super) searches: Option<CycleSearches>,
}

/// When a Job has searched for a cycle of Jobs that wait for each other. A change of any of these Jobs may close a cycle. A
/// search at each change would cost too much, so searches follow at growing distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct CycleSearches {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

impl CycleSearches {
    /// The shortest and the longest time between two searches.
    const DISTANCES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

    /// When the next one is due.
    pub(super) fn next(self, now: Timestamp) -> Timestamp {
        let age = Duration::try_from(self.last.duration_since(self.first)).unwrap_or_default();
        let (shortest, longest) = Self::DISTANCES;
        end_of_wait(self.last, age.clamp(shortest, longest), now)
    }
}

/// The obstacle that the last plan has found.
#[derive(Clone, Debug)]
pub(super) struct Hindered {
    pub(super) by: Obstacle,
    pub(super) since: Timestamp,
    /// An Event has reported it.
    pub(super) told: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(succeeded: &[&str], finished: &[&str]) -> Arc<Predecessors> {
        let names = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        Arc::new(Predecessors { succeeded: names(succeeded), finished: names(finished) })
    }

    /// Any user of a Job may write the annotation.
    #[test]
    fn only_names_that_the_job_is_after_are_read() {
        let commas = ",".repeat(2_560);
        for (text, expected) in [
            ("b,a", Some("a,b")),
            ("a,c,a,x", Some("a,c")),
            ("x", None),
            ("", None),
            (&*commas, None),
            (&*format!("a{commas}b"), Some("a")),
            (&*format!("{commas}a"), None),
        ] {
            assert_eq!(read_met(text, &after(&["a", "b"], &["a", "c"])).as_deref(), expected, "{text:.20}");
        }
    }

    /// An owner writes them all, and the next owner reads them.
    #[test]
    fn all_names_that_an_owner_writes_are_read() {
        let names: Vec<String> = (0..MOST_MET).map(|number| format!("job-{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (succeeded, finished) = names.split_at(MOST_JOB_NAMES);
        let after = after(succeeded, finished);
        let met = OrderLook::new(&after, |_| true, |_| None, |_| false).met;
        assert_eq!(read_met(&names.join(","), &after), met);
        assert_eq!(names_met(met.as_deref()).collect::<Vec<_>>(), names);
    }

    #[test]
    fn names_that_have_ended_are_not_left() {
        let all = after(&["a", "b"], &["b", "c"]);
        assert!(Arc::ptr_eq(&all.without(&BTreeSet::new()), &all), "they are shared");
        assert_eq!(all.without(&BTreeSet::from(["b"])), after(&["a"], &["c"]));
    }
}
