//! A plan: the Jobs of a pair, and the acts that are played on both sides. It follows from a seed.

mod jobs;
mod seed;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::class::Class;

/// The Jobs and acts that are played on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The seed that it was made from, or has been made smaller from.
    pub(super) seed: u64,
    /// `spec` of each Job. Their names are those of [`job_name`].
    pub(super) jobs: Vec<Value>,
    pub(super) steps: Vec<Step>,
}

/// Acts that are played together. Both sides come to rest after each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Step(pub(super) Vec<Act>);

impl What {
    /// Whether it concerns a Job itself.
    pub(super) fn is_on_job(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Patch { .. } | Self::Delete { .. })
    }
}

impl Step {
    /// The same step with an act for each pod.
    pub(super) fn singly(&self) -> Self {
        let each = |act: &Act| {
            let What::Pods { pick, count, change } = &act.what else { return vec![act.clone()] };
            let what = What::Pods { pick: pick.clone(), count: 1, change: change.clone() };
            vec![Act { what, ..act.clone() }; *count as usize]
        };
        Self(self.0.iter().flat_map(each).collect())
    }
}

/// An act, some milliseconds after the begin of its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Act {
    #[serde(default)]
    pub(super) after_ms: u16,
    pub(super) what: What,
}

/// The effect of an act. If an act does not apply at its turn, it does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum What {
    /// Create the Job with this number, unless it exists.
    Create { job: usize },
    /// Merge a patch into a Job.
    Patch { job: usize, patch: Value },
    /// Delete a Job.
    Delete { job: usize, propagation: Propagation },
    /// Change some pods of a class.
    Pods { pick: Pick, count: u32, change: Change },
    /// Have an admission policy refuse new pods, or no longer.
    Refuse { pods: bool },
    /// Set the quota of pods, or remove it.
    Quota { pods: Option<u32> },
    /// Change the controllers.
    Restart { turn: Turn },
}

/// `propagationPolicy` of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// How the controllers are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Turn {
    /// A replica is killed and started again. The reference is restarted, if there is a command for that.
    Kill,
    /// Another replica starts.
    Join,
    /// A replica leaves in order.
    Leave,
}

/// The choice of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Pick {
    /// The class with this number, modulo their count, among those that there are.
    Any(u32),
    /// The same among the classes of pods that have not ended.
    Live(u32),
    /// This one.
    Class(Class),
}

/// A change of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Change {
    /// Bind it to a node.
    Schedule,
    Run {
        ready: bool,
        restarts: u32,
    },
    Succeed(End),
    /// The main container ends with this code, and the init container, if there is one, with that.
    Fail {
        code: u8,
        init: u8,
        condition: Option<String>,
        end: End,
    },
    /// Add a condition that is True.
    Condition(String),
    Delete {
        forced: bool,
    },
    /// Remove the tracking finalizer.
    Release,
    /// Remove the owner references.
    Disown,
    /// Remove the label by which the selector finds it.
    Unlabel,
    /// Set the index annotation, or remove it.
    Index(Option<String>),
}

/// When and how the containers of a pod have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum End {
    /// Long ago: no back-off is left.
    Past,
    /// Just now.
    Now,
    /// The status does not say.
    Unknown,
}

/// Name of the Job with this number.
pub(super) fn job_name(number: usize) -> String {
    format!("j{}", number + 1)
}

impl What {
    /// Whether it is a change of pods of this kind.
    pub(super) fn changes_pods(&self, is: impl Fn(&Change) -> bool) -> bool {
        matches!(self, Self::Pods { change, .. } if is(change))
    }
}

impl Plan {
    /// The plan of a seed.
    pub(super) fn of(seed: u64) -> Self {
        seed::plan(seed)
    }

    /// All acts, in order.
    pub(super) fn acts(&self) -> impl Iterator<Item = &What> {
        self.steps.iter().flat_map(|step| &step.0).map(|act| &act.what)
    }

    /// Whether controllers are changed: they are also those of other pairs.
    pub(super) fn restarts(&self) -> bool {
        self.acts().any(|what| matches!(what, What::Restart { .. }))
    }

