//! The spans of one Job, taken from those of many.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::fit::printable;
use crate::telemetry::traces::names;
use crate::telemetry::traces::otlp::{OtlpSpan, OtlpTraces, attribute_of};

/// The spans of a Job.
#[derive(Debug)]
pub(super) struct JobSpans {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) trace_id: String,
    /// The replicas that made the spans.
    pub(super) replicas: BTreeSet<String>,
    /// All spans as they were read, each once.
    pub(super) traces: OtlpTraces,
}

impl JobSpans {
    /// The spans of the latest Job that has this name; `None` if there are none.
    pub(super) fn choose(mut traces: OtlpTraces, namespace: Option<&str>, name: &str) -> Option<Self> {
        let is_its = |span: &OtlpSpan, key, value: &str| span.attribute(key).as_deref() == Some(value);
        let mut ends: BTreeMap<String, (u64, Option<String>)> = BTreeMap::new();
        for span in spans(&traces).filter(|span| is_its(span, names::K8S_JOB_NAME, name)) {
            if namespace.is_none_or(|namespace| is_its(span, names::K8S_NAMESPACE_NAME, namespace)) {
                let end = ends.entry(span.trace_id.clone()).or_default();
                end.0 = end.0.max(span.end_time_unix_nano);
                end.1 = span.attribute(names::K8S_NAMESPACE_NAME);
            }
        }
        let (trace_id, (_, namespace)) = ends.into_iter().max_by_key(|(_, (end, _))| *end)?;
        let (mut seen, mut replicas) = (BTreeSet::new(), BTreeSet::new());
        for part in &mut traces.resource_spans {
            for scope in &mut part.scope_spans {
                // Two replicas may have exported the same span, and two pages may lead to the same replica.
                scope.spans.retain(|span| span.trace_id == trace_id && seen.insert(span.span_id.clone()));
            }
            part.scope_spans.retain(|scope| !scope.spans.is_empty());
            if !part.scope_spans.is_empty() {
                let attributes = &part.resource.attributes;
                replicas.extend(attribute_of(attributes, names::SERVICE_INSTANCE_ID));
            }
        }
        traces.resource_spans.retain(|part| !part.scope_spans.is_empty());
        let namespace = namespace.unwrap_or_default();
        Some(Self { namespace, name: name.to_owned(), trace_id, replicas, traces })
    }

    /// The spans.
    pub(super) fn spans(&self) -> impl Iterator<Item = &OtlpSpan> {
        spans(&self.traces)
    }
}

fn spans(traces: &OtlpTraces) -> impl Iterator<Item = &OtlpSpan> {
    let scopes = traces.resource_spans.iter().flat_map(|part| &part.scope_spans);
    scopes.flat_map(|scope| &scope.spans)
}

/// Whether a span is about what the controller does, and not about what happens to the Job.
pub(super) fn is_work(span: &OtlpSpan) -> bool {
    span.name == "reconcile" || span.name.starts_with("api.")
}

