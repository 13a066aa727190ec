#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cluster::wire::observed_job::Unserved;
use crate::job::spec::{Completion, PerIndexLimit, PodFailureAction, PodFailurePattern};
use crate::job::status::ConditionKind;

/// A defaulted NonIndexed Job, changed by a JSON merge patch.
fn observe(patch: Value) -> ObservedJob {
    let mut job = json!({
        "kind": "Job", "apiVersion": "batch/v1",
        "metadata": {
            "name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "b"},
            "annotations": {"yardmaster.dev/failed-pods-limit": "1", "other": "2"},
            "managedFields": [{"fieldsV1": {}}],
        },
        "spec": {
            "parallelism": 3, "completions": 5, "completionMode": "NonIndexed", "backoffLimit": 6, "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"labels": {"z": "1", "a": "2"}}, "spec": {"restartPolicy": "Never"}},
        },
        "status": {},
    });
    json_patch::merge(&mut job, &patch);
    Arc::into_inner(JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()).unwrap()
}

#[test]
fn the_trace_that_a_job_was_created_in_is_kept_where_traces_are_exported() {
    let job = json!({
        "metadata": {
            "name": "j", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "tracing.k8s.io/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracing.k8s.io/tracestate": "vendor=1", "yardmaster.dev/prune-succeeded": "true",
            },
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never"}}},
    });
    for exported in [true, false] {
        let seen = JobDecoder::new().with_traces(exported).decode(job.to_string().as_bytes()).unwrap();
        let options = &seen.job.as_ref().unwrap().options;
        assert_eq!((options.caller.is_some(), options.prune_succeeded), (exported, true));
    }
}

fn spec(patch: Value) -> Arc<crate::job::spec::JobSpec> {
    observe(json!({"spec": patch})).job.unwrap().spec
}

