//! The end of a pod as it is decoded: its run and its outcome.

use serde_json::{Value, json};

use super::{at, observe, observe_by};
use crate::cluster::wire::pod::{PodDecoder, PodRun, body};
use crate::job::names::EXTERNAL_FINALIZER;
use crate::job::pod::{ContainerExit, Outcome};

#[test]
fn how_a_pod_ran_is_read_if_it_failed_or_on_request() {
    let terminated = |name, code, reason, from, to| {
        let message = format!("{name} {}", "x".repeat(300));
        let end = json!({"exitCode": code, "reason": reason, "message": message, "startedAt": from, "finishedAt": to});
        json!({"name": name, "state": {"terminated": end}})
    };
    let (start, end) = ("2026-01-01T00:00:05Z", "2026-01-01T00:00:09Z");
    let both = json!([
        terminated("side", 0, "Completed", "2026-01-01T00:00:06Z", end),
        terminated("main", 3, "Error", start, end),
    ]);
    let status = |phase, reason: Value| json!({"status": {"phase": phase, "reason": reason, "containerStatuses": both}});
    let ran = |reason: &str| PodRun {
        node: Some("n1".into()),
        started: Some(at(start)),
        ended: Some(at(end)),
        reason: Some(reason.into()),
        message: Some(format!("main {}", "x".repeat(195)).into()),
        container: Some("main".into()),
        exit_code: Some(3),
    };
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let reading = decoder.clone().reading_runs(true);
    for (decoder, patch, expected) in [
        (&reading, status("Failed", json!(null)), Some(ran("Error"))),
        (&reading, status("Failed", json!("Evicted")), Some(ran("Evicted"))),
        (&reading, status("Succeeded", json!(null)), Some(ran("Error"))),
        (&reading, status("Running", json!(null)), None),
        (&decoder, status("Failed", json!(null)), Some(ran("Error"))),
        (&decoder, status("Succeeded", json!(null)), None),
    ] {
        let observed = observe_by(decoder, patch.clone());
        assert_eq!(observed.run.as_deref(), expected.as_ref(), "{patch}");
    }
    let mut counted = status("Failed", json!(null));
    counted["metadata"] = json!({"finalizers": null});
    assert_eq!(observe_by(&reading, counted).run, None);
}

#[test]
fn the_outcome_is_kept_where_a_failure_policy_could_match() {
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    assert!(observe(json!({"status": {"conditions": disrupted}})).pod.outcome.is_some());
    assert!(
        observe(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}})).pod.outcome.is_some()
    );
    assert!(observe(json!({"status": {"phase": "Succeeded"}})).pod.outcome.is_none());

    let failed = observe(json!({"status": {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": -1}}},
            {"name": "b", "state": {"waiting": {"reason": "x"}}},
        ],
    }}));
    let outcome = failed.pod.outcome.unwrap();
    assert_eq!(outcome.containers, [ContainerExit { name: "a".into(), exit_code: -1, out_of_memory: false }]);
    assert_eq!(outcome.init_containers, [], "no rule asks for a success");
    assert_eq!(outcome.conditions[0], ("Ready".into(), "True".into()));
}

#[test]
fn of_a_status_of_any_size_only_what_a_rule_could_name_is_kept() {
    let end = |name: String, code| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
    let ends = |names: &dyn Fn(usize) -> String| -> Vec<Value> {
        (0..20_000).map(|number| end(names(number), 1 + number % 2)).collect()
    };
    let condition = |kind: String, status: &str| json!({"type": kind, "status": status});
    let of = |statuses: Vec<Value>, conditions: Vec<Value>| {
        let status = json!({"phase": "Failed", "containerStatuses": statuses,
                            "initContainerStatuses": [], "conditions": conditions});
        observe(json!({"status": status})).pod.outcome.unwrap()
    };
    for (names, kept, why) in [
        (&(|number| format!("c-{number:05}")) as &dyn Fn(usize) -> String, 174, "distinct names"),
        (&|_| "main".into(), 2, "equal ends"),
        (&|_| "ü".repeat(90), 2, "long names"),
    ] {
        let outcome = of(ends(names), vec![]);
        assert_eq!(outcome.containers.len(), kept, "{why}");
        assert_eq!(outcome.containers[0].exit_code, 1, "{why}");
        assert!(outcome.containers.iter().all(|exit| exit.name.len() <= 64), "{why}");
    }
    let qualified = format!("{}/{}", "p".repeat(253), "n".repeat(63));
    let mut conditions = vec![
        condition(format!("{qualified}n"), "True"),
        condition("Ready".into(), &"True".repeat(5)),
        condition(qualified.clone(), "Unknown"),
        condition(qualified.clone(), "Unknown"),
    ];
    let outcome = of(vec![], conditions.clone());
    assert_eq!(outcome.conditions, [(qualified.into(), "Unknown".into())]);
    conditions.extend((0..20_000).map(|number| condition(format!("c-{number}"), "True")));
    let outcome = of(ends(&|number| number.to_string()), conditions);
    assert!(outcome.bytes() <= size_of::<Outcome>() + body::KEPT_BYTES, "{}", outcome.bytes());
}

#[test]
fn all_failures_and_conditions_of_a_usual_pod_are_kept() {
    let names = [
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
        "DisruptionTarget",
    ];
    let conditions: Vec<Value> = names.iter().map(|name| json!({"type": name, "status": "False"})).collect();
    let ends = |number, letter: char| -> Vec<Value> {
        let name = |number| format!("{}-{number:02}", letter.to_string().repeat(60));
        let end = |number| json!({"name": name(number), "state": {"terminated": {"exitCode": number}}});
        (1..=number).map(end).collect()
    };
    let outcome = observe(json!({"status": {
        "phase": "Failed", "conditions": conditions,
        "containerStatuses": ends(25, 'c'), "initContainerStatuses": ends(8, 'i'),
    }}));
    let outcome = outcome.pod.outcome.unwrap();
    assert_eq!(
        (outcome.conditions.len(), outcome.containers.len(), outcome.init_containers.len()),
        (6, 25, 8)
    );
}

#[test]
fn the_outcome_of_a_pod_tells_its_node_and_which_containers_have_exceeded_their_memory() {
    let end = |name: &str, reason: &str| json!({"name": name, "state": {"terminated": {"exitCode": 137, "reason": reason}}});
    let pod = json!({"status": {
        "phase": "Failed", "containerStatuses": [end("a", "OOMKilled"), end("b", "Error")],
    }});
    let outcome = observe(pod).pod.outcome.unwrap();
    assert_eq!(outcome.node.as_deref(), Some("n1"));
    let exceeded: Vec<_> = outcome.containers.iter().map(|exit| (&*exit.name, exit.out_of_memory)).collect();
    assert_eq!(exceeded, [("a", true), ("b", false)]);
}
