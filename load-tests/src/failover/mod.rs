//! `failover`: replicas join, leave and are killed while pods run. Measures the effect on the work from
//! outside.

mod acts;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum as _};
use serde_json::{Value, json};

use self::acts::{Acts, Shards};
use crate::claims::{Claims, Owners, all_owned, balance, moved};
use crate::conclude;
use crate::load::{Load, RunTime};
use crate::process_faults::{Drill, DrillArgs, ProcessFault};
use crate::report::round;
use crate::stage::{CommonArgs, Stage};
use crate::views::Pod;
use crate::watch::Collection;

/// Shards are stable after this time without a change of owner.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// Time to wait for a first claim before the controller counts as one without claims.
const FIRST_CLAIM: Duration = Duration::from_secs(10);

/// Flags of `failover`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Number of pods that run at once.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub(crate) pods: u32,
    /// Number of Jobs that share the pods.
    #[arg(long, value_name = "J", default_value_t = 200)]
    pub(crate) jobs: u32,
    /// Run time of a pod.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) run_time: RunTime,
    /// Number of pods that run in each place, one after the other.
    #[arg(long, value_name = "G", default_value_t = 10)]
    pub(crate) generations: u32,
    /// Steps: a number of replicas to scale to, `term` to end one by SIGTERM, `kill` to end one by SIGKILL, or a
    /// fault as in `soak --process-faults`. After `term` and `kill` another replica is started.
    #[arg(long, value_name = "STEPS", value_delimiter = ',', default_value = "1,4,8,3,term,kill")]
    pub(crate) steps: Vec<Step>,
    /// Time between steps, after the shards are stable.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    pub(crate) pause: Duration,
    /// --lease-duration of the replicas.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    pub(crate) lease_duration: Duration,
    /// --renew-deadline of the replicas.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) renew_deadline: Duration,
    /// --retry-period of the replicas.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    pub(crate) retry_period: Duration,
    #[command(flatten)]
    pub(crate) drill: DrillArgs,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start or end replicas until this many run.
    Scale(usize),
    /// End one replica by SIGTERM.
    Term,
    /// End one replica by SIGKILL.
    Kill,
    /// Play a fault.
    Fault(ProcessFault),
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "term" => Ok(Self::Term),
            "kill" => Ok(Self::Kill),
            _ => match ProcessFault::from_str(text, false) {
                Ok(fault) => Ok(Self::Fault(fault)),
                Err(_) => text
                    .parse()
                    .map(Self::Scale)
                    .map_err(|_| "a number, term, kill or a fault is expected".to_owned()),
            },
        }
    }
}

impl Step {
    /// The fault, if it is one.
    fn fault(self) -> Option<ProcessFault> {
        if let Self::Fault(fault) = self { Some(fault) } else { None }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scale(count) => write!(f, "{count}"),
            Self::Term => f.write_str("term"),
            Self::Kill => f.write_str("kill"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl FailoverArgs {
    fn load(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../../loads/failover.yaml"))?;
        for wave in &mut load.waves {
            wave.jobs = self.jobs.clamp(1, self.pods.max(1));
            wave.parallelism = self.pods.div_ceil(wave.jobs);
            wave.pods_per_job = wave.parallelism * self.generations.max(1);
            wave.run_time = self.run_time;
            if let RunTime::For(time) = self.run_time {
                // Jobs that start together would end their pods together, and shards would be idle in
                // between.
                wave.rate = f64::from(wave.jobs) / time.as_secs_f64().max(0.001);
            }
        }
        Ok(load)
    }

    fn common(&self) -> CommonArgs {
        let mut common = self.common.clone();
        for (flag, time) in [
            ("--lease-duration", self.lease_duration),
            ("--renew-deadline", self.renew_deadline),
            ("--retry-period", self.retry_period),
        ] {
            common.controller_flag.extend([flag.to_owned(), humantime::format_duration(time).to_string()]);
        }
        common
    }

    /// Plays all steps, waits for the load, and reports.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let faults: Vec<ProcessFault> = self.steps.iter().filter_map(|step| step.fault()).collect();
        let setup = ProcessFault::setup_of(&faults);
        let mut stage = Stage::prepare_with(&self.common(), self.load()?, setup).await?;
        if let Some(fault) =
            faults.iter().find(|fault| fault.needs_embedded()).filter(|_| !stage.ground.is_embedded())
        {
            bail!("{fault} needs the embedded API server");
        }
        let drill = Drill::new(&stage, &self.drill, &self.common, rand::random());
        let claims = drill.claims().clone();
        let mut play =
            Play { args: &self, claims, drill, steps: Vec::new(), killed: Vec::new(), begun: false };
        for step in &self.steps {
            play.step(&mut stage, *step).await?;
        }
        stage.play().await?;
        let shards = Shards { claims: play.claims.names(), ..shards(&stage).await? };
        let (steps, killed, faults) = (play.steps, play.killed, play.drill.into_records());
        let (known, stale) = (play.claims.known(), play.claims.stale_epochs());
        let mut outcome = stage.finish("failover").await?;
        let (mut foreign, mut findings) = (0, json!({}));
        if let Some(record) = &outcome.record {
            (foreign, findings) = Acts::read(&record.file, &shards)?.findings(&killed);
        }
        findings["claimed_shards"] = json!(known);
        findings["takeovers_without_new_epoch"] = json!(stale);
        findings["steps"] = Value::Array(steps);
        let recovered = faults.iter().all(|fault| fault.recovered_after_s.is_some());
        findings["process_faults"] = serde_json::to_value(faults)?;
        outcome.report.findings = findings;
        println!("{:#}", outcome.report.findings);
        let code = conclude(&outcome.report, self.common.report.as_ref())?;
        // Without claims there are no owners, and nothing to check.
        let sound = recovered && (known == 0 || (foreign == 0 && stale == 0));
        Ok(if sound { code } else { ExitCode::FAILURE })
    }
}

/// The steps under way.
struct Play<'a> {
    args: &'a FailoverArgs,
    claims: Claims,
    drill: Drill,
    steps: Vec<Value>,
    /// Replicas that could not hand over.
    killed: Vec<String>,
    /// Whether Jobs are being created.
    begun: bool,
}

impl Play<'_> {
    async fn step(&mut self, stage: &mut Stage, step: Step) -> Result<()> {
        let (owners, from) = (self.claims.owners(), stage.fleet.len());
        let before = Instant::now();
        match step {
            Step::Scale(to) if to >= from => stage.scale_up(to).await?,
            Step::Scale(to) => stage.fleet.shrink(to).await,
            Step::Term => {
                stage.fleet.shrink(from.saturating_sub(1)).await;
            }
            Step::Kill => self.killed.extend(stage.fleet.kill(0).await),
            Step::Fault(fault) => {
                // The time before the fault shows the usual pace.
                self.drill.calm(stage, self.args.pause).await?;
                self.drill.keep_up(from);
                let record = self.drill.play(stage, fault).await?;
                eprintln!("{record}");
                self.killed.extend(record.target.split(':').next().map(str::to_owned));
            }
        }
        let owned = self.wait_until_stable(stage, before).await?;
        self.note(stage, step, from, &owners, owned);
        if matches!(step, Step::Term | Step::Kill) {
            // Scale back, and wait until the shards are stable again.
            let (owners, now) = (self.claims.owners(), stage.fleet.len());
            let before = Instant::now();
            stage.scale_up(from).await?;
            let owned = self.wait_until_stable(stage, before).await?;
            self.note(stage, Step::Scale(from), now, &owners, owned);
        }
        if !self.begun {
            self.begun = true;
            stage.begin().await;
        }
        stage.play_for(self.args.pause).await?;
        // Moves that balance the work must not be counted for the next step.
        self.wait_until_stable(stage, Instant::now()).await?;
        Ok(())
    }

