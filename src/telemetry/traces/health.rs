//! Whether spans reach the collector: they are counted when they do not, and one log line says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};

/// The variable with the most spans that wait, and its default.
const ROOM: (&str, usize) = ("OTEL_BSP_MAX_QUEUE_SIZE", 2048);

/// Spans that were dropped, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Drops {
    dropped: AtomicU64,
    waiting: AtomicUsize,
    failing: AtomicBool,
}

impl Drops {
    /// Spans dropped so far.
    pub(super) fn count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn add(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// A processor that drops spans once too many wait. The one behind it would do so silently.
#[derive(Debug)]
pub(super) struct Bounded<P> {
    inner: P,
    drops: Arc<Drops>,
    room: usize,
}

impl<P> Bounded<P> {
    pub(super) fn new(inner: P, drops: Arc<Drops>) -> Self {
        let room = std::env::var(ROOM.0).ok().and_then(|room| room.parse().ok());
        Self { inner, drops, room: room.unwrap_or(ROOM.1) }
    }
}

impl<P: SpanProcessor> SpanProcessor for Bounded<P> {
    fn on_start(&self, span: &mut Span, cx: &Context) {
        self.inner.on_start(span, cx);
    }

    fn on_end(&self, span: SpanData) {
        if self.drops.waiting.fetch_add(1, Ordering::Relaxed) < self.room {
            self.inner.on_end(span);
        } else {
            self.drops.waiting.fetch_sub(1, Ordering::Relaxed);
            self.drops.add(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter that logs when it begins to fail, and when it no longer does.
#[derive(Debug)]
pub(super) struct Reporting<E> {
    inner: E,
    collector: String,
    drops: Arc<Drops>,
}

impl<E> Reporting<E> {
    pub(super) fn new(inner: E, collector: String, drops: Arc<Drops>) -> Self {
        Self { inner, collector, drops }
    }

    fn note(&self, spans: usize, result: &OTelSdkResult) {
        let Drops { waiting, failing, .. } = &*self.drops;
        waiting.fetch_sub(spans, Ordering::Relaxed);
        let collector = &*self.collector;
        match result {
            Err(error) => {
                self.drops.add(spans);
                if !failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(collector, %error, "the collector takes no traces; spans are dropped until it does");
                }
            }
            Ok(()) => {
                if failing.swap(false, Ordering::Relaxed) {
                    let dropped = self.drops.count();
                    tracing::info!(collector, dropped, "the collector takes traces again");
                }
            }
        }
    }
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.inner.export(batch).await;
        self.note(spans, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
