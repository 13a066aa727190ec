//! Tables: how many pods a Job has, which ones are created, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fixture::{at, at_index, at_ordinal, but, ended, job, running, state, uids, with};
use crate::job::index_set::IndexSet;
use crate::job::limits::Pace;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::NewPod;
use crate::job::pod::{BackoffRecord, IndexFailures, Phase, Place, Pod};
use crate::job::reconcile::reconcile;
use crate::job::slow_start::SlowStart;
use crate::job::spec::{Completion, Job, PerIndexLimit};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};

fn started(mut job: Job) -> Job {
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    job
}

/// A state whose slow start is over.
fn warm(job: Job, pods: impl IntoIterator<Item = Pod>) -> JobState {
    let mut state = state(job, pods);
    (0..20).for_each(|_| state.slow_start.accepted());
    state
}

fn places(plan: &Plan) -> Vec<(u32, u32)> {
    plan.creates.iter().map(|NewPod { place, .. }| (place.number, place.attempt)).collect()
}

fn slots(numbers: impl IntoIterator<Item = u32>) -> Vec<Pod> {
    numbers.into_iter().map(|number| at_ordinal(&format!("slot-{number}"), number)).collect()
}

/// The write gate prefers Jobs that are near their end.
#[test]
fn each_new_pod_says_how_many_more_the_job_needs() {
    let lacking = |completion| started(job(completion, 5));
    let only_failed = with(lacking(Completion::Count(9)), |spec| spec.replace_only_failed = true);
    let mut leaving = slots([0, 3]);
    leaving[1].deleting = true;
    for (name, state, behind) in [
        ("in all", warm(lacking(Completion::Count(9)), slots([0, 3])), vec![6, 5, 4]),
        ("a slow start", state(lacking(Completion::Count(9)), []), vec![8]),
        ("the last ones", warm(lacking(Completion::Count(3)), slots([1])), vec![1, 0]),
        ("a queue", warm(lacking(Completion::WorkQueue), slots([0, 1])), vec![2, 1, 0]),
        ("one that leaves keeps its place", warm(only_failed, leaving), vec![6, 5, 4]),
    ] {
        let plan = reconcile(&state, at(160));
        assert_eq!(plan.creates.iter().map(|new| new.behind).collect::<Vec<_>>(), behind, "{name}");
    }
}

/// Each case names the created places and the number of removed pods.
#[test]
fn parallelism_and_remaining_completions_decide_the_number_of_pods() {
    use Completion::{Count, Indexed, WorkQueue};
    let succeeded = |mut job: Job, count| {
        job.status.succeeded = count;
        job
    };
    let done = |mut job: Job, indexes| {
        job.status.completed_indexes = IndexSet::parse_lenient(indexes, 100);
        job.status.succeeded = job.status.completed_indexes.len();
        job
    };
    let new = |completion, parallelism| started(job(completion, parallelism));
    let at_indexes = |indexes: &[u32]| -> Vec<Pod> {
        indexes.iter().map(|index| at_index(&format!("i{index}"), *index, 0)).collect()
    };
    for (name, job, pods, created, removed) in [
        ("parallelism", new(Count(9), 3), vec![], vec![0, 1, 2], 0),
        ("the missing ones", new(Count(9), 3), slots([0, 2]), vec![1], 0),
        ("no more than are left to do", succeeded(new(Count(5), 3), 3), vec![], vec![0, 1], 0),
        ("parallelism lowered", new(Count(9), 1), slots([0, 1, 2]), vec![], 2),
        ("parallelism 0", new(Count(9), 0), slots([0, 1, 2]), vec![], 3),
        ("none while suspended", with(new(Count(9), 3), |s| s.suspend = true), slots([0, 1]), vec![], 2),
        ("a queue", new(WorkQueue, 2), vec![], vec![0, 1], 0),
        ("no new pods in a queue with a success", succeeded(new(WorkQueue, 4), 1), slots([0]), vec![], 0),
        ("nor fewer", succeeded(new(WorkQueue, 1), 1), slots([0, 1, 2]), vec![], 0),
        ("the lowest indexes", new(Indexed(9), 3), vec![], vec![0, 1, 2], 0),
        ("indexes that are left", done(new(Indexed(6), 3), "0,2"), at_indexes(&[3]), vec![1, 4], 0),
        ("out of range", new(Indexed(2), 2), at_indexes(&[0, 1, 5]), vec![], 1),
        ("a Job that is being deleted", but_deleting(new(Count(9), 3)), slots([0]), vec![], 0),
    ] {
        let plan = reconcile(&warm(job, pods), at(160));
        let numbers: Vec<u32> = places(&plan).into_iter().map(|(number, _)| number).collect();
        assert_eq!((numbers, plan.deletes.len()), (created, removed), "{name}");
        assert!(plan.deletes.iter().all(|deletion| deletion.forget), "{name}");
    }
}

