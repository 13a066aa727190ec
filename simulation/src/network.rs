//! The network as a replica sees it: a transport whose requests go to the world, which answers them when and
//! how it likes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use yardmaster::cluster::transport::{ByteStream, Transport, TransportError};

/// The answer to a request: its headers, and a body that may still be coming.
pub(crate) type Answer = Result<Response<ByteStream>, TransportError>;

/// A request on its way to the API server.
pub(crate) struct Sent {
    /// When it was sent, by the replica's monotonic clock.
    pub(crate) at: Instant,
    pub(crate) request: Request<Bytes>,
    /// Where the answer goes. Closed once the replica has given up; dropped, the connection breaks.
    pub(crate) reply: oneshot::Sender<Answer>,
    /// The sender's wait for the answer.
    pub(crate) wait: Wait,
}

/// The wait for an answer, as others see it.
#[derive(Clone, Debug)]
pub(crate) struct Wait(Weak<()>);

impl Wait {
    /// Whether the replica has not given up.
    pub(crate) fn goes_on(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The requests of one life of a replica that the world has not taken yet.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    sent: Arc<Mutex<Vec<Sent>>>,
    news: Arc<Notify>,
}

impl Outbox {
    /// Takes all requests, in the order in which they were sent.
    pub(crate) fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns once a request is sent.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Outbox {
    fn open(&self, request: Request<Bytes>) -> BoxFuture<'static, Answer> {
        let (reply, answer) = oneshot::channel();
        let waits = Arc::new(());
        self.lock().push(Sent { at: Instant::now(), request, reply, wait: Wait(Arc::downgrade(&waits)) });
        self.news.notify_one();
        let reset = |_| Err(TransportError("the connection was reset".into()));
        async move {
            let answer = answer.await.unwrap_or_else(reset);
            drop(waits);
            answer
        }
        .boxed()
    }
}

/// The time on the way, in one direction, when nothing is wrong.
pub(crate) const FASTEST: Duration = Duration::from_millis(1);
