//! Changes of objects, in words.

use serde_json::Value;
use yardmaster::job::names::SHARD_LABEL;

use crate::ledger::{Ledger, conditions, name, tracked};

/// Describes the changes of a watch event, which the ledger does not contain yet. Returns `None` if a story
/// does not need it, such as a heartbeat.
pub(crate) fn in_words(ledger: &Ledger, event: &Value) -> Option<String> {
    let after = &event["object"];
    let is_gone = event["type"] == "DELETED";
    let uid = after["metadata"]["uid"].as_str()?;
    let (what, news) = match after["kind"].as_str()? {
        "Pod" => {
            let before = ledger.pods.get(uid).filter(|pod| pod.exists()).map(|pod| &pod.object);
            ("pod ", pod(before, after))
        }
        "Job" => {
            let before = ledger.jobs.get(uid).filter(|job| job.exists).map(|job| &job.object);
            ("", job(before, after))
        }
        "Lease" => ("lease ", lease(ledger.leases.get(name(after).1), after)),
        _ => return None,
    };
    let news: Vec<String> = news.into_iter().chain(is_gone.then(|| "gone".to_owned())).collect();
    (!news.is_empty()).then(|| format!("{what}{}: {}", short(name(after).1), news.join("; ")))
}

/// The end of a Lease's name, which begins with the controller's and its hash.
fn short(name: &str) -> &str {
    let is_hash = |part: &str| part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = name.split('-').find(|part| is_hash(part));
    hash.and_then(|hash| name.split_once(hash)?.1.strip_prefix('-')).unwrap_or(name)
}

