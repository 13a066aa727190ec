//! Trace and span ids.
//!
//! All replicas that ever owned a Job must agree on its trace without communicating, so the ids of the trace
//! and of its root span are derived from the Job's UID. All other ids are random.

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
            let (high, low) = (hash(b"trace-high", job_uid), hash(b"trace-low", job_uid));
            (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes()
        }
    };
    TraceId::from_bytes(bytes)
}

/// The id of the root span of a Job's trace.
pub(super) fn root_span_id_of(job_uid: &str) -> SpanId {
    SpanId::from_bytes(hash(b"root", job_uid).max(1).to_be_bytes())
}

fn hash(salt: &[u8], text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(salt);
    hasher.write(text.as_bytes());
    hasher.finish()
}

thread_local! {
    /// The ids for the next span. OpenTelemetry asks its generator for ids without naming the span.
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Starts a root span with the ids of a Job's trace.
pub(super) fn with_root_ids<T>(job_uid: &str, start: impl FnOnce() -> T) -> T {
    NEXT.set(Some((trace_id_of(job_uid), root_span_id_of(job_uid))));
    let span = start();
    NEXT.set(None);
    span
}

/// Random ids, except for root spans of Jobs.
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

    #[test]
    fn a_jobs_trace_id_is_derived_from_its_uid() {
        let uid = "0b8f5a3e-9d4c-4a51-8a2b-6f7e1c2d3e4f";
        assert_eq!(trace_id_of(uid).to_string(), "0b8f5a3e9d4c4a518a2b6f7e1c2d3e4f");
        assert_ne!(root_span_id_of(uid), SpanId::INVALID);
        for odd in ["", "job-1", "00000000-0000-0000-0000-000000000000"] {
            assert_ne!(trace_id_of(odd), TraceId::INVALID, "{odd:?}");
            assert_eq!(trace_id_of(odd), trace_id_of(odd));
        }
        assert_ne!(trace_id_of("job-1"), trace_id_of("job-2"));
    }
}
