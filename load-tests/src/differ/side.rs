//! A side of a pair: a namespace whose Jobs one of the two controllers has.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use http::{Request, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::class::{Class, INDEX, OWNER_LABEL, is_ready};
use super::plan::{Change, End, Propagation, job_name};
use super::state::Names;
use crate::exact::FINALIZERS;
use crate::namespaces::{self, collection};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The name of quotas.
const QUOTA: &str = "quota";
/// The node to which pods are bound.
const NODE: &str = "n1";
/// How long ago containers end whose back-off is over.
const PAST: SignedDuration = SignedDuration::from_hours(1);

/// A side.
pub(super) struct Side {
    client: kube::Client,
    pub(super) names: Names,
    managed_by: Option<String>,
}

impl Side {
    /// A new namespace. `managed_by` is `None` for the reference.
    pub(super) async fn create(
        client: kube::Client,
        namespace: String,
        managed_by: Option<String>,
    ) -> Result<Self> {
        namespaces::create(&client, &namespace).await?;
        let finalizer = Self::finalizer(managed_by.is_some());
        Ok(Self { client, names: Names::new(namespace, finalizer), managed_by })
    }

    /// The tracking finalizer of a controller with another name than the built-in's, or with that.
    pub(super) fn finalizer(external: bool) -> &'static str {
        FINALIZERS[usize::from(external)]
    }

    pub(super) fn namespace(&self) -> &str {
        &self.names.namespace
    }

    /// Sends a request. A refusal is no error: its code is returned.
    pub(super) async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<u16> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.body(body.to_string().into_bytes())?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error).with_context(|| format!("{method} {path}")),
        }
    }

    /// Creates a Job.
    pub(super) async fn create_job(&self, number: usize, spec: &Value) -> Result<u16> {
        let mut spec = spec.clone();
        if let Some(manager) = &self.managed_by {
            spec["managedBy"] = json!(manager);
        }
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name(number)}, "spec": spec,
        });
        self.send("POST", &collection(self.namespace(), "jobs"), "application/json", &job).await
    }

    pub(super) async fn patch_job(&self, number: usize, patch: &Value) -> Result<u16> {
        let path = format!("{}/{}", collection(self.namespace(), "jobs"), job_name(number));
        self.send("PATCH", &path, MERGE, patch).await
    }

    pub(super) async fn delete_job(&self, number: usize, propagation: Propagation) -> Result<u16> {
        let path = format!("{}/{}", collection(self.namespace(), "jobs"), job_name(number));
        self.send("DELETE", &path, "application/json", &json!({"propagationPolicy": propagation})).await
    }

    /// Sets labels of the namespace.
    pub(super) async fn label(&self, labels: &Value) -> Result<u16> {
        let path = format!("/api/v1/namespaces/{}", self.namespace());
        self.send("PATCH", &path, MERGE, &json!({"metadata": {"labels": labels}})).await
    }

    /// Sets or removes the quota of pods. Its status is written, too, in place of a controller of quotas.
    pub(super) async fn quota(&self, pods: Option<u32>) -> Result<u16> {
        let path = format!("/api/v1/namespaces/{}/resourcequotas", self.namespace());
        let one = format!("{path}/{QUOTA}");
        let Some(pods) = pods else {
            return self.send("DELETE", &one, "application/json", &Value::Null).await;
        };
        let hard = json!({"pods": pods.to_string()});
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": QUOTA}, "spec": {"hard": hard},
        });
        self.send("POST", &path, "application/json", &quota).await?;
        let status = json!({"status": {"hard": hard, "used": {"pods": "0"}}});
        self.send("PATCH", &format!("{one}/status"), MERGE, &status).await
    }

    /// Changes these pods, all at once. Returns the last code.
    pub(super) async fn change(&self, pods: &[&Value], change: &Change) -> Result<u16> {
        let codes = try_join_all(pods.iter().map(|pod| self.change_one(pod, change))).await?;
        Ok(codes.last().copied().unwrap_or_default())
    }

    async fn change_one(&self, pod: &Value, change: &Change) -> Result<u16> {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", collection(self.namespace(), "pods"));
        let metadata = |fields: Value| json!({ "metadata": fields });
        match change {
            Change::Schedule => {
                let target = json!({"apiVersion": "v1", "kind": "Node", "name": NODE});
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target,
                });
                self.send("POST", &format!("{path}/binding"), "application/json", &binding).await
            }
            Change::Delete { forced } => {
                let options = if *forced { json!({"gracePeriodSeconds": 0}) } else { json!({}) };
                self.send("DELETE", &path, "application/json", &options).await
            }
            Change::Release => {
                let patch = metadata(json!({"$deleteFromPrimitiveList/finalizers": [self.names.finalizer]}));
                self.send("PATCH", &path, STRATEGIC, &patch).await
            }
            Change::Disown => {
                self.send("PATCH", &path, MERGE, &metadata(json!({"ownerReferences": null}))).await
            }
            Change::Unlabel => {
                self.send("PATCH", &path, MERGE, &metadata(json!({"labels": {OWNER_LABEL: null}}))).await
            }
            Change::Index(index) => {
                self.send("PATCH", &path, MERGE, &metadata(json!({"annotations": {INDEX: index}}))).await
            }
            Change::Run { .. } | Change::Succeed(_) | Change::Fail { .. } | Change::Condition(_) => {
                let Some(status) = status(pod, change, Timestamp::now()) else { return Ok(0) };
                self.send("PATCH", &format!("{path}/status"), STRATEGIC, &json!({"status": status})).await
            }
        }
    }
}

