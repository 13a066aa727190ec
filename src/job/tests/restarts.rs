//! Jobs whose pods are replaced together.

use std::sync::Arc;

use super::fixture::{at, at_index, at_ms, but, ended, job, state, uids, with};
use crate::job::limits::Limits;
use crate::job::lineage::Lineage;
use crate::job::options::JobOptions;
use crate::job::plan::{Plan, Wait};
use crate::job::pod::{BackoffRecord, Carried, ContainerExit, Outcome, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job, PodFailureAction, PodFailurePattern, PodFailureRule};
use crate::job::state::{Changed, JobState};
use crate::job::status::{ConditionKind, Uncounted};
use crate::job::uid::UidSet;

/// A started Job of three pods at once that restarts together, with these further options.
fn together(options: &[(&str, &str)]) -> Job {
    let mut job = job(Completion::Indexed(3), 3);
    let all = [("yardmaster.dev/restart-together", "true")].into_iter().chain(options.iter().copied());
    job.options = JobOptions::read(all);
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    (job.status.active, job.status.ready, job.status.terminating) = (3, Some(0), Some(0));
    job
}

fn of_attempt(pod: Pod, attempt: u32) -> Pod {
    let lineage = Lineage { attempt, ..Lineage::default() };
    but(pod, |pod| pod.carried = Some(Box::new(Carried::of(None, &lineage))))
}

/// The pods of an attempt at the three indexes. The first has ended at second 150.
fn pods(attempt: u32, phase: Option<Phase>) -> [Pod; 3] {
    let pods =
        [0, 1, 2].map(|index| of_attempt(at_index(&format!("{attempt}-{index}"), index, attempt), attempt));
    match phase {
        Some(phase) => {
            let [first, second, third] = pods;
            [ended(first, phase, 150), second, third]
        }
        None => pods,
    }
}

fn removed(plan: &Plan) -> Vec<String> {
    assert!(plan.deletes.iter().all(|deletion| deletion.forget), "none counts as failed");
    let mut removed = uids(plan.deletes.iter().map(|deletion| &deletion.pod.uid));
    removed.sort();
    removed
}

fn attempts(plan: &Plan) -> Vec<(u32, u32)> {
    let attempt =
        |lineage: &Option<Arc<Lineage>>| lineage.as_deref().map_or(0, |lineage: &Lineage| lineage.attempt);
    plan.creates.iter().map(|new| (new.place.number, attempt(&new.lineage))).collect()
}

fn end_reason(plan: &Plan) -> Option<String> {
    let status = &plan.status.as_ref()?.status;
    status.holding(ConditionKind::FailureTarget).map(|condition| condition.reason.to_string())
}

#[test]
fn a_failed_pod_has_all_others_removed_and_the_status_says_so_at_once() {
    let state = state(together(&[]), pods(0, Some(Phase::Failed)));
    let plan = reconcile(&state, at(150));
    assert_eq!(removed(&plan), ["0-1", "0-2"]);
    assert_eq!((attempts(&plan), plan.waiting), (vec![], Some(Wait::Restarting)));
    let written = plan.status.unwrap();
    let uncounted = written.status.uncounted.unwrap();
    assert_eq!((written.status.restarts, uids(&uncounted.failed)), (1, vec!["0-0".to_owned()]));
    assert_eq!(written.events[0].message.as_ref(), "Restarting all pods: restart 1");
}