#[test]
fn a_decoded_job_keeps_identity_spec_and_status() {
    let seen =
        observe(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z", "finalizers": ["f"]}}));
    assert_eq!((&*seen.namespace, &*seen.name, &*seen.uid.to_string()), ("n", "j", "u"));
    assert_eq!((seen.version.as_str(), seen.version.order(), seen.generation), ("7", 7, 2));
    assert!(seen.deleting);
    assert_eq!(seen.managed_by, None);
    assert!(seen.skipped.is_empty());
    let job = seen.job.unwrap();
    assert!(job.deleting);
    assert_eq!(job.options.failed_pods_limit, Some(1));
    assert_eq!((job.spec.parallelism, job.spec.completion), (3, Completion::Count(5)));
    assert_eq!(
        (job.spec.backoff_limit, job.spec.replace_only_failed, job.spec.template.restarts_on_failure()),
        (6, false, false)
    );
    let labels = |key: &str| (key == "batch.kubernetes.io/controller-uid").then_some("u");
    assert!(job.spec.selector.matches(labels) && !job.spec.selector.matches(|_| None));
}

#[test]
fn absent_completions_and_parallelism_are_defaulted() {
    let null = Value::Null;
    for (parallelism, completions, mode, expected) in [
        (json!(3), json!(0), "NonIndexed", Completion::Count(0)),
        (json!(3), null.clone(), "NonIndexed", Completion::WorkQueue),
        (null.clone(), null.clone(), "NonIndexed", Completion::Count(1)),
        (null, json!(4), "Indexed", Completion::Indexed(4)),
    ] {
        let patch = json!({"parallelism": parallelism, "completions": completions, "completionMode": mode});
        let spec = spec(patch.clone());
        assert_eq!(spec.completion, expected, "{patch}");
        assert_eq!(spec.parallelism, if parallelism.is_null() { 1 } else { 3 }, "{patch}");
    }
}

#[test]
fn an_unknown_completion_mode_is_reported() {
    let seen = observe(json!({"spec": {"completionMode": "Weird", "managedBy": "a/b"}}));
    assert!(matches!(seen.job.unwrap_err(), Unserved::UnknownCompletionMode(mode) if &*mode == "Weird"));
    assert_eq!((&*seen.uid.to_string(), seen.managed_by.as_deref()), ("u", Some("a/b")));
}

#[test]
fn a_success_policy_with_long_lists_of_indexes_is_reported() {
    let rules = |bytes: usize| {
        let indexes = ["1,".repeat((bytes - 1) / 2), "1".into()].concat();
        json!([{"succeededIndexes": indexes.get(..bytes / 2 - 1)}, {"succeededIndexes": indexes.get(bytes / 2..)}])
    };
    let longest = crate::job::success_policy::LONGEST_SUCCESS_POLICY;
    let read = |bytes| observe(json!({"spec": {"successPolicy": {"rules": rules(bytes)}}})).job;
    assert!(read(longest).is_ok());
    let unserved = read(longest + 8).unwrap_err();
    assert!(matches!(unserved, Unserved::LongSuccessPolicy { bytes } if bytes > longest));
    assert_eq!(unserved.event().0, "SuccessPolicyTooLong");
}

#[test]
fn a_failure_policy_with_long_names_is_reported() {
    let longest = crate::job::pod_failure_policy::LONGEST_FAILURE_POLICY;
    let read = |bytes: usize| {
        let condition = |bytes| json!({"type": "x".repeat(bytes - 4), "status": "True"});
        let rules = [bytes / 2, bytes - bytes / 2].map(
            |bytes| json!({"action": "Ignore", "onPodConditions": [condition(100), condition(bytes - 100)]}),
        );
        observe(json!({"spec": {"podFailurePolicy": {"rules": rules}}})).job
    };
    assert!(read(longest).is_ok());
    let unserved = read(longest + 1).unwrap_err();
    assert!(matches!(unserved, Unserved::LongFailurePolicy { bytes } if bytes == longest + 1));
    assert_eq!(unserved.event().0, "FailurePolicyTooLong");
    let container = json!([{"action": "Ignore", "onExitCodes": {"containerName": "c".repeat(longest + 1), "operator": "In"}}]);
    assert!(observe(json!({"spec": {"podFailurePolicy": {"rules": container}}})).job.is_err());
}

#[test]
fn limits_and_deadlines_are_read() {
    let spec = spec(json!({
        "backoffLimit": 2_147_483_647, "backoffLimitPerIndex": 2, "maxFailedIndexes": 0, "suspend": true,
        "activeDeadlineSeconds": 90, "ttlSecondsAfterFinished": 0, "podReplacementPolicy": "Failed",
        "template": {"spec": {"restartPolicy": "OnFailure"}},
    }));
    assert_eq!(spec.per_index, Some(PerIndexLimit { backoff_limit: 2, max_failed_indexes: Some(0) }));
    assert_eq!(spec.active_deadline, Some(Duration::from_secs(90)));
    assert_eq!(spec.ttl_after_finished, Some(Duration::ZERO));
    assert!(spec.suspend && spec.replace_only_failed && spec.template.restarts_on_failure());
}

#[test]
fn a_job_whose_indexes_fail_one_by_one_does_not_restart_together() {
    for (limit, together) in [(Value::Null, true), (json!(2), false)] {
        let annotations = json!({"yardmaster.dev/restart-together": "true"});
        let seen = observe(
            json!({"metadata": {"annotations": annotations}, "spec": {"backoffLimitPerIndex": limit}}),
        );
        let options = &seen.job.as_ref().unwrap().options;
        assert_eq!(options.restart_together, together, "{limit}");
        let told: Vec<String> = options.rejected.iter().map(ToString::to_string).collect();
        let ignored = "annotation yardmaster.dev/restart-together: \"true\" is ignored: a Job without \
                       backoffLimitPerIndex is expected";
        assert_eq!(told, if together { vec![] } else { vec![ignored] }, "{limit}");
    }
}

#[test]
fn rules_of_policies_keep_their_indexes() {
    let seen = observe(json!({"spec": {
        "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "NotIn", "values": [1, 2]}},
            {"action": "Reschedule", "onPodConditions": [{"type": "A", "status": "True"}]},
            {"action": "Ignore", "onPodConditions": [{"type": "A"}, {"type": "B", "status": "False"}]},
            {"action": "Count", "onExitCodes": {"operator": "Between", "values": [1]}},
        ]},
        "successPolicy": {"rules": [
            {"succeededIndexes": "0,2-3", "succeededCount": 2}, {"succeededIndexes": "2-"}, {"succeededCount": 1},
        ]},
    }}));
    assert_eq!(
        seen.skipped,
        [
            "spec.podFailurePolicy.rules[1].action: Reschedule",
            "spec.podFailurePolicy.rules[3].onExitCodes.operator: Between"
        ]
    );
    let spec = seen.job.unwrap().spec;
    assert!(spec.replace_only_failed, "a pod failure policy waits for pods to fail");
    let never = PodFailurePattern::PodConditions(Box::default());
    let rules = spec.pod_failure_policy.as_deref().unwrap();
    let expected = [
        (
            PodFailureAction::FailJob,
            PodFailurePattern::ExitCodes {
                container: Some("c".into()),
                inside: false,
                values: [1, 2].into(),
            },
        ),
        (PodFailureAction::Count, never.clone()),
        (
            PodFailureAction::Ignore,
            PodFailurePattern::PodConditions(
                [("A".into(), "True".into()), ("B".into(), "False".into())].into(),
            ),
        ),
        (PodFailureAction::Count, never),
    ];
    assert_eq!(rules.iter().map(|r| (r.action, r.on.clone())).collect::<Vec<_>>(), expected);

    let indexes: Vec<_> = spec.success_policy.iter().map(|rule| rule.indexes.clone()).collect();
    assert_eq!(indexes[0].clone().unwrap().unwrap().to_string(), "0,2,3");
    assert_eq!((&indexes[1], &indexes[2]), (&Some(None), &None));
    assert_eq!(spec.success_policy[2].count, Some(1));
}

