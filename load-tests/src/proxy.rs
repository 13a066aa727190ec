//! A TCP proxy between a replica and the API server, which plays what networks do to connections.
//!
//! Each replica has a proxy of its own, so that a fault meets one replica and one of its connections.

mod link;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The treatment of the bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes everything on.
    Pass,
    /// Passes everything on, this much later.
    Delay(Duration),
    /// Swallows everything in both directions. Both sides stay connected.
    Swallow,
    /// The API server's side is closed. The replica's side stays connected, and gets nothing.
    HalfOpen,
    /// Both sides are closed.
    Close,
}

/// A connection as its proxy knows it.
#[derive(Debug)]
struct Connection {
    mode: watch::Sender<Mode>,
    /// Method and path of its last request, or that it is of TLS. Empty before the first.
    request: String,
}

#[derive(Debug)]
struct Inner {
    /// The mode of new connections.
    new: Mode,
    /// Open connections by number, in the order of their begin.
    connections: BTreeMap<u64, Connection>,
    /// Last request of the connection whose answer was cut last.
    cut: Option<String>,
}

/// The state that the proxy and its connections share.
#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    swallowed: AtomicU64,
    /// Whether the next answer is cut.
    cuts_next: AtomicBool,
}

/// A listening proxy. It ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves no harmful partial update, so a poisoned lock is usable.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens on a free port of loopback, and passes connections on to this address.
    ///
    /// # Errors
    ///
    /// Without a free port.
    pub(crate) fn start(upstream: SocketAddr) -> Result<Self> {
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for a proxy")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let inner = Mutex::new(Inner { new: Mode::Pass, connections: BTreeMap::new(), cut: None });
        let shared =
            Arc::new(Shared { inner, swallowed: AtomicU64::new(0), cuts_next: AtomicBool::new(false) });
        let serving = serve(TcpListener::from_std(listener)?, upstream, Arc::clone(&shared));
        Ok(Self { address, shared, listener: tokio::spawn(serving) })
    }

    /// Where replicas connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Numbers of the open connections that have sent a request, and their last request.
    pub(crate) fn connections(&self) -> Vec<(u64, String)> {
        let inner = self.shared.lock();
        let used = inner.connections.iter().filter(|(_, connection)| !connection.request.is_empty());
        used.map(|(number, connection)| (*number, connection.request.clone())).collect()
    }

    /// Changes the mode of one connection. Returns whether it was still open.
    pub(crate) fn set(&self, number: u64, mode: Mode) -> bool {
        let inner = self.shared.lock();
        inner.connections.get(&number).is_some_and(|connection| connection.mode.send(mode).is_ok())
    }

    /// Changes the mode of all connections, the new ones included.
    pub(crate) fn set_all(&self, mode: Mode) {
        let mut inner = self.shared.lock();
        inner.new = mode;
        for connection in inner.connections.values() {
            connection.mode.send_replace(mode);
        }
    }

    /// Ends all faults. Connections that have lost bytes cannot go on, and are closed.
    pub(crate) fn restore(&self) {
        let mut inner = self.shared.lock();
        inner.new = Mode::Pass;
        for connection in inner.connections.values() {
            connection.mode.send_modify(|mode| {
                *mode = match mode {
                    Mode::Swallow | Mode::HalfOpen | Mode::Close => Mode::Close,
                    Mode::Pass | Mode::Delay(_) => Mode::Pass,
                }
            });
        }
    }

    /// Bytes that were swallowed so far.
    pub(crate) fn swallowed(&self) -> u64 {
        self.shared.swallowed.load(Ordering::Relaxed)
    }

    /// The next bytes from the API server, on whichever connection, are passed on by half. Then both sides of this
    /// connection are closed.
    pub(crate) fn cut_next_answer(&self) {
        self.shared.lock().cut = None;
        self.shared.cuts_next.store(true, Ordering::Relaxed);
    }

    /// Last request of the connection whose answer was cut since [`cut_next_answer`](Self::cut_next_answer).
    pub(crate) fn cut(&self) -> Option<String> {
        self.shared.lock().cut.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.set_all(Mode::Close);
    }
}

async fn serve(listener: TcpListener, upstream: SocketAddr, shared: Arc<Shared>) {
    for number in 0.. {
        // An error concerns one connection, or the number of open files, which may change.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        let mode = {
            let mut inner = shared.lock();
            let (sender, mode) = watch::channel(inner.new);
            inner.connections.insert(number, Connection { mode: sender, request: String::new() });
            mode
        };
        tokio::spawn(async move {
            // The end of a connection is no error of the proxy. A refused connection is closed, as it would be
            // without a proxy.
            let _ended = link::run(client, upstream, mode, number, &shared).await;
            shared.lock().connections.remove(&number);
        });
    }
}

#[cfg(test)]
mod tests;
