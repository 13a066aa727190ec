//! The formats in which metrics are served.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// A format in which metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0, with exemplars.
    OpenMetrics,
}

impl Format {
    /// The format that an `Accept` header prefers. Everything understands [`Text`](Self::Text), so that is
    /// served unless OpenMetrics is named, and wanted at least as much.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let (mut text, mut open_metrics) = (0.0_f32, 0.0_f32);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameter = |part: &str| {
                let (name, value) = part.split_once('=')?;
                Some((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
            };
            let parameters: Vec<_> = parts.filter_map(parameter).collect();
            let value_of =
                |wanted| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
            let quality = value_of("q").map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
            match &*media {
                "application/openmetrics-text"
                    if value_of("version").is_none_or(|version| version == "1.0.0") =>
                {
                    open_metrics = open_metrics.max(quality);
                }
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// `Content-Type` of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Renders a registry.
pub(super) fn render(registry: &Registry, format: Format) -> String {
    let mut open_metrics = String::new();
    // Writing to a String cannot fail.
    if encode(&mut open_metrics, registry).is_err() {
        return String::new();
    }
    match format {
        Format::OpenMetrics => open_metrics,
        Format::Text => text_of(&open_metrics),
    }
}

/// Prometheus' text format. It differs from OpenMetrics in three ways: the family names of counters end in
/// `_total`, exemplars are absent, and so is the end mark.
fn text_of(open_metrics: &str) -> String {
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
            text.extend([without_exemplar(line), "\n"]);
        }
    }
    text
}

/// Only buckets have exemplars here, and the labels of a bucket contain no `#`.
fn without_exemplar(line: &str) -> &str {
    let bucket = line.split('{').next().is_some_and(|name| name.ends_with("_bucket"));
    line.split_once(" # ").filter(|_| bucket).map_or(line, |(sample, _)| sample)
}
