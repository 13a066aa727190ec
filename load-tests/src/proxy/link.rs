//! A connection through a proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::{Mode, Shared};

/// Most bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Most pieces on their way in one direction.
const ON_THE_WAY: usize = 64;

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToReplica,
}

/// A piece, and when it arrives.
type Piece = (Instant, Bytes);

/// The state that both directions of a connection share.
#[derive(Clone)]
struct Link<'a> {
    mode: watch::Receiver<Mode>,
    number: u64,
    shared: &'a Shared,
}

/// Connects a replica to the API server and passes bytes on in both directions, until both sides or the mode end
/// the connection.
pub(super) async fn run(
    mut client: TcpStream,
    upstream: SocketAddr,
    mode: watch::Receiver<Mode>,
    number: u64,
    shared: &Shared,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let link = Link { mode, number, shared };
    // A replica that is cut off does not get as far as the API server.
    let goes_on =
        *link.mode.borrow() == Mode::Swallow || link.both(&mut client, upstream).await? == Mode::HalfOpen;
    if goes_on {
        let closed = link.until(|mode| mode == Mode::Close);
        tokio::select! {
            _ = closed => {}
            swallowed = swallow(&mut client, shared) => swallowed?,
        }
    }
    Ok(())
}

/// Reads to the end, and keeps nothing.
async fn swallow(client: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let mut piece = BytesMut::with_capacity(PIECE);
    loop {
        piece.clear();
        match client.read_buf(&mut piece).await? {
            0 => return Ok(()),
            count => shared.swallowed.fetch_add(count as u64, Ordering::Relaxed),
        };
    }
}

impl Link<'_> {
    /// Passes bytes on in both directions. Returns the mode that ended that.
    async fn both(&self, client: &mut TcpStream, upstream: SocketAddr) -> io::Result<Mode> {
        let mut server = TcpStream::connect(upstream).await?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            biased;
            mode = self.clone().until(|mode| matches!(mode, Mode::HalfOpen | Mode::Close)) => Ok(mode),
            passed = async {
                tokio::try_join!(
                    self.clone().pass(from_client, to_server, Direction::ToServer),
                    self.clone().pass(from_server, to_client, Direction::ToReplica),
                )
            } => passed.map(|_| Mode::Close),
        }
    }

    /// Waits for a mode. The mode is [`Mode::Close`] once the proxy is gone.
    async fn until(mut self, wanted: impl Fn(Mode) -> bool) -> Mode {
        self.mode.wait_for(|mode| wanted(*mode)).await.map_or(Mode::Close, |mode| *mode)
    }

    /// Passes bytes on in one direction.
    async fn pass(
        self,
        from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        direction: Direction,
    ) -> io::Result<()> {
        let (queue, mut pieces) = mpsc::channel::<Piece>(ON_THE_WAY);
        let write = async move {
            while let Some((due, piece)) = pieces.recv().await {
                sleep_until(due).await;
                to.write_all(&piece).await?;
            }
            to.shutdown().await
        };
        // The pieces that precede a cut arrive before it.
        let (read, written) = tokio::join!(self.read(from, queue, direction), write);
        read.and(written)
    }

    async fn read(
        self,
        mut from: impl AsyncRead + Unpin,
        queue: mpsc::Sender<Piece>,
        direction: Direction,
    ) -> io::Result<()> {
        loop {
            let mut piece = BytesMut::with_capacity(PIECE);
            let count = from.read_buf(&mut piece).await?;
            let mode = *self.mode.borrow();
            if mode == Mode::Swallow {
                self.shared.swallowed.fetch_add(count as u64, Ordering::Relaxed);
                if count == 0 {
                    // The other side does not see the end either.
                    std::future::pending::<()>().await;
                }
                continue;
            }
            if count == 0 {
                return Ok(());
            }
            if direction == Direction::ToServer {
                self.note_request(&piece);
            }
            let cut =
                direction == Direction::ToReplica && self.shared.cuts_next.swap(false, Ordering::Relaxed);
            if cut {
                piece.truncate(count / 2);
            }
            let delay = if let Mode::Delay(time) = mode { time } else { Duration::ZERO };
            if queue.send((Instant::now() + delay, piece.freeze())).await.is_err() {
                if cut {
                    // The replica had closed this connection before: another one is cut.
                    self.shared.cuts_next.store(true, Ordering::Relaxed);
                }
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if cut {
                self.note_cut();
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
    }

    fn note_cut(&self) {
        let mut inner = self.shared.lock();
        inner.cut =
            Some(inner.connections.get(&self.number).map_or_else(String::new, |of| of.request.clone()));
    }

    /// Remembers the request that begins with these bytes, if one does.
    fn note_request(&self, piece: &[u8]) {
        let Some(request) = request(piece) else { return };
        if let Some(connection) = self.shared.lock().connections.get_mut(&self.number) {
            connection.request = request;
        }
    }
}

/// The content type of TLS records with application data.
const APPLICATION_DATA: u8 = 23;

/// Method and path of the HTTP/1.1 request that begins with these bytes: `GET /api/v1/pods (watch)`. For TLS,
/// only its use is visible.
pub(super) fn request(piece: &[u8]) -> Option<String> {
    if piece.first() == Some(&APPLICATION_DATA) {
        return Some("TLS".into());
    }
    let line = piece.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?;
    let (method, target) = line.split_once(' ')?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let watch =
        if query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")) { " (watch)" } else { "" };
    Some(format!("{method} {path}{watch}"))
}
