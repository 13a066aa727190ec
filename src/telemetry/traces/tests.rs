#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SimpleSpanProcessor, SpanData, SpanExporter, SpanProcessor};

use super::*;

/// An exporter that stores spans in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl Kept {
    /// The spans so far.
    pub(crate) fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

const UID: &str = "0b8f5a3e-9d4c-4a51-8a2b-6f7e1c2d3e4f";

impl JobTraces {
    /// Traces that are stored in memory.
    pub(crate) fn kept(identity: &str) -> (Self, Kept) {
        let kept = Kept::default();
        let provider = Self::provider(identity).with_span_processor(SimpleSpanProcessor::new(kept.clone()));
        let traces = Self::over(provider, Arc::default(), None);
        (traces.of_server(&"https://[::1]:6443".parse().unwrap()), kept)
    }
}

fn job_of(traces: &JobTraces) -> JobTrace {
    traces.job(JobName { namespace: "n", name: "j", uid: UID })
}

/// The spans that a replica exports for some work.
fn replica(identity: &str, work: impl FnOnce(&JobTrace)) -> Vec<SpanData> {
    let (traces, kept) = JobTraces::kept(identity);
    work(&job_of(&traces));
    kept.take()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn call(calls: &CallTrace, code: u16) {
    let span = calls.begin("api.create_pod");
    let end = CallEnd { code: Some(code), failure: None, resends: 0, took: Duration::ZERO };
    calls.end("api.create_pod", span, &end, || CallTarget {
        method: "POST".into(),
        template: "/pods".into(),
        pod: None,
    });
}

fn reconcile(job: &JobTrace, calls: usize) {
    let span = job.reconcile();
    let requests = job.calls();
    (0..calls).for_each(|_| call(&requests, 201));
    span.end(|| vec![KeyValue::new("yardmaster.cause", "test")]);
}

fn names(spans: &[SpanData], name: &str) -> usize {
    spans.iter().filter(|span| span.name == name).count()
}

#[test]
fn spans_of_all_replicas_belong_to_the_jobs_trace() {
    let pod = |job: &JobTrace| {
        let span = FinishedSpan::new("pod", at(5), at(7));
        let parent = job.export(FinishedSpan { key: Some(SpanKey::Pod("p")), ..span });
        job.export(FinishedSpan { parent, ..FinishedSpan::new("pod.pending", at(5), at(6)) });
    };
    let first = replica("a", |job| {
        reconcile(job, 1);
        pod(job);
    });
    let second = replica("b", |job| {
        reconcile(job, 1);
        pod(job);
        let failure = Some("BackoffLimitExceeded".to_owned());
        job.export(FinishedSpan {
            key: Some(SpanKey::Root),
            failure,
            ..FinishedSpan::new("job", at(0), at(60))
        });
    });
    let id_of_pod =
        |spans: &[SpanData]| spans.iter().find(|span| span.name == "pod").unwrap().span_context.span_id();
    assert_eq!(id_of_pod(&first), id_of_pod(&second), "a pod that two replicas tell is one span");
    let spans = [first, second].concat();
    assert!(spans.iter().all(|span| span.span_context.trace_id() == trace_id_of(UID)));
    let root = spans.iter().find(|span| span.name == "job").unwrap();
    assert_eq!((root.parent_span_id, root.span_context.span_id()), (SpanId::INVALID, root_span_id_of(UID)));
    assert_eq!(root.end_time.duration_since(root.start_time).unwrap().as_secs(), 60);
    assert!(matches!(&root.status, Status::Error { description } if description == "BackoffLimitExceeded"));
    assert!(root.attributes.contains(&KeyValue::new("k8s.job.uid", UID)));
    for (child, parent) in
        [("reconcile", "job"), ("pod", "job"), ("pod.pending", "pod"), ("api.create_pod", "reconcile")]
    {
        let parents: HashSet<_> =
            spans.iter().filter(|span| span.name == parent).map(|span| span.span_context.span_id()).collect();
        let mut children = spans.iter().filter(|span| span.name == child);
        assert!(children.all(|span| parents.contains(&span.parent_span_id)), "{child} below {parent}");
    }
}

#[test]
fn of_many_requests_few_are_shown_and_those_that_failed() {
    let spans = replica("a", |job| {
        for _ in 0..100 {
            reconcile(job, 1000);
        }
        call(&job.calls(), 500);
    });
    assert!(names(&spans, "api.create_pod") <= 43, "{}", names(&spans, "api.create_pod"));
    assert!(names(&spans, "reconcile") <= 22);
    let failed = spans.iter().find(|span| matches!(span.status, Status::Error { .. })).unwrap();
    assert!(failed.attributes.contains(&KeyValue::new("error.type", "500")), "{failed:?}");
    let ids: HashSet<_> = spans.iter().map(|span| span.span_context.span_id()).collect();
    let has_parent =
        |span: &SpanData| span.parent_span_id == root_span_id_of(UID) || ids.contains(&span.parent_span_id);
    assert!(spans.iter().all(has_parent), "a request of a reconciliation that is left out is below the root");
}

#[test]
fn a_reconciliation_without_requests_is_not_shown() {
    let spans = replica("a", |job| drop(job.reconcile()));
    assert!(spans.is_empty(), "{spans:?}");
}

#[test]
fn the_api_server_learns_of_a_span() {
    let (traces, kept) = JobTraces::kept("a");
    let calls = job_of(&traces).calls();
    let (mut headers, span) = (HeaderMap::new(), calls.begin("api.patch_pod"));
    span.inject(&mut headers);
    let end = CallEnd { code: None, failure: Some("timeout"), resends: 2, took: Duration::ZERO };
    let target =
        || CallTarget { method: "PATCH".into(), template: "/pods/{name}".into(), pod: Some("p".into()) };
    calls.end("api.patch_pod", span, &end, target);
    let [span] = &kept.take()[..] else { panic!("one span") };
    let context = &span.span_context;
    let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
    assert_eq!(headers["traceparent"], expected.as_str());
    assert_eq!(span.span_kind, SpanKind::Client);
    for expected in [
        KeyValue::new("http.request.method", "PATCH"),
        KeyValue::new("url.template", "/pods/{name}"),
        KeyValue::new("http.request.resend_count", 2),
        KeyValue::new("error.type", "timeout"),
        KeyValue::new("server.address", "::1"),
        KeyValue::new("server.port", 6443),
        KeyValue::new("k8s.pod.name", "p"),
    ] {
        assert!(span.attributes.contains(&expected), "{expected:?} in {span:?}");
    }
    let code = span.attributes.iter().find(|attribute| attribute.key.as_str() == "http.response.status_code");
    assert!(code.is_none(), "there was no answer");
}

#[test]
fn a_job_links_to_the_trace_that_it_was_created_in() {
    let link = |traceparent| {
        let caller = Some(Caller { traceparent, tracestate: "vendor=1" });
        let spans = replica("a", |job| {
            job.export(FinishedSpan { caller, ..FinishedSpan::new("job.start", at(0), at(1)) });
        });
        spans[0].links.first().map(|link| link.span_context.clone())
    };
    let linked = link("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    assert_eq!(linked.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(
        (linked.span_id().to_string(), linked.trace_state().header()),
        ("b7ad6b7169203331".into(), "vendor=1".into())
    );
    assert_eq!(link("nonsense"), None);
}

#[test]
fn programs_of_a_job_learn_its_root() {
    let (traces, _) = JobTraces::kept("a");
    let expected = format!("00-{}-{}-01", trace_id_of(UID), root_span_id_of(UID));
    assert_eq!(job_of(&traces).traceparent(), Some(expected));
}

#[test]
fn without_an_exporter_there_is_nothing() {
    let job = job_of(&JobTraces::default());
    assert!(!job.is_on() && job.traceparent().is_none());
    reconcile(&job, 1);
    job.export(FinishedSpan::new("pod", at(0), at(1)));
    JobTraces::default().shutdown();
}

/// An exporter that fails as long as it is asked to.
#[derive(Clone, Debug, Default)]
struct Failing(Arc<std::sync::atomic::AtomicBool>);

impl SpanExporter for Failing {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        if self.0.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(OTelSdkError::InternalFailure("no collector".into()));
        }
        Ok(())
    }
}

