//! The cells of each kind's row.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Columns, duration};

/// The row of an object: `cells`, and `conditions` for finished pods.
pub(super) fn row(columns: Columns, object: &Value, now: Timestamp) -> Value {
    let name = &object["metadata"]["name"];
    let age = since(&object["metadata"]["creationTimestamp"], now);
    let cells = match columns {
        Columns::ConfigMap => json!([name, entries(object, &["data", "binaryData"]), age]),
        Columns::CronJob => cron_job(object, &age, now),
        Columns::Event => event(object, now),
        Columns::Job => job(object, &age, now),
        Columns::Lease => json!([name, text(&object["spec"]["holderIdentity"]), age]),
        Columns::NameAge => json!([name, age]),
        Columns::NameCreated => json!([name, text(&object["metadata"]["creationTimestamp"])]),
        Columns::Namespace => json!([name, text(&object["status"]["phase"]), age]),
        Columns::Node => node(object, &age),
        Columns::Pod => return pod(object, &age, now),
        Columns::PodGroup => pod_group(object, &age),
        Columns::Secret => json!([name, text(&object["type"]), entries(object, &["data"]), age]),
    };
    json!({"cells": cells})
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn since(value: &Value, now: Timestamp) -> String {
    time(value).map_or_else(|| "<unknown>".into(), |then| duration::between(then, now))
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "<none>" } else { value }
}

fn entries(object: &Value, fields: &[&str]) -> usize {
    fields.iter().filter_map(|field| object[*field].as_object()).map(serde_json::Map::len).sum()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = list(&object["status"]["conditions"]);
    conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn event(event: &Value, now: Timestamp) -> Value {
    let first = match time(&event["firstTimestamp"]) {
        Some(_) => since(&event["firstTimestamp"], now),
        None => since(&event["eventTime"], now),
    };
    let last = if time(&event["series"]["lastObservedTime"]).is_some() {
        since(&event["series"]["lastObservedTime"], now)
    } else if time(&event["lastTimestamp"]).is_some() {
        since(&event["lastTimestamp"], now)
    } else {
        first.clone()
    };
    let involved = &event["involvedObject"];
    let object = match (text(&involved["kind"]).to_lowercase(), text(&involved["name"])) {
        (kind, "") => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    let source = [&event["source"]["component"], &event["source"]["host"]];
    let source: Vec<&str> = source.into_iter().filter_map(Value::as_str).collect();
    let count = event["series"]["count"].as_i64().or_else(|| event["count"].as_i64()).unwrap_or(1).max(1);
    json!([
        last,
        text(&event["type"]),
        text(&event["reason"]),
        object,
        text(&involved["fieldPath"]),
        source.join(", "),
        text(&event["message"]).trim(),
        first,
        count,
        event["metadata"]["name"],
    ])
}

fn job(job: &Value, age: &str, now: Timestamp) -> Value {
    let (spec, status) = (&job["spec"], &job["status"]);
    let succeeded = status["succeeded"].as_i64().unwrap_or(0);
    let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64().unwrap_or(0)) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let end = time(&status["completionTime"]).unwrap_or(now);
    let took = time(&status["startTime"]).map(|start| duration::between(start, end)).unwrap_or_default();
    let state = if condition(job, "Complete").is_some() {
        "Complete"
    } else if condition(job, "Failed").is_some() {
        "Failed"
    } else if !job["metadata"]["deletionTimestamp"].is_null() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| condition(job, kind).is_some())
            .unwrap_or("Running")
    };
    let [names, images] = containers(&spec["template"]);
    json!([
        job["metadata"]["name"],
        state,
        completions,
        took,
        age,
        names,
        images,
        selector(&spec["selector"]),
    ])
}

/// Names and images of the containers of a pod template.
fn containers(template: &Value) -> [String; 2] {
    let containers = list(&template["spec"]["containers"]);
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = containers.iter().map(|container| text(&container[field])).collect();
        texts.join(",")
    })
}

fn cron_job(cron_job: &Value, age: &str, now: Timestamp) -> Value {
    let (spec, status) = (&cron_job["spec"], &cron_job["status"]);
    let last = time(&status["lastScheduleTime"]);
    let last = last.map_or_else(|| "<none>".to_owned(), |last| duration::between(last, now));
    let suspend = spec["suspend"].as_bool().map_or("<unset>", |is| if is { "True" } else { "False" });
    let job = &spec["jobTemplate"]["spec"];
    let [names, images] = containers(&job["template"]);
    json!([
        cron_job["metadata"]["name"],
        text(&spec["schedule"]),
        or_none(text(&spec["timeZone"])),
        suspend,
        list(&status["active"]).len(),
        last,
        age,
        names,
        images,
        selector(&job["selector"]),
    ])
}

