//! Requests of the kubelet to the API server about one pod.

use std::collections::BTreeMap;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::pod::{self, Pod, PodKey};
use super::setup::SetupError;

/// Keys and contents of a ConfigMap or Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// A client for the requests of one pod.
#[derive(Clone)]
pub(super) struct PodClient {
    client: kube::Client,
    pods: Api<Pod>,
    key: PodKey,
}

impl PodClient {
    /// A client for this pod.
    pub(super) fn new(client: kube::Client, key: PodKey) -> Self {
        let pods = Api::namespaced_with(client.clone(), &key.namespace, &pod::resource());
        Self { client, pods, key }
    }

    /// The pod's namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// The pod as it is now; `None` if it is gone or cannot be read.
    pub(super) async fn read(&self) -> Option<Pod> {
        let pod = self.pods.get_opt(&self.key.name).await.ok().flatten()?;
        (PodKey::of(&pod) == self.key).then_some(pod)
    }

    /// The contents of a ConfigMap; `None` if it is optional and missing.
    pub(super) async fn config_map(&self, name: &str, optional: bool) -> Result<Option<Data>, SetupError> {
        let api: Api<core::ConfigMap> = Api::namespaced(self.client.clone(), self.namespace());
        let found = found(api.get_opt(name).await, optional, "configmap", name)?;
        Ok(found.map(|map| {
            let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
            let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
            text.chain(binary).collect()
        }))
    }

    /// The contents of a Secret; `None` if it is optional and missing.
    pub(super) async fn secret(&self, name: &str, optional: bool) -> Result<Option<Data>, SetupError> {
        let api: Api<core::Secret> = Api::namespaced(self.client.clone(), self.namespace());
        let found = found(api.get_opt(name).await, optional, "secret", name)?;
        Ok(found.map(|secret| {
            secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
        }))
    }

    /// Assigns the pod to a node. Retries until this succeeds or is impossible (pod gone, bound, gated).
    pub(super) async fn bind(&self, node: &str) {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": self.key.name, "uid": self.key.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        self.retry("bind", || async {
            let (pods, params) = (&self.pods, PostParams::default());
            let bound: Result<Value, _> =
                pods.create_subresource("binding", &self.key.name, &params, &binding).await;
            bound.map(drop)
        })
        .await;
    }

    /// Writes `status`, without retries. Conditions of other writers stay.
    pub(super) async fn patch_status(&self, status: &core::PodStatus) -> Result<(), kube::Error> {
        let patch = json!({ "metadata": { "uid": self.key.uid }, "status": status });
        let params = PatchParams::default();
        self.pods.patch_status(&self.key.name, &params, &Patch::Strategic(patch)).await.map(drop)
    }

    /// Removes the pod object at once. Requires that no process of the pod is running.
    pub(super) async fn remove(&self) {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.key.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        self.retry("remove", || async { self.pods.delete(&self.key.name, &params).await.map(drop) }).await;
    }

    async fn retry<F, R>(&self, what: &str, request: F)
    where
        F: FnMut() -> R,
        R: Future<Output = Result<(), kube::Error>>,
    {
        let outcome = request
            .retry(backoff())
            .when(|error| !is_final(error))
            .notify(|error, delay| tracing::debug!(pod = %self.key, %error, ?delay, "retrying to {what}"))
            .await;
        if let Err(error) = outcome {
            tracing::debug!(pod = %self.key, %error, "the server refuses to {what} the pod");
        }
    }
}

/// Back-off between retries that never give up.
pub(super) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
}

/// Whether a retry cannot help: the pod is gone or replaced, or the request is not allowed.
pub(super) fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

fn found<T>(
    answer: Result<Option<T>, kube::Error>,
    optional: bool,
    kind: &str,
    name: &str,
) -> Result<Option<T>, SetupError> {
    match answer {
        Ok(None) if !optional => Err(SetupError::missing(format!("{kind} \"{name}\" not found"))),
        Ok(found) => Ok(found),
        Err(error) => Err(SetupError::missing(format!("{kind} \"{name}\": {error}"))),
    }
}