/// A processor that holds its spans back forever.
#[derive(Debug)]
struct Stuck;

impl SpanProcessor for Stuck {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

    fn on_end(&self, _: SpanData) {}

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[test]
fn spans_that_do_not_reach_the_collector_are_counted() {
    let export = |traces: &JobTraces, spans: usize| {
        let job = job_of(traces);
        (0..spans).for_each(|_| _ = job.export(FinishedSpan::new("pod", at(0), at(1))));
    };
    let drops = Arc::new(Drops::default());
    let failing = Failing::default();
    let exporter = Reporting::new(failing.clone(), "http://collector".into(), drops.clone());
    let processor = Bounded::new(SimpleSpanProcessor::new(exporter), drops.clone());
    let traces = JobTraces::over(JobTraces::provider("a").with_span_processor(processor), drops, None);
    for (fails, dropped) in [(false, 0), (true, 5), (false, 5)] {
        failing.0.store(fails, std::sync::atomic::Ordering::Relaxed);
        export(&traces, 5);
        assert_eq!(traces.dropped(), dropped);
    }

    let drops = Arc::new(Drops::default());
    let stuck = Bounded::new(Stuck, drops.clone());
    let traces = JobTraces::over(JobTraces::provider("a").with_span_processor(stuck), drops, None);
    export(&traces, 3000);
    assert_eq!(traces.dropped(), 3000 - 2048);
}

#[test]
fn the_latest_traces_are_kept_in_memory_if_there_is_some_for_them() {
    let traces = JobTraces::start(None, "a", 1).unwrap();
    assert!(traces.is_on());
    assert_eq!(traces.latest("n", "j"), Some(OtlpTraces::default()));
    let job = job_of(&traces);
    let failure = Some("Failed".to_owned());
    job.export(FinishedSpan { failure, key: Some(SpanKey::Root), ..FinishedSpan::new("job", at(1), at(3)) });
    let [part] = &traces.latest("n", "j").unwrap().resource_spans[..] else { panic!("one replica") };
    let replica = otlp::attribute_of(&part.resource.attributes, attribute::SERVICE_INSTANCE_ID);
    assert_eq!(replica.as_deref(), Some("a"));
    let [span] = &part.scope_spans[0].spans[..] else { panic!("one span") };
    assert_eq!((&*span.name, span.failure()), ("job", Some("Failed")));
    assert_eq!(span.trace_id, trace_id_of(UID).to_string());
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 2_000_000_000);
    assert_eq!(traces.latest("n", "another"), Some(OtlpTraces::default()));
    assert!((100..2000).contains(&traces.kept_bytes()), "{}", traces.kept_bytes());

    let off = JobTraces::start(None, "a", 0).unwrap();
    assert!(!off.is_on());
    assert_eq!((off.latest("n", "j"), off.kept_bytes()), (None, 0));
}
