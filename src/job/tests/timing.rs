//! Tables: when the status is written, and when a finished Job is deleted.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::fixture::{at, at_index, at_ms, but, ended, job, quiet, running, state, with};
use crate::job::counting::{Due, Next, due, urgency};
use crate::job::index_set::IndexSet;
use crate::job::limits::{Limits, Pace};
use crate::job::plan::{Urgency, Wait};
use crate::job::pod::{Phase, Pod};
use crate::job::pod_set::PendingRequest;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job, PerIndexLimit};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};
use crate::job::uid::UidSet;
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

/// A Job that ends soon after its start needs one status write for both.
#[test]
fn the_start_waits_for_changes_that_follow_soon() {
    let mut job = quiet(job(Completion::Count(1), 1));
    job.status.start_time = None;
    let mut state = state(job, [running("a")]);
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.clone(), plan.status_waits, plan.wake_at), (None, true, Some(at_ms(200_200))));
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at_ms(200_200)).status.is_some());
    state.observe_pod(ended(running("a"), Phase::Succeeded, 200), at_ms(200_100));
    let status = reconcile(&state, at_ms(200_100)).status.unwrap().status;
    assert_eq!(
        (status.start_time, status.holding(ConditionKind::SuccessCriteriaMet).is_some()),
        (Some(at(200)), true)
    );
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

/// The start has nothing to show before the first answer, unless a pod has ended meanwhile.
#[test]
fn the_start_waits_for_the_first_pod() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let mut state = state(job, []);
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.clone(), plan.creates.len()), (None, 1));
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at(229)).status.is_none() && reconcile(&state, at(230)).status.is_some());
    let mut with_pod = state.clone();
    with_pod.observe_pod(running("a"), at(220));
    assert!(
        reconcile(&with_pod, at(220)).status.is_none(),
        "its end may follow soon, however long it took to come"
    );
    let mut with_deadline = state.clone();
    with_deadline.job = with(state.job.clone(), |spec| spec.active_deadline = Some(Duration::from_secs(60)));
    assert!(reconcile(&with_deadline, at(210)).status.is_some(), "a deadline counts from the start");
    state.observe_pod(ended(running("a"), Phase::Failed, 200), at(200));
    assert!(reconcile(&state, at(203)).status.is_some());
}

/// However often its first pod goes again before it could be shown.
#[test]
fn the_start_is_written_in_the_end() {
    let mut new = state(job(Completion::Count(9), 1), [running("a")]);
    let start_period = Duration::from_secs(1);
    new.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
    new.started = Some(at(200));
    let next = Next { managed: true, ..Next::default() };
    assert_eq!(due(&new, &next, false, at(220)), Due::At(at(221)));
    assert_eq!(due(&new, &next, false, at_ms(239_500)), Due::At(at(240)));
    assert_eq!(due(&new, &next, true, at(240)), Due::Now);
}

/// A pod that goes at once is followed by others, whose Job would never show its start.
#[test]
fn the_start_waits_for_the_first_pod_only_once() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let mut state = state(job, []);
    let start_period = Duration::from_secs(60);
    state.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
    let plan_at = |state: &mut JobState, ms| {
        let plan = reconcile(state, at_ms(ms));
        state.begin(&plan, at_ms(ms));
        plan
    };
    let creation = plan_at(&mut state, 200_000).creates;
    let pod = running("a");
    state.created(creation[0].place, Created::Pod(pod.clone().into()), at(205));
    assert!(plan_at(&mut state, 205_000).status.is_none());
    state.observe_pod(Pod { tracked: false, deleting: true, ..pod.clone() }, at(206));
    state.pod_vanished(&pod.uid);
    assert!(plan_at(&mut state, 206_000).status.is_none());
    state.observe_pod(running("b"), at(207));
    assert!(plan_at(&mut state, 207_000).status.is_some(), "pods have existed for 2 s");
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