/// Two owners with different views create the same pod, or one of them creates none.
#[test]
fn an_owner_with_an_outdated_view_creates_no_additional_pods() {
    let knows = |ended: &[u32]| {
        let mut state = warm(started(job(Completion::Count(4), 3)), slots([0, 1, 2]));
        for number in ended {
            let pod = slots([*number]).remove(0);
            state.observe_pod(but(ended_well(pod), |pod| pod.version = 2), at(160));
        }
        places(&reconcile(&state, at(160)))
    };
    assert_eq!(knows(&[]), []);
    assert_eq!(knows(&[1]), [(3, 0)]);
    assert_eq!(knows(&[0, 1]), [(3, 0)], "only two completions are left");
    assert_eq!(knows(&[0, 1, 2]), [(3, 0)]);
}

/// The ordinal of a pod that is gone is not used again; the ordinal of a refused creation is.
#[test]
fn an_ordinal_gets_one_pod() {
    let mut state = warm(started(job(Completion::Count(9), 2)), slots([0, 1]));
    state.pod_vanished(&"slot-0".into());
    let plan = reconcile(&state, at(160));
    assert_eq!(places(&plan), [(2, 0)]);
    state.begin(&plan, at(160));
    state.created(plan.creates[0].place, Created::Refused, at(160));
    assert_eq!(places(&reconcile(&state, at(300))), [(2, 0)]);
}

fn ended_well(pod: Pod) -> Pod {
    ended(pod, Phase::Succeeded, 150)
}

fn but_deleting(mut job: Job) -> Job {
    job.deleting = true;
    job
}

#[test]
fn pods_being_deleted_are_replaced_at_once_unless_only_failed_pods_are_replaced() {
    let leaving = || vec![but(at_index("a", 0, 0), |pod| pod.deleting = true)];
    let job = started(job(Completion::Indexed(2), 1));
    let limits_off =
        |state: &mut JobState| state.limits.pod_failure_backoff.default.initial = std::time::Duration::ZERO;
    let mut at_once = warm(job.clone(), leaving());
    limits_off(&mut at_once);
    assert_eq!(places(&reconcile(&at_once, at(160))), [(0, 1)]);
    let mut later = warm(with(job, |spec| spec.replace_only_failed = true), leaving());
    limits_off(&mut later);
    let plan = reconcile(&later, at(160));
    assert_eq!((places(&plan), plan.waiting), (vec![], Some(Wait::Terminating)));
    later.observe_pod(but(ended(leaving().remove(0), Phase::Failed, 150), |p| p.version = 9), at(161));
    assert_eq!(places(&reconcile(&later, at(161))), [(0, 1)]);
}

/// A pod occupies its place until its removal is answered: no creation overtakes it.
#[test]
fn nothing_is_created_while_a_removal_is_unanswered() {
    let lowered = started(job(Completion::Count(9), 1));
    let mut state = warm(lowered.clone(), slots([0, 1]));
    let plan = reconcile(&state, at(160));
    let removed = plan.deletes[0].pod.uid.clone();
    state.begin(&plan, at(160));
    state.observe_job(with(lowered, |spec| spec.parallelism = 2));
    assert_eq!(places(&reconcile(&state, at(160))), []);
    state.changed(&removed, Changed::Gone, at(161));
    assert_eq!(places(&reconcile(&state, at(161))).len(), 1);
}

