//! Keeps the controllers running: a panic, which one strange object may cause, must not end the work for all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::server::Server;

/// First and longest pause before a restart. A task that ran for the longest begins with the first again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Runs a task to its end, which comes when the server stops. After a panic it is started again.
pub(super) async fn supervise<F: Future<Output = ()>>(
    server: Arc<Server>,
    name: &'static str,
    start: impl Fn() -> F,
) {
    let policy =
        ExponentialBuilder::new().with_min_delay(PAUSES.0).with_max_delay(PAUSES.1).without_max_times();
    let mut pauses = policy.build();
    loop {
        let began = Instant::now();
        let Err(panic) = AssertUnwindSafe(start()).catch_unwind().await else { return };
        if began.elapsed() > PAUSES.1 {
            pauses = policy.build();
        }
        let pause = pauses.next().unwrap_or(PAUSES.1);
        tracing::error!(
            task = name,
            panic = message(&*panic),
            ?pause,
            "a controller panicked, and starts again"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = server.stop.cancelled() => return,
        }
    }
}

/// Handles one object. Whether it panicked; then the next ones can be handled.
pub(super) fn panics(name: &'static str, uid: &str, handle: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(handle)) else { return false };
    let panic = message(&*panic);
    tracing::error!(
        task = name,
        panic,
        uid,
        "an object made a controller panic, and is left alone until it changes"
    );
    true
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of no text")
}