/// There is something to show, or nothing that could soon be shown.
#[test]
fn the_start_does_not_wait_for_the_first_pod_if_there_is_one_or_none_is_asked_for() {
    let mut job = quiet(job(Completion::Count(9), 2));
    job.status.start_time = None;
    let mut one_runs = state(job.clone(), [running("a")]);
    let plan = reconcile(&one_runs, at(200));
    assert_eq!((plan.status.clone(), plan.creates.len()), (None, 1));
    one_runs.begin(&plan, at(200));
    assert!(
        reconcile(&one_runs, at_ms(200_999)).status.is_none()
            && reconcile(&one_runs, at(201)).status.is_some()
    );

    let mut refused = state(job, []);
    let plan = reconcile(&refused, at(200));
    refused.begin(&plan, at(200));
    refused.created(plan.creates[0].place, Created::Refused, at(200));
    assert_eq!(reconcile(&refused, at(200)).status.and_then(|write| write.status.start_time), Some(at(200)));
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

/// A deadline counts from the start that is written, and clients wait for the start of pods that exist.
#[test]
fn the_start_of_a_job_with_a_deadline_or_pods_is_urgent() {
    let mut job = quiet(job(Completion::Count(9), 1));
    job.status.start_time = None;
    let deadline = Some(Duration::from_secs(60));
    for (deadline, pods, expected) in [
        (None, vec![], Urgency::Progress),
        (deadline, vec![], Urgency::Step),
        (None, vec![running("a")], Urgency::Step),
        (deadline, vec![running("a")], Urgency::Step),
    ] {
        let state = state(with(job.clone(), |spec| spec.active_deadline = deadline), pods);
        let next = Next { managed: true, ..Next::default() };
        assert_eq!(urgency(&state, &next), expected, "{deadline:?}");
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

/// A Job whose pods end soon needs no status of its own for its start. It gets one if they do not.
#[test]
fn a_start_waits_for_the_end_where_the_api_server_is_slow() {
    let next = Next { managed: true, ..Next::default() };
    let mut new = state(job(Completion::Count(1), 1), [running("a")]);
    for (start_period_ms, written_at) in [(0, at_ms(200_200)), (1_500, at_ms(201_500)), (60_000, at(202))] {
        let start_period = Duration::from_millis(start_period_ms);
        new.keep_pace(Pace { at_once: 100, status_period: Duration::ZERO, start_period });
        assert_eq!(due(&new, &next, false, at(200)), Due::At(written_at));
    }
    assert_eq!(due(&new, &next, true, at(200)), Due::At(at(202)), "nor do requests under way hasten it");
    new.limits.batch_period = Duration::from_secs(60);
    for busy in [false, true] {
        assert_eq!(
            due(&new, &next, busy, at(200)),
            Due::At(at(202)),
            "nor does a long batch period delay it"
        );
    }
    assert_eq!(urgency(&new, &next), Urgency::Step, "nor the creations of other Jobs");
    new.limits = Limits::default();
    new.job = with(new.job.clone(), |spec| spec.active_deadline = Some(Duration::from_secs(60)));
    assert_eq!(due(&new, &next, false, at(200)), Due::At(at_ms(200_200)), "a deadline counts from the start");
    assert_eq!(due(&new, &next, true, at(200)), Due::At(at(201)));
    let mut ended = state(job(Completion::Count(1), 1), [Pod { phase: Phase::Succeeded, ..running("a") }]);
    ended.keep_pace(new.pace);
    assert!(reconcile(&ended, at(201)).status.is_some(), "an end is written at once");
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

#[test]
fn a_finished_job_is_deleted_when_its_ttl_expires() {
    let mut finished = with(quiet(job(Completion::Count(1), 1)), |spec| {
        spec.ttl_after_finished = Some(Duration::from_secs(30));
    });
    let complete = condition(ConditionKind::Complete, ConditionStatus::True, "", "", at(200));
    finished.status.conditions.push(complete);
    let limits = Limits { ttl_controller: true, ..Limits::default() };
    let mut state = JobState::new(finished.clone(), limits);
    let early = reconcile(&state, at(229));
    assert_eq!((early.delete_job, early.wake_at), (false, Some(at(230))));
    let plan = reconcile(&state, at(230));
    assert!(plan.delete_job);
    state.begin(&plan, at(230));
    assert!(!reconcile(&state, at(231)).delete_job, "the deletion is requested once");
    state.deletion_refused(at(231));
    assert_eq!(reconcile(&state, at(231)).wake_at, Some(at(232)));
    let plan = reconcile(&state, at(232));
    assert!(plan.delete_job);
    state.begin(&plan, at(232));
    state.deletion_not_due();
    state.observe_job(with(finished.clone(), |spec| spec.ttl_after_finished = Some(Duration::from_secs(60))));
    let longer = reconcile(&state, at(232));
    assert_eq!((longer.delete_job, longer.wake_at), (false, Some(at(260))), "somebody has prolonged it");

    let elsewhere = JobState::new(finished.clone(), Limits::default());
    assert!(!reconcile(&elsewhere, at(500)).delete_job, "another controller deletes it");
    let leaving = JobState::new(Job { deleting: true, ..finished.clone() }, limits);
    assert!(!reconcile(&leaving, at(500)).delete_job);
    let forever = JobState::new(with(finished, |spec| spec.ttl_after_finished = None), limits);
    assert_eq!(reconcile(&forever, at(500)), crate::job::plan::Plan::default());
}

#[test]
fn a_finished_job_releases_its_pods_and_counts_no_more() {
    let mut finished = quiet(job(Completion::Count(1), 1));
    let failed = condition(ConditionKind::Failed, ConditionStatus::True, "", "", at(200));
    finished.status.conditions.push(failed);
    let mut state = state(finished, [running("a"), ended(running("b"), Phase::Failed, 150)]);
    let plan = reconcile(&state, at(300));
    assert_eq!((plan.releases.len(), plan.status.is_none(), plan.deletes.len()), (2, true, 0));
    state.begin(&plan, at(300));
    for pod in &plan.releases {
        state.changed(&pod.uid, Changed::Gone, at(300));
    }
    assert!(reconcile(&state, at(300)).is_idle());
}

#[test]
fn the_status_is_doubted_after_somebody_else_has_released_pods() {
    let done =
        |uid: &str, tracked| but(ended(running(uid), Phase::Succeeded, 150), |pod| pod.tracked = tracked);
    let newer = |uid: &str| but(done(uid, false), |pod| pod.version += 1);
    let of = |pods: Vec<Pod>| state(quiet(job(Completion::Count(3), 3)), pods);

    let mut seen_before = of(vec![running("a"), running("b")]);
    assert!(!seen_before.doubts_status(0));
    seen_before.observe_pod(newer("a"), at(160));
    assert!(seen_before.doubts_status(0), "somebody else has released it");
    seen_before.reading_job();
    assert!(!seen_before.doubts_status(0));
    seen_before.observe_pod(newer("b"), at(161));
    assert!(seen_before.doubts_status(0), "again, while the Job is being read");

    assert!(of(vec![running("a"), done("b", false)]).doubts_status(0), "already released at the take-over");

    let mut gone = of(vec![running("a"), running("b")]);
    gone.pod_vanished(&"a".into());
    assert!(gone.doubts_status(0), "somebody else has released it and may have counted it");

    let older = of(vec![done("a", false)]);
    let shown = older.pods.released_by_others_since(0);
    assert!(shown && !older.doubts_status(u64::MAX - 1), "a status that is younger records it, or counts it");
    let mut counted = of(vec![running("a")]);
    counted.pods_listing();
    counted.pods_listed(&UidSet::from_iter(["a".into()]), 9);
    counted.observe_pod(newer("counted before"), at(160));
    let mut known_late = of(vec![running("a")]);
    known_late.pods_listed(&UidSet::from_iter(["a".into()]), 9);
    known_late.observe_pod(newer("counted before"), at(160));
    assert!(known_late.doubts_status(0), "the list was complete before the Job was known");
    assert!(!counted.doubts_status(0), "a change of its labels, after all pods were listed");
    counted.pods_listing();
    counted.observe_pod(newer("counted since"), at(160));
    assert!(counted.doubts_status(0), "a list may show it for the first time");

    let indexed = |index| {
        let mut job = quiet(job(Completion::Indexed(3), 3));
        job.status.completed_indexes.insert(0);
        let pod = but(at_index("a", index, 0), |pod| pod.tracked = false);
        state(job, [ended(pod, Phase::Succeeded, 150)])
    };
    assert!(!indexed(0).doubts_status(0), "the status counts it");
    assert!(indexed(1).doubts_status(0));

    let mut ours = of(vec![done("a", true)]);
    ours.pods.set_flight(&"a".into(), PendingRequest::Release);
    ours.observe_pod(newer("a"), at(160));
    assert!(!ours.doubts_status(0), "the watch shows our own release");

    let mut finished = of(vec![running("a")]);
    let complete = condition(ConditionKind::Complete, ConditionStatus::True, "", "", at(155));
    let mut job = finished.job.clone();
    job.status.conditions.push(complete);
    finished.observe_job(job);
    finished.observe_pod(newer("a"), at(160));
    assert!(!finished.doubts_status(0), "nothing depends on it any more");
}

/// Clocks of nodes may be ahead, and ours may be set back. A back-off begins a second after the failure is
/// learnt of at the latest.
#[test]
fn a_pod_that_has_failed_in_the_future_is_replaced_after_its_backoff() {
    for (finished, replaced) in [(100, 110), (95, 105), (101, 111), (4000, 110)] {
        let job = quiet(job(Completion::Count(9), 1));
        let mut state = state(job, [running("a")]);
        state.limits.debounce_period = Duration::ZERO;
        state.observe_pod(ended(running("a"), Phase::Failed, finished), at(100));
        let plan = reconcile(&state, at(100));
        assert_eq!(plan.waiting, Some(Wait::PodBackoff(at(replaced))), "{finished}");
    }
}

/// The same, where the pod was found under the name of one to create, whose answer was lost.
#[test]
fn a_pod_that_was_found_and_has_failed_in_the_future_is_replaced_after_its_backoff() {
    let mut state = state(quiet(job(Completion::Count(9), 1)), []);
    state.limits.debounce_period = Duration::ZERO;
    let plan = reconcile(&state, at(100));
    let place = plan.creates[0].place;
    state.begin(&plan, at(100));
    let found = ended(running("a"), Phase::Failed, 4000);
    state.created(place, Created::Found(Box::new(found)), at(100));
    assert_eq!(reconcile(&state, at(100)).waiting, Some(Wait::PodBackoff(at(110))));
    assert_eq!(reconcile(&state, at(102)).waiting, Some(Wait::PodBackoff(at(110))), "and not at once");
}

/// The pods of a suspended Job run until their removal is answered, and who reads that none is active gives their place away.
#[test]
fn a_pod_is_active_until_its_removal_is_answered() {
    let mut job = with(quiet(job(Completion::Count(9), 2)), |spec| spec.suspend = true);
    job.status.active = 2;
    let mut state =
        state(job, [but(running("a"), |pod| pod.ready_since = Some(at(150).into())), running("b")]);
    let plan = reconcile(&state, at(200));
    assert_eq!(plan.deletes.len(), 2);
    state.begin(&plan, at(200));
    let shown = |state: &JobState, ms| {
        let status = reconcile(state, at_ms(ms)).status?.status;
        Some((status.active, status.ready, status.terminating))
    };
    assert_eq!(shown(&state, 201_000), Some((2, Some(1), Some(0))), "as before, but for the ready one");
    state.changed(&"b".into(), Changed::Pod(Box::new(but(running("b"), leaves))), at(202));
    assert_eq!(shown(&state, 203_000), Some((1, Some(1), Some(1))));
    // The watch may be quicker than the answer.
    state.observe_pod(but(running("a"), leaves), at(204));
    assert_eq!(shown(&state, 205_000), Some((0, Some(0), Some(2))));
    state.changed(&"a".into(), Changed::Gone, at(206));
    assert_eq!(shown(&state, 206_000), Some((0, Some(0), Some(1))));
}

fn leaves(pod: &mut Pod) {
    (pod.deleting, pod.version) = (true, 2);
}

/// The first status of a Job that is resumed shows its pods, as that of a new one.
#[test]
fn a_resume_waits_for_its_pods_as_a_start_does() {
    let mut job = quiet(job(Completion::Count(2), 2));
    job.status.start_time = None;
    let suspended = condition(ConditionKind::Suspended, ConditionStatus::True, "JobSuspended", "", at(150));
    job.status.ensure(suspended);
    let mut state = state(job, []);
    state.status_written(at_ms(199_900));
    let plan = reconcile(&state, at(200));
    assert_eq!((plan.status.is_none(), plan.creates.len()), (true, 1), "slow start");
    state.begin(&plan, at(200));
    assert!(reconcile(&state, at(201)).status.is_none(), "there is nothing to show before the first answer");
    state.created(plan.creates[0].place, Created::Pod(Box::new(running("a"))), at_ms(200_010));
    let plan = reconcile(&state, at_ms(200_010));
    state.begin(&plan, at_ms(200_010));
    assert!(plan.status.is_none(), "the second is awaited");
    state.created(plan.creates[0].place, Created::Pod(Box::new(running("b"))), at_ms(200_020));
    assert_eq!(reconcile(&state, at_ms(200_020)).wake_at, Some(at_ms(200_210)));
    let status = reconcile(&state, at_ms(200_210)).status.unwrap().status;
    assert_eq!((status.active, status.start_time), (2, Some(at(200))));
    let resumed = status.condition(ConditionKind::Suspended).unwrap();
    assert_eq!(resumed.status, ConditionStatus::False);
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
