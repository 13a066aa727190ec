//! Tests of the scenario replayer itself: the requests for a step, and the comparison of states.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(dead_code, reason = "only the parts without a cluster are tested here")]

mod scenario {
    pub(crate) mod compare;
    pub(crate) mod deviation;
    pub(crate) mod file;
    pub(crate) mod indexes;
    pub(crate) mod kubelet;
    pub(crate) mod mode;
    pub(crate) mod names;
    pub(crate) mod observe;
    pub(crate) mod pod;
}

use scenario::{
    compare::difference,
    deviation::{named, right},
    file::{Scenario, Select, Set, Step, Which},
    indexes,
    mode::Mode,
    names::Names,
    observe::Snapshot,
};
use serde_json::{Value, json};

const JOB: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn names() -> Names {
    let mut names = Names::new("ns-1".to_owned());
    names.job_created(Which::Job, JOB);
    names
}

fn set(value: Value) -> Set {
    serde_json::from_value(value).unwrap()
}

fn select(value: Value) -> Select {
    serde_json::from_value(value).unwrap()
}

fn indexed_pod(index: u32, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("sums-{index}-abcde"),
            "uid": format!("pod-{index}"),
            "generateName": format!("sums-{index}-"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "job-name": "sums",
                "controller-uid": JOB,
                "batch.kubernetes.io/job-completion-index": index.to_string(),
                "yardmaster.dev/shard": "7",
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": index.to_string(),
                "batch.kubernetes.io/job-index-failure-count": "0",
            },
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "sums", "uid": JOB, "controller": true, "blockOwnerDeletion": true},
            ],
        },
        "spec": {
            "hostname": format!("sums-{index}"),
            "containers": [{
                "name": "main",
                "image": "i",
                "env": [{
                    "name": "JOB_COMPLETION_INDEX",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
                }],
            }],
        },
        "status": {"phase": phase},
    })
}

fn job() -> Value {
    json!({
        "metadata": {"name": "sums", "uid": JOB, "labels": {"controller-uid": JOB, "yardmaster.dev/shard": "7"}},
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:09Z",
            "uncountedTerminatedPods": {"succeeded": ["pod-0", "pod-1"]},
            "conditions": [{
                "type": "FailureTarget",
                "status": "True",
                "reason": "PodFailurePolicy",
                "message": "Container main for pod ns-1/sums-0-abcde failed",
                "lastTransitionTime": "2026-01-01T00:00:09Z",
            }],
        },
    })
}

fn event(source: &str, message: &str, count: u32) -> Value {
    json!({
        "involvedObject": {"kind": "Job", "uid": JOB},
        "source": {"component": source},
        "type": "Normal",
        "reason": "SuccessfulCreate",
        "message": message,
        "count": count,
    })
}

#[test]
fn indexes_are_read_and_written() {
    for text in ["", "0", "0,2-4", "1x2", "0,3-5x2,9"] {
        let read = indexes::parse(text).unwrap();
        assert_eq!(indexes::parse(&indexes::render(&read)).unwrap(), read, "{text}");
    }
    assert_eq!(indexes::render(&indexes::parse("3,2,1,1").unwrap()), "1x2,2-3");
    assert!(indexes::parse("a-3").is_err());
}

