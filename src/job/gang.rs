//! Gangs: Jobs whose pods all run at once, to be scheduled together or not at all (feature gate `WorkloadWithJob`).
//!
//! Such a Job gets a Workload and a PodGroup before its first pod, and its pods name the PodGroup. As in Kubernetes 1.36,
//! the two are made for a new Job only, suspended or not; after that they are looked for whenever pods are to be
//! created, and pods that are created while one of them is missing belong to no gang.

mod objects;

use std::sync::Arc;

use jiff::Timestamp;

use super::plan::{Plan, Wait};
use super::spec::{Completion, JobSpec};
use super::state::JobState;
use super::status::ConditionKind;

pub use self::objects::{
    Choice, GroupTemplate, PodGroup, Workload, choose_pod_group, choose_workload, workload_made,
};

/// What is to be done about a Job's gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangRequest {
    /// Look for its Workload and its PodGroup, and make what is missing.
    Ensure,
    /// Look for them.
    Find,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangAnswer {
    /// The PodGroup that pods are to name; `None`: pods belong to no gang.
    Group(Option<Arc<str>>),
    /// Refused, or the outcome is unknown.
    Refused,
}

/// What is known of a Job's gang.
#[derive(Clone, Debug, Default)]
pub struct Gang {
    /// What a new Job needs has been made, or will not be.
    seen_to: bool,
    knowledge: Knowledge,
}

#[derive(Clone, Debug, Default)]
enum Knowledge {
    /// Nothing, or nothing that still holds.
    #[default]
    None,
    /// A request is under way.
    Asked,
    /// Holds for the pods that are created in one go.
    Group(Option<Arc<str>>),
}

impl Gang {
    /// The PodGroup that pods created now are to name.
    pub fn group(&self) -> Option<&str> {
        match &self.knowledge {
            Knowledge::Group(group) => group.as_deref(),
            _ => None,
        }
    }

    /// Takes note that a request is under way.
    pub(super) fn ask(&mut self) {
        self.knowledge = Knowledge::Asked;
    }

    /// Takes in the answer.
    pub(super) fn answered(&mut self, answer: GangAnswer) {
        self.knowledge = match answer {
            GangAnswer::Group(group) => {
                self.seen_to = true;
                Knowledge::Group(group)
            }
            GangAnswer::Refused => Knowledge::None,
        };
    }

    /// No pod is being created: by the next one the gang may have changed.
    pub(super) fn forget(&mut self) {
        if matches!(self.knowledge, Knowledge::Group(_)) {
            self.knowledge = Knowledge::None;
        }
    }
}

/// Whether a Job's pods are a gang: there are several, all run at once, and the template names no group of its own.
pub fn is_eligible(spec: &JobSpec) -> bool {
    let all_at_once = spec.completion == Completion::Indexed(spec.parallelism);
    spec.parallelism > 1 && all_at_once && !spec.template.names_scheduling_group()
}

fn applies(state: &JobState) -> bool {
    state.limits.gang_scheduling && is_eligible(&state.job.spec)
}

/// Whether nothing has ever been done for the Job. Each of the signs can be missing by itself: pods are deleted,
/// suspending clears the start time, and only the condition tells of a Job that was suspended early.
fn is_new(state: &JobState) -> bool {
    let status = &state.job.status;
    state.pods.is_empty()
        && state.pods.pending_creates() + state.claims_in_flight == 0
        && status.start_time.is_none()
        && (status.succeeded, status.failed) == (0, 0)
        && status.condition(&ConditionKind::Suspended).is_none()
}

/// Whether the gang is to be seen to before anything else: the first status makes the Job an old one.
pub(super) fn comes_first(state: &JobState) -> bool {
    applies(state) && !state.gang.seen_to && !state.job.deleting && is_new(state)
}

/// Whether it is known which PodGroup pods created now are to name, if any.
pub(super) fn is_known(state: &JobState) -> bool {
    !applies(state) || matches!(state.gang.knowledge, Knowledge::Group(_))
}

/// Adds to the plan what is to be found out, unless that is under way or has to wait.
pub(super) fn ask(state: &JobState, now: Timestamp, plan: &mut Plan) {
    if matches!(state.gang.knowledge, Knowledge::Asked) {
        plan.waiting = Some(Wait::Gang);
    } else if let Some(at) = state.create_retry.waits(now) {
        plan.waiting = Some(Wait::Refused(at));
        plan.wake(at);
    } else {
        plan.waiting = Some(Wait::Gang);
        plan.gang = Some(if comes_first(state) { GangRequest::Ensure } else { GangRequest::Find });
    }
}

#[cfg(test)]
mod tests;
