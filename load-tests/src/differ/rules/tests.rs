#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::differ::pair::Outcome;
use crate::differ::plan::{Act, Plan};
use crate::differ::state::{Names, Objects};

/// A side with a Job and this many running pods.
fn state(suspend: bool, status: &Value, running: usize) -> State {
    let job = json!({"metadata": {"name": "j1", "uid": "u"}, "spec": {"suspend": suspend}, "status": status});
    let pod = json!({
        "metadata": {"ownerReferences": [{"name": "j1", "controller": true}]}, "status": {"phase": "Running"},
    });
    let objects = Objects {
        jobs: vec![Arc::new(job)],
        pods: vec![pod; running].into_iter().map(Arc::new).collect(),
        events: Vec::new(),
    };
    State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
}

fn played(changes: &[(Class, Change)], before: State, sides: [State; 2], healed: Option<f64>) -> Played {
    let act = |(class, change): &(Class, Change)| Act {
        after_ms: 0,
        what: What::Pods { pick: Pick::Class(class.clone()), count: 1, change: change.clone() },
    };
    let steps = vec![Step(changes.iter().map(act).collect())];
    let [reference, ours] = sides;
    let mut difference = Difference::between(&reference, &ours).unwrap();
    difference.healed_after_s = healed;
    Played {
        plan: Plan { seed: 0, jobs: vec![json!({})], steps },
        before: vec![before],
        outcome: Outcome::Different(Box::new(difference)),
        shown: None,
    }
}

#[test]
fn a_rule_explains_its_differences_and_no_others() {
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}], "startTime": "t"});
    let target = json!({"conditions": [{"type": "FailureTarget", "status": "True"}]});
    let ends = json!({"conditions": target["conditions"], "startTime": "t"});
    let terminating = Class { terminating: true, job: "j1".into(), ..Class::default() };
    let of_another = Class { job: "j2".into(), ..terminating.clone() };
    let fail = |end| Change::Fail { code: 1, init: 0, condition: None, end };
    let active = |active: u64, failed: u64| json!({"active": active, "failed": failed});
    let class = Class::default();
    let (disown, delete) = (Change::Disown, Change::Delete { forced: false });
    for (changes, sides, healed, explained) in [
        (
            vec![(terminating, disown.clone())],
            [state(false, &active(1, 0), 1), state(false, &active(0, 1), 1)],
            None,
            Some(Known::OwnerRemovedFromTerminatingPod),
        ),
        (
            vec![(of_another, disown.clone())],
            [state(false, &active(1, 0), 1), state(false, &active(0, 1), 1)],
            None,
            None,
        ),
        (
            vec![(class.clone(), disown)],
            [state(false, &active(1, 0), 1), state(false, &active(0, 1), 1)],
            None,
            None,
        ),
        (
            vec![],
            [state(true, &json!({}), 0), state(true, &failed, 0)],
            None,
            Some(Known::EndsWhileSuspended),
        ),
        (vec![], [state(false, &json!({}), 0), state(false, &failed, 0)], None, None),
        (vec![], [state(true, &target, 0), state(true, &ends, 0)], None, Some(Known::EndsWhileSuspended)),
        (vec![], [state(false, &target, 0), state(false, &ends, 0)], None, None),
        (
            vec![(class.clone(), fail(End::Now))],
            [state(false, &active(0, 1), 2), state(false, &active(2, 1), 2)],
            Some(8.0),
            Some(Known::ActiveDuringBackoff),
        ),
        (
            vec![(class.clone(), delete.clone())],
            [state(false, &active(0, 0), 2), state(false, &active(2, 0), 2)],
            Some(5.0),
            Some(Known::ActiveDuringBackoff),
        ),
        (
            vec![(class.clone(), fail(End::Past))],
            [state(false, &active(2, 1), 2), state(false, &active(1, 1), 2)],
            None,
            None,
        ),
        (
            vec![(class.clone(), fail(End::Past)), (class.clone(), delete.clone())],
            [state(false, &active(2, 2), 2), state(false, &active(1, 2), 1)],
            Some(7.0),
            Some(Known::BackoffFromNewestFailure),
        ),
        (
            vec![(class.clone(), fail(End::Past)), (class, delete)],
            [state(false, &active(2, 2), 2), state(false, &active(1, 2), 1)],
            None,
            None,
        ),
    ] {
        let about = format!("{changes:?} {sides:?}");
        let played = played(&changes, State::default(), sides, healed);
        assert_eq!(Known::explaining(&played), explained, "{about}");
    }
}

