//! Tables: when the status is written.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::fixture::{at, at_index, at_ms, but, ended, job, quiet, running, state, with};
use crate::job::counting::{Due, Next, due, urgency};
use crate::job::index_set::IndexSet;
use crate::job::limits::{Limits, Pace};
use crate::job::plan::Urgency;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job, PerIndexLimit};
use crate::job::state::{Changed, JobState};
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};
use crate::job::verdict::condition;

/// A state in which only the number of active pods has changed since the last status write.
fn one_more(job: &Job, second: i64) -> JobState {
    let mut state = state(job.clone(), [running("a")]);
    state.observe_job(job.clone());
    state.status_written(at(second));
    state
}

#[test]
fn the_first_status_is_written_at_once_and_others_within_the_batch_period() {
    let job = quiet(job(Completion::Count(9), 1));
    let next = Next { managed: true, ..Next::default() };
    let fresh = state(job.clone(), [running("a")]);
    assert_eq!(due(&fresh, &next, false, at(200)), Due::Now);
    let written = one_more(&job, 200);
    assert_eq!(due(&written, &next, false, at_ms(200_300)), Due::At(at(201)));
    assert_eq!(
        due(&written, &next, false, at(205)),
        Due::At(at_ms(205_050)),
        "after a rest, others may follow"
    );
    assert_eq!(due(&state(job, []), &next, false, at(200)), Due::Never);
}

/// Of two pods that end together after a rest, none waits for a period.
#[test]
fn pods_that_end_together_are_recorded_together() {
    let job = quiet(job(Completion::Count(3), 3));
    let mut state = state(job, ["a", "b", "c"].map(running));
    state.status_written(at(200));
    for (uid, ms) in [("a", 205_000), ("b", 205_030)] {
        state.observe_pod(ended(running(uid), Phase::Succeeded, 205), at_ms(ms));
        let plan = reconcile(&state, at_ms(ms));
        assert_eq!((plan.status.clone(), plan.wake_at), (None, Some(at_ms(205_050))));
        state.begin(&plan, at_ms(ms));
    }
    let status = reconcile(&state, at_ms(205_050)).status.unwrap().status;
    assert_eq!(status.uncounted.unwrap().succeeded.len(), 2);
}

/// While it waits for its turn, a status is not composed, and says only how urgent it has become.
#[test]
fn a_queued_status_is_composed_when_its_turn_has_come() {
    let job = quiet(job(Completion::Count(9), 1));
    let mut state = state(job, [running("a")]);
    let mut plan = reconcile(&state, at(200));
    plan.queue_status();
    state.begin(&plan, at(200));
    let queued = |state: &JobState, second| {
        let plan = reconcile(state, at(second));
        assert!(plan.status.is_none() && plan.status_waits, "{plan:?}");
        plan.status_queued
    };
    assert_eq!(queued(&state, 210), Some(Urgency::Progress));
    state.observe_pod(ended(running("a"), Phase::Succeeded, 211), at(211));
    assert_eq!(queued(&state, 212), Some(Urgency::Step));
    state.status_turn_came();
    let write = reconcile(&state, at(212)).status.unwrap();
    assert_eq!((write.urgency, write.status.uncounted.unwrap().succeeded.len()), (Urgency::Step, 1));
    state.status_turn_refused(at(212));
    assert_eq!(reconcile(&state, at(212)).wake_at, Some(at(213)));
}

/// Another turn may take long.
#[test]
fn what_has_changed_is_written_in_a_turn_that_has_come() {
    let mut written = one_more(&quiet(job(Completion::Count(9), 1)), 200);
    assert!(reconcile(&written, at_ms(200_001)).status.is_none());
    written.status_turn_came();
    assert!(reconcile(&written, at_ms(200_001)).status.is_some());
}

/// A slow API server is a reason to gather what only readers wait for.
#[test]
fn what_the_end_or_the_deletion_of_a_job_waits_for_is_not_gathered_for_long() {
    let slow = Pace { at_once: 100, status_period: Duration::from_secs(5), start_period: Duration::ZERO };
    let next = Next { managed: true, ..Next::default() };
    let mut state = one_more(&quiet(job(Completion::Count(9), 1)), 200);
    state.observe_pod(ended(running("b"), Phase::Succeeded, 200), at(200));
    state.keep_pace(slow);
    assert_eq!(due(&state, &next, true, at(200)), Due::At(at(205)));
    state.job.deleting = true;
    assert_eq!(due(&state, &next, true, at(200)), Due::At(at(201)));
    state.job.deleting = false;
    state.job.options.failed_pods_limit = Some(1);
    assert_eq!(due(&state, &next, true, at(200)), Due::At(at(201)));
}

