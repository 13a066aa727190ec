//! Decoding of request bodies to a JSON value of the right kind, with the error messages of Kubernetes.

use serde_json::{Map, Value};

use super::media;
use crate::error::ApiError;
use crate::protobuf;
use crate::resources::{RESOURCES, Resource};
use crate::rules::{self, FieldValidation};

/// The text format of a body.
#[derive(Clone, Copy)]
enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// A decoded body.
pub(crate) struct Body {
    /// The object in the form that Kubernetes would write.
    pub(crate) object: Value,
    /// Unknown and repeated fields, for `Warning` headers. Empty under strict validation, which refuses them.
    pub(crate) warnings: Vec<String>,
}

/// Decodes the object of a create or update. A missing kind or apiVersion defaults to the resource's.
pub(crate) fn object(
    kind: &str,
    group: &str,
    version: &str,
    content_type: &str,
    body: &[u8],
) -> Result<Value, ApiError> {
    let value = parse(kind, content_type, body)?;
    check_kind(kind, group, version, &value, body)?;
    Ok(value)
}

/// Decodes an object as the type of its resource.
pub(crate) fn of(
    resource: &Resource,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Body, ApiError> {
    let is_json = matches!(format(content_type), Some(BodyFormat::Json));
    let api_version = resource.api_version();
    let usual = is_json && is_plainly(resource.kind, &api_version, body);
    let decoded = if usual {
        rules::decode::from_json(&api_version, resource.kind, body)
    } else {
        let value = object(resource.kind, resource.group, resource.version, content_type, body)?;
        if is_json {
            // From the text, because a parsed value does not show repeated fields.
            rules::decode::from_json(&api_version, resource.kind, body)
        } else {
            rules::decode::from_value(&api_version, resource.kind, value)
        }
    };
    let decoded = decoded.map_err(|problem| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {problem}",
            resource.kind, resource.version, resource.kind
        ))
    })?;
    let object = if decoded.object.is_object() { decoded.object } else { Value::Object(Map::new()) };
    match validation {
        FieldValidation::Strict if !decoded.strict.is_empty() => Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            resource.kind,
            resource.version,
            resource.kind,
            decoded.strict.join(", ")
        ))),
        FieldValidation::Warn => Ok(Body { object, warnings: decoded.strict }),
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Body { object, warnings: Vec::new() }),
    }
}

/// Whether a body is well-formed and names its kind and version, as most do. The check takes one pass and
/// allocates nothing for the object.
fn is_plainly(kind: &str, api_version: &str, body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct TypeMeta<'a> {
        #[serde(borrow)]
        kind: Option<&'a str>,
        #[serde(borrow, rename = "apiVersion")]
        api_version: Option<&'a str>,
    }
    serde_json::from_slice(body)
        .is_ok_and(|meta: TypeMeta<'_>| meta.kind == Some(kind) && meta.api_version == Some(api_version))
}

/// The format that a Content-Type names; as in Kubernetes, JSON if there is none.
fn format(content_type: &str) -> Option<BodyFormat> {
    let essence = media::essence(content_type);
    [
        ("", BodyFormat::Json),
        ("application/json", BodyFormat::Json),
        ("application/yaml", BodyFormat::Yaml),
        ("application/vnd.kubernetes.protobuf", BodyFormat::Protobuf),
    ]
    .into_iter()
    .find_map(|(name, format)| essence.eq_ignore_ascii_case(name).then_some(format))
}

fn parse(kind: &str, content_type: &str, body: &[u8]) -> Result<Value, ApiError> {
    let format = format(content_type).ok_or_else(ApiError::unsupported_media_type)?;
    let unrecognized = |problem: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: {problem} ({})",
            summary(body)
        ))
    };
    let value = match format {
        BodyFormat::Json => json(body).map_err(unrecognized)?,
        BodyFormat::Protobuf => protobuf::decode(body).map_err(ApiError::bad_request)?,
        BodyFormat::Yaml => {
            let text = std::str::from_utf8(body).map_err(|error| unrecognized(error.to_string()))?;
            yardmaster_manifest::value(text.as_bytes()).map_err(|error| unrecognized(error.to_string()))?
        }
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        other => Err(unrecognized(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(&other)
        ))),
    }
}

