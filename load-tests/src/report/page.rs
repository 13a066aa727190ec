//! A report as a self-contained page: the figures, then the plots.

use std::fmt::Write;

use anyhow::Result;

use super::{Report, plots};
use crate::process_faults::Record;

/// Style sheet of pages.
pub(crate) const STYLE: &str = "body{font:15px/1.4 sans-serif;max-width:900px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}\
    td:first-child,th:first-child{text-align:left}pre{background:#f4f4f4;padding:1em;overflow:auto}\
    .wrong{color:#b00;font-weight:bold}svg{max-width:100%;height:auto}";

/// The page.
pub(super) fn render(report: &Report) -> Result<String> {
    let name = report.load["command"].as_str().unwrap_or("load");
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style>\
         <h1>Load test: {name}</h1>",
        name = escape(name)
    );
    let class = if report.exact.holds() { "right" } else { "wrong" };
    write!(page, "<pre class=\"{class}\">{}</pre>", escape(&report.summary()))?;
    controllers(&mut page, report)?;
    latencies(&mut page, report)?;
    process_faults(&mut page, report)?;
    for plot in plots::all(report)? {
        page.push_str(&plot);
    }
    for (title, value) in [("Findings", &report.findings), ("Load", &report.load)] {
        if !value.is_null() {
            write!(page, "<h2>{title}</h2><pre>{}</pre>", escape(&serde_json::to_string_pretty(value)?))?;
        }
    }
    write!(page, "<h2>Environment</h2><pre>{}</pre>", escape(&serde_json::to_string_pretty(&report.env)?))?;
    page.push_str("</html>\n");
    Ok(page)
}

fn controllers(page: &mut String, report: &Report) -> Result<()> {
    page.push_str(
        "<table><tr><th>replica<th>CPU s<th>peak MB<th>writes<th>writes per pod<th>watched MB<th>pods created</tr>",
    );
    for replica in &report.controller {
        write!(
            page,
            "<tr><td>{}<td>{:.2}<td>{:.1}<td>{}<td>{:.3}<td>{:.1}<td>{}</tr>",
            escape(&replica.identity),
            replica.cpu_s,
            replica.peak_rss_bytes as f64 / 1e6,
            replica.total_writes(),
            replica.writes_per_pod,
            replica.watch_bytes as f64 / 1e6,
            replica.writes.get("pods POST").copied().unwrap_or_default(),
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

fn latencies(page: &mut String, report: &Report) -> Result<()> {
    page.push_str("<table><tr><th>milliseconds<th>p50<th>p90<th>p99<th>max<th>count</tr>");
    for (name, latency) in &report.latency_ms {
        let (p50, p90, p99) = (latency.p50, latency.p90, latency.p99);
        let (max, count) = (latency.max, latency.count);
        write!(
            page,
            "<tr><td>{}<td>{p50:.1}<td>{p90:.1}<td>{p99:.1}<td>{max:.1}<td>{count}</tr>",
            escape(name)
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

fn process_faults(page: &mut String, report: &Report) -> Result<()> {
    let faults = report.findings.get("process_faults").cloned().unwrap_or_default();
    let Ok(faults) = serde_json::from_value::<Vec<Record>>(faults) else { return Ok(()) };
    if faults.is_empty() {
        return Ok(());
    }
    page.push_str(
        "<table><tr><th>fault<th>of<th>at s<th>lasted s<th>recovered after s<th>shards moved<th>observed</tr>",
    );
    for fault in faults {
        let recovered =
            fault.recovered_after_s.map_or_else(|| "never".to_owned(), |time| format!("{time:.1}"));
        write!(
            page,
            "<tr><td>{}<td>{}<td>{:.1}<td>{:.1}<td>{recovered}<td>{}<td>{}</tr>",
            fault.fault,
            escape(&fault.target),
            fault.at_s,
            fault.lasted_s,
            fault.shards_moved,
            escape(&fault.observed),
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

/// Text in HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
