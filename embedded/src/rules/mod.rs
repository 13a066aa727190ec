//! The rules of each kind: defaulting, preparation and validation.
//!
//! The verbs of the server are the same for every kind; a [`Strategy`] holds the differences. Everything here
//! is a pure function over JSON values.

pub mod apply;
mod claim;
mod core_kinds;
pub(crate) mod cron_schedule;
mod cronjob;
pub mod decode;
mod event;
mod field;
mod gang;
mod go_value;
mod job;
pub(crate) mod label_selector;
mod lease;
mod limit_range;
mod metadata;
mod names;
pub mod openapi;
mod pod;
pub(crate) mod quantity;
mod rbac;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod robustness;
pub mod schema;

use serde_json::Value;

pub use claim::ClaimStrategy;
pub use core_kinds::{DataStrategy, MetadataStrategy, NamespaceStrategy, ServiceStrategy};
pub use cronjob::CronJobStrategy;
pub use event::{CoreEventStrategy, EventStrategy};
pub use gang::{PodGroupStrategy, WorkloadStrategy, workload_of};
pub use job::JobStrategy;
pub use lease::LeaseStrategy;
pub use limit_range::LimitRangeStrategy;
pub(crate) use pod::resources::{amount_of_containers, quantity as quantity_of};
pub use pod::{PodStrategy, bind};
pub use rbac::{RoleBindingStrategy, RoleStrategy};

/// The Job, with its defaults, that a Kubernetes API server would create for this manifest with strict field
/// validation. Nothing is created.
///
/// A manifest with `generateName` is checked with the longest possible name.
///
/// # Errors
/// All reasons why the server would refuse it.
pub fn job_of_manifest(manifest: &Value) -> Result<Value, Vec<Cause>> {
    let mut job = decoded_strictly(manifest)?;
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
    let causes = rules.validate_create(&job);
    if causes.is_empty() { Ok(job) } else { Err(causes) }
}

/// The Job, if it has no unknown fields and no values of a wrong type. Otherwise all of them are reported,
/// although Kubernetes' decoder ends at the first.
fn decoded_strictly(manifest: &Value) -> Result<Value, Vec<Cause>> {
    let wrong_type =
        |error: decode::TypeError| Cause::new(CauseReason::TypeInvalid, error.field, error.problem);
    let unknown = |error: &String| {
        let (message, field) = error.split_once(" \"").unwrap_or((error, ""));
        Cause::new(CauseReason::Invalid, field.trim_end_matches('"'), message)
    };
    match decode::from_value("batch/v1", "Job", manifest.clone()) {
        Ok(decoded) if decoded.strict.is_empty() => Ok(decoded.object),
        Ok(decoded) => Err(decoded.strict.iter().map(unknown).collect()),
        Err(decode::DecodeError::Type { first, others, strict }) => {
            let types = std::iter::once(first).chain(others).map(wrong_type);
            Err(types.chain(strict.iter().map(unknown)).collect())
        }
        Err(decode::DecodeError::Syntax(message)) => {
            Err(vec![Cause::new(CauseReason::TypeInvalid, "", message)])
        }
    }
}

/// All reasons why a Kubernetes API server would refuse the pods of this Job, although it has accepted the
/// Job. The rules of pods are stricter than those of their templates.
pub fn refusals_of_pods(job: &Value) -> Vec<Cause> {
    let mut pod = job["spec"]["template"].clone();
    let namespace = job["metadata"]["namespace"].clone();
    let metadata = metadata::object_at(&mut pod, "metadata");
    metadata.insert("name".into(), SAMPLE_POD.into());
    metadata.insert("namespace".into(), namespace);
    metadata.insert("uid".into(), SAMPLE_UID.into());
    // As the admission plugin ServiceAccount does.
    metadata::default_text(metadata::object_at(&mut pod, "spec"), "serviceAccountName", "default");
    let rules = PodStrategy;
    rules.default_object(&mut pod);
    rules.prepare_create(&mut pod);
    let in_job = |cause: Cause| Cause { field: format!("spec.template.{}", cause.field), ..cause };
    rules.validate_create(&pod).into_iter().map(in_job).collect()
}

/// Maximum length of the part of `generateName` in the name, in bytes.
const GENERATE_NAME_MAX: usize = 58;
/// A suffix like those that the server generates.
const SAMPLE_SUFFIX: &str = "bcdfg";
/// A name of a pod.
const SAMPLE_POD: &str = "sample";
/// A uid like those that the server generates.
const SAMPLE_UID: &str = "00000000-0000-4000-8000-000000000000";

fn cut(text: &str, max: usize) -> &str {
    text.char_indices().find(|(start, c)| start + c.len_utf8() > max).map_or(text, |(end, _)| &text[..end])
}