#[test]
fn a_job_that_loses_its_pods_first_may_end_before_it_is_gone() {
    let side = |reasons: &[&str]| {
        let about = json!({"kind": "Job", "name": "j1"});
        let event = |reason: &&str| json!({"involvedObject": about, "type": "Normal", "reason": reason});
        let events = reasons.iter().map(event).map(Arc::new).collect();
        let objects = Objects { jobs: Vec::new(), pods: Vec::new(), events };
        State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
    };
    let (orphan, background) = (Propagation::Orphan, Propagation::Background);
    for (propagation, ours, known) in [
        (orphan, "BackoffLimitExceeded", true),
        (Propagation::Foreground, "Completed", true),
        (orphan, "SuccessfulDelete", false),
        (background, "BackoffLimitExceeded", false),
    ] {
        let sides = [side(&["SuccessfulCreate"]), side(&["SuccessfulCreate", ours])];
        let mut played = played(&[], State::default(), sides, None);
        let what = What::Delete { job: 0, propagation };
        played.plan.steps = vec![Step(vec![Act { after_ms: 0, what }])];
        assert_eq!(Known::explaining(&played) == Some(Known::EndsBeforeItIsGone), known, "{played:?}");
    }
}

#[test]
fn a_pod_without_label_that_is_counted_or_leaves_may_be_released_later() {
    let side = |owned: bool, selected: bool, more: &Value| {
        let owners = if owned { json!([{"name": "j1", "controller": true}]) } else { json!([]) };
        let mut labels = json!({"batch.kubernetes.io/job-name": "j1"});
        if selected {
            labels["batch.kubernetes.io/controller-uid"] = "u".into();
        }
        let mut pod = json!({"metadata": {"labels": labels, "ownerReferences": owners}, "status": {}});
        if owned {
            pod["metadata"]["finalizers"] = more["finalizers"].clone();
        }
        pod["metadata"]["deletionTimestamp"] = more["deletionTimestamp"].clone();
        pod["status"]["phase"] = more["phase"].clone();
        let job = json!({"metadata": {"name": "j1", "uid": "u"}, "status": {"failed": 1}});
        let objects = Objects { jobs: vec![job.into()], pods: vec![pod.into()], events: Vec::new() };
        State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
    };
    let counted = json!({"phase": "Failed"});
    let leaving = json!({"phase": "Pending", "deletionTimestamp": "t", "finalizers": ["f"]});
    let running = json!({"phase": "Running", "deletionTimestamp": "t", "finalizers": ["f"]});
    let active = json!({"phase": "Pending"});
    for (pod, selected, healed, known) in [
        (&counted, false, Some(9.0), true),
        (&counted, false, None, true),
        (&counted, true, Some(9.0), false),
        (&leaving, false, Some(9.0), true),
        (&leaving, false, None, false),
        (&running, false, Some(9.0), false),
        (&active, false, Some(9.0), false),
    ] {
        let sides = [side(false, selected, pod), side(true, selected, pod)];
        let played = played(&[], State::default(), sides, healed);
        assert_eq!(Known::explaining(&played) == Some(Known::ReleasedLater), known, "{played:?}");
    }
}

