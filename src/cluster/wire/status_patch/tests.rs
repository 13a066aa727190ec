#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster::wire::job_status::WireJobStatus;
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::Uid;

fn patch(old: &JobStatus, new: &JobStatus) -> Value {
    serde_json::from_slice(&status_patch(old, new, &"42".into())).unwrap()
}

fn uncounted(succeeded: &[&str], failed: &[&str]) -> Option<Uncounted> {
    let list = |uids: &[&str]| uids.iter().map(|uid| Uid::from(*uid)).collect();
    Some(Uncounted { succeeded: list(succeeded), failed: list(failed) })
}

#[test]
fn only_changes_are_written() {
    let old = JobStatus { active: 3, ready: Some(2), terminating: Some(0), ..JobStatus::default() };
    assert_eq!(patch(&old, &old), json!({"metadata": {"resourceVersion": "42"}, "status": {}}));
    let new = JobStatus { active: 0, ready: Some(0), succeeded: 3, ..old.clone() };
    assert_eq!(
        patch(&old, &new),
        json!({"metadata": {"resourceVersion": "42"}, "status": {"active": null, "ready": 0, "succeeded": 3}})
    );
}

#[test]
fn zeros_and_empty_values_are_written_where_kubernetes_writes_them() {
    let first = JobStatus {
        ready: Some(0),
        terminating: Some(0),
        uncounted: uncounted(&[], &[]),
        failed_indexes: Some(IndexSet::new()),
        ..JobStatus::default()
    };
    assert_eq!(
        patch(&JobStatus::default(), &first)["status"],
        json!({"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "failedIndexes": ""})
    );
}

#[test]
fn counting_empties_the_lists_and_keeps_the_object() {
    let recorded = JobStatus { uncounted: uncounted(&["a"], &["b"]), ..JobStatus::default() };
    let counted = JobStatus { uncounted: uncounted(&[], &["b"]), succeeded: 1, ..JobStatus::default() };
    assert_eq!(
        patch(&recorded, &counted)["status"],
        json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": null}})
    );
    let empty = JobStatus { uncounted: uncounted(&[], &[]), ..JobStatus::default() };
    assert_eq!(
        patch(&recorded, &empty)["status"],
        json!({"uncountedTerminatedPods": {"succeeded": null, "failed": null}})
    );
}

#[test]
fn times_have_whole_seconds() {
    let started = JobStatus {
        start_time: Some("2026-01-01T00:00:01.987654321Z".parse().unwrap()),
        ..Default::default()
    };
    assert_eq!(patch(&JobStatus::default(), &started)["status"]["startTime"], "2026-01-01T00:00:01Z");
    assert_eq!(patch(&started, &JobStatus::default())["status"]["startTime"], Value::Null);
}

fn times() -> impl Strategy<Value = Option<Timestamp>> {
    let time = |(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap();
    prop::option::of((0..2_000_000_000i64, 0..1_000_000_000).prop_map(time))
}

/// The status as the API server stores it.
fn encode(status: &JobStatus) -> Value {
    merged(json!({}), patch(&JobStatus::default(), status)["status"].clone())
}

/// What the API server makes of a strategic merge patch of a status.
fn merged(mut stored: Value, mut patch: Value) -> Value {
    if let Some(conditions) = patch.get_mut("conditions").and_then(Value::as_array_mut) {
        assert_eq!(conditions.remove(0), json!({"$patch": "replace"}), "they would be merged by type");
    }
    // But for lists with a merge key, which only conditions have, it is a JSON merge patch.
    json_patch::merge(&mut stored, &patch);
    stored
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let kind = prop_oneof![
        Just(ConditionKind::Suspended),
        Just(ConditionKind::Complete),
        Just(ConditionKind::FailureTarget),
        Just(ConditionKind::Other("Custom".into())),
    ];
    let status = prop_oneof![
        Just(ConditionStatus::True),
        Just(ConditionStatus::False),
        Just(ConditionStatus::Other("Unknown".into())),
        Just(ConditionStatus::Other("maybe".into()))
    ];
    let condition = (kind, status, "[a-z]{0,2}", "[a-z\"\\\\é]{0,3}", times(), times()).prop_map(
        |(kind, status, reason, message, last_probe_time, last_transition_time)| Condition {
            kind,
            status,
            reason: reason.into(),
            message: message.into(),
            last_probe_time,
            last_transition_time,
        },
    );
    prop::collection::vec(condition, 0..3)
}

fn index_sets() -> impl Strategy<Value = IndexSet> {
    prop::collection::btree_set(0..INDEXES, 0..6).prop_map(|indexes| {
        let mut set = IndexSet::new();
        for index in indexes {
            set.insert(index);
        }
        set
    })
}

const INDEXES: u32 = 12;

fn statuses() -> impl Strategy<Value = JobStatus> {
    let uids = || prop::collection::vec("[a-c]{1,2}".prop_map(|uid| Uid::from(uid.as_str())), 0..3);
    let uncounted =
        prop::option::of((uids(), uids()).prop_map(|(succeeded, failed)| Uncounted { succeeded, failed }));
    let count = || 0..3u32;
    (
        (conditions(), times(), times(), uncounted),
        (count(), prop::option::of(count()), prop::option::of(count()), count(), count()),
        (index_sets(), prop::option::of(index_sets())),
    )
        .prop_map(
            |(
                (conditions, start_time, completion_time, uncounted),
                counts,
                (completed_indexes, failed_indexes),
            )| {
                let (active, ready, terminating, succeeded, failed) = counts;
                JobStatus {
                    conditions,
                    start_time,
                    completion_time,
                    active,
                    ready,
                    terminating,
                    succeeded,
                    failed,
                    uncounted,
                    completed_indexes,
                    failed_indexes,
                }
            },
        )
}

proptest! {
    #[test]
    fn the_patch_turns_the_old_status_into_the_new(old in statuses(), new in statuses()) {
        let patch = patch(&old, &new);
        prop_assert_eq!(&merged(encode(&old), patch["status"].clone()), &encode(&new));
        let changes = |(key, value): (&String, &Value)| encode(&old).get(key) != Some(value);
        prop_assert!(patch["status"].as_object().unwrap().iter().all(changes), "{patch}");
    }

    #[test]
    fn a_written_status_is_read_back(status in statuses()) {
        let text = encode(&status).to_string();
        let read = serde_json::from_str::<WireJobStatus<'_>>(&text).unwrap().read();
        prop_assert_eq!(read, status.stored());
    }
}
