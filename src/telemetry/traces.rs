//! Traces (OpenTelemetry): one per Job, shared by all replicas that ever owned it.

mod exemplar;
mod ids;
mod sampler;

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, TraceState, Tracer,
    TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    Config, SamplingDecision, SdkTracer, SdkTracerProvider, ShouldSample, TracerProviderBuilder,
};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

pub use self::ids::trace_id_of;
use self::ids::{JobIds, root_span_id_of, with_root_ids};
use self::sampler::FewCalls;

/// Default of `OTEL_SERVICE_NAME`.
const SERVICE: &str = "yardmaster";
/// Environment variables that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The traces of Jobs. Clones share one exporter; the default has none and costs nothing.
#[derive(Clone, Debug, Default)]
pub struct JobTraces {
    exporting: Option<Arc<Exporting>>,
}

#[derive(Debug)]
struct Exporting {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// Samples whole Jobs.
    sampler: Box<dyn ShouldSample>,
}

/// The life of a Job, for the root span of its trace.
#[derive(Clone, Copy, Debug)]
pub struct JobLife<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// Shard of the Job.
    pub shard: u32,
    /// Epoch of that shard at the end.
    pub epoch: u64,
    /// Creation time of the Job.
    pub created: Timestamp,
    /// Time at which the Job ended.
    pub ended: Timestamp,
    /// Cause of its failure, if it failed.
    pub failure: Option<&'a str>,
}

impl JobTraces {
    /// Exports to `endpoint` (OTLP/gRPC), or to the collector that the standard `OTEL_*` variables name.
    /// Without either there are no traces. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the endpoint is malformed.
    pub(super) fn export(endpoint: Option<&str>, identity: &str) -> Result<Self, ExporterBuildError> {
        let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if is_switched_off() || endpoint.is_none() && !ENDPOINTS.iter().any(set) {
            return Ok(Self::default());
        }
        let builder = SpanExporter::builder().with_tonic();
        let exporter = match endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint).build()?,
            None => builder.build()?,
        };
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter);
        Ok(Self::over(provider, identity))
    }

    fn over(provider: TracerProviderBuilder, identity: &str) -> Self {
        let mut resource = Resource::builder()
            .with_attribute(KeyValue::new("service.instance.id", identity.to_owned()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(SERVICE);
        }
        // The default configuration follows OTEL_TRACES_SAMPLER. Where that is set, calls are not limited
        // either.
        let whole = Config::default().sampler;
        let each: Box<dyn ShouldSample> = match std::env::var_os("OTEL_TRACES_SAMPLER") {
            Some(_) => whole.box_clone(),
            None => Box::new(FewCalls::new(whole.box_clone())),
        };
        let provider = provider
            .with_sampler(each)
            .with_id_generator(JobIds::default())
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer(SERVICE);
        Self { exporting: Some(Arc::new(Exporting { provider, tracer, sampler: whole })) }
    }

    /// The layer that exports the `tracing` spans of this crate, down to debug level.
    pub(super) fn layer<S>(&self) -> Option<Box<dyn Layer<S> + Send + Sync>>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let exporting = self.exporting.as_ref()?;
        let own = Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::DEBUG);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(exporting.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(own).boxed())
    }

    /// Makes a span that has not been entered yet a child of the root span of a Job's trace.
    pub fn adopt(&self, span: &tracing::Span, job_uid: &(impl Display + ?Sized)) {
        if let Some(exporting) = &self.exporting {
            // A span that is filtered out belongs to no trace.
            let _ = span.set_parent(exporting.root_of(&job_uid.to_string()));
        }
    }

    /// Exports the root span of a Job's trace, once the Job has ended.
    pub fn report(&self, life: &JobLife<'_>) {
        let Some(exporting) = &self.exporting else { return };
        let attributes = vec![
            KeyValue::new("k8s.namespace.name", life.namespace.to_owned()),
            KeyValue::new("k8s.job.name", life.name.to_owned()),
            KeyValue::new("k8s.job.uid", life.uid.to_owned()),
            KeyValue::new("shard", i64::from(life.shard)),
            KeyValue::new("epoch", i64::try_from(life.epoch).unwrap_or(i64::MAX)),
        ];
        let builder = SpanBuilder::from_name("job")
            .with_kind(SpanKind::Internal)
            .with_start_time(SystemTime::from(life.created))
            .with_attributes(attributes);
        let start = || exporting.tracer.build_with_context(builder, &Context::new());
        let mut root = with_root_ids(life.uid, start);
        root.set_status(life.failure.map_or(Status::Ok, |why| Status::error(why.to_owned())));
        root.end_with_timestamp(SystemTime::from(life.ended));
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

/// Whether the standard variables disable traces.
fn is_switched_off() -> bool {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|v| v.eq_ignore_ascii_case(value));
    is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
}

impl Exporting {
    /// The root span of a Job's trace, as a parent of spans, with the sampling decision that the root will
    /// get.
    fn root_of(&self, job_uid: &str) -> Context {
        let trace = trace_id_of(job_uid);
        let decision = self.sampler.should_sample(None, trace, "job", &SpanKind::Internal, &[], &[]).decision;
        let flags = TraceFlags::default().with_sampled(decision == SamplingDecision::RecordAndSample);
        let root = SpanContext::new(trace, root_span_id_of(job_uid), flags, true, TraceState::default());
        Context::new().with_remote_span_context(root)
    }
}

#[cfg(test)]
mod tests;
