//! Trace and span ids.
//!
//! All replicas that ever owned a Job must agree on its trace without communicating. So the ids of the
//! trace, and of spans that only one replica should export, follow from the Job's UID. If two replicas
//! export a span, it is the same span. All other ids are random.

use std::cell::Cell;
use std::hash::Hasher;

use fnv::FnvHasher;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use uuid::Uuid;

/// The trace id of a Job: its UID, or a hash of the UID if that is not a UUID.
pub fn trace_id_of(job_uid: &str) -> TraceId {
    let bytes = match Uuid::try_parse(job_uid) {
        Ok(uuid) if !uuid.is_nil() => uuid.into_bytes(),
        _ => {
            let (high, low) = (hash(&["trace-high", job_uid]), hash(&["trace-low", job_uid]));
            (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes()
        }
    };
    TraceId::from_bytes(bytes)
}

/// The id of the root span of a Job's trace.
pub fn root_span_id_of(job_uid: &str) -> SpanId {
    SpanKey::Root.id(job_uid)
}

/// A span of a Job that there is only one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKey<'a> {
    /// The root.
    Root,
    /// The Job's start.
    Start,
    /// The pod with this UID.
    Pod(&'a str),
    /// The time in which the pod with this UID was pending.
    PodPending(&'a str),
    /// The time in which the pod with this UID ran.
    PodRunning(&'a str),
}

impl SpanKey<'_> {
    pub(super) fn id(self, job_uid: &str) -> SpanId {
        let (kind, pod) = match self {
            Self::Root => ("root", ""),
            Self::Start => ("start", ""),
            Self::Pod(uid) => ("pod", uid),
            Self::PodPending(uid) => ("pod-pending", uid),
            Self::PodRunning(uid) => ("pod-running", uid),
        };
        SpanId::from_bytes(hash(&[kind, job_uid, pod]).max(1).to_be_bytes())
    }
}

fn hash(parts: &[&str]) -> u64 {
    let mut hasher = FnvHasher::default();
    parts.iter().for_each(|part| hasher.write(part.as_bytes()));
    hasher.finish()
}

thread_local! {
    /// The ids for the next span. OpenTelemetry asks its generator for ids without naming the span.
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Starts a span with these ids. A span with a parent takes the trace of that.
pub(super) fn with_ids<T>(trace: TraceId, span: SpanId, start: impl FnOnce() -> T) -> T {
    NEXT.set(Some((trace, span)));
    let started = start();
    NEXT.set(None);
    started
}

/// A new span id.
pub(super) fn random_span_id() -> SpanId {
    RandomIdGenerator::default().new_span_id()
}

/// Random ids, except for spans whose id is chosen.
#[derive(Debug, Default)]
pub(super) struct JobIds(RandomIdGenerator);

impl IdGenerator for JobIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b8f5a3e-9d4c-4a51-8a2b-6f7e1c2d3e4f";

    #[test]
    fn a_jobs_trace_id_is_derived_from_its_uid() {
        assert_eq!(trace_id_of(UID).to_string(), "0b8f5a3e9d4c4a518a2b6f7e1c2d3e4f");
        for odd in ["", "job-1", "00000000-0000-0000-0000-000000000000"] {
            assert_ne!(trace_id_of(odd), TraceId::INVALID, "{odd:?}");
            assert_eq!(trace_id_of(odd), trace_id_of(odd));
        }
        assert_ne!(trace_id_of("job-1"), trace_id_of("job-2"));
    }

    #[test]
    fn spans_that_there_is_one_of_have_ids_of_their_own() {
        let keys = [
            SpanKey::Root,
            SpanKey::Start,
            SpanKey::Pod("a"),
            SpanKey::Pod("b"),
            SpanKey::PodPending("a"),
            SpanKey::PodRunning("a"),
        ];
        let ids: std::collections::HashSet<_> = keys.iter().map(|key| key.id(UID)).collect();
        assert_eq!(ids.len(), keys.len());
        assert!(!ids.contains(&SpanId::INVALID));
        assert_ne!(SpanKey::Root.id(UID), SpanKey::Root.id("another"));
    }
}
