#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster::wire::job_status::WireJobStatus;
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::uid::Uid;
use crate::job::verdict::condition;

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

fn read(status: &Value) -> JobStatus {
    serde_json::from_str::<WireJobStatus<'_>>(&status.to_string()).unwrap().read()
}

#[test]
fn conditions_of_others_stay_and_nothing_is_left_of_what_others_have_written_under_our_types() {
    let foreign = [
        json!({"type": "Foreign", "status": "True", "message": "m"}),
        json!({"type": "Foreign", "status": "2"}),
    ];
    let stored = json!({"conditions": [
        {"type": "Suspended", "status": "False", "message": "old", "lastProbeTime": "2026-01-01T00:00:00Z"},
        foreign[0],
        {"type": "Suspended", "status": "True", "reason": "R"},
        foreign[1],
    ]});
    let old = read(&stored);
    let kinds: Vec<_> = old.conditions.iter().map(|c| (c.kind, &*c.reason)).collect();
    assert_eq!(kinds, [(ConditionKind::Suspended, "R")], "one that is True decides");
    let mut new = JobStatus { active: 1, ..old.clone() };
    assert_eq!(patch(&old, &new)["status"], json!({"active": 1}), "ours have not changed");
    new = old.clone();
    let of = |kind, status| condition(kind, status, "", "", Timestamp::UNIX_EPOCH);
    new.ensure(of(ConditionKind::Suspended, ConditionStatus::False));
    new.ensure(of(ConditionKind::FailureTarget, ConditionStatus::True));
    let since = "1970-01-01T00:00:00Z";
    let ours = [("Suspended", "False"), ("FailureTarget", "True")].map(
        |(kind, status)| json!({"type": kind, "status": status, "lastProbeTime": since, "lastTransitionTime": since}),
    );
    let patch = patch(&old, &new);
    let [suspended, failure] =
        ["Suspended", "FailureTarget"].map(|kind| json!({"$patch": "delete", "type": kind}));
    assert_eq!(patch["status"]["conditions"], json!([suspended, failure, ours[0], ours[1]]));
    let written = merged(stored, patch["status"].clone());
    assert_eq!(written["conditions"], json!([ours[0], ours[1], foreign[0], foreign[1]]));
}

/// The API server accepts any status, and no rule knows this one.
#[test]
fn a_condition_whose_status_has_no_meaning_stays_as_it_is() {
    let odd = json!({"type": "FailureTarget", "status": "Maybe", "reason": "Odd"});
    let stored = json!({"conditions": [odd]});
    let old = read(&stored);
    let mut new = old.clone();
    new.ensure(condition(
        ConditionKind::Suspended,
        ConditionStatus::True,
        "JobSuspended",
        "",
        Timestamp::UNIX_EPOCH,
    ));
    let written = merged(stored, patch(&old, &new)["status"].clone());
    let of = |kind: &str| {
        let conditions = written["conditions"].as_array().unwrap();
        conditions.iter().filter(|condition| condition["type"] == kind).cloned().collect::<Vec<_>>()
    };
    assert_eq!((of("FailureTarget"), of("Suspended").len()), (vec![odd], 1), "{written}");
    let old = read(&written);
    new.ensure(condition(
        ConditionKind::FailureTarget,
        ConditionStatus::True,
        "Known",
        "",
        Timestamp::UNIX_EPOCH,
    ));
    let written = merged(written, patch(&old, &new)["status"].clone());
    let failure = read(&written).holding(ConditionKind::FailureTarget).cloned();
    assert_eq!(failure.map(|failure| failure.reason.to_string()).as_deref(), Some("Known"), "{written}");
}

#[test]
fn a_status_keeps_no_conditions_of_others_and_short_texts_of_ours() {
    let long = |kind: &str| json!({"type": kind, "status": "Unknown", "reason": "é".repeat(90_000), "message": "é".repeat(90_000)});
    let conditions: Vec<Value> =
        ["Foreign", "Complete", "", "complete", "Complete"].iter().map(|kind| long(kind)).collect();
    let status = read(&json!({"conditions": conditions}));
    let [known] = &status.conditions[..] else { panic!("{status:?}") };
    assert_eq!((known.kind, known.status), (ConditionKind::Complete, ConditionStatus::Unknown));
    assert!(known.reason.len() <= 1 << 10 && known.message.len() <= 4 << 10, "{status:?}");
    assert!(known.reason.starts_with('é') && known.message.starts_with('é'), "{status:?}");
}

fn times() -> impl Strategy<Value = Option<Timestamp>> {
    let time = |(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap();
    prop::option::of((0..2_000_000_000i64, 0..1_000_000_000).prop_map(time))
}

/// The status as the API server stores it.
fn encode(status: &JobStatus) -> Value {
    merged(json!({}), patch(&JobStatus::default(), status)["status"].clone())
}

/// Applies a strategic merge patch of a status, as the API server does.
fn merged(mut stored: Value, mut patch: Value) -> Value {
    if let Some(Value::Array(patches)) = patch.get_mut("conditions") {
        let (deleted, added): (Vec<Value>, Vec<Value>) =
            std::mem::take(patches).into_iter().partition(|patch| patch["$patch"] == "delete");
        let of_type = |list: &[Value], kind: &Value| list.iter().any(|one| one["type"] == *kind);
        let found = stored["conditions"].as_array().cloned().unwrap_or_default();
        let kept: Vec<Value> = found.into_iter().filter(|one| !of_type(&deleted, &one["type"])).collect();
        assert!(!kept.iter().any(|one| of_type(&added, &one["type"])), "nothing is merged with an old text");
        // New ones come before those that the patch does not name.
        *patches = added.into_iter().chain(kept).collect();
        if patches.is_empty() {
            patch["conditions"] = Value::Null;
        }
    }
    // Only conditions have a merge key. The rest is a JSON merge patch.
    json_patch::merge(&mut stored, &patch);
    stored
}

/// Conditions of the kinds that the rules know, each once.
fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let kinds = [ConditionKind::Suspended, ConditionKind::Complete, ConditionKind::FailureTarget];
    let kinds = prop::sample::subsequence(kinds.to_vec(), 0..=2).prop_shuffle();
    let status = prop_oneof![
        Just(ConditionStatus::True),
        Just(ConditionStatus::False),
        Just(ConditionStatus::Unknown)
    ];
    let rest = (status, "[a-z]{0,2}", "[a-z\"\\\\é]{0,3}", times(), times());
    (kinds, prop::collection::vec(rest, 2)).prop_map(|(kinds, rest)| {
        let conditions = kinds.into_iter().zip(rest);
        let conditions =
            conditions.map(|(kind, (status, reason, message, last_probe_time, last_transition_time))| {
                Condition {
                    kind,
                    status,
                    reason: reason.into(),
                    message: message.into(),
                    last_probe_time,
                    last_transition_time,
                }
            });
        conditions.collect()
    })
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
                    names_used: 0,
                    restarts: 0,
                    running_since: None,
                    results: None,
                    after_met: None,
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
        prop_assert_eq!(read(&encode(&status)), status.stored());
    }
}
