//! Decoding of objects as their types, equivalent to Kubernetes' JSON decoder and encoder.
//!
//! The result contains only known fields, without nulls and empty optional fields. Quantities and times are
//! in canonical form, and the empty values that Kubernetes always writes are there. The result equals the
//! response of a real server after reading the object and writing it again.

mod time;
mod visitor;

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::schema::{Kind, Types};
use visitor::{Place, Report, Seed};

/// Maximum number of maps and lists within each other. The parser of stored objects allows 127; responses put
/// objects into lists and events.
pub(crate) const DEPTH_MAX: usize = 120;

/// A decoded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object in its canonical form.
    pub object: Value,
    /// Unknown and repeated fields in document order, such as `unknown field "spec.foo"`. Strict field
    /// validation refuses them; the default only warns.
    pub strict: Vec<String>,
}

/// Why a body is not an object of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not valid JSON.
    #[error("{0}")]
    Syntax(String),
    /// Values have the wrong type or form.
    #[error("{first}")]
    Type {
        /// The error that Kubernetes' decoder reports.
        first: TypeError,
        /// The other errors.
        others: Vec<TypeError>,
        /// Unknown and repeated fields, as in [`Decoded`]. Kubernetes' decoder does not get as far.
        strict: Vec<String>,
    },
}

/// A value of the wrong type or form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// The path of the value, such as `spec.template.spec.containers[0].env[1].value`.
    pub field: String,
    /// The message of Kubernetes' decoder.
    pub message: String,
    /// The same for people: what the value must be, and what it is.
    pub problem: String,
}

/// Decodes a JSON body as an object of a kind, such as (`batch/v1`, `Job`). A kind without a schema is not
/// checked.
///
/// # Errors
/// The body is not valid JSON, or a value has the wrong type.
pub fn from_json(api_version: &str, kind: &str, body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let decoded = decode(api_version, kind, &mut deserializer)?;
    deserializer.end().map_err(|error| DecodeError::Syntax(error.to_string()))?;
    Ok(decoded)
}

/// Decodes a JSON value, such as the result of a patch or of parsing YAML.
///
/// # Errors
/// A value has the wrong type.
pub fn from_value(api_version: &str, kind: &str, value: Value) -> Result<Decoded, DecodeError> {
    decode(api_version, kind, value)
}

