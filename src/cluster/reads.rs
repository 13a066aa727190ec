//! Live reads, which bypass all caches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::time::{Instant, timeout};

use super::resource::Resource;
use super::transport::{Transport, TransportError};
use super::watch::{Page, Selection};
use super::wire::{
    DecodeError, Decoder, JobDecoder, ObservedJob, ObservedPod, PodDecoder, Refusal, Unreadable,
};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::ApiCallLabels;

/// How long to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why an object could not be read. A read can always be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There was no answer.
    #[error("no answer: {0}")]
    Transport(#[from] TransportError),
    /// The API server refused.
    #[error("the API server refused ({}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The answer was not understood.
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
    /// No object can have this name.
    #[error("the name is not valid in a path: {0}")]
    Name(#[from] http::Error),
}

/// Objects in one page of a list.
const PAGE: &str = "500";
/// `Accept` for lists of which only the metadata is wanted.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A complete list of pods.
#[derive(Debug, Default)]
pub struct PodList {
    /// The pods.
    pub pods: Vec<Box<ObservedPod>>,
    /// Pods that exist and cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The version of the list.
    pub version: u64,
}

/// Reads objects.
#[derive(Clone)]
pub struct Reader {
    transport: Arc<dyn Transport>,
    pods: PodDecoder,
    jobs: JobDecoder,
    metrics: Arc<Metrics>,
}

impl Reader {
    /// A reader for which pods with this finalizer are tracked.
    pub fn new(
        transport: Arc<dyn Transport>,
        finalizer: &str,
        jobs: JobDecoder,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { transport, pods: PodDecoder::new(finalizer), jobs, metrics }
    }

    /// A Job; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn get_job(&self, namespace: &str, name: &str) -> Result<Option<Arc<ObservedJob>>, ReadError> {
        let json = self.get(Resource::JOBS, namespace, name).await?;
        Ok(json.map(|json| self.jobs.decode(&json)).transpose()?)
    }

    /// A pod; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn get_pod(&self, namespace: &str, name: &str) -> Result<Option<Box<ObservedPod>>, ReadError> {
        let json = self.get(Resource::PODS, namespace, name).await?;
        Ok(json.map(|json| self.pods.decode(&json)).transpose()?)
    }

    /// The JSON of an object of any resource; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Bytes>, ReadError> {
        let request = Request::get(resource.object_path(namespace, name))
            .header(header::ACCEPT, "application/json")
            .body(Bytes::new())?;
        self.send("get", resource, request).await
    }

    /// All objects of a resource in one namespace; `None` if the API server has no such resource.
    ///
    /// # Errors
    /// See [`ReadError`]; also when the continue token expires before the last page.
    pub async fn list<D: Decoder>(
        &self,
        decoder: &D,
        resource: Resource,
        namespace: &str,
    ) -> Result<Option<Vec<D::Object>>, ReadError> {
        let selection = Selection { namespace: Some(namespace.into()), ..Selection::all(resource) };
        self.list_selected(decoder, &selection).await
    }

    /// All selected objects; `None` if the API server has no such resource.
    ///
    /// # Errors
    /// See [`ReadError`]; also when the continue token expires before the last page.
    pub async fn list_selected<D: Decoder>(
        &self,
        decoder: &D,
        selection: &Selection,
    ) -> Result<Option<Vec<D::Object>>, ReadError> {
        let mut objects = Vec::new();
        let mut token = String::new();
        loop {
            let request = selection.request(&[("limit", PAGE), ("continue", &token)])?;
            let Some(json) = self.send("list", selection.resource, request).await? else { return Ok(None) };
            let page: Page<'_> = serde_json::from_slice(&json).map_err(DecodeError::from)?;
            for item in page.items.unwrap_or_default() {
                objects.push(decoder.decode(item.get().as_bytes())?);
            }
            token = page.metadata.continue_token.as_deref().unwrap_or_default().to_owned();
            if token.is_empty() {
                return Ok(Some(objects));
            }
        }
    }

    /// All pods of the cluster with these labels that are to be kept, by their metadata: they have neither spec
    /// nor status. Pods whose metadata cannot be read are left out.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn list_pod_metadata(
        &self,
        labels: &str,
        keep: impl Fn(&ObservedPod) -> bool,
    ) -> Result<PodList, ReadError> {
        let selection = Selection::all(Resource::PODS).labelled(labels);
        let mut listed = PodList::default();
        let mut token = String::new();
        let mut in_pages = true;
        loop {
            let parameters = [("limit", PAGE), ("continue", &*token)];
            let mut request = selection.request(if in_pages { &parameters } else { &[][..] })?;
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(METADATA));
            let json = match self.send("list", Resource::PODS, request).await {
                // The continue token has expired. A list in one piece cannot expire.
                Err(ReadError::Refused(Refusal { code: 410, .. })) if in_pages && !token.is_empty() => {
                    (listed, in_pages) = (PodList::default(), false);
                    token.clear();
                    continue;
                }
                answer => answer?.unwrap_or_default(),
            };
            let page: Page<'_> = serde_json::from_slice(&json).map_err(DecodeError::from)?;
            for item in page.items.unwrap_or_default() {
                match self.pods.decode(item.get().as_bytes()) {
                    Ok(pod) if keep(&pod) => listed.pods.push(pod),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a pod has unreadable metadata"),
                }
            }
            let version = page.metadata.resource_version.as_deref();
            listed.version = version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX);
            token = page.metadata.continue_token.as_deref().unwrap_or_default().to_owned();
            if token.is_empty() {
                return Ok(listed);
            }
        }
    }

    /// Whether the API server applies this `shardSelector` to lists of a resource. An answer without
    /// `shardInfo` means that it ignored the selector.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn narrows(&self, resource: Resource, selector: &str) -> Result<bool, ReadError> {
        #[derive(serde::Deserialize)]
        struct List {
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            shard_info: Option<serde::de::IgnoredAny>,
        }
        let selection = Selection { shards: Some(selector.into()), ..Selection::all(resource) };
        match self.send("list", resource, selection.request(&[("limit", "1")])?).await {
            Ok(Some(json)) => {
                let list: List = serde_json::from_slice(&json).map_err(DecodeError::from)?;
                Ok(list.metadata.shard_info.is_some())
            }
            Ok(None) => Ok(false),
            Err(ReadError::Refused(refusal)) if refusal.code == 400 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        resource: Resource,
        request: Request<Bytes>,
    ) -> Result<Option<Bytes>, ReadError> {
        let started = Instant::now();
        let answer = timeout(TIMEOUT, self.transport.send(request))
            .await
            .unwrap_or_else(|_| Err(TransportError(format!("none within {TIMEOUT:?}"))));
        let resource = resource.plural;
        let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
        self.metrics.count_request(ApiCallLabels { verb, resource }, code, started.elapsed());
        let response = answer?;
        match code {
            200..300 => Ok(Some(response.into_body())),
            404 => Ok(None),
            _ => Err(ReadError::Refused(Refusal::read(code, response.body()))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use futures::stream::{self, StreamExt};
    use http::Response;
    use serde_json::json;

    use super::*;
    use crate::cluster::transport::ByteStream;

    /// Gives every request the same answer.
    struct Always(u16, String);

    impl Transport for Always {
        fn open(
            &self,
            request: Request<Bytes>,
        ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
            assert_eq!(request.uri(), "/api/v1/namespaces/n/pods/p");
            let body = stream::iter([Ok(Bytes::from(self.1.clone()))]).boxed();
            futures::future::ready(Ok(Response::builder().status(self.0).body(body).unwrap())).boxed()
        }
    }

    async fn get_pod(code: u16, body: serde_json::Value) -> Result<Option<Box<ObservedPod>>, ReadError> {
        let transport = Arc::new(Always(code, body.to_string()));
        Reader::new(transport, "f", JobDecoder::new(), Arc::new(Metrics::new())).get_pod("n", "p").await
    }

    #[tokio::test]
    async fn an_absent_object_is_none_and_a_refusal_is_an_error() {
        let pod = json!({"metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(&*get_pod(200, pod).await.unwrap().unwrap().pod.name, "p");
        assert!(get_pod(404, json!({"code": 404})).await.unwrap().is_none());
        assert!(
            matches!(get_pod(403, json!({"code": 403})).await, Err(ReadError::Refused(r)) if r.code == 403)
        );
        assert!(matches!(get_pod(200, json!({})).await, Err(ReadError::Unreadable(_))));
    }
}
