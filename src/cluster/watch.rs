//! A watcher: lists and watches one resource until its stream is dropped.
//!
//! If the API server serves streaming lists (`sendInitialEvents`) and its caches are not behind, the first
//! list is one. Otherwise it is a plain list in one piece. A watch that breaks is resumed from the last
//! version seen. The watcher relists only when the API server no longer has that version (410). kube's
//! `runtime::watcher` would do the same over full-size objects in owned strings, without byte counts or the
//! seam to a simulated network.

mod event;
mod frames;
mod framing;
mod lines;
mod meter;
mod position;
mod query;
mod step;
mod vigil;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::stream::{self, Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::framing::{Framing, Read};
use self::meter::Meter;
use self::position::{FIRST_PATIENCE, LONGEST_PATIENCE, Patience, Position};
use self::vigil::{Doubt, Newest, spread};
use super::list::{ListBody, ListError, NotRead};
use super::pieces::TooLong;
use super::resource::Resource;
use super::supervision::supervised;
use super::transport::{ByteStream, Transport, TransportError, refusal, retry_after};
use super::wire::{Decoder, Refusal, Unreadable};
use crate::mutants::{Mutant, is};
use crate::telemetry::metrics::Metrics;

pub use self::event::{Event, read_event, read_frame};
pub use self::query::Selection;
pub use self::step::{Start, Step};
pub use self::vigil::Vigil;

/// An item of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// A new list begins and replaces everything sent before.
    Restarted,
    /// An object of the list.
    Listed(T),
    /// The list is complete: objects that were known before and are not in it are gone.
    Synced {
        /// The version of the list.
        version: u64,
    },
    /// An object was created or changed, or now matches the selection.
    Applied(T),
    /// An object of the list, or one that was created, changed or deleted, cannot be read.
    Unreadable(Unreadable),
    /// An object was deleted, or no longer matches the selection. It is shown as it was before.
    Deleted(T),
}

/// Requested length of a watch in seconds, varied by a quarter. The API server then ends the watch, so that
/// its load is spread again.
const WATCH_SECONDS: u64 = 240;
/// A watch that was open for as long as this has not failed.
const LASTED: Duration = Duration::from_secs(10);
/// Requested length of a watch that was silent, in seconds. API servers send a bookmark 2 s before the end, and other
/// bookmarks only a minute after the begin.
const BRIEF_SECONDS: u64 = 16;
/// Time over which watches open again that end together, as when an API server ends.
const SPREAD: Duration = Duration::from_millis(250);
/// A watch that begins after a version has begun when the API server has been silent for this long.
const PROOF: Duration = Duration::from_millis(500);

/// Changes buffered for the consumer before reading pauses.
const BUFFER: usize = 256;
/// An object that takes more bytes than this waits until the consumer has taken all before it: no more than one is buffered.
const LARGE: usize = 64 << 10;
/// First and longest back-off after a failure, before jitter of up to as much again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The longest for Leases. Until Leases are seen, a free shard is not claimed.
const LONGEST_OF_LEASES: Duration = Duration::from_secs(2);
/// Longest pause that the API server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// Watches the selected objects on the current tokio runtime until the stream is dropped. Failures are logged
/// and retried; `seed` varies the back-off.
///
/// # Panics
/// Outside a tokio runtime.
pub fn watch<D: Decoder>(
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    metrics: Arc<Metrics>,
    seed: u64,
) -> impl Stream<Item = Change<D::Object>> + Send + Unpin + use<D> {
    watch_together(Vigil::default(), transport, selection, decoder, metrics, seed)
}

/// As [`watch`], together with others: one that is found dead makes all suspect.
///
/// # Panics
/// Outside a tokio runtime.
pub fn watch_together<D: Decoder>(
    vigil: Vigil,
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    metrics: Arc<Metrics>,
    seed: u64,
) -> impl Stream<Item = Change<D::Object>> + Send + Unpin + use<D> {
    let steps = watch_steps(Start::List, vigil, transport, selection, decoder, metrics, seed);
    let changes = stream::unfold(steps, |mut steps| async { Some((steps.recv().await?, steps)) });
    let change = |step| async {
        match step {
            Step::Change(change) => Some(change),
            Step::Resumed | Step::Reached(_) => None,
        }
    };
    changes.filter_map(change).boxed()
}

