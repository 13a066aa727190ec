//! Live reads, which bypass all caches. A replica has few of them in flight at once, in turns by namespace and Job. The
//! reads of Leases go their own way.

mod lists;
mod objects;
mod pod_spec;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::time::{Instant, timeout};

use super::answer_body::LongAnswers;
pub use super::list::ListError;
use super::read_gate::ReadGate;
use super::resource::Resource;
use super::transport::{Transport, TransportError};
use super::wire::{DecodeError, JobDecoder, ObservedJob, ObservedPod, PodDecoder, Refusal};
use crate::job::job_id::JobId;
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::ApiCallLabels;

use self::objects::Kind;

pub use self::lists::PodList;
pub use self::pod_spec::PodSpecReading;

/// How long to wait for an answer, or for more of a list.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why an object could not be read. A read can always be repeated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// There was no answer.
    #[error("no answer: {0}")]
    Transport(#[from] TransportError),
    /// The API server refused.
    #[error("the API server refused ({}): {}", .0.code, .0.message)]
    Refused(Refusal),
    /// The answer was not understood.
    #[error(transparent)]
    Unreadable(Arc<DecodeError>),
    /// The list is not complete.
    #[error(transparent)]
    List(Arc<ListError>),
    /// No object can have this name.
    #[error("the name is not valid in a path: {0}")]
    Name(Arc<http::Error>),
}

impl From<DecodeError> for ReadError {
    fn from(error: DecodeError) -> Self {
        Self::Unreadable(Arc::new(error))
    }
}

impl From<ListError> for ReadError {
    fn from(error: ListError) -> Self {
        Self::List(Arc::new(error))
    }
}

impl From<http::Error> for ReadError {
    fn from(error: http::Error) -> Self {
        Self::Name(Arc::new(error))
    }
}

/// Reads objects. Clones share their turns.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<ReadServices>,
    /// The Job that asks.
    asker: Option<JobId>,
}

/// The services that all clones of a reader share.
pub struct ReadServices {
    transport: Arc<dyn Transport>,
    pods: Kind<PodDecoder>,
    jobs: Kind<JobDecoder>,
    jobs_with_templates: Kind<JobDecoder>,
    metrics: Arc<Metrics>,
    gate: ReadGate,
    long_answers: LongAnswers,
}

impl Deref for Reader {
    type Target = ReadServices;

    fn deref(&self) -> &ReadServices {
        &self.shared
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
        let shared = ReadServices {
            transport,
            pods: Kind::new(Resource::PODS, PodDecoder::new(finalizer), |pod| &pod.pod.uid),
            jobs: Kind::new(Resource::JOBS, jobs.clone(), |job| &job.uid),
            jobs_with_templates: Kind::new(Resource::JOBS, jobs.with_templates(), |job| &job.uid),
            metrics,
            gate: ReadGate::default(),
            long_answers: LongAnswers::default(),
        };
        Self { shared: Arc::new(shared), asker: None }
    }

    /// The same reader, which reads for this Job: Jobs take turns.
    #[must_use]
    pub fn for_job(&self, job: &JobId) -> Self {
        Self { shared: self.shared.clone(), asker: Some(job.clone()) }
    }

    /// A Job; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn get_job(&self, namespace: &str, name: &str) -> Result<Option<Arc<ObservedJob>>, ReadError> {
        self.jobs.get(self, namespace, name, None).await
    }

    /// A pod; `None` if there is none of this name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn get_pod(&self, namespace: &str, name: &str) -> Result<Option<Box<ObservedPod>>, ReadError> {
        self.pods.get(self, namespace, name, None).await
    }

    /// The Job of this identity; `None` if there is none of this name, or if that has another UID, be it readable or not.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn find_job(&self, job: &JobId) -> Result<Option<Arc<ObservedJob>>, ReadError> {
        self.jobs.get(self, job.namespace(), job.name(), Some(job.uid())).await
    }

    /// As [`find_job`](Self::find_job), with the template of its pods, however long that is.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn find_job_with_template(&self, job: &JobId) -> Result<Option<Arc<ObservedJob>>, ReadError> {
        self.jobs_with_templates.get(self, job.namespace(), job.name(), Some(job.uid())).await
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
        self.pods.get(self, namespace, name, Some(uid)).await
    }

    async fn send(
        &self,
        verb: &'static str,
        resource: Resource,
        request: Request<Bytes>,
        namespace: Option<&Arc<str>>,
    ) -> Result<Option<Bytes>, ReadError> {
        let started = Instant::now();
        let opened = self.transport.open(request);
        let answer = in_time(async { self.long_answers.read(opened.await?, namespace).await }).await;
        let resource = resource.plural;
        let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
        self.metrics.count_request(ApiCallLabels { verb, resource }, code, started.elapsed());
        let response = answer?;
        match code {
            200..300 => Ok(Some(response.into_body())),
            _ => match Refusal::read(code, response.body()) {
                refusal if refusal.is_not_found() => Ok(None),
                refusal => Err(ReadError::Refused(refusal)),
            },
        }
    }
}

