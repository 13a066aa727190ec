//! Live reads, which bypass all caches. A replica has few of them in flight at once, in turns by Job. The reads of
//! Leases go their own way.

mod pod_spec;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::time::{Instant, timeout};

use super::read_gate::ReadGate;
use super::resource::Resource;
use super::transport::{Transport, TransportError};
use super::watch::{Page, Selection};
use super::wire::{
    Bare, DecodeError, Decoder, JobDecoder, ObservedJob, ObservedPod, PodDecoder, Refusal, Unreadable,
};
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::ApiCallLabels;

pub use self::pod_spec::PodSpecReading;

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
const JSON: &str = "application/json";
/// `Accept` for lists of which only the metadata is wanted.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A complete list of pods.
#[derive(Debug, Default)]
pub struct PodList {
    /// The pods.
    pub pods: Vec<Box<ObservedPod>>,
    /// Pods that exist and cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The version of the list: what it does not show was gone then.
    pub version: u64,
    /// The version of its last page. It is higher than `version` if the continue token expired meanwhile.
    pub newest: u64,
}

/// The versions of the first and the last page of a list.
#[derive(Clone, Copy, Debug)]
struct Versions {
    first: u64,
    last: u64,
}

/// Those of a list that has none: what it shows may be of any version.
impl Default for Versions {
    fn default() -> Self {
        Self { first: u64::MAX, last: u64::MAX }
    }
}

/// Reads objects. Clones share their turns.
#[derive(Clone)]
pub struct Reader {
    transport: Arc<dyn Transport>,
    pods: PodDecoder,
    jobs: JobDecoder,
    metrics: Arc<Metrics>,
    gate: ReadGate<Result<Option<Bytes>, NoObject>>,
    /// The Job that asks.
    asker: Option<Uid>,
}

/// Why there is no answer, or none with an object.
#[derive(Clone, Debug)]
enum NoObject {
    Transport(TransportError),
    Refused(Refusal),
}

