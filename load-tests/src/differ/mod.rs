//! `differ`: pairs of equal Jobs under two controllers on one API server. The same acts are played on both, and after
//! each step their statuses, pods and Events are compared.
//!
//! The reference is the controller built into Kubernetes, beside the API server of a kubeconfig. On the
//! embedded API server, it is Yardmaster under another name. A [`plan`] follows from a seed. A [`pair`] plays
//! it on two [`side`]s, which the [`mirror`] shows, and compares their [`state`]s. [`rules`] lists the
//! intended differences, [`shrink`] makes plans smaller, [`draft`] turns them into scenarios.

mod class;
mod draft;
mod meanwhile;
mod mirror;
mod pair;
mod picks;
mod plan;
mod report;
mod rules;
mod shrink;
mod side;
mod state;
mod yard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::future::{join, join_all};
use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use self::pair::{Opponent, Pauses, Played};
use self::plan::Plan;
use self::report::{Report, Verdict};
use self::rules::Known;
use self::state::Difference;
use self::yard::Yard;
use crate::ground::{Ground, Storage};
use crate::report::Env;
use crate::stage::{BUILT_IN, CommonArgs, EXTERNAL};

/// Smaller plans of one story that are played at once.
const TRIED_AT_ONCE: usize = 6;
/// Differences that are looked at again at once.
const JUDGED_AT_ONCE: usize = 12;
/// How often a difference is played again, and the reference against itself.
const AGAIN: usize = 5;
/// Most acts of a step between which the reference gets pauses.
const MOST_ACTS: usize = 12;

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
    /// Pairs that are played at once; they wait most of the time.
    #[arg(long, value_name = "T", default_value_t = 32)]
    threads: usize,
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
        let mut report = Report::new(Env::here(server));
        let yard = Yard::prepare(&ground, &common, self.restart_reference.clone()).await?;
        let deadline = Instant::now() + common.timeout;
        // Restarts concern all pairs under way, so the plans that have them come last.
        let (restarting, others): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(Plan::restarts);
        let mut judged = Vec::new();
        for plans in [others, restarting] {
            let played = self.play_all(&yard, plans, deadline).await;
            yard.check().await?;
            let again = stream::iter(played).map(|played| self.judge(&yard, played, deadline));
            judged.extend(again.buffer_unordered(JUDGED_AT_ONCE).collect::<Vec<_>>().await);
        }
        judged.sort_by_key(|(played, _)| played.plan.seed);
        for (played, again) in &judged {
            report.add(played, *again);
        }
        yard.close().await?;
        ground.end().await?;
        if let Some(file) = &common.report {
            report.write(file)?;
        }
        if let Some(directory) = &self.write_scenarios {
            report.write_scenarios(directory)?;
        }
        println!("{report}");
        Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plans(&self) -> Result<Vec<Plan>> {
        match &self.replay {
            Some(file) => replayed(file).with_context(|| file.display().to_string()),
            None => Ok((0..self.seeds).map(|number| Plan::of(self.from.wrapping_add(number))).collect()),
        }
    }

    /// Plays plans, some at once.
    async fn play_all(&self, yard: &Yard, plans: Vec<Plan>, deadline: Instant) -> Vec<Played> {
        let plays = stream::iter(plans).map(|plan| play(yard, plan, Opponent::Ours, deadline));
        let shown = plays.buffer_unordered(self.threads.max(1)).inspect(|played| {
            let verdict = Verdict::of(played);
            if verdict != Verdict::Equal {
                println!("seed {}: {verdict}", played.plan.seed);
            }
        });
        shown.collect().await
    }

    /// Looks whether a difference is chance, and whether it is seen again. If so, makes its plan smaller.
    async fn judge(&self, yard: &Yard, played: Played, deadline: Instant) -> (Played, Option<bool>) {
        let verdict = Verdict::of(&played);
        if !matches!(verdict, Verdict::Different(_)) {
            return (played, None);
        }
        let again = |plan: Plan| play(yard, plan, Opponent::Ours, deadline);
        let (seen, itself) = join(
            join_all((0..AGAIN).map(|_| again(played.plan.clone()))),
            join_all((0..AGAIN).map(|_| play(yard, played.plan.clone(), Opponent::Itself, deadline))),
        )
        .await;
        let varies = itself.iter().any(|other| other.differs_as(&played));
        if varies || comes_to_ours(&played, &seen, false) || comes_to_ours(&played, &itself, true) {
            return (Played { shown: Some(Known::Race), ..played }, None);
        }
        if comes_to_ours(&played, &with_pauses(yard, &played, deadline).await, false) {
            return (Played { shown: Some(Known::ActsAtOnce), ..played }, None);
        }
        let is_same = |other: &Played| Verdict::of(other) == verdict;
        let is_known =
            |other: &&Played| matches!(Verdict::of(other), Verdict::Known(_)) && other.differs_as(&played);
        let Some(seen) = seen.iter().find(|other| is_same(other)) else {
            return seen
                .iter()
                .find(is_known)
                .map_or((played.clone(), Some(false)), |known| (known.clone(), None));
        };
        let same_again = async |plan: Plan| Some(again(plan).await).filter(is_same);
        let (_, smaller) = shrink::smallest(seen.plan.clone(), self.shrink, TRIED_AT_ONCE, same_again).await;
        match smaller {
            Some(smaller) if !reference_varies(yard, &smaller, deadline).await => (smaller, Some(true)),
            _ => (seen.clone(), Some(true)),
        }
    }
}

async fn play(yard: &Yard, plan: Plan, opponent: Opponent, deadline: Instant) -> Played {
    if Instant::now() > deadline {
        return Played::unfinished(plan, "there was no time left for it".into());
    }
    Played::of(yard, &plan, opponent).await
}

/// Plays a plan with pauses for the reference at each place of the last step, and at all of them.
async fn with_pauses(yard: &Yard, played: &Played, deadline: Instant) -> Vec<Played> {
    let acts = played.plan.steps.last().map_or(0, |step| step.singly().0.len());
    let plays = Pauses::between(acts)
        .filter(|_| acts <= MOST_ACTS)
        .map(|pauses| play(yard, played.plan.clone(), Opponent::OursWithPauses(pauses), deadline));
    join_all(plays).await
}

/// Whether the reference comes in one of these plays to what ours came to.
fn comes_to_ours(played: &Played, others: &[Played], are_of_reference: bool) -> bool {
    let Some(difference) = played.difference() else { return false };
    let steps = played.plan.steps.len();
    let mut states = others.iter().flat_map(|other| other.of_reference(steps, are_of_reference));
    states.any(|state| Difference::between(state, &difference.ours).is_none())
}

/// Whether the reference differs from itself in what is weightiest in this difference.
async fn reference_varies(yard: &Yard, played: &Played, deadline: Instant) -> bool {
    let plays = (0..AGAIN).map(|_| play(yard, played.plan.clone(), Opponent::Itself, deadline));
    join_all(plays).await.iter().any(|other| other.differs_as(played))
}

/// The plans in the stories of a report.
fn replayed(file: &Path) -> Result<Vec<Plan>> {
    let report: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let stories = report["stories"].as_array().context("no report of differ")?;
    Ok(stories.iter().map(|story| serde_json::from_value(story["plan"].clone())).collect::<Result<_, _>>()?)
}