/// Something of an answer, if it comes in time.
async fn in_time<T>(part: impl Future<Output = Result<T, TransportError>>) -> Result<T, TransportError> {
    timeout(TIMEOUT, part).await.unwrap_or_else(|_| Err(TransportError(format!("none within {TIMEOUT:?}"))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::future::join_all;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::read_gate::SHARE;
    use crate::cluster::test_api::TestApi;
    use crate::cluster::watch::Selection;

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

    fn list(version: u64, token: &str, items: Value) -> (u16, Value) {
        let version = version.to_string();
        (200, json!({"metadata": {"resourceVersion": version, "continue": token}, "items": items}))
    }

    fn labelled() -> Selection {
        Selection::all(Resource::PODS).labelled("l")
    }

    #[tokio::test]
    async fn a_list_shows_what_is_wanted_and_what_cannot_be_read() {
        let broken = json!({"metadata": {"name": "broken", "uid": "broken", "namespace": "n"}});
        let items = json!([metadata("a"), broken, metadata("b"), metadata("unwanted")]);
        let (reader, api) = reader([list(7, "", items)]);
        let list = reader.list_pod_metadata(&labelled(), |pod| &*pod.pod.name != "unwanted").await.unwrap();
        let names: Vec<_> = list.pods.iter().map(|pod| &*pod.pod.name).collect();
        assert_eq!((names, list.version), (vec!["a", "b"], 7));
        assert_eq!(list.unreadable.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["broken"]);
        assert_eq!(api.sent(), ["GET /api/v1/pods?labelSelector=l "], "in one piece, at the newest version");
    }

    #[tokio::test]
    async fn a_list_keeps_what_is_wanted_only() {
        let items: Vec<Value> = ["a", "b", "c"].map(metadata).into();
        let (reader, _) = reader([list(7, "", items.into()), (404, json!({}))]);
        let decoder = PodDecoder::new("f");
        let list = || reader.list(&decoder, Resource::PODS, "n", |pod, _| &*pod.pod.name != "b");
        let kept = list().await.unwrap().unwrap();
        assert_eq!(kept.iter().map(|pod| &*pod.pod.name).collect::<Vec<_>>(), ["a", "c"]);
        assert!(list().await.unwrap().is_none(), "the resource is not served");
    }

    #[tokio::test]
    async fn a_part_of_a_list_is_an_error() {
        let (reader, _) = reader([list(7, "next", json!([metadata("a")])), (200, json!({"items": []}))]);
        for _ in 0..2 {
            let listed = reader.list_pod_metadata(&labelled(), |_| true).await;
            assert!(matches!(listed, Err(ReadError::List(_))), "{listed:?}");
        }
    }

    #[tokio::test]
    async fn a_list_that_a_proxy_does_not_find_is_no_empty_list() {
        let (reader, _) = reader(std::iter::repeat_n((404, json!("no route")), 2));
        assert!(matches!(reader.list_pod_metadata(&labelled(), |_| true).await, Err(ReadError::Refused(_))));
        let pods = reader.list_pods(&PodDecoder::new("f"), &Selection::all(Resource::PODS)).await;
        assert!(matches!(pods, Err(ReadError::Refused(_))));
    }

    #[tokio::test]
    async fn a_pod_whose_name_cannot_be_read_is_not_taken_for_gone() {
        let (reader, _) = reader([list(7, "", json!([metadata("a"), {"metadata": {"name": 5}}]))]);
        assert!(matches!(
            reader.list_pod_metadata(&labelled(), |_| true).await,
            Err(ReadError::Unreadable(_))
        ));
    }

    #[tokio::test]
    async fn an_object_of_another_uid_is_not_there_even_if_it_cannot_be_read() {
        let unreadable = json!({"metadata": {"name": "p", "namespace": "n", "uid": "new"}});
        let (reader, _) = reader(std::iter::repeat_n((200, unreadable), 3));
        assert!(reader.find_pod("n", "p", &"old".into()).await.unwrap().is_none());
        assert!(reader.find_job(&JobId::new("n".into(), "p".into(), "old".into())).await.unwrap().is_none());
        let same = reader.find_pod("n", "p", &"new".into()).await;
        assert!(matches!(same, Err(ReadError::Unreadable(_))));
    }

    /// A tenant chooses how many ask for one object, and how long it is.
    #[tokio::test]
    async fn an_object_is_decoded_once_for_all_who_ask_meanwhile() {
        let mut job = metadata("p");
        job["spec"] = json!({"parallelism": 1, "selector": {}, "template": {"spec": {}}});
        let (reader, api) = reader(std::iter::repeat_n((200, job), 100));
        let id = JobId::new("n".into(), "p".into(), "p".into());
        let namespace = Arc::from("n");
        let turns = join_all((0..SHARE).map(|_| reader.gate.turn(Some(&namespace), None))).await;
        let asked = join_all((0..100).map(|_| reader.find_job(&id)));
        let (found, ()) = tokio::join!(asked, async { drop(turns) });
        let found: Vec<_> = found.into_iter().map(|job| job.unwrap().unwrap()).collect();
        assert_eq!(api.sent().len(), 1);
        assert!(found.iter().all(|job| Arc::ptr_eq(job, &found[0])));
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
        let absent = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "m"});
        assert!(get_pod(404, absent).await.unwrap().is_none());
        // A proxy knows no way to the API server.
        for page in [json!("no route"), json!({"code": 404, "message": "no route"})] {
            assert!(matches!(get_pod(404, page).await, Err(ReadError::Refused(r)) if r.code == 404));
        }
        assert!(
            matches!(get_pod(403, json!({"code": 403})).await, Err(ReadError::Refused(r)) if r.code == 403)
        );
        assert!(matches!(get_pod(200, json!({})).await, Err(ReadError::Unreadable(_))));
    }
}
