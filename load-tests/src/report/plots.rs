//! Plots as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::Report;

const SIZE: (u32, u32) = (860, 320);

/// A line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The content of a plot.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<Line>,
}

/// All plots of a report.
pub(super) fn all(report: &Report) -> Result<Vec<String>> {
    Ok(vec![
        pods(report)?,
        Plot { title: "CPU of each replica", x: "seconds", y: "cores", lines: cpu(report) }.draw(false)?,
        Plot { title: "Memory of each replica", x: "seconds", y: "MB", lines: memory(report) }.draw(false)?,
        Plot { title: "Latencies", x: "percentile", y: "ms", lines: latencies(report) }.draw(true)?,
    ])
}

/// Pods over time.
pub(super) fn pods(report: &Report) -> Result<String> {
    let over_time = |name: &str, value: fn(&super::Point) -> u64| Line {
        name: name.to_owned(),
        points: report.series.iter().map(|point| (point.t, value(point) as f64)).collect(),
    };
    let lines = vec![
        over_time("created", |point| point.pods),
        over_time("active", |point| point.active),
        over_time("ended", |point| point.ended),
    ];
    Plot { title: "Pods", x: "seconds", y: "pods", lines }.draw(false)
}

/// Names of all replicas in the report.
fn replicas(report: &Report) -> Vec<String> {
    let names: std::collections::BTreeSet<_> =
        report.series.iter().flat_map(|point| point.replicas.keys()).collect();
    names.into_iter().cloned().collect()
}

fn cpu(report: &Report) -> Vec<Line> {
    let cores = |name: &String| {
        let seen: Vec<(f64, f64)> =
            report.series.iter().filter_map(|point| Some((point.t, point.replicas.get(name)?.0))).collect();
        let steps = seen.windows(2).filter_map(|pair| match pair {
            [(t0, cpu0), (t1, cpu1)] if t1 > t0 => Some((*t1, ((cpu1 - cpu0) / (t1 - t0)).max(0.0))),
            _ => None,
        });
        Line { name: name.clone(), points: steps.collect() }
    };
    replicas(report).iter().map(cores).collect()
}

fn memory(report: &Report) -> Vec<Line> {
    let resident = |name: &String| Line {
        name: name.clone(),
        points: report
            .series
            .iter()
            .filter_map(|point| Some((point.t, point.replicas.get(name)?.1 as f64 / 1e6)))
            .collect(),
    };
    replicas(report).iter().map(resident).collect()
}

fn latencies(report: &Report) -> Vec<Line> {
    let curves = report.latency_ms.iter().filter(|(_, latency)| !latency.curve.is_empty());
    curves.map(|(name, latency)| Line { name: name.clone(), points: latency.curve.clone() }).collect()
}

impl Plot<'_> {
    /// The plot as SVG, with a linear or logarithmic y axis.
    pub(crate) fn draw(&self, logarithmic: bool) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        // Leaves space for the names of the lines on the right.
        let right = points().map(|(x, _)| *x).fold(1.0, f64::max) * 1.28;
        let top = points().map(|(_, y)| *y).fold(0.1, f64::max) * 1.05;
        if !logarithmic {
            return self.draw_on(right, 0.0..top);
        }
        let bottom = points().map(|(_, y)| *y).fold(top, f64::min).max(0.01);
        self.draw_on(right, (bottom..top.max(bottom * 10.0)).log_scale())
    }

    fn draw_on<Y>(&self, right: f64, range: Y) -> Result<String>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut svg = String::new();
        let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", self.title);
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(|error| failed(&error))?;
            let mut chart = ChartBuilder::on(&root)
                .caption(self.title, ("sans-serif", 18))
                .margin(8)
                .x_label_area_size(36)
                .y_label_area_size(64)
                .build_cartesian_2d(0.0..right, range)
                .map_err(|error| failed(&error))?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(self.x)
                .y_desc(self.y)
                .light_line_style(WHITE)
                .draw()
                .map_err(|error| failed(&error))?;
            for (number, line) in self.lines.iter().enumerate() {
                let colour = Palette99::pick(number).to_rgba();
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))
                    .map_err(|error| failed(&error))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
            }
            if !self.lines.is_empty() {
                let mut labels = chart.configure_series_labels();
                labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
                labels.position(SeriesLabelPosition::UpperRight).draw().map_err(|error| failed(&error))?;
            }
            root.present().map_err(|error| failed(&error))?;
        }
        Ok(svg)
    }
}
