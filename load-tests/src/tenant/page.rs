//! The report as a page: a table, and the memory of the largest replica over time.

use std::fmt::Write as _;

use anyhow::Result;

use super::Report;
use super::verdict::{Outcome, Phase};
use crate::report::page::escape;
use crate::report::plots::{Axes, Line, Plot};

const STYLE: &str = "body{font:15px/1.4 sans-serif;max-width:1200px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;vertical-align:top}\
    pre{background:#f4f4f4;padding:1em;overflow:auto}.wrong{color:#b00}svg{max-width:100%;height:auto}";

impl Report {
    /// The page.
    pub(super) fn page(&self) -> Result<String> {
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tenant</title><style>{STYLE}</style>\
             <h1>Attacks by a tenant</h1><table><tr><th>attack<th>verdict<th>start, end, deletion, hand-over ms<th>MiB before, \
             peak, after<th>requests/s</tr>"
        );
        self.attacks.iter().try_for_each(|outcome| row(&mut page, outcome))?;
        page.push_str("</table>");
        page.push_str(&self.memory()?);
        let env = serde_json::to_string_pretty(&self.env)?;
        let rules = serde_json::to_string_pretty(&self.rules)?;
        write!(
            page,
            "<h2>Rules</h2><pre>{rules}</pre><h2>Environment</h2><pre>{}</pre></html>",
            escape(&env)
        )?;
        Ok(page)
    }

    fn memory(&self) -> Result<String> {
        let line = |outcome: &Outcome| Line {
            name: outcome.attack.to_owned(),
            points: outcome.memory.iter().map(|(at, bytes)| (*at, bytes / f64::from(1 << 20))).collect(),
        };
        let lines = self.attacks.iter().filter(|outcome| !outcome.memory.is_empty()).map(line).collect();
        Plot { title: "Memory of the largest replica", x: "seconds", y: "MiB", lines }.draw(Axes::Linear)
    }
}

fn row(page: &mut String, outcome: &Outcome) -> Result<()> {
    let verdict = match (&outcome.skipped, outcome.broken.is_empty()) {
        (Some(why), _) => format!("<td>skipped: {}", escape(why)),
        (None, true) => "<td>held".to_owned(),
        (None, false) => format!("<td class=\"wrong\">{}", escape(&outcome.broken.join("; "))),
    };
    let phase = |phase: &Phase| {
        let hand_over = phase.hand_over.map(|time| format!(", {time:.0}")).unwrap_or_default();
        format!("{:.0}, {:.0}, {:.0}{hand_over}", phase.start, phase.end, phase.deletion)
    };
    let mib = |bytes: u64| bytes >> 20;
    write!(
        page,
        "<tr><td title=\"{}\">{}{verdict}<td>before {}<br>during {}<br>after {}<td>{}, {}, {}<td>{:.0}</tr>",
        escape(&outcome.about),
        outcome.attack,
        phase(&outcome.baseline),
        phase(&outcome.during),
        phase(&outcome.after),
        mib(outcome.rss_before),
        mib(outcome.rss_peak),
        mib(outcome.rss_after),
        outcome.requests_per_s,
    )?;
    Ok(())
}
