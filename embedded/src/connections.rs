//! A listening port, whose connections are bounded in number and time.
//!
//! A connection is a newcomer until its first request from somebody who is known. Newcomers have little time,
//! and when there are too many of them, the oldest has to leave for the next. It has a second before that, in which
//! further connections wait: clients that want something send their request at once, so a burst of theirs gets in,
//! and so do they while somebody opens connections without end. All other connections are of known clients. They
//! end when they have been idle for long.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::open_files;

/// Time for requests in flight to finish when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Maximum size of a request's line and headers, in bytes. hyper bounds their number to 100.
const MAX_HEADER_SIZE: usize = 128 << 10;

/// Time that a newcomer has at least, however many others come.
const UNDISTURBED: Duration = Duration::from_secs(1);

/// Bounds of what the clients of a port can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum number of connections; further ones wait to be accepted. It is lower if the process may not open
    /// twice as many files.
    pub connections: usize,
    /// Maximum number of connections that have not sent a request with valid credentials yet. Further ones wait to
    /// be accepted until the oldest of them has had a second, which is then closed.
    pub newcomers: usize,
    /// Time for the first request with valid credentials.
    pub arrival: Duration,
    /// Time between a response and the complete headers of the next request.
    pub idle: Duration,
    /// Time for the body of a request.
    pub body: Duration,
}

impl Default for HttpLimits {
    /// A request may last as long as with kube-apiserver. Clients close idle connections after 90 s at most; this
    /// is longer, since a request that is sent while the server closes the connection is lost.
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

/// What a port speaks.
#[derive(Clone)]
pub(crate) enum Transport {
    /// HTTP in clear.
    Clear,
    /// TLS, and nothing else.
    Tls(TlsAcceptor),
    /// Both, as the first byte says: on loopback, where some clients send tokens over TLS only.
    Either(TlsAcceptor),
}

/// The first byte of a client that speaks TLS: a handshake record. No HTTP request begins with it.
const TLS_HANDSHAKE: u8 = 22;

/// A port to serve.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) transport: Transport,
    pub(crate) limits: HttpLimits,
    /// Stops the port: no more connections are accepted, and requests in flight have a little time.
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
        let possible = usize::try_from(open_files::raise_limit() / 2).unwrap_or(usize::MAX);
        let places = Arc::new(Semaphore::new(self.limits.connections.min(possible).max(1)));
        let lobby = Arc::new(Lobby::new(self.limits.newcomers));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &places, &lobby) => accepted,
                () = self.stop.cancelled() => return,
            };
            let (stream, place) = match accepted {
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
                newcomer: Arc::new(lobby.enter()),
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

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    lobby: &Lobby,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    lobby.room().await;
    let (stream, _address): (_, SocketAddr) = listener.accept().await?;
    Ok((stream, place))
}

