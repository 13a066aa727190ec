//! The condition that says why a Job does not go on.

use super::fixture::{at, ended, job, running, state};
use crate::job::options::JobOptions;
use crate::job::plan::Plan;
use crate::job::pod::{Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::{Changed, JobState};
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};

fn telling(pods: impl IntoIterator<Item = Pod>) -> JobState {
    let mut job = job(Completion::Count(1), 1);
    job.options = JobOptions::read([("yardmaster.dev/waiting-condition", "true")]);
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    state(job, pods)
}

/// Plans at this second, and lets the API server take the status and the releases. Returns what the condition says then.
fn shown(state: &mut JobState, second: i64) -> Option<(ConditionStatus, String)> {
    let plan: Plan = reconcile(state, at(second));
    state.begin(&plan, at(second));
    if let Some(write) = plan.status {
        state.observe_job(Job { status: write.status, ..state.job.clone() });
        state.status_written(at(second));
    }
    plan.releases.iter().for_each(|pod| state.changed(&pod.uid, Changed::Released, at(second)));
    let condition = state.job.status.condition(ConditionKind::Waiting)?;
    Some((condition.status, condition.reason.to_string()))
}

#[test]
fn a_reason_is_shown_once_it_lasts() {
    let mut state = telling([ended(running("a"), Phase::Failed, 200)]);
    let backoff = Some((ConditionStatus::True, "PodBackoff".to_owned()));
    // The back-off is over at second 210, ten seconds after the wait began.
    assert_eq!([200, 205].map(|second| shown(&mut state, second)), [None, None]);
    let mut longer = telling([
        ended(running("a"), Phase::Failed, 200),
        ended(running("b"), Phase::Failed, 200),
        ended(running("c"), Phase::Failed, 200),
    ]);
    assert_eq!([200, 209, 211].map(|second| shown(&mut longer, second)), [None, None, backoff.clone()]);
    assert_eq!(shown(&mut longer, 239), backoff);
    let created = reconcile(&longer, at(240)).creates;
    assert_eq!(created.len(), 1, "the back-off is over");
    assert_eq!(shown(&mut longer, 241), Some((ConditionStatus::False, "NotWaiting".to_owned())));
}

#[test]
fn the_condition_does_not_change_again_soon() {
    let mut state = telling([running("a")]);
    assert_eq!(shown(&mut state, 200), None, "a Job that never waited says nothing");
    for (pod, number) in ["a", "b", "c"].into_iter().zip(0_u8..) {
        state.observe_pod(ended(running(pod), Phase::Failed, 200 + i64::from(number)), at(205));
    }
    let waits = Some((ConditionStatus::True, "PodBackoff".to_owned()));
    assert_eq!([205, 216].map(|second| shown(&mut state, second)), [None, waits.clone()]);
    state.observe_pod(running("d"), at(220));
    assert_eq!(shown(&mut state, 221), waits, "it was shown five seconds ago");
    assert_eq!(shown(&mut state, 247), Some((ConditionStatus::False, "NotWaiting".to_owned())));
}

#[test]
fn a_job_that_has_ended_waits_for_nothing() {
    let mut state =
        telling([ended(running("a"), Phase::Failed, 200), ended(running("b"), Phase::Failed, 200)]);
    let waits = Some((ConditionStatus::True, "PodBackoff".to_owned()));
    assert_eq!([200, 211].map(|second| shown(&mut state, second)), [None, waits]);
    state.observe_pod(ended(running("c"), Phase::Succeeded, 212), at(212));
    let over = Some((ConditionStatus::False, "NotWaiting".to_owned()));
    for second in 213..240 {
        shown(&mut state, second);
    }
    assert!(state.job.status.finished().is_some(), "{:?}", state.job.status);
    assert_eq!(shown(&mut state, 240), over);
}
