//! The tenant as a user of the API: requests with its rights, in its own namespace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use clap::ValueEnum;
use futures::stream::{self, StreamExt as _};
use http::request::Builder;
use http::{Request, header};
use serde_json::{Value, json};

use super::victim::Target;
use crate::exact::FINALIZERS;
use crate::namespaces::collection;
use crate::pods::RUN_TIME;

/// Name of the tenant as a user.
pub(super) const USER: &str = "load-tests-tenant";
/// Concurrent requests of the tenant.
const AT_ONCE: usize = 16;
/// Longest part of a refusal that is kept.
const SHOWN: usize = 120;

/// How much of an attack is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scale {
    /// A fraction of it, for tests. Leases last 3 s.
    Small,
    /// All of it.
    Full,
}

impl Scale {
    /// The number for this scale.
    pub(super) fn of(self, small: usize, full: usize) -> usize {
        if self == Self::Small { small } else { full }
    }
}

/// The tenant.
pub(super) struct Tenant {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) scale: Scale,
    pub(super) managed_by: Option<String>,
    /// A running Job of the victim.
    pub(super) target: Target,
    /// Writes that the API server accepted.
    writes: AtomicU64,
    /// Numbers of refused writes by reason.
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Tenant {
    pub(super) fn new(
        client: kube::Client,
        namespace: String,
        scale: Scale,
        managed_by: Option<String>,
        target: Target,
    ) -> Self {
        let (writes, refused) = (AtomicU64::new(0), Mutex::default());
        Self { client, namespace, scale, managed_by, target, writes, refused }
    }

    /// The tracking finalizer of the controllers under attack.
    pub(super) fn finalizer(&self) -> &'static str {
        FINALIZERS[usize::from(self.managed_by.is_some())]
    }

    /// A pod with one container, which runs for an hour.
    pub(super) fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {}, "annotations": {RUN_TIME: "1h"}},
            "spec": spec(),
        })
    }

    /// A pod with the marks of a pod of the Job with this name and UID.
    pub(super) fn pod_of(&self, name: &str, job: &str, uid: &str) -> Value {
        let mut pod = self.pod(name);
        let metadata = &mut pod["metadata"];
        metadata["finalizers"] = json!([self.finalizer()]);
        metadata["labels"] = json!({
            "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
        });
        metadata["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        pod
    }

    /// A Job with one pod, which runs for an hour.
    pub(super) fn job(&self, name: &str) -> Value {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": {}},
            "spec": {
                "completions": 1, "parallelism": 1,
                "template": {"metadata": {"labels": {}, "annotations": {RUN_TIME: "1h"}}, "spec": spec()},
            },
        });
        if let Some(manager) = &self.managed_by {
            job["spec"]["managedBy"] = json!(manager);
        }
        job
    }

    /// Creates an object. Returns `None` if it is refused.
    pub(super) async fn create(&self, kind: &str, object: &Value) -> Option<Value> {
        self.create_at(&collection(&self.namespace, kind), object).await
    }

    /// Creates an object of any kind. Returns `None` if it is refused.
    pub(super) async fn create_at(&self, path: &str, object: &Value) -> Option<Value> {
        self.write(Request::post(path), object).await
    }

    /// Creates objects, some at a time. Returns those that were accepted.
    pub(super) async fn create_all(&self, kind: &str, objects: impl Iterator<Item = Value>) -> Vec<Value> {
        let creations = objects.map(|object| async move { self.create(kind, &object).await });
        stream::iter(creations).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
    }

    /// Merges a patch into an object, or its status with the name `NAME/status`.
    pub(super) async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Option<Value> {
        let request = Request::patch(format!("{}/{name}", collection(&self.namespace, kind)));
        self.write(request.header(header::CONTENT_TYPE, "application/merge-patch+json"), patch).await
    }

    /// Deletes an object.
    pub(super) async fn delete(&self, kind: &str, name: &str) {
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        self.write(Request::delete(format!("{}/{name}", collection(&self.namespace, kind))), &options).await;
    }

    /// Reads all Jobs or pods.
    pub(super) async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let request = Request::get(collection(&self.namespace, kind)).body(Vec::new())?;
        let mut list: Value = self.client.request(request).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Deletes all its Jobs and pods.
    pub(super) async fn leave(&self) {
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        for kind in ["jobs", "pods"] {
            self.write(Request::delete(collection(&self.namespace, kind)), &options).await;
        }
    }

    async fn write(&self, request: Builder, body: &Value) -> Option<Value> {
        let request = request.body(body.to_string().into_bytes()).ok()?;
        match self.client.request(request).await {
            Ok(answer) => {
                self.writes.fetch_add(1, Ordering::Relaxed);
                Some(answer)
            }
            Err(error) => {
                let reason: String = match error {
                    kube::Error::Api(status) => format!("{} {}", status.code, first_words(&status.message)),
                    error => first_words(&error.to_string()),
                };
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
                None
            }
        }
    }

    /// Number of accepted writes.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Numbers of refused writes by reason.
    pub(super) fn refused(&self) -> BTreeMap<String, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The begin of a message, without the names that make every one different.
fn first_words(message: &str) -> String {
    let unquoted: String = message.split('"').step_by(2).collect::<Vec<_>>().join("…");
    unquoted.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

/// `spec` of a pod that only the simulator runs.
pub(super) fn spec() -> Value {
    json!({
        "schedulerName": "yardmaster-simulated", "restartPolicy": "Never", "automountServiceAccountToken": false,
        "containers": [{"name": "work", "image": "registry.example/work:1", "command": ["work"]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_same_kind_have_the_same_words() {
        let [one, two] = ["a", "b"].map(|name| first_words(&format!("pods \"{name}\" is forbidden")));
        assert_eq!((one.as_str(), &one), ("pods … is forbidden", &two));
    }

    #[test]
    fn a_scale_chooses_a_number() {
        assert_eq!([Scale::Small, Scale::Full].map(|scale| scale.of(1, 2)), [1, 2]);
    }
}
