//! The simulator's writes: a limited number at a time, round-robin over Jobs.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use tokio::task::JoinSet;

use super::Key;
use super::turns::Turns;

/// Limit of concurrent writes.
const AT_ONCE: usize = 24;
/// Time before a write is retried that was not answered or temporarily refused.
const AGAIN: Duration = Duration::from_millis(200);

/// A kubelet has its answers in protobuf, which costs the API server less than JSON.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf, application/json";

/// The result of a write.
pub(super) enum Done {
    Started(Key),
    Ended(Ended),
    /// Refused without retry: the pod is gone.
    Refused(Key),
}

/// The end of a pod.
pub(super) struct Ended {
    pub(super) job: Box<str>,
    pub(super) failed: bool,
}

/// A pod and its new status.
struct Write {
    key: Key,
    body: Bytes,
    /// Present if the pod ends, absent if it starts to run.
    ended: Option<Ended>,
}

/// Sends status patches.
pub(super) struct Writers {
    client: kube::Client,
    waiting: Turns<Write>,
    flying: JoinSet<Done>,
}

impl Writers {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, waiting: Turns::new(), flying: JoinSet::new() }
    }

    /// Reports that a pod of this Job runs.
    pub(super) fn start(&mut self, job: &str, key: Key, body: Bytes) {
        self.waiting.push(job, Write { key, body, ended: None }, false);
    }

    /// Reports that a pod has ended.
    pub(super) fn end(&mut self, key: Key, body: Bytes, ended: Ended) {
        let job = ended.job.clone();
        self.waiting.push(&job, Write { key, body, ended: Some(ended) }, true);
    }

    /// Sends waiting writes up to the limit. Returns the pods whose end is reported by them.
    pub(super) fn fill(&mut self) -> Vec<Key> {
        let mut ending = Vec::new();
        while self.flying.len() < AT_ONCE {
            let Some(Write { key, body, ended }) = self.waiting.pop() else { break };
            if ended.is_some() {
                ending.push(key.clone());
            }
            let client = self.client.clone();
            self.flying.spawn(async move {
                if !write_with_retries(&client, &key, body).await {
                    return Done::Refused(key);
                }
                ended.map_or_else(|| Done::Started(key), Done::Ended)
            });
        }
        ending
    }

    /// The next finished write. Returns `None` if none is in flight.
    pub(super) async fn next(&mut self) -> Option<Done> {
        // A write neither panics nor is aborted, so no result is lost.
        self.flying.join_next().await.and_then(Result::ok)
    }
}

/// Retries a write until the API server accepts it (`true`), or answers with a client error other than 429
/// (`false`).
async fn write_with_retries(client: &kube::Client, key: &str, body: Bytes) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    loop {
        let request = Request::patch(&uri)
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .header(header::ACCEPT, ACCEPT);
        let Ok(request) = request.body(kube::client::Body::from(body.clone())) else { return false };
        match client.send(request).await {
            Ok(response) => {
                let status = response.status();
                // A connection is reused only after its body is read.
                drop(response.into_body().collect_bytes().await);
                if status.is_success() {
                    return true;
                }
                if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    return false;
                }
            }
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                return false;
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}
