//! The trace of one Job.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span;
use opentelemetry_semantic_conventions::attribute;

use super::Exporting;
use super::call::{CallCounts, CallTrace};
use super::ids::{SpanKey, random_span_id, trace_id_of, with_ids};
use super::thinning::keeps;

/// The Job that a trace is about.
#[derive(Clone, Copy, Debug)]
pub struct JobName<'a, U: ?Sized = str> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a U,
}

/// The trace of one Job. Clones are the same trace. Empty, it costs nothing.
#[derive(Clone, Debug, Default)]
pub struct JobTrace(Option<Arc<Recorder>>);

#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) exporting: Arc<Exporting>,
    pub(super) server: Arc<[KeyValue]>,
    pub(super) calls: CallCounts,
    uid: Box<str>,
    root: SpanContext,
    /// Attributes of every span.
    job: [KeyValue; 3],
    reconciliations: AtomicU64,
    /// The id of the reconciliation whose requests are being sent; 0 for none.
    current: AtomicU64,
}

/// The span above another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parent {
    /// The root.
    #[default]
    Root,
    /// Another span of the Job.
    Span(SpanId),
}

/// The trace that a Job was created in, as its annotations say (KEP-5915).
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// W3C `traceparent`.
    pub traceparent: &'a str,
    /// W3C `tracestate`; may be empty.
    pub tracestate: &'a str,
}

/// A span that is known from its start to its end.
#[derive(Clone, Debug)]
pub struct FinishedSpan<'a> {
    /// The name: one of few.
    pub name: Cow<'static, str>,
    /// Which span it is, if there is only one of it.
    pub key: Option<SpanKey<'a>>,
    /// The span above it.
    pub parent: Parent,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Attributes, besides those of the Job.
    pub attributes: Vec<KeyValue>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The trace that it is linked to.
    pub caller: Option<Caller<'a>>,
}

impl FinishedSpan<'_> {
    /// A span between these times, below the root.
    pub fn new(name: impl Into<Cow<'static, str>>, start: Timestamp, end: Timestamp) -> Self {
        Self {
            name: name.into(),
            key: None,
            parent: Parent::Root,
            start,
            end: end.max(start),
            attributes: Vec::new(),
            failure: None,
            caller: None,
        }
    }
}

impl JobTrace {
    pub(super) fn new(exporting: Arc<Exporting>, server: &Arc<[KeyValue]>, name: JobName<'_>) -> Self {
        Self(Some(Arc::new(Recorder::new(exporting, server.clone(), name))))
    }

    /// Whether the Job is traced.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.0.as_deref()
    }

    /// Exports a span. Returns it as a parent of others.
    pub fn export(&self, finished: FinishedSpan<'_>) -> Parent {
        let Some(recorder) = &self.0 else { return Parent::Root };
        let mut span = recorder.start(&finished);
        if let Some(failure) = finished.failure {
            span.set_status(Status::error(failure));
        }
        span.end_with_timestamp(SystemTime::from(finished.end));
        Parent::Span(span.span_context().span_id())
    }

    /// Begins a reconciliation. Until it is ended or dropped, requests are below it.
    pub fn reconcile(&self) -> ReconcileSpan<'_> {
        let Some(recorder) = self.recorder() else { return ReconcileSpan(None) };
        let number = recorder.reconciliations.load(Ordering::Relaxed) + 1;
        if recorder.exporting.thins && !keeps(number) {
            return ReconcileSpan(Some(Reconciling { recorder, kept: None }));
        }
        let id = random_span_id();
        recorder.current.store(u64::from_be_bytes(id.to_bytes()), Ordering::Relaxed);
        ReconcileSpan(Some(Reconciling { recorder, kept: Some((id, SystemTime::now())) }))
    }

    /// The trace for requests that are sent now: they are below the reconciliation that goes on.
    pub fn calls(&self) -> CallTrace {
        let parent = match self.recorder().map_or(0, |recorder| recorder.current.load(Ordering::Relaxed)) {
            0 => Parent::Root,
            id => Parent::Span(SpanId::from_bytes(id.to_be_bytes())),
        };
        CallTrace::new(self.clone(), parent)
    }

    /// The id of the trace, if it is exported: an exemplar for metrics.
    pub fn id(&self) -> Option<TraceId> {
        self.recorder().map(|recorder| recorder.root.trace_id())
    }

    /// W3C `traceparent` of the root, for programs that the Job runs. Absent if the Job is not traced.
    pub fn traceparent(&self) -> Option<String> {
        let root = &self.recorder()?.root;
        Some(format!("00-{}-{}-{:02x}", root.trace_id(), root.span_id(), root.trace_flags()))
    }
}

