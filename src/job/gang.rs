//! Gangs: Jobs whose pods all run at once, and are scheduled together or not at all (feature gate
//! `WorkloadWithJob`).
//!
//! A gang's Job gets a Workload and a PodGroup before its first pod, and its pods name the PodGroup. As in
//! Kubernetes 1.36, the Workload is created for a new Job only, suspended or not, and the PodGroup wherever
//! the Workload is. Later they are looked up before pods are created. Pods created while there is no
//! Workload belong to no gang.

mod objects;

use jiff::Timestamp;

use super::plan::{GangRequest, Plan, Wait};
use super::state::JobState;

pub use self::objects::{
    Choice, GroupTemplate, LOOKED_AT, PodGroup, Workload, choose_pod_group, choose_workload, names_job,
    names_workload, workload_made,
};

/// Whether it is known which PodGroup, if any, pods created now must name.
pub(super) fn is_known(state: &JobState) -> bool {
    !state.schedules_gang() || state.gang.is_known()
}

/// Adds the request about the gang to the plan, unless one is under way or has to wait.
pub(super) fn ask(state: &JobState, now: Timestamp, plan: &mut Plan) {
    if state.gang.is_asked() {
        plan.waiting = Some(Wait::Gang);
    } else if let Some(at) = state.create_retry.waits(now) {
        plan.waiting = Some(Wait::Refused(at));
        plan.wake(at);
    } else {
        plan.waiting = Some(Wait::Gang);
        plan.gang = Some(if state.gang_comes_first() { GangRequest::Ensure } else { GangRequest::Find });
    }
}

#[cfg(test)]
mod tests;
