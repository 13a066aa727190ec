//! An HTTP server, in clear or over TLS, that admits whom the test says.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::{Request, Response, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, broadcast, watch};
use tokio_rustls::TlsAcceptor;

/// The name in the server's certificates. The name is never resolved.
pub(super) const HOST: &str = "api.cluster.invalid";

/// An authority for certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A client's certificate and key, in PEM.
pub(super) struct Client {
    pub(super) certificate: String,
    pub(super) key: String,
    der: CertificateDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    pub(super) fn client(&self, name: &str) -> Client {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Client { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().clone() }
    }

    /// TLS of a server on loopback that is also known as [`HOST`]. It asks clients for certificates.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        let names = vec![HOST.to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let clients = clients.allow_unauthenticated().build().unwrap();
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_client_cert_verifier(clients);
        Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).unwrap())
    }
}

#[derive(Default)]
struct Admitted {
    certificate: Option<CertificateDer<'static>>,
    token: Option<String>,
    barrier: Option<Arc<Barrier>>,
}

struct Rules {
    admitted: Mutex<Admitted>,
    /// The client certificate of the last connection.
    seen: Mutex<Option<CertificateDer<'static>>>,
    said: broadcast::Sender<&'static str>,
    /// Idle connections of before end.
    close: watch::Sender<u32>,
}

/// A running server. It ends with its runtime.
pub(super) struct Server {
    address: SocketAddr,
    tls: watch::Sender<Option<Arc<ServerConfig>>>,
    rules: Arc<Rules>,
}

impl Server {
    /// Starts a server; without an authority, in clear.
    pub(super) async fn start(authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tls, presented) = watch::channel(authority.map(Authority::server));
        let rules = Arc::new(Rules {
            admitted: Mutex::default(),
            seen: Mutex::default(),
            said: broadcast::channel(8).0,
            close: watch::channel(0).0,
        });
        let served = rules.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, rules) = (presented.borrow().clone(), served.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, None, rules).await };
                    let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
                    let peer = stream.get_ref().1.peer_certificates();
                    let peer = peer.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
                    rules.seen.lock().unwrap().clone_from(&peer);
                    serve(stream, peer, rules).await;
                });
            }
        });
        Self { address, tls, rules }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.borrow().is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// New connections see a certificate of this authority.
    pub(super) fn present(&self, authority: &Authority) {
        self.tls.send_replace(Some(authority.server()));
    }

    /// Ends connections on which no answer is in flight.
    pub(super) fn close_idle(&self) {
        self.rules.close.send_modify(|number| *number += 1);
    }

    /// All other clients get a 401 from now on, on existing connections as well.
    pub(super) fn admit_certificate(&self, client: &Client) {
        self.rules.admitted.lock().unwrap().certificate = Some(client.der.clone());
    }

    pub(super) fn admit_token(&self, token: &str) {
        self.rules.admitted.lock().unwrap().token = Some(token.to_owned());
    }

    /// The next answers leave when this many requests have arrived.
    pub(super) fn hold(&self, requests: usize) {
        self.rules.admitted.lock().unwrap().barrier = Some(Arc::new(Barrier::new(requests)));
    }

    /// Writes to all watches.
    pub(super) fn say(&self, text: &'static str) {
        self.rules.said.send(text).unwrap();
    }

    /// Whether the last connection was of this client.
    pub(super) fn has_seen(&self, client: &Client) -> bool {
        self.rules.seen.lock().unwrap().as_ref() == Some(&client.der)
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Option<CertificateDer<'static>>,
    rules: Arc<Rules>,
) {
    let mut close = rules.close.subscribe();
    let service = service_fn(move |request| answer(request, peer.clone(), rules.clone()));
    let mut connection =
        std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ended = connection.as_mut() => return,
        _closed = close.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

fn answer(
    request: Request<Incoming>,
    peer: Option<CertificateDer<'static>>,
    rules: Arc<Rules>,
) -> BoxFuture<'static, Result<Response<BoxBody<Bytes, Infallible>>, Infallible>> {
    Box::pin(async move {
        let (is_admitted, barrier) = {
            let admitted = rules.admitted.lock().unwrap();
            let bearer = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
            let token = admitted.token.as_ref().map(|token| format!("Bearer {token}"));
            let is_admitted = (admitted.certificate.is_none() || admitted.certificate == peer)
                && (token.is_none() || token.as_deref() == bearer);
            (is_admitted, admitted.barrier.clone())
        };
        if let Some(barrier) = barrier
            && barrier.wait().await.is_leader()
        {
            rules.admitted.lock().unwrap().barrier = None;
        }
        let warnings = request.uri().path().strip_prefix("/warnings/").map_or(0, |n| n.parse().unwrap());
        let frame = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
        let body = match request.uri().path() {
            "/watch" => {
                let said = stream::unfold(rules.said.subscribe(), |mut said| async {
                    Some((said.recv().await.ok()?, said))
                });
                BodyExt::boxed(StreamBody::new(stream::iter(["event"]).chain(said).map(frame)))
            }
            _ => Full::from("{}").boxed(),
        };
        let mut answer = Response::builder().status(if is_admitted { 200 } else { 401 });
        for number in 0..warnings {
            answer = answer.header(header::WARNING, format!("299 - \"{number}\""));
        }
        Ok(answer.body(body).unwrap())
    })
}