/// A span in a few words: its name, and what tells it from others of the name.
pub(super) fn label(span: &OtlpSpan) -> String {
    let text = |key: &str| span.attribute(key);
    let with = |words: &str, key: &str| Some(format!("{words} {}", text(key)?));
    let details = match &*span.name {
        "pod" => vec![
            text(names::K8S_POD_NAME),
            with("index", "yardmaster.pod.index"),
            with("on", names::K8S_NODE_NAME),
            text("yardmaster.pod.outcome").filter(|outcome| outcome != "Succeeded"),
            with("exit code", names::PROCESS_EXIT_CODE).filter(|code| code != "exit code 0"),
        ],
        "job" => vec![text("yardmaster.reason")],
        "reconcile" => vec![text("yardmaster.cause")],
        name if name.starts_with("wait.") => vec![text("yardmaster.wait.message")],
        name if name.starts_with("handover.") => vec![with("epoch", "yardmaster.epoch")],
        name if name.starts_with("api.") => vec![text(names::HTTP_RESPONSE_STATUS_CODE)],
        _ => Vec::new(),
    };
    let failure = span.failure().filter(|why| !why.is_empty()).map(str::to_owned);
    let mut shown = vec![];
    for detail in details.into_iter().chain([failure]).flatten() {
        if !shown.contains(&detail) {
            shown.push(detail);
        }
    }
    printable(format!("{} {}", span.name, shown.join(", ")).trim_end())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::telemetry::traces::otlp::{
        OtlpAttribute, OtlpResource, OtlpResourceSpans, OtlpScopeSpans, OtlpStatus,
    };

    /// A span of the Job `ml/train` between these milliseconds.
    pub(in crate::cli::trace) fn span(id: &str, parent: &str, name: &str, from: u64, to: u64) -> OtlpSpan {
        let attributes = [(names::K8S_NAMESPACE_NAME, "ml"), (names::K8S_JOB_NAME, "train")];
        let span = OtlpSpan {
            trace_id: "1".into(),
            span_id: id.into(),
            parent_span_id: parent.into(),
            name: name.into(),
            start_time_unix_nano: 1_000_000_000 + from * 1_000_000,
            end_time_unix_nano: 1_000_000_000 + to * 1_000_000,
            ..OtlpSpan::default()
        };
        attributes.into_iter().fold(span, |span, (key, value)| with(span, key, value))
    }

    pub(in crate::cli::trace) fn with(mut span: OtlpSpan, key: &str, value: &str) -> OtlpSpan {
        let value = json!({"stringValue": value});
        span.attributes.push(OtlpAttribute { key: key.into(), value });
        span
    }

    pub(in crate::cli::trace) fn failed(span: OtlpSpan, why: &str) -> OtlpSpan {
        OtlpSpan { status: OtlpStatus { code: 2, message: why.into() }, ..span }
    }

    /// Spans of a replica.
    pub(in crate::cli::trace) fn of(replica: &str, spans: Vec<OtlpSpan>) -> OtlpTraces {
        let value = json!({"stringValue": replica});
        let instance = OtlpAttribute { key: names::SERVICE_INSTANCE_ID.into(), value };
        let resource = OtlpResource { attributes: vec![instance] };
        let scope_spans = vec![OtlpScopeSpans { spans, ..OtlpScopeSpans::default() }];
        OtlpTraces { resource_spans: vec![OtlpResourceSpans { resource, scope_spans }] }
    }

    fn joined(parts: Vec<OtlpTraces>) -> OtlpTraces {
        OtlpTraces { resource_spans: parts.into_iter().flat_map(|part| part.resource_spans).collect() }
    }

    #[test]
    fn the_latest_job_of_a_name_is_chosen_with_the_spans_of_all_replicas() {
        let older = OtlpSpan { trace_id: "0".into(), ..span("a", "", "job", 0, 10) };
        let start = span("b", "c", "job.start", 20, 30);
        // Only the first spans need the name.
        let pod = OtlpSpan { attributes: Vec::new(), ..span("d", "c", "pod", 30, 50) };
        let other = OtlpSpan { attributes: Vec::new(), trace_id: "2".into(), ..span("e", "", "job", 90, 99) };
        let traces = joined(vec![
            of("first", vec![older, start.clone(), other]),
            of("second", vec![start, pod]),
            of("third", vec![]),
        ]);
        let found = JobSpans::choose(traces.clone(), Some("ml"), "train");
        let found = found.map(|found| {
            let ids: Vec<_> = found.spans().map(|span| span.span_id.clone()).collect();
            (found.trace_id, ids, found.replicas, found.traces.resource_spans.len())
        });
        let replicas = BTreeSet::from(["first".to_owned(), "second".to_owned()]);
        assert_eq!(found, Some(("1".to_owned(), vec!["b".to_owned(), "d".to_owned()], replicas, 2)));
        for (namespace, name, is_found) in
            [(None, "train", true), (Some("other"), "train", false), (Some("ml"), "other", false)]
        {
            let found = JobSpans::choose(traces.clone(), namespace, name);
            assert_eq!(found.map(|found| found.namespace), is_found.then(|| "ml".to_owned()), "{name}");
        }
    }

    #[test]
    fn a_label_says_what_tells_a_span_from_others() {
        let pod = with(span("a", "", "pod", 0, 1), names::K8S_POD_NAME, "train-0-x7");
        let pod = with(with(pod, "yardmaster.pod.index", "0"), "yardmaster.pod.outcome", "Failed");
        let pod = with(with(pod, names::K8S_NODE_NAME, "gpu-7"), names::PROCESS_EXIT_CODE, "137");
        for (span, expected) in [
            (failed(pod, "OOMKilled"), "pod train-0-x7, index 0, on gpu-7, Failed, exit code 137, OOMKilled"),
            (failed(span("a", "", "job", 0, 1), "DeadlineExceeded"), "job DeadlineExceeded"),
            (
                failed(
                    with(span("a", "", "api.create_pod", 0, 1), names::HTTP_RESPONSE_STATUS_CODE, "403"),
                    "403",
                ),
                "api.create_pod 403",
            ),
            (span("a", "", "pod.running", 0, 1), "pod.running"),
            (
                with(span("a", "", "wait.Refused", 0, 1), "yardmaster.wait.message", "no\u{1b}[2J quota"),
                "wait.Refused no\\u{1b}[2J quota",
            ),
        ] {
            assert_eq!(label(&span), expected);
        }
    }
}
