//! Prometheus' text format, converted from OpenMetrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Renders a registry in Prometheus' text format.
///
/// It differs from OpenMetrics in two ways: the family names of counters end in `_total` too, and there is no
/// end mark.
pub(super) fn render(registry: &Registry) -> String {
    let mut open_metrics = String::new();
    // Writing to a String cannot fail.
    if encode(&mut open_metrics, registry).is_err() {
        return String::new();
    }
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        let counter = |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
        if let Some(help) = line.strip_prefix("# HELP ") {
            match (counter(next), help.split_once(' ')) {
                (Some(name), Some((_, help))) => text.extend(["# HELP ", &name, "_total ", help, "\n"]),
                _ => text.extend([line, "\n"]),
            }
        } else if let Some(name) = counter(line) {
            text.extend(["# TYPE ", &name, "_total counter\n"]);
        } else if line != "# EOF" {
            text.extend([line, "\n"]);
        }
    }
    text
}