/// Whether a change can be one of a pod of this class.
pub(super) fn applies(change: &Change, class: &Class) -> bool {
    match change {
        Change::Schedule => class.is_live() && !class.scheduled && !class.terminating,
        Change::Run { .. } | Change::Succeed(_) | Change::Fail { .. } | Change::Condition(_) => {
            class.is_live()
        }
        Change::Release => class.tracked,
        Change::Disown => class.owned,
        Change::Unlabel => class.labelled,
        Change::Index(_) => class.index.is_some(),
        Change::Delete { .. } => true,
    }
}

/// The status that a kubelet would write. Returns `None` if it would write none.
fn status(pod: &Value, change: &Change, now: Timestamp) -> Option<Value> {
    let second = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let begin = second(now - PAST);
    let condition = |name: &str, is: bool| json!({"type": name, "status": if is { "True" } else { "False" }, "lastTransitionTime": begin});
    let containers = |kind: &str, ready: bool, restarts: u32, state: Value| -> Value {
        let all = pod["spec"][kind].as_array().into_iter().flatten();
        let one = |container: &Value| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "ready": ready,
                "restartCount": restarts, "state": state,
            })
        };
        all.map(one).collect()
    };
    let ended = |code: u8, end: End| {
        let at = second(if end == End::Now { now } else { now - PAST });
        json!({"terminated": {"exitCode": code, "startedAt": begin, "finishedAt": at}})
    };
    let not_ready = || is_ready(pod).then(|| condition("Ready", false));
    match change {
        Change::Run { ready, restarts } => {
            let running = json!({"running": {"startedAt": begin}});
            Some(json!({
                "phase": "Running", "conditions": [condition("Ready", *ready)],
                "containerStatuses": containers("containers", *ready, *restarts, running),
            }))
        }
        Change::Succeed(end) => {
            let conditions: Vec<Value> = not_ready().into_iter().collect();
            let statuses = containers("containers", false, 0, ended(0, *end));
            Some(json!({"phase": "Succeeded", "conditions": conditions, "containerStatuses": statuses}))
        }
        Change::Fail { code, init, condition: name, end } => {
            let named = name.as_ref().map(|name| condition(name, true));
            let conditions: Vec<Value> = not_ready().into_iter().chain(named).collect();
            let mut status = json!({"phase": "Failed", "conditions": conditions});
            if *end != End::Unknown {
                status["containerStatuses"] = containers("containers", false, 0, ended(*code, *end));
                if *init > 0 {
                    status["initContainerStatuses"] =
                        containers("initContainers", false, 0, ended(*init, *end));
                }
            }
            Some(status)
        }
        Change::Condition(name) => Some(json!({"conditions": [condition(name, true)]})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pod() -> Value {
        json!({
            "spec": {"containers": [{"name": "c", "image": "x"}], "initContainers": [{"name": "i", "image": "x"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    #[test]
    fn a_failure_has_codes_a_time_and_conditions() {
        let now: Timestamp = "2026-05-01T12:00:00.5Z".parse().unwrap();
        let fail = |end| Change::Fail { code: 3, init: 42, condition: Some("Custom".into()), end };
        let written = status(&pod(), &fail(End::Past), now).unwrap();
        let ended = &written["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&ended["exitCode"], &ended["finishedAt"]), (&json!(3), &json!("2026-05-01T11:00:00Z")));
        assert_eq!(written["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 42);
        let conditions = written["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 2, "no longer ready, and the given one");
        let written = status(&pod(), &fail(End::Now), now).unwrap();
        let at = &written["containerStatuses"][0]["state"]["terminated"]["finishedAt"];
        assert_eq!(at, "2026-05-01T12:00:00Z");
        assert!(status(&pod(), &fail(End::Unknown), now).unwrap()["containerStatuses"].is_null());
        assert!(status(&pod(), &Change::Release, now).is_none());
    }

    #[test]
    fn only_pods_that_have_not_ended_run_or_end() {
        let ended = Class { phase: "Failed".into(), ..Class::default() };
        let running = Class { phase: "Running".into(), ..Class::default() };
        assert!(
            !applies(&Change::Succeed(End::Past), &ended) && applies(&Change::Succeed(End::Past), &running)
        );
        assert!(applies(&Change::Delete { forced: false }, &ended));
        assert!(!applies(&Change::Index(None), &running), "it has no index");
    }
}
