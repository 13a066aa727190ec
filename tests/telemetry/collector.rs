//! A collector that keeps the spans it gets, by OTLP over gRPC or HTTP on one port, with or without TLS.
// No test binary uses all of this.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::task::AbortOnDropHandle;

use crate::binary::PATIENCE;

/// A span, and who sent it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) instance: String,
    pub(crate) span: Span,
}

impl Received {
    pub(crate) fn id(&self) -> Vec<u8> {
        self.span.span_id.clone()
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        match attribute(&self.span.attributes, key)? {
            Value::StringValue(text) => Some(text),
            other => panic!("{key} is no text: {other:?}"),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        match attribute(&self.span.attributes, key)? {
            Value::IntValue(number) => Some(number),
            other => panic!("{key} is no number: {other:?}"),
        }
    }

    /// Start and end in seconds since 1970.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        (seconds(self.span.start_time_unix_nano), seconds(self.span.end_time_unix_nano))
    }

    pub(crate) fn lasted(&self) -> f64 {
        let (start, end) = self.seconds();
        end - start
    }

    pub(crate) fn failed(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == 2)
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let AnyValue { value } = found.value.clone()?;
    value
}

#[derive(Clone, Debug, Default)]
struct Store(Arc<Mutex<(Vec<Received>, Vec<String>)>>);

impl Store {
    /// Stores an export with this `authorization` and path.
    fn take(&self, request: ExportTraceServiceRequest, authorization: Option<&str>, path: &str) {
        let mut store = self.0.lock().unwrap();
        store.1.push(format!("{path} {}", authorization.unwrap_or("-")));
        for group in request.resource_spans {
            let resource = group.resource.unwrap_or_default().attributes;
            let Some(Value::StringValue(instance)) = attribute(&resource, "service.instance.id") else {
                panic!("no service.instance.id in {resource:?}")
            };
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            store.0.extend(spans.map(|span| Received { instance: instance.clone(), span }));
        }
    }
}

#[tonic::async_trait]
impl TraceService for Store {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let authorization = authorization.map(str::to_owned);
        self.take(request.into_inner(), authorization.as_deref(), "grpc");
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn over_http(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
    store.take(ExportTraceServiceRequest::decode(body).unwrap(), authorization, "http");
    (StatusCode::OK, ExportTraceServiceResponse::default().encode_to_vec())
}

/// A collector. It is gone, with all connections, when dropped.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    store: Store,
    _serving: AbortOnDropHandle<()>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0", None).await
    }

    /// A collector at an address; with TLS, one that asks for a client's certificate.
    pub(crate) async fn at(address: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, store) = (listener.local_addr().unwrap(), Store::default());
        let router = tonic::service::Routes::new(TraceServiceServer::new(store.clone()))
            .into_axum_router()
            .merge(Router::new().route("/v1/traces", post(over_http)).with_state(store.clone()));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let (router, tls) = (router.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(connection, router).await,
                        // A client that does not trust this collector ends the connection.
                        Some(tls) => {
                            if let Ok(connection) = tls.accept(connection).await {
                                serve(connection, router).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, store, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Received> {
        self.store.0.lock().unwrap().0.clone()
    }

    /// Protocol and `authorization` of each export so far, each once.
    pub(crate) fn exports(&self) -> Vec<String> {
        let mut exports = self.store.0.lock().unwrap().1.clone();
        exports.dedup();
        exports
    }

    /// Waits until a span of this name has come.
    pub(crate) async fn until(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.spans().iter().any(|received| received.span.name == name) {
            assert!(Instant::now() < deadline, "no span {name}: {:?}", self.counts());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many spans of each name have come.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        self.spans().into_iter().for_each(|received| *counts.entry(received.span.name).or_default() += 1);
        counts
    }
}

async fn serve(connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    // A connection that breaks is the client's affair.
    let _ended =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(connection), service).await;
}

/// A private authority, with certificates of a collector and of a client as files.
pub(crate) struct Authority {
    directory: PathBuf,
}

impl Authority {
    pub(crate) fn make(directory: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        write("ca.pem", &authority.pem());
        for name in ["collector", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            write(&format!("{name}.pem"), &params.signed_by(&key, &authority).unwrap().pem());
            write(&format!("{name}.key"), &key.serialize_pem());
        }
        Self { directory: directory.to_owned() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// TLS for a collector that only clients of this authority may use.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let read = |name| CertificateDer::pem_file_iter(self.file(name)).unwrap().map(Result::unwrap);
        let mut roots = RootCertStore::empty();
        read("ca.pem").for_each(|certificate| roots.add(certificate).unwrap());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::from_pem_file(self.file("collector.key")).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(read("collector.pem").collect(), key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A collector that takes connections and never answers.
pub(crate) async fn silent() -> (SocketAddr, AbortOnDropHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let held = tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await?);
        }
    });
    (address, AbortOnDropHandle::new(held))
}
