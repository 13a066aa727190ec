//! A listening port, whose connections are bounded in number and time.
//!
//! A connection is a newcomer until its first request with the credentials that the port needs. Newcomers
//! have little time, and if there are too many, the [`lobby`] closes some. All other connections end when
//! they have been idle for long.

mod lobby;
mod peers;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::lobby::Lobby;
pub(crate) use self::lobby::Newcomer;
use self::peers::Ends;
use crate::open_files;

/// Time for requests in flight to finish when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Maximum size of a request's line and headers, in bytes. hyper bounds their number to 100.
const MAX_HEADER_SIZE: usize = 128 << 10;

/// Bounds of what the clients of a port can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum number of connections; further ones wait to be accepted. If the process may not open twice as
    /// many files, the maximum is lower.
    pub connections: usize,
    /// Maximum number of connections that are older than a second and have not sent a request with valid
    /// credentials. If there are more, the oldest connection of the peer with the most of them is closed. If
    /// newcomers take half of all connections, they do not get the second.
    pub newcomers: usize,
    /// Time for the first request with valid credentials.
    pub arrival: Duration,
    /// Time between a response and the complete headers of the next request.
    pub idle: Duration,
    /// Time for the body of a request.
    pub body: Duration,
}

impl Default for HttpLimits {
    /// A request may last as long as with kube-apiserver. Clients close idle connections after 90 s at most.
    /// The idle time is longer here: if the server closed first, a request sent meanwhile would be lost.
    fn default() -> Self {
        Self {
            connections: 4096,
            newcomers: 128,
            arrival: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(60),
        }
    }
}

/// The places of connections, which the ports that share them take from each other.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    count: usize,
}

impl Places {
    /// As many as the limits say, and no more than a part of the files that this process may open: a quarter of
    /// them for a `part` of 4.
    pub(crate) fn new(limits: &HttpLimits, part: u64) -> Self {
        let possible = usize::try_from(open_files::raise_limit() / part).unwrap_or(usize::MAX);
        let count = limits.connections.min(possible).max(1);
        Self { free: Arc::new(Semaphore::new(count)), count }
    }

    /// How many are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }
}

/// The protocols that a port accepts.
#[derive(Clone)]
pub(crate) enum Transport {
    /// HTTP in clear.
    Clear,
    /// TLS only.
    Tls(TlsAcceptor),
    /// Both, by the first byte: on loopback, where some clients send tokens over TLS only.
    Either(TlsAcceptor),
}

/// The first byte of a client that speaks TLS: a handshake record. No HTTP request begins with it.
const TLS_HANDSHAKE: u8 = 22;

/// A port to serve.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) transport: Transport,
    pub(crate) limits: HttpLimits,
    pub(crate) places: Places,
    /// Stops the port: no more connections are accepted, and requests in flight get [`SHUTDOWN_GRACE`].
    pub(crate) stop: CancellationToken,
    /// The connections.
    pub(crate) tasks: TaskTracker,
}

impl Port {
    /// Serves until stopped. An error of `handle` ends the connection without a response.
    pub(crate) async fn serve<F, R, B, E>(self, handle: F)
    where
        F: Fn(Request<Incoming>, Arc<Newcomer>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let lobby = Arc::new(Lobby::new(self.limits.newcomers, self.places.count / 2, peers::users));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &self.places.free) => accepted,
                never = lobby.thin_out() => match never {},
                () = self.stop.cancelled() => return,
            };
            let (stream, ends, place) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors: other connections will close.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            // Small responses must not be delayed. A failure here costs only latency.
            let _ = stream.set_nodelay(true);
            let connection = Connection {
                newcomer: Arc::new(lobby.enter(ends)),
                limits: self.limits,
                stop: self.stop.clone(),
                handle: handle.clone(),
            };
            let transport = self.transport.clone();
            self.tasks.spawn(async move {
                let _place = place;
                match transport {
                    Transport::Clear => connection.serve(stream).await,
                    Transport::Tls(tls) => connection.serve_tls(&tls, stream).await,
                    Transport::Either(tls) => match connection.begins_tls(&stream).await {
                        Some(true) => connection.serve_tls(&tls, stream).await,
                        Some(false) => connection.serve(stream).await,
                        None => {}
                    },
                }
            });
        }
    }
}

/// Accepts a connection once it has a place. A port holds the place for its next connection.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, Ends, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    let ends = Ends { peer, own: stream.local_addr()? };
    Ok((stream, ends, place))
}

/// An accepted connection, before it is served.
struct Connection<F> {
    newcomer: Arc<Newcomer>,
    limits: HttpLimits,
    stop: CancellationToken,
    handle: F,
}

impl<F, R, B, E> Connection<F>
where
    F: Fn(Request<Incoming>, Arc<Newcomer>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    /// Whether the client speaks TLS; `None` if no byte arrives.
    async fn begins_tls(&self, stream: &TcpStream) -> Option<bool> {
        let mut first = [0];
        let read = tokio::select! {
            biased;
            read = stream.peek(&mut first) => read,
            () = self.newcomer.overdue(self.limits.arrival) => return None,
            () = self.stop.cancelled() => return None,
        };
        matches!(read, Ok(1)).then_some(first == [TLS_HANDSHAKE])
    }

    async fn serve_tls(self, tls: &TlsAcceptor, stream: TcpStream) {
        let stream = tokio::select! {
            biased;
            stream = tls.accept(stream) => stream,
            () = self.newcomer.overdue(self.limits.arrival) => return,
            () = self.stop.cancelled() => return,
        };
        match stream {
            Ok(stream) => self.serve(stream).await,
            Err(error) => tracing::debug!(%error, "no TLS"),
        }
    }

    async fn serve<I>(self, stream: I)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (newcomer, handle) = (Arc::clone(&self.newcomer), self.handle);
        let service = service_fn(move |request| handle(request, Arc::clone(&newcomer)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle)
            .max_header_size(MAX_HEADER_SIZE)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            // If data and deadline are both ready, the data win: the server may be late, not the client.
            biased;
            result = connection.as_mut() => result,
            () = self.newcomer.overdue(self.limits.arrival) => return,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // A client that never finishes its request must not keep the server running.
                tokio::time::timeout(SHUTDOWN_GRACE, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "connection ended");
        }
    }
}
