//! TCP connections, straight or through a proxy, that notice when the other side is gone.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::proxy::{Proxy, Scheme};

/// Time until a TCP connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without traffic after which the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time that sent bytes, or such questions, may stay unacknowledged. Then the
/// connection is given up: the other side may have died without a word.
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// A connection to a server. It is over TLS as far as the proxy, if that wants so.
pub type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes connections to servers.
#[derive(Clone, Debug)]
pub struct Connector(Way);

#[derive(Clone, Debug)]
enum Way {
    Straight(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    SecureTunnel(Tunnel<HttpsConnector<HttpConnector>>),
    Socks(SocksV5<HttpConnector>),
}

impl Connector {
    /// A connector through this proxy, if any. A proxy over TLS is checked by `tls`.
    pub fn new(proxy: Option<&Proxy>, tls: &ClientConfig) -> Self {
        let tcp = tcp();
        let Some(proxy) = proxy else { return Self(Way::Straight(tcp)) };
        let (address, credentials) = (proxy.address(), proxy.intercept());
        Self(match proxy.scheme() {
            Scheme::Http => Way::Tunnel(authorized(Tunnel::new(address, tcp), proxy)),
            Scheme::Https => {
                let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only();
                let secure = builder.enable_http1().wrap_connector(tcp);
                Way::SecureTunnel(authorized(Tunnel::new(address, secure), proxy))
            }
            Scheme::Socks5 => {
                let socks = SocksV5::new(address, tcp);
                Way::Socks(match credentials.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
        })
    }
}

fn authorized<C>(tunnel: Tunnel<C>, proxy: &Proxy) -> Tunnel<C> {
    match proxy.intercept().basic_auth() {
        Some(header) => tunnel.with_auth(header.clone()),
        None => tunnel,
    }
}

fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Way::Straight(way) => way.poll_ready(task).map_err(BoxError::from),
            Way::Tunnel(way) => way.poll_ready(task).map_err(BoxError::from),
            Way::SecureTunnel(way) => way.poll_ready(task).map_err(BoxError::from),
            Way::Socks(way) => way.poll_ready(task).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match &mut self.0 {
            Way::Straight(way) => way.call(server).map_ok(Stream::Http).map_err(BoxError::from).boxed(),
            Way::Tunnel(way) => way.call(server).map_ok(Stream::Http).map_err(BoxError::from).boxed(),
            Way::SecureTunnel(way) => way.call(server).map_err(BoxError::from).boxed(),
            Way::Socks(way) => way.call(server).map_ok(Stream::Http).map_err(BoxError::from).boxed(),
        }
    }
}