impl From<NoObject> for ReadError {
    fn from(error: NoObject) -> Self {
        match error {
            NoObject::Transport(error) => Self::Transport(error),
            NoObject::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl Reader {
    /// A reader for which pods with this finalizer are tracked.
    pub fn new(
        transport: Arc<dyn Transport>,
        finalizer: &str,
        jobs: JobDecoder,
        metrics: Arc<Metrics>,
    ) -> Self {
        let pods = PodDecoder::new(finalizer);
        Self { transport, pods, jobs, metrics, gate: ReadGate::default(), asker: None }
    }

    /// The same reader, which reads for this Job: Jobs take turns.
    #[must_use]
    pub fn for_job(&self, job: &Uid) -> Self {
        Self { asker: Some(job.clone()), ..self.clone() }
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

    /// The Job of this UID; `None` if there is none of this name, or if that is another one, be it readable or not.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn find_job(
        &self,
        namespace: &str,
        name: &str,
        uid: &Uid,
    ) -> Result<Option<Arc<ObservedJob>>, ReadError> {
        let json = self.find(Resource::JOBS, namespace, name, uid).await?;
        Ok(json.map(|json| self.jobs.decode(&json)).transpose()?)
    }

    /// The pod of this UID; `None` if there is none of this name, or if that is another one, be it readable or not.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn find_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: &Uid,
    ) -> Result<Option<Box<ObservedPod>>, ReadError> {
        let json = self.find(Resource::PODS, namespace, name, uid).await?;
        Ok(json.map(|json| self.pods.decode(&json)).transpose()?)
    }

    async fn find(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: &Uid,
    ) -> Result<Option<Bytes>, ReadError> {
        let is_another = |json: &Bytes| {
            let found = serde_json::from_slice::<Bare<'_>>(json);
            found.is_ok_and(|found| {
                found.metadata.uid.as_deref().is_some_and(|found| Uid::from(found) != *uid)
            })
        };
        Ok(self.get(resource, namespace, name).await?.filter(|json| !is_another(json)))
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
        let path = resource.object_path(namespace, name);
        let request = Request::get(&path).header(header::ACCEPT, JSON).body(Bytes::new())?;
        let this = self.clone();
        let read = async move { this.send("get", resource, request).await };
        Ok(self.gate.read(&path, self.asker.clone(), read).await?)
    }

    /// All objects of a resource in one namespace; `None` if the API server has no such resource.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn list<D: Decoder>(
        &self,
        decoder: &D,
        resource: Resource,
        namespace: &str,
    ) -> Result<Option<Vec<D::Object>>, ReadError> {
        let selection = Selection { namespace: Some(namespace.into()), ..Selection::all(resource) };
        let mut objects = Vec::new();
        let take = |item: &[u8]| {
            objects.push(decoder.decode(item)?);
            Ok(())
        };
        let versions = self.pages(&selection, JSON, take).await?;
        Ok(versions.map(|_| objects))
    }

    /// All selected objects, and those of them that exist and cannot be read.
    ///
    /// # Errors
    /// See [`ReadError`]; also when an object has no name that can be read.
    pub async fn list_selected<D: Decoder>(
        &self,
        decoder: &D,
        selection: &Selection,
    ) -> Result<(Vec<D::Object>, Vec<Unreadable>), ReadError> {
        self.list_readable(decoder, selection).await.map(|(objects, unreadable, _)| (objects, unreadable))
    }

    async fn list_readable<D: Decoder>(
        &self,
        decoder: &D,
        selection: &Selection,
    ) -> Result<(Vec<D::Object>, Vec<Unreadable>, Option<Versions>), ReadError> {
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        let take = |item: &[u8]| {
            match decoder.decode(item) {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push(Unreadable::in_list(item, &error).ok_or(error)?),
            }
            Ok(())
        };
        let versions = self.pages(selection, JSON, take).await?;
        Ok((objects, unreadable, versions))
    }

    /// All selected pods.
    ///
    /// # Errors
    /// See [`ReadError`]; also when a pod has no name that can be read.
    pub async fn list_pods(&self, decoder: &PodDecoder, selection: &Selection) -> Result<PodList, ReadError> {
        let (pods, unreadable, versions) = self.list_readable(decoder, selection).await?;
        let Versions { first, last } = versions.unwrap_or_default();
        Ok(PodList { pods, unreadable, version: first, newest: last })
    }

    /// All pods of the cluster with these labels that are to be kept, by their metadata: they have neither spec
    /// nor status.
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
        let take = |item: &[u8]| {
            match self.pods.decode(item) {
                Ok(pod) if keep(&pod) => listed.pods.push(pod),
                Ok(_) => {}
                Err(error) => match Unreadable::in_list(item, &error) {
                    Some(pod) => listed.unreadable.push(pod),
                    None => tracing::warn!(%error, "a pod has unreadable metadata"),
                },
            }
            Ok(())
        };
        let Versions { first, last } = self.pages(&selection, METADATA, take).await?.unwrap_or_default();
        (listed.version, listed.newest) = (first, last);
        Ok(listed)
    }