/// The back-off of the first restart is short, unless the Job names another.
#[test]
fn the_pods_of_the_next_attempt_come_once_the_old_ones_have_ended() {
    for (options, expected) in
        [(&[][..], None), (&[("yardmaster.dev/backoff-initial", "40s")][..], Some(Wait::PodBackoff(at(190))))]
    {
        let mut state = state(together(options), pods(0, Some(Phase::Failed)));
        (0..9).for_each(|_| state.slow_start.accepted());
        state.begin(&reconcile(&state, at(150)), at(150));
        for uid in ["0-1", "0-2"] {
            let leaving = but(state.pods.get(&uid.into()).unwrap().clone(), |pod| {
                (pod.deleting, pod.tracked, pod.version) = (true, false, pod.version + 5);
            });
            state.changed(&uid.into(), Changed::Pod(Box::new(leaving)), at(151));
        }
        let plan = reconcile(&state, at(151));
        assert_eq!((removed(&plan), attempts(&plan)), (vec![], vec![]), "they have not ended");
        assert_eq!(plan.waiting, Some(Wait::Restarting));
        state.pod_vanished(&"0-1".into());
        assert_eq!(reconcile(&state, at(152)).waiting, Some(Wait::Restarting));
        state.pod_vanished(&"0-2".into());
        let plan = reconcile(&state, at(152));
        assert_eq!(plan.waiting, expected);
        let all = if expected.is_none() { vec![(0, 1), (1, 1), (2, 1)] } else { vec![] };
        assert_eq!(attempts(&plan), all);
        assert_eq!(attempts(&reconcile(&state, at(190))), [(0, 1), (1, 1), (2, 1)]);
    }
}

/// An owner goes on with the same attempt, however far the restart has come.
#[test]
fn every_owner_finds_the_same_attempt() {
    let [failed, second, third] = pods(0, Some(Phase::Failed));
    let recorded = |mut job: Job| {
        job.status.restarts = 1;
        job.status.uncounted = Some(Uncounted { failed: vec!["0-0".into()], succeeded: vec![] });
        job
    };
    let leaving = but(second.clone(), |pod| (pod.deleting, pod.tracked) = (true, false));
    let next = of_attempt(at_index("1-2", 2, 1), 1);
    for (what, job, pods, removes) in [
        (
            "before anything",
            together(&[]),
            vec![failed.clone(), second.clone(), third.clone()],
            &["0-1", "0-2"][..],
        ),
        ("a removal has begun", together(&[]), vec![failed.clone(), leaving, third.clone()], &["0-2"]),
        ("the failure is recorded", recorded(together(&[])), vec![second.clone(), third], &["0-1", "0-2"]),
        ("nothing is left", recorded(together(&[])), vec![], &[]),
        ("a new pod alone shows it", together(&[]), vec![second, next], &["0-1"]),
    ] {
        let state = state(job, pods);
        assert_eq!(state.pods.restarts_together(), 1, "{what}");
        let plan = reconcile(&state, at(160));
        assert_eq!(removed(&plan), removes, "{what}");
        assert!(attempts(&plan).iter().all(|(_, attempt)| *attempt == 1), "{what}");
    }
}

#[test]
fn only_failures_that_count_restart() {
    let exits = |action, code| PodFailureRule {
        action,
        on: PodFailurePattern::ExitCodes { container: None, inside: true, values: [code].into() },
    };
    let with_policy = with(together(&[]), |spec| {
        let rules =
            [(PodFailureAction::Ignore, 7), (PodFailureAction::FailJob, 8), (PodFailureAction::Count, 9)];
        spec.pod_failure_policy = Some(rules.into_iter().map(|(action, code)| exits(action, code)).collect());
        spec.replace_only_failed = true;
    });
    let with_code = |exit_code| {
        let [failed, second, third] = pods(0, Some(Phase::Failed));
        let exit = ContainerExit { name: "main".into(), exit_code, out_of_memory: false };
        let outcome = Outcome { containers: vec![exit], ..Outcome::default() };
        [but(failed, |pod| pod.outcome = Some(Box::new(outcome))), second, third]
    };
    for (code, restarts, reason) in
        [(7, 0, None), (8, 0, Some("PodFailurePolicy")), (9, 1, None), (1, 1, None)]
    {
        let state = state(with_policy.clone(), with_code(code));
        assert_eq!(state.pods.restarts_together(), restarts, "{code}");
        let plan = reconcile(&state, at(170));
        assert_eq!(end_reason(&plan).as_deref(), reason, "{code}");
        assert_eq!(removed(&plan).len(), 2 * restarts as usize, "{code}");
        assert_eq!(
            attempts(&plan).len(),
            usize::from(code == 7),
            "{code}: an ignored failure is replaced alone"
        );
    }
}

