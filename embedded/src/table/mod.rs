//! The `Table` form of objects, which kubectl prints.

mod cells;
mod duration;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::object::Object;
use super::resources::{Columns, Resource};
use super::views;

/// Column definitions by the names of [`Columns`].
static DEFINITIONS: LazyLock<BTreeMap<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("columns.json")).unwrap_or_default());

/// How much of each object accompanies its row (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    /// Reads `includeObject`; the empty text means metadata.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be \
                 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The settings of the rows of a Table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// How much of each object accompanies its row.
    pub(crate) include: Include,
    /// The time to which ages count.
    pub(crate) now: Timestamp,
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    /// `resourceVersion`.
    pub(crate) revision: u64,
    /// `continue`, if there is more.
    pub(crate) token: Option<String>,
    /// `remainingItemCount`, if known.
    pub(crate) remaining: Option<usize>,
    /// `shardInfo.selector`, if the list has a shard selector.
    pub(crate) shard: Option<String>,
}

impl ListMeta {
    /// The metadata of a table of one object.
    pub(crate) fn of_one(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), self.revision.to_string().into());
        if let Some(token) = &self.token {
            meta.insert("continue".into(), token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            meta.insert("remainingItemCount".into(), remaining.into());
        }
        if let Some(selector) = &self.shard {
            meta.insert("shardInfo".into(), json!({"selector": selector}));
        }
        Value::Object(meta)
    }
}

/// The JSON of a Table with its column definitions.
pub(crate) fn render(
    resource: &Resource,
    version: &str,
    rows: Rows,
    objects: &[&Object],
    meta: &ListMeta,
) -> Bytes {
    Bytes::from(value(resource, version, rows, objects, meta, true).to_string())
}

/// A Table. In a watch, only the first one carries column definitions.
pub(crate) fn value(
    resource: &Resource,
    version: &str,
    rows: Rows,
    objects: &[&Object],
    meta: &ListMeta,
    definitions: bool,
) -> Value {
    let Rows { include, now } = rows;
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let decoded = object.decode(resource);
            let mut row = cells::row(resource.columns, &decoded, now);
            row["object"] = match include {
                Include::None => Value::Null,
                Include::Metadata => views::partial_value(&decoded),
                Include::Object => views::decode(resource, object),
            };
            row
        })
        .collect();
    let name = format!("{:?}", resource.columns);
    let definitions = definitions.then(|| DEFINITIONS.get(&name).cloned()).flatten();
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta.to_json(),
        "columnDefinitions": definitions, "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn each_kind_has_as_many_cells_as_columns() {
        for resource in RESOURCES {
            let columns = DEFINITIONS[&format!("{:?}", resource.columns)].as_array().map(Vec::len);
            let row = cells::row(resource.columns, &json!({}), Timestamp::UNIX_EPOCH);
            assert_eq!(row["cells"].as_array().map(Vec::len), columns, "{}", resource.plural);
        }
    }
}