    /// Waits until running replicas own all shards and no owner changes any more. Returns the seconds until
    /// all were owned, `None` if that did not happen.
    async fn wait_until_stable(&self, stage: &mut Stage, since: Instant) -> Result<Option<f64>> {
        let patience = self.args.lease_duration + FIRST_CLAIM;
        let replicas = stage.fleet.identities();
        let mut owned = None;
        loop {
            if self.begun {
                stage.step().await?;
            } else {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let all = all_owned(&self.claims.owners(), self.args.common.shards, &replicas);
            let stable = self.claims.last_change().is_none_or(|last| last.elapsed() > STABLE_AFTER);
            match (all, owned) {
                (true, None) => owned = Some(round(since.elapsed().as_secs_f64())),
                (true, Some(_)) if stable => return Ok(owned),
                _ => {}
            }
            let first = if self.begun { STABLE_AFTER } else { FIRST_CLAIM };
            let none = self.claims.known() == 0 && since.elapsed() > first;
            if none || since.elapsed() > patience {
                return Ok(owned);
            }
        }
    }

    fn note(&mut self, stage: &Stage, step: Step, from: usize, before: &Owners, owned: Option<f64>) {
        let (after, replicas, shards) =
            (self.claims.owners(), stage.fleet.identities(), self.args.common.shards);
        let (fewest, most) = balance(&after, &replicas);
        let step = json!({
            "step": step.to_string(),
            "from_replicas": from,
            "to_replicas": replicas.len(),
            "all_owned_after_s": owned,
            "shards_moved": moved(before, &after),
            "shards_moved_limit": moves_limit(shards as usize, from, replicas.len()),
            "shards_of_a_replica": {"fewest": fewest, "most": most},
            "shards_of_a_replica_limit": (shards as usize).div_ceil(replicas.len().max(1)),
        });
        self.steps.push(step);
    }
}

/// Limit of moved shards: for each replica that joins or leaves, its fair share and one more.
fn moves_limit(shards: usize, from: usize, to: usize) -> usize {
    let (fewer, more) = (from.min(to), from.max(to));
    (fewer + 1..=more).map(|replicas| shards.div_ceil(replicas) + 1).sum()
}

/// The shards of all Jobs and pods, from the labels of pods.
async fn shards(stage: &Stage) -> Result<Shards> {
    let mut shards = Shards::default();
    let pods = Collection::new(stage.ground.path("/api/v1", "pods"));
    pods.list(&stage.client, |pod: Pod| {
        let Some(shard) = pod.metadata.labels.shard.and_then(|shard| shard.parse().ok()) else { return };
        shards.jobs.extend(pod.metadata.labels.job.map(|job| (job, shard)));
        shards.pods.insert(pod.metadata.name, shard);
    })
    .await?;
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_and_leaves_may_move_a_share_each() {
        assert_eq!(moves_limit(64, 3, 4), 17);
        assert_eq!(moves_limit(64, 4, 3), 17);
        assert_eq!(moves_limit(64, 1, 4), 33 + 23 + 17);
        assert_eq!(moves_limit(64, 3, 3), 0);
    }

    #[test]
    fn steps_are_read() {
        let steps: Vec<_> =
            ["4", "term", "kill", "half-open"].iter().map(|text| text.parse::<Step>()).collect();
        let fault = Step::Fault(ProcessFault::HalfOpen);
        assert_eq!(steps, [Ok(Step::Scale(4)), Ok(Step::Term), Ok(Step::Kill), Ok(fault)]);
        assert_eq!(fault.to_string(), "half-open");
        assert!("x".parse::<Step>().is_err());
    }
}
