//! JSON as text: what is written once and sent often is kept as it is sent.

use serde::Serialize;

/// The JSON of a value whose maps have text keys only, so that serializing it never fails.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The members of a JSON object as text, without the braces.
pub(super) fn members(object: &impl Serialize) -> String {
    let text = json_text(object);
    text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().into()
}