/// Other failures of an attempt that is over do not count as restarts, and neither do the removals.
#[test]
fn one_attempt_is_restarted_once() {
    let [failed, second, third] = pods(0, Some(Phase::Failed));
    let all_fail = [failed, ended(second, Phase::Failed, 151), ended(third, Phase::Failed, 155)];
    let state = state(together(&[("yardmaster.dev/max-restarts", "1")]), all_fail);
    let plan = reconcile(&state, at(160));
    assert_eq!((state.pods.restarts_together(), end_reason(&plan)), (1, None));
    assert_eq!(attempts(&plan)[0], (0, 1));
}

/// A Job whose pods fail at once would otherwise create pods as fast as the API server lets it.
#[test]
fn restarts_in_a_row_wait_longer_and_longer() {
    let many = [("yardmaster.dev/max-restarts", "999999999")];
    let failures = |failures| BackoffRecord { failures, last: at(150) };
    for (before, waits_until) in [(0, 151), (1, 152), (4, 166), (40, 750)] {
        let carried = |pod: Pod| {
            but(pod, |pod| {
                let lineage = Lineage { attempt: before, ..Lineage::default() };
                let backoff = (before > 0).then(|| failures(before));
                pod.carried = Some(Box::new(Carried::of(backoff, &lineage)));
            })
        };
        let [first, second, third] = pods(before, Some(Phase::Failed)).map(carried);
        let mut state = state(together(&many), [second.clone(), third.clone()]);
        state.observe_pod(ended(second, Phase::Succeeded, 150), at(150));
        state.observe_pod(first, at(150));
        state.observe_pod(ended(third, Phase::Failed, 150), at(150));
        let plan = reconcile(&state, at(150));
        let expected = (vec![], Some(Wait::PodBackoff(at(waits_until))));
        assert_eq!((attempts(&plan), plan.waiting), expected, "{before}");
        assert_eq!(attempts(&reconcile(&state, at(waits_until)))[0], (0, before + 1), "{before}");
    }
}

/// A webhook may drop the attempt of each new pod, which is then removed again.
#[test]
fn the_end_of_a_pod_of_an_earlier_attempt_does_not_shorten_the_wait_after_refusals() {
    for (attempt, until) in [(0, 109), (1, 106)] {
        let mut job = together(&[]);
        job.status.restarts = 1;
        let mut state = state(job, pods(attempt, None));
        let delays = state.limits.api_backoff;
        for second in [100, 102, 105] {
            state.create_retry.refused(delays, at(second));
        }
        state.pod_vanished(&format!("{attempt}-0").as_str().into());
        assert_eq!(state.create_retry.waits(at(105)), Some(at(until)), "{attempt}");
    }
}

#[test]
fn a_restart_too_many_fails_the_job() {
    let limit = |most: &[(&str, &str)], backoff_limit| {
        with(together(most), |spec| spec.backoff_limit = backoff_limit)
    };
    let two = [("yardmaster.dev/max-restarts", "2")];
    for (job, attempt, fails) in [
        (limit(&two, 0), 1, false),
        (limit(&two, 9), 2, true),
        (limit(&[("yardmaster.dev/max-restarts", "0")], 9), 0, true),
        (limit(&[], 3), 2, false),
        (limit(&[], 3), 3, true),
    ] {
        let mut state = state(job, pods(attempt, Some(Phase::Failed)));
        state.job.status.failed = 20;
        let plan = reconcile(&state, at(160));
        let reason = fails.then(|| "MaxRestartsExceeded".to_owned());
        assert_eq!(end_reason(&plan), reason, "{attempt} {:?}", state.job.options);
    }
}

/// While the failure waits for others, nothing says that the Job restarts.
#[test]
fn a_restart_too_many_is_not_announced() {
    for (most, restarts, events) in [("0", 0, 0), ("1", 1, 1)] {
        let mut state = JobState::new(together(&[("yardmaster.dev/max-restarts", most)]), Limits::default());
        pods(0, Some(Phase::Failed)).into_iter().for_each(|pod| _ = state.observe_pod(pod, at(150)));
        state.pods_listed(&UidSet::default(), 0);
        let announced = [at_ms(150_000), at_ms(150_900)].map(|now| {
            let plan = reconcile(&state, now);
            let announced = plan.status.as_ref().map(|write| (write.status.restarts, write.events.len()));
            state.begin(&plan, now);
            announced.unwrap_or_default()
        });
        assert_eq!(announced.into_iter().max(), Some((restarts, events)), "{most}");
    }
}

