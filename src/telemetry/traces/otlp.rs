//! Spans as OTLP in JSON, the format of collectors' files.
//!
//! Readers accept numbers of 64 bits as texts and as numbers, and ignore fields that they do not know.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{Array, KeyValue};
use opentelemetry_sdk::trace::SpanData;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// The code of a status that is an error.
const ERROR: u8 = 2;

/// Spans by the process that they come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtlpTraces {
    /// A part for each process.
    pub resource_spans: Vec<OtlpResourceSpans>,
}

/// The spans of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtlpResourceSpans {
    /// The process.
    pub resource: OtlpResource,
    /// A part for each library that made spans.
    pub scope_spans: Vec<OtlpScopeSpans>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpResource {
    /// Its attributes, such as `service.instance.id`.
    pub attributes: Vec<OtlpAttribute>,
}

/// The spans of a library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpScopeSpans {
    /// The library.
    pub scope: OtlpScope,
    /// The spans.
    pub spans: Vec<OtlpSpan>,
}

/// A library that makes spans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpScope {
    /// Its name.
    pub name: String,
}

/// A span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtlpSpan {
    /// The trace, in hexadecimal digits.
    pub trace_id: String,
    /// The span, in hexadecimal digits.
    pub span_id: String,
    /// The span above it; empty for a root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_span_id: String,
    /// The name.
    pub name: String,
    /// The number of its kind.
    pub kind: u8,
    /// When it began, in nanoseconds since 1970.
    #[serde(serialize_with = "as_text", deserialize_with = "text_or_number")]
    pub start_time_unix_nano: u64,
    /// When it ended, in nanoseconds since 1970.
    #[serde(serialize_with = "as_text", deserialize_with = "text_or_number")]
    pub end_time_unix_nano: u64,
    /// Attributes.
    pub attributes: Vec<OtlpAttribute>,
    /// Spans of other traces that it belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<OtlpLink>,
    /// Whether it failed.
    pub status: OtlpStatus,
}

/// An attribute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpAttribute {
    /// Its name.
    pub key: String,
    /// An object with one field, whose name is the type.
    pub value: Value,
}

/// A span of another trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtlpLink {
    /// The trace, in hexadecimal digits.
    pub trace_id: String,
    /// The span, in hexadecimal digits.
    pub span_id: String,
}

/// How a span ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpStatus {
    /// 0 for none, 1 for success, 2 for an error.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u8,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl OtlpAttribute {
    /// The value as a text; `None` for lists and objects.
    pub fn text(&self) -> Option<String> {
        match self.value.as_object()?.values().next()? {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            _ => None,
        }
    }
}

/// The value of one of these attributes.
pub fn attribute_of(attributes: &[OtlpAttribute], key: &str) -> Option<String> {
    attributes.iter().find(|attribute| attribute.key == key)?.text()
}

impl OtlpSpan {
    /// The value of an attribute.
    pub fn attribute(&self, key: &str) -> Option<String> {
        attribute_of(&self.attributes, key)
    }

    /// Why it failed, if it did; possibly an empty text.
    pub fn failure(&self) -> Option<&str> {
        (self.status.code == ERROR).then_some(&self.status.message)
    }
}

impl From<&KeyValue> for OtlpAttribute {
    fn from(attribute: &KeyValue) -> Self {
        Self { key: attribute.key.to_string(), value: any_value(&attribute.value) }
    }
}

impl From<&SpanData> for OtlpSpan {
    fn from(span: &SpanData) -> Self {
        let context = &span.span_context;
        let is_root = span.parent_span_id == SpanId::INVALID;
        let link = |link: &opentelemetry::trace::Link| OtlpLink {
            trace_id: link.span_context.trace_id().to_string(),
            span_id: link.span_context.span_id().to_string(),
        };
        let status = match &span.status {
            Status::Error { description } => OtlpStatus { code: ERROR, message: description.to_string() },
            Status::Ok => OtlpStatus { code: 1, ..OtlpStatus::default() },
            Status::Unset => OtlpStatus::default(),
        };
        Self {
            trace_id: context.trace_id().to_string(),
            span_id: context.span_id().to_string(),
            parent_span_id: if is_root { String::new() } else { span.parent_span_id.to_string() },
            name: span.name.to_string(),
            kind: match span.span_kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
            start_time_unix_nano: nanos(span.start_time),
            end_time_unix_nano: nanos(span.end_time),
            attributes: span.attributes.iter().map(OtlpAttribute::from).collect(),
            links: span.links.iter().map(link).collect(),
            status,
        }
    }
}

