//! `status` of a Job: read, and written back as the difference.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::meta::ResourceVersion;
use super::text::Text;
use crate::job::index_set::IndexSet;
use crate::job::status::{Condition, JobStatus, Uncounted};
use crate::job::uid::Uid;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireJobStatus<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
    active: Option<u32>,
    ready: Option<u32>,
    terminating: Option<u32>,
    succeeded: Option<u32>,
    failed: Option<u32>,
    #[serde(borrow)]
    uncounted_terminated_pods: Option<WireUncounted<'a>>,
    #[serde(borrow)]
    completed_indexes: Option<Text<'a>>,
    #[serde(borrow)]
    failed_indexes: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    last_probe_time: Option<Timestamp>,
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUncounted<'a> {
    #[serde(borrow)]
    succeeded: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    failed: Option<Vec<Text<'a>>>,
}

impl WireJobStatus<'_> {
    /// Reads index lists as the Job controller does: leniently. Indexes that the Job no longer has are kept, so that it
    /// shows that they are to be dropped.
    pub(super) fn read(self) -> JobStatus {
        let index_set = |text: &str| IndexSet::parse_lenient(text, u32::MAX);
        JobStatus {
            conditions: self.conditions.unwrap_or_default().iter().map(condition).collect(),
            start_time: self.start_time,
            completion_time: self.completion_time,
            active: self.active.unwrap_or(0),
            ready: self.ready,
            terminating: self.terminating,
            succeeded: self.succeeded.unwrap_or(0),
            failed: self.failed.unwrap_or(0),
            uncounted: self
                .uncounted_terminated_pods
                .map(|pods| Uncounted { succeeded: uids(pods.succeeded), failed: uids(pods.failed) }),
            completed_indexes: self.completed_indexes.as_deref().map(index_set).unwrap_or_default(),
            failed_indexes: self.failed_indexes.as_deref().map(index_set),
        }
    }
}

fn condition(wire: &WireCondition<'_>) -> Condition {
    Condition {
        kind: (&*wire.kind).into(),
        status: (&*wire.status).into(),
        reason: wire.reason.as_deref().unwrap_or_default().into(),
        message: wire.message.as_deref().unwrap_or_default().into(),
        last_probe_time: wire.last_probe_time,
        last_transition_time: wire.last_transition_time,
    }
}

fn uids(list: Option<Vec<Text<'_>>>) -> Vec<Uid> {
    list.unwrap_or_default().iter().map(|uid| (**uid).into()).collect()
}

/// A JSON merge patch (RFC 7396) of a Job's `/status` that turns `old` into `new`: what changed, null for what went
/// away, and the resourceVersion that must still hold.
///
/// As in Kubernetes, zero `active`, `succeeded` and `failed` are absent, while `ready`, `terminating` and an empty
/// `uncountedTerminatedPods` are written; an empty `completedIndexes` is absent, an empty `failedIndexes` is not.
/// Times have whole seconds.
pub fn status_patch(old: &JobStatus, new: &JobStatus, version: &ResourceVersion) -> Bytes {
    let mut patch = json!({"metadata": {"resourceVersion": version.as_str()}});
    if let Some(changes) = merge_diff(&encode(old), &encode(new)) {
        patch["status"] = Value::Object(changes);
    }
    patch.to_string().into()
}

/// The status as the API server stores it.
fn encode(status: &JobStatus) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    if !status.conditions.is_empty() {
        set("conditions", status.conditions.iter().map(encode_condition).collect());
    }
    for (name, time) in [("startTime", status.start_time), ("completionTime", status.completion_time)] {
        if let Some(time) = time {
            set(name, encode_time(time));
        }
    }
    for (name, count) in
        [("active", status.active), ("succeeded", status.succeeded), ("failed", status.failed)]
    {
        if count > 0 {
            set(name, count.into());
        }
    }
    for (name, count) in [("ready", status.ready), ("terminating", status.terminating)] {
        if let Some(count) = count {
            set(name, count.into());
        }
    }
    if let Some(uncounted) = &status.uncounted {
        set("uncountedTerminatedPods", encode_uncounted(uncounted));
    }
    if !status.completed_indexes.is_empty() {
        set("completedIndexes", status.completed_indexes.to_string().into());
    }
    if let Some(failed) = &status.failed_indexes {
        set("failedIndexes", failed.to_string().into());
    }
    fields
}

fn encode_condition(condition: &Condition) -> Value {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("type", condition.kind.as_str().into());
    set("status", condition.status.as_str().into());
    for (name, time) in
        [("lastProbeTime", condition.last_probe_time), ("lastTransitionTime", condition.last_transition_time)]
    {
        if let Some(time) = time {
            set(name, encode_time(time));
        }
    }
    for (name, text) in [("reason", &condition.reason), ("message", &condition.message)] {
        if !text.is_empty() {
            set(name, (**text).into());
        }
    }
    Value::Object(fields)
}

fn encode_uncounted(uncounted: &Uncounted) -> Value {
    let lists = [("succeeded", &uncounted.succeeded), ("failed", &uncounted.failed)];
    let lists = lists.into_iter().filter(|(_, uids)| !uids.is_empty());
    lists
        .map(|(name, uids)| (name, uids.iter().map(|uid| Value::from(uid.to_string())).collect::<Value>()))
        .collect()
}

fn encode_time(time: Timestamp) -> Value {
    format!("{time:.0}").into()
}

/// The merge patch that turns one object into the other, neither of which contains null; `None` if they are equal.
fn merge_diff(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<Map<String, Value>> {
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| {
        let change = match (old.get(key), value) {
            (Some(before), after) if before == after => return None,
            (Some(Value::Object(before)), Value::Object(after)) => Value::Object(merge_diff(before, after)?),
            (_, after) => after.clone(),
        };
        Some((key.clone(), change))
    });
    let patch: Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests;