/// A creation may be refused, or find its name taken. Then the pods that exist are all that there are.
#[test]
fn no_pod_is_removed_for_the_sake_of_an_unanswered_creation() {
    let wide = started(job(Completion::Count(9), 4));
    let mut state = warm(wide.clone(), slots([0, 1]));
    let plan = reconcile(&state, at(160));
    assert_eq!(places(&plan), [(2, 0), (3, 0)]);
    state.begin(&plan, at(160));
    state.observe_job(with(wide, |spec| spec.parallelism = 2));
    let changes = |state: &JobState| {
        let plan = reconcile(state, at(161));
        (plan.deletes.len(), places(&plan))
    };
    assert_eq!(changes(&state), (0, vec![]), "unanswered");
    state.created(plan.creates[0].place, Created::Refused, at(161));
    assert_eq!(changes(&state), (0, vec![]), "one is refused");
    let made = slots([3]).remove(0);
    state.created(plan.creates[1].place, Created::Pod(Box::new(made)), at(161));
    assert_eq!(changes(&state), (1, vec![]), "the other one is a surplus");

    let mut state = warm(started(job(Completion::Indexed(1), 1)), []);
    let plan = reconcile(&state, at(160));
    assert_eq!(places(&plan), [(0, 0)]);
    state.begin(&plan, at(160));
    state.observe_pod(at_index("of another owner", 0, 1), at(161));
    assert_eq!(changes(&state), (0, vec![]), "another owner knew that the first name is taken");
    state.created(plan.creates[0].place, Created::NameTaken, at(161));
    assert_eq!(changes(&state), (0, vec![]));
}

/// An index gets no new pod while the old one may still be active. Other indexes do not wait for it.
#[test]
fn an_index_is_free_once_its_pod_is_gone() {
    let only_failed = with(started(job(Completion::Indexed(3), 2)), |spec| spec.replace_only_failed = true);
    let leaving = but(at_index("a", 0, 0), |pod| pod.deleting = true);
    assert_eq!(places(&reconcile(&warm(only_failed, [leaving]), at(160))), [(1, 0)]);

    let lowered = started(job(Completion::Indexed(3), 1));
    let mut state = warm(lowered.clone(), [at_index("a", 0, 0), at_index("b", 1, 0)]);
    let plan = reconcile(&state, at(160));
    let removed = plan.deletes[0].pod.uid.clone();
    state.begin(&plan, at(160));
    state.observe_job(with(lowered, |spec| spec.parallelism = 3));
    assert_eq!(places(&reconcile(&state, at(160))), [(2, 0)]);
    state.changed(&removed, Changed::Gone, at(161));
    assert_eq!(places(&reconcile(&state, at(161))).len(), 2);
}

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
fn slow_start_opens_with_every_success_and_closes_with_a_refusal() {
    let mut slow = SlowStart::default();
    assert_eq!(slow.room(0, 500), 1);
    (0..3).for_each(|_| slow.accepted());
    assert_eq!((slow.room(0, 500), slow.room(3, 500), slow.room(0, 2)), (4, 1, 2));
    assert_eq!(slow.room(9, 500), 0);
    slow.refused();
    assert_eq!(slow.room(0, 500), 1);
}

