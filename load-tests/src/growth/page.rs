//! Tables and plots of growth.

use std::fmt::Write as _;

use anyhow::Result;

use super::bend::QUANTITIES;
use super::sweep::Sweep;
use super::{Curve, Growth};
use crate::report::Env;
use crate::report::plots::{Line, Plot};

impl Curve {
    /// The table, what bends first, and where it was measured.
    pub(super) fn markdown(&self, env: &Env) -> String {
        let (what, each) = match self.sweep {
            Sweep::Replicas => ("replicas", "replica"),
            Sweep::Pods => ("pods", "pod"),
            Sweep::Jobs => ("Jobs", "Job"),
        };
        let mut text = format!(
            "| {what} | time | requests | of each {each} | CPU | of each {each} | memory of the largest replica | watched | \
             CPU of the API server | end of a pod to status, p99 |\n|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for figures in &self.points {
            let size = f64::from(figures.size);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {:.1} s | {:.0} | {:.2} | {:.2} s | {:.3} ms | {:.1} MB | {:.1} MB | {:.2} s | {:.0} ms |",
                figures.size,
                figures.wall_s,
                figures.requests,
                figures.requests / size,
                figures.cpu_s,
                figures.cpu_s / size * 1000.0,
                figures.memory_bytes / 1e6,
                figures.watch_bytes / 1e6,
                figures.api_server_cpu_s,
                figures.status_p99_ms,
            );
        }
        let _ = write!(
            text,
            "\n{}\n\nMeasured on {} with Linux {} on {} cores, at a load average of {:.1} before.\n",
            self.first_bend(),
            env.started.split('T').next().unwrap_or_default(),
            env.kernel,
            env.cpus,
            env.load_average,
        );
        text
    }

    /// The plot: the cost of each pod, Job or replica, relative to that where it is lowest.
    pub(super) fn plot(&self) -> Result<String> {
        let lines = QUANTITIES.iter().map(|quantity| {
            let each = |figures| (quantity.of)(figures);
            let points: Vec<(f64, f64)> = self
                .points
                .iter()
                .map(|figures| (f64::from(figures.size).log10(), each(figures) / f64::from(figures.size)))
                .filter(|(_, cost)| *cost > 0.0)
                .collect();
            let lowest = points.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
            let points = points.into_iter().map(|(size, cost)| (size, cost / lowest)).collect();
            Line { name: quantity.name.into(), points }
        });
        let title = format!("Cost of each of the {}, relative to the lowest", self.sweep);
        let x = format!("{} (powers of ten)", self.sweep);
        Plot { title: &title, x: &x, y: "times the lowest", lines: lines.collect() }.draw(true)
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