/// Decodes the `DeleteOptions` of a DELETE.
pub(crate) fn delete_options(content_type: &str, body: &[u8]) -> Result<Value, ApiError> {
    if !matches!(format(content_type), Some(BodyFormat::Json)) {
        return parse("DeleteOptions", content_type, body);
    }
    let value = json(body).map_err(|problem| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {problem}"))
    })?;
    match value["kind"].as_str() {
        None | Some("" | "DeleteOptions") => Ok(value),
        Some(other) => Err(ApiError::bad_request(format!(
            "no kind \"{other}\" is registered for version \"{}\" in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            value["apiVersion"].as_str().unwrap_or_default()
        ))),
    }
}

/// The JSON type of a value in the words of Go's decoder.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_kind(kind: &str, group: &str, version: &str, value: &Value, body: &[u8]) -> Result<(), ApiError> {
    let have_kind = value["kind"].as_str().filter(|kind| !kind.is_empty()).unwrap_or(kind);
    let have_version = value["apiVersion"].as_str().unwrap_or_default();
    let (have_group, have_version) = match have_version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => (group, version),
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): unexpected GroupVersion string: \
                 {have_version} ({})",
                summary(body)
            )));
        }
    };
    if (have_kind, have_group, have_version) == (kind, group, version) {
        return Ok(());
    }
    let known = (have_kind, have_group, have_version) == ("List", "", "v1")
        || RESOURCES
            .iter()
            .any(|one| (one.kind, one.group, one.version) == (have_kind, have_group, have_version));
    let why = if known {
        format!("converting ({have_version}.{have_kind}) to ({}.{kind}): unknown conversion", package(group))
    } else {
        format!(
            "no kind \"{have_kind}\" is registered for version \"{}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            crate::resources::api_version(have_group, have_version)
        )
    };
    Err(ApiError::bad_request(format!(
        "{have_kind} in version \"{have_version}\" cannot be handled as a {kind}: {why}"
    )))
}

/// The error message for a patch that changes the kind; `None` if the kind is still the resource's.
pub(crate) fn changed_kind(resource: &Resource, value: &Value) -> Option<String> {
    let (kind, version) = (value["kind"].as_str()?, value["apiVersion"].as_str()?);
    if kind == resource.kind && version == resource.api_version() {
        return None;
    }
    let version = version.rsplit('/').next().unwrap_or(version);
    let package = package(resource.group);
    Some(format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", resource.kind))
}

/// The Go package of a group's internal types.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// The beginning of a body, for error messages.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (shown, more) = match body.get(..SHOWN) {
        Some(shown) if body.len() > SHOWN => (shown, " ..."),
        _ => (body, ""),
    };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Parses JSON; errors have the words of Go's decoder.
pub(crate) fn json(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let problem = error.to_string();
        if error.is_eof() {
            return "unexpected end of JSON input".into();
        }
        let start: usize = body
            .split_inclusive(|byte| *byte == b'\n')
            .take(error.line().saturating_sub(1))
            .map(<[u8]>::len)
            .sum();
        let at = start + error.column().saturating_sub(1);
        let letter = match char::from(body.get(at).copied().unwrap_or(b' ')) {
            control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
            letter => letter.to_string(),
        };
        let place = if problem.starts_with("trailing characters") {
            "after top-level value"
        } else if problem.starts_with("expected `:`") {
            "after object key"
        } else if problem.starts_with("expected `,` or `}`") {
            "after object key:value pair"
        } else if problem.starts_with("expected `,` or `]`") {
            "after array element"
        } else if problem.starts_with("key must be a string") {
            "looking for beginning of object key string"
        } else if problem.starts_with("recursion limit") {
            return "invalid character '{' exceeded max depth".into();
        } else {
            "looking for beginning of value"
        };
        format!("invalid character '{letter}' {place}")
    })
}
