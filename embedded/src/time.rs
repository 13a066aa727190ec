//! Times as the API shows them.

use jiff::Timestamp;

/// A time as `metav1.Time` shows it: whole seconds, UTC.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
