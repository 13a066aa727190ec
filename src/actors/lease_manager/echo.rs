//! Our own heartbeats as the watch of Leases shows them. If a written heartbeat is not shown, the
//! watch is dead. Other watches to the same API server, or through the same proxy, are probably
//! dead with it.

use std::time::Duration;

use tokio::time::Instant;

/// How late a watch may show a write. The caches of API servers are behind by less.
const LATEST: Duration = Duration::from_secs(10);

/// Heartbeats that are written and not shown yet.
#[derive(Debug, Default)]
pub(super) struct Echo {
    /// The newest version that the watch has shown.
    shown: u64,
    /// The first heartbeat that it has not shown, and since when.
    awaited: Option<(u64, Instant)>,
}

impl Echo {
    /// A heartbeat was written in this version.
    pub(super) fn written(&mut self, version: u64, now: Instant) {
        if version > self.shown && self.awaited.is_none() {
            self.awaited = Some((version, now));
        }
    }

    /// The watch has shown a Lease in this version, and so all that was written before.
    pub(super) fn shown(&mut self, version: u64) {
        self.shown = self.shown.max(version);
        if self.awaited.is_some_and(|(awaited, _)| awaited <= self.shown) {
            self.awaited = None;
        }
    }

    /// Whether a heartbeat has not been shown for too long. It is asked again only after as long.
    pub(super) fn is_missing(&mut self, now: Instant) -> bool {
        let late = self.awaited.as_mut().filter(|(_, since)| now >= *since + LATEST);
        late.map(|(_, since)| *since = now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_that_the_watch_does_not_show_is_missed() {
        let (mut echo, start) = (Echo::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        echo.written(5, at(0));
        echo.shown(7);
        assert!(!echo.is_missing(at(20)), "what is shown later proves what was written before");
        echo.written(6, at(20));
        assert!(!echo.is_missing(at(40)), "it was shown before the answer came");
        for (version, second) in [(9, 40), (10, 42), (11, 44)] {
            echo.written(version, at(second));
        }
        assert!(!echo.is_missing(at(49)) && echo.is_missing(at(50)), "since the first");
        assert!(!echo.is_missing(at(51)) && echo.is_missing(at(60)));
        echo.shown(9);
        assert!(!echo.is_missing(at(80)));
    }
}
