//! Spans of requests to the API server, by OpenTelemetry's conventions for HTTP clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span;
use opentelemetry_semantic_conventions::attribute;

use super::job::{JobTrace, Parent, Recorder};
use super::thinning::keeps;

/// Kinds of requests that are counted apart.
const KINDS: [&str; 5] =
    ["api.create_pod", "api.patch_pod", "api.delete_pod", "api.patch_status", "api.delete_job"];

/// The requests of a Job so far: of each kind, and with the others last; and those of them that failed.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    sent: [AtomicU64; KINDS.len() + 1],
    failed: [AtomicU64; KINDS.len() + 1],
}

impl CallCounts {
    fn kept(counts: &[AtomicU64], name: &str) -> bool {
        let kind = KINDS.iter().position(|kind| *kind == name).unwrap_or(KINDS.len());
        counts.get(kind).is_some_and(|count| keeps(count.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

/// The trace that a request belongs to, and the span above it. Empty for requests that are about no
/// Job.
#[derive(Clone, Debug, Default)]
pub struct CallTrace {
    trace: JobTrace,
    parent: Parent,
}

/// A request on its way. It is small: thousands may wait at once.
#[derive(Debug, Default)]
pub struct CallSpan(Option<Box<Span>>);

/// The subject of a request.
#[derive(Clone, Debug)]
pub struct CallTarget {
    /// The HTTP method.
    pub method: String,
    /// The path, with placeholders for namespace and name.
    pub template: String,
    /// The name of the pod, if it is one and its name is known.
    pub pod: Option<String>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct CallEnd {
    /// The HTTP status, if there was an answer.
    pub code: Option<u16>,
    /// The kind of failure, if there was no answer: one word of few.
    pub failure: Option<&'static str>,
    /// How often the request had been sent before.
    pub resends: u32,
    /// How long it took.
    pub took: Duration,
}

impl CallEnd {
    fn error_type(&self) -> Option<String> {
        match self.code {
            Some(code) => (code >= 400).then(|| code.to_string()),
            None => self.failure.map(str::to_owned),
        }
    }

    fn attributes(&self) -> impl Iterator<Item = KeyValue> {
        let code = self.code.map(|code| KeyValue::new(attribute::HTTP_RESPONSE_STATUS_CODE, i64::from(code)));
        let resends = (self.resends > 0)
            .then(|| KeyValue::new(attribute::HTTP_REQUEST_RESEND_COUNT, i64::from(self.resends)));
        let error = self.error_type().map(|error| KeyValue::new(attribute::ERROR_TYPE, error));
        [code, resends, error].into_iter().flatten()
    }
}

impl CallTarget {
    fn attributes(self) -> impl Iterator<Item = KeyValue> {
        let pod = self.pod.map(|pod| KeyValue::new(attribute::K8S_POD_NAME, pod));
        let method = KeyValue::new(attribute::HTTP_REQUEST_METHOD, self.method);
        let template = KeyValue::new(attribute::URL_TEMPLATE, self.template);
        [method, template].into_iter().chain(pod)
    }
}

impl CallSpan {
    /// Sends the span to the API server, if there is one (W3C `traceparent`).
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some(span) = &self.0 {
            let context = Context::new().with_remote_span_context(span.span_context().clone());
            TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
        }
    }
}

impl CallTrace {
    /// For requests of a Job that are sent now.
    pub(super) fn new(trace: JobTrace, parent: Parent) -> Self {
        Self { trace, parent }
    }

    /// Begins a request that leaves now. If many are alike, few get a span.
    pub fn begin(&self, name: &'static str) -> CallSpan {
        let kept =
            |recorder: &&Recorder| CallCounts::kept(&recorder.calls.sent, name) || !recorder.exporting.thins;
        let span = self
            .trace
            .recorder()
            .filter(kept)
            .map(|recorder| Box::new(recorder.start_call(name, self.parent, SystemTime::now())));
        CallSpan(span)
    }

    /// Ends a request. A failed request gets a span even if it had none, unless too many failed.
    pub fn end(
        &self,
        name: &'static str,
        call: CallSpan,
        end: &CallEnd,
        target: impl FnOnce() -> CallTarget,
    ) {
        let Some(recorder) = self.trace.recorder() else { return };
        let error = end.error_type();
        let counts = error.is_some() && CallCounts::kept(&recorder.calls.failed, name);
        let late = || Box::new(recorder.start_call(name, self.parent, SystemTime::now() - end.took));
        let Some(mut span) = call.0.or_else(|| counts.then(late)) else { return };
        span.set_attributes(recorder.server.iter().cloned());
        span.set_attributes(target().attributes());
        span.set_attributes(end.attributes());
        if let Some(error) = error {
            span.set_status(Status::error(error));
        }
        span.end();
    }
}

impl Recorder {
    fn start_call(&self, name: &'static str, parent: Parent, at: SystemTime) -> Span {
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Client)
            .with_start_time(at)
            .with_attributes(self.with_job(Vec::new()));
        self.exporting.tracer.build_with_context(builder, &self.below(parent))
    }
}
