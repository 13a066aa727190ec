#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::job::gang_state::GangAnswer;
use crate::job::job_id::JobId;
use crate::job::pod::Phase;
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::Created;
use crate::job::status::{Condition, ConditionKind, ConditionStatus};
use crate::job::template::PodTemplate;
use crate::job::tests::fixture::{at, at_index, ended, job, state, with};

fn gang_job(pods: u32) -> Job {
    job(Completion::Indexed(pods), pods)
}

/// The Job with the name and namespace of [`gang_job`] and this UID, if there is one.
fn controlled_by(uid: &str) -> Option<JobId> {
    let Job { namespace, name, .. } = gang_job(2);
    (!uid.is_empty()).then(|| JobId::new(namespace, name, uid.into()))
}

fn workload(controller: &str, job: &str, templates: usize) -> Workload {
    let template = GroupTemplate { name: "t".into(), policy: Some(json!({"gang": {"minCount": 7}})) };
    Workload {
        name: "w".into(),
        uid: "w-uid".into(),
        controller: controlled_by(controller),
        job: Some(job.into()),
        templates: vec![template; templates],
    }
}

fn pod_group(controller: &str, workload: &str) -> PodGroup {
    PodGroup { name: "g".into(), controller: controlled_by(controller), workload: Some(workload.into()) }
}

fn with_template(job: Job, template: &Value) -> Job {
    let template = RawValue::from_string(template.to_string()).unwrap();
    with(job, |spec| spec.template = PodTemplate::new(&template))
}

#[test]
fn a_gang_is_several_pods_that_all_run_at_once() {
    let group = |group: Value| {
        let template = json!({"spec": {"containers": [{"name": "main"}], "schedulingGroup": group}});
        with_template(gang_job(2), &template)
    };
    for (why, job, eligible) in [
        ("as many at once as completions", gang_job(2), true),
        ("a single pod", gang_job(1), false),
        ("none", gang_job(0), false),
        ("fewer at once", job(Completion::Indexed(3), 2), false),
        ("more at once", job(Completion::Indexed(2), 3), false),
        ("not indexed", job(Completion::Count(2), 2), false),
        ("a work queue", job(Completion::WorkQueue, 2), false),
        ("the template names a group", group(json!({"podGroupName": "mine"})), false),
        ("the template names no group", group(json!(null)), true),
    ] {
        assert_eq!(job.spec.is_gang(), eligible, "{why}");
    }
}

/// `use`, `make` or `leave`.
fn verdict<T>(choice: &Choice<T>) -> &'static str {
    match choice {
        Choice::Use(_) => "use",
        Choice::Make(_) => "make",
        Choice::Leave => "leave",
    }
}

fn without_policy(mut workload: Workload) -> Workload {
    workload.templates.iter_mut().for_each(|template| template.policy = None);
    workload
}

#[test]
fn the_only_workload_that_names_the_job_is_used_if_the_job_controls_it() {
    let ours = || workload("job-uid", "work", 1);
    let others = || workload("other-uid", "other", 1);
    for (why, found, ensure, find) in [
        ("none", vec![], "make", "leave"),
        ("those of other Jobs do not count", vec![others()], "make", "leave"),
        ("ours", vec![others(), ours()], "use", "use"),
        ("of nobody", vec![workload("", "work", 1)], "leave", "leave"),
        ("of an earlier Job of this name", vec![workload("old-uid", "work", 1)], "leave", "leave"),
        ("ours and another", vec![ours(), workload("", "work", 1)], "leave", "leave"),
        ("without templates", vec![workload("job-uid", "work", 0)], "leave", "leave"),
        ("with two templates", vec![workload("job-uid", "work", 2)], "leave", "leave"),
        ("with a policy that is too long", vec![without_policy(ours())], "leave", "leave"),
    ] {
        let choose = |request| choose_workload(&gang_job(2), found.clone(), request);
        assert_eq!(verdict(&choose(GangRequest::Ensure)), ensure, "{why}");
        assert_eq!(verdict(&choose(GangRequest::Find)), find, "{why}");
    }
}

#[test]
fn the_only_pod_group_that_names_the_workload_is_used_if_the_job_controls_it() {
    let (ours, others) = (|| pod_group("job-uid", "w"), || pod_group("job-uid", "other"));
    for (why, found, ensure, find) in [
        ("none", vec![], "make", "leave"),
        ("those of other Workloads do not count", vec![others()], "make", "leave"),
        ("ours", vec![ours(), others()], "use", "use"),
        ("of another Job", vec![pod_group("other-uid", "w")], "leave", "leave"),
        ("two", vec![ours(), ours()], "leave", "leave"),
    ] {
        let workload = workload("job-uid", "work", 1);
        let choose = |request| choose_pod_group(&gang_job(2), &workload, found.clone(), request);
        assert_eq!(verdict(&choose(GangRequest::Ensure)), ensure, "{why}");
        assert_eq!(verdict(&choose(GangRequest::Find)), find, "{why}");
    }
}