#[test]
fn the_pace_limits_the_number_of_creations_under_way() {
    let mut state = warm(started(job(Completion::Count(9), 9)), []);
    for (at_once, created) in [(2, 2), (5, 3), (5, 0), (usize::MAX, 4)] {
        state.keep_pace(Pace { at_once, status_period: Duration::ZERO, start_period: Duration::ZERO });
        let plan = reconcile(&state, at(160));
        assert_eq!(plan.creates.len(), created, "room for {at_once}");
        state.begin(&plan, at(160));
    }
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

#[test]
fn a_taken_name_is_skipped() {
    let mut state = state(started(job(Completion::Indexed(1), 1)), []);
    let plan = reconcile(&state, at(160));
    state.begin(&plan, at(160));
    state.created(plan.creates[0].place, Created::NameTaken, at(160));
    assert_eq!(places(&reconcile(&state, at(160))), [(0, 1)]);
}

/// 10 s after the end of the pod, then doubling. A success resets the back-off; simultaneous failures count
/// each.
#[test]
fn failed_pods_are_replaced_after_the_back_off() {
    let fails = |uid: &str, second| ended(running(uid), Phase::Failed, second);
    let succeeds = |uid: &str, second| ended(running(uid), Phase::Succeeded, second);
    for (name, pods, waits_until) in [
        ("none", vec![], None),
        ("one", vec![fails("a", 150)], Some(160)),
        ("two", vec![fails("a", 145), fails("b", 150)], Some(170)),
        ("a success after", vec![fails("a", 145), succeeds("b", 150)], None),
        ("a success before", vec![succeeds("a", 145), fails("b", 150)], Some(160)),
    ] {
        let mut state = warm(started(job(Completion::Count(9), 1)), []);
        pods.into_iter().for_each(|pod| _ = state.observe_pod(pod, at(151)));
        let plan = reconcile(&state, at(151));
        let expected = waits_until.map(|second| Wait::PodBackoff(at(second)));
        assert_eq!(
            (places(&plan).len(), plan.waiting),
            (usize::from(expected.is_none()), expected),
            "{name}"
        );
        if let Some(second) = waits_until {
            assert_eq!(plan.wake_at, Some(at(second)), "{name}");
            assert_eq!(places(&reconcile(&state, at(second))).len(), 1, "{name}");
        }
    }
}

/// A new owner restores the back-off from the annotations of pods and from counted pods.
#[test]
fn back_off_survives_a_take_over() {
    let carried = |failures, last| Some(BackoffRecord { failures, last: at(last) });
    let recorded =
        |uid: &str, phase, second| but(ended(running(uid), phase, second), |pod| pod.tracked = false);
    for (name, pods, expected) in [
        ("nothing known", vec![], None),
        (
            "pods that were counted",
            vec![recorded("a", Phase::Failed, 140), recorded("b", Phase::Failed, 150)],
            carried(2, 150),
        ),
        (
            "the back-off that a pod carries",
            vec![but(running("a"), |pod| {
                pod.carried = carried(3, 130).map(|record| Box::new(record.into()))
            })],
            carried(3, 130),
        ),
        (
            "and one failure more",
            vec![but(recorded("a", Phase::Failed, 150), |pod| {
                pod.carried = carried(3, 130).map(|record| Box::new(record.into()))
            })],
            carried(4, 150),
        ),
        (
            "a success since",
            vec![
                but(running("a"), |pod| pod.carried = carried(3, 130).map(|record| Box::new(record.into()))),
                recorded("b", Phase::Succeeded, 140),
            ],
            None,
        ),
        ("a pod that is not evaluated yet", vec![ended(running("a"), Phase::Failed, 150)], carried(1, 150)),
    ] {
        let state = state(started(job(Completion::Count(9), 1)), pods);
        assert_eq!(state.streak_now(at(170)), expected, "{name}");
    }
    let mut state =
        warm(started(job(Completion::Count(9), 2)), vec![ended(running("a"), Phase::Failed, 150)]);
    let plan = reconcile(&state, at(170));
    state.begin(&plan, at(170));
    assert_eq!(plan.creates[0].backoff, carried(1, 150), "new pods carry it on");
    assert_eq!(state.streak_now(at(170)), carried(1, 150), "it is evaluated once");
}

/// A clock that was ahead by hours has shown the failure, and is right again.
#[test]
fn a_back_off_from_a_time_that_is_yet_to_come_is_over() {
    let mut state =
        warm(started(job(Completion::Count(9), 2)), vec![ended(running("a"), Phase::Failed, 90_150)]);
    let plan = reconcile(&state, at(90_150));
    state.begin(&plan, at(90_150));
    assert_eq!(plan.creates.len(), 0, "it waits");
    let plan = reconcile(&state, at(200));
    assert!(!plan.creates.is_empty());
    let failures = state.streak_now(at(200)).map(|streak| streak.failures);
    assert_eq!(failures, Some(1), "the next one waits longer");
}

fn retried(max_failed_indexes: Option<u32>) -> Job {
    with(started(job(Completion::Indexed(3), 2)), |spec| {
        spec.backoff_limit = i32::MAX as u32;
        spec.per_index = Some(PerIndexLimit { backoff_limit: 3, max_failed_indexes });
    })
}

/// The failed pod keeps its finalizer and is not counted until its successor carries its failures.
#[test]
fn the_failures_of_an_index_are_carried_to_the_next_pod() {
    let failed = |uid: &str, attempt, counted, second| {
        but(ended(at_index(uid, 0, attempt), Phase::Failed, second), |pod| {
            pod.index_failures = IndexFailures { counted, ignored: 0 };
        })
    };
    let mut state =
        warm(retried(None), [failed("old", 0, 0, 140), failed("new", 1, 1, 150), at_index("b", 1, 0)]);
    let recorded =
        |state: &JobState| -> Vec<String> { state.pods.to_record().map(|pod| pod.uid.to_string()).collect() };
    assert_eq!(recorded(&state), ["old"], "the last one carries both failures");

    let waits = reconcile(&state, at(160));
    assert_eq!(waits.waiting, Some(Wait::IndexBackoff(at(170))), "20 s after the second failure");
    assert_eq!(waits.wake_at, Some(at(170)));
    assert_eq!(places(&waits), [], "the index keeps its turn: no pod for index 2");

    let plan = reconcile(&state, at(170));
    assert_eq!(places(&plan), [(0, 2)]);
    assert_eq!(plan.creates[0].index_failures, Some(IndexFailures { counted: 2, ignored: 0 }));
    state.begin(&plan, at(170));
    assert_eq!(recorded(&state), ["old"], "its successor may not exist");
    state.created(plan.creates[0].place, Created::Pod(Box::new(at_index("next", 0, 2))), at(171));
    assert_eq!(BTreeSet::from_iter(recorded(&state)), BTreeSet::from(["new", "old"].map(String::from)));
}

#[test]
fn a_suspended_job_removes_its_pods_and_clears_its_start_time() {
    let running_job = started(job(Completion::Count(3), 1));
    let suspended = with(running_job.clone(), |spec| spec.suspend = true);
    let mut state = warm(suspended.clone(), slots([0]));
    let plan = reconcile(&state, at(160));
    assert!(plan.status.is_none() && plan.deletes[0].forget, "{plan:?}");
    state.begin(&plan, at(160));
    state.changed(&plan.deletes[0].pod.uid, Changed::Gone, at(160));
    let write = reconcile(&state, at(161)).status.unwrap();
    assert_eq!((write.status.start_time, write.status.active), (None, 0));
    assert_eq!(&*write.events[0].reason, "Suspended");

    let resumed = Job { status: write.status, ..running_job };
    state.observe_job(resumed);
    let plan = reconcile(&state, at(300));
    assert_eq!(places(&plan).len(), 1);
    let write = plan.status.unwrap();
    assert_eq!(write.status.start_time, Some(at(300)), "the start time is set again");
    assert_eq!(&*write.events[0].reason, "Resumed");
}

#[test]
fn a_job_whose_pods_end_before_its_resume_is_written_was_resumed_all_the_same() {
    let mut suspended = with(job(Completion::Count(1), 1), |spec| spec.suspend = true);
    suspended.status = reconcile(&state(suspended.clone(), []), at(160)).status.unwrap().status;
    let resumed = with(suspended, |spec| spec.suspend = false);
    let mut state = warm(resumed.clone(), []);
    let plan = Plan { status: None, ..reconcile(&state, at(170)) };
    state.begin(&plan, at(170));
    let pod = ended(at_ordinal("done", 0), Phase::Succeeded, 171);
    state.created(plan.creates[0].place, Created::Pod(Box::new(pod)), at(171));
    let write = reconcile(&state, at(180)).status.unwrap();
    let condition = write.status.condition(ConditionKind::Suspended).unwrap();
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "JobResumed"));
    assert_eq!(write.status.start_time, Some(at(170)));
    assert_eq!(&*write.events[0].reason, "Resumed");

    // As with the built-in controller, one that has nothing to do ends as it is.
    let mut done = resumed;
    done.status.succeeded = 1;
    let status = reconcile(&self::state(done, []), at(170)).status.unwrap().status;
    assert!(status.holding(ConditionKind::Suspended).is_some());
}