/// One connection before it is served.
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
    /// Whether the client speaks TLS; `None` if it says nothing.
    async fn begins_tls(&self, stream: &TcpStream) -> Option<bool> {
        let mut first = [0];
        let read = tokio::select! {
            read = stream.peek(&mut first) => read,
            () = self.newcomer.overdue(self.limits.arrival) => return None,
            () = self.stop.cancelled() => return None,
        };
        matches!(read, Ok(1)).then_some(first == [TLS_HANDSHAKE])
    }

    async fn serve_tls(self, tls: &TlsAcceptor, stream: TcpStream) {
        let stream = tokio::select! {
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

/// The newcomers of a port.
struct Lobby {
    limit: usize,
    newcomers: Mutex<Newcomers>,
    /// One of them is known by now, or has ended.
    left: Notify,
}

#[derive(Default)]
struct Newcomers {
    next: u64,
    /// When each came, by order of arrival; cancelled when it has to leave.
    waiting: BTreeMap<u64, (Instant, CancellationToken)>,
}

impl Lobby {
    fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), newcomers: Mutex::default(), left: Notify::new() }
    }

    /// Waits for room for one more. If there are too many newcomers, the oldest leaves once it has had its time.
    async fn room(&self) {
        while let Some(since) = self.oldest_of_too_many() {
            tokio::select! {
                () = self.left.notified() => {}
                () = sleep_until(since + UNDISTURBED) => self.displace(since),
            }
        }
    }

    /// When the oldest newcomer came, if there is no room for another.
    fn oldest_of_too_many(&self) -> Option<Instant> {
        let newcomers = self.newcomers.lock();
        let oldest = newcomers.waiting.first_key_value().filter(|_| newcomers.waiting.len() >= self.limit);
        oldest.map(|(_, (since, _))| *since)
    }

    /// Has the oldest newcomer leave, if it is the one that came then.
    fn displace(&self, since: Instant) {
        let mut newcomers = self.newcomers.lock();
        if let Some(oldest) = newcomers.waiting.first_entry().filter(|oldest| oldest.get().0 == since) {
            oldest.remove().1.cancel();
        }
    }

    /// A new connection.
    fn enter(self: &Arc<Self>) -> Newcomer {
        let displaced = CancellationToken::new();
        let mut newcomers = self.newcomers.lock();
        let number = newcomers.next;
        newcomers.next += 1;
        let since = Instant::now();
        newcomers.waiting.insert(number, (since, displaced.clone()));
        drop(newcomers);
        Newcomer { lobby: Arc::clone(self), number, since, displaced, welcome: CancellationToken::new() }
    }
}

/// A connection that has to show who it is.
pub(crate) struct Newcomer {
    lobby: Arc<Lobby>,
    number: u64,
    /// When it came.
    since: Instant,
    displaced: CancellationToken,
    welcome: CancellationToken,
}

impl Newcomer {
    /// Records that the client is known: from now on the connection may stay.
    pub(crate) fn welcome(&self) {
        if !self.welcome.is_cancelled() {
            self.welcome.cancel();
            self.leave();
        }
    }

    /// Waits until the connection has been a newcomer for this time, or among too many.
    async fn overdue(&self, time: Duration) {
        tokio::select! {
            // A known client may stay, even if the time is over as well.
            biased;
            () = self.welcome.cancelled() => std::future::pending().await,
            () = self.displaced.cancelled() => {}
            () = sleep_until(self.since + time) => {}
        }
    }

    fn leave(&self) {
        self.lobby.newcomers.lock().waiting.remove(&self.number);
        self.lobby.left.notify_one();
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lobby(limit: usize) -> Arc<Lobby> {
        Arc::new(Lobby::new(limit))
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_has_little_time_until_it_is_known() {
        let lobby = lobby(9);
        let (silent, known) = (lobby.enter(), lobby.enter());
        known.welcome();
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, silent.overdue(Duration::from_secs(5))).await.is_ok());
        assert!(tokio::time::timeout(hour, known.overdue(Duration::from_secs(5))).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_newcomer_runs_from_its_arrival() {
        let newcomer = lobby(9).enter();
        let begun = Instant::now();
        for _step in ["the first byte", "the handshake", "the request"] {
            newcomer.overdue(Duration::from_secs(5)).await;
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_too_many_newcomers_leaves_after_a_second() {
        let lobby = lobby(2);
        let (first, second) = (lobby.enter(), lobby.enter());
        let begun = Instant::now();
        lobby.room().await;
        assert_eq!(begun.elapsed(), UNDISTURBED);
        assert!(first.displaced.is_cancelled() && !second.displaced.is_cancelled());
        let third = lobby.enter();
        third.welcome();
        lobby.room().await;
        assert!(!second.displaced.is_cancelled(), "a known connection is no newcomer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_known_clients_displaces_nobody() {
        let (lobby, mut clients) = (lobby(2), tokio::task::JoinSet::new());
        for _ in 0..100 {
            lobby.room().await;
            let newcomer = Arc::new(lobby.enter());
            clients.spawn(async move {
                tokio::time::sleep(Duration::from_millis(900)).await;
                newcomer.welcome();
                newcomer.displaced.is_cancelled()
            });
        }
        assert!(clients.join_all().await.iter().all(|displaced| !displaced));
    }
}