/// As [`watch_together`], with the positions of the watch.
///
/// # Panics
/// Outside a tokio runtime.
pub fn watch_steps<D: Decoder>(
    start: Start,
    vigil: Vigil,
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    metrics: Arc<Metrics>,
    seed: u64,
) -> mpsc::Receiver<Step<D::Object>> {
    let (out, steps) = mpsc::channel(BUFFER);
    let to = out.clone();
    let mut start = Some(start);
    // A watcher that has panicked knows nothing for certain, and lists again.
    let begin = move || {
        let start = start.take().unwrap_or(Start::List);
        Watcher {
            transport: transport.clone(),
            meter: Meter::new(&metrics, selection.resource.plural),
            selection: selection.clone(),
            decoder: decoder.clone(),
            seed,
            out: to.clone(),
            vigil: vigil.clone(),
            newest: vigil.newest(),
            patience: FIRST_PATIENCE,
            streams: Streams::Yes,
            has_begun: start == Start::List,
        }
        .run(start)
    };
    // Reading goes on in a task of its own while the consumer lets events accumulate.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = out.closed() => {}
            Stopped = supervised("a watch", begin) => {}
        }
    });
    steps
}

/// The consumer has dropped the stream, or the watch cannot begin after the version that was asked for.
struct Stopped;