#[test]
fn a_job_that_is_resumed_is_written_although_its_numbers_are_as_before() {
    let next = Next { managed: true, ..Next::default() };
    let mut resumed = quiet(job(Completion::Count(9), 0));
    assert_eq!(due(&state(resumed.clone(), []), &next, false, at(200)), Due::Never);
    resumed.status.start_time = None;
    assert_eq!(due(&state(resumed, []), &next, false, at(200)), Due::Now);
}

/// Neither is any pod that has ended.
#[test]
fn indexes_that_a_job_no_longer_has_are_taken_out_of_its_status() {
    let next = Next { managed: true, ..Next::default() };
    let per_index = PerIndexLimit { backoff_limit: 0, max_failed_indexes: None };
    let elastic = with(quiet(job(Completion::Indexed(3), 0)), |spec| spec.per_index = Some(per_index));
    for (completed, failed, expected) in
        [("0", "1", Due::Never), ("0,7", "1", Due::Now), ("0", "1,7", Due::Now), ("0,6", "1,7", Due::Now)]
    {
        let mut shrunk = elastic.clone();
        shrunk.status.completed_indexes = IndexSet::parse_lenient(completed, 9);
        shrunk.status.failed_indexes = Some(IndexSet::parse_lenient(failed, 9));
        assert_eq!(due(&state(shrunk, []), &next, false, at(200)), expected, "{completed} {failed}");
    }
}

/// No number that the status shows has changed.
#[test]
fn a_recorded_pod_that_has_lost_its_finalizer_is_counted() {
    let mut recorded = quiet(job(Completion::Count(9), 0));
    let uncounted = Uncounted { succeeded: vec!["a".into()], failed: Vec::new() };
    recorded.status.uncounted = Some(uncounted);
    let next = Next { managed: true, ..Next::default() };
    let tracked = ended(running("a"), Phase::Succeeded, 150);
    let mut state = state(recorded, [tracked.clone()]);
    assert_eq!(due(&state, &next, false, at(200)), Due::Never);
    state.observe_pod(but(tracked, |pod| (pod.tracked, pod.version) = (false, 9)), at(200));
    assert_eq!(due(&state, &next, false, at(200)), Due::Now);
    let status = reconcile(&state, at(200)).status.unwrap().status;
    assert_eq!((status.succeeded, status.uncounted), (1, Some(Uncounted::default())));
}

/// The removal of their finalizers waits for it.
#[test]
fn a_status_that_records_pods_is_urgent_however_they_are_recorded() {
    let next = Next { managed: true, ..Next::default() };
    for completion in [Completion::Count(9), Completion::Indexed(9)] {
        for (phase, expected) in [(Phase::Running, Urgency::Progress), (Phase::Succeeded, Urgency::Step)] {
            let pods = [at_index("a", 0, 0), at_index("b", 1, 0)].map(|pod| match phase {
                Phase::Succeeded => ended(pod, phase, 150),
                _ => but(pod, |pod| pod.phase = phase),
            });
            let state = state(quiet(job(completion, 2)), pods);
            assert_eq!(urgency(&state, &next), expected, "{completion:?}, {phase:?}");
        }
    }
}

/// The outcome of requests under way belongs in the same write.
#[test]
fn a_write_waits_for_requests_under_way_but_no_longer_than_the_batch_period() {
    let job = quiet(job(Completion::Count(9), 2));
    let mut state = state(job, [running("a")]);
    let plan = reconcile(&state, at(200));
    assert!(plan.status.is_none() && plan.status_waits && plan.creates.len() == 1, "{plan:?}");
    assert_eq!(plan.wake_at, Some(at(201)));
    state.begin(&plan, at(200));
    let later = reconcile(&state, at_ms(200_900));
    assert!(later.status.is_none());
    state.begin(&later, at_ms(200_900));
    assert!(reconcile(&state, at(201)).status.is_some());
}

