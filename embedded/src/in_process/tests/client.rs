//! A client of an in-process server, with a clock of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Request, header};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{Body, Clock, InProcess, InProcessConfig};

pub(super) const JSON: &str = "application/json";
pub(super) const MERGE: &str = "application/merge-patch+json";

/// A clock that begins with the year 2026 and that only its owner moves.
#[derive(Default)]
pub(super) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(super) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + self.0.load(Ordering::SeqCst)).unwrap()
    }
}

pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(super) struct Client {
    pub(super) server: InProcess,
    pub(super) clock: Arc<ManualClock>,
}

impl Client {
    pub(super) fn new(seed: u64) -> Self {
        Self::with_gates(seed, &[])
    }

    /// A server with these feature gates on.
    pub(super) fn with_gates(seed: u64, gates: &[&str]) -> Self {
        let clock = Arc::new(ManualClock::default());
        let feature_gates = gates.iter().map(|gate| ((*gate).to_owned(), true)).collect();
        let config = InProcessConfig { seed, feature_gates, ..InProcessConfig::default() };
        let server = InProcess::new(config, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        Self { server, clock }
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let (parts, body) = self.open(method, path, accept, content_type, body.into()).await.into_parts();
        let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        content_type: &str,
        body: Bytes,
    ) -> http::Response<Body> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, "test/1")
            .body(body)
            .unwrap();
        // An answer never waits.
        self.server.respond(request).now_or_never().unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, JSON, "", "").await
    }

    pub(super) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, JSON, JSON, object.to_string()).await
    }

    pub(super) async fn watch(&self, path: &str, accept: &str) -> Watcher {
        let response = self.open("GET", path, accept, "", Bytes::new()).await;
        assert_eq!(response.status(), 200);
        Watcher { body: Some(response.into_body()) }
    }
}

/// An open watch.
pub(super) struct Watcher {
    /// The body of the response; `None` once it has ended.
    body: Option<Body>,
}

impl Watcher {
    /// The chunks that are due.
    pub(super) fn chunks(&mut self) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        while let Some(next) = self.body.as_mut().and_then(|body| body.frame().now_or_never()) {
            match next {
                Some(frame) => chunks.push(frame.unwrap().into_data().unwrap()),
                None => self.body = None,
            }
        }
        chunks
    }

    /// The events that are due, in JSON.
    pub(super) fn events(&mut self) -> Vec<Value> {
        self.chunks().iter().flat_map(|chunk| lines(chunk)).collect()
    }

    /// The events of the next chunk; `None` at the end.
    pub(super) async fn wait(&mut self) -> Option<Vec<Value>> {
        let frame = self.body.as_mut()?.frame().await?;
        Some(lines(&frame.unwrap().into_data().unwrap()))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.body.is_none()
    }
}

/// A chunk has whole events.
fn lines(chunk: &[u8]) -> Vec<Value> {
    assert_eq!(chunk.last(), Some(&b'\n'));
    let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// A pod with a label.
pub(super) fn pod(name: &str, app: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    })
}

pub(super) fn job(name: &str) -> Value {
    json!({
        "kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name},
        "spec": {"completions": 3, "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }},
    })
}
