//! Results of indexes, which the status brings that records their pods.

use super::fixture::{at, at_index, but, ended, job, state};
use crate::job::options::JobOptions;
use crate::job::pod::{ContainerExit, Outcome, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::{JobStatus, Uncounted};

fn keeping(completions: u32) -> Job {
    let mut job = job(Completion::Indexed(completions), completions);
    job.options = JobOptions::read([("yardmaster.dev/index-results", "true")]);
    job.status.start_time = Some(at(0));
    job.status.uncounted = Some(Uncounted::default());
    job
}

fn failed(pod: Pod, second: i64, exit_code: i32) -> Pod {
    let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
    let outcome = Outcome { containers: vec![exit], ..Outcome::default() };
    but(ended(pod, Phase::Failed, second), |pod| pod.outcome = Some(Box::new(outcome)))
}

/// The status that is written a while after this second.
fn written(state: &mut JobState, second: i64) -> JobStatus {
    let plan = reconcile(state, at(second));
    state.begin(&plan, at(second));
    plan.status.or_else(|| reconcile(state, at(second + 2)).status).expect("a status is due").status
}

fn results(status: &JobStatus) -> String {
    status.results.as_deref().unwrap_or_default().to_owned()
}

#[test]
fn the_status_that_records_a_pod_has_its_result() {
    let created = |pod: Pod, second| but(pod, |pod| pod.created = at(second).into());
    let succeeded = created(ended(at_index("a", 0, 0), Phase::Succeeded, 40), 5);
    let fails = created(failed(at_index("b", 1, 0), 30, 3), 5);
    let mut first = state(keeping(3), [succeeded, fails, at_index("c", 2, 0)]);
    let status = written(&mut first, 50);
    assert_eq!(results(&status), "0:0@5+35 1:3@5+25");
    assert_eq!(status.uncounted.as_ref().unwrap().failed.len(), 1, "both are in one write");

    // The next owner finds the annotation, and not the first pod of index 1.
    let again = created(ended(at_index("d", 1, 1), Phase::Succeeded, 70), 60);
    let mut next = state(Job { status, ..keeping(3) }, [again, at_index("c", 2, 0)]);
    assert_eq!(results(&written(&mut next, 80)), "0:0@5+35 1:0x2@60+10");
}

#[test]
fn a_pod_without_exit_code_is_a_try_and_other_jobs_keep_nothing() {
    let deleted = || but(at_index("a", 0, 0), |pod| (pod.deleting, pod.finished) = (true, at(20).into()));
    let mut lost = state(keeping(2), [deleted(), at_index("b", 1, 0)]);
    assert_eq!(results(&written(&mut lost, 50)), "0:-@0+20");
    let without = Job { options: JobOptions::default(), ..keeping(2) };
    let mut none = state(without, [deleted(), at_index("b", 1, 0)]);
    assert_eq!(results(&written(&mut none, 50)), "");
    assert_eq!(none.pods.exit_code(&"a".into()), None);
}

/// A pod that was given up succeeds before its object goes: it is one try, and completes the index.
#[test]
fn a_pod_that_has_been_recorded_is_no_other_try() {
    let mut before = keeping(2);
    before.status.results = Some("0:-@0+20".into());
    before.status.uncounted = Some(Uncounted { succeeded: Vec::new(), failed: vec!["a".into()] });
    let succeeded = ended(at_index("a", 0, 0), Phase::Succeeded, 40);
    let mut state = state(before, [succeeded, at_index("b", 1, 0)]);
    let status = written(&mut state, 50);
    assert!(status.completed_indexes.contains(0));
    assert_eq!(results(&status), "0:0@0+40");
}

#[test]
fn a_surplus_pod_of_a_complete_index_changes_its_tries_alone() {
    let mut before = keeping(2);
    before.status.results = Some("0:0@0+20".into());
    (before.status.succeeded, before.status.completed_indexes) = (1, [0].into_iter().collect());
    let mut state = state(before, [failed(at_index("late", 0, 0), 40, 3), at_index("b", 1, 0)]);
    assert_eq!(results(&written(&mut state, 50)), "0:0x2@0+20");
}