/// Sides with Jobs, each with this number of running pods and these Events.
fn side_with(jobs: &[(&str, usize, &[&str])]) -> State {
    let mut objects = Objects { jobs: Vec::new(), pods: Vec::new(), events: Vec::new() };
    for (name, active, messages) in jobs {
        let job = json!({"metadata": {"name": name, "uid": name}, "status": {"active": active}});
        objects.jobs.push(job.into());
        let owners = json!([{"name": name, "controller": true}]);
        let pod = json!({"metadata": {"ownerReferences": owners}, "status": {"phase": "Running"}});
        let pod = Arc::new(pod);
        objects.pods.extend(std::iter::repeat_n(pod, *active));
        objects.events.extend(messages.iter().map(|message| {
            let about = json!({"kind": "Job", "name": name});
            Arc::new(json!({
                "involvedObject": about, "type": "Warning", "reason": "FailedCreate", "message": message,
            }))
        }));
    }
    State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
}

#[test]
fn a_pod_may_be_created_between_two_acts() {
    let side = |created: u64, pods: &[(bool, &str)]| {
        let about = json!({"kind": "Job", "name": "j1"});
        let event = json!({
            "involvedObject": about, "type": "Normal", "reason": "SuccessfulCreate",
            "message": "Created pod: j1-x", "count": created,
        });
        let pod = |(terminating, phase): &(bool, &str)| {
            let owners = json!([{"name": "j1", "controller": true}]);
            let labels = json!({"batch.kubernetes.io/controller-uid": "u"});
            let metadata = json!({"ownerReferences": owners, "labels": labels});
            let mut pod = json!({"metadata": metadata, "status": {"phase": phase}});
            if *terminating {
                pod["metadata"]["deletionTimestamp"] = "t".into();
            }
            Arc::new(pod)
        };
        let job = json!({"metadata": {"name": "j1", "uid": "u"}, "status": {}});
        let pods = pods.iter().map(pod).collect();
        let objects = Objects { jobs: vec![job.into()], pods, events: vec![event.into()] };
        State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
    };
    let class = Class { job: "j1".into(), ..Class::default() };
    let fail = (class.clone(), Change::Fail { code: 1, init: 0, condition: None, end: End::Now });
    let disown = (class, Change::Disown);
    let (failed, leaving, active) = ((false, "Failed"), (true, "Pending"), (false, "Pending"));
    let (in_between, before) = (Some(Known::CreatesInBetween), Some(Known::CreatesBeforeFailure));
    for (acts, sides, healed, rule) in [
        (vec![&fail, &disown], [side(1, &[failed]), side(2, &[failed, leaving])], None, in_between),
        (vec![&fail], [side(1, &[failed]), side(2, &[failed, leaving])], None, None),
        (vec![&fail, &disown], [side(1, &[failed]), side(1, &[failed, leaving])], None, None),
        (vec![&fail, &disown], [side(1, &[failed]), side(2, &[failed, active])], None, None),
        (vec![&fail, &disown], [side(1, &[failed]), side(2, &[failed, active])], Some(1.0), before),
        (vec![&disown, &disown], [side(1, &[failed]), side(2, &[failed, active])], Some(1.0), None),
        (vec![&fail, &disown], [side(2, &[failed, active]), side(1, &[failed])], Some(1.0), None),
    ] {
        let acts: Vec<_> = acts.into_iter().cloned().collect();
        let played = played(&acts, State::default(), sides, healed);
        assert_eq!(Known::explaining(&played), rule, "{played:?}");
    }
}

#[test]
fn a_quota_explains_refusals_and_who_gets_its_room() {
    const REFUSED: &str =
        "pods \"p\" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=4, limited: pods=4";
    let quota = |pods| vec![Step(vec![Act { after_ms: 0, what: What::Quota { pods } }])];
    let side = |jobs: [(usize, &[&str]); 2]| {
        side_with(&[("j1", jobs[0].0, jobs[0].1), ("j2", jobs[1].0, jobs[1].1)])
    };
    let (none, refused) = (&[][..], &[REFUSED][..]);
    for (limit, sides, rule) in [
        (
            Some(4),
            [side([(1, none), (3, none)]), side([(1, refused), (3, none)])],
            Some(Known::RefusedByQuota),
        ),
        (None, [side([(1, none), (3, none)]), side([(1, refused), (3, none)])], None),
        (Some(4), [side([(1, none), (3, none)]), side([(1, &["another"]), (3, none)])], None),
        (
            Some(4),
            [side([(1, refused), (3, none)]), side([(2, none), (2, refused)])],
            Some(Known::SharesQuota),
        ),
        (Some(4), [side([(1, refused), (3, none)]), side([(2, none), (1, refused)])], None),
        (Some(4), [side([(1, refused), (3, none)]), side([(2, none), (2, none)])], None),
    ] {
        let mut played = played(&[], State::default(), sides, None);
        played.plan.steps = quota(limit);
        assert_eq!(Known::explaining(&played), rule, "{played:?}");
    }
}

