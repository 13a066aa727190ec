#![allow(clippy::unwrap_used)]

mod outcomes;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::job::job_id::JobId;
use crate::job::names::EXTERNAL_FINALIZER;
use crate::job::pod::MaxRestarts;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A running pod of an Indexed Job, changed by a JSON merge patch.
fn observe(patch: Value) -> ObservedPod {
    observe_by(&PodDecoder::new(EXTERNAL_FINALIZER), patch)
}

fn observe_by(decoder: &PodDecoder, patch: Value) -> ObservedPod {
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": "j-3-abcde", "namespace": "n", "uid": "u", "resourceVersion": "42",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"batch.kubernetes.io/job-name": "j", "a": "b"},
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "3",
                "yardmaster.dev/place": "3/1",
                "yardmaster.dev/backoff": "2@2026-01-01T00:00:00Z",
                "yardmaster.dev/lineage": "attempt=4",
            },
            "finalizers": [EXTERNAL_FINALIZER],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "ou"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": true},
            ],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:07Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
            ],
            "initContainerStatuses": [
                {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}
            ],
            "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"running": {}}}],
        },
    });
    json_patch::merge(&mut pod, &patch);
    *decoder.decode(pod.to_string().as_bytes()).unwrap()
}

#[test]
fn a_pod_is_applied_if_one_of_its_managers_has_applied_it() {
    let entry = |manager: &str, operation: &str, subresource: &str| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "subresource": subresource,
            "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"x/operation\"": {}}}}})
    };
    let (we, kubelet) = (entry("yardmaster", "Update", ""), entry("kubelet", "Update", "status"));
    for (managers, applied) in [
        (json!(null), false),
        (json!([{"manager": "none"}, {}]), false),
        (json!([we, kubelet]), false),
        (json!([we, kubelet, entry("Apply", "Update", "")]), false),
        (json!([we, entry("sweeper", "Apply", ""), kubelet]), true),
        (json!([we, entry("kubelet", "Apply", "status")]), true),
    ] {
        let seen = observe(json!({"metadata": {"managedFields": managers}}));
        assert_eq!(seen.pod.applied, applied, "{managers}");
    }
}

#[test]
fn a_decoded_pod_keeps_the_fields_that_the_rules_look_at() {
    let seen = observe(json!({}));
    assert_eq!(&*seen.namespace, "n");
    assert_eq!(seen.labels.get("batch.kubernetes.io/job-name"), Some("j"));
    assert_eq!(seen.job(), Some(&JobId::new("n".into(), "j".into(), "ju".into())));
    assert_eq!(
        seen.pod,
        Pod {
            uid: "u".into(),
            name: "j-3-abcde".into(),
            version: 42,
            created: at("2026-01-01T00:00:00Z").into(),
            deleting: false,
            forced: false,
            tracked: true,
            applied: false,
            selected: true,
            index: Some(3),
            place: Some(Place { number: 3, attempt: 1 }),
            index_failures: IndexFailures::default(),
            carried: Some(Box::new(Carried {
                backoff: Some(BackoffRecord { failures: 2, last: at("2026-01-01T00:00:00Z") }),
                attempt: 4,
                lessons: "attempt=4".into(),
                silent_since: None,
            })),
            scheduled: true,
            phase: Phase::Running,
            ready_since: Some(at("2026-01-01T00:00:07Z").into()),
            restarts: 3,
            max_restarts: MaxRestarts { containers: 2, sidecars: 0 },
            finished: at("2026-01-01T00:00:00Z").into(),
            stalled: false,
            outcome: None,
        }
    );
}

#[test]
fn only_our_own_finalizer_makes_a_pod_tracked() {
    let foreign = json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking", "x"]}});
    assert!(!observe(foreign).pod.tracked);
    assert!(!observe(json!({"metadata": {"finalizers": null}})).pod.tracked);
}

#[test]
fn annotations_are_read_as_the_job_controller_reads_them() {
    for (index, expected) in
        [("0", Some(0)), ("+7", Some(7)), ("-1", None), ("", None), ("1.0", None), ("99999999999", None)]
    {
        let pod = observe(json!({"metadata": {"annotations": {COMPLETION_INDEX: index}}})).pod;
        assert_eq!(pod.index, expected, "{index:?}");
    }
    for (count, expected) in [("4", 4), ("2147483647", 2_147_483_647), ("2147483648", 0), ("-1", 0), ("x", 0)]
    {
        let annotations = json!({INDEX_FAILURE_COUNT: count, INDEX_IGNORED_FAILURE_COUNT: count});
        let failures = observe(json!({"metadata": {"annotations": annotations}})).pod.index_failures;
        assert_eq!(failures, IndexFailures { counted: expected, ignored: expected }, "{count:?}");
    }
    for place in ["3", "a/1", "3/", "-1/0"] {
        let pod = observe(json!({"metadata": {"annotations": {PLACE_ANNOTATION: place}}})).pod;
        assert_eq!(pod.place, None, "{place:?}");
    }
    for backoff in ["2", "0@2026-01-01T00:00:00Z", "2@yesterday"] {
        let pod = observe(json!({"metadata": {"annotations": {BACKOFF_ANNOTATION: backoff}}})).pod;
        assert_eq!(pod.backoff(), None, "{backoff:?}");
    }
}