fn pod(before: Option<&Value>, after: &Value) -> Vec<String> {
    let Some(before) = before else {
        let index = after["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str();
        let index = index.map_or(String::new(), |index| format!(", index {index}"));
        let phase = after["status"]["phase"].as_str().unwrap_or("Pending");
        return vec![format!("created{index}, {phase}")];
    };
    let mut news = Vec::new();
    let phase = &after["status"]["phase"];
    if before["status"]["phase"] != *phase {
        news.push(phase.as_str().unwrap_or("no phase").to_owned());
    }
    news.extend(deletion(before, after));
    match (tracked(before), tracked(after)) {
        (true, false) => news.push("tracking finalizer removed".to_owned()),
        (false, true) => news.push("tracking finalizer added".to_owned()),
        _ => {}
    }
    let shard = |pod: &Value| pod["metadata"]["labels"][SHARD_LABEL].as_str().unwrap_or("none").to_owned();
    if shard(before) != shard(after) {
        news.push(format!("shard label {}, was {}", shard(after), shard(before)));
    }
    let owners = |pod: &Value| pod["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    if owners(before) != owners(after) {
        news.push(if owners(after) == 0 { "no owner any more" } else { "has an owner" }.to_owned());
    }
    news
}

fn job(before: Option<&Value>, after: &Value) -> Vec<String> {
    let Some(before) = before else {
        return vec![format!("created, {}", fields(&Value::Null, &after["spec"]))];
    };
    let mut news = Vec::new();
    let changed = fields(&before["spec"], &after["spec"]);
    if !changed.is_empty() {
        news.push(changed);
    }
    news.extend(deletion(before, after));
    if before["status"] != after["status"] {
        news.push(status(after));
    }
    news
}

/// The fields of a Job's spec that differ, with their values. The template does not matter here.
fn fields(before: &Value, after: &Value) -> String {
    const DULL: [&str; 3] = ["template", "selector", "manualSelector"];
    let fields = after.as_object().into_iter().flatten();
    let changed = fields.filter(|(name, value)| !DULL.contains(&name.as_str()) && before[*name] != **value);
    changed.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn deletion(before: &Value, after: &Value) -> Option<String> {
    let mark = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    (!mark(before) && mark(after)).then(|| "is being deleted".to_owned())
}

/// The counts and conditions of a Job.
fn status(job: &Value) -> String {
    let status = &job["status"];
    let number = |field: &str| status[field].as_u64().unwrap_or(0);
    let uncounted = |field: &str| status["uncountedTerminatedPods"][field].as_array().map_or(0, Vec::len);
    let mut words = format!(
        "status: active {}, succeeded {} + {}, failed {} + {}",
        number("active"),
        number("succeeded"),
        uncounted("succeeded"),
        number("failed"),
        uncounted("failed"),
    );
    if number("terminating") > 0 {
        words += &format!(", terminating {}", number("terminating"));
    }
    for indexes in ["completedIndexes", "failedIndexes"] {
        if let Some(list) = status[indexes].as_str().filter(|list| !list.is_empty()) {
            words += &format!(", {indexes} {list}");
        }
    }
    for condition in conditions(job).filter(|condition| condition["status"] == "True") {
        let word = |field: &str| condition[field].as_str().unwrap_or_default();
        words += &format!(", {} ({})", word("type"), word("reason"));
    }
    words
}

/// Leases changing hands. Heartbeats have their replica in their name.
fn lease(before: Option<&Value>, after: &Value) -> Vec<String> {
    let holder = |lease: &Value| match lease["spec"]["holderIdentity"].as_str() {
        None | Some("") => "nobody".to_owned(),
        Some(holder) => holder.to_owned(),
    };
    match before {
        None => vec![format!("created by {}", holder(after))],
        Some(before) if holder(before) != holder(after) => {
            vec![format!("held by {}, was by {}", holder(after), holder(before))]
        }
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::time::Time;

    fn pod(phase: &str, finalizers: Value) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"uid": "u", "name": "job-0-x", "finalizers": finalizers},
            "status": {"phase": phase},
        })
    }

    /// The descriptions of these watch events.
    fn told(events: &[(&str, Value)]) -> Vec<String> {
        let mut ledger = Ledger::default();
        let tell = |(kind, object): &(&str, Value)| {
            let event = json!({"type": kind, "object": object});
            let words = in_words(&ledger, &event);
            ledger.take_in(Time::ZERO, event, None);
            words.unwrap_or_default()
        };
        events.iter().map(tell).collect()
    }

    #[test]
    fn a_pod_is_told_from_its_creation_to_its_end() {
        let finalizer = json!(["batch.kubernetes.io/job-tracking"]);
        let words = told(&[
            ("ADDED", pod("Pending", finalizer.clone())),
            ("MODIFIED", pod("Succeeded", finalizer.clone())),
            ("MODIFIED", pod("Succeeded", finalizer)),
            ("DELETED", pod("Succeeded", Value::Null)),
        ]);
        let expected = [
            "pod job-0-x: created, Pending",
            "pod job-0-x: Succeeded",
            "",
            "pod job-0-x: tracking finalizer removed; gone",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_lease_is_told_when_it_changes_hands() {
        let lease = |holder: &str, renewed: u32| {
            let name = "yardmaster-0fc0ee13eb5ef98c-shard-3";
            json!({
                "kind": "Lease",
                "metadata": {"uid": "l", "name": name},
                "spec": {"holderIdentity": holder, "renewTime": renewed},
            })
        };
        let words = told(&[
            ("ADDED", lease("replica-0", 1)),
            ("MODIFIED", lease("replica-0", 2)),
            ("MODIFIED", lease("", 3)),
        ]);
        let expected =
            ["lease shard-3: created by replica-0", "", "lease shard-3: held by nobody, was by replica-0"];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_status_is_told_with_what_is_counted_and_what_is_recorded() {
        let job = |status: Value| json!({"kind": "Job", "metadata": {"uid": "j", "name": "job-0"}, "spec": {"completions": 3}, "status": status});
        let status = json!({
            "active": 1, "succeeded": 2, "uncountedTerminatedPods": {"failed": ["p"]},
            "conditions": [{"type": "Complete", "status": "True", "reason": "CompletionsReached"}],
        });
        let words = told(&[("ADDED", job(json!({}))), ("MODIFIED", job(status))]);
        let expected = [
            "job-0: created, completions 3",
            "job-0: status: active 1, succeeded 2 + 0, failed 0 + 1, Complete (CompletionsReached)",
        ];
        assert_eq!(words, expected);
    }
}
