//! Selection of the objects of a list or watch.

mod field;
mod label;
mod shard;

use super::error::ApiError;
use super::object::{Header, Object};
use super::resources::Resource;
use super::store::Label;

/// Label, field and shard selectors together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<label::Requirement>,
    fields: Vec<field::Requirement>,
    shard: Option<shard::ShardSelector>,
}

impl Selector {
    /// Parses the three selectors of a request; empty texts select everything.
    pub(crate) fn parse(
        resource: &Resource,
        labels: &str,
        fields: &str,
        shard: &str,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            labels: label::parse(labels).map_err(ApiError::bad_request)?,
            fields: field::parse(resource, fields).map_err(ApiError::bad_request)?,
            shard: shard::parse(shard)
                .map_err(|error| ApiError::unclassified(format!("invalid shard selector: {error}")))?,
        })
    }

    /// Whether the selector matches this object.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.matches_header(&object.header)
    }

    fn matches_header(&self, header: &Header) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(header))
            && self.fields.iter().all(|requirement| requirement.matches(header))
            && self.shard.as_ref().is_none_or(|shard| shard.matches(header))
    }

    /// A label that every matching object has, if the selector requires one value of a label.
    pub(crate) fn label(&self) -> Option<Label> {
        self.labels.iter().find_map(label::Requirement::only)
    }

    /// Whether labels or fields narrow the list, so that the number of remaining items is unknown.
    pub(crate) fn narrows(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// The canonical text of the shard selector, for `metadata.shardInfo`.
    pub(crate) fn shard(&self) -> Option<String> {
        self.shard.as_ref().map(ToString::to_string)
    }
}