impl Recorder {
    fn new(exporting: Arc<Exporting>, server: Arc<[KeyValue]>, name: JobName<'_>) -> Self {
        let JobName { namespace, name, uid } = name;
        let (trace, root) = (trace_id_of(uid), SpanKey::Root.id(uid));
        Self {
            exporting,
            server,
            calls: CallCounts::default(),
            uid: uid.into(),
            root: SpanContext::new(trace, root, TraceFlags::SAMPLED, true, TraceState::default()),
            job: [
                KeyValue::new(attribute::K8S_NAMESPACE_NAME, Arc::<str>::from(namespace)),
                KeyValue::new(attribute::K8S_JOB_NAME, Arc::<str>::from(name)),
                KeyValue::new(attribute::K8S_JOB_UID, Arc::<str>::from(uid)),
            ],
            reconciliations: AtomicU64::new(0),
            current: AtomicU64::new(0),
        }
    }

    /// The context in which a span gets this parent.
    pub(super) fn below(&self, parent: Parent) -> Context {
        let context = match parent {
            Parent::Root => self.root.clone(),
            Parent::Span(id) => {
                SpanContext::new(self.root.trace_id(), id, TraceFlags::SAMPLED, false, TraceState::default())
            }
        };
        Context::new().with_remote_span_context(context)
    }

    pub(super) fn with_job(&self, attributes: Vec<KeyValue>) -> Vec<KeyValue> {
        self.job.iter().cloned().chain(attributes).collect()
    }

    fn start(&self, finished: &FinishedSpan<'_>) -> Span {
        let parent = match finished.key {
            Some(SpanKey::Root) => Context::new(),
            _ => self.below(finished.parent),
        };
        let builder = SpanBuilder::from_name(finished.name.clone())
            .with_kind(SpanKind::Internal)
            .with_start_time(SystemTime::from(finished.start))
            .with_attributes(self.with_job(finished.attributes.clone()))
            .with_links(finished.caller.and_then(link).into_iter().collect());
        let start = || self.exporting.tracer.build_with_context(builder, &parent);
        match finished.key {
            Some(key) => with_ids(self.root.trace_id(), key.id(&self.uid), start),
            None => start(),
        }
    }
}

/// The link to a caller's span. A malformed one is ignored, as W3C asks.
fn link(caller: Caller<'_>) -> Option<Link> {
    let carrier = HashMap::from([
        ("traceparent".to_owned(), caller.traceparent.to_owned()),
        ("tracestate".to_owned(), caller.tracestate.to_owned()),
    ]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let span = context.span().span_context().clone();
    span.is_valid().then(|| Link::with_context(span))
}

/// A reconciliation that goes on. It is exported if it did something.
#[derive(Debug)]
pub struct ReconcileSpan<'a>(Option<Reconciling<'a>>);

#[derive(Debug)]
struct Reconciling<'a> {
    recorder: &'a Recorder,
    kept: Option<(SpanId, SystemTime)>,
}

impl ReconcileSpan<'_> {
    /// Ends a reconciliation that made requests, and exports it unless there are too many.
    pub fn end(self, attributes: impl FnOnce() -> Vec<KeyValue>) {
        let Some(Reconciling { recorder, kept }) = &self.0 else { return };
        recorder.reconciliations.fetch_add(1, Ordering::Relaxed);
        let Some((id, began)) = kept else { return };
        let builder = SpanBuilder::from_name("reconcile")
            .with_kind(SpanKind::Internal)
            .with_start_time(*began)
            .with_attributes(recorder.with_job(attributes()));
        let start = || recorder.exporting.tracer.build_with_context(builder, &recorder.below(Parent::Root));
        with_ids(recorder.root.trace_id(), *id, start).end();
    }
}

impl Drop for ReconcileSpan<'_> {
    fn drop(&mut self) {
        if let Some(Reconciling { recorder, kept: Some(_) }) = &self.0 {
            recorder.current.store(0, Ordering::Relaxed);
        }
    }
}
