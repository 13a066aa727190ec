//! Requests as client-go makes them.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use yardmaster_embedded::{ApiServer, ApiServerConfig, decode_protobuf, decode_watch_event};

/// Accept header of typed clients.
pub(crate) const TYPED: &str = "application/json, */*";
/// Accept header of the metadata client for objects and watches. It prefers protobuf regardless of flags.
pub(crate) const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                                  application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Accept header of the metadata client for lists.
pub(crate) const PARTIAL_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Accept header of the metadata client for deletions.
pub(crate) const METADATA: &str = "application/vnd.kubernetes.protobuf,application/json";
/// Accept header of the discovery client.
pub(crate) const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                                    application/json";
/// The content type of objects in protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The content types of patches.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";

const USER_AGENT: &str = "kube-controller-manager/v1.36.2 (linux/amd64) kubernetes/0000000/shared-informers";
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// An API server without its own controllers, and a client.
pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    client: kube::Client,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let config = ApiServerConfig { api_only: true, ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        Self { server, client: kube::Client::try_from(config).unwrap() }
    }

    fn request(method: Method, path: &str, accept: &str, content_type: &str, body: Vec<u8>) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header(header::USER_AGENT, USER_AGENT);
        request = request.header(header::ACCEPT, accept);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request.body(Body::from(body)).unwrap()
    }

    /// Sends any request.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        (content_type, body): (&str, Vec<u8>),
    ) -> Answer {
        let request = Self::request(method, path, accept, content_type, body);
        let response = tokio::time::timeout(PATIENCE, self.client.send(request)).await.unwrap().unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let protobuf = HeaderValue::from_static(PROTOBUF);
        let body = if parts.headers.get(header::CONTENT_TYPE) == Some(&protobuf) {
            decode_protobuf(&bytes).unwrap()
        } else {
            serde_json::from_slice(&bytes).unwrap_or_else(|_| text())
        };
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// GET with the typed client.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as(path, TYPED).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Method::GET, path, accept, ("", Vec::new())).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, TYPED, ("application/json", body.to_string().into())).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, TYPED, ("application/json", body.to_string().into())).await
    }

    pub(crate) async fn patch(&self, path: &str, accept: &str, kind: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, accept, (kind, body.to_string().into())).await
    }

    /// DELETE with options. client-go always sends them in the body, as JSON.
    pub(crate) async fn delete(&self, path: &str, accept: &str, options: Value) -> Answer {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.send(Method::DELETE, path, accept, ("application/json", body.to_string().into())).await
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str, accept: &str) -> Watch {
        let request = Self::request(Method::GET, path, accept, "", Vec::new());
        let response = tokio::time::timeout(PATIENCE, self.client.send(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let (content_type, in_protobuf) = match accept.contains(PROTOBUF) {
            true => ("application/vnd.kubernetes.protobuf;stream=watch", true),
            false => ("application/json", false),
        };
        assert_eq!(response.headers()[header::CONTENT_TYPE], content_type, "{path}");
        Watch { path: path.to_owned(), body: response.into_body(), in_protobuf, read: Vec::new() }
    }

    /// Creates an object as the initial state of a test.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        let answer = self.post(path, &object).await;
        assert_eq!(answer.code, 201, "{path}: {:?}", answer.body);
        answer.body
    }

    /// Whether an object exists.
    pub(crate) async fn exists(&self, path: &str) -> bool {
        match self.get(path).await.code {
            200 => true,
            404 => false,
            code => panic!("{path}: {code}"),
        }
    }
}

impl Answer {
    /// The body of an answer with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }

    /// The body of an answer that is an error with this code and reason.
    #[track_caller]
    pub(crate) fn refusal(self, code: u16, reason: &str) {
        let status = self.expect(code);
        let what = ["kind", "apiVersion", "status"].map(|field| &status[field]);
        assert_eq!(what, ["Status", "v1", "Failure"], "{status}");
        assert_eq!((&status["reason"], &status["code"]), (&json!(reason), &json!(code)), "{status}");
    }
}

/// An open watch.
pub(crate) struct Watch {
    path: String,
    body: Body,
    in_protobuf: bool,
    read: Vec<u8>,
}

impl Watch {
    fn line(&mut self) -> Option<(String, Value)> {
        let end = self.read.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.read.drain(..=end).collect();
        let mut event: Value = serde_json::from_slice(&line).unwrap();
        Some((event["type"].as_str().unwrap().to_owned(), event["object"].take()))
    }

    fn frame(&mut self) -> Option<(String, Value)> {
        let (length, rest) = self.read.split_first_chunk()?;
        let length = u32::from_be_bytes(*length) as usize;
        let event = decode_watch_event(rest.get(..length)?).unwrap();
        self.read.drain(..size_of::<u32>() + length);
        Some(event)
    }

    /// Type and object of the next event.
    pub(crate) async fn next(&mut self) -> (String, Value) {
        loop {
            let event = if self.in_protobuf { self.frame() } else { self.line() };
            if let Some(event) = event {
                return event;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("nothing comes from {}", self.path));
            self.read.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
    }

    /// The initial objects, and the resourceVersion of the bookmark after them.
    pub(crate) async fn initial(&mut self) -> (Vec<Value>, String) {
        let mut objects = Vec::new();
        loop {
            let (kind, object) = self.next().await;
            match kind.as_str() {
                "ADDED" => objects.push(object),
                "BOOKMARK" => {
                    let metadata = &object["metadata"];
                    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true", "{object}");
                    return (objects, metadata["resourceVersion"].as_str().unwrap().to_owned());
                }
                _ => panic!("{kind} {object}"),
            }
        }
    }
}
