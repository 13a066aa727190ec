//! The number of pods of a Job: which ones to create, which ones to remove.

use jiff::Timestamp;

use super::end::Tally;
use super::gang;
use super::plan::{Plan, PodDeletion, Wait};
use super::pod::{AGREE, Behind, NewPod};
use super::restart;
use super::saturating::after;
use super::state::JobState;
use crate::mutants::{Mutant, is};

/// Adds the creations or removals that bring the number of active pods to the number that the Job wants. A
/// plan never has both: a surplus is removed first.
pub fn manage(state: &JobState, tally: Tally, now: Timestamp, plan: &mut Plan) {
    let spec = &state.job.spec;
    if spec.suspend {
        let keeps = is(Mutant::SuspendedKeepsPods);
        let room = if keeps { 0 } else { state.room() };
        let active = state.ready(state.pods.active_in_removal_order(), now, plan).into_iter();
        plan.deletes.extend(active.take(room).map(PodDeletion::uncounted));
        plan.waiting = Some(Wait::Suspended);
        return;
    }
    if state.adoptions_in_flight > 0 && !is(Mutant::AdoptionsNotAwaited) {
        plan.waiting = Some(Wait::Adopting);
        return;
    }
    if restart::clears_old_attempt(state, now, plan) {
        return;
    }
    let expected = if is(Mutant::CreationsNotExpected) { 0 } else { state.pods.pending_creates() };
    let active = state.pods.active() + expected;
    let wanted = wanted(state, tally, active);
    plan.withdraw = expected > 0 && active > wanted;
    // An unanswered creation may be refused, or find its name taken: no pod goes for the sake of it.
    let surplus = if is(Mutant::SurplusKept) { 0 } else { state.pods.active().saturating_sub(wanted) };
    let remove = state.pods.to_remove(surplus.min(state.room()));
    let remove = state.ready(remove, now, plan);
    if !remove.is_empty() {
        plan.deletes.extend(remove.into_iter().map(PodDeletion::uncounted));
        return;
    }
    let leaving = state.pods.leaving();
    let missing = wanted.saturating_sub(active + leaving);
    if missing > 0 {
        let in_all = remaining(state, tally).map_or(missing, |remaining| remaining - active - leaving);
        create(state, missing, in_all, now, plan);
    } else if wanted > active {
        plan.waiting = Some(Wait::Terminating);
    }
}

/// How many pods should be active. Without completions, none is added or removed once one has succeeded.
fn wanted(state: &JobState, tally: Tally, active: usize) -> usize {
    let parallelism = state.job.spec.parallelism as usize;
    match remaining(state, tally) {
        None if tally.succeeded > 0 => active,
        None => parallelism,
        Some(remaining) => parallelism.min(remaining),
    }
}

/// How many completions remain, if the Job has a number of them.
fn remaining(state: &JobState, tally: Tally) -> Option<usize> {
    let completions = u64::from(state.job.spec.completion.wanted()?);
    Some(usize::try_from(completions.saturating_sub(tally.succeeded)).unwrap_or(usize::MAX))
}

/// The pods that come after the creation of `created`. `missing` are wanted now, `in_all` until the Job ends.
fn behind(in_all: usize, missing: usize, created: usize) -> Behind {
    let after = |all: usize| u32::try_from(all.saturating_sub(created)).unwrap_or(u32::MAX);
    Behind { in_all: after(in_all), now: after(missing) }
}

/// Adds the creations of `missing` pods, of `in_all` that the Job still needs if none of them fails.
fn create(state: &JobState, missing: usize, in_all: usize, now: Timestamp, plan: &mut Plan) {
    if let Some(at) = state.create_retry.waits(now) {
        plan.waiting = Some(Wait::Refused(at));
        return plan.wake(at);
    }
    let streak = state.streak_now(now);
    let per_index = state.job.spec.per_index.is_some();
    if let Some(at) = streak.filter(|_| !per_index).map(|s| state.backoff().after(s.last, s.failures))
        && at > now
    {
        plan.waiting = Some(Wait::PodBackoff(at));
        return plan.wake(at);
    }
    let room = state.slow_start.room(state.pods.pending_creates(), state.pace.at_once);
    // Places are chosen before their back-off is checked, so an index in back-off keeps its turn.
    let mut next_index_ready: Option<Timestamp> = None;
    // A longer wait began by a clock that was wrong, and has been set back: it is over.
    let latest = after(now, state.backoff().max.saturating_add(AGREE));
    for number in state.pods.free_places().take(missing) {
        let held = state.pods.held_at(number);
        if let Some(at) = held.map(|held| held.ready_at).filter(|at| *at > now && *at <= latest) {
            next_index_ready = Some(next_index_ready.map_or(at, |earlier| earlier.min(at)));
        } else if plan.creates.len() < room {
            plan.creates.push(NewPod {
                place: state.pods.next_at(number),
                index_failures: per_index.then(|| held.map(|held| held.successor).unwrap_or_default()),
                backoff: streak,
                lineage: state.pods.lineage_at(number, now),
                behind: behind(in_all, missing, plan.creates.len() + 1),
            });
        } else {
            break;
        }
    }
    if !plan.creates.is_empty() && !gang::is_known(state) {
        plan.creates.clear();
        return gang::ask(state, now, plan);
    }
    if let Some(at) = next_index_ready {
        plan.wake(at);
        if plan.creates.is_empty() {
            plan.waiting = Some(Wait::IndexBackoff(at));
        }
    }
}
