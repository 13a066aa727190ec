//! The overlay of a pod: what it has beside its Job's template, its name and its owner.
//!
//! An overlay is typed, and has two renderings: [`json`] and [`protobuf`] add it to the spec of a template in either
//! encoding. Both add the same, and copy everything else unread.

mod json;
mod protobuf;

use std::sync::Arc;

pub(super) use json::SpecFields;

use super::names;
use super::protobuf::FieldError;

/// The parts of a pod beside its template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// `metadata.labels`, in place of those of the template with the same keys. Nothing in them needs escaping.
    pub labels: Vec<(&'static str, Box<str>)>,
    /// The same for `metadata.annotations`.
    pub annotations: Vec<(&'static str, Box<str>)>,
    /// Variables in the environment of every container that does not set them itself.
    pub env: Vec<Variable>,
    /// Quantities of containers, in place of those of the template.
    pub quantities: Vec<Quantity>,
    /// Hosts that the pod stays away from, in addition to what the template asks of nodes.
    pub avoidance: Option<HostAvoidance>,
}

/// A variable in the environment of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: VariableValue,
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableValue {
    /// `value`.
    Text(Box<str>),
    /// `valueFrom.fieldRef.fieldPath`: a field of the pod.
    Field(Box<str>),
}

/// A quantity in the resources of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// Name of the container.
    pub container: Box<str>,
    /// Whether it is requested, or a limit.
    pub list: ResourceList,
    /// The resource, such as `memory`.
    pub resource: &'static str,
    /// The quantity, such as `512Mi`.
    pub amount: Box<str>,
}

/// A list in the resources of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceList {
    /// `limits`.
    Limits,
    /// `requests`.
    Requests,
}

/// Hosts that a pod stays away from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAvoidance {
    /// Whether the pod waits where no other host is free.
    pub required: bool,
    /// Values of the label [`names::HOSTNAME_LABEL`] of nodes, at least one.
    pub hosts: Vec<Arc<str>>,
}

/// The weight of an avoidance that is not required: the highest there is.
const WEIGHT: u64 = 100;

impl Overlay {
    /// The overlay of all pods of an Indexed Job.
    pub(super) fn of_index() -> Self {
        let value = VariableValue::Field(names::completion_index_path().into());
        Self { env: vec![Variable { name: names::COMPLETION_INDEX_ENV, value }], ..Self::default() }
    }

    /// Whether it adds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it sets this label.
    pub(super) fn sets_label(&self, key: &str) -> bool {
        self.labels.iter().any(|(set, _)| *set == key)
    }

    /// Whether it sets this annotation.
    pub(super) fn sets_annotation(&self, key: &str) -> bool {
        self.annotations.iter().any(|(set, _)| *set == key)
    }

    fn changes_containers(&self) -> bool {
        !self.env.is_empty() || !self.quantities.is_empty()
    }

    /// Its quantities for the container of this name.
    fn quantities_of(&self, container: &[u8]) -> impl Iterator<Item = &Quantity> {
        self.quantities.iter().filter(move |quantity| quantity.container.as_bytes() == container)
    }

    /// Adds it to the fields of a pod's spec in JSON.
    ///
    /// # Errors
    /// When a field that it changes is malformed.
    pub(super) fn add_to_json(&self, spec: &mut SpecFields<'_>) -> Result<(), serde_json::Error> {
        json::add(self, spec)
    }

    /// The fields of a pod's spec in protobuf, with it.
    ///
    /// # Errors
    /// When the spec, or a field that it changes, is malformed.
    pub(super) fn added_to_protobuf(&self, spec: &[u8]) -> Result<Vec<u8>, FieldError> {
        protobuf::added(self, spec)
    }
}

#[cfg(test)]
mod tests;
