//! The fields by which events can be selected: the same ones under the names of two groups.

use super::Field;

const EVENT_FIELDS: usize = 12;

const fn field(label: &'static str, path: &'static [&'static str]) -> Field {
    Field { label, path, default: "" }
}

/// Fields of a stored event, under the names of one of the two groups.
macro_rules! event_fields {
    ($object:literal, $controller:literal) => {
        [
            field(concat!($object, ".kind"), &["involvedObject", "kind"]),
            field(concat!($object, ".namespace"), &["involvedObject", "namespace"]),
            field(concat!($object, ".name"), &["involvedObject", "name"]),
            field(concat!($object, ".uid"), &["involvedObject", "uid"]),
            field(concat!($object, ".apiVersion"), &["involvedObject", "apiVersion"]),
            field(concat!($object, ".resourceVersion"), &["involvedObject", "resourceVersion"]),
            field(concat!($object, ".fieldPath"), &["involvedObject", "fieldPath"]),
            field("reason", &["reason"]),
            field("type", &["type"]),
            field("source", &["source", "component"]),
            field($controller, &["reportingComponent"]),
            field("action", &["action"]),
        ]
    };
}

pub(super) static CORE_EVENT_FIELDS: [Field; EVENT_FIELDS] =
    event_fields!("involvedObject", "reportingComponent");
pub(super) static EVENT_V1_FIELDS: [Field; EVENT_FIELDS] = event_fields!("regarding", "reportingController");
