//! `yardmaster.dev/lost-node-timeout`: a pod whose node does not answer counts as failed, and is replaced.
//!
//! The pod itself shows that its node is lost, so no node is read. The node controller of Kubernetes marks the pods of a node
//! that is not ready, and deletes them after a while. The pod stays, since only its kubelet would remove it.
//!
//! A lost pod is deleted by force, that is without a grace period, and keeps its finalizer. From then on it has ended, as far as
//! its Job is concerned: it counts as failed. Once that is recorded, the finalizer is removed, and the object with it.
//!
//! Invariant: a lost pod counts once. A field of the pod says that it was deleted by force, and all owners read it. Its
//! end is recorded and released like any other, and afterwards there is no object that a node could report about.

use std::time::Duration;

use humantime::format_duration;
use jiff::Timestamp;

use super::plan::{JobEvent, Plan};
use super::pod::Pod;
use super::pod_deadlines::LatePods;
use super::state::JobState;
use super::uid::UidSet;
use crate::mutants::{Mutant, is};

/// Adds the deletions of pods whose nodes are lost. Requests about other pods are in the plan already. The plan looks again
/// when the next pod is lost.
pub(super) fn plan(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let Some(timeout) = state.job.options.lost_node_timeout else { return };
    let asked: UidSet = plan
        .deletes
        .iter()
        .map(|delete| &delete.pod)
        .chain(&plan.releases)
        .map(|pod| pod.uid.clone())
        .collect();
    // Active pods that are removed anyway do not count.
    let may_fail = !state.job.spec.suspend
        && !state.job.deleting
        && !state.job.status.announces_end()
        && state.pods.outdated() == 0;
    let pods = state.pods.silent().filter(|pod| (pod.deleting || may_fail) && !asked.contains(&pod.uid));
    let says = |pod: &Pod| {
        let message =
            format!("Pod {} is lost: its node has not answered for {}", pod.name, format_duration(timeout));
        JobEvent::warning("NodeLost", message)
    };
    let grace = if is(Mutant::LostPodsKeepGrace) { None } else { Some(Duration::ZERO) };
    // Nothing but silence orders the pods.
    let since = |pod: &Pod| pod.silent_since.unwrap_or(pod.finished);
    LatePods { pods, since, time: timeout, grace }.delete(state, says, now, plan);
}