#[test]
fn a_snapshot_takes_the_form_of_an_expectation() {
    let snapshot = Snapshot {
        job: Some(job()),
        pods: vec![indexed_pod(0, "Pending"), indexed_pod(1, "Pending"), indexed_pod(2, "Running")],
        events: vec![
            event("job-controller", "Created pod: sums-0-abcde", 1),
            event("job-controller", "(combined from similar events): Created pod: sums-1-gone9", 2),
            event("somebody-else", "Created pod: sums-1-abcde", 1),
        ],
        ..Snapshot::default()
    };
    let actual = snapshot.normalise(&mut names(), Mode::Replacement);

    let expected_job = json!({
        "labels": {"controller-uid": "<job-uid>"},
        "status": {
            "startTime": "<time#1>",
            "completionTime": "<time>",
            "uncountedTerminatedPods": {"succeeded": 2},
            "conditions": [{
                "type": "FailureTarget",
                "status": "True",
                "reason": "PodFailurePolicy",
                "message": "Container main for pod <namespace>/<pod> failed",
            }],
        },
    });
    let pods = |count, indexes, phase| {
        json!({
            "count": count,
            "indexes": indexes,
            "phase": phase,
            "ready": false,
            "scheduled": false,
            "terminating": false,
            "trackingFinalizer": true,
            "generateName": "<job>-<index>-",
            "hostname": "<job>-<index>",
            "labels": {
                "job-name": "sums",
                "controller-uid": "<job-uid>",
                "batch.kubernetes.io/job-completion-index": "<index>",
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "<index>",
                "batch.kubernetes.io/job-index-failure-count": "0",
            },
            "owners": [{"kind": "Job", "of": "job", "controller": true, "blockOwnerDeletion": true}],
            "completionIndexEnv": {"main": "metadata.labels['batch.kubernetes.io/job-completion-index']"},
        })
    };
    let created = json!({"on": "job", "type": "Normal", "reason": "SuccessfulCreate", "message": "Created pod: <pod>", "count": 3});
    let expected = json!({
        "job": expected_job,
        "pods": [pods(1, "2", "Running"), pods(2, "0,1", "Pending")],
        "events": [created],
    });
    assert_eq!(difference(&expected, &actual), None);
}

#[test]
fn every_kind_of_difference_is_reported() {
    let actual = json!({
        "job": {"labels": {}, "status": {"active": 1}},
        "pods": [{"count": 2, "phase": "Running"}],
        "events": [{"on": "job", "type": "Normal", "reason": "A", "message": "m", "count": 4}],
        "delay": 9,
    });
    for expected in [
        json!({"job": null}),
        json!({"job": {"labels": {}, "status": {"active": 1, "ready": 0}}}),
        json!({"job": {"labels": {}, "status": {}}}),
        json!({"pods": []}),
        json!({"pods": [{"count": 3, "phase": "Running"}]}),
        json!({"events": []}),
        json!({"events": [{"on": "job", "type": "Normal", "reason": "A", "message": "m", "countAtLeast": 5}]}),
        json!({"delay": {"minSeconds": 10}}),
    ] {
        assert!(difference(&expected, &actual).is_some(), "{expected}");
    }
    for expected in [
        json!({}),
        json!({"events": [{"on": "job", "type": "Normal", "reason": "A", "message": "m", "countAtLeast": 4}]}),
        json!({"delay": {"minSeconds": 9}}),
    ] {
        assert_eq!(difference(&expected, &actual), None, "{expected}");
    }
}

#[test]
fn start_times_are_numbered_for_each_job() {
    let mut names = names();
    assert_eq!(names.start_time_number("a", "t1"), 1);
    assert_eq!(names.start_time_number("a", "t2"), 2);
    assert_eq!(names.start_time_number("b", "t2"), 1);
    assert_eq!(names.start_time_number("a", "t1"), 1);
}

#[test]
fn a_recreated_job_turns_the_old_one_into_previous_job() {
    let mut names = names();
    names.job_created(Which::Job, "second");
    assert_eq!(names.job_of_uid(JOB), Some("previous-job"));
    assert_eq!(names.job_of_uid("second"), Some("job"));
    assert_eq!(names.fill(&json!({"a": ["<job-uid>"]})).unwrap(), json!({"a": ["second"]}));
}