/// If many Jobs share a limited rate, progress is written less often. Start and end are not delayed.
#[test]
fn progress_is_written_at_the_pace_of_the_gate() {
    let slow = Pace { at_once: 100, status_period: Duration::from_secs(20), start_period: Duration::ZERO };
    let next = Next { managed: true, ..Next::default() };
    let mut written = one_more(&quiet(job(Completion::Count(9), 1)), 200);
    written.keep_pace(slow);
    assert_eq!(due(&written, &next, false, at(201)), Due::At(at(220)));
    assert_eq!(reconcile(&written, at(205)).wake_at, Some(at(206)), "the pace may become faster");
    written.keep_pace(Pace { status_period: Duration::ZERO, ..slow });
    assert_eq!(
        due(&written, &next, false, at_ms(200_500)),
        Due::At(at(201)),
        "never faster than the batch period"
    );
    let mut new = state(job(Completion::Count(9), 1), [running("a")]);
    new.keep_pace(slow);
    assert_eq!(due(&new, &next, true, at(200)), Due::At(at(201)));
}

/// The requests of a huge Job must not pile up.
#[test]
fn the_pace_limits_the_number_of_pod_requests_under_way() {
    let pods: Vec<Pod> = (0..9).map(|n| running(&format!("{n}"))).collect();
    let mut state = state(with(quiet(job(Completion::Count(9), 9)), |spec| spec.suspend = true), pods);
    for (at_once, deleted) in [(2, 2), (5, 3), (5, 0), (usize::MAX, 4)] {
        state.keep_pace(Pace { at_once, status_period: Duration::ZERO, start_period: Duration::ZERO });
        let plan = reconcile(&state, at(200));
        assert_eq!(plan.deletes.len(), deleted, "room for {at_once}");
        state.begin(&plan, at(200));
    }
    assert!(state.job.status.holding(ConditionKind::Suspended).is_none());
}

#[test]
fn a_change_of_conditions_is_written_at_once() {
    let suspended = with(quiet(job(Completion::Count(9), 1)), |spec| spec.suspend = true);
    let mut state = state(suspended.clone(), []);
    state.observe_job(suspended);
    state.status_written(at(200));
    assert!(reconcile(&state, at_ms(200_001)).status.is_some());
}

#[test]
fn a_full_batch_is_written_at_once() {
    let job = quiet(job(Completion::Count(9), 3));
    let succeeded = |n: u32| ended(running(&format!("{n}")), Phase::Succeeded, 150);
    let mut state = JobState::new(job.clone(), Limits { max_uncounted_pods: 2, ..Limits::default() });
    state.observe_job(job);
    state.status_written(at(200));
    state.observe_pod(succeeded(1), at(200));
    let next = Next { managed: true, ..Next::default() };
    assert_eq!(due(&state, &next, false, at_ms(200_001)), Due::At(at(201)));
    state.observe_pod(succeeded(2), at(200));
    state.observe_pod(succeeded(3), at(200));
    assert_eq!(due(&state, &next, false, at_ms(200_001)), Due::Now);
    let recorded = reconcile(&state, at(201)).status.unwrap().status.uncounted.unwrap();
    assert_eq!(recorded.succeeded.len(), 2, "no more than the limit");
}

/// While half of the list or more is taken, a write would have room for a few pods only.
#[test]
fn a_batch_is_full_if_it_fills_the_free_half_of_the_list() {
    let done = |n: usize| ended(running(&format!("{n}")), Phase::Succeeded, 150);
    let next = Next { managed: true, ..Next::default() };
    for (listed, new, expected) in [
        (4, 5, Due::At(at(201))),
        (4, 6, Due::Now),
        (5, 4, Due::At(at(201))),
        (5, 5, Due::Now),
        (6, 4, Due::At(at(201))),
        (10, 4, Due::Never),
    ] {
        let mut job = quiet(job(Completion::Count(99), 3));
        let succeeded = (0..listed).map(|n| done(n).uid).collect();
        job.status.uncounted = Some(Uncounted { succeeded, failed: Vec::new() });
        let mut state = JobState::new(job, Limits { max_uncounted_pods: 10, ..Limits::default() });
        (0..listed + new).for_each(|n| _ = state.observe_pod(done(n), at(200)));
        state.status_written(at(200));
        assert_eq!(due(&state, &next, false, at_ms(200_001)), expected, "{listed} and {new}");
    }
    let no_room = Limits { max_uncounted_pods: 0, ..Limits::default() };
    let mut state = JobState::new(quiet(job(Completion::Count(99), 3)), no_room);
    state.observe_pod(done(1), at(200));
    state.status_written(at(200));
    assert_eq!(due(&state, &next, false, at_ms(200_001)), Due::Never, "nothing would be recorded");
}

