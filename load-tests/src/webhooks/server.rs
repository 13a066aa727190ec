//! Admission webhooks over TLS for an API server on this host, and their configuration there.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::Kind;

/// Label of namespaces: which webhook is asked.
const LABEL: &str = "load-tests.yardmaster.dev/webhook";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The message of a webhook that refuses.
pub(crate) const REFUSAL_BYTES: usize = 16 << 20;
/// Limit of the time until the API server asks a new webhook.
const PATIENCE: Duration = Duration::from_secs(60);

/// Running webhooks and their configuration.
pub(crate) struct Webhooks {
    name: String,
    delay: Duration,
    server: JoinHandle<()>,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Slow, Self::Failing, Self::Refusing];

    fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Failing => "failing",
            Self::Refusing => "refusing",
        }
    }
}

impl Webhooks {
    /// Starts a webhook of each kind, and registers them at the API server.
    pub(crate) async fn start(
        client: &kube::Client,
        name: &str,
        delay: Duration,
        timeout: Duration,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for webhooks")?;
        let port = listener.local_addr()?.port();
        let host = Ipv4Addr::LOCALHOST.to_string();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec![host.clone()])?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let server = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), delay));
        let webhook = |kind: Kind| {
            json!({
                "name": format!("{}.{LABEL}", kind.name()).replace('/', "."),
                "clientConfig": {
                    "url": format!("https://{host}:{port}/{}", kind.name()),
                    "caBundle": STANDARD.encode(cert.pem()),
                },
                "namespaceSelector": {"matchLabels": {LABEL: kind.name()}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }],
                "timeoutSeconds": timeout.as_secs().clamp(1, 30),
                "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            })
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": Kind::ALL.map(webhook),
        });
        let request = Request::post(CONFIGURATIONS).body(configuration.to_string().into_bytes())?;
        let _created: Value = client.request(request).await.context("cannot configure webhooks")?;
        Ok(Self { name: name.to_owned(), delay, server })
    }

    /// From now on this webhook is asked for the pods of this namespace. Returns once it is.
    pub(crate) async fn admit(&self, client: &kube::Client, namespace: &str, kind: Kind) -> Result<()> {
        let labels = json!({"metadata": {"labels": {LABEL: kind.name()}}}).to_string();
        let request = Request::patch(format!("/api/v1/namespaces/{namespace}"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(labels.into_bytes())?;
        let _labelled: Value = client.request(request).await.context("cannot label the namespace")?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
        });
        let begun = Instant::now();
        loop {
            let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
            let asked = Instant::now();
            let created: Result<Value, _> =
                client.request(Request::post(path).body(pod.to_string().into_bytes())?).await;
            match created {
                Ok(_) if kind == Kind::Slow && asked.elapsed() >= self.delay => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 500 && kind == Kind::Failing => {
                    eprintln!("{}", status.message);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 400 && kind == Kind::Refusing => {
                    return Ok(());
                }
                Err(error) => return Err(error).context("the webhook does not work"),
                Ok(_) if begun.elapsed() > PATIENCE => bail!("the webhook is not asked"),
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Takes all away.
    pub(crate) async fn end(self, client: &kube::Client) -> Result<()> {
        let request = Request::delete(format!("{CONFIGURATIONS}/{}", self.name)).body(Vec::new())?;
        let _deleted: Value = client.request(request).await.context("cannot remove the webhooks")?;
        Ok(())
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, delay: Duration) {
    while let Ok((stream, _)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            // The end of a connection concerns the API server, which says so.
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| review(request, delay));
            let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Admits everything after the delay, refuses everything at length, or never answers.
async fn review(request: Request<Incoming>, delay: Duration) -> Result<Response<Full<Bytes>>, Infallible> {
    let asked = Kind::ALL.into_iter().find(|kind| request.uri().path() == format!("/{}", kind.name()));
    let mut verdict = match asked {
        Some(Kind::Slow) => json!({"allowed": true}),
        Some(Kind::Refusing) => json!({"allowed": false, "status": {"message": "x".repeat(REFUSAL_BYTES)}}),
        Some(Kind::Failing) | None => return std::future::pending().await,
    };
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    verdict["uid"] = review["request"]["uid"].clone();
    if asked == Some(Kind::Slow) {
        tokio::time::sleep(delay).await;
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": verdict});
    let mut response = Response::new(Full::from(answer.to_string()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
