//! The sweeps, and the run that measures one size.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::GrowthArgs;
use crate::load::{Load, RunTime};
use crate::report::{Report, round};
use crate::stage::{CommonArgs, Stage};

/// Run time of a pod: short, so that the controller and the API server are what takes time.
const RUN_TIME: SignedDuration = SignedDuration::from_millis(100);
/// Most Jobs that share the pods.
const JOBS: u32 = 20;
/// The rate of Jobs with one pod each, per second, in the sweep of replicas.
const FEW: f64 = 2.0;
/// Time for shards to be balanced after the start of the last replica.
const BALANCED: Duration = Duration::from_secs(5);

/// The quantity that grows.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sweep {
    /// Replicas, under few pods.
    Replicas,
    /// Pods over time, with a bounded number at once.
    Pods,
    /// One-pod Jobs.
    Jobs,
}

impl std::fmt::Display for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Replicas => "replicas",
            Self::Pods => "pods",
            Self::Jobs => "jobs",
        })
    }
}

/// The cost of one size: of all replicas together, unless a field says otherwise.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub(crate) struct Figures {
    /// Number of replicas, pods or Jobs.
    pub(crate) size: u32,
    /// Seconds from the first Job's creation to the last Job's end.
    pub(crate) wall_s: f64,
    /// Requests of all kinds.
    pub(crate) requests: f64,
    /// Seconds of CPU.
    pub(crate) cpu_s: f64,
    /// Peak resident memory of the largest replica, in bytes.
    pub(crate) memory_bytes: f64,
    /// Bytes of lists and watches.
    pub(crate) watch_bytes: f64,
    /// Seconds of CPU of the API server.
    pub(crate) api_server_cpu_s: f64,
    /// 99th percentile of the time from the end of a pod to a status that counts it, in milliseconds.
    pub(crate) status_p99_ms: f64,
    /// Whether everything was counted exactly once.
    pub(crate) exact: bool,
}

impl Sweep {
    /// The unit of the sweep, in the plural and in the singular.
    pub(super) fn nouns(self) -> (&'static str, &'static str) {
        match self {
            Self::Replicas => ("replicas", "replica"),
            Self::Pods => ("pods", "pod"),
            Self::Jobs => ("Jobs", "Job"),
        }
    }

    /// The load of this size.
    fn load(self, args: &GrowthArgs, size: u32) -> Result<Load> {
        let mut load = match self {
            Self::Replicas | Self::Jobs => Load::parse(include_str!("../../loads/small.yaml"))?,
            Self::Pods => Load::parse(include_str!("../../loads/churn.yaml"))?,
        };
        for wave in &mut load.waves {
            wave.run_time = RunTime::For(RUN_TIME);
            match self {
                Self::Replicas => {
                    wave.rate = FEW;
                    wave.jobs = ((args.watch_replicas_for.as_secs_f64() * FEW) as u32).max(1);
                }
                Self::Pods => {
                    wave.jobs = size.min(JOBS);
                    wave.pods_per_job = size.div_ceil(wave.jobs);
                    wave.parallelism = args.in_flight.div_ceil(wave.jobs).max(1);
                    // Status.completedIndexes would grow with an Indexed Job, which is another question.
                    wave.job["spec"]["completionMode"] = json!("NonIndexed");
                }
                Self::Jobs => {
                    wave.rate = 0.0;
                    wave.jobs = size;
                }
            }
        }
        Ok(load)
    }

    /// Plays the load of this size on a new API server.
    pub(super) async fn measure(self, args: &GrowthArgs, size: u32) -> Result<Figures> {
        let replicas = match self {
            Self::Replicas => size as usize,
            Self::Pods | Self::Jobs => args.common.replicas(),
        };
        let common = CommonArgs { kubeconfig: None, report: None, ..args.common.clone() };
        let mut stage = Stage::prepare(&common, self.load(args, size)?).await?;
        stage.scale_up(replicas).await?;
        tokio::time::sleep(BALANCED).await;
        stage.fleet.begin_counting().await;
        let before = stage.ground.usage().map_or(0.0, |usage| usage.cpu_s);
        stage.begin().await;
        stage.play().await?;
        let report = stage.finish("growth").await?.report;
        Ok(Figures::of(size, &report, before))
    }
}

impl Figures {
    /// The figures of a report. The API server had used `before` seconds of CPU at its begin.
    fn of(size: u32, report: &Report, before: f64) -> Self {
        let sum = |of: fn(&crate::report::Controller) -> f64| report.controller.iter().map(of).sum::<f64>();
        let largest = report.controller.iter().map(|replica| replica.peak_rss_bytes).max();
        let api_server = report.api_server.as_ref().map_or(0.0, |server| server.cpu_s - before);
        Self {
            size,
            wall_s: report.wall_s,
            requests: sum(|replica| replica.requests as f64),
            cpu_s: round(sum(|replica| replica.cpu_s)),
            memory_bytes: largest.unwrap_or_default() as f64,
            watch_bytes: sum(|replica| replica.watch_bytes as f64),
            api_server_cpu_s: round(api_server),
            status_p99_ms: report.latency_ms.get("finish_to_status").map_or(0.0, |latency| latency.p99),
            exact: report.exact.holds(),
        }
    }

    /// A line for the terminal.
    pub(super) fn line(&self, sweep: Sweep) -> String {
        let Self { size, wall_s, requests, cpu_s, exact, .. } = self;
        let verdict = if *exact { "exact" } else { "NOT EXACT" };
        let memory = self.memory_bytes / 1e6;
        format!(
            "{size} {sweep}: {wall_s:.1} s, {requests:.0} requests, {cpu_s:.2} s of CPU, {memory:.1} MB, {verdict}"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: GrowthArgs,
    }

    #[test]
    fn loads_have_the_size_that_is_asked_for() {
        let args = Cli::parse_from(["growth", "--in-flight", "100", "--watch-replicas-for", "10s"]).args;
        for (sweep, size, jobs, pods, places) in [
            (Sweep::Replicas, 64, 20, 20, 20),
            (Sweep::Pods, 10, 10, 10, 10),
            (Sweep::Pods, 1_000_000, 20, 1_000_000, 100),
            (Sweep::Jobs, 100_000, 100_000, 100_000, 100_000),
        ] {
            let load = sweep.load(&args, size).unwrap();
            assert_eq!(
                (load.jobs(), load.completions(), load.places()),
                (jobs, pods, places),
                "{size} {sweep}"
            );
        }
        assert_eq!(args.sizes(Sweep::Pods).last(), Some(&1_000_000));
    }
}
