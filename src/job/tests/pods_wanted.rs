//! Tables: how many pods a Job has, which ones are created, and when.

mod back_off;
mod refusals;
mod suspension;

use std::time::Duration;

use super::fixture::{at, at_index, at_ordinal, but, ended, job, state, with};
use crate::job::index_set::IndexSet;
use crate::job::limits::Pace;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::{NewPod, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::slow_start::SlowStart;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, Created, JobState};
use crate::job::status::Uncounted;

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
        assert_eq!(plan.creates.iter().map(|new| new.behind.in_all).collect::<Vec<_>>(), behind, "{name}");
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
fn a_taken_name_is_skipped() {
    let mut state = state(started(job(Completion::Indexed(1), 1)), []);
    let plan = reconcile(&state, at(160));
    state.begin(&plan, at(160));
    state.created(plan.creates[0].place, Created::NameTaken, at(160));
    assert_eq!(places(&reconcile(&state, at(160))), [(0, 1)]);
}
