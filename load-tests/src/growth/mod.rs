//! `growth`: how cost grows with the numbers of replicas, pods and Jobs, and what bends first.

mod bend;
mod page;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::sweep::{Figures, Sweep};
use crate::document;
use crate::report::Env;
use crate::stage::CommonArgs;

/// Flags of `growth`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrowthArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What grows.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "replicas,pods,jobs")]
    pub(crate) sweeps: Vec<Sweep>,
    /// Numbers of replicas, under few pods.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    pub(crate) numbers_of_replicas: Vec<u32>,
    /// Numbers of pods over time, of which --in-flight run at once.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "10,100,1000,10000,30000,100000,300000,1000000"
    )]
    pub(crate) numbers_of_pods: Vec<u32>,
    /// Numbers of one-pod Jobs, all of which are kept after their end.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,10,100,1000,3000,10000,30000,100000"
    )]
    pub(crate) numbers_of_jobs: Vec<u32>,
    /// Pods that run at once while their number over time grows.
    #[arg(long, value_name = "P", default_value_t = 500)]
    pub(crate) in_flight: u32,
    /// Time for which each number of replicas is measured.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    pub(crate) watch_replicas_for: Duration,
    /// Report of an earlier run, in place of a new one. Whether that run was fit to be published is not checked.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) from: Option<PathBuf>,
    /// Markdown page whose tables are replaced by the measured ones. The machine must be quiet, and the build one
    /// for measuring.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) write: Option<PathBuf>,
}

/// All that was measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Growth {
    pub(crate) env: Env,
    pub(crate) curves: Vec<Curve>,
}

/// The figures of a sweep.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Curve {
    pub(crate) sweep: Sweep,
    /// From the smallest size to the largest.
    pub(crate) points: Vec<Figures>,
}

impl GrowthArgs {
    fn sizes(&self, sweep: Sweep) -> Vec<u32> {
        let mut sizes = match sweep {
            Sweep::Replicas => self.numbers_of_replicas.clone(),
            Sweep::Pods => self.numbers_of_pods.clone(),
            Sweep::Jobs => self.numbers_of_jobs.clone(),
        };
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Measures all sizes, each on a new API server.
    async fn measure(&self) -> Result<Growth> {
        let env = Env::here("embedded".into());
        if self.write.is_some() {
            env.is_fit_to_publish()?;
        }
        let mut growth = Growth { env, curves: Vec::new() };
        for sweep in self.sweeps.iter().copied() {
            let mut curve = Curve { sweep, points: Vec::new() };
            for size in self.sizes(sweep) {
                let figures = sweep.measure(self, size).await.with_context(|| format!("{size} {sweep}"))?;
                eprintln!("{}", figures.line(sweep));
                curve.points.push(figures);
            }
            growth.curves.push(curve);
        }
        Ok(growth)
    }

    /// Measures, or reads what was measured, and writes what was found.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let growth = match &self.from {
            Some(file) => Growth::read(file)?,
            None => self.measure().await?,
        };
        println!("{}", growth.markdown());
        if let Some(file) = &self.common.report {
            growth.write(file)?;
        }
        if let Some(file) = &self.write {
            for curve in &growth.curves {
                document::fill(file, &format!("growth-{}", curve.sweep), &curve.markdown(&growth.env))?;
                let folder = file.parent().unwrap_or(std::path::Path::new("")).join("img");
                let plot = folder.join(format!("growth-{}.svg", curve.sweep));
                std::fs::write(&plot, curve.plot()?).with_context(|| plot.display().to_string())?;
            }
        }
        let exact = growth.curves.iter().flat_map(|curve| &curve.points).all(|figures| figures.exact);
        Ok(if exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Growth {
    fn read(file: &std::path::Path) -> Result<Self> {
        let context = || file.display().to_string();
        serde_json::from_str(&std::fs::read_to_string(file).with_context(context)?).with_context(context)
    }

    fn markdown(&self) -> String {
        let curves = self.curves.iter();
        curves.map(|curve| format!("## {}\n\n{}\n", curve.sweep, curve.markdown(&self.env))).collect()
    }

    /// Writes FILE.json, and beside it FILE.md and a page with the plots.
    fn write(&self, file: &std::path::Path) -> Result<()> {
        let context = || file.display().to_string();
        let mut value = serde_json::to_value(self)?;
        for (curve, value) in self.curves.iter().zip(value["curves"].as_array_mut().into_iter().flatten()) {
            value["bends"] = json!(curve.bends());
            value["first"] = json!(curve.first_bend());
        }
        std::fs::write(file, serde_json::to_string_pretty(&value)? + "\n").with_context(context)?;
        std::fs::write(file.with_extension("md"), self.markdown()).with_context(context)?;
        std::fs::write(file.with_extension("html"), self.page()?).with_context(context)
    }
}
