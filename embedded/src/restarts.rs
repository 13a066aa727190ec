//! Parts that go on after a panic: one strange object must not end the work for all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Delay before the first restart; doubles up to [`MAX_DELAY`].
const MIN_DELAY: Duration = Duration::from_secs(1);
/// Longest delay. A part that ran for longer begins with the first delay again.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60);

/// The restarts of one part.
#[derive(Debug)]
pub(crate) struct Restarts {
    what: String,
    closing: CancellationToken,
    count: u32,
    delays: ExponentialBackoff,
}

impl Restarts {
    /// For a part with this name, which has not run yet. Once `closing` is cancelled, no restart is delayed:
    /// the part ends by itself then.
    pub(crate) fn of(what: impl Into<String>, closing: &CancellationToken) -> Self {
        Self { what: what.into(), closing: closing.clone(), count: 0, delays: delays() }
    }

    /// How often the part has panicked.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Runs the part. After a panic, returns `None` once it is time to run the part again. Everything that
    /// the part shares must be fit for use after a panic.
    pub(crate) async fn run<T>(&mut self, part: impl Future<Output = T>) -> Option<T> {
        let start = Instant::now();
        match AssertUnwindSafe(part).catch_unwind().await {
            Ok(done) => Some(done),
            Err(panic) => {
                if start.elapsed() > MAX_DELAY {
                    self.delays = delays();
                }
                self.count = self.count.saturating_add(1);
                let delay = self.delays.next().unwrap_or(MAX_DELAY);
                tracing::error!(panic = message(&*panic), ?delay, "{} panicked and is restarted", self.what);
                self.closing.run_until_cancelled(tokio::time::sleep(delay)).await;
                None
            }
        }
    }
}

/// Runs a part to its end, however often it panics.
pub(crate) async fn supervise<F: Future<Output = ()>>(
    what: impl Into<String>,
    closing: CancellationToken,
    part: impl Fn() -> F,
) {
    let mut restarts = Restarts::of(what, &closing);
    while restarts.run(part()).await.is_none() {}
}

/// Handles one object, and returns whether that panicked. The next objects can be handled all the same.
pub(crate) fn panics(what: &str, uid: &str, handle: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(handle)) else { return false };
    let panic = message(&*panic);
    tracing::error!(panic, uid, "an object made {what} panic, and is left alone until it changes");
    true
}

/// The delays before one restart after the other, without end.
pub(crate) fn delays() -> ExponentialBackoff {
    let delays = ExponentialBuilder::new().with_min_delay(MIN_DELAY).with_max_delay(MAX_DELAY);
    delays.without_max_times().build()
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_runs_again() {
        let start = Instant::now();
        let mut restarts = Restarts::of("a part", &CancellationToken::new());
        let done = loop {
            let count = restarts.count();
            let part = async {
                assert!(count >= 3, "too early");
                count
            };
            if let Some(done) = restarts.run(part).await {
                break done;
            }
        };
        assert_eq!((done, start.elapsed().as_secs()), (3, 1 + 2 + 4));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_not_delayed() {
        let (start, closing) = (Instant::now(), CancellationToken::new());
        let part = || {
            let closing = closing.clone();
            async move { assert!(closing.is_cancelled(), "too early") }
        };
        let stop = async {
            tokio::time::sleep(Duration::from_millis(3_500)).await;
            closing.cancel();
        };
        tokio::join!(supervise("a part", closing.clone(), part), stop);
        assert_eq!(start.elapsed().as_millis(), 3_500);
    }
}
