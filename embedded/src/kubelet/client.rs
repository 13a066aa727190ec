//! Requests of the kubelet to the API server about one pod.

use std::collections::BTreeMap;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::engine::PullSecret;
use super::pod::{self, Pod, PodKey, PodSpec};
use super::setup::SetupError;

/// Keys and contents of a ConfigMap or Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// The phase of a claim that has a volume.
const BOUND: &str = "Bound";

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

    /// A ServiceAccount; `None` if there is none, or if it cannot be read.
    pub(super) async fn account(&self, name: &str) -> Result<Option<core::ServiceAccount>, kube::Error> {
        self.accounts().get_opt(name).await
    }

    /// A new token of the pod's account, which ends with the pod.
    pub(super) async fn token(
        &self,
        spec: &PodSpec,
        source: &core::ServiceAccountTokenProjection,
    ) -> Result<String, SetupError> {
        let pod = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(self.key.name.clone()),
            uid: Some(self.key.uid.clone()),
        };
        let wanted = TokenRequestSpec {
            audiences: source.audience.clone().filter(|audience| !audience.is_empty()).map(|one| vec![one]),
            bound_object_ref: Some(pod),
            expiration_seconds: source.expiration_seconds,
        };
        let request = TokenRequest { spec: Some(wanted), ..TokenRequest::default() };
        let issued =
            self.accounts().create_token_request(spec.account(), &PostParams::default(), &request).await;
        let issued = issued.map_err(|error| {
            SetupError::missing(format!(
                "failed to fetch token of serviceaccount {}: {error}",
                spec.account()
            ))
        })?;
        Ok(issued.status.and_then(|status| status.token).unwrap_or_default())
    }

    fn accounts(&self) -> Api<core::ServiceAccount> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    /// The Secrets by which images are pulled: those that the pod names, else those of its account. Like a kubelet, this leaves out
    /// those that are not there.
    pub(super) async fn pull_secrets(&self, spec: &PodSpec) -> Vec<PullSecret> {
        let mut names: Vec<_> = spec.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect();
        if names.is_empty() {
            let account = self.account(spec.account()).await;
            names.extend(
                account
                    .ok()
                    .flatten()
                    .into_iter()
                    .flat_map(|account| account.image_pull_secrets.unwrap_or_default())
                    .map(|secret| secret.name),
            );
        }
        let mut secrets = Vec::new();
        for name in names {
            let data = self.secret(&name, true).await.ok().flatten();
            secrets.extend(data.and_then(|data| PullSecret::read(&data)));
        }
        secrets
    }

    /// The Services of the pod's namespace, without that of the API server.
    pub(super) async fn services(&self) -> Result<Vec<core::Service>, SetupError> {
        let api: Api<core::Service> = Api::namespaced(self.client.clone(), self.namespace());
        let listed = api.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| SetupError::missing(format!("services: {error}")))?;
        let is_own = |service: &core::Service| service.metadata.name.as_deref() == Some("kubernetes");
        Ok(listed.items.into_iter().filter(|service| !is_own(service)).collect())
    }

    /// A PersistentVolumeClaim, which is bound by this if it is not yet: nothing else provides volumes here.
    pub(super) async fn bound_claim(&self, name: &str) -> Result<core::PersistentVolumeClaim, SetupError> {
        const KIND: &str = "persistentvolumeclaim";
        let api: Api<core::PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.namespace());
        let missing = || SetupError::missing(format!("{KIND} {name:?} not found"));
        let claim = found(api.get_opt(name).await, false, KIND, name)?.ok_or_else(missing)?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some(BOUND) {
            return Ok(claim);
        }
        let spec = claim.spec.clone().unwrap_or_default();
        let capacity = spec.resources.and_then(|resources| resources.requests);
        let status = json!({ "phase": BOUND, "accessModes": spec.access_modes, "capacity": capacity });
        let patch = Patch::Merge(json!({ "status": status }));
        let bound = api.patch_status(name, &PatchParams::default(), &patch).await;
        bound.map_err(|error| SetupError::missing(format!("{KIND} {name:?} is not bound: {error}")))
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

    /// Says why the pod has no node yet.
    pub(super) async fn tell_unschedulable(&self, message: &str) {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": Time(Timestamp::now()),
        });
        let patch = json!({ "metadata": { "uid": self.key.uid }, "status": { "conditions": [condition] } });
        let (pods, params) = (&self.pods, PatchParams::default());
        if let Err(error) = pods.patch_status(&self.key.name, &params, &Patch::Strategic(patch)).await {
            tracing::debug!(pod = %self.key, %error, "a pod does not know why it waits");
        }
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