/// No status is written for the start time alone.
#[test]
fn a_job_that_is_resumed_while_it_is_deleted_does_not_start() {
    let mut job = with(job(Completion::Count(3), 1), |spec| spec.suspend = true);
    job.status = reconcile(&state(job.clone(), []), at(160)).status.unwrap().status;
    let resumed = but_deleting(with(job, |spec| spec.suspend = false));
    assert_eq!(reconcile(&state(resumed, []), at(170)).status, None);
}

/// Only the change of the condition clears it.
#[test]
fn a_suspended_job_keeps_a_start_time_that_somebody_has_written() {
    let mut job = with(job(Completion::Count(3), 1), |spec| spec.suspend = true);
    job.status = reconcile(&state(job.clone(), []), at(160)).status.unwrap().status;
    job.status.start_time = Some(at(100));
    assert_eq!(reconcile(&state(job.clone(), []), at(170)).status, None);
    job.status.active = 7;
    let status = reconcile(&state(job, []), at(170)).status.unwrap().status;
    assert_eq!((status.active, status.start_time), (0, Some(at(100))));
}

#[test]
fn a_job_created_suspended_reports_it_and_does_not_start() {
    let plan = reconcile(&state(with(job(Completion::Count(3), 1), |spec| spec.suspend = true), []), at(160));
    let write = plan.status.unwrap();
    assert!(plan.creates.is_empty());
    assert_eq!(write.status.start_time, None);
    assert_eq!(&*write.status.conditions[0].reason, "JobSuspended");
    let plain = reconcile(&state(job(Completion::Count(3), 1), []), at(160));
    assert_eq!(plain.status.map(|write| write.status.conditions), None, "no status without a suspension");
}