#[test]
fn gang_objects_show_patterns_for_generated_names() {
    let job = json!({"metadata": {"name": "g1", "uid": JOB}, "status": {}});
    let workload = json!({"metadata": {"name": "g1-x7k2p"}, "spec": {"schedulingConstraints": null}});
    let group = json!({
        "metadata": {
            "name": "g1-x7k2p-g1-pgt-0-9f8c7",
            "ownerReferences": [{"kind": "Workload", "name": "g1-x7k2p", "uid": "w"}],
        },
        "spec": {"podGroupTemplateRef": {"workload": {"workloadName": "g1-x7k2p", "podGroupTemplateName": "g1-pgt-0"}}},
    });
    let other = json!({"metadata": {"name": "theirs"}, "spec": {}});
    let mut names = names();
    let snapshot = Snapshot {
        job: Some(job),
        workloads: vec![workload, other],
        pod_groups: vec![group.clone()],
        events: vec![event("job-controller", "Created Workload g1-x7k2p for Job g1", 1)],
        ..Snapshot::default()
    };
    let actual = snapshot.normalise(&mut names, Mode::Replacement);
    let expected_groups = json!([{
        "name": "<workload>-<job>-pgt-0-<hash>",
        "owners": [{"kind": "Workload", "of": "<workload>"}],
        "spec": {"podGroupTemplateRef": {"workload": {"workloadName": "<workload>", "podGroupTemplateName": "g1-pgt-0"}}},
    }]);
    let expected = json!({
        "workloads": [{"name": "<job>-<hash>", "owners": [], "spec": {}}, {"name": "theirs", "owners": [], "spec": {}}],
        "podGroups": expected_groups,
        "events": [{"on": "job", "type": "Normal", "reason": "SuccessfulCreate", "message": "Created Workload <workload> for Job g1", "count": 1}],
    });
    assert_eq!(difference(&expected, &actual), None);

    // Without Job and Workload the PodGroup still shows its origin.
    let later = Snapshot { pod_groups: vec![group], ..Snapshot::default() };
    let actual = later.normalise(&mut names, Mode::Replacement);
    assert_eq!(difference(&json!({"workloads": [], "podGroups": expected_groups}), &actual), None);
}

#[test]
fn pods_are_selected_by_all_given_criteria() {
    let mut names = names();
    names.mark("m", "pod-1");
    let mut terminating = indexed_pod(3, "Running");
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z".into();
    let pods =
        vec![terminating, indexed_pod(2, "Running"), indexed_pod(0, "Pending"), indexed_pod(1, "Succeeded")];
    let chosen = |value| -> Vec<u64> {
        let pods = select(value).choose(pods.clone(), &names).unwrap_or_default();
        pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap()[4..].parse().unwrap()).collect()
    };
    assert_eq!(chosen(json!({"all": true})), [0, 1, 2, 3]);
    assert_eq!(chosen(json!({"active": true})), [0, 2]);
    assert_eq!(chosen(json!({"terminating": true})), [3]);
    assert_eq!(chosen(json!({"indexes": "1-2"})), [1, 2]);
    assert_eq!(chosen(json!({"index": 2, "phase": "Pending"})), [0; 0]);
    assert_eq!(chosen(json!({"mark": "m"})), [1]);
    assert_eq!(chosen(json!({"unmarked": true, "nth": 1})), [2]);
    assert_eq!(chosen(json!({"owner": "job", "count": 2})), [0, 1]);
    assert_eq!(chosen(json!({"owner": "job2"})), [0; 0]);
}

