//! `differ`: pairs of equal Jobs under two controllers on one API server. The same acts are played on both, and after
//! each step their statuses, pods and Events are compared.
//!
//! The reference is the controller built into Kubernetes, beside the API server of a kubeconfig. On the
//! embedded API server, it is Yardmaster under another name. A [`plan`] follows from a seed. A [`pair`] plays
//! it on two [`side`]s, which the [`mirror`] shows, and compares their [`state`]s. [`rules`] lists the
//! intended differences, [`judge`] plays a difference again, [`shrink`] makes plans smaller, [`draft`] turns them into
//! scenarios.

mod class;
mod draft;
mod judge;
mod meanwhile;
mod mirror;
mod pair;
mod picks;
mod plan;
mod report;
mod rules;
mod saved;
mod shrink;
mod side;
mod state;
mod yard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::time::sleep;

use self::judge::PairJudge;
use self::plan::Plan;
use self::report::Report;
use self::saved::SavedReport;
use self::yard::Yard;
use crate::ground::{Ground, Storage};
use crate::report::Env;
use crate::stage::{BUILT_IN, CommonArgs, EXTERNAL};

/// Flags of `differ`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DifferArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Number of pairs, each of its own seed.
    #[arg(long, value_name = "N", default_value_t = 50)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "M", default_value_t = 0)]
    from: u64,
    /// Pairs that are played at once, first plays and others; they wait most of the time.
    #[arg(long, value_name = "T", default_value_t = 64)]
    threads: usize,
    /// Leave out plans that restart controllers.
    #[arg(long, conflicts_with = "only_restarts")]
    without_restarts: bool,
    /// Play only plans that restart controllers.
    #[arg(long)]
    only_restarts: bool,
    /// Most plans that are played to make a difference smaller; 0: leave it as it is.
    #[arg(long, value_name = "RUNS", default_value_t = 60)]
    shrink: u32,
    /// Play the plans of a former report in place of seeds.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["seeds", "from"])]
    replay: Option<PathBuf>,
    /// Shell command that restarts the reference, and returns once it runs. Without it, only replicas of Yardmaster
    /// are restarted.
    #[arg(long, value_name = "CMD", requires = "kubeconfig")]
    restart_reference: Option<String>,
    /// Directory for drafts of scenarios, one for each difference.
    #[arg(long, value_name = "DIR")]
    write_scenarios: Option<PathBuf>,
}

impl DifferArgs {
    /// Plays all pairs, prints what differs, and writes the report.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let mut common = self.common.clone();
        common.replicas.get_or_insert(2);
        let name = common.controller_name.get_or_insert_with(|| EXTERNAL.to_owned());
        ensure!(*name != BUILT_IN, "--controller-name: {BUILT_IN} is the name of the reference");
        let plans = self.plans()?;
        let ground = Ground::prepare(common.kubeconfig.as_deref(), Storage::Memory).await?;
        let server = common.kubeconfig.as_ref().map_or("embedded".into(), |file| file.display().to_string());
        let report = Report::new(Env::here(server), plans.len());
        let report = SavedReport::new(report, common.report.clone());
        report.save()?;
        let yard = Yard::prepare(&ground, &common, self.restart_reference.clone()).await?;
        tokio::select! {
            done = self.play_all(&yard, plans, &report) => done?,
            never = report.save_often() => match never {},
            // The pairs under way stay undecided.
            () = sleep(common.timeout) => eprintln!("the time limit is over: {:?}", common.timeout),
        }
        report.save()?;
        yard.close().await?;
        ground.end().await?;
        if let Some(directory) = &self.write_scenarios {
            report.read().write_scenarios(directory)?;
        }
        let is_good = report.read().is_good();
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plans(&self) -> Result<Vec<Plan>> {
        let plans = match &self.replay {
            Some(file) => replayed(file).with_context(|| file.display().to_string())?,
            None => (0..self.seeds).map(|number| Plan::of(self.from.wrapping_add(number))).collect(),
        };
        Ok(plans.into_iter().filter(|plan| self.has(plan)).collect())
    }

    /// Whether a plan is not left out.
    fn has(&self, plan: &Plan) -> bool {
        if plan.restarts() { !self.without_restarts } else { !self.only_restarts }
    }

    /// Plays all plans, and decides on each.
    async fn play_all(&self, yard: &Yard, plans: Vec<Plan>, report: &SavedReport) -> Result<()> {
        let judge = PairJudge::new(yard, self.threads, self.shrink);
        // Restarts concern all pairs under way, so the plans that have them come last.
        let (restarting, others): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(Plan::restarts);
        for plans in [others, restarting] {
            let decided = stream::iter(plans).map(|plan| judge.decide(plan, report));
            decided.buffer_unordered(judge.pairs_at_once()).collect::<()>().await;
            yard.check().await?;
        }
        Ok(())
    }
}

/// The plans in the stories of a report.
fn replayed(file: &Path) -> Result<Vec<Plan>> {
    let report: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let stories = report["stories"].as_array().context("no report of differ")?;
    Ok(stories.iter().map(|story| serde_json::from_value(story["plan"].clone())).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DifferArgs,
    }

    fn seeds(flags: &[&str]) -> Vec<u64> {
        let args = Cli::try_parse_from([&["differ", "--seeds", "60"], flags].concat()).unwrap().args;
        args.plans().unwrap().iter().map(|plan| plan.seed).collect()
    }

    #[test]
    fn plans_with_restarts_can_be_played_apart() {
        let (plain, restarting) = (seeds(&["--without-restarts"]), seeds(&["--only-restarts"]));
        assert!(!restarting.is_empty() && restarting.len() < plain.len());
        let mut both = [plain, restarting].concat();
        both.sort_unstable();
        assert_eq!(both, seeds(&[]));
        assert!(Cli::try_parse_from(["differ", "--without-restarts", "--only-restarts"]).is_err());
    }
}
