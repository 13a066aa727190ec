//! What each kind of object means to the API server: defaulting, preparation and validation.
//!
//! The verbs of the server are the same for every kind; what differs between kinds is a [`Strategy`]. Everything
//! here is a pure function over JSON values.

pub mod apply;
mod core_kinds;
mod cronjob;
pub mod decode;
mod event;
mod field;
mod gang;
mod job;
mod label_selector;
mod lease;
mod metadata;
mod names;
pub mod openapi;
mod pod;
mod quantity;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod robustness;
pub mod schema;

use serde_json::Value;

pub use core_kinds::{DataStrategy, MetadataStrategy, NamespaceStrategy, ServiceStrategy};
pub use cronjob::CronJobStrategy;
pub use event::{CoreEventStrategy, EventStrategy};
pub use gang::{PodGroupStrategy, WorkloadStrategy, workload_of};
pub use job::JobStrategy;
pub use lease::LeaseStrategy;
pub use pod::{PodStrategy, bind};

/// All reasons why a Kubernetes API server would refuse the creation of this Job manifest with strict field
/// validation, before anything is created.
///
/// A manifest with `generateName` is checked with the longest name that it can get.
pub fn check_job_manifest(manifest: &Value) -> Vec<Cause> {
    let decoded = match decode::from_value("batch/v1", "Job", manifest.clone()) {
        Ok(decoded) => decoded,
        Err(error) => {
            let message = error.to_string();
            let field = mistyped_field(&message).unwrap_or_default().to_owned();
            return vec![Cause { reason: CauseReason::TypeInvalid, field, message }];
        }
    };
    if !decoded.strict.is_empty() {
        let cause = |error: &String| {
            let (message, field) = error.split_once(" \"").unwrap_or((error, ""));
            let field = field.trim_end_matches('"');
            Cause { reason: CauseReason::Invalid, field: field.to_owned(), message: message.to_owned() }
        };
        return decoded.strict.iter().map(cause).collect();
    }
    let mut job = decoded.object;
    let metadata = metadata::object_at(&mut job, "metadata");
    if let Some(prefix) = metadata.get("generateName").and_then(Value::as_str).map(str::to_owned) {
        metadata::default_text(
            metadata,
            "name",
            &format!("{}{SAMPLE_SUFFIX}", cut(&prefix, GENERATE_NAME_MAX)),
        );
    }
    metadata::default_text(metadata, "namespace", "default");
    metadata.insert("uid".into(), SAMPLE_UID.into());
    let rules = JobStrategy;
    rules.default_object(&mut job);
    rules.prepare_create(&mut job);
    rules.validate_create(&job)
}

/// The path in `... into Go struct field JobSpec.spec.parallelism of type int32`.
fn mistyped_field(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Go struct field ")?;
    let (path, _) = rest.split_once(" of type")?;
    path.split_once('.').map(|(_, path)| path)
}

/// Bytes of a `generateName` that remain in the name.
const GENERATE_NAME_MAX: usize = 58;
/// A suffix as the server generates it.
const SAMPLE_SUFFIX: &str = "bcdfg";
/// A uid as the server generates it.
const SAMPLE_UID: &str = "00000000-0000-4000-8000-000000000000";

fn cut(text: &str, max: usize) -> &str {
    text.char_indices().find(|(start, c)| start + c.len_utf8() > max).map_or(text, |(end, _)| &text[..end])
}

/// One reason why an object was refused, as in `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: CauseReason,
    /// Path of the field, such as `spec.template.spec.containers[0].name`.
    pub field: String,
    /// Human-readable text without the field path, such as `Invalid value: "x": must be ...`.
    pub message: String,
}

/// The kinds of causes that field validation knows (`metav1.CauseType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    /// A required field is absent.
    Required,
    /// A value is malformed or not allowed in combination with others.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A value stands twice where it may stand once.
    Duplicate,
    /// A string is too long.
    TooLong,
    /// A list is too long.
    TooMany,
    /// A field may not be set by this request.
    Forbidden,
    /// A referenced value does not exist.
    NotFound,
    /// A value is of the wrong type.
    TypeInvalid,
    /// The server failed while validating.
    Internal,
}

/// The part of an object that a request writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// The object itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`.
    Scale,
    /// `/binding` (pods).
    Binding,
}

/// How strictly unknown and repeated fields are taken (`fieldValidation` of a request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them, and answer with a `Warning` header.
    Warn,
    /// Refuse the request.
    Strict,
}

/// What one kind adds to the generic verbs: Kubernetes' registry strategy.
///
/// Every object is [decoded](decode) by its type first, also the result of a patch, so that rules meet canonical values
/// only. The server calls, on create: [`default`](Self::default_object), [`prepare_create`](Self::prepare_create) (metadata
/// such as uid, name and creationTimestamp are set by then), [`validate_create`](Self::validate_create),
/// [`warnings`](Self::warnings), [`default_read_back`](Self::default_read_back); on update and patch: `default_object`, [`prepare_update`](Self::prepare_update),
/// [`validate_update`](Self::validate_update), `warnings`. Managers of fields are tracked
/// ([`apply::track_update`]) after defaulting and before preparation, since what the server generates belongs to
/// nobody. Object metadata that every kind shares (names, labels,
/// finalizers, owner references) is validated by `validate_create` and `validate_update`, too, so that causes come
/// in the order in which Kubernetes gives them.
pub trait Strategy: Send + Sync {
    /// Fills in what the object leaves out, as the versioned defaults of the API do.
    fn default_object(&self, _object: &mut Value) {}

    /// Sets and clears what a client may not choose on creation (status, generation, generated labels).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Fills in defaults that Kubernetes adds only when it reads the new object back from its store, after validation.
    ///
    /// `true` if it added any: what is stored lacks them, so that the next write makes a new version even where it
    /// changes nothing.
    fn default_read_back(&self, _object: &mut Value) -> bool {
        false
    }

    /// All reasons to refuse the creation of this object.
    fn validate_create(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Carries over what this request may not change, and raises the generation where the spec differs.
    fn prepare_update(&self, _subresource: Subresource, _old: &Value, _new: &mut Value) {}

    /// All reasons to refuse this change.
    fn validate_update(&self, _subresource: Subresource, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Texts for `Warning` headers; `old` is `None` on creation.
    fn warnings(&self, _subresource: Subresource, _old: Option<&Value>, _new: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(spec: Value) -> Value {
        let mut spec = spec;
        spec["template"] =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "long-"}, "spec": spec})
    }

    #[test]
    fn manifests_are_checked_before_they_run() {
        assert_eq!(check_job_manifest(&manifest(json!({"parallelism": 2}))), []);
        let fields = |spec: Value| -> Vec<(CauseReason, String)> {
            check_job_manifest(&manifest(spec)).into_iter().map(|cause| (cause.reason, cause.field)).collect()
        };
        let indexed = json!({"completionMode": "Indexed", "parallelism": -1});
        let wanted = [
            (CauseReason::Invalid, "spec.parallelism".to_owned()),
            (CauseReason::Required, "spec.completions".to_owned()),
        ];
        assert_eq!(fields(indexed), wanted);
        let unknown = fields(json!({"paralellism": 2}));
        assert_eq!(unknown, [(CauseReason::Invalid, "spec.paralellism".to_owned())]);
        let mistyped = fields(json!({"parallelism": "2"}));
        assert_eq!(mistyped, [(CauseReason::TypeInvalid, "spec.parallelism".to_owned())]);
    }
}
