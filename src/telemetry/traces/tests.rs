#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// An exporter that stores spans in memory.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

const UID: &str = "0b8f5a3e-9d4c-4a51-8a2b-6f7e1c2d3e4f";

/// The spans that a replica exports for some work.
fn replica(identity: &str, work: impl FnOnce(&JobTraces)) -> Vec<SpanData> {
    let kept = Kept::default();
    let traces = JobTraces::over(SdkTracerProvider::builder().with_simple_exporter(kept.clone()), identity);
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, || work(&traces));
    traces.shutdown();
    std::mem::take(&mut *kept.0.lock().unwrap())
}

fn reconcile(traces: &JobTraces, calls: usize) {
    let span = tracing::info_span!("reconcile", cause = "test");
    traces.adopt(&span, UID);
    let _entered = span.enter();
    for _ in 0..calls {
        drop(tracing::debug_span!("api", otel.name = "api.create_pod").entered());
    }
}

fn names(spans: &[SpanData], name: &str) -> usize {
    spans.iter().filter(|span| span.name == name).count()
}

#[test]
fn spans_of_all_replicas_belong_to_the_jobs_trace() {
    let first = replica("a", |traces| reconcile(traces, 1));
    let second = replica("b", |traces| {
        reconcile(traces, 1);
        traces.report(&JobLife {
            namespace: "n",
            name: "j",
            uid: UID,
            shard: 3,
            epoch: 2,
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
            ended: "2026-01-01T00:01:00Z".parse().unwrap(),
            failure: None,
        });
    });
    let spans = [first, second].concat();
    assert!(spans.iter().all(|span| span.span_context.trace_id() == trace_id_of(UID)));
    let root = spans.iter().find(|span| span.name == "job").unwrap();
    assert_eq!(root.parent_span_id, SpanId::INVALID);
    assert_eq!(root.end_time.duration_since(root.start_time).unwrap().as_secs(), 60);
    assert!(root.attributes.contains(&KeyValue::new("k8s.job.uid", UID)));
    let reconciles: Vec<_> = spans.iter().filter(|span| span.name == "reconcile").collect();
    assert_eq!(reconciles.len(), 2);
    assert!(reconciles.iter().all(|span| span.parent_span_id == root.span_context.span_id()));
    let call = spans.iter().find(|span| span.name == "api.create_pod").unwrap();
    assert!(reconciles.iter().any(|span| span.span_context.span_id() == call.parent_span_id));
}

#[test]
fn a_reconciliation_with_many_calls_exports_sixteen_spans_of_each_kind() {
    let spans = replica("a", |traces| {
        reconcile(traces, 1000);
        reconcile(traces, 3);
    });
    assert_eq!(names(&spans, "reconcile"), 2);
    assert_eq!(names(&spans, "api.create_pod"), 16 + 3);
}

#[test]
fn without_an_exporter_there_is_no_layer_and_no_failure() {
    let traces = JobTraces::default();
    assert!(traces.layer::<tracing_subscriber::Registry>().is_none());
    reconcile(&traces, 1);
    traces.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_the_collector() {
    let collector = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let traces = JobTraces::export(Some(&endpoint), "replica-1").unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, || reconcile(&traces, 1));
    // The shutdown waits for an answer that this collector never gives.
    std::thread::spawn(move || traces.shutdown());
    let (mut connection, _) = collector.accept().await.unwrap();
    let mut received = Vec::new();
    let sent = |bytes: &[u8]| {
        ["yardmaster", "replica-1", "reconcile", "api.create_pod"]
            .iter()
            .all(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    let read = async {
        while !sent(&received) {
            assert_ne!(tokio::io::AsyncReadExt::read_buf(&mut connection, &mut received).await.unwrap(), 0);
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), read).await.unwrap();
}
