//! The page `/metrics`. A rendering takes milliseconds, and every client may ask. So
//! simultaneous requests share one rendering, and renderings have a pause between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::telemetry::metrics::{Format, Metrics};

/// Time from one rendering to the next. An answer is never older than its request.
const PERIOD: Duration = Duration::from_millis(100);

/// The page.
pub(super) struct MetricsPage {
    metrics: Arc<Metrics>,
    /// The last rendering in each format that was asked for.
    last: Mutex<Vec<Rendered>>,
}

struct Rendered {
    format: Format,
    begun: Instant,
    text: Bytes,
}

impl MetricsPage {
    /// The page that shows these metrics.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, last: Mutex::default() }
    }

    /// The metrics in a format. `measure` updates the gauges that are measured on
    /// request.
    pub(super) async fn read(&self, format: Format, measure: impl FnOnce(&Metrics)) -> Bytes {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(newer) = last.iter().find(|page| page.format == format && page.begun >= asked) {
            return newer.text.clone();
        }
        if let Some(newest) = last.iter().map(|page| page.begun).max() {
            sleep_until(newest + PERIOD).await;
        }
        let begun = Instant::now();
        measure(&self.metrics);
        let text = Bytes::from(self.metrics.render(format));
        last.retain(|page| page.format != format);
        last.push(Rendered { format, begun, text: text.clone() });
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    /// A hundred ask without end for a second, in both formats.
    #[tokio::test(start_paused = true)]
    async fn however_many_ask_the_metrics_are_rendered_a_few_times_a_second_and_are_never_old() {
        let page = MetricsPage::new(Arc::new(Metrics::new()));
        let (renderings, answers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let end = Instant::now() + Duration::from_secs(1);
        join_all((0..100).map(async |client| {
            let format = if client == 0 { Format::OpenMetrics } else { Format::Text };
            while Instant::now() < end {
                let asked = Instant::now();
                let measure = |_: &Metrics| _ = renderings.fetch_add(1, Ordering::Relaxed);
                assert!(!page.read(format, measure).await.is_empty());
                assert!(asked.elapsed() <= 3 * PERIOD, "client {client}: {:?}", asked.elapsed());
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }))
        .await;
        let renderings = renderings.into_inner();
        assert!((8..=14).contains(&renderings), "{renderings}");
        assert!(answers.into_inner() >= 400);
        let measured = AtomicUsize::new(0);
        page.read(Format::Text, |_| _ = measured.fetch_add(1, Ordering::Relaxed)).await;
        assert_eq!(measured.into_inner(), 1, "what was rendered before is not shown");
    }
}