#[test]
fn a_deadline_may_pass_before_the_built_in_creates_a_pod() {
    let side = |reason: &str, ended: bool, created: u64| {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": reason});
        let target = condition("FailureTarget");
        let conditions = if ended { json!([target, condition("Failed")]) } else { json!([target]) };
        let status = json!({"conditions": conditions, "failed": created, "startTime": "t"});
        let event = json!({
            "involvedObject": {"kind": "Job", "name": "j1"}, "type": "Normal", "reason": "SuccessfulCreate",
            "message": "Created pod: j1-x", "count": created,
        });
        let job = json!({"metadata": {"name": "j1", "uid": "u"}, "status": status});
        let objects = Objects { jobs: vec![job.into()], pods: Vec::new(), events: vec![event.into()] };
        State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
    };
    let (deadline, limit) = ("DeadlineExceeded", "BackoffLimitExceeded");
    for (before, sides, known) in [
        (State::default(), [side(deadline, true, 2), side(deadline, false, 3)], true),
        (State::default(), [side(deadline, false, 3), side(deadline, true, 2)], false),
        (State::default(), [side(limit, true, 2), side(limit, false, 3)], false),
        (State::default(), [side(limit, true, 2), side(deadline, false, 3)], false),
        (side(deadline, false, 2), [side(deadline, true, 2), side(deadline, false, 3)], false),
    ] {
        let played = played(&[], before, sides, None);
        let explained = Known::explaining(&played) == Some(Known::CreatesBeforeDeadline);
        assert_eq!(explained, known, "{played:?}");
    }
}

#[test]
fn chance_in_one_job_explains_nothing_about_another() {
    let side = |job: &str, active: u64| {
        let job = json!({"metadata": {"name": job, "uid": job}, "status": {"active": active}});
        let objects = Objects { jobs: vec![job.into()], pods: Vec::new(), events: Vec::new() };
        State::of(&objects, &mut Names::new("n".into(), "f"), &BTreeMap::new())
    };
    let of = |job: &str, ours: u64| played(&[], State::default(), [side(job, 1), side(job, ours)], None);
    assert!(of("j1", 2).differs_as(&of("j1", 3)));
    assert!(!of("j1", 2).differs_as(&of("j2", 2)));
}

#[test]
fn what_further_plays_have_shown_explains_a_difference() {
    let sides = [state(false, &json!({"active": 1}), 1), state(false, &json!({"active": 2}), 1)];
    let mut played = played(&[], State::default(), sides, None);
    assert_eq!(Known::explaining(&played), None);
    for shown in [Known::Race, Known::ActsAtOnce] {
        played.shown = Some(shown);
        assert_eq!(Known::explaining(&played), Some(shown));
    }
}

#[test]
fn a_refused_status_is_stale() {
    let before = state(false, &json!({"active": 2, "ready": 1}), 2);
    let reference = before.clone();
    let ours = state(false, &json!({"active": 1, "ready": 1, "failed": 1}), 1);
    let sides = [reference, ours];
    let stale = played(&[], before, sides.clone(), Some(9.0));
    assert_eq!(Known::explaining(&stale), Some(Known::ActiveDuringBackoff));
    let fresh = played(&[], State::default(), sides, Some(9.0));
    assert_eq!(Known::explaining(&fresh), None);
}