#[test]
fn a_set_becomes_the_status_a_kubelet_would_write() {
    let now = "2026-01-01T01:00:00.7Z".parse().unwrap();
    let mut pod = indexed_pod(0, "Running");
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);

    assert_eq!(set(json!({"node": "n"})).status_patch(&pod, now), None);

    let failed = set(json!({"phase": "Failed", "finishedAgo": 3600})).status_patch(&pod, now).unwrap();
    let status = &failed["status"];
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["finishedAt"]),
        (&json!(1), &json!("2026-01-01T00:00:00Z"))
    );
    let not_ready =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    assert_eq!(status["conditions"], not_ready);

    let running = set(json!({"phase": "Running", "ready": true, "readyAgo": 60, "restartCount": 4}));
    let status = &running.status_patch(&pod, now).unwrap()["status"];
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:59:00Z");
    let container = &status["containerStatuses"][0];
    assert_eq!((&container["restartCount"], &container["ready"]), (&json!(4), &json!(true)));
    assert!(container["state"]["running"].is_object());

    let bare = set(json!({"phase": "Failed", "noStatuses": true, "reason": "Evicted"}));
    let status = &bare.status_patch(&pod, now).unwrap()["status"];
    assert_eq!((&status["reason"], status.get("containerStatuses")), (&json!("Evicted"), None));

    let pending = set(json!({"phase": "Pending"})).status_patch(&indexed_pod(0, "Pending"), now).unwrap();
    assert_eq!(pending, json!({"status": {"phase": "Pending"}}));
}

#[test]
fn external_mode_renames_the_finalizer_and_claims_the_jobs() {
    let text = json!({
        "name": "x", "topic": "t", "about": "a",
        "job": {"metadata": {"name": "x"}, "spec": {}},
        "steps": [{"pods": {"select": {"all": true}, "removeFinalizer": "batch.kubernetes.io/job-tracking"}}],
    })
    .to_string();
    let external = Scenario::parse(&text, Mode::External).unwrap();
    assert_eq!(external.job["spec"]["managedBy"], "yardmaster.dev/job-controller");
    assert!(format!("{:?}", external.steps).contains("yardmaster.dev/job-tracking"));
    let replacement = Scenario::parse(&text, Mode::Replacement).unwrap();
    assert_eq!(replacement.job["spec"], json!({}));

    let unknown = text.replace("\"select\"", "\"sellect\"");
    assert!(Scenario::parse(&unknown, Mode::External).is_err());
}

#[test]
fn active_and_ready_are_counted_from_pods() {
    let pod = |phase, ready, count| json!({"phase": phase, "ready": ready, "terminating": false, "count": count, "owners": [{"of": "job"}]});
    let recorded = json!({
        "job": {"status": {"failed": 1, "ready": 0}},
        "pods": [pod("Running", true, 2), pod("Pending", false, 1), pod("Failed", false, 1)],
    });
    let state = right("any", 0, &recorded);
    assert_eq!(state["job"]["status"], json!({"failed": 1, "active": 3, "ready": 2}));
    assert_eq!(state["pods"], recorded["pods"]);
    let done = json!({"job": {"status": {"ready": 0}}, "pods": [pod("Succeeded", false, 1)]});
    assert_eq!(right("any", 0, &done), done);
}

/// The project's own recordings.
fn recordings() -> Vec<Scenario> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    files
        .map(|file| Scenario::parse(&std::fs::read_to_string(file).unwrap(), Mode::External).unwrap())
        .collect()
}

#[test]
fn every_recorded_state_is_equal_to_itself_only() {
    for scenario in recordings() {
        for step in &scenario.steps {
            let Step::Settle { expect, .. } = step else { continue };
            let mut actual = expect.clone();
            actual["delay"] = expect["delay"]["minSeconds"].clone();
            assert_eq!(difference(expect, &actual), None, "{}", scenario.name);
            for pointer in
                ["/pods/0/phase", "/job/status/uncountedTerminatedPods", "/events/0/reason", "/workloads"]
            {
                let mut other = actual.clone();
                if let Some(value) = other.pointer_mut(pointer) {
                    *value = "other".into();
                    assert!(difference(expect, &other).is_some(), "{} {pointer}", scenario.name);
                }
            }
        }
    }
}

#[test]
fn every_deviation_names_a_settle_step() {
    let recordings = recordings();
    for (name, step) in named() {
        let scenario = recordings.iter().find(|scenario| scenario.name == name).expect(name);
        assert!(matches!(scenario.steps[step], Step::Settle { .. }), "{name} {step}");
    }
}
