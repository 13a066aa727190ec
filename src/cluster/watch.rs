//! A watcher: lists and watches one resource until its stream is dropped.
//!
//! If the API server serves streaming lists (`sendInitialEvents`) and its caches are not behind, the first
//! list is one. Otherwise it is a plain list in one piece. A watch that breaks is resumed from the last
//! version seen. The watcher relists only when the API server no longer has that version (410). A watch that
//! is silent for long may be dead, as behind a proxy that keeps its connection. So it is opened again from
//! its last version, which is right in any case. API servers send bookmarks only about once a minute. kube's
//! `runtime::watcher` would do the same over full-size objects in owned strings, without byte counts or the
//! seam to a simulated network.

mod broken;
mod event;
mod frames;
mod framing;
mod lines;
mod meter;
mod position;
mod query;
mod session;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use self::broken::{Broken, Stopped};
use self::meter::Meter;
use self::position::{FIRST_PATIENCE, LONGEST_PATIENCE, Patience, Position};
use super::resource::Resource;
use super::supervision::supervised;
use super::transport::Transport;
use super::wire::{Decoder, Unreadable};
use crate::mutants::{Mutant, is};
use crate::telemetry::metrics::Metrics;

pub use self::event::{Event, read_event, read_frame};
pub use self::query::Selection;

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

/// An item of a watch, for readers that may go on from its position with another selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// A change.
    Change(Change<T>),
    /// All changes up to this version have been sent.
    Reached(u64),
}

/// Requested length of a watch in seconds, varied by a quarter. The API server then ends the watch, so that
/// its load is spread again.
const WATCH_SECONDS: u64 = 240;
/// Silence after which a watch is opened again.
const SILENCE: Duration = Duration::from_secs(20);
/// A watch that was open for as long as this has not failed.
const LASTED: Duration = Duration::from_secs(10);
/// Requested length of a watch that was silent, in seconds. API servers send a bookmark 2 s before the end, and other
/// bookmarks only a minute after the begin.
const BRIEF_SECONDS: u64 = 16;
/// Time over which watches open again that end together, as when an API server ends.
const SPREAD: Duration = Duration::from_millis(250);

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
    let steps = watch_steps(None, transport, selection, decoder, metrics, seed);
    let changes = stream::unfold(steps, |mut steps| async { Some((steps.recv().await?, steps)) });
    let change = |step| async {
        match step {
            Step::Change(change) => Some(change),
            Step::Reached(_) => None,
        }
    };
    changes.filter_map(change).boxed()
}

/// As [`watch`], with the positions of the watch. With `after`, it begins after this version, without a list
/// if the API server still has the version.
///
/// # Panics
/// Outside a tokio runtime.
pub fn watch_steps<D: Decoder>(
    mut after: Option<u64>,
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    metrics: Arc<Metrics>,
    seed: u64,
) -> mpsc::Receiver<Step<D::Object>> {
    let (out, steps) = mpsc::channel(BUFFER);
    let to = out.clone();
    // A watcher that has panicked knows nothing for certain, and lists again.
    let begin = move || {
        Watcher {
            transport: transport.clone(),
            meter: Meter::new(&metrics, selection.resource.plural),
            selection: selection.clone(),
            decoder: decoder.clone(),
            seed,
            out: to.clone(),
            patience: FIRST_PATIENCE,
            streams: Streams::Yes,
        }
        .run(after.take())
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

struct Watcher<D: Decoder> {
    transport: Arc<dyn Transport>,
    selection: Selection,
    decoder: D,
    meter: Meter,
    seed: u64,
    out: mpsc::Sender<Step<D::Object>>,
    patience: Patience,
    streams: Streams,
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
    async fn run(mut self, after: Option<u64>) -> Stopped {
        let mut position = Position { version: after, ..Position::default() };
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
}

/// A part of this time that varies by the seed.
fn spread(seed: u64, time: Duration) -> Duration {
    // Seeds are numbers in a row: the golden ratio spreads these evenly.
    let part = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    time * part as u32 / (1 << 16)
}

#[cfg(test)]
mod tests;
