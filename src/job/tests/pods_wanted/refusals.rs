//! Refused creations, removals and releases, which are repeated with a back-off.

use std::time::Duration;

use super::{ended_well, places, slots, started, warm};
use crate::job::plan::Wait;
use crate::job::pod::{Phase, Place, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, Uncounted};
use crate::job::tests::fixture::{at, but, ended, job, running, state, uids, with};

#[test]
fn refused_removals_are_repeated_with_back_off() {
    let mut state = warm(started(job(Completion::Count(9), 0)), slots([0]));
    let mut now = 160;
    for delay in [1, 2, 4] {
        let plan = reconcile(&state, at(now));
        assert_eq!(plan.deletes.len(), 1);
        state.begin(&plan, at(now));
        state.changed(&plan.deletes[0].pod.uid, Changed::Refused, at(now));
        let waits = reconcile(&state, at(now));
        assert_eq!((waits.deletes.len(), waits.wake_at), (0, Some(at(now + delay))));
        now += delay;
    }
}

/// The refused pod is tried again by itself, with its own back-off.
#[test]
fn a_refused_removal_holds_back_neither_other_pods_nor_the_condition_nor_the_status() {
    let running_job = started(job(Completion::Count(9), 3));
    let suspended = with(running_job, |spec| spec.suspend = true);
    let mut state = warm(suspended.clone(), slots([0, 1, 2]));
    let plan = reconcile(&state, at(160));
    assert_eq!(plan.deletes.len(), 3);
    state.begin(&plan, at(160));
    state.changed(&"slot-0".into(), Changed::Refused, at(160));
    state.changed(&"slot-1".into(), Changed::Gone, at(160));
    state.changed(&"slot-2".into(), Changed::Gone, at(160));
    let plan = reconcile(&state, at(160));
    assert_eq!((plan.deletes.len(), plan.wake_at), (0, Some(at(161))));
    let write = plan.status.clone().unwrap();
    assert_eq!((write.status.active, &*write.events[0].reason), (1, "Suspended"));
    state.begin(&plan, at(160));
    state.observe_job(Job { status: write.status, ..suspended });
    state.status_written(at(160));

    state.observe_pod(slots([3]).remove(0), at(160));
    let plan = reconcile(&state, at(160));
    assert_eq!(plan.deletes[0].pod.uid, "slot-3".into(), "another pod does not wait");
    state.begin(&plan, at(160));
    state.changed(&"slot-3".into(), Changed::Gone, at(160));
    let plan = reconcile(&state, at(161));
    assert_eq!(plan.deletes[0].pod.uid, "slot-0".into());
    state.begin(&plan, at(161));
    state.changed(&"slot-0".into(), Changed::Refused, at(161));
    assert_eq!(reconcile(&state, at(161)).wake_at, Some(at(163)), "its own back-off has doubled");
    assert!(state.job.status.holding(ConditionKind::Suspended).is_some());
}

/// A pod that cannot be released does not keep others from being counted, nor from being replaced.
#[test]
fn a_refused_release_holds_back_no_other_pod() {
    let mut job = started(job(Completion::Count(9), 2));
    let recorded = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    job.status.uncounted = Some(Uncounted { succeeded: recorded(&["slot-0", "slot-1"]), failed: vec![] });
    let mut state = warm(job, slots([0, 1]).into_iter().map(ended_well));
    let plan = reconcile(&state, at(160));
    assert_eq!((plan.releases.len(), plan.creates.len()), (2, 2));
    state.begin(&plan, at(160));
    state.changed(&"slot-0".into(), Changed::Refused, at(160));
    state.changed(&"slot-1".into(), Changed::Released, at(160));
    for new in &plan.creates {
        let pod = slots([new.place.number]).remove(0);
        state.created(new.place, Created::Pod(Box::new(pod)), at(160));
    }
    let plan = reconcile(&state, at(160));
    let status = plan.status.unwrap().status;
    assert_eq!((status.succeeded, status.active, plan.releases.len()), (1, 2, 0));
    assert_eq!(status.uncounted.unwrap().succeeded, ["slot-0".into()]);
    let again = reconcile(&state, at(161)).releases;
    assert_eq!(uids(again.iter().map(|pod| &pod.uid)), ["slot-0"]);
}