#[test]
fn the_finish_time_comes_from_containers_only_if_all_have_one() {
    let ended =
        |time: Value| json!({"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": time}}});
    let status = |containers: Value| json!({"status": {"phase": "Failed", "containerStatuses": containers}});
    let both = status(json!([ended(json!("2026-01-01T00:00:20Z")), ended(json!("2026-01-01T00:00:10Z"))]));
    assert_eq!(observe(both).pod.finished, at("2026-01-01T00:00:20Z").into());

    let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:15Z"}]);
    for second in [ended(Value::Null), json!({"name": "d", "state": {"running": {}}}), json!({"name": "d"})] {
        let mut patch = status(json!([ended(json!("2026-01-01T00:00:20Z")), second]));
        patch["status"]["conditions"] = unready.clone();
        let pod = observe(patch).pod;
        assert_eq!(pod.finished, at("2026-01-01T00:00:15Z").into(), "{second}");
        assert_eq!(pod.ready_since, None);
    }

    let deleted = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30},
        "status": {"containerStatuses": null, "conditions": null},
    });
    assert_eq!(observe(deleted).pod.finished, at("2026-01-01T00:00:30Z").into());
}

#[test]
fn native_sidecars_count_as_containers_do_and_other_init_containers_do_not() {
    let state = |name: &str, restarts: u32, state: Value| json!({"name": name, "restartCount": restarts, "state": state});
    let ended =
        |second| json!({"terminated": {"exitCode": 1, "finishedAt": format!("2026-01-01T00:00:{second}Z")}});
    let running = json!({"running": {}});
    let finished = |containers: Value, setup: Value, sidecar: Value| {
        let unready =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:15Z"}]);
        observe(json!({
            "spec": {"initContainers": [{"name": "setup"}, {"name": "side", "restartPolicy": "Always"}]},
            "status": {
                "phase": "Failed", "conditions": unready,
                "containerStatuses": [state("c", 2, containers)],
                "initContainerStatuses": [state("setup", 9, setup), state("side", 4, sidecar)],
            },
        }))
        .pod
    };
    for (pod, second) in [
        (finished(ended(20), ended(10), ended(30)), 30),
        (finished(ended(20), ended(40), ended(10)), 20),
        (finished(ended(20), running.clone(), ended(10)), 20),
        (finished(ended(20), ended(10), running.clone()), 15),
        (finished(running, ended(10), ended(30)), 30),
    ] {
        assert_eq!(pod.finished, at(&format!("2026-01-01T00:00:{second}Z")).into());
        assert_eq!((pod.restarts, pod.max_restarts), (15, MaxRestarts { containers: 2, sidecars: 4 }));
    }
}

