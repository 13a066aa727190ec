//! Tests of states and differences.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn names(namespace: &str) -> Names {
    Names::new(namespace.into(), "f")
}

fn job(status: &Value) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": "j1", "uid": "u"}, "spec": {}, "status": status}))
}

fn event(namespace: &str, reason: &str, message: &str, count: u64) -> Arc<Value> {
    let object = json!({"kind": "Job", "name": "j1", "namespace": namespace});
    Arc::new(json!({
        "involvedObject": object, "type": "Normal", "reason": reason, "message": message, "count": count,
    }))
}

fn state(namespace: &str, jobs: Vec<Arc<Value>>, events: Vec<Arc<Value>>) -> State {
    let objects = Objects { jobs, pods: Vec::new(), events };
    State::of(&objects, &mut names(namespace), &BTreeMap::new())
}

#[test]
fn times_uids_and_generated_names_make_no_difference() {
    let of = |namespace: &str, pod: &str, time: &str| {
        let message =
            format!("Container c for pod {namespace}/{pod} failed with exit code 1 matching FailJob");
        let failed = json!({"type": "Failed", "status": "True", "reason": "R", "message": message,
                            "lastTransitionTime": time});
        let status = json!({
            "startTime": time, "conditions": [failed], "uncountedTerminatedPods": {"failed": [pod]},
        });
        state(
            namespace,
            vec![job(&status)],
            vec![event(namespace, "Created", &format!("Created pod: {pod}"), 1)],
        )
    };
    let (reference, ours) =
        (of("n-r", "j1-x7k2p", "2026-01-01T00:00:00Z"), of("n-y", "j1-0-abc", "2026-01-02T00:00:00Z"));
    assert!(Difference::between(&reference, &ours).is_none());
    let conditions = reference.get(Field::Conditions, "j1").unwrap();
    assert_eq!(
        conditions,
        "Failed=True R: Container c for pod <namespace>/<pod> failed with exit code 1 matching FailJob"
    );
    assert!(reference.is_finished("j1") && !reference.is_finished("j2"));
}

#[test]
fn another_start_time_is_seen() {
    let mut names = names("n");
    let mut start = |time: &str| {
        let objects = Objects { jobs: vec![job(&json!({"startTime": time}))], ..Objects::default() };
        State::of(&objects, &mut names, &BTreeMap::new()).get(Field::StartTime, "j1").unwrap().to_owned()
    };
    assert_eq!([start("a"), start("a"), start("b"), start("a")], ["time 1", "time 1", "time 2", "time 1"]);
}

#[test]
fn the_weightiest_field_gives_the_kind() {
    let complete = json!({"type": "Complete", "status": "True", "reason": "CompletionsReached"});
    let with = |status: Value| state("n", vec![job(&status)], Vec::new());
    for (reference, ours, kind) in [
        (json!({"active": 2}), json!({"active": 1}), "Active: ours fewer"),
        (json!({"active": 2}), json!({"active": 1, "succeeded": 1}), "Succeeded: ours more"),
        (
            json!({"conditions": [complete], "active": 1}),
            json!({}),
            "Conditions: Complete=True CompletionsReached | no conditions",
        ),
        (json!({"completedIndexes": "0,1"}), json!({"completedIndexes": "0"}), "CompletedIndexes"),
    ] {
        let difference = Difference::between(&with(reference), &with(ours)).unwrap();
        assert_eq!(difference.kind(), kind, "{difference}");
    }
    let gone = Difference::between(&with(json!({})), &state("n", Vec::new(), Vec::new())).unwrap();
    assert!(gone.kind().starts_with("Exists") && !gone.is_only(&[Field::Exists]));
}

#[test]
fn events_count_as_far_as_clients_count_them() {
    let with = |reason: &str, count| state("n", Vec::new(), vec![event("n", reason, "m", count)]);
    for (reason, theirs, ours, equal) in [
        ("Suspended", 1, 1, true),
        ("Suspended", 1, 2, false),
        ("FailedCreate", 1, 5, true),
        ("SuccessfulCreate", 12, 20, true),
        ("SuccessfulCreate", 3, 30, true),
    ] {
        let difference = Difference::between(&with(reason, theirs), &with(reason, ours));
        assert_eq!(difference.is_none(), equal, "{reason} {theirs} {ours}");
    }
    let combined = state("n", Vec::new(), vec![event("n", "SuccessfulCreate", &format!("{COMBINED}m"), 12)]);
    assert!(Difference::between(&combined, &with("SuccessfulCreate", 11)).is_none());
}

#[test]
fn an_event_about_several_pods_is_as_many_about_one() {
    let with = |events: &[(&str, u64)]| {
        let events = events.iter().map(|(message, count)| event("n", "SuccessfulCreate", message, *count));
        state("n", Vec::new(), events.collect())
    };
    let each = with(&[("Created pod: j1-a", 1), ("Created pod: j1-b", 1), ("Created pod: j1-c", 1)]);
    for (events, equal) in [
        (with(&[("Created 3 pods", 1)]), true),
        (with(&[("Created 2 pods", 1), ("Created pod: j1-d", 1)]), true),
        (with(&[("Created 2 pods", 1)]), false),
    ] {
        assert_eq!(Difference::between(&each, &events).is_none(), equal, "{events:?}");
    }
}

#[test]
fn active_may_be_too_low_only_as_long_as_that_of_the_reference() {
    let with =
        |low: u32| State::of(&Objects::default(), &mut names("n"), &BTreeMap::from([("j1".to_owned(), low)]));
    assert!(Difference::between(&with(2), &with(1)).is_none());
    assert_eq!(Difference::between(&with(0), &with(1)).unwrap().kind(), "ActiveTooLow: ours more");
}

#[test]
fn a_killed_controller_may_lose_events_and_gets_no_others() {
    let of = |events: &[(&str, u64)]| {
        let events = events.iter().map(|(reason, count)| event("n", reason, "m", *count)).collect();
        state("n", Vec::new(), events)
    };
    let all = [("Created", 3), ("Completed", 1), ("FailedCreate", 2)];
    for (ours, equal) in [
        (&[("Created", 2), ("FailedCreate", 7)][..], true),
        (&[], true),
        (&[("Created", 3), ("Completed", 2)], false),
        (&[("Created", 12)], false),
        (&[("Created", 3), ("Suspended", 1)], false),
    ] {
        let (reference, mut restored) = (of(&all), of(ours));
        restored.restore_events(&reference);
        assert_eq!(Difference::between(&reference, &restored).is_none(), equal, "{ours:?}");
    }
    assert_eq!(of(&[("SuccessfulCreate", 12), ("Created", 1)]).created("j1"), EXACT + 1);
}
