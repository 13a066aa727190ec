//! Text that acts on a terminal or misleads a reader, wherever the API takes text.

use anyhow::Result;
use http::Request;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::pods::RUN_TIME;
use crate::tenant::user::Tenant;
use crate::tenant::yard::Yard;

/// An escape sequence, a title, a right-to-left override, a line of a log that was never written.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}txet\u{2066}\r\n{\"level\":\"error\",\"message\":\"forged\"}";
/// Characters that must not reach logs, Events and conditions.
const DANGEROUS: [char; 6] = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}', '\r'];

/// Failed pods with hostile messages, and Jobs with hostile annotations.
pub(super) async fn begin(tenant: &Tenant) {
    let jobs = (0..tenant.scale.of(5, 20)).map(|number| {
        let mut job = tenant.job(&format!("job-{number}"));
        let annotations = &mut job["metadata"]["annotations"];
        for name in ["backoff-initial", "failed-pods-limit", "prune-succeeded"] {
            annotations[format!("yardmaster.dev/{name}")] = json!(HOSTILE);
        }
        annotations["tracing.k8s.io/traceparent"] = json!(HOSTILE);
        let spec = &mut job["spec"];
        (spec["backoffLimit"], spec["template"]["metadata"]["annotations"]) =
            (json!(0), json!({RUN_TIME: "1h"}));
        spec["podFailurePolicy"] = json!({"rules": [{
            "action": "FailJob", "onPodConditions": [{"type": "Hostile", "status": "True"}],
        }]});
        job
    });
    tenant.create_all("jobs", jobs).await;
    // The controllers need a moment to create the pods.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for pod in tenant.list("pods").await.unwrap_or_default() {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        tenant.patch("pods", &format!("{name}/status"), &json!({"status": failed()})).await;
    }
}

/// The status of a failed pod.
fn failed() -> Value {
    let terminated = json!({"exitCode": 1, "reason": HOSTILE, "message": HOSTILE});
    json!({
        "phase": "Failed", "reason": HOSTILE, "message": HOSTILE,
        "conditions": [{"type": "Hostile", "status": "True", "reason": "Hostile", "message": HOSTILE}],
        "containerStatuses": [{
            "name": "work", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        }],
    })
}

/// Texts of the controllers that have dangerous characters in them.
pub(super) async fn judge(tenant: &Tenant, yard: &Yard, ground: &Ground) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(ground.directory.path())? {
        let file = entry?.path();
        if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("replica-")) {
            let log = String::from_utf8_lossy(&std::fs::read(&file)?).into_owned();
            wrong.extend(danger(&log).map(|c| format!("{} has {c:?}", file.display())));
        }
    }
    let path = format!("/api/v1/namespaces/{}/events", tenant.namespace);
    let events: Value = yard.admin.request(Request::get(path).body(Vec::new())?).await?;
    let messages =
        events["items"].as_array().into_iter().flatten().filter_map(|event| event["message"].as_str());
    wrong.extend(messages.filter_map(danger_of).map(|c| format!("an Event has {c:?}")));
    for job in tenant.list("jobs").await? {
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let texts =
            conditions.iter().flat_map(|one| [&one["reason"], &one["message"]]).filter_map(Value::as_str);
        wrong.extend(texts.filter_map(danger_of).map(|c| format!("a condition of a Job has {c:?}")));
    }
    wrong.sort();
    wrong.dedup();
    Ok(wrong)
}

/// The dangerous characters of a text.
fn danger(text: &str) -> impl Iterator<Item = char> + '_ {
    DANGEROUS.into_iter().filter(|c| text.contains(*c))
}

/// The first of them.
fn danger_of(text: &str) -> Option<char> {
    danger(text).next()
}
