//! The way to the collector: OTLP over gRPC or HTTP, with or without TLS, as the standard variables say.

use std::env;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Scheme};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::Handle;
use tonic::transport::Endpoint;

use crate::net;
use crate::net::connector::Connector;
use crate::net::proxy::{Proxy, ProxyError};

/// Where OTLP over HTTP takes traces, below the general address of a collector.
const HTTP_PATH: &str = "v1/traces";
/// Longest time that sending may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most of an answer that is read, in bytes.
const LONGEST_ANSWER: usize = 1 << 20;

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The collector's address is not usable.
    #[error("{0:?}: http://HOST:PORT or https://HOST:PORT is expected")]
    Endpoint(String),
    /// The protocol is not known.
    #[error("{0}={1:?}: grpc or http/protobuf is expected")]
    Protocol(&'static str, String),
    /// A certificate or key cannot be read.
    #[error("{variable}={file:?}: {problem}")]
    Certificate {
        /// The variable that names the file.
        variable: String,
        /// The file.
        file: PathBuf,
        /// The problem with the file.
        problem: String,
    },
    /// Only one of a certificate of our own and its key is given.
    #[error("{0} is set without {1}")]
    HalfIdentity(&'static str, &'static str),
    /// A variable names no proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The exporter's settings are not usable.
    #[error(transparent)]
    Build(#[from] ExporterBuildError),
}

/// How the spans travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Grpc,
    Http,
}

/// The collector, and how to reach it.
#[derive(Debug)]
pub(super) struct Settings {
    protocol: Protocol,
    address: Uri,
}

impl Settings {
    /// The collector at `endpoint`, or without that the collector that the variables name; `None` without
    /// either.
    pub(super) fn read(endpoint: Option<&str>) -> Result<Option<Self>, ExportError> {
        if is_switched_off() {
            return Ok(None);
        }
        let whole = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|_| endpoint.is_none());
        let base = endpoint.map(str::to_owned).or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let Some(text) = whole.clone().or(base) else { return Ok(None) };
        let protocol = protocol()?;
        let text = match protocol {
            // The general address is that of the collector; the one for traces is complete.
            Protocol::Http if whole.is_none() => format!("{}/{HTTP_PATH}", text.trim_end_matches('/')),
            _ => text,
        };
        let address = text.parse().ok().filter(|address: &Uri| {
            matches!(address.scheme_str(), Some("http" | "https")) && address.host().is_some()
        });
        Ok(Some(Self { protocol, address: address.ok_or(ExportError::Endpoint(text))? }))
    }

    /// The collector, for logs: without possibly secret parts.
    pub(super) fn address(&self) -> String {
        let port = self.address.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!(
            "{}://{}{port}",
            self.address.scheme_str().unwrap_or_default(),
            self.address.host().unwrap_or_default()
        )
    }

    /// The exporter. Headers, timeout and compression are read from the variables by OpenTelemetry itself.
    pub(super) fn exporter(&self) -> Result<SpanExporter, ExportError> {
        let connector = self.connector()?;
        let builder = SpanExporter::builder();
        Ok(match self.protocol {
            Protocol::Grpc => {
                let endpoint = Endpoint::from(self.address.clone()).timeout(timeout());
                let channel = endpoint.connect_with_connector_lazy(connector);
                builder.with_tonic().with_channel(channel).build()?
            }
            Protocol::Http => {
                let client = Client::builder(TokioExecutor::new()).build(connector);
                let client = OverHttp { client, runtime: Handle::current(), timeout: timeout() };
                builder
                    .with_http()
                    .with_endpoint(self.address.to_string())
                    .with_http_client(client)
                    .build()?
            }
        })
    }

    fn connector(&self) -> Result<HttpsConnector<Connector>, ExportError> {
        let secure = self.address.scheme() == Some(&Scheme::HTTPS);
        let proxy = Proxy::of_environment(&self.address)?;
        let over_tls = proxy.as_ref().is_some_and(|proxy| proxy.scheme() == net::proxy::Scheme::Https);
        let tls = tls(secure || over_tls)?;
        let connector = Connector::new(proxy.as_ref(), &tls);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        Ok(match self.protocol {
            Protocol::Grpc => builder.enable_http2().wrap_connector(connector),
            Protocol::Http => builder.enable_http1().wrap_connector(connector),
        })
    }
}

/// Whether the standard variables disable traces.
fn is_switched_off() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v.eq_ignore_ascii_case(value));
    is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
}

/// A variable that is set, and not to nothing.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn protocol() -> Result<Protocol, ExportError> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    match names.into_iter().find_map(|name| Some((name, variable(name)?))) {
        None => Ok(Protocol::Grpc),
        Some((_, value)) if value == "grpc" => Ok(Protocol::Grpc),
        Some((_, value)) if value == "http/protobuf" => Ok(Protocol::Http),
        Some((name, value)) => Err(ExportError::Protocol(name, value)),
    }
}

/// How long sending may take, as the variables say in milliseconds.
fn timeout() -> Duration {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
    let given = names.into_iter().find_map(|name| variable(name)?.parse().ok());
    given.map_or(TIMEOUT, Duration::from_millis)
}

/// The file that a variable names, for traces or for all signals.
fn file(kind: &str) -> Option<(String, PathBuf)> {
    let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{kind}"), format!("OTEL_EXPORTER_OTLP_{kind}")];
    names.into_iter().find_map(|name| {
        let file = variable(&name)?.into();
        Some((name, file))
    })
}

/// TLS with the authorities of the system, or with those that the variables name alone. `secure`: it will be
/// used.
fn tls(secure: bool) -> Result<ClientConfig, ExportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ExportError::Tls(error.to_string()))?;
    let builder = match file("CERTIFICATE") {
        _ if !secure => builder.with_root_certificates(RootCertStore::empty()),
        Some(at) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&at)? {
                roots.add(certificate).map_err(|error| unreadable(&at, error))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_native_roots().map_err(|error| ExportError::Tls(error.to_string()))?,
    };
    match (file("CLIENT_CERTIFICATE"), file("CLIENT_KEY")) {
        (Some(certificate), Some(key)) if secure => {
            let chain = certificates(&certificate)?;
            let secret = PrivateKeyDer::from_pem_file(&key.1).map_err(|error| unreadable(&key, error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| unreadable(&certificate, error))
        }
        (Some(_), None) => Err(ExportError::HalfIdentity("CLIENT_CERTIFICATE", "CLIENT_KEY")),
        (None, Some(_)) => Err(ExportError::HalfIdentity("CLIENT_KEY", "CLIENT_CERTIFICATE")),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(at: &(String, PathBuf)) -> Result<Vec<CertificateDer<'static>>, ExportError> {
    let read = |file: &Path| CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    match read(&at.1) {
        Ok(found) if found.is_empty() => Err(unreadable(at, "no certificate in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable(at, error)),
    }
}

fn unreadable((variable, file): &(String, PathBuf), problem: impl fmt::Display) -> ExportError {
    ExportError::Certificate { variable: variable.clone(), file: file.clone(), problem: problem.to_string() }
}

/// Sends requests on the tokio runtime: the exporter's own thread has none.
#[derive(Debug)]
struct OverHttp {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
}

impl HttpClient for OverHttp {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let answer = self.client.request(request.map(Full::new));
        let whole = async move {
            let (parts, body) = answer.await?.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        let timeout = self.timeout;
        let answered = self.runtime.spawn(async move { tokio::time::timeout(timeout, whole).await? });
        Box::pin(async move { answered.await? })
    }
}
