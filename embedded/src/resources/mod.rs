//! The kinds that the server serves, as data. The table is in [`kinds`].

mod event_fields;
mod kinds;

use serde_json::{Value, json};

pub(crate) use self::kinds::RESOURCES;
use super::rules::Strategy;

/// The columns of a kind; their definitions are in `columns.json` under this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    ConfigMap,
    CronJob,
    Event,
    Job,
    Lease,
    NameAge,
    NameCreated,
    Namespace,
    Node,
    Pod,
    PodGroup,
    Secret,
}

/// A kind of object and how the generic verbs handle it.
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: &'static str,
    /// API version.
    pub(crate) version: &'static str,
    /// Kind, such as `Job`.
    pub(crate) kind: &'static str,
    /// Name in paths, such as `jobs`. Kinds with the same plural share their storage, as events of both
    /// groups do.
    pub(crate) plural: &'static str,
    /// Singular, such as `job`.
    pub(crate) singular: &'static str,
    /// Short names of kubectl.
    pub(crate) short_names: &'static [&'static str],
    /// Categories, such as `all`.
    pub(crate) categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// Verbs of the object itself, in the order of discovery.
    pub(crate) verbs: &'static [&'static str],
    /// Subresources, in the order of discovery.
    pub(crate) subresources: &'static [Subresource],
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [Field],
    /// How an unknown field selector is refused.
    pub(crate) unknown_field: UnknownField,
    /// JSON of an empty object of this kind, without metadata, as bookmarks carry it. Either empty or begins
    /// with a comma.
    pub(crate) empty: &'static str,
    /// Columns of the `Table` form.
    pub(crate) columns: Columns,
    /// Whether PUT of a missing object creates it.
    pub(crate) create_on_update: bool,
    /// Whether PUT without resourceVersion overwrites.
    pub(crate) unconditional_update: bool,
    /// How a DELETE proceeds.
    pub(crate) deletion: Deletion,
    /// The feature gate that must be on for the kind to be served.
    pub(crate) gate: Option<&'static str>,
    /// The behaviour that the kind adds to the verbs.
    pub(crate) strategy: &'static dyn Strategy,
}

/// A subresource such as `status`.
pub(crate) struct Subresource {
    /// Last part of the path.
    pub(crate) name: &'static str,
    /// The kind of its requests and responses; empty means the kind of its resource.
    pub(crate) kind: &'static str,
    /// Group and version of that kind where they differ from the resource's.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    /// Verbs, in the order of discovery.
    pub(crate) verbs: &'static [&'static str],
    /// The verbs answered with 501. Discovery lists them, as in Kubernetes, but this server cannot carry them
    /// out.
    pub(crate) refused: &'static [&'static str],
}

/// A field that selectors may name.
pub(crate) struct Field {
    /// The name in selectors.
    pub(crate) label: &'static str,
    /// Path of its value in a stored object.
    pub(crate) path: &'static [&'static str],
    /// Its value when absent.
    pub(crate) default: &'static str,
}

/// The text with which unknown field selectors are refused.
#[derive(Clone, Copy)]
pub(crate) enum UnknownField {
    /// `field label not supported: F`
    Label,
    /// `field label "F" not supported for KIND`
    LabelForKind,
    /// `"F" is not a known field selector: only ...`
    Known,
}

/// How objects of a kind are deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// At once; the answer is a `Status`.
    Plain,
    /// At once by default, but dependents are orphaned by default (batch/v1 Jobs); the answer is a `Status`.
    OrphanByDefault,
    /// After the grace period in `spec.terminationGracePeriodSeconds`; the answer is the object (pods).
    Graceful,
    /// In two phases, through the finalizer in `spec.finalizers` (namespaces).
    Namespace,
}

impl Resource {
    /// `plural.group`, as messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Kind.group`, as some messages name a kind.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// `group/version`, or `version` in the core group.
    pub(crate) fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// `"kind":"K","apiVersion":"V",`
    pub(crate) fn type_meta(&self) -> String {
        format!(r#""kind":"{}","apiVersion":"{}","#, self.kind, self.api_version())
    }

    /// `Status.details` about an object of this resource.
    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({"kind": self.plural});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !self.group.is_empty() {
            details["group"] = self.group.into();
        }
        details
    }

    /// Whether the resource has this verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// A subresource by name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

impl Field {
    /// The field's value in an object, as selectors compare it.
    pub(crate) fn value(&self, object: &Value) -> String {
        let found = self.path.iter().try_fold(object, |value, part| value.get(part));
        match found {
            None | Some(Value::Null) => self.default.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// `group/version`, or `version` in the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A resource by group, version and plural.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// The plurals of all kinds; some kinds share one.
pub(crate) fn plurals() -> Vec<&'static str> {
    RESOURCES.iter().map(|resource| resource.plural).collect()
}

/// Whether objects of this kind can be created on the server.
#[must_use]
pub fn is_created(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_its =
        |resource: &&Resource| (resource.group, resource.version, resource.kind) == (group, version, kind);
    RESOURCES.iter().find(is_its).is_some_and(|resource| resource.verbs.contains(&"create"))
}

/// The resource whose table stores a plural: the first with that name.
pub(crate) fn stored(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural)
}
