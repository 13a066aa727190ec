//! Traces (OpenTelemetry): one per Job, shared by all replicas that ever owned it.
//!
//! Spans are made when they end, with the times that the caller knows. Only requests to the API server and
//! reconciliations begin before it is known whether they are worth exporting. [`JobTrace`] is the trace of
//! one Job. It is empty and costs nothing if spans go neither to a collector nor into memory, or if the sampler has left
//! the Job out.

mod call;
mod export;
mod health;
mod ids;
mod job;
mod kept;
pub mod otlp;
mod sampler;
mod shard;
mod thinning;

use std::fmt::Display;
use std::sync::Arc;

use http::Uri;
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Config, SamplingDecision, SdkTracer, SdkTracerProvider, ShouldSample,
    TracerProviderBuilder,
};
use opentelemetry_semantic_conventions::attribute;

pub use self::call::{CallEnd, CallSpan, CallTarget, CallTrace};
pub use self::export::ExportError;
use self::health::{Bounded, Drops, Reporting};
use self::ids::JobIds;
pub use self::ids::{SpanKey, root_span_id_of, trace_id_of};
pub use self::job::{Caller, FinishedSpan, JobName, JobTrace, Parent, ReconcileSpan};
use self::kept::KeptTraces;
use self::otlp::OtlpTraces;
use self::sampler::Hashed;
pub use self::shard::{TakeoverSpan, drain_span};
pub use self::thinning::Thinning;

/// Attributes of spans, and their values.
pub use opentelemetry::KeyValue as Attribute;
/// The names of attributes that OpenTelemetry's semantic conventions define.
pub use opentelemetry_semantic_conventions::attribute as names;

/// Default of `OTEL_SERVICE_NAME`.
const SERVICE: &str = "yardmaster";

/// Most of the memory for the latest traces, in MiB.
pub const MOST_TRACE_MEMORY: u32 = 1024;

/// The traces of Jobs. Clones share one exporter; the default has none and costs nothing.
#[derive(Clone, Debug, Default)]
pub struct JobTraces {
    exporting: Option<Arc<Exporting>>,
    /// `server.address` and `server.port` of requests.
    server: Arc<[KeyValue]>,
}

#[derive(Debug)]
struct Exporting {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// Samples whole Jobs.
    sampler: Box<dyn ShouldSample>,
    /// A large Job has fewer spans than requests. Not where the user has chosen a sampler.
    thins: bool,
    drops: Arc<Drops>,
    /// The latest traces in memory.
    kept: Option<KeptTraces>,
}

impl JobTraces {
    /// Exports to `endpoint`, or to the collector that the standard `OTEL_*` variables name, and keeps the latest traces in
    /// `memory` MiB. With none of these there are no traces. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the endpoint, the protocol or a certificate is not usable.
    pub(super) fn start(endpoint: Option<&str>, identity: &str, memory: u32) -> Result<Self, ExportError> {
        let settings = export::Settings::read(endpoint)?;
        let memory = usize::try_from(memory.min(MOST_TRACE_MEMORY)).unwrap_or_default() << 20;
        let kept = (memory > 0).then(|| KeptTraces::new(memory));
        if settings.is_none() && kept.is_none() {
            return Ok(Self::default());
        }
        let drops = Arc::new(Drops::default());
        let mut provider = Self::provider(identity);
        if let Some(settings) = settings {
            let exporter = Reporting::new(settings.exporter()?, settings.address(), drops.clone());
            let batches = Bounded::new(BatchSpanProcessor::builder(exporter).build(), drops.clone());
            provider = provider.with_span_processor(batches);
        }
        if let Some(kept) = &kept {
            provider = provider.with_span_processor(kept.clone());
        }
        Ok(Self::over(provider, drops, kept))
    }

    /// A provider of spans of this replica, which go nowhere yet.
    fn provider(identity: &str) -> TracerProviderBuilder {
        let mut resource = Resource::builder()
            .with_attribute(KeyValue::new(attribute::SERVICE_INSTANCE_ID, identity.to_owned()))
            .with_attribute(KeyValue::new(attribute::SERVICE_VERSION, env!("CARGO_PKG_VERSION")));
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(SERVICE);
        }
        SdkTracerProvider::builder()
            .with_sampler(sampler().box_clone())
            .with_id_generator(JobIds::default())
            .with_resource(resource.build())
    }

    fn over(provider: TracerProviderBuilder, drops: Arc<Drops>, kept: Option<KeptTraces>) -> Self {
        let provider = provider.build();
        let tracer = provider.tracer(SERVICE);
        let thins = std::env::var_os("OTEL_TRACES_SAMPLER").is_none();
        let exporting = Exporting { provider, tracer, sampler: sampler(), thins, drops, kept };
        Self { exporting: Some(Arc::new(exporting)), server: Arc::default() }
    }

    /// The same traces, for requests to the API server at this address.
    #[must_use]
    pub fn of_server(self, address: &Uri) -> Self {
        let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
        let default = if address.scheme_str() == Some("http") { 80 } else { 443 };
        let port = address.port_u16().unwrap_or(default);
        let server = [
            KeyValue::new(attribute::SERVER_ADDRESS, host.to_owned()),
            KeyValue::new(attribute::SERVER_PORT, i64::from(port)),
        ];
        Self { server: Arc::new(server), ..self }
    }

    /// Whether there are traces.
    pub fn is_on(&self) -> bool {
        self.exporting.is_some()
    }

    /// The trace of a Job: empty if there are no traces, or if the sampler leaves this Job out.
    pub fn job<U: Display + ?Sized>(&self, name: JobName<'_, U>) -> JobTrace {
        let Some(exporting) = &self.exporting else { return JobTrace::default() };
        let uid = name.uid.to_string();
        if !exporting.samples(&uid) {
            return JobTrace::default();
        }
        let name = JobName { namespace: name.namespace, name: name.name, uid: &*uid };
        JobTrace::new(exporting.clone(), &self.server, name)
    }

    /// Spans that were dropped: the collector did not take them, or there were too many at once.
    pub fn dropped(&self) -> u64 {
        self.exporting.as_ref().map_or(0, |exporting| exporting.drops.count())
    }

    /// The latest spans of the latest Job that has or had this name; `None` if no traces are kept in memory.
    pub fn latest(&self, namespace: &str, job: &str) -> Option<OtlpTraces> {
        Some(self.exporting.as_ref()?.kept.as_ref()?.of(namespace, job))
    }

    /// Bytes of the traces that are kept in memory.
    pub fn kept_bytes(&self) -> usize {
        let kept = self.exporting.as_ref().and_then(|exporting| exporting.kept.as_ref());
        kept.map_or(0, KeptTraces::bytes)
    }

    /// Sends the remaining spans. Blocks for some seconds if the collector does not answer.
    pub fn shutdown(&self) {
        if let Some(exporting) = &self.exporting
            && let Err(error) = exporting.provider.shutdown()
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Samples whole Jobs, as OTEL_TRACES_SAMPLER says.
fn sampler() -> Box<dyn ShouldSample> {
    Box::new(Hashed(Config::default().sampler))
}

impl Exporting {
    fn samples(&self, job_uid: &str) -> bool {
        let trace = trace_id_of(job_uid);
        let result = self.sampler.should_sample(None, trace, "job", &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

#[cfg(test)]
mod tests;
