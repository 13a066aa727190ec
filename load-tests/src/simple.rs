//! Loads that consist only of Jobs: `large`, `small`, `churn`, and those from files.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::conclude;
use crate::load::{Load, RunTime};
use crate::stage::{CommonArgs, Stage};

/// Flags of `large`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LargeArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Completions of all Jobs together.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) pods: u32,
    /// Parallelism of all Jobs together [default: all pods].
    #[arg(long, value_name = "P")]
    pub(crate) parallelism: Option<u32>,
    /// Run time of a pod, such as 500ms; all: until all places are taken at once [default: 1s].
    #[arg(long, value_name = "all|DURATION")]
    pub(crate) hold: Option<RunTime>,
    /// Whether the Jobs are Indexed.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) indexed: bool,
    /// Number of Jobs that share the pods.
    #[arg(long, value_name = "J", default_value_t = 1)]
    pub(crate) jobs: u32,
    /// Share of pods that fail, from 0 to below 1.
    #[arg(long, value_name = "F", default_value_t = 0.0)]
    pub(crate) fail_ratio: f64,
    /// spec.backoffLimitPerIndex of the Jobs [default: none; spec.backoffLimit counts].
    #[arg(long, value_name = "N")]
    pub(crate) backoff_limit_per_index: Option<u32>,
}

/// Flags of `small`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SmallArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Number of Jobs.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) jobs: u32,
    /// Pods of each Job.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) pods_per_job: u32,
    /// Jobs created per second; 0: as fast as the API server accepts them.
    #[arg(long, value_name = "R", default_value_t = 300.0)]
    pub(crate) rate: f64,
}

/// Flags of `churn`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChurnArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Completions of the Job.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub(crate) pods: u32,
    /// Parallelism of the Job.
    #[arg(long, value_name = "P", default_value_t = 100)]
    pub(crate) parallelism: u32,
    /// Run time of a pod.
    #[arg(long, value_name = "DURATION")]
    pub(crate) hold: Option<RunTime>,
}

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// File with the load; see load-tests/loads for examples.
    #[arg(value_name = "FILE.yaml")]
    pub(crate) file: PathBuf,
}

impl LargeArgs {
    /// The load for these flags.
    pub(crate) fn load(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../loads/large.yaml"))?;
        for wave in &mut load.waves {
            wave.jobs = self.jobs.max(1);
            wave.pods_per_job = self.pods.div_ceil(wave.jobs);
            wave.parallelism = self.parallelism.unwrap_or(self.pods).div_ceil(wave.jobs);
            wave.run_time = self.hold.unwrap_or(wave.run_time);
            wave.fail_ratio = self.fail_ratio;
            let spec = &mut wave.job["spec"];
            spec["completionMode"] = json!(if self.indexed { "Indexed" } else { "NonIndexed" });
            if let Some(limit) = self.backoff_limit_per_index {
                spec["backoffLimitPerIndex"] = json!(limit);
                spec["maxFailedIndexes"] = json!(wave.pods_per_job);
            }
        }
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        play("large", &self.common, self.load()?).await
    }
}

impl SmallArgs {
    /// The load for these flags.
    pub(crate) fn load(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../loads/small.yaml"))?;
        for wave in &mut load.waves {
            wave.jobs = self.jobs;
            wave.rate = self.rate;
            (wave.pods_per_job, wave.parallelism) = (self.pods_per_job, self.pods_per_job);
        }
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        play("small", &self.common, self.load()?).await
    }
}

impl ChurnArgs {
    /// The load for these flags.
    pub(crate) fn load(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../loads/churn.yaml"))?;
        for wave in &mut load.waves {
            (wave.pods_per_job, wave.parallelism) = (self.pods, self.parallelism);
            wave.run_time = self.hold.unwrap_or(wave.run_time);
        }
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        play("churn", &self.common, self.load()?).await
    }
}

impl FileArgs {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let load = Load::read(&self.file)?;
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        play(&name, &self.common, load).await
    }
}

/// Plays a load from start to end under Yardmaster.
async fn play(command: &str, common: &CommonArgs, load: Load) -> Result<ExitCode> {
    let mut stage = Stage::prepare(common, load).await?;
    stage.scale_up(common.replicas()).await?;
    stage.begin().await;
    stage.play().await?;
    let outcome = stage.finish(command).await?;
    conclude(&outcome.report, common.report.as_ref())
}