#[test]
fn refused_creations_are_repeated_with_back_off() {
    let mut state = state(started(job(Completion::Count(9), 4)), []);
    let mut now = 160;
    for delay in [1, 2, 4] {
        let plan = reconcile(&state, at(now));
        assert_eq!(places(&plan), [(0, 0)], "one at a time");
        state.begin(&plan, at(now));
        state.created(plan.creates[0].place, Created::Refused, at(now));
        let waits = reconcile(&state, at(now));
        assert_eq!((places(&waits), waits.waiting), (vec![], Some(Wait::Refused(at(now + delay)))));
        now += delay;
    }
}

/// A quota may have room again.
#[test]
fn a_pod_that_ends_or_goes_wakes_refused_creations() {
    let job = with(started(job(Completion::Count(9), 4)), |spec| spec.backoff_limit = 100);
    let ends: [fn(&mut JobState, i64); 3] = [
        |state, second| {
            _ = state.observe_pod(but(ended_well(slots([0]).remove(0)), |p| p.version = 9), at(second))
        },
        |state, second| {
            let failed = ended(slots([0]).remove(0), Phase::Failed, 100);
            state.observe_pod(but(failed, |p| p.version = 9), at(second));
        },
        |state, _| _ = state.pod_vanished(&"slot-0".into()),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut state = warm(job.clone(), slots([0]));
        let mut now = 160;
        for delay in [1, 2, 4, 8, 16] {
            let plan = reconcile(&state, at(now));
            let place = plan.creates[0].place;
            state.begin(&plan, at(now));
            plan.creates.iter().for_each(|new| state.created(new.place, Created::Refused, at(now)));
            assert_eq!(reconcile(&state, at(now)).waiting, Some(Wait::Refused(at(now + delay))), "{place:?}");
            now += delay;
        }
        now -= 16;
        end(&mut state, now);
        assert_eq!(
            reconcile(&state, at(now)).waiting,
            Some(Wait::Refused(at(now + 1))),
            "{number}: 1 s at least"
        );
        end(&mut state, now + 5);
        assert!(!reconcile(&state, at(now + 5)).creates.is_empty(), "{number}");
        state.observe_pod(but(running("slot-7"), |p| p.ready_since = Some(at(now).into())), at(now + 5));
        let plan = reconcile(&state, at(now + 5));
        state.begin(&plan, at(now + 5));
        plan.creates.iter().for_each(|new| state.created(new.place, Created::Refused, at(now + 5)));
        let waits = reconcile(&state, at(now + 5)).waiting;
        assert_eq!(waits, Some(Wait::Refused(at(now + 7))), "{number}: the back-off begins anew");
    }
}

/// Its end is news once, however often it is shown until it is evaluated.
#[test]
fn readings_of_pods_that_have_ended_before_wake_no_refused_creations() {
    let job = with(started(job(Completion::Count(9), 4)), |spec| spec.backoff_limit = 1);
    let mut state = warm(job, slots([0, 1, 2]));
    state.limits.debounce_period = Duration::from_secs(2);
    let refused = |state: &mut JobState, second| {
        state.created(Place { number: 7, attempt: 0 }, Created::Refused, at(second));
    };
    [150, 151, 153].iter().for_each(|second| refused(&mut state, *second));
    let newer = |pod: Pod, version| but(pod, |pod| pod.version = version);
    state.observe_pod(newer(ended(slots([0]).remove(0), Phase::Failed, 153), 5), at(153));
    state.observe_pod(newer(ended_well(slots([1]).remove(0)), 5), at(153));
    refused(&mut state, 154);
    for version in [6, 7] {
        state.observe_pod(newer(ended_well(slots([1]).remove(0)), version), at(154));
    }
    assert_eq!(reconcile(&state, at(155)).waiting, Some(Wait::Refused(at(156))), "the second refusal");
}
