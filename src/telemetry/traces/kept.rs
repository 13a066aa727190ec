//! The latest traces of Jobs in memory, for `yardmaster trace`.
//!
//! Tenants choose how many Jobs there are, and how many spans these make. So all Jobs together have a bound, and a Job
//! has an eighth of it. If the bound is reached, the namespace that takes most loses the Job whose last span is the
//! oldest. A namespace that takes little loses nothing to others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use opentelemetry_semantic_conventions::attribute;

use super::SERVICE;
use super::otlp::{
    OtlpAttribute, OtlpResource, OtlpResourceSpans, OtlpScope, OtlpScopeSpans, OtlpSpan, OtlpTraces,
};

/// A Job may take one part in this many of the memory.
const JOB_PART: usize = 8;
/// Most bytes of a Job, so that a client can read them in one piece.
const JOB_MOST: usize = 4 << 20;
/// Bytes of a Job besides its spans.
const JOB_BYTES: usize = 512;
/// Bytes of a span besides its text.
const SPAN_BYTES: usize = 32;

/// The latest traces of Jobs. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct KeptTraces(Arc<Mutex<TraceBoard>>);

#[derive(Debug, Default)]
struct TraceBoard {
    /// The attributes of this process.
    resource: Vec<OtlpAttribute>,
    /// Most bytes.
    most: usize,
    bytes: usize,
    namespaces: HashMap<Box<str>, NamespaceTraces>,
    /// Number of spans so far.
    count: u64,
}

#[derive(Debug, Default)]
struct NamespaceTraces {
    bytes: usize,
    /// By UID.
    jobs: HashMap<Box<str>, KeptTrace>,
    /// UIDs by the number of the last span.
    by_age: BTreeMap<u64, Box<str>>,
}

/// The last spans of a Job, as JSON.
#[derive(Debug)]
struct KeptTrace {
    name: Box<str>,
    spans: VecDeque<Box<str>>,
    bytes: usize,
    /// Number of its last span.
    last: u64,
}

impl KeptTraces {
    /// No traces, with a bound in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(TraceBoard { most, ..TraceBoard::default() })))
    }

    fn board(&self) -> MutexGuard<'_, TraceBoard> {
        // A panic while writing loses spans only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The spans of the latest Job that has or had this name.
    pub(super) fn of(&self, namespace: &str, job: &str) -> OtlpTraces {
        let board = self.board();
        let jobs = board.namespaces.get(namespace).into_iter().flat_map(|namespace| namespace.jobs.values());
        let latest = jobs.filter(|kept| *kept.name == *job).max_by_key(|kept| kept.last);
        let texts = latest.map(|kept| kept.spans.clone()).unwrap_or_default();
        let resource = OtlpResource { attributes: board.resource.clone() };
        drop(board);
        // The texts are ours, so all can be read.
        let spans: Vec<OtlpSpan> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        if spans.is_empty() {
            return OtlpTraces::default();
        }
        let scope_spans = vec![OtlpScopeSpans { scope: OtlpScope { name: SERVICE.to_owned() }, spans }];
        OtlpTraces { resource_spans: vec![OtlpResourceSpans { resource, scope_spans }] }
    }

    /// Bytes that the traces take.
    pub(super) fn bytes(&self) -> usize {
        self.board().bytes
    }

    fn keep(&self, span: &OtlpSpan) {
        let keys = [attribute::K8S_NAMESPACE_NAME, attribute::K8S_JOB_NAME, attribute::K8S_JOB_UID];
        // Spans of shards have no Job.
        let [Some(namespace), Some(name), Some(uid)] = keys.map(|key| span.attribute(key)) else { return };
        let Ok(text) = serde_json::to_string(span) else { return };
        self.board().add(&namespace, &name, &uid, text.into());
    }
}

impl TraceBoard {
    fn add(&mut self, namespace: &str, name: &str, uid: &str, text: Box<str>) {
        let most = (self.most / JOB_PART).min(JOB_MOST);
        let size = text.len() + SPAN_BYTES;
        if size + JOB_BYTES > most {
            return;
        }
        self.count += 1;
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), NamespaceTraces::default());
        }
        let Some(traces) = self.namespaces.get_mut(namespace) else { return };
        let before = traces.bytes;
        traces.add(name, uid, text, self.count, most);
        self.bytes = self.bytes + traces.bytes - before;
        while self.bytes > self.most && self.drop_oldest() {}
    }

    /// Drops a Job of the namespace that takes most. `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let largest = self.namespaces.iter().max_by_key(|(_, traces)| traces.bytes);
        let Some(name) = largest.map(|(name, _)| name.clone()) else { return false };
        let Some(traces) = self.namespaces.get_mut(&name) else { return false };
        self.bytes -= traces.drop_oldest();
        if traces.jobs.is_empty() {
            self.namespaces.remove(&name);
        }
        true
    }
}

impl NamespaceTraces {
    /// Adds a span to a Job, whose oldest spans leave if it takes more than `most` bytes.
    fn add(&mut self, name: &str, uid: &str, text: Box<str>, number: u64, most: usize) {
        let (uid, mut kept) = match self.jobs.remove_entry(uid) {
            Some((uid, kept)) => {
                self.by_age.remove(&kept.last);
                self.bytes -= kept.bytes;
                (uid, kept)
            }
            None => {
                let spans = VecDeque::new();
                (uid.into(), KeptTrace { name: name.into(), spans, bytes: JOB_BYTES, last: number })
            }
        };
        kept.last = number;
        kept.bytes += text.len() + SPAN_BYTES;
        kept.spans.push_back(text);
        while kept.bytes > most
            && let Some(oldest) = kept.spans.pop_front()
        {
            kept.bytes -= oldest.len() + SPAN_BYTES;
        }
        self.bytes += kept.bytes;
        self.by_age.insert(number, uid.clone());
        self.jobs.insert(uid, kept);
    }

