//! A sampler that limits spans of API calls.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

use fnv::FnvHasher;
use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

/// Spans of API calls of one kind that are sampled under one parent.
const CALLS: u32 = 16;
/// Number of pairs of parent and kind of call that are remembered.
const MEMORY: usize = 8192;
/// Prefix of the names of API calls.
const CALL_PREFIX: &str = "api.";

/// Samples only the first API calls of each kind under one span, so that a Job with 100,000 pods does not
/// produce 100,000 spans. Another sampler decides about everything else.
#[derive(Clone, Debug)]
pub(super) struct FewCalls {
    inner: Box<dyn ShouldSample>,
    /// Hash of parent span and name -> calls so far.
    seen: Arc<Mutex<HashMap<u64, u32>>>,
}

impl FewCalls {
    pub(super) fn new(inner: Box<dyn ShouldSample>) -> Self {
        Self { inner, seen: Arc::default() }
    }

    fn exceeds_limit(&self, parent: &Context, name: &str) -> bool {
        let mut hasher = FnvHasher::default();
        hasher.write(&parent.span().span_context().span_id().to_bytes());
        hasher.write(name.as_bytes());
        // Poisoning is ignored: the counters stay valid after a panic.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MEMORY {
            seen.clear();
        }
        let calls = seen.entry(hasher.finish()).or_default();
        *calls += 1;
        *calls > CALLS
    }
}

impl ShouldSample for FewCalls {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.inner.should_sample(parent, trace, name, kind, attributes, links);
        let sampled = result.decision == SamplingDecision::RecordAndSample;
        if sampled && name.starts_with(CALL_PREFIX) && parent.is_some_and(|p| self.exceeds_limit(p, name)) {
            result.decision = SamplingDecision::Drop;
        }
        result
    }
}
