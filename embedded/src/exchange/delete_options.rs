//! `DeleteOptions` from the body or the query of a DELETE.

use serde_json::Value;

use super::decode;
use super::query::Query;
use crate::error::ApiError;
use crate::rules::{Cause, CauseReason};

/// Handling of dependents (`propagationPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They stay, without their owner reference.
    Orphan,
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Grace period in seconds.
    pub(crate) grace: Option<i64>,
    /// Handling of dependents.
    pub(crate) propagation: Option<Propagation>,
    /// The older form of `propagation`.
    pub(crate) orphan_dependents: Option<bool>,
    /// The uid that the object must have.
    pub(crate) uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub(crate) resource_version: Option<String>,
    /// Whether the deletion is only simulated.
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// The options of a request, from its body, or from its query if it has no body.
    pub(crate) fn parse(query: &Query, content_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        if !body.is_empty() {
            let value = decode::delete_options(content_type, body)?;
            return Self::from_value(&value);
        }
        let propagation = query.get("propagationPolicy");
        Self {
            grace: query.integer("gracePeriodSeconds")?,
            orphan_dependents: query.option("orphanDependents"),
            dry_run: query.dry_run(),
            ..Self::default()
        }
        .with_propagation(propagation)
    }

    /// The options in a decoded `DeleteOptions`; null means none.
    pub(crate) fn from_value(value: &Value) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            orphan_dependents: value["orphanDependents"].as_bool(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            dry_run: value["dryRun"]
                .as_array()
                .is_some_and(|stages| stages.iter().any(|stage| stage == "All")),
            propagation: None,
        }
        .with_propagation(value["propagationPolicy"].as_str())
    }

    fn with_propagation(mut self, policy: Option<&str>) -> Result<Self, ApiError> {
        let mut causes = Vec::new();
        self.propagation = match policy {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                causes.push(Cause::new(CauseReason::NotSupported, "propagationPolicy", format!(
                        "Unsupported value: \"{other}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \
                         \"nil\""
                    )));
                None
            }
        };
        if policy.is_some() && self.orphan_dependents.is_some() {
            causes.insert(
                0,
                Cause::new(
                    CauseReason::Invalid,
                    "propagationPolicy",
                    format!(
                        "Invalid value: \"{}\": orphanDependents and deletionPropagation cannot be both set",
                        policy.unwrap_or_default()
                    ),
                ),
            );
        }
        if causes.is_empty() {
            Ok(self)
        } else {
            Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &causes))
        }
    }
}
