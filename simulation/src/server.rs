//! The API server of a world: our embedded one, called in process and driven by the world's clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::BodyDataStream;
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep_until};
use yardmaster_embedded::{Body, Clock, InProcess, InProcessConfig, Snapshot};

use crate::time::{EPOCH, Time};

/// The number of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(pub(crate) u64);

/// An answer of the API server.
pub(crate) enum Reply {
    /// A whole answer.
    Whole(Response<Bytes>),
    /// The headers of a watch, whose pieces [`ApiServer::pieces`] brings.
    Watch(WatchId, Response<()>),
}

/// A piece of a watch; `None` is its end.
pub(crate) type Piece = (WatchId, Option<Bytes>);

/// The API server.
pub(crate) struct ApiServer {
    runtime: Runtime,
    origin: Instant,
    clock: Arc<WorldClock>,
    api: InProcess,
    watches: BTreeMap<WatchId, Watch>,
    next_watch: u64,
}

struct Watch {
    body: BodyDataStream<Body>,
    woken: Arc<Woken>,
}

/// The wall clock of the control plane.
#[derive(Debug, Default)]
struct WorldClock(AtomicU64);

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        EPOCH + SignedDuration::from_millis(self.0.load(Ordering::Relaxed) as i64)
    }
}

/// Whether a watch has something to say.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ApiServer {
    pub(crate) fn new(config: InProcessConfig) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let clock = Arc::new(WorldClock::default());
        let origin = runtime.block_on(async { Instant::now() });
        let api = InProcess::new(config, clock.clone()).map_err(std::io::Error::other)?;
        Ok(Self { runtime, origin, clock, api, watches: BTreeMap::new(), next_watch: 0 })
    }

    /// Lets its time pass.
    pub(crate) fn advance(&self, now: Time) {
        self.clock.0.store(now.millis(), Ordering::Relaxed);
        let until = self.origin + now.since(Time::ZERO);
        self.runtime.block_on(async { sleep_until(until).await });
    }

    /// Answers a request.
    pub(crate) fn handle(&mut self, request: Request<Bytes>) -> Reply {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = self.runtime.block_on(self.api.respond(request));
        let (parts, body) = answer.into_parts();
        if watches && parts.status.is_success() {
            let id = WatchId(self.next_watch);
            self.next_watch += 1;
            let woken = Arc::new(Woken(AtomicBool::new(true)));
            self.watches.insert(id, Watch { body: body.into_data_stream(), woken });
            return Reply::Watch(id, Response::from_parts(parts, ()));
        }
        let whole = self.runtime.block_on(body.collect()).map(|whole| whole.to_bytes());
        // A body in memory does not fail.
        Reply::Whole(Response::from_parts(parts, whole.unwrap_or_default()))
    }

    /// Everything that the open watches have to say now.
    pub(crate) fn pieces(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let watches = &mut self.watches;
        self.runtime.block_on(async {
            watches.retain(|id, watch| {
                while watch.woken.0.swap(false, Ordering::Relaxed) {
                    let waker = Waker::from(watch.woken.clone());
                    let mut context = Context::from_waker(&waker);
                    while let Poll::Ready(piece) = watch.body.poll_next_unpin(&mut context) {
                        let piece = piece.and_then(Result::ok);
                        let ends = piece.is_none();
                        pieces.push((*id, piece));
                        if ends {
                            return false;
                        }
                    }
                }
                true
            });
        });
        pieces
    }

    /// Ends a watch whose client is gone.
    pub(crate) fn close(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// The revision of the newest write.
    pub(crate) fn revision(&self) -> u64 {
        self.api.revision()
    }

    /// A backup of everything.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.api.snapshot()
    }

    /// Restores a backup: all watches end.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.api.restore(snapshot);
    }

    /// Forgets old versions.
    pub(crate) fn compact(&self) {
        self.api.compact();
    }
}

/// How long the API server may take to answer.
pub(crate) const PROCESSING: Duration = Duration::from_millis(1);
