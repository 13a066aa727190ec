//! Gangs: Jobs whose pods all run at once, and are scheduled together or not at all (feature gate
//! `WorkloadWithJob`).
//!
//! Such a Job gets a Workload and a PodGroup before its first pod, and its pods name the PodGroup. As in
//! Kubernetes 1.36, both objects are created for a new Job only, suspended or not. Later they are looked up
//! before pods are created. Pods created while one of the two is missing belong to no gang.

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

/// A request about a Job's gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangRequest {
    /// Look up its Workload and its PodGroup, and create the missing ones.
    Ensure,
    /// Look them up.
    Find,
}

/// The answer to a [`GangRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangAnswer {
    /// The PodGroup that new pods name; `None`: pods belong to no gang.
    Group(Option<Arc<str>>),
    /// Refused, or the outcome is unknown.
    Refused,
}

/// The known state of a Job's gang.
#[derive(Clone, Debug, Default)]
pub struct Gang {
    /// The objects of a new Job exist, or will never be created.
    ensured: bool,
    knowledge: Knowledge,
}

#[derive(Clone, Debug, Default)]
enum Knowledge {
    /// Nothing, or nothing current.
    #[default]
    None,
    /// A request is under way.
    Asked,
    /// Valid for the pods that are created in one go.
    Group(Option<Arc<str>>),
}

impl Gang {
    /// The PodGroup that pods created now must name.
    pub fn group(&self) -> Option<&str> {
        match &self.knowledge {
            Knowledge::Group(group) => group.as_deref(),
            _ => None,
        }
    }

    /// Marks a request as under way.
    pub(super) fn ask(&mut self) {
        self.knowledge = Knowledge::Asked;
    }

    /// Takes in the answer.
    pub(super) fn answered(&mut self, answer: GangAnswer) {
        self.knowledge = match answer {
            GangAnswer::Group(group) => {
                self.ensured = true;
                Knowledge::Group(group)
            }
            GangAnswer::Refused => Knowledge::None,
        };
    }

    /// Drops the known group while no pod is being created: the gang may change before the next one.
    pub(super) fn forget(&mut self) {
        if matches!(self.knowledge, Knowledge::Group(_)) {
            self.knowledge = Knowledge::None;
        }
    }
}

/// Whether a Job's pods are a gang: there are several, all run at once, and the template names no group
/// itself.
pub fn is_eligible(spec: &JobSpec) -> bool {
    let all_at_once = spec.completion == Completion::Indexed(spec.parallelism);
    spec.parallelism > 1 && all_at_once && !spec.template.names_scheduling_group()
}

fn applies(state: &JobState) -> bool {
    state.limits.gang_scheduling && is_eligible(&state.job.spec)
}

/// Whether nothing has ever been done for the Job. No sign suffices alone: pods may be deleted, suspending
/// clears the start time, and only the condition shows that a Job was suspended early.
fn is_new(state: &JobState) -> bool {
    let status = &state.job.status;
    state.pods.is_empty()
        && state.pods.pending_creates() + state.adoptions_in_flight == 0
        && status.start_time.is_none()
        && (status.succeeded, status.failed) == (0, 0)
        && status.condition(&ConditionKind::Suspended).is_none()
}

/// Whether the gang must be ensured before anything else: after its first status a Job is no longer new.
pub(super) fn comes_first(state: &JobState) -> bool {
    applies(state) && !state.gang.ensured && !state.job.deleting && is_new(state)
}

/// Whether it is known which PodGroup, if any, pods created now must name.
pub(super) fn is_known(state: &JobState) -> bool {
    !applies(state) || matches!(state.gang.knowledge, Knowledge::Group(_))
}

/// Adds the request about the gang to the plan, unless one is under way or has to wait.
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