#[test]
fn a_lost_pod_restarts_as_a_failed_one_does() {
    let deleted = pods(0, None)
        .map(|pod| if &*pod.uid.to_string() == "0-0" { but(pod, |p| p.deleting = true) } else { pod });
    let by_a_user = state(together(&[]), deleted);
    assert_eq!(removed(&reconcile(&by_a_user, at(160))), ["0-1", "0-2"]);
    let mut without_a_trace = state(together(&[]), pods(0, None));
    without_a_trace.pod_vanished(&"0-0".into());
    assert_eq!(removed(&reconcile(&without_a_trace, at(160))), ["0-1", "0-2"]);
    let mut not_ours = state(with(together(&[]), |spec| spec.suspend = true), pods(0, None));
    let plan = reconcile(&not_ours, at(160));
    assert_eq!(removed(&plan).len(), 3);
    not_ours.begin(&plan, at(160));
    not_ours.pods_listed(&UidSet::default(), 99);
    assert_eq!(not_ours.pods.restarts_together(), 0, "pods that we remove are not lost");
}

/// The completed indexes of the status that is written a while after this second.
fn recorded_indexes(mut state: JobState, second: i64) -> String {
    let plan = reconcile(&state, at(second));
    state.begin(&plan, at(second));
    let written = plan.status.or_else(|| reconcile(&state, at(second + 2)).status);
    written.expect("the number of pods has changed").status.completed_indexes.to_string()
}

/// A status cannot take a success back. So it waits until no restart can make it vain.
#[test]
fn successes_count_once_all_pods_of_an_attempt_have_succeeded() {
    let succeeded = |attempt| pods(attempt, Some(Phase::Succeeded));
    let keeps = [("yardmaster.dev/restart-keep-succeeded", "true")];
    assert_eq!(recorded_indexes(state(together(&keeps), succeeded(0)), 400), "0");
    assert_eq!(recorded_indexes(state(together(&[]), succeeded(0)), 400), "", "another pod may fail");
    let all = pods(0, None).map(|pod| ended(pod, Phase::Succeeded, 150));
    let complete = state(together(&[]), all);
    let status = reconcile(&complete, at(400)).status.unwrap().status;
    assert!(status.holding(ConditionKind::SuccessCriteriaMet).is_some());
    assert_eq!(status.completed_indexes.to_string(), "0-2");
}

/// Deletion in the foreground waits for the finalizers of the pods.
#[test]
fn a_job_that_is_deleted_records_and_releases_its_successes() {
    let job = Job { deleting: true, ..together(&[]) };
    let mut before = state(job.clone(), pods(0, Some(Phase::Succeeded)));
    let plan = reconcile(&before, at(400));
    before.begin(&plan, at(400));
    let written = plan.status.or_else(|| reconcile(&before, at(402)).status).unwrap().status;
    assert_eq!(written.completed_indexes.to_string(), "0");
    let recorded = state(Job { status: written, ..job }, pods(0, Some(Phase::Succeeded)));
    let released = uids(reconcile(&recorded, at(403)).releases.iter().map(|pod| &pod.uid));
    assert!(released.contains(&"0-0".to_owned()), "{released:?}");
}

#[test]
fn after_a_restart_indexes_run_again_unless_their_successes_are_kept() {
    let [succeeded, second, third] = pods(0, Some(Phase::Succeeded));
    let pods = [succeeded, ended(second, Phase::Failed, 160), ended(third, Phase::Failed, 160)];
    for (options, runs, releases) in [
        (&[][..], vec![(0, 1), (1, 1), (2, 1)], &["0-0"][..]),
        (&[("yardmaster.dev/restart-keep-succeeded", "true")][..], vec![(1, 1), (2, 1)], &[]),
    ] {
        let mut state = state(together(options), pods.clone());
        (0..9).for_each(|_| state.slow_start.accepted());
        let plan = reconcile(&state, at(161));
        assert_eq!(attempts(&plan), runs, "{options:?}");
        assert_eq!(uids(plan.releases.iter().map(|pod| &pod.uid)), releases, "{options:?}");
    }
}
