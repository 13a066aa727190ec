//! Validation of write options (`CreateOptions`, `UpdateOptions`, `PatchOptions`), which precedes everything
//! else.

use super::query::Query;
use crate::error::ApiError;
use crate::rules::{Cause, CauseReason, FieldValidation};

/// The media types of server-side apply.
pub(crate) const APPLY_TYPES: &[&str] = &["application/apply-patch+yaml", "application/apply-patch+cbor"];

/// Maximum length of `fieldManager`, in bytes.
const LONGEST_MANAGER: usize = 128;

/// The kinds of options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionsKind {
    Create,
    Update,
    /// Options of a patch other than server-side apply.
    Patch,
    /// Options of server-side apply.
    Apply,
}

/// Refuses options that are malformed.
pub(crate) fn validate(kind: OptionsKind, query: &Query) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let manager = query.text("fieldManager");
    if kind == OptionsKind::Apply && manager.is_empty() {
        let message = "Required value: is required for apply patch";
        causes.push(cause(CauseReason::Required, "fieldManager", message));
    }
    if kind == OptionsKind::Patch && query.option("force").is_some() {
        let message = "Forbidden: may not be specified for non-apply patch";
        causes.push(cause(CauseReason::Forbidden, "force", message));
    }
    if manager.len() > LONGEST_MANAGER {
        let message = format!("Too long: may not be more than {LONGEST_MANAGER} bytes");
        causes.push(cause(CauseReason::TooLong, "fieldManager", &message));
    }
    if let Some((at, letter)) = manager.char_indices().find(|(_, letter)| letter.is_control()) {
        let message = format!(
            "Invalid value: {manager:?}: invalid character U+{:04X} (at position {at})",
            u32::from(letter)
        );
        causes.push(cause(CauseReason::Invalid, "fieldManager", &message));
    }
    if let Some(other) = query.get("dryRun").filter(|stage| *stage != "All") {
        let message = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
        causes.push(cause(CauseReason::NotSupported, "dryRun", &message));
    }
    if field_validation(query).is_none() {
        let message = format!(
            "Unsupported value: \"{}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            query.text("fieldValidation")
        );
        causes.push(cause(CauseReason::NotSupported, "fieldValidation", &message));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let kind = match kind {
        OptionsKind::Create => "CreateOptions",
        OptionsKind::Update => "UpdateOptions",
        OptionsKind::Patch | OptionsKind::Apply => "PatchOptions",
    };
    Err(ApiError::invalid("meta.k8s.io", kind, "", &causes))
}

/// Handling of unknown and repeated fields in the body; the default is to warn. Returns `None` if the query
/// has an invalid value.
pub(crate) fn field_validation(query: &Query) -> Option<FieldValidation> {
    match query.text("fieldValidation") {
        "" | "Warn" => Some(FieldValidation::Warn),
        "Ignore" => Some(FieldValidation::Ignore),
        "Strict" => Some(FieldValidation::Strict),
        _ => None,
    }
}

fn cause(reason: CauseReason, field: &str, message: &str) -> Cause {
    Cause::new(reason, field, message)
}
