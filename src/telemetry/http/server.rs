//! Serves HTTP to clients that may mean no good: connections are bounded in number and in time.
//!
//! A connection that sends no complete request header within [`HEADER_TIMEOUT`] is closed, idle keep-alive
//! connections included. There are at most [`MAX_CONNECTIONS`]. A further one closes the connection whose
//! last request is the longest ago. So half-open connections cost neither file descriptors nor threads of
//! the replica for long, and the probes of the kubelet get through.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::tls::Tls;

/// Most connections at once.
pub const MAX_CONNECTIONS: usize = 64;
/// How long a client may take for a TLS handshake, and for the header of a request. It is also how long a
/// connection may be idle between requests.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request may take from its header to the end of its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests in flight may take at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Most bytes of a request's header.
const MAX_HEADER: usize = 16 << 10;
/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// The client's.
    pub(super) peer: SocketAddr,
    /// Ours.
    pub(super) own: SocketAddr,
}

/// A listener at an address. `0.0.0.0` and `[::]` both are all addresses of the host, whether it has IPv4, IPv6 or
/// both.
///
/// # Errors
/// When the address is in use, or is not of this host.
pub fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let everywhere = at.ip().is_unspecified();
    let at = if everywhere { (Ipv6Addr::UNSPECIFIED, at.port()).into() } else { at };
    let open = |at: SocketAddr| Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP));
    let (socket, at) = match open(at) {
        Err(_) if everywhere => {
            let at = (Ipv4Addr::UNSPECIFIED, at.port()).into();
            (open(at)?, at)
        }
        socket => (socket?, at),
    };
    if at.is_ipv6() {
        socket.set_only_v6(!everywhere)?;
    }
    // A replica that restarts takes the port of the one before it, whose connections are still closing.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves the pages until `end`. Requests in flight have some seconds to finish.
pub async fn serve(listener: TcpListener, pages: Router, tls: Option<Tls>, end: impl Future<Output = ()>) {
    let server = Server { pages, tls, connections: Arc::default(), draining: GracefulShutdown::new() };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    tokio::select! {
        () = server.accept_all(&listener, &places) => {}
        () = end => {}
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, server.draining.shutdown()).await.is_err() {
        server.connections.close_all();
    }
}

struct Server {
    pages: Router,
    tls: Option<Tls>,
    connections: Arc<Connections>,
    draining: GracefulShutdown,
}

impl Server {
    async fn accept_all(&self, listener: &TcpListener, places: &Arc<Semaphore>) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // For this one, a place is free or becomes free at once.
                    if places.available_permits() == 0 {
                        self.connections.close_oldest();
                    }
                    let Ok(place) = places.clone().acquire_owned().await else { return };
                    // The client is gone already if this fails.
                    if let Ok(own) = stream.local_addr() {
                        self.start(stream, Ends { peer, own }, place);
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections for the HTTP pages");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, ends: Ends, place: OwnedSemaphorePermit) {
        // If this fails, small answers are only delayed.
        let _ = stream.set_nodelay(true);
        let connection = Connections::open(&self.connections);
        let (pages, tls, draining) = (self.pages.clone(), self.tls.clone(), self.draining.watcher());
        tokio::spawn(async move {
            let closed = connection.closed.clone();
            let served = async {
                match tls {
                    None => talk(stream, ends, pages, &connection, draining).await,
                    Some(tls) => {
                        let shaken = timeout(HEADER_TIMEOUT, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = shaken {
                            talk(stream, ends, pages, &connection, draining).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = served => {}
                () = closed.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// Whether an error of `accept` is about the connection that was to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Answers the requests of one connection.
async fn talk<S>(stream: S, ends: Ends, pages: Router, connection: &Connection, draining: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|mut request: Request<Incoming>| {
        connection.used();
        request.extensions_mut().insert(ends);
        pages.clone().oneshot(request.map(Body::new))
    });
    let talk = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(stream), service);
    let mut talk = std::pin::pin!(draining.watch(talk));
    loop {
        tokio::select! {
            // How a connection ends is the client's affair.
            _ended = &mut talk => return,
            () = sleep_until(connection.last_used() + REQUEST_TIMEOUT) => {
                if connection.last_used().elapsed() >= REQUEST_TIMEOUT {
                    return;
                }
            }
        }
    }
}

/// The open connections, in the order of their last requests.
#[derive(Default)]
struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    by_last_request: BTreeMap<u64, CancellationToken>,
}

/// An open connection. Cancelling the token closes it, and dropping this value removes it from the set.
struct Connection {
    among: Arc<Connections>,
    closed: CancellationToken,
    last: Mutex<(u64, Instant)>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        // A panic while writing leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(among: &Arc<Self>) -> Connection {
        let closed = CancellationToken::new();
        let number = among.lock().add(closed.clone());
        Connection { among: among.clone(), closed, last: Mutex::new((number, Instant::now())) }
    }

    fn close_oldest(&self) {
        if let Some((_, oldest)) = self.lock().by_last_request.pop_first() {
            oldest.cancel();
        }
    }

    fn close_all(&self) {
        self.lock().by_last_request.values().for_each(CancellationToken::cancel);
    }
}

impl Open {
    fn add(&mut self, closed: CancellationToken) -> u64 {
        self.next += 1;
        self.by_last_request.insert(self.next, closed);
        self.next
    }
}

impl Connection {
    fn last(&self) -> MutexGuard<'_, (u64, Instant)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has begun.
    fn used(&self) {
        let (mut last, mut open) = (self.last(), self.among.lock());
        if let Some(closed) = open.by_last_request.remove(&last.0) {
            *last = (open.add(closed), Instant::now());
        }
    }

    fn last_used(&self) -> Instant {
        self.last().1
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let number = self.last().0;
        self.among.lock().by_last_request.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let ipv6 = has_ipv6.then_some(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        for at in [Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))), ipv6].into_iter().flatten() {
            let _client = TcpStream::connect(at).await.unwrap();
            let (_, peer) = listener.accept().await.unwrap();
            assert!(peer.ip().to_canonical().is_loopback(), "{peer}");
        }
        assert!(bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).is_err(), "the port is in use");
    }

    #[test]
    fn the_connection_whose_last_request_is_the_longest_ago_is_closed() {
        let connections = Arc::<Connections>::default();
        let open: Vec<_> = (0..3).map(|_| Connections::open(&connections)).collect();
        open[0].used();
        connections.close_oldest();
        let closed = || open.iter().map(|one| one.closed.is_cancelled()).collect::<Vec<_>>();
        assert_eq!(closed(), [false, true, false]);
        // A closed connection is not used again.
        open[1].used();
        connections.close_oldest();
        assert_eq!(closed(), [false, true, true]);
        drop(open);
        assert!(connections.lock().by_last_request.is_empty());
    }
}
