//! Samplers that look at a trace id see one that is random in all bits.

use std::hash::Hasher;

use fnv::FnvHasher;
use opentelemetry::trace::{Link, SpanKind, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SamplingResult, ShouldSample};

/// Lets another sampler decide by a hash of the trace id. Samplers by ratio look at bits
/// of the id that are the same in every UUID of version 4. The trace id of a Job is such
/// a UUID.
#[derive(Clone, Debug)]
pub(super) struct Hashed(pub(super) Box<dyn ShouldSample>);

impl ShouldSample for Hashed {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        self.0.should_sample(parent, hashed(trace), name, kind, attributes, links)
    }
}

fn hashed(trace: TraceId) -> TraceId {
    let bytes = trace.to_bytes();
    let half = |salt: u8| {
        let mut hasher = FnvHasher::default();
        hasher.write_u8(salt);
        hasher.write(&bytes);
        hasher.finish()
    };
    TraceId::from_bytes((u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::{Sampler, SamplingDecision};

    use super::*;

    #[test]
    fn a_ratio_is_that_of_jobs() {
        for (ratio, range) in
            [(0.0, 0..=0), (0.1, 60..=140), (0.5, 440..=560), (0.9, 860..=940), (1.0, 1000..=1000)]
        {
            let sampler = Hashed(Box::new(Sampler::TraceIdRatioBased(ratio)));
            let sampled = |number: &u128| {
                // As a UUID of version 4: six of its bits are always the same.
                let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes();
                let uid = uuid::Builder::from_random_bytes(bytes).into_uuid();
                let trace = TraceId::from_bytes(uid.into_bytes());
                let result = sampler.should_sample(None, trace, "job", &SpanKind::Internal, &[], &[]);
                result.decision == SamplingDecision::RecordAndSample
            };
            let count = (1..=1000).filter(sampled).count();
            assert!(range.contains(&count), "{ratio}: {count}");
        }
    }
}