/// A label selector as text.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> = labels.map(|(key, value)| format!("{key}={}", text(value))).collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let values: Vec<&str> = list(&expression["values"]).iter().map(text).collect();
        terms.push(match text(&expression["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if terms.is_empty() { "<none>".into() } else { terms.join(",") }
}

fn node(node: &Value, age: &str) -> Value {
    let mut states = vec![match condition(node, "Ready") {
        Some(_) => "Ready",
        None if list(&node["status"]["conditions"]).iter().any(|one| one["type"] == "Ready") => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == true {
        states.push("SchedulingDisabled");
    }
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let version = text(&node["status"]["nodeInfo"]["kubeletVersion"]);
    json!([node["metadata"]["name"], states.join(","), or_none(&roles.join(",")), age, version])
}

fn pod(pod: &Value, age: &str, now: Timestamp) -> Value {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let state = PodState::of(pod, now);
    let containers = list(&spec["containers"]).len();
    let gates = list(&spec["readinessGates"]);
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let met = gates.iter().filter(|gate| condition(pod, text(&gate["conditionType"])).is_some());
        format!("{}/{}", met.count(), gates.len())
    };
    let cells = json!([
        pod["metadata"]["name"],
        format!("{}/{containers}", state.ready),
        state.reason,
        state.restarts,
        age,
        or_none(text(&status["podIP"])),
        or_none(text(&spec["nodeName"])),
        or_none(text(&status["nominatedNodeName"])),
        gates,
    ]);
    let condition = match text(&status["phase"]) {
        "Succeeded" => Some(("Succeeded", "The pod has completed successfully.")),
        "Failed" => Some(("Failed", "The pod failed.")),
        _ => None,
    };
    let mut row = json!({"cells": cells});
    if let Some((reason, message)) = condition {
        row["conditions"] =
            json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    }
    row
}

fn pod_group(group: &Value, age: &str) -> Value {
    let policy = &group["spec"]["schedulingPolicy"];
    let policy = match (policy["gang"].is_object(), policy["basic"].is_object()) {
        (true, _) => "Gang",
        (_, true) => "Basic",
        _ => "<none>",
    };
    let workload = text(&group["spec"]["podGroupTemplateRef"]["workload"]["workloadName"]);
    let scheduled =
        list(&group["status"]["conditions"]).iter().find(|one| one["type"] == "PodGroupScheduled");
    let state = match scheduled.map(|condition| text(&condition["status"])) {
        Some("True") => "Scheduled",
        Some("False") => scheduled.map_or("", |condition| text(&condition["reason"])),
        _ => "Pending",
    };
    json!([group["metadata"]["name"], policy, or_none(workload), state, age])
}

/// The status, ready count and restarts that `kubectl get pods` shows.
struct PodState {
    reason: String,
    ready: usize,
    restarts: String,
}

impl PodState {
    fn of(pod: &Value, now: Timestamp) -> Self {
        let status = &pod["status"];
        let mut reason = match text(&status["reason"]) {
            "" => text(&status["phase"]).to_owned(),
            reason => reason.to_owned(),
        };
        let scheduled = list(&status["conditions"]).iter().find(|one| one["type"] == "PodScheduled");
        if scheduled.is_some_and(|condition| condition["reason"] == "SchedulingGated") {
            reason = "SchedulingGated".into();
        }
        let statuses = list(&status["containerStatuses"]);
        let restarts: i64 = statuses.iter().filter_map(|one| one["restartCount"].as_i64()).sum();
        let last_restart =
            statuses.iter().filter_map(|one| time(&one["lastState"]["terminated"]["finishedAt"])).max();
        let ready =
            statuses.iter().filter(|one| one["ready"] == true && !one["state"]["running"].is_null()).count();
        match initializing(pod) {
            Some(initializing) => reason = initializing,
            None => {
                for container in statuses.iter().rev() {
                    if let Some(state) = container_reason(&container["state"]) {
                        reason = state;
                    }
                }
                let running =
                    statuses.iter().any(|one| one["ready"] == true && !one["state"]["running"].is_null());
                if reason == "Completed" && running {
                    let all_ready = condition(pod, "Ready").is_some();
                    reason = if all_ready { "Running" } else { "NotReady" }.into();
                }
            }
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let finished = matches!(text(&status["phase"]), "Succeeded" | "Failed");
            if status["reason"] == "NodeLost" {
                reason = "Unknown".into();
            } else if !finished {
                reason = "Terminating".into();
            }
        }
        let restarts = match last_restart {
            Some(last) if restarts > 0 => format!("{restarts} ({} ago)", duration::between(last, now)),
            _ => restarts.to_string(),
        };
        Self { reason, ready, restarts }
    }
}

/// The reason in a container's state.
fn container_reason(state: &Value) -> Option<String> {
    let (waiting, terminated) = (&state["waiting"], &state["terminated"]);
    if let Some(reason) = waiting["reason"].as_str().filter(|reason| !reason.is_empty()) {
        return Some(reason.to_owned());
    }
    if terminated.is_null() {
        return None;
    }
    Some(match (text(&terminated["reason"]), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    })
}

/// The reason to show for the first init container that is not done yet.
fn initializing(pod: &Value) -> Option<String> {
    let total = list(&pod["spec"]["initContainers"]).len();
    for (done, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
        let state = &container["state"];
        if state["terminated"]["exitCode"] == 0 || container["started"] == true {
            continue;
        }
        let reason = container_reason(state).filter(|reason| reason != "PodInitializing");
        return Some(match reason {
            Some(reason) => format!("Init:{reason}"),
            None => format!("Init:{done}/{total}"),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_cron_job_shows_its_schedule_and_what_came_of_it() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let template = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"},
        ]}}}});
        let mut cron_job = json!({
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedule": "@daily", "suspend": false, "jobTemplate": template},
        });
        let cells = |cron_job: &Value| row(Columns::CronJob, cron_job, now)["cells"].clone();
        let fresh = json!(["c", "@daily", "<none>", "False", 0, "<none>", "60m", "a,b", "i:1,i:2", "<none>"]);
        assert_eq!(cells(&cron_job), fresh);
        cron_job["spec"]["suspend"] = true.into();
        cron_job["spec"]["timeZone"] = "Europe/Berlin".into();
        cron_job["status"] = json!({"active": [{}, {}], "lastScheduleTime": "2026-01-01T00:59:30Z"});
        let used =
            json!(["c", "@daily", "Europe/Berlin", "True", 2, "30s", "60m", "a,b", "i:1,i:2", "<none>"]);
        assert_eq!(cells(&cron_job), used);
        let range = row(Columns::NameCreated, &cron_job, now);
        assert_eq!(range["cells"], json!(["c", "2026-01-01T00:00:00Z"]));
    }
}