/// The API server refuses to let the recorded pods go, and the list of them is full.
#[test]
fn an_end_that_waits_for_pods_which_cannot_be_released_repeats_no_status() {
    let done = |n: usize| ended(running(&format!("{n}")), Phase::Succeeded, 150);
    let mut job = quiet(job(Completion::Count(3), 3));
    job.status.uncounted = Some(Uncounted { succeeded: vec![done(0).uid, done(1).uid], failed: Vec::new() });
    let mut state = JobState::new(job, Limits { max_uncounted_pods: 2, ..Limits::default() });
    (0..3).for_each(|n| _ = state.observe_pod(done(n), at(200)));
    let announced = reconcile(&state, at(200)).status.unwrap();
    assert!(announced.status.holding(ConditionKind::SuccessCriteriaMet).is_some());
    state.job.status = announced.status;
    state.status_written(at(200));
    assert_eq!(reconcile(&state, at(201)).status, None);
}

#[test]
fn nothing_is_written_while_a_write_is_under_way_or_refused() {
    let mut state = state(quiet(job(Completion::Count(9), 1)), [running("a")]);
    let plan = reconcile(&state, at(200));
    assert!(plan.status.is_some());
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at(205)).status.is_none());
    state.status_refused(false, at(205));
    let waits = reconcile(&state, at(205));
    assert_eq!((waits.status, waits.wake_at), (None, Some(at(206))));
    assert!(reconcile(&state, at(206)).status.is_some());
    state.begin(&reconcile(&state, at(206)), at(206));
    state.status_refused(true, at(206));
    assert!(reconcile(&state, at(206)).status.is_some(), "a conflict is no reason to wait");
}

/// Recording takes a status, and counting another one. Readers that wait for a number of successes need not wait for two
/// periods.
#[test]
fn what_is_released_is_counted_without_another_period() {
    let recorded = |uid: &str, state: &mut JobState, ms| {
        let mut job = state.job.clone();
        job.status.uncounted.get_or_insert_default().succeeded.push(uid.into());
        state.observe_job(job);
        state.status_written(at_ms(ms));
        state.changed(&uid.into(), Changed::Released, at_ms(ms + 10));
    };
    let pods = ["a", "b"].map(|uid| ended(running(uid), Phase::Succeeded, 150));
    let mut state = state(quiet(job(Completion::Count(9), 0)), pods);
    recorded("a", &mut state, 200_000);
    let plan = reconcile(&state, at_ms(200_010));
    let status = plan.status.clone().unwrap().status;
    assert_eq!((status.succeeded, status.uncounted.clone().unwrap().succeeded.len()), (1, 1));
    state.begin(&plan, at_ms(200_010));
    let job = Job { status, ..state.job.clone() };
    state.observe_job(job);
    state.status_written(at_ms(200_020));
    state.changed(&"b".into(), Changed::Released, at_ms(200_030));
    let plan = reconcile(&state, at_ms(200_030));
    state.begin(&plan, at_ms(200_030));
    assert!(plan.status.is_none(), "once in a period");
    assert!(reconcile(&state, at_ms(200_999)).status.is_none());
    assert!(reconcile(&state, at(201)).status.is_some(), "the period is that of the last one that recorded");
    state.keep_pace(Pace { at_once: 9, status_period: Duration::from_secs(5), start_period: Duration::ZERO });
    assert!(reconcile(&state, at_ms(204_999)).status.is_none(), "where the API server is slow, all wait");
}

#[test]
fn a_suspended_job_whose_last_pods_end_is_left_alone_for_longer() {
    let mut job = with(quiet(job(Completion::Count(9), 2)), |spec| spec.suspend = true);
    job.status.start_time = None;
    job.status.terminating = Some(1);
    job.status.ensure(condition(
        ConditionKind::Suspended,
        ConditionStatus::True,
        "JobSuspended",
        "",
        at(150),
    ));
    let mut state = state(job, []);
    state.status_written(at(200));
    let next = Next { managed: true, ..Next::default() };
    assert_eq!(due(&state, &next, false, at_ms(200_100)), Due::At(at(202)));
}