    /// Lists page by page, and passes on each object. Returns `None` if the API server has no such resource.
    ///
    /// When the continue token expires, as it does in large clusters within minutes, the list goes on with the one
    /// that the API server gives instead. What follows is of a later version. An object that exists throughout is
    /// in the list, and one that was seen up to the first version and is not in the list is gone.
    async fn pages(
        &self,
        selection: &Selection,
        accept: &'static str,
        mut take: impl FnMut(&[u8]) -> Result<(), ReadError>,
    ) -> Result<Option<Versions>, ReadError> {
        let (mut versions, mut token, mut expired) = (None, String::new(), false);
        loop {
            let mut request = selection.request(&[("limit", PAGE), ("continue", &token)])?;
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
            let turn = self.gate.turn(self.asker.clone()).await;
            let answer = self.send("list", selection.resource, request).await;
            drop(turn);
            let json = match answer {
                Err(NoObject::Refused(Refusal { code: 410, continue_token: Some(next), .. })) if !expired => {
                    (token, expired) = (next.into(), true);
                    continue;
                }
                answer => answer?,
            };
            let Some(json) = json else { return Ok(versions) };
            let page: Page<'_> = serde_json::from_slice(&json).map_err(DecodeError::from)?;
            for item in page.items.unwrap_or_default() {
                take(item.get().as_bytes())?;
            }
            let of_page = page.metadata.resource_version.as_deref();
            let last = of_page.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX);
            versions.get_or_insert(Versions { first: last, last }).last = last;
            (token, expired) =
                (page.metadata.continue_token.as_deref().unwrap_or_default().to_owned(), false);
            if token.is_empty() {
                return Ok(versions);
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
        let request = selection.request(&[("limit", "1")])?;
        let _turn = self.gate.turn(self.asker.clone()).await;
        match self.send("list", resource, request).await {
            Ok(Some(json)) => {
                let list: List = serde_json::from_slice(&json).map_err(DecodeError::from)?;
                Ok(list.metadata.shard_info.is_some())
            }
            Ok(None) => Ok(false),
            Err(NoObject::Refused(refusal)) if refusal.code == 400 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        resource: Resource,
        request: Request<Bytes>,
    ) -> Result<Option<Bytes>, NoObject> {
        let started = Instant::now();
        let answer = timeout(TIMEOUT, self.transport.send(request))
            .await
            .unwrap_or_else(|_| Err(TransportError(format!("none within {TIMEOUT:?}"))));
        let resource = resource.plural;
        let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
        self.metrics.count_request(ApiCallLabels { verb, resource }, code, started.elapsed());
        let response = answer.map_err(NoObject::Transport)?;
        match code {
            200..300 => Ok(Some(response.into_body())),
            404 => Ok(None),
            _ => Err(NoObject::Refused(Refusal::read(code, response.body()))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::test_api::TestApi;

    /// A reader that gets these answers, one after the other.
    fn reader(answers: impl IntoIterator<Item = (u16, Value)>) -> (Reader, TestApi) {
        let mut answers = answers.into_iter().collect::<Vec<_>>().into_iter();
        let api = TestApi::new(move |_, _| answers.next());
        let transport = Arc::new(api.clone());
        (Reader::new(transport, "f", JobDecoder::new(), Arc::new(Metrics::new())), api)
    }

    fn metadata(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}})
    }

    fn page(version: u64, token: &str, items: Value) -> (u16, Value) {
        let version = version.to_string();
        (200, json!({"metadata": {"resourceVersion": version, "continue": token}, "items": items}))
    }

    fn expired(token: &str) -> (u16, Value) {
        (410, json!({"kind": "Status", "code": 410, "message": "too old", "metadata": {"continue": token}}))
    }

    #[tokio::test]
    async fn a_list_whose_continue_token_expires_goes_on_where_it_was() {
        let broken = json!({"metadata": {"name": "broken", "uid": "broken", "namespace": "n"}});
        let (reader, api) = reader([
            page(7, "old", json!([metadata("a")])),
            expired("newer"),
            page(30, "next", json!([metadata("b"), broken])),
            expired("newest"),
            page(60, "", json!([metadata("c"), metadata("unwanted")])),
        ]);
        let list = reader.list_pod_metadata("l", |pod| &*pod.pod.name != "unwanted").await.unwrap();
        let names: Vec<_> = list.pods.iter().map(|pod| &*pod.pod.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(list.unreadable.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["broken"]);
        assert_eq!(list.version, 7, "what the list does not show has been gone since then");
        assert_eq!(list.newest, 60);
        let sent = api.sent();
        let tokens: Vec<_> =
            sent.iter().filter_map(|sent| sent.split("continue=").nth(1)).map(str::trim).collect();
        assert_eq!(tokens, ["", "old", "newer", "next", "newest"]);
    }

    #[tokio::test]
    async fn a_list_that_expires_without_progress_fails() {
        let (reader, api) = reader([page(7, "old", json!([])), expired("x"), expired("y")]);
        assert!(matches!(
            reader.list_pod_metadata("l", |_| true).await,
            Err(ReadError::Refused(refusal)) if refusal.code == 410
        ));
        assert_eq!(api.sent().len(), 3);
    }

    #[tokio::test]
    async fn an_object_of_another_uid_is_not_there_even_if_it_cannot_be_read() {
        let unreadable = json!({"metadata": {"name": "p", "namespace": "n", "uid": "new"}});
        let (reader, _) = reader(std::iter::repeat_n((200, unreadable), 3));
        assert!(reader.find_pod("n", "p", &"old".into()).await.unwrap().is_none());
        assert!(reader.find_job("n", "p", &"old".into()).await.unwrap().is_none());
        let same = reader.find_pod("n", "p", &"new".into()).await;
        assert!(matches!(same, Err(ReadError::Unreadable(_))));
    }

    async fn get_pod(code: u16, body: Value) -> Result<Option<Box<ObservedPod>>, ReadError> {
        let (reader, api) = reader([(code, body)]);
        let found = reader.get_pod("n", "p").await;
        assert_eq!(api.sent(), ["GET /api/v1/namespaces/n/pods/p "]);
        found
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
