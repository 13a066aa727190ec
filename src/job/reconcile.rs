//! From the state of a Job to the plan for it.

use std::time::Duration;

use jiff::Timestamp;

use super::counting::{self, Due, Next};
use super::debounce;
use super::end::{self, Tally};
use super::gang;
use super::lost_nodes;
use super::manage::manage;
use super::order;
use super::plan::{BackoffUpdate, Plan, PodDeletion, Wait};
use super::pod::{Pod, PodRef};
use super::pod_deadlines;
use super::pod_set::PendingRequest;
use super::retention;
use super::saturating::after;
use super::state::{GateTurn, JobState};
use super::ttl;
use super::uid::UidSet;
use super::verdict::{self, End};
use super::waiting_condition;
use crate::mutants::{Mutant, is};

/// Least time after which a Job looks again whether its status may be written earlier.
const SOON: Duration = Duration::from_millis(100);

/// Makes the plan for a Job at this time. The function is pure: the same state and time give the same plan.
///
/// [`JobState::begin`] and the answers to the plan's requests lead to the next state. If nothing else
/// happens, an idle plan follows after a few.
pub fn reconcile(state: &JobState, now: Timestamp) -> Plan {
    let gets_pods =
        !state.gone && state.job.may_create_pods() && verdict::announced(&state.job.status).is_none();
    let mut plan = Plan { withdraw: !gets_pods && state.pods.pending_creates() > 0, ..Plan::default() };
    if state.gone {
        release_all(state, now, &mut plan);
        return plan;
    }
    if state.job.status.finished().is_some() {
        release_all(state, now, &mut plan);
        retention::prune(state, now, &mut plan);
        ttl::plan(state, now, &mut plan);
        return plan;
    }
    if state.gang_comes_first() {
        gang::ask(state, now, &mut plan);
        return plan;
    }
    let tally = Tally::of(state);
    let mut next = Next { end: verdict::announced(&state.job.status), ..Next::default() };
    match (&next.end, debounce::until(state, tally, now)) {
        (Some(end), _) => {
            release(state, now, &mut plan);
            wind_down(state, end, now, &mut plan);
        }
        (None, Some(at)) => {
            plan.wake(at);
            plan.waiting = Some(Wait::FailureDebounce(at));
        }
        (None, None) => {
            plan.backoff_update = Some(BackoffUpdate { streak: state.streak_now(now) });
            next = decide(state, tally, now, &mut plan);
            // The pods that the end is concluded from keep their finalizers until the end is announced.
            if next.end.is_none() {
                release(state, now, &mut plan);
            }
        }
    }
    lost_nodes::plan(state, now, &mut plan);
    next.waits = waiting_condition::next(state, now, &mut plan);
    write_status(state, &next, now, &mut plan);
    retention::prune(state, now, &mut plan);
    plan
}

/// Decides whether the Job ends now; if it does not, adjusts the number of its pods.
fn decide(state: &JobState, tally: Tally, now: Timestamp, plan: &mut Plan) -> Next {
    if state.is_held_by_order() {
        order::wait(state, now, plan);
        return Next::default();
    }
    let end = end::failed(state, tally, now).or_else(|| end::success_policy_met(state));
    if end.is_some() {
        plan.waiting = Some(Wait::Finishing);
        return Next { end, ..Next::default() };
    }
    let deadlines = [end::deadline(state, now), pod_deadlines::run_deadline(state)];
    deadlines.into_iter().flatten().for_each(|at| plan.wake(at));
    let managed = if state.job.deleting && !is(Mutant::DeletedJobGetsPods) {
        plan.waiting = Some(Wait::Deleting);
        false
    } else {
        pod_deadlines::plan(state, now, plan);
        if plan.deletes.is_empty() {
            manage(state, tally, now, plan);
        }
        // Conditions follow once the pods are gone, not once their deletion is requested.
        plan.deletes.is_empty() && !(state.job.spec.suspend && state.pods.has_flights())
    };
    let end: Option<End> =
        if plan.creates.is_empty() { end::completions_reached(state, tally) } else { None };
    Next { end, managed, ..Next::default() }
}

/// Removes the active pods of a Job whose end is announced. If the Job fails they count, so they keep their
/// finalizer until they are recorded. Pods that lose it now are deleted afterwards: one request for a pod
/// at a time.
fn wind_down(state: &JobState, end: &End, now: Timestamp, plan: &mut Plan) {
    plan.waiting = Some(Wait::Finishing);
    let released: UidSet = plan.releases.iter().map(|pod| pod.uid.clone()).collect();
    let active = state.pods.active_in_removal_order();
    let active = active.filter(|pod| !released.contains(&pod.uid) && is_idle(state, pod));
    let active = state.ready(active, now, plan).into_iter();
    let grace = pod_deadlines::grace_at_end(state, end);
    plan.deletes.extend(active.map(|pod| PodDeletion {
        forget: !end.failure,
        grace,
        ..PodDeletion::uncounted(pod)
    }));
}

/// Whether no request about a pod is under way.
fn is_idle(state: &JobState, pod: &Pod) -> bool {
    state.pods.flight(&pod.uid) == PendingRequest::None
}

/// Step 2 of counting: releases pods that are recorded.
fn release(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let pods = state.ready(state.pods.to_release(), now, plan).into_iter();
    plan.releases.extend(pods.map(PodRef::from));
    if is(Mutant::FinalizerBeforeStatus) {
        plan.releases.extend(state.pods.to_record().map(PodRef::from));
    }
}

/// Releases all pods of a Job that has finished or is gone: it counts nothing any more.
fn release_all(state: &JobState, now: Timestamp, plan: &mut Plan) {
    let held = state.pods.held().filter_map(|held| state.pods.get(&held.uid));
    let pods =
        state.pods.to_release().chain(state.pods.to_record()).chain(state.pods.unfinished()).chain(held);
    let pods = pods.filter(|pod| is_idle(state, pod));
    let ready = state.ready(pods, now, plan).into_iter();
    plan.releases.extend(ready.map(PodRef::from));
}

fn write_status(state: &JobState, next: &Next, now: Timestamp, plan: &mut Plan) {
    if state.status_in_flight {
        return;
    }
    let sends = !(plan.creates.is_empty() && plan.deletes.is_empty() && plan.releases.is_empty());
    // Failures that end the Job belong in the write that announces its end.
    let collects = matches!(plan.waiting, Some(Wait::FailureDebounce(_)));
    let busy = sends || collects || state.pods.has_flights();
    match (counting::due(state, next, busy, now), state.write_retry.waits(now)) {
        (Due::Never, _) => {}
        (_, Some(at)) => plan.wake(at),
        (Due::At(at), None) => {
            plan.status_waits = true;
            // The pace may become faster before that, and no input announces it.
            plan.wake(at.min(after(now, state.limits.batch_period.max(SOON))));
        }
        (Due::Now, None) if state.status_turn == GateTurn::Queued => {
            plan.status_queued = Some(counting::urgency(state, next));
            plan.status_waits = true;
        }
        (Due::Now, None) => plan.status = Some(counting::compose(state, next, now)),
    }
}