/// Why a list or watch ended.
enum Broken {
    /// The consumer has dropped the stream.
    Stopped,
    /// The API server no longer has the version to resume from.
    Expired,
    /// The API server does not serve streaming lists.
    NoStreamingLists,
    /// The caches of the API server are too far behind for a streaming list now.
    CachesBehind,
    /// The API server refused.
    Refused { refusal: Refusal, retry_after: Option<Duration> },
    /// No answer has begun in time.
    Unanswered,
    /// The connection failed, or the answer was not understood.
    Failed(String),
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<TooLong> for Broken {
    fn from(e: TooLong) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<ListError> for Broken {
    fn from(e: ListError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<TransportError> for Broken {
    fn from(e: TransportError) -> Self {
        Self::Failed(e.0)
    }
}

struct Watcher<D: Decoder> {
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    meter: Meter,
    seed: u64,
    out: mpsc::Sender<Step<D::Object>>,
    vigil: Vigil,
    /// The newest version of the history that the open watch shows.
    newest: Newest,
    patience: Patience,
    streams: Streams,
    /// False while it is not known whether the API server has the version after which to begin.
    has_begun: bool,
}

/// Whether to try a streaming list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    Yes,
    /// The next list comes in one piece.
    NotNow,
    /// The API server does not serve any.
    Never,
}

impl Streams {
    /// Whether to try one now.
    fn take(&mut self) -> bool {
        match self {
            Self::Yes => true,
            Self::NotNow => {
                *self = Self::Yes;
                false
            }
            Self::Never => false,
        }
    }
}

impl<D: Decoder> Watcher<D> {
    async fn run(mut self, start: Start) -> Stopped {
        let mut position = Position::default();
        if let Start::After(version) = start {
            position.version = Some(version);
        }
        let (mut pauses, mut relists) = (self.pauses(), self.pauses());
        loop {
            let began = Instant::now();
            let end = self.list_and_watch(&mut position).await;
            // Load balancers cut connections on which nothing happens.
            let open_for = position.opened.take().map(|opened| opened.elapsed()).unwrap_or_default();
            if std::mem::take(&mut position.progress) || open_for >= LASTED {
                pauses = self.pauses();
                self.patience = FIRST_PATIENCE;
            }
            // A list that is followed by no watch is no progress: it would be repeated at once.
            if open_for >= LASTED {
                relists = self.pauses();
            }
            let resource = self.selection.resource.plural;
            // API servers may end a watch or compact a version at any time. When that happens within a
            // second, it is treated as a failure and backed off.
            let lasted = began.elapsed() >= Duration::from_secs(1);
            match end {
                Err(Broken::Stopped) => return Stopped,
                Err(Broken::Expired) if !self.has_begun => return Stopped,
                Ok(()) if lasted => {
                    // If the watch lasts as long as was asked for, it ends alone.
                    if !position.was_silent && open_for < Duration::from_secs(WATCH_SECONDS) {
                        sleep(spread(self.seed, SPREAD)).await;
                    }
                    continue;
                }
                Ok(()) => tracing::debug!(resource, "the watch ended at once"),
                Err(Broken::Expired) => {
                    tracing::info!(resource, version = position.version, "the version is too old; relisting");
                    position = Position::default();
                    // The API server answers again.
                    pauses = self.pauses();
                    if is(Mutant::ExpiredWatchNotRelisted) {
                        position.version = Some(0);
                    }
                    if !lasted {
                        sleep(relists.next().unwrap_or(PAUSES.1)).await;
                    }
                    continue;
                }
                Err(Broken::NoStreamingLists) => {
                    tracing::debug!(resource, "no streaming lists; listing in one piece");
                    self.streams = Streams::Never;
                    continue;
                }
                Err(Broken::CachesBehind) => {
                    tracing::debug!(resource, "caches are behind; listing in one piece");
                    self.streams = Streams::NotNow;
                    continue;
                }
                Err(Broken::Refused { refusal, retry_after }) => {
                    tracing::warn!(resource, code = refusal.code, message = %refusal.message, "the watch was refused");
                    sleep(retry_after.unwrap_or_default().min(LONGEST_ASKED)).await;
                }
                Err(Broken::Failed(_)) if is(Mutant::WatchGivenUp) => std::future::pending().await,
                Err(Broken::Failed(error)) => tracing::warn!(resource, error, "the watch broke"),
                Err(Broken::Unanswered) => {
                    tracing::warn!(resource, "a list or watch was not answered in time");
                    // Leases are few and small: an answer that does not come in this time is lost.
                    let longest = match self.selection.resource {
                        Resource::LEASES => FIRST_PATIENCE.list,
                        _ => LONGEST_PATIENCE,
                    };
                    self.patience = self.patience.twice(longest);
                }
            }
            sleep(pauses.next().unwrap_or(PAUSES.1)).await;
        }
    }

    fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(PAUSES.0)
            .with_max_delay(match self.selection.resource {
                Resource::LEASES => LONGEST_OF_LEASES,
                _ => PAUSES.1,
            })
            .with_factor(2.0)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(self.seed)
            .build()
    }

    /// Lists if no version is known, then watches until the watch ends.
    async fn list_and_watch(&mut self, position: &mut Position) -> Result<(), Broken> {
        let must_list = position.version.is_none();
        let streams = must_list && self.streams.take();
        if must_list && !streams {
            self.list(position).await?;
        }
        self.follow(position, streams).await
    }

    /// Lists in one answer, at one version.
    async fn list(&mut self, position: &mut Position) -> Result<(), Broken> {
        let answer = self.open(&[], D::ACCEPT, self.patience.list).await?;
        let mut list = ListBody::of(answer.headers())?;
        let mut body = pin!(answer.into_body());
        self.restart().await?;
        // However long it is: an API server that has begun is given up only when it falls silent.
        while let Some(piece) =
            timeout(self.patience.list, body.next()).await.map_err(|_| Broken::Unanswered)?
        {
            let piece = piece?;
            self.meter.bytes.inc_by(piece.len() as u64);
            list.push(piece);
            while let Some(object) = list.next(&self.decoder)? {
                match object {
                    Ok(object) => self.send(Change::Listed(object)).await?,
                    Err(NotRead { object: Some(object), .. }) => self.unreadable(object).await?,
                    Err(NotRead { error, object: None }) => self.skip(&error),
                }
            }
        }
        let version = list.end()?;
        position.version = Some(version);
        position.progress = true;
        self.send(Change::Synced { version }).await
    }

    /// Watches from the position, or begins with a streaming list.
    async fn follow(&mut self, position: &mut Position, lists: bool) -> Result<(), Broken> {
        let seconds = match position.was_silent {
            true => BRIEF_SECONDS,
            false => WATCH_SECONDS + self.seed % (WATCH_SECONDS / 4),
        };
        let seconds = seconds.to_string();
        let mut parameters =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &seconds)];
        let version = position.version.unwrap_or_default().to_string();
        if lists {
            parameters.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]);
        } else {
            parameters.push(("resourceVersion", &version));
        }
        self.newest = self.vigil.newest();
        let patience = if lists { self.patience.list } else { self.patience.watch };
        let answer = match self.open(&parameters, D::ACCEPT, patience).await {
            Err(Broken::Refused { refusal, .. }) if lists && matches!(refusal.code, 400 | 403 | 422) => {
                return Err(Broken::NoStreamingLists);
            }
            answer => answer?,
        };
        position.opened = Some(Instant::now());
        if lists {
            self.restart().await?;
        }
        self.read(answer, position, lists).await
    }

    /// Reads the events of an open watch until it ends or falls silent. Events before the end of a streaming
    /// list are objects of that list.
    async fn read(
        &mut self,
        answer: Response<ByteStream>,
        position: &mut Position,
        mut lists: bool,
    ) -> Result<(), Broken> {
        let Some(mut events) = Framing::of(answer.headers()) else {
            return Err(Broken::Failed("the answer is in a format that was not requested".into()));
        };
        let mut body = pin!(answer.into_body());
        let withheld_to = if std::mem::take(&mut position.was_silent) { self.newest.version() } else { 0 };
        let mut shown = position.version.unwrap_or_default();
        let proof = Instant::now() + PROOF;
        loop {
            let piece = tokio::select! {
                biased;
                piece = body.next() => piece,
                () = sleep_until(proof), if !self.has_begun => {
                    self.begun().await?;
                    continue;
                }
                () = sleep(self.patience.list), if lists => return Err(Broken::Unanswered),
                doubt = self.vigil.doubted(self.seed), if !lists => {
                    position.was_silent = doubt == Doubt::Silent;
                    break;
                }
            };
            let Some(piece) = piece else { break };
            let piece = piece?;
            self.meter.bytes.inc_by(piece.len() as u64);
            events.push(piece);
            while let Some(event) = events.next(&self.decoder)? {
                let version = match &event {
                    Ok(Event::Applied { object, .. } | Event::Deleted(object)) => D::version(object),
                    Ok(Event::Unreadable(object)) => object.version,
                    _ => 0,
                };
                if (1..=withheld_to).contains(&version) {
                    self.vigil.suspect();
                }
                // A watch shows changes in the order of their versions. An event that is repeated would look like a change.
                if !lists && (1..=shown).contains(&version) {
                    continue;
                }
                self.handle(event, position, &mut lists).await?;
                shown = shown.max(position.version.unwrap_or_default());
            }
        }
        match (lists, events.is_cut()) {
            (true, _) => Err(Broken::Failed("the list broke off".into())),
            (false, true) => Err(Broken::Failed("the watch broke off within an event".into())),
            (false, false) => Ok(()),
        }
    }

    /// The API server has the version after which the watch was to begin.
    async fn begun(&mut self) -> Result<(), Broken> {
        self.has_begun = true;
        self.step(Step::Resumed).await
    }

    async fn handle(
        &mut self,
        event: Read<D>,
        position: &mut Position,
        lists: &mut bool,
    ) -> Result<(), Broken> {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                self.skip(&e);
                return Ok(());
            }
        };
        if !self.has_begun && !matches!(event, Event::Error(_)) {
            self.begun().await?;
        }
        let (kind, change) = match event {
            Event::Applied { kind, object } => {
                self.advance(position, D::version(&object), *lists);
                (kind, if *lists { Change::Listed(object) } else { Change::Applied(object) })
            }
            Event::Deleted(object) => {
                self.advance(position, D::version(&object), *lists);
                ("DELETED", Change::Deleted(object))
            }
            Event::Bookmark { version: 0, .. } => {
                return Err(Broken::Failed("a bookmark has no version that is a number".into()));
            }
            Event::Bookmark { version, ends_list } => {
                self.meter.count("BOOKMARK");
                if !*lists || ends_list {
                    position.progress = true;
                    position.version = position.version.max(Some(version));
                    self.newest.saw(version);
                }
                if *lists && ends_list {
                    *lists = false;
                    return self.send(Change::Synced { version }).await;
                }
                if !*lists {
                    return self.step(Step::Reached(version)).await;
                }
                return Ok(());
            }
            Event::Unreadable(object) => {
                self.advance(position, object.version, *lists);
                return self.unreadable(object).await;
            }
            Event::Error(refusal) => {
                self.meter.count("ERROR");
                // Its caches do not have the newest state in time. A list comes from etcd then.
                return Err(match refusal.code {
                    504 if *lists => Broken::CachesBehind,
                    _ => broken(refusal, None),
                });
            }
        };
        self.meter.count(kind);
        self.send(change).await
    }

    /// Moves the position to an object of a watch. A watch can resume from each of its objects, a list only
    /// from its end.
    fn advance(&self, position: &mut Position, version: u64, lists: bool) {
        if lists {
            return;
        }
        position.progress = true;
        if version > 0 {
            position.version = Some(version);
            self.newest.saw(version);
        }
    }

    async fn open(
        &self,
        parameters: &[(&str, &str)],
        accept: &'static str,
        patience: Duration,
    ) -> Result<Response<ByteStream>, Broken> {
        let mut request = self.selection.request(parameters).map_err(|e| Broken::Failed(e.to_string()))?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        let answered = async {
            let response = self.transport.open(request).await?;
            if response.status() == StatusCode::OK {
                return Ok(response);
            }
            let retry_after = retry_after(&response);
            Err(broken(refusal(response).await?, retry_after))
        };
        timeout(patience, answered).await.unwrap_or(Err(Broken::Unanswered))
    }

    async fn restart(&self) -> Result<(), Broken> {
        self.meter.lists.inc();
        self.send(Change::Restarted).await
    }

    async fn send(&self, change: Change<D::Object>) -> Result<(), Broken> {
        let is_large = match &change {
            Change::Listed(object) | Change::Applied(object) | Change::Deleted(object) => {
                D::bytes(object) > LARGE
            }
            _ => false,
        };
        if is_large {
            self.out.reserve_many(BUFFER).await.map_err(|_| Broken::Stopped)?;
        }
        self.step(Step::Change(change)).await
    }

    async fn step(&self, step: Step<D::Object>) -> Result<(), Broken> {
        self.out.send(step).await.map_err(|_| Broken::Stopped)
    }

    async fn unreadable(&self, object: Unreadable) -> Result<(), Broken> {
        let Unreadable { namespace, name, error, .. } = &object;
        let resource = self.selection.resource.plural;
        tracing::warn!(resource, %namespace, %name, %error, "an object cannot be read");
        self.meter.count("UNREADABLE");
        self.send(Change::Unreadable(object)).await
    }

    fn skip(&self, error: &super::wire::DecodeError) {
        tracing::warn!(resource = self.selection.resource.plural, %error, "an object was skipped");
        self.meter.count("UNREADABLE");
    }
}

fn broken(refusal: Refusal, retry_after: Option<Duration>) -> Broken {
    match refusal.code {
        410 => Broken::Expired,
        _ => Broken::Refused { refusal, retry_after },
    }
}

#[cfg(test)]
mod tests;
