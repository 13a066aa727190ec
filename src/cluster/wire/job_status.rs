//! The decoder of a Job's `status`.

use jiff::Timestamp;
use serde::Deserialize;

use super::lenient;
use super::text::Text;
use super::uids::Uids;
use crate::job::index_set::IndexSet;
use crate::job::short_text::short;
use crate::job::status::{Condition, ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::uid::Uid;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireJobStatus<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
    #[serde(deserialize_with = "lenient::time")]
    start_time: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::time")]
    completion_time: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::count_if_set")]
    active: Option<u32>,
    #[serde(deserialize_with = "lenient::count_if_set")]
    ready: Option<u32>,
    #[serde(deserialize_with = "lenient::count_if_set")]
    terminating: Option<u32>,
    #[serde(deserialize_with = "lenient::count_if_set")]
    succeeded: Option<u32>,
    #[serde(deserialize_with = "lenient::count_if_set")]
    failed: Option<u32>,
    uncounted_terminated_pods: Option<WireUncounted>,
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
    #[serde(deserialize_with = "lenient::time")]
    last_probe_time: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::time")]
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUncounted {
    succeeded: Option<Uids>,
    failed: Option<Uids>,
}

impl WireJobStatus<'_> {
    /// How many UIDs `uncountedTerminatedPods` lists, whether they are kept or not.
    pub(super) fn uncounted(&self) -> usize {
        let lists = self.uncounted_terminated_pods.iter().flat_map(|pods| [&pods.succeeded, &pods.failed]);
        lists.flatten().map(Uids::listed).fold(0, usize::saturating_add)
    }

    /// Reads index lists leniently, as the Job controller does. Indexes that the Job no longer has are kept,
    /// so that the rules see that they must be dropped.
    pub(super) fn read(self) -> JobStatus {
        let index_set = |text: &str| IndexSet::parse_lenient(text, u32::MAX);
        let mut status = JobStatus {
            conditions: Vec::new(),
            start_time: self.start_time,
            completion_time: self.completion_time,
            active: self.active.unwrap_or(0),
            ready: self.ready,
            terminating: self.terminating,
            succeeded: self.succeeded.unwrap_or(0),
            failed: self.failed.unwrap_or(0),
            uncounted: self
                .uncounted_terminated_pods
                .map(|pods| Uncounted { succeeded: kept(pods.succeeded), failed: kept(pods.failed) }),
            completed_indexes: self.completed_indexes.as_deref().map(index_set).unwrap_or_default(),
            failed_indexes: self.failed_indexes.as_deref().map(index_set),
            // This number is no part of the status that the API server stores.
            names_used: 0,
            restarts: 0,
            running_since: None,
            results: None,
            after_met: None,
        };
        let conditions = self.conditions.iter().flatten().filter_map(condition);
        conditions.for_each(|condition| status.note(condition));
        status
    }
}

/// The condition, if a rule knows its kind and its status. Any other stays as it is, like those of other
/// kinds. Authors of statuses choose texts of any length, and each replica keeps them.
fn condition(wire: &WireCondition<'_>) -> Option<Condition> {
    Some(Condition {
        kind: ConditionKind::named(&wire.kind)?,
        status: ConditionStatus::named(&wire.status)?,
        reason: short(wire.reason.as_deref().unwrap_or_default()).into(),
        message: short(wire.message.as_deref().unwrap_or_default()).into(),
        last_probe_time: wire.last_probe_time,
        last_transition_time: wire.last_transition_time,
    })
}

fn kept(list: Option<Uids>) -> Vec<Uid> {
    list.map(Uids::into_kept).unwrap_or_default()
}
