//! Catches panics, and restarts tasks that are indispensable.
//!
//! Tokio ends a task that panics, and reports that only to the holder of its handle. So every
//! task that lasts runs in here, and its owner decides how to handle a panic.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};

/// Pause before a task that has panicked is restarted: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A task that has run for as long as this is well again.
const WELL: Duration = Duration::from_secs(300);

/// Pauses that double with each panic, and begin again after a while without any.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    since: Instant,
}

impl Pauses {
    /// The pauses of something that begins now.
    pub fn begin() -> Self {
        Self { next: PAUSES.0, since: Instant::now() }
    }

    /// The pause after a panic.
    pub fn after_panic(&mut self) -> Duration {
        if self.since.elapsed() >= WELL {
            self.next = PAUSES.0;
        }
        let pause = self.next;
        self.next = (pause * 2).min(PAUSES.1);
        self.since = Instant::now() + pause;
        pause
    }
}

/// Runs to the end; `None` after a panic, which is logged. `what` names the task in the log.
pub fn caught<T>(what: &'static str, task: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // The caller that decides to go on judges the state that the task has left. Not an async
    // function: its future would have room for the task twice.
    AssertUnwindSafe(task).catch_unwind().map(move |ended| {
        ended
            .inspect_err(|panic| tracing::error!(what, panic = message(&**panic), "a task has panicked"))
            .ok()
    })
}

/// Runs a task, and restarts it after each panic. `begin` gives the task the state that outlives
/// the panic.
pub async fn supervised<T, F: Future<Output = T>>(what: &'static str, mut begin: impl FnMut() -> F) -> T {
    let mut pauses = Pauses::begin();
    loop {
        if let Some(output) = caught(what, begin()).await {
            return output;
        }
        sleep(pauses.after_panic()).await;
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew_after_pauses_that_grow() {
        let began = Instant::now();
        let mut begun = Vec::new();
        let answer = supervised("a test", || {
            begun.push(began.elapsed().as_secs());
            let last = begun.len() == 9;
            async move {
                assert!(last, "not yet");
                42
            }
        })
        .await;
        assert_eq!((answer, &*begun), (42, &[0, 1, 3, 7, 15, 31, 63, 123, 183][..]));
        let mut pauses = Pauses::begin();
        assert_eq!([pauses.after_panic(), pauses.after_panic()].map(|pause| pause.as_secs()), [1, 2]);
        sleep(WELL * 2).await;
        assert_eq!(pauses.after_panic().as_secs(), 1, "it was well");
    }
}
