//! Status reports of a kubelet as strategic merge patches.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

/// The end of a pod's containers.
pub(super) struct Ending {
    pub(super) exit_code: u8,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// Names and images of a pod's containers.
type Containers = [(Box<str>, Box<str>)];

/// All containers run.
pub(super) fn running(uid: &str, containers: &Containers, now: Timestamp) -> Bytes {
    let now = seconds(now);
    let state = json!({"running": {"startedAt": now}});
    let status = json!({
        "phase": "Running",
        "startTime": now,
        "podIP": "10.0.0.1",
        "conditions": [condition("Ready", "True", &now), condition("ContainersReady", "True", &now)],
        "containerStatuses": statuses(containers, true, &state),
    });
    patch(uid, &status)
}

/// All containers have ended.
pub(super) fn ended(uid: &str, containers: &Containers, ending: Ending) -> Bytes {
    let (phase, reason) =
        if ending.exit_code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let now = seconds(ending.finished);
    let state = json!({"terminated": {
        "exitCode": ending.exit_code, "reason": reason, "startedAt": seconds(ending.started), "finishedAt": now,
    }});
    let status = json!({
        "phase": phase,
        "conditions": [condition("Ready", "False", &now), condition("ContainersReady", "False", &now)],
        "containerStatuses": statuses(containers, false, &state),
    });
    patch(uid, &status)
}

fn patch(uid: &str, status: &impl Serialize) -> Bytes {
    json!({"metadata": {"uid": uid}, "status": status}).to_string().into()
}

fn condition(kind: &str, status: &str, now: &str) -> serde_json::Value {
    json!({"type": kind, "status": status, "lastTransitionTime": now})
}

fn statuses(containers: &Containers, runs: bool, state: &serde_json::Value) -> serde_json::Value {
    containers
        .iter()
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": "", "ready": runs, "started": runs, "restartCount": 0,
                "state": state,
            })
        })
        .collect()
}

/// A time in the format of the API.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