#[test]
fn an_unknown_or_absent_selector_matches_nothing() {
    let unknown =
        json!({"matchLabels": null, "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]});
    let seen = observe(json!({"spec": {"selector": unknown}}));
    assert_eq!(seen.skipped, ["spec.selector.matchExpressions[0].operator: Gt"]);
    let absent = spec(json!({"selector": null}));
    for selector in [&seen.job.unwrap().spec.selector, &absent.selector] {
        assert!(!selector.matches(|_| Some("1")) && !selector.matches(|_| None));
    }
    let everything = spec(json!({"selector": {"matchLabels": null}}));
    assert!(everything.selector.matches(|_| None));
}

#[test]
fn status_is_read_as_the_job_controller_reads_it() {
    let job = observe(json!({
        "spec": {"completionMode": "Indexed", "backoffLimitPerIndex": 1},
        "status": {
            "active": 1, "ready": 0, "succeeded": 2, "failed": 3, "startTime": "2026-01-01T00:00:01Z",
            "conditions": [{"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
                "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:02Z"}],
            "completedIndexes": "0,x,2-9", "failedIndexes": "", "uncountedTerminatedPods": {"failed": ["p"]},
        },
    }))
    .job
    .unwrap();
    let status = job.status;
    assert_eq!((status.active, status.ready, status.terminating), (1, Some(0), None));
    assert_eq!((status.succeeded, status.failed), (2, 3));
    assert_eq!(
        status.completed_indexes.to_string(),
        "0,2-9",
        "indexes that the Job no longer has are kept, so that they can be dropped"
    );
    assert!(status.failed_indexes.unwrap().is_empty());
    let uncounted = status.uncounted.unwrap();
    assert_eq!((uncounted.succeeded.len(), &*uncounted.failed[0].to_string()), (0, "p"));
    assert_eq!(status.conditions[0].kind, ConditionKind::Suspended);
    assert_eq!(status.conditions[0].last_probe_time, None);
}

/// Any user of the Job may write it.
#[test]
fn of_the_names_that_have_ended_only_those_count_that_the_job_is_after() {
    let met = |annotations: Value| {
        observe(json!({"metadata": {"annotations": annotations}})).job.unwrap().status.after_met
    };
    let after = |met: &str| json!({"yardmaster.dev/after": "b, a", "yardmaster.dev/after-met": met});
    assert_eq!(met(after("b,x,a")).as_deref(), Some("a,b"));
    assert_eq!(met(after(&",".repeat(2_561))), None);
    assert_eq!(met(after(&format!("b,{}", "x".repeat(3_000)))), None, "it is too long");
    assert_eq!(met(json!({"yardmaster.dev/after-met": "a"})), None, "it is after none");
}

/// A status of 300,000 short UIDs would take 14 MB.
#[test]
fn of_a_status_that_lists_too_many_uids_no_list_is_kept() {
    let listing = |number: usize, condition: &str| {
        let uids: Vec<String> = (0..number).map(|uid| format!("{uid:05x}")).collect();
        let (failed, succeeded) = uids.split_at(number / 3);
        json!({"status": {
            "uncountedTerminatedPods": {"failed": failed, "succeeded": succeeded}, "completedIndexes": "1,3",
            "conditions": [{"type": condition, "status": "True"}],
        }})
    };
    let most = observe(listing(MOST_UIDS, "Suspended")).job.unwrap();
    assert_eq!(most.status.uncounted.map(|pods| pods.len()), Some(MOST_UIDS));

    let more = observe(listing(MOST_UIDS + 1, "Suspended"));
    assert!(more.may_have_pods().unwrap().weight() < 300, "neither lists nor texts are kept");
    let Err(unserved) = more.job else { panic!("it is left alone") };
    let (reason, message) = unserved.event();
    assert!(reason == "StatusTooLong" && message.contains("lists 5001 UIDs"), "{message}");

    let finished = observe(listing(MOST_UIDS + 1, "Complete")).job.unwrap();
    assert_eq!(finished.status.list_bytes(), 0, "nothing is counted any more");
}

#[test]
fn a_list_of_uids_is_read_in_less_memory_than_its_text_takes() {
    let uids: Vec<String> = (0..300_000).map(|uid| format!("{uid:05x}")).collect();
    let job = json!({
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"template": {"spec": {}}}, "status": {"uncountedTerminatedPods": {"failed": uids}},
    });
    let text = job.to_string();
    let used = allocation_counter::measure(|| {
        assert!(JobDecoder::new().decode(text.as_bytes()).unwrap().job.is_err());
    });
    assert!(used.bytes_max < text.len() as u64 / 2, "{} bytes at a time for {}", used.bytes_max, text.len());
}

#[test]
fn a_job_with_a_written_status_equals_the_one_that_the_api_server_then_shows() {
    let before = observe(json!({"metadata": {"resourceVersion": "7"}}));
    for status in [
        json!({"active": 1, "ready": 0, "startTime": "2026-01-01T00:00:01Z", "uncountedTerminatedPods": {}}),
        json!({"succeeded": 1, "completionTime": "2026-01-01T00:00:02Z", "conditions": [{
            "type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "Done.",
            "lastTransitionTime": "2026-01-01T00:00:02Z", "lastProbeTime": "2026-01-01T00:00:02Z",
        }]}),
    ] {
        let after = observe(json!({"metadata": {"resourceVersion": "8"}, "status": status}));
        let written = before.with_status("8".into(), after.job.as_ref().unwrap().status.clone());
        assert_eq!(format!("{written:?}"), format!("{after:?}"));
    }
}
