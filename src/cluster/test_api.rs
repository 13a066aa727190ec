//! An API server whose answers a test decides.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use serde_json::Value;
use tokio::time::{Duration, sleep};

use super::transport::{ByteStream, Transport, TransportError};

/// The answer to a request, by its method and URI; `None` if there is none, ever.
type Answer = dyn FnMut(&str, &str) -> Option<(u16, Value)> + Send;

/// The API server. Clones share everything.
#[derive(Clone)]
pub(crate) struct TestApi {
    answer: Arc<Mutex<Box<Answer>>>,
    sent: Arc<Mutex<Vec<String>>>,
    latency: Duration,
}

impl TestApi {
    pub(crate) fn new(answer: impl FnMut(&str, &str) -> Option<(u16, Value)> + Send + 'static) -> Self {
        Self { answer: Arc::new(Mutex::new(Box::new(answer))), sent: Arc::default(), latency: Duration::ZERO }
    }

    /// Answers come this long after the state that they show.
    pub(crate) fn after(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// The requests: method, URI and body.
    pub(crate) fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }

    /// The number of requests with all these texts.
    pub(crate) fn count(&self, texts: &[&str]) -> usize {
        self.sent().iter().filter(|sent| texts.iter().all(|text| sent.contains(text))).count()
    }
}

impl Transport for TestApi {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let (method, uri) = (request.method().as_str(), request.uri().to_string());
        let body = String::from_utf8_lossy(request.body());
        self.sent.lock().unwrap().push(format!("{method} {uri} {body}"));
        let Some((code, body)) = (self.answer.lock().unwrap())(method, &uri) else {
            return futures::future::pending().boxed();
        };
        let body = stream::iter([Ok(Bytes::from(body.to_string()))]).boxed();
        let (answer, latency) = (Response::builder().status(code).body(body).unwrap(), self.latency);
        async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            Ok(answer)
        }
        .boxed()
    }
}