    /// Drops the Job whose last span is the oldest. Returns its bytes.
    fn drop_oldest(&mut self) -> usize {
        let oldest = self.by_age.pop_first().and_then(|(_, uid)| self.jobs.remove(&uid));
        let bytes = oldest.map_or(0, |kept| kept.bytes);
        self.bytes -= bytes;
        bytes
    }
}

impl SpanProcessor for KeptTraces {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.keep(&OtlpSpan::from(&span));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        let attributes = resource.iter().map(|(key, value)| {
            OtlpAttribute::from(&opentelemetry::KeyValue::new(key.clone(), value.clone()))
        });
        self.board().resource = attributes.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64 << 10;

    fn span(namespace: &str, job: &str, name: &str) -> OtlpSpan {
        let attribute = |key: &str, value: &str| OtlpAttribute {
            key: key.to_owned(),
            value: serde_json::json!({"stringValue": value}),
        };
        OtlpSpan {
            name: name.to_owned(),
            attributes: vec![
                attribute(attribute::K8S_NAMESPACE_NAME, namespace),
                attribute(attribute::K8S_JOB_NAME, job),
                attribute(attribute::K8S_JOB_UID, &format!("uid-of-{namespace}-{job}")),
            ],
            ..OtlpSpan::default()
        }
    }

    fn names(kept: &KeptTraces, namespace: &str, job: &str) -> Vec<String> {
        let parts = kept.of(namespace, job).resource_spans;
        let scopes = parts.into_iter().flat_map(|part| part.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(|span| span.name).collect()
    }

    /// The sums agree with what is there.
    fn assert_consistent(kept: &KeptTraces) {
        let board = kept.board();
        let of_jobs = |traces: &NamespaceTraces| traces.jobs.values().map(|kept| kept.bytes).sum::<usize>();
        for traces in board.namespaces.values() {
            assert_eq!(traces.bytes, of_jobs(traces));
            assert_eq!(traces.by_age.len(), traces.jobs.len());
            assert!(!traces.jobs.is_empty());
        }
        assert_eq!(board.bytes, board.namespaces.values().map(of_jobs).sum::<usize>());
        assert!(board.bytes <= MOST, "{}", board.bytes);
    }

    #[test]
    fn a_job_keeps_its_last_spans() {
        let kept = KeptTraces::new(MOST);
        for number in 0..100 {
            kept.keep(&span("a", "train", &format!("reconcile-{number}")));
        }
        let names = names(&kept, "a", "train");
        assert!((5..90).contains(&names.len()), "{names:?}");
        assert_eq!(names.last().map(String::as_str), Some("reconcile-99"));
        assert_consistent(&kept);
        assert!(kept.bytes() <= MOST / JOB_PART, "{}", kept.bytes());
    }

    /// A tenant whose Jobs make many spans takes no room of others.
    #[test]
    fn the_namespace_that_takes_most_loses_its_oldest_jobs() {
        let kept = KeptTraces::new(MOST);
        kept.keep(&span("quiet", "train", "job"));
        for number in 0..1_000 {
            kept.keep(&span("loud", &format!("j{number}"), "job"));
        }
        assert_consistent(&kept);
        assert_eq!(names(&kept, "quiet", "train"), ["job"]);
        assert_eq!(names(&kept, "loud", "j999"), ["job"]);
        assert_eq!(names(&kept, "loud", "j0"), Vec::<String>::new());
    }

    #[test]
    fn a_job_that_goes_on_stays_longer_than_one_that_rests() {
        let kept = KeptTraces::new(MOST);
        for number in 0..1_000 {
            kept.keep(&span("a", "goes-on", "job"));
            if number == 0 {
                kept.keep(&span("a", "rests", "job"));
            }
            kept.keep(&span("a", &format!("j{number}"), "job"));
        }
        assert_consistent(&kept);
        assert!(!names(&kept, "a", "goes-on").is_empty());
        assert_eq!(names(&kept, "a", "rests"), Vec::<String>::new());
    }

    #[test]
    fn of_jobs_that_had_the_same_name_the_latest_is_shown() {
        let kept = KeptTraces::new(MOST);
        let mut older = span("a", "train", "older");
        older.attributes.retain(|attribute| attribute.key != attribute::K8S_JOB_UID);
        let uid = serde_json::json!({"stringValue": "another"});
        older.attributes.push(OtlpAttribute { key: attribute::K8S_JOB_UID.to_owned(), value: uid });
        kept.keep(&older);
        kept.keep(&span("a", "train", "newer"));
        assert_eq!(names(&kept, "a", "train"), ["newer"]);
        assert_consistent(&kept);
    }

    #[test]
    fn spans_that_are_of_no_job_or_too_long_are_not_kept() {
        let kept = KeptTraces::new(MOST);
        kept.keep(&OtlpSpan { name: "shard.takeover".into(), ..OtlpSpan::default() });
        kept.keep(&span("a", "train", &"x".repeat(MOST / JOB_PART)));
        assert_eq!(kept.bytes(), 0);
    }
}