fn any_value(value: &opentelemetry::Value) -> Value {
    use opentelemetry::Value as Any;
    match value {
        Any::Bool(value) => json!({"boolValue": value}),
        Any::I64(value) => json!({"intValue": value.to_string()}),
        Any::F64(value) => json!({"doubleValue": value}),
        Any::Array(list) => json!({"arrayValue": {"values": elements(list)}}),
        other => json!({"stringValue": other.as_str()}),
    }
}

fn elements(list: &Array) -> Vec<Value> {
    use opentelemetry::Value as Any;
    match list {
        Array::Bool(values) => values.iter().map(|value| any_value(&Any::Bool(*value))).collect(),
        Array::I64(values) => values.iter().map(|value| any_value(&Any::I64(*value))).collect(),
        Array::F64(values) => values.iter().map(|value| any_value(&Any::F64(*value))).collect(),
        Array::String(values) => values.iter().map(|value| any_value(&Any::String(value.clone()))).collect(),
        // Types of later versions.
        _ => Vec::new(),
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn is_zero(code: &u8) -> bool {
    *code == 0
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let problem = || serde::de::Error::custom("expected nanoseconds since 1970");
    match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().map_err(|_| problem()),
        number => number.as_u64().ok_or_else(problem),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A line of a file that a collector wrote, with fields that only other programs use.
    const LINE: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"yardmaster-0"}}],"droppedAttributesCount":0},
        "scopeSpans":[{"scope":{"name":"yardmaster"},"schemaUrl":"","spans":[{"traceId":"0b8f5a3e9d4c4a518a2b6f7e1c2d3e4f","spanId":"00f067aa0ba902b7","parentSpanId":"","flags":257,
        "name":"job","kind":1,"startTimeUnixNano":"1780000000000000000","endTimeUnixNano":1780000001500000000,
        "attributes":[{"key":"yardmaster.failed","value":{"intValue":"3"}},{"key":"k8s.job.name","value":{"stringValue":"train"}},{"key":"list","value":{"arrayValue":{"values":[]}}}],
        "events":[],"status":{"message":"BackoffLimitExceeded","code":2}}]}]}]}"#;

    #[test]
    fn a_line_of_a_collector_is_read_and_written_again() {
        let traces: OtlpTraces = serde_json::from_str(LINE).unwrap();
        let part = &traces.resource_spans[0];
        let span = &part.scope_spans[0].spans[0];
        assert_eq!(
            attribute_of(&part.resource.attributes, "service.instance.id").as_deref(),
            Some("yardmaster-0")
        );
        assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 1_500_000_000);
        assert_eq!(span.failure(), Some("BackoffLimitExceeded"));
        for (key, value) in
            [("yardmaster.failed", Some("3")), ("k8s.job.name", Some("train")), ("list", None), ("no", None)]
        {
            assert_eq!(span.attribute(key).as_deref(), value, "{key}");
        }
        let written = serde_json::to_string(&traces).unwrap();
        assert!(written.contains(r#""endTimeUnixNano":"1780000001500000000""#), "{written}");
        assert_eq!(serde_json::from_str::<OtlpTraces>(&written).unwrap(), traces);
    }

    #[test]
    fn absent_fields_have_their_defaults_and_wrong_ones_are_refused() {
        assert_eq!(serde_json::from_str::<OtlpTraces>("{}").unwrap(), OtlpTraces::default());
        let span: OtlpSpan = serde_json::from_str(r#"{"name":"job","status":{}}"#).unwrap();
        assert_eq!((span.failure(), span.start_time_unix_nano), (None, 0));
        for wrong in ["[1]", r#"{"startTimeUnixNano":"soon"}"#, r#"{"startTimeUnixNano":-1}"#] {
            assert!(serde_json::from_str::<OtlpSpan>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn attributes_have_the_names_of_their_types() {
        for (value, expected) in [
            (true.into(), json!({"boolValue": true})),
            (7_i64.into(), json!({"intValue": "7"})),
            (0.5.into(), json!({"doubleValue": 0.5})),
            ("text".into(), json!({"stringValue": "text"})),
            (
                opentelemetry::Value::Array(Array::I64(vec![1])),
                json!({"arrayValue": {"values": [{"intValue": "1"}]}}),
            ),
        ] {
            assert_eq!(any_value(&value), expected);
        }
    }
}
