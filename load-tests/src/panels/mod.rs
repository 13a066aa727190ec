//! `panels`: draws the chart's Grafana dashboard from recorded scrapes, without Grafana and Prometheus' server.
//!
//! `recording` has the scrapes of some controllers, which `record` makes. `dashboard` has the panels. `engine` has
//! promtool evaluate their queries, and `page` draws all panels at their places.

mod dashboard;
mod engine;
mod page;
mod record;
mod recording;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use self::dashboard::{Dashboard, SeriesLabels};
use self::page::{Drawn, PanelLine};
use self::recording::Recording;
use crate::report::write_text;

/// The chart's dashboard.
const DASHBOARD: &str = include_str!("../../../charts/yardmaster/files/dashboards/yardmaster.json");

/// Flags of `panels`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PanelsArgs {
    /// Scrapes of controllers, as OpenMetrics with times. `--record` writes the file, and replaces an older one.
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Scrape this address first, such as `http://localhost:8080/metrics`; once for each replica.
    #[arg(long, value_name = "URL")]
    record: Vec<http::Uri>,
    /// Duration of the recording.
    #[arg(long = "for", value_name = "TIME", default_value = "2m", value_parser = humantime::parse_duration)]
    lasting: Duration,
    /// Time from a scrape to the next.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Another dashboard than the chart's.
    #[arg(long, value_name = "FILE")]
    dashboard: Option<PathBuf>,
    /// The picture [default: the name of the recording, with the extension `svg`].
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl PanelsArgs {
    /// Records if that is asked for, and draws the recording.
    ///
    /// # Errors
    ///
    /// If no scrape succeeds, a file cannot be read or written, promtool is not there, or a query cannot be evaluated.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        if !self.record.is_empty() {
            let text = record::record(&self.record, self.lasting, self.every).await?;
            write_text(&self.recording, &text)?;
        }
        let recording = read(&self.recording)?;
        let recording = Recording::parse(&recording).with_context(|| self.recording.display().to_string())?;
        let (text, file) = match &self.dashboard {
            Some(file) => (read(file)?, file.display().to_string()),
            None => (DASHBOARD.to_owned(), "the chart's dashboard".to_owned()),
        };
        let dashboard = Dashboard::parse(&text).context(file)?;
        let drawn = draw(&dashboard, &recording).await?;
        let svg = self.svg.unwrap_or_else(|| self.recording.with_extension("svg"));
        write_text(&svg, &drawn.svg)?;
        println!("{}: {} panels, {} of them without data", svg.display(), drawn.panels, drawn.empty.len());
        for title in &drawn.empty {
            println!("no data: {title}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// Evaluates the queries of all panels, and draws them.
async fn draw(dashboard: &Dashboard, recording: &Recording<'_>) -> Result<Drawn> {
    let queries: Vec<_> = dashboard.panels.iter().flat_map(|panel| &panel.targets).collect();
    let exprs: Vec<_> =
        queries.iter().map(|query| dashboard.resolved(&query.expr, recording.every)).collect();
    let (times, answers) = engine::evaluate(recording, &exprs).await?;
    let mut of_queries = queries.iter().zip(answers).map(|(query, series)| {
        let line = |(labels, values): (SeriesLabels, Vec<f64>)| PanelLine {
            name: query.name_of(&labels),
            labels,
            values,
        };
        series.into_iter().map(line).collect::<Vec<_>>()
    });
    let of_panels = dashboard.panels.iter().map(|panel| {
        let lines = of_queries.by_ref().take(panel.targets.len()).flatten().collect::<Vec<_>>();
        (panel, lines)
    });
    let panels = of_panels.collect::<Vec<_>>();
    page::draw(&dashboard.title, recording, &times, &panels)
}