fn decode<'de, D>(api_version: &str, kind: &str, deserializer: D) -> Result<Decoded, DecodeError>
where
    D: serde::Deserializer<'de>,
    D::Error: std::fmt::Display,
{
    let ty = Types::get().of_kind(api_version, kind).map_or(Kind::Raw, Kind::Struct);
    let mut report = Report::default();
    let root = Place::root();
    let seed = Seed { kind: &ty, place: &root, owner: None, go_type: None, report: &mut report };
    let object = seed.deserialize(deserializer).map_err(|error| DecodeError::Syntax(error.to_string()))?;
    let mut errors = report.errors.into_iter();
    match errors.next() {
        Some(first) => Err(DecodeError::Type { first, others: errors.collect(), strict: report.strict }),
        None => Ok(Decoded { object: object.unwrap_or(Value::Null), strict: report.strict }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn job(body: &str) -> Result<Decoded, DecodeError> {
        from_json("batch/v1", "Job", body.as_bytes())
    }

    fn error(body: &str) -> String {
        job(body).unwrap_err().to_string()
    }

    #[test]
    fn optional_fields_are_left_out_when_they_are_zero_or_null() {
        let decoded = job(r#"{"kind":"Job","metadata":{"name":"j","labels":{},"creationTimestamp":null},
            "spec":{"suspend":false,"parallelism":null,"template":{"spec":{"hostNetwork":false,"containers":
            [{"name":"c","image":"","stdin":false,"resources":{"limits":{"cpu":1,"memory":"1024Mi"}}}]}}},
            "status":{"active":0,"ready":0,"uncountedTerminatedPods":{"failed":[]}}}"#);
        let wanted = json!({"kind":"Job","metadata":{"name":"j"},
            "spec":{"suspend":false,"template":{"metadata":{},"spec":{"containers":
            [{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}},
            "status":{"ready":0,"uncountedTerminatedPods":{}}});
        assert_eq!(decoded.unwrap().object, wanted);
    }

    #[test]
    fn required_fields_are_written_with_their_zero_values() {
        let decoded =
            job(r#"{"spec":{"podFailurePolicy":{}},"status":{"conditions":[{"type":"A"}]}}"#).unwrap();
        let wanted = json!({"metadata":{},
            "spec":{"podFailurePolicy":{"rules":null},"template":{"metadata":{},"spec":{"containers":null}}},
            "status":{"conditions":[{"type":"A","status":"","lastProbeTime":null,"lastTransitionTime":null}]}});
        assert_eq!(decoded.object, wanted);
    }

    #[test]
    fn unknown_and_repeated_fields_are_reported_in_document_order() {
        let decoded = job(
            r#"{"spec":{"parallelism":1,"parallelism":2,"bar":{},"template":{"spec":{"containers":[{"imag":"x"}]}}}}"#,
        );
        let decoded = decoded.unwrap();
        assert_eq!(
            decoded.strict,
            [
                r#"duplicate field "spec.parallelism""#,
                r#"unknown field "spec.bar""#,
                r#"unknown field "spec.template.spec.containers[0].imag""#,
            ]
        );
        assert_eq!(decoded.object["spec"]["parallelism"], 2);
    }

    #[test]
    fn a_zero_with_a_sign_is_a_whole_number() {
        let body = r#"{"spec":{"backoffLimit":-0}}"#;
        let of_value = from_value("batch/v1", "Job", serde_json::from_str(body).unwrap());
        for decoded in [job(body), of_value] {
            assert_eq!(decoded.unwrap().object["spec"]["backoffLimit"], 0);
        }
    }

    #[test]
    fn wrong_types_are_refused_in_the_words_of_go() {
        let prefix = "json: cannot unmarshal";
        assert_eq!(
            error(r#"{"spec":{"parallelism":1.0}}"#),
            format!("{prefix} number 1.0 into Go struct field JobSpec.spec.parallelism of type int32")
        );
        assert_eq!(
            error(r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#),
            format!(
                "{prefix} object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container"
            )
        );
        assert_eq!(
            error(r#"{"spec":{"completionMode":true}}"#),
            format!(
                "{prefix} bool into Go struct field JobSpec.spec.completionMode of type v1.CompletionMode"
            )
        );
        assert_eq!(
            error(r#"{"metadata":{"labels":{"a":1}}}"#),
            format!("{prefix} number into Go struct field ObjectMeta.metadata.labels of type string")
        );
    }

    #[test]
    fn all_wrong_types_are_told_with_their_place_and_in_plain_words() {
        let wrong = job(
            r#"{"metadata":{"labels":{"a/b":1}},"spec":{"parallelism":1.5,"suspend":"off","template":{"spec":{
            "containers":[{"name":"c"},{"env":[{"name":"A","value":true}],"resources":{"limits":{"cpu":"much"}},"args":{}}]}}}}"#,
        );
        let Err(DecodeError::Type { first, others, .. }) = wrong else { panic!("{wrong:?}") };
        let container = "spec.template.spec.containers[1]";
        let told = |error: &TypeError| format!("{}: {}", error.field, error.problem);
        assert_eq!(
            std::iter::once(&first).chain(&others).map(told).collect::<Vec<_>>(),
            [
                "metadata.labels.a/b: must be a string, but is a number: put it into quotes".to_owned(),
                "spec.parallelism: must be a whole number of 32 bits, but is the number 1.5".to_owned(),
                "spec.suspend: must be true or false, but is a string".to_owned(),
                format!("{container}.env[0].value: must be a string, but is a bool: put it into quotes"),
                format!(
                    "{container}.resources.limits.cpu: must be a quantity such as 500m or 2Gi, but is \"much\""
                ),
                format!("{container}.args: must be a list, but is a map"),
            ]
        );
    }

    #[test]
    fn free_form_fields_have_a_limited_depth() {
        let nested = |levels| {
            let fields = (0..levels).fold(json!({}), |inner, _| json!({"f:a": inner}));
            let object = json!({"metadata": {"managedFields": [{"fieldsV1": fields}]}});
            from_value("batch/v1", "Job", object).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(nested(DEPTH_MAX - 5), Ok(()));
        assert_eq!(nested(DEPTH_MAX), Err("json: exceeded max depth".into()));
    }

    #[test]
    fn times_are_cut_to_their_precision() {
        let decoded = job(r#"{"status":{"startTime":"2025-01-01T02:00:00.987654+02:00"}}"#).unwrap();
        assert_eq!(decoded.object["status"]["startTime"], "2025-01-01T00:00:00Z");
    }
}