    /// Whether the API server may refuse pods, so that creations wait for a back-off of requests.
    pub(super) fn refuses(&self) -> bool {
        self.acts().any(|what| matches!(what, What::Refuse { .. } | What::Quota { .. }))
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(number) => write!(f, "[class {number}]"),
            Self::Live(number) => write!(f, "[live class {number}]"),
            Self::Class(class) => write!(f, "[{class}]"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedule => write!(f, "bind"),
            Self::Run { ready, restarts: 0 } => {
                write!(f, "{}", if *ready { "run" } else { "run, not ready" })
            }
            Self::Run { ready: _, restarts } => write!(f, "run after {restarts} restarts"),
            Self::Succeed(end) => write!(f, "succeed{end}"),
            Self::Fail { code, init, condition, end } => {
                write!(f, "fail {code}{end}")?;
                if *init > 0 {
                    write!(f, ", init container {init}")?;
                }
                condition.as_ref().map_or(Ok(()), |name| write!(f, ", with {name}"))
            }
            Self::Condition(name) => write!(f, "add {name}"),
            Self::Delete { forced } => write!(f, "{}", if *forced { "delete by force" } else { "delete" }),
            Self::Release => write!(f, "remove the finalizer"),
            Self::Disown => write!(f, "remove the owner"),
            Self::Unlabel => write!(f, "remove the label of the owner"),
            Self::Index(Some(index)) => write!(f, "set the index annotation to {index}"),
            Self::Index(None) => write!(f, "remove the index annotation"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Past => "",
            Self::Now => " just now",
            Self::Unknown => " without container statuses",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { job } => write!(f, "create {}", job_name(*job)),
            Self::Patch { job, patch } => write!(f, "patch {}: {patch}", job_name(*job)),
            Self::Delete { job, propagation } => write!(f, "delete {}: {propagation:?}", job_name(*job)),
            Self::Pods { pick, count, change } => write!(f, "{count} x {pick}: {change}"),
            Self::Refuse { pods: true } => write!(f, "a policy refuses pods"),
            Self::Refuse { pods: false } => write!(f, "no policy refuses pods"),
            Self::Quota { pods: Some(pods) } => write!(f, "quota of {pods} pods"),
            Self::Quota { pods: None } => write!(f, "no quota"),
            Self::Restart { turn: Turn::Kill } => write!(f, "controllers are killed and started"),
            Self::Restart { turn: Turn::Join } => write!(f, "a replica joins"),
            Self::Restart { turn: Turn::Leave } => write!(f, "a replica leaves"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, act) in self.0.iter().enumerate() {
            let and = if number > 0 { "; " } else { "" };
            match act.after_ms {
                0 => write!(f, "{and}{}", act.what)?,
                late => write!(f, "{and}at {late} ms {}", act.what)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed_and_is_read_as_written() {
        for seed in 0..50 {
            let plan = Plan::of(seed);
            assert_eq!(plan, Plan::of(seed));
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
        }
    }

    /// The kind of an act, without its numbers.
    fn kind(what: &What) -> String {
        let text = match what {
            What::Pods { change, .. } => format!("{change:?}"),
            What::Patch { patch, .. } => {
                let keys = patch["spec"].as_object().into_iter().flat_map(|spec| spec.keys());
                return keys.cloned().collect::<Vec<_>>().join(",");
            }
            what => format!("{what:?}"),
        };
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn all_acts_have_their_turn() {
        let plans: Vec<Plan> = (0..400).map(Plan::of).collect();
        let kinds: BTreeSet<String> = plans.iter().flat_map(Plan::acts).map(kind).collect();
        let wanted = [
            "Create",
            "Delete",
            "Refuse",
            "Quota",
            "Restart",
            "Schedule",
            "Run",
            "Succeed",
            "Fail",
            "Condition",
            "Release",
            "Disown",
            "Unlabel",
            "Index",
            "suspend",
            "parallelism",
            "completions,parallelism",
            "backoffLimit",
            "backoffLimit,maxFailedIndexes",
            "activeDeadlineSeconds",
            "podReplacementPolicy",
            "ttlSecondsAfterFinished",
        ];
        let missing: Vec<_> = wanted.iter().filter(|kind| !kinds.contains(**kind)).collect();
        assert!(missing.is_empty(), "{missing:?} of {kinds:?}");
        let large = plans.iter().filter(|plan| plan.jobs[0]["parallelism"].as_u64() >= Some(40)).count();
        assert!((10..100).contains(&large), "{large} of 400 plans have many pods");
        assert!(plans.iter().any(|plan| plan.jobs.len() == 3));
        assert!(plans.iter().any(|plan| plan.steps.iter().any(|step| step.0.len() > 3)));
    }
}