fn made<T: std::fmt::Debug>(choice: Choice<T>) -> Value {
    match choice {
        Choice::Make(body) => serde_json::from_slice(&body).unwrap(),
        other => panic!("nothing to make: {other:?}"),
    }
}

fn new_workload(job: &Job) -> Value {
    made(choose_workload(job, Vec::new(), GangRequest::Ensure))
}

fn new_pod_group(job: &Job, workload: &Workload) -> Value {
    made(choose_pod_group(job, workload, Vec::new(), GangRequest::Ensure))
}

#[test]
fn a_workload_has_one_template_for_all_pods() {
    let mut workload = new_workload(&gang_job(3));
    let name = workload["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("work-"), "{name}");
    let expected = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": null, "namespace": "default", "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid",
            "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "work"},
            "podGroupTemplates": [
                {"name": "work-pgt-0", "schedulingPolicy": {"gang": {"minCount": 3}}},
            ],
        },
    });
    assert_eq!(workload, expected);
}

#[test]
fn a_pod_group_takes_its_policy_from_the_template_and_does_not_block_its_workload() {
    let mut group = new_pod_group(&gang_job(3), &workload("job-uid", "work", 1));
    let name = group["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("w-t-"), "{name}");
    let expected = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": null, "namespace": "default", "ownerReferences": [
            {
                "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid",
                "controller": true, "blockOwnerDeletion": true,
            },
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "name": "w", "uid": "w-uid",
            },
        ]},
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
            "schedulingPolicy": {"gang": {"minCount": 7}},
        },
    });
    assert_eq!(group, expected);
}

#[test]
fn names_are_derived_from_the_job_and_fit_the_length_limit() {
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let again = Job { uid: "another-uid".into(), ..gang_job(2) };
    assert_eq!(name(new_workload(&gang_job(2))), name(new_workload(&gang_job(2))));
    assert_ne!(name(new_workload(&gang_job(2))), name(new_workload(&again)));
    let long = Workload { name: ["a.".repeat(126).as_str(), "b"].concat().into(), ..workload("", "", 1) };
    let cut = name(new_pod_group(&gang_job(2), &long));
    assert!((250..=253).contains(&cut.len()), "no more is cut than has to be: {cut}");
    assert!(cut.split('.').all(|label| !label.starts_with('-') && !label.ends_with('-')), "{cut}");
}

/// A managed Job, with gang scheduling switched on.
fn managed(job: Job) -> JobState {
    let mut state = state(job, []);
    state.limits.gang_scheduling = true;
    state
}

/// Makes a plan and begins it.
fn step(state: &mut JobState, second: i64) -> Plan {
    let plan = reconcile(state, at(second));
    state.begin(&plan, at(second));
    plan
}

/// Number of requests about pods. The plan must hold nothing else but a request about the gang.
fn requests(plan: &Plan) -> usize {
    let plan = Plan { gang: None, ..plan.clone() };
    assert!(plan.status.is_none() && !plan.delete_job, "{plan:?}");
    plan.creates.len() + plan.deletes.len() + plan.releases.len()
}

fn answer(state: &mut JobState, group: Option<&str>, second: i64) {
    state.gang_answered(GangAnswer::Group(group.map(Arc::from)), at(second));
}

fn create_all(state: &mut JobState, plan: &Plan, second: i64) {
    for new in &plan.creates {
        let uid = format!("p{}-{}", new.place.number, new.place.attempt);
        let pod = at_index(&uid, new.place.number, new.place.attempt);
        state.created(new.place, Created::Pod(Box::new(pod)), at(second));
    }
}

#[test]
fn a_new_job_waits_for_its_gang() {
    let mut state = managed(gang_job(2));
    let first = step(&mut state, 1);
    assert_eq!((first.gang, first.waiting.clone()), (Some(GangRequest::Ensure), Some(Wait::Gang)));
    assert_eq!(requests(&first), 0, "{first:?}");
    assert!(step(&mut state, 2).is_idle(), "the answer is on its way");
    answer(&mut state, Some("g"), 3);
    let plan = step(&mut state, 3);
    assert_eq!((plan.creates.len(), plan.gang, state.gang.group()), (1, None, Some("g")));
    create_all(&mut state, &plan, 3);
    let plan = step(&mut state, 3);
    assert_eq!((plan.creates.len(), plan.gang, state.gang.group()), (1, None, Some("g")));
    create_all(&mut state, &plan, 3);
    assert!(step(&mut state, 3).status_waits, "for what may follow soon");
    let plan = step(&mut state, 4);
    let status = plan.status.expect("the first status").status;
    assert_eq!((status.active, status.start_time), (2, Some(at(3))), "the start is that of the pods");
}