/// A reason why an object was refused, as in `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: CauseReason,
    /// Path of the field, such as `spec.template.spec.containers[0].name`.
    pub field: String,
    /// Human-readable text without the field path, such as `Invalid value: "x": must be ...`.
    pub message: String,
    /// If Kubernetes names only the map at `field`, the key in it that is meant. No answer of the API shows
    /// it.
    pub entry: Option<String>,
}

impl Cause {
    /// A cause that names the field that is meant.
    pub(crate) fn new(reason: CauseReason, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into(), entry: None }
    }
}

/// The kinds of causes in field validation (`metav1.CauseType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    /// A required field is absent.
    Required,
    /// A value is malformed or not allowed in combination with others.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A value is repeated where it must be unique.
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

/// The part of an object that a request writes.
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

/// Handling of unknown and repeated fields (`fieldValidation` of a request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and add a `Warning` header to the response.
    Warn,
    /// Refuse the request.
    Strict,
}

/// The rules that one kind adds to the generic verbs, like a registry strategy of Kubernetes.
///
/// Every object, including the result of a patch, is first [decoded](decode) as its type, so that rules only
/// see canonical values.
///
/// On create, the server calls [`default_object`](Self::default_object),
/// [`prepare_create`](Self::prepare_create) (when uid, name and creationTimestamp are already set),
/// [`validate_create`](Self::validate_create), [`warnings`](Self::warnings) and
/// [`default_read_back`](Self::default_read_back). On update and patch, it calls `default_object`,
/// [`prepare_update`](Self::prepare_update), [`validate_update`](Self::validate_update) and `warnings`.
///
/// Field managers are tracked ([`apply::track_update`]) after defaulting and before preparation, because
/// fields that the server generates have no manager. `validate_create` and `validate_update` also validate
/// the metadata that all kinds share (names, labels, finalizers, owner references), so that causes have the
/// order of Kubernetes.
pub trait Strategy: Send + Sync {
    /// Fills in absent fields with the versioned defaults of the API.
    fn default_object(&self, _object: &mut Value) {}

    /// Sets or clears fields that a client cannot choose on creation (status, generation, generated labels).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Fills in defaults that Kubernetes adds only when it reads the new object back from its store, after
    /// validation.
    ///
    /// Returns `true` if it added any. The stored object lacks them, so the next write makes a new version
    /// even if it changes nothing.
    fn default_read_back(&self, _object: &mut Value) -> bool {
        false
    }

    /// All reasons to refuse the creation of this object.
    fn validate_create(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Restores fields that this request cannot change, and raises the generation if the spec differs.
    fn prepare_update(&self, _subresource: Subresource, _old: &Value, _new: &mut Value) {}

    /// All reasons to refuse this update.
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
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn manifest(spec: Value) -> Value {
        let mut spec = spec;
        spec["template"] =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "long-"}, "spec": spec})
    }

    #[test]
    fn manifests_are_checked_without_a_server() {
        let job = job_of_manifest(&manifest(json!({"parallelism": 2}))).unwrap();
        assert_eq!((&job["spec"]["parallelism"], &job["spec"]["backoffLimit"]), (&json!(2), &json!(6)));
        let fields = |spec: Value| -> Vec<(CauseReason, String)> {
            let causes = job_of_manifest(&manifest(spec)).unwrap_err();
            causes.into_iter().map(|cause| (cause.reason, cause.field)).collect()
        };
        let indexed = json!({"completionMode": "Indexed", "parallelism": -1});
        let wanted = [
            (CauseReason::Invalid, "spec.parallelism".to_owned()),
            (CauseReason::Required, "spec.completions".to_owned()),
        ];
        assert_eq!(fields(indexed), wanted);
        let unknown = fields(json!({"paralellism": 2}));
        assert_eq!(unknown, [(CauseReason::Invalid, "spec.paralellism".to_owned())]);
        let image = |image: &str| {
            let mut manifest = manifest(json!({}));
            manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
            refusals_of_pods(&job_of_manifest(&manifest).unwrap())
        };
        assert_eq!(image("i"), []);
        assert_eq!(image(" i")[0].field, "spec.template.spec.containers[0].image");
        let mistyped = fields(json!({"parallelism": "2"}));
        assert_eq!(mistyped, [(CauseReason::TypeInvalid, "spec.parallelism".to_owned())]);
        // Both kinds of mistakes are reported at once.
        let both = fields(json!({"paralelism": 2, "completions": "x"}));
        let wanted = [
            (CauseReason::TypeInvalid, "spec.completions".to_owned()),
            (CauseReason::Invalid, "spec.paralelism".to_owned()),
        ];
        assert_eq!(both, wanted);
    }
}
