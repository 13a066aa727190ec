//! The moment at which a request leaves.
//!
//! A request may wait between the decision to send it and its first byte: for credentials, a name server, a
//! connection, a TLS handshake. An HTTP/1.1 connection puts head and body on the wire in the step in which
//! it asks the body for its first piece. If the body fails, nothing is sent. So the body is where the fence
//! is checked last. All writes have one, deletions their options; an empty body would not be asked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::fence::Fence;

/// The condition for a request to leave: an extension of the request, which a transport checks in the last
/// moment.
#[derive(Clone, Debug)]
pub struct Departure {
    fence: Fence,
    refused: Arc<AtomicBool>,
}

/// The fence was closed before the request left.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the right to send the request ended before it left")]
pub struct TooLate;

impl Departure {
    /// A departure while this fence is open.
    pub fn through(fence: &Fence) -> Self {
        Self { fence: fence.clone(), refused: Arc::default() }
    }

    /// Lets the request leave.
    ///
    /// # Errors
    /// When the fence is closed: the request must not leave.
    pub fn leave(&self) -> Result<(), TooLate> {
        if self.fence.is_open() {
            return Ok(());
        }
        self.refused.store(true, Ordering::Release);
        Err(TooLate)
    }

    /// The right that it needs.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Whether the request was kept from leaving: it has no effect.
    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

/// A body that fails instead of leaving too late.
#[derive(Debug)]
pub(super) struct FencedBody {
    body: Full<Bytes>,
    /// Until the first piece is asked for.
    departure: Option<Departure>,
}

impl FencedBody {
    /// A request whose [`Departure`], if it has one, is checked when its bytes leave.
    pub(super) fn of(request: Request<Bytes>) -> Request<Self> {
        let departure = request.extensions().get::<Departure>().cloned();
        request.map(|body| Self { body: Full::new(body), departure })
    }
}

impl Body for FencedBody {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        if let Some(Err(late)) = self.departure.take().map(|departure| departure.leave()) {
            return Poll::Ready(Some(Err(late)));
        }
        Pin::new(&mut self.body).poll_frame(task).map_err(|never: Infallible| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::time::Duration;

    use hyper_util::client::legacy::Client;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::transport::connect;

    /// A connection in memory; hyper asks for no other property of it.
    struct Wire(TokioIo<DuplexStream>);

    impl hyper_util::client::legacy::connect::Connection for Wire {
        fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
            hyper_util::client::legacy::connect::Connected::new()
        }
    }

    impl hyper::rt::Read for Wire {
        fn poll_read(
            mut self: Pin<&mut Self>,
            task: &mut Context<'_>,
            buffer: hyper::rt::ReadBufCursor<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_read(task, buffer)
        }
    }

    impl hyper::rt::Write for Wire {
        fn poll_write(
            mut self: Pin<&mut Self>,
            task: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(task, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(task)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(task)
        }
    }

    /// Sends a request through a connector that is held until `before_connected` has run. Returns whether
    /// it was kept from leaving, and the bytes that the server has seen.
    async fn send(before_connected: impl FnOnce(&Fence)) -> (bool, Vec<u8>) {
        let fence = Fence::unlimited();
        let departure = Departure::through(&fence);
        let (client_side, mut server_side) = duplex(1 << 16);
        let connecting = Arc::new((Notify::new(), Notify::new()));
        let (asked, connected) = (connecting.clone(), Mutex::new(Some(client_side)));
        let connected = Arc::new(connected);
        let connector = tower::service_fn(move |_: http::Uri| {
            let (asked, connected) = (asked.clone(), connected.clone());
            Box::pin(async move {
                asked.0.notify_one();
                asked.1.notified().await;
                let wire = connected.lock().unwrap().take().ok_or(std::io::Error::other("once"))?;
                Ok::<_, std::io::Error>(Wire(TokioIo::new(wire)))
            })
        });
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let mut request = Request::post("http://server/pods").body(Bytes::from_static(b"{}")).unwrap();
        request.extensions_mut().insert(departure.clone());
        let answer = tokio::spawn(client.request(FencedBody::of(request)));
        connecting.0.notified().await;
        before_connected(&fence);
        connecting.1.notify_one();
        let mut seen = vec![0; 4096];
        let read = timeout(Duration::from_secs(60), server_side.read(&mut seen)).await.unwrap().unwrap();
        seen.truncate(read);
        if read > 0 {
            server_side.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
        assert_eq!(answer.await.unwrap().is_ok(), read > 0);
        (departure.was_refused(), seen)
    }

    #[tokio::test]
    async fn a_request_that_waits_for_its_connection_beyond_the_fence_leaves_no_byte() {
        let (refused, seen) = send(Fence::close).await;
        assert!(refused && seen.is_empty(), "{}", String::from_utf8_lossy(&seen));
    }

    #[tokio::test]
    async fn a_request_leaves_while_the_fence_is_open() {
        let (refused, seen) = send(|_| ()).await;
        let seen = String::from_utf8(seen).unwrap();
        assert!(!refused && seen.starts_with("POST /pods HTTP/1.1") && seen.ends_with("{}"), "{seen}");
    }

    /// The transport of a replica asks, too.
    #[tokio::test]
    async fn a_transport_sends_nothing_through_a_closed_fence() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = tokio::spawn(async move {
            let mut seen = Vec::new();
            listener.accept().await.unwrap().0.read_to_end(&mut seen).await.unwrap();
            seen
        });
        let config = kube::Config::new(url.parse().unwrap());
        let transport = connect(config, "r").unwrap().transport;
        let fence = Fence::unlimited();
        fence.close();
        let departure = Departure::through(&fence);
        let mut request = Request::post("/x").body(Bytes::from_static(b"{}")).unwrap();
        request.extensions_mut().insert(departure.clone());
        assert!(transport.send(request).await.is_err() && departure.was_refused());
        assert!(timeout(Duration::from_secs(60), seen).await.unwrap().unwrap().is_empty());
    }
}