#[test]
fn the_gang_is_looked_up_again_before_a_replacement() {
    let started = |job: &mut Job| job.status.start_time = Some(at(0));
    let mut job = gang_job(2);
    started(&mut job);
    let mut state = managed(job);
    for (pod, second) in [(at_index("a", 0, 0), 0), (at_index("b", 1, 0), 0)] {
        state.observe_pod(pod, at(second));
    }
    assert_eq!(step(&mut state, 1).gang, None, "no pod is missing");
    state.observe_pod(ended(at_index("b", 1, 0), Phase::Failed, 1), at(1));
    let backoff = step(&mut state, 2);
    assert_eq!((backoff.gang, backoff.creates.len()), (None, 0), "no pod is created yet");
    let plan = step(&mut state, 11);
    assert_eq!((plan.gang, plan.creates.len()), (Some(GangRequest::Find), 0));
    answer(&mut state, None, 12);
    let plan = step(&mut state, 12);
    assert_eq!((plan.creates.len(), state.gang.group()), (1, None), "the Workload was deleted");
    create_all(&mut state, &plan, 12);
    state.observe_pod(ended(at_index("a", 0, 0), Phase::Failed, 12), at(12));
    step(&mut state, 12);
    assert_eq!(step(&mut state, 60).gang, Some(GangRequest::Find), "the earlier answer is outdated");
}

#[test]
fn a_refused_gang_request_is_repeated_after_a_delay() {
    let mut state = managed(gang_job(2));
    step(&mut state, 1);
    state.gang_answered(GangAnswer::Refused, at(1));
    let plan = step(&mut state, 1);
    assert_eq!((requests(&plan), plan.gang, plan.wake_at), (0, None, Some(at(2))));
    assert_eq!(step(&mut state, 2).gang, Some(GangRequest::Ensure));
}

#[test]
fn a_suspended_job_gets_its_gang_at_once() {
    let mut state = managed(with(gang_job(2), |spec| spec.suspend = true));
    assert_eq!(step(&mut state, 1).gang, Some(GangRequest::Ensure));
    answer(&mut state, Some("g"), 1);
    let status = step(&mut state, 1).status.expect("the Job is suspended").status;
    assert!(status.holding(ConditionKind::Suspended).is_some());
    assert!(step(&mut state, 1).is_idle(), "the request is not repeated");
    let job = Job { status, ..with(state.job.clone(), |spec| spec.suspend = false) };
    state.observe_job(job);
    state.status_written(at(1));
    let plan = step(&mut state, 2);
    assert_eq!((plan.gang, plan.creates.len()), (Some(GangRequest::Find), 0), "before its first pod");
}

#[test]
fn a_gang_is_created_for_a_new_job_only() {
    let status = |change: fn(&mut Job)| {
        let mut job = gang_job(2);
        change(&mut job);
        managed(job)
    };
    let resumed = |job: &mut Job| {
        job.status.conditions.push(Condition {
            kind: ConditionKind::Suspended,
            status: ConditionStatus::False,
            reason: "JobResumed".into(),
            message: "Job resumed".into(),
            last_probe_time: None,
            last_transition_time: None,
        });
    };
    let with_pod = || {
        let mut state = managed(gang_job(2));
        state.observe_pod(at_index("a", 0, 0), at(0));
        state
    };
    let off = || state(gang_job(2), []);
    for (why, mut state, request) in [
        ("new", status(|_| {}), Some(GangRequest::Ensure)),
        ("started", status(|job| job.status.start_time = Some(at(0))), Some(GangRequest::Find)),
        ("counted", status(|job| job.status.failed = 1), Some(GangRequest::Find)),
        ("was suspended", status(resumed), Some(GangRequest::Find)),
        ("has a pod", with_pod(), Some(GangRequest::Find)),
        ("being deleted", status(|job| job.deleting = true), None),
        ("the gate is off", off(), None),
        ("no gang", managed(job(Completion::Count(2), 2)), None),
    ] {
        assert_eq!(step(&mut state, 1).gang, request, "{why}");
    }
}
