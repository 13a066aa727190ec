//! Spans about a shard rather than about a Job: how long it takes to take it over and to give it away.
//!
//! They are spans of `tracing`, and this layer exports them. Each is a trace of its own. Spans of Jobs
//! bypass this layer: their ids are derived, and their attributes are known only when they end.

use tracing::{Subscriber, field};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use super::JobTraces;

/// The target of these spans. Others are not exported.
const TARGET: &str = "yardmaster::shards";

/// The time from the claim on a shard until its caches are synced.
#[derive(Debug)]
pub struct TakeoverSpan(tracing::Span);

impl TakeoverSpan {
    /// Begins at the claim.
    pub fn begin(shard: u32, epoch: u64) -> Self {
        Self(tracing::info_span!(
            target: TARGET,
            "shard.takeover",
            yardmaster.shard = i64::from(shard),
            yardmaster.epoch = i64::try_from(epoch).unwrap_or(i64::MAX),
            yardmaster.jobs = field::Empty,
        ))
    }

    /// Ends with the number of Jobs that were found.
    pub fn end(self, jobs: usize) {
        self.0.record("yardmaster.jobs", i64::try_from(jobs).unwrap_or(i64::MAX));
    }
}

/// The time from the request to give a shard away until nothing of it is in flight; ends when dropped.
pub fn drain_span(shard: u32, epoch: u64) -> tracing::Span {
    tracing::info_span!(
        target: TARGET,
        "shard.drain",
        yardmaster.shard = i64::from(shard),
        yardmaster.epoch = i64::try_from(epoch).unwrap_or(i64::MAX),
    )
}

impl JobTraces {
    /// The layer that exports the spans of shards, if traces are exported.
    pub(in crate::telemetry) fn layer<S>(&self) -> Option<Box<dyn Layer<S> + Send + Sync>>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let exporting = self.exporting.as_ref()?;
        let layer = tracing_opentelemetry::layer()
            .with_tracer(exporting.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO)).boxed())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use opentelemetry::KeyValue;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_takeover_and_a_drain_are_exported_and_nothing_else_is() {
        let (traces, kept) = JobTraces::kept("replica-1");
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, || {
            drop(tracing::info_span!("of another part"));
            TakeoverSpan::begin(3, 7).end(42);
            drop(drain_span(3, 7));
        });
        let spans = kept.take();
        let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["shard.takeover", "shard.drain"]);
        for (key, value) in [("yardmaster.shard", 3), ("yardmaster.epoch", 7), ("yardmaster.jobs", 42)] {
            assert!(spans[0].attributes.contains(&KeyValue::new(key, value)), "{:?}", spans[0].attributes);
        }
        assert_ne!(spans[0].span_context.trace_id(), spans[1].span_context.trace_id());
    }
}
