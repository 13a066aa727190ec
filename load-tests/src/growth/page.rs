//! Tables and plots of growth.

use std::fmt::Write as _;

use anyhow::Result;
use indicatif::HumanCount;

use super::bend::QUANTITIES;
use super::sweep::Sweep;
use super::{Curve, Growth};
use crate::report::Env;
use crate::report::plots::{Axes, Line, Plot};

/// Higher costs are not drawn: among few pods or Jobs, each has a large share of what an idle replica costs.
const HIGHEST: f64 = 100.0;

impl Curve {
    /// The table, what bends first, and where it was measured.
    pub(super) fn markdown(&self, env: &Env) -> String {
        let (what, each) = self.sweep.nouns();
        let mut text = format!(
            "| {what} | time | requests | of each {each} | CPU | of each {each} | memory of the largest replica | watched | \
             CPU of the API server | end of a pod to status, p99 |\n|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for figures in &self.points {
            let size = f64::from(figures.size);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {:.1} s | {} | {:.2} | {:.2} s | {:.*} ms | {:.1} MB | {:.1} MB | {:.2} s | {:.0} ms |",
                HumanCount(figures.size.into()),
                figures.wall_s,
                HumanCount(figures.requests as u64),
                figures.requests / size,
                figures.cpu_s,
                if self.sweep == Sweep::Replicas { 0 } else { 3 },
                figures.cpu_s / size * 1000.0,
                figures.memory_bytes / 1e6,
                figures.watch_bytes / 1e6,
                figures.api_server_cpu_s,
                figures.status_p99_ms,
            );
        }
        let cpus = if env.cpus == 1 { "one CPU".to_owned() } else { format!("{} CPUs", env.cpus) };
        let _ = write!(
            text,
            "\n{}\n\nMeasured on {} with Linux {}, with {cpus} for everything.\n",
            self.first_bend(),
            env.started.split('T').next().unwrap_or_default(),
            env.kernel,
        );
        text
    }

    /// The plot of costs. For pods and Jobs: the cost of each, relative to the lowest. For replicas, which
    /// share one load: the cost of all together, relative to that of the fewest.
    pub(super) fn plot(&self) -> Result<String> {
        let is_shared = self.sweep == Sweep::Replicas;
        let lines = QUANTITIES.iter().map(|quantity| {
            let costs = self.points.iter().map(|figures| {
                let size = f64::from(figures.size);
                (size, (quantity.of)(figures) / if is_shared { 1.0 } else { size })
            });
            let costs: Vec<(f64, f64)> = costs.filter(|(_, cost)| *cost > 0.0).collect();
            let base = match costs.first() {
                Some((_, first)) if is_shared => *first,
                _ => costs.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min),
            };
            let points = costs.into_iter().map(|(size, cost)| (size, cost / base));
            Line { name: quantity.name.into(), points: points.filter(|(_, cost)| *cost <= HIGHEST).collect() }
        });
        let (what, each) = self.sweep.nouns();
        let title = match is_shared {
            true => format!("Cost of the same load for all {what} together"),
            false => format!("Cost of each {each}"),
        };
        let y = if is_shared { "times the first" } else { "times the lowest" };
        Plot { title: &title, x: what, y, lines: lines.collect() }.draw(Axes::LogLog)
    }
}

impl Growth {
    /// A page with the tables and plots.
    pub(super) fn page(&self) -> Result<String> {
        let mut page = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>growth</title>\
                        <h1>Load test: growth</h1>"
            .to_owned();
        for curve in &self.curves {
            write!(
                page,
                "<h2>{}</h2><pre>{}</pre>{}",
                curve.sweep,
                curve.markdown(&self.env),
                curve.plot()?
            )?;
        }
        page.push_str("</html>\n");
        Ok(page)
    }
}
