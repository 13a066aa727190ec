//! An embedded API server to send hostile requests to.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use yardmaster_embedded::{ApiServer, ApiServerConfig, Authentication};

use crate::driver::THREAD;

/// Requests after which a new server begins, so that objects do not pile up.
const LIFE: u32 = 3000;
/// The content type of what is no `Status`.
const PLAIN: &str = "text/plain; charset=utf-8";
/// How long to look at a stream that stays open.
const GLANCE: Duration = Duration::from_millis(3);

/// A request, readable in a corpus.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) body: String,
    /// A body that is no text, in place of the other.
    #[serde(with = "in_base64", skip_serializing_if = "Vec::is_empty")]
    pub(crate) binary: Vec<u8>,
}

mod in_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A server with its own runtime, whose threads bear the name of the target.
pub(crate) struct Api {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    server: RefCell<Option<ApiServer>>,
    left: Cell<u32>,
}

impl Api {
    pub(crate) fn new(target: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(format!("{THREAD}{target}"))
            .enable_all()
            .build()
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { runtime, client, server: RefCell::new(None), left: Cell::new(0) }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If there is no answer, or a refusal is no `Status`. A request that no client can send is none.
    pub(crate) fn send(&self, call: &Call) -> Result<(), String> {
        let mut server = self.server.borrow_mut();
        if self.left.get() == 0 {
            if let Some(old) = server.take() {
                self.runtime.block_on(old.shutdown());
            }
            self.left.set(LIFE);
        }
        self.left.set(self.left.get() - 1);
        let start = || self.runtime.block_on(ApiServer::start(open())).unwrap();
        let url = server.get_or_insert_with(start).url();
        drop(server);
        let Ok(method) = Method::from_bytes(call.method.as_bytes()) else { return Ok(()) };
        let mut request = Request::builder().method(method).uri(format!("{url}{}", call.path));
        for (name, value) in [(header::ACCEPT, &call.accept), (header::CONTENT_TYPE, &call.content_type)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let body = if call.binary.is_empty() { call.body.clone().into() } else { call.binary.clone() };
        let Ok(request) = request.body(Full::from(body)) else { return Ok(()) };
        self.runtime.block_on(self.answer(request))
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<(), String> {
        let response = self.client.request(request).await.map_err(|error| format!("no answer: {error:?}"))?;
        let is_plain = response.headers().get(header::CONTENT_TYPE).is_some_and(|given| given == PLAIN);
        let (status, mut body) = (response.status(), response.into_body());
        if !status.is_client_error() && !status.is_server_error() {
            // Streams stay open, and objects may be large.
            while let Ok(Some(frame)) = timeout(GLANCE, body.frame()).await {
                frame.map_err(|error| format!("the answer broke off: {error:?}"))?;
            }
            return Ok(());
        }
        // Paths that are no API's get a line of text, as in Kubernetes.
        if is_plain {
            return Ok(());
        }
        let body =
            body.collect().await.map_err(|error| format!("the refusal broke off: {error:?}"))?.to_bytes();
        check_refusal(status, &body)
    }
}

fn check_refusal(status: StatusCode, body: &[u8]) -> Result<(), String> {
    // Answers to HEAD have no body, and those of the HTTP library itself none, either.
    if body.is_empty() || body.starts_with(b"k8s\0") {
        return Ok(());
    }
    let wrong = || format!("{status} with {}", String::from_utf8_lossy(body));
    let text = std::str::from_utf8(body).map_err(|_| wrong())?;
    // JSON is YAML, too.
    let reply: Value = serde_saphyr::from_str(text).map_err(|_| wrong())?;
    let well_formed = reply["kind"] == "Status"
        && reply["code"] == status.as_u16()
        && reply["status"] == "Failure"
        && reply["message"].as_str().is_some_and(|message| !message.is_empty());
    if well_formed { Ok(()) } else { Err(wrong()) }
}

/// A server that asks for no token, so that every request is looked at.
fn open() -> ApiServerConfig {
    ApiServerConfig { authentication: Authentication::Anonymous, ..ApiServerConfig::default() }
}