/// Each event of such a pod is decoded in a task that it shares with all others. A comparison of each status with each init
/// container would take a minute.
#[test]
fn a_pod_with_thousands_of_init_containers_is_decoded_at_once() {
    let names = || (0..40_000).map(|number| format!("side-{number}"));
    let declared: Vec<Value> = names().map(|name| json!({"name": name, "restartPolicy": "Always"})).collect();
    let statuses: Vec<Value> = names().map(|name| json!({"name": name, "restartCount": 7})).collect();
    let began = std::time::Instant::now();
    let seen = observe(json!({
        "spec": {"initContainers": declared}, "status": {"initContainerStatuses": statuses},
    }));
    assert_eq!(seen.pod.max_restarts.sidecars, 7);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

#[test]
fn escapes_and_unknown_fields_do_no_harm() {
    let seen = observe(json!({
        "metadata": {"annotations": {"note": "line\nbreak \"quoted\" \u{1f600}"}, "futureField": [[1], {"a": null}]},
        "status": {"futureField": {"deep": [1.5e300, -0.0, "\u{0}"]}},
    }));
    assert_eq!(seen.pod.index, Some(3));
}

#[test]
fn a_pod_without_identity_is_refused() {
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    for body in [r#"{"metadata":{}}"#, "[]", "", r#"{"metadata":{"name":1}}"#] {
        assert!(decoder.decode(body.as_bytes()).is_err(), "{body}");
    }
}

/// Invariant 8: small objects.
#[test]
fn a_running_pod_with_its_labels_and_name_takes_at_most_512_bytes() {
    let seen = observe(json!({}));
    let owned = seen.labels.iter().map(|(k, v)| k.len() + v.len() + 2).sum::<usize>() + seen.pod.name.len();
    assert!(size_of::<ObservedPod>() + owned <= 512, "{} + {owned}", size_of::<ObservedPod>());
}

/// A webhook may drop one of them.
#[test]
fn the_attempt_is_read_from_the_annotation_and_the_label() {
    for (annotation, label, attempt) in
        [("attempt=4", "", 4), ("", "4", 4), ("attempt=4", "5", 5), ("attempt=x", "-1", 0)]
    {
        let pod = json!({"metadata": {
            "annotations": {"yardmaster.dev/lineage": annotation},
            "labels": {"yardmaster.dev/attempt": label},
        }});
        assert_eq!(observe(pod).pod.attempt(), attempt, "{annotation} {label}");
    }
}

/// A pod waits to start until its containers run.
#[test]
fn a_pod_is_stalled_while_it_waits_to_start_and_nothing_of_it_works() {
    let second = |second: i64| format!("2026-01-01T00:00:{second:02}Z");
    let waiting = |reason: &str| json!([{"name": "c", "state": {"waiting": {"reason": reason}}}]);
    let init = |state: Value| json!([{"name": "setup", "state": state}]);
    let ended = json!({"terminated": {"exitCode": 0, "startedAt": second(1), "finishedAt": second(20)}});
    let running = json!({"running": {"startedAt": second(11)}});
    let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": second(40)}]);
    let gated = json!({"spec": {"schedulingGates": [{"name": "g"}]}, "status": {"phase": "Pending"}});
    let open = json!({"spec": {"schedulingGates": []}, "status": {"phase": "Pending"}});
    let pending = |init: Value| json!({"status": {"phase": "Pending", "initContainerStatuses": init}});
    let sidecar = json!({
        "spec": {"initContainers": [{"name": "setup", "restartPolicy": "Always"}]},
        "status": {"phase": "Pending", "initContainerStatuses": init(running.clone())},
    });
    let runs = |containers: Value| json!({"status": {"phase": "Running", "containerStatuses": containers, "conditions": unready}});
    let taken = |containers: Value| json!({"status": {"phase": "Running", "startTime": second(5), "containerStatuses": containers}});
    let deleted = json!({
        "metadata": {"deletionTimestamp": second(50)}, "status": {"phase": "Pending", "containerStatuses": []},
    });
    for (pod, stalled, since) in [
        (json!({"status": {"phase": "Pending"}}), true, 0),
        (gated, false, 0),
        (open, true, 0),
        (pending(init(running.clone())), false, 11),
        (pending(init(ended.clone())), true, 20),
        (sidecar, true, 11),
        (runs(waiting("ImagePullBackOff")), false, 0),
        (runs(waiting("CrashLoopBackOff")), false, 0),
        (runs(json!([{"name": "c", "state": running}, {"name": "d", "state": ended}])), false, 1),
        (taken(waiting("CrashLoopBackOff")), false, 5),
        (taken(json!([{"name": "c", "state": running, "restartCount": 3}])), false, 5),
        (deleted, false, 50),
    ] {
        let seen = observe(pod.clone()).pod;
        assert_eq!((seen.stalled, seen.finished), (stalled, at(&second(since)).into()), "{pod}");
    }
}

/// The node controller takes the condition Ready away, and leaves the rest as the kubelet has written it.
#[test]
fn a_pod_shows_that_its_node_is_lost() {
    let since = "2026-01-01T00:01:00Z";
    let ready = |reason: Option<&str>| {
        let mut ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": since});
        reason.into_iter().for_each(|reason| ready["reason"] = reason.into());
        ready
    };
    let containers = |status: &str| json!({"type": "ContainersReady", "status": status});
    for (what, phase, conditions, deletion, silent, forced) in [
        (
            "its node is not ready",
            "Running",
            json!([ready(None), containers("True")]),
            None,
            Some(since),
            false,
        ),
        ("empty reason", "Running", json!([ready(Some("")), containers("True")]), None, Some(since), false),
        (
            "a probe fails",
            "Running",
            json!([ready(Some("ContainersNotReady")), containers("False")]),
            None,
            None,
            false,
        ),
        (
            "a gate",
            "Running",
            json!([ready(Some("ReadinessGatesNotReady")), containers("True")]),
            None,
            None,
            false,
        ),
        ("no kubelet wrote it", "Running", json!([ready(None)]), None, None, false),
        ("pending", "Pending", json!([ready(None), containers("True")]), None, None, false),
        ("in its grace period", "Running", json!([]), Some(30), Some("2026-01-01T00:02:00Z"), false),
        ("deleted by force", "Running", json!([]), Some(0), Some("2026-01-01T00:02:00Z"), true),
        ("ended", "Failed", json!([ready(None), containers("True")]), Some(0), None, false),
    ] {
        let mut pod = json!({"status": {"phase": phase, "conditions": conditions}});
        if let Some(grace) = deletion {
            pod["metadata"] =
                json!({"deletionTimestamp": "2026-01-01T00:02:00Z", "deletionGracePeriodSeconds": grace});
        }
        let seen = observe(pod).pod;
        let expected = silent.map(|since| at(since).into());
        assert_eq!((seen.silent_since(), seen.forced), (expected, forced), "{what}");
    }
}
