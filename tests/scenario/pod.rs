//! Reads fields of a pod, and selects the pods of a step.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::scenario::{
    file::{Select, Which},
    indexes,
    names::Names,
};

/// Annotation and label that carry a pod's completion index.
pub(crate) const INDEX_KEY: &str = "batch.kubernetes.io/job-completion-index";

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Whether deletion of the object has begun.
pub(crate) fn terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

pub(crate) fn phase(pod: &Value) -> &str {
    text(pod, "/status/phase")
}

/// Whether the Ready condition is True.
pub(crate) fn ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The completion index from the annotation.
pub(crate) fn index(pod: &Value) -> Option<u32> {
    pod.pointer("/metadata/annotations")?.get(INDEX_KEY)?.as_str()?.parse().ok()
}

impl Select {
    /// The selected pods, in the order to which `nth` and `count` refer. An empty selection is an error.
    pub(crate) fn choose(&self, pods: Vec<Value>, names: &Names) -> Result<Vec<Value>> {
        let indexes = self.indexes.as_deref().map(indexes::parse).transpose()?;
        let mut chosen = pods;
        chosen.retain(|pod| {
            indexes.as_ref().is_none_or(|set| index(pod).is_some_and(|index| set.contains_key(&index)))
                && self.matches(pod, names)
        });
        let place = |pod: &Value| {
            let index = index(pod).map_or(-1, i64::from);
            (index, text(pod, "/metadata/creationTimestamp").to_owned(), name(pod).to_owned())
        };
        chosen.sort_by_key(place);
        if let Some(nth) = self.nth {
            chosen = chosen.into_iter().skip(nth).take(1).collect();
        }
        chosen.truncate(self.count.unwrap_or(usize::MAX));
        if chosen.is_empty() {
            bail!("no pod is selected");
        }
        Ok(chosen)
    }

    fn matches(&self, pod: &Value, names: &Names) -> bool {
        let active = matches!(phase(pod), "Pending" | "Running") && !terminating(pod);
        let marks = names.marks_of(uid(pod));
        let owned_by = |which: Which| {
            let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.into_iter().flatten().any(|owner| owner["uid"].as_str() == names.uid_of(which))
        };
        wanted(self.all, true)
            && wanted(self.active, active)
            && wanted(self.terminating, terminating(pod))
            && wanted(self.ready, ready(pod))
            && wanted(self.unmarked, marks.is_empty())
            && self.index.is_none_or(|wanted| index(pod) == Some(wanted))
            && self.phase.as_deref().is_none_or(|wanted| phase(pod) == wanted)
            && self.mark.as_ref().is_none_or(|mark| marks.contains(&mark.as_str()))
            && self.owner.is_none_or(owned_by)
    }
}

fn wanted(wanted: Option<bool>, actual: bool) -> bool {
    wanted.is_none_or(|wanted| wanted == actual)
}
