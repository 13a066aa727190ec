//! The doubts about a status after pods were released by others.

use super::fixture::{at, at_index, but, ended, job, quiet, running, state};
use crate::job::pod::{Phase, Pod};
use crate::job::pod_set::PendingRequest;
use crate::job::spec::Completion;
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::UidSet;
use crate::job::verdict::condition;

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
