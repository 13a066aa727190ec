//! Parts of the kubelet that go on after a panic.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt;
use tokio::time::Instant;

/// Delay before the first restart; doubles up to [`MAX_DELAY`].
const MIN_DELAY: Duration = Duration::from_secs(1);
/// Longest delay. A part that ran for longer begins with the first delay again.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(60);

/// The restarts of one part.
#[derive(Debug)]
pub(super) struct Restarts {
    what: String,
    count: u32,
    delays: ExponentialBackoff,
}

impl Restarts {
    /// For a part with this name, which has not run yet.
    pub(super) fn of(what: impl Into<String>) -> Self {
        Self { what: what.into(), count: 0, delays: delays() }
    }

    /// How often the part has panicked.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Runs the part. `None` after a panic, once it is time to run the part again. Everything that the part
    /// shares must be fit for use after a panic.
    pub(super) async fn run<T>(&mut self, part: impl Future<Output = T>) -> Option<T> {
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
                tokio::time::sleep(delay).await;
                None
            }
        }
    }
}

/// The delays before one restart after the other, without end.
pub(super) fn delays() -> ExponentialBackoff {
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
        let mut restarts = Restarts::of("a part");
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
}
