//! `soak`: a long mixed load with faults of the API server, of processes, connections and the disk, beside many
//! watches, under replicas with few resources.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum as _};
use jiff::SignedDuration;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::conclude;
use crate::document;
use crate::faults::{FaultKind, TimedFault};
use crate::limits::Limits;
use crate::load::Load;
use crate::process_faults::{Drill, DrillArgs, ProcessFault, Record, table};
use crate::report::{Env, Report};
use crate::stage::{CommonArgs, Stage};
use crate::watches::Watches;

/// Limit of open files of a replica, if no other is given.
const OPEN_FILES: u64 = 256;
/// Limit of the address space of a replica in MiB, if no other is given.
const MEMORY_MIB: u64 = 1024;
/// Number of replicas, if no other is given: one can be missed.
const REPLICAS: usize = 3;

/// Time before the first fault, from which is known how late work usually is.
const WARM_UP: Duration = Duration::from_secs(15);

/// Flags of `soak`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SoakArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Time during which Jobs are created, such as 5m and 1h.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// The same time in minutes.
    #[arg(long, value_name = "M", conflicts_with = "duration")]
    pub(crate) minutes: Option<u32>,
    /// Share of the usual rate of Jobs, from above 0 to 100: less for slow machines.
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = load_factor)]
    pub(crate) load_factor: f64,
    /// Mean time between faults of the API server while no other fault is played; 0s: no faults. With --kubeconfig there are none.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) fault_period: Duration,
    /// Faults of processes, connections and the disk, all of them in a random order before one is repeated
    /// [default: all kinds; with --kubeconfig those of replicas].
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) process_faults: Vec<ProcessFault>,
    /// Time between the recovery from one of these faults and the next; 0s: no such faults.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) process_fault_period: Duration,
    #[command(flatten)]
    pub(crate) drill: DrillArgs,
    /// Number of watches beside the load, each on a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) watches: usize,
    /// Markdown page whose table of faults is replaced by the measured one. The machine must be quiet, and the
    /// build one for measuring.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) write: Option<PathBuf>,
    /// Seed of the faults [default: a new one for each run, shown in the report].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

impl SoakArgs {
    /// Time during which Jobs are created.
    fn time(&self) -> Duration {
        self.minutes.map_or(self.duration, |minutes| Duration::from_secs(60) * minutes)
    }

    fn load(&self, seed: u64) -> Result<Load> {
        let mut load = Load::parse(include_str!("../loads/soak.yaml"))?;
        for wave in &mut load.waves {
            // The file has the numbers for a minute.
            let jobs = f64::from(wave.jobs) * self.load_factor * self.time().as_secs_f64() / 60.0;
            wave.jobs = (jobs.round() as u32).max(1);
            wave.rate *= self.load_factor;
        }
        if self.common.kubeconfig.is_none() && !self.fault_period.is_zero() {
            load.faults = faults(&mut SmallRng::seed_from_u64(seed), self.time(), self.fault_period);
        }
        Ok(load)
    }

    fn common(&self) -> CommonArgs {
        let limits = self.common.limits;
        CommonArgs {
            timeout: self.common.timeout + self.time(),
            replicas: self.common.replicas.or(Some(REPLICAS)),
            limits: Limits {
                open_files: limits.open_files.or(Some(OPEN_FILES)),
                memory_mib: limits.memory_mib.or(Some(MEMORY_MIB)),
            },
            ..self.common.clone()
        }
    }

    /// The kinds of faults that are played.
    fn kinds(&self) -> Vec<ProcessFault> {
        let asked = match &*self.process_faults {
            [] => ProcessFault::value_variants(),
            some => some,
        };
        let possible = |fault: &&ProcessFault| self.common.kubeconfig.is_none() || !fault.needs_embedded();
        if self.process_fault_period.is_zero() {
            Vec::new()
        } else {
            asked.iter().filter(possible).copied().collect()
        }
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let seed =
            self.seed.unwrap_or_else(|| u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs()));
        if self.write.is_some() {
            Env::here(String::new()).is_fit_to_publish()?;
        }
        let (common, kinds) = (self.common(), self.kinds());
        eprintln!("seed {seed}");
        let load = self.load(seed)?;
        let names: Vec<String> =
            load.waves.iter().flat_map(|wave| (0..wave.jobs).map(|job| wave.job_name(job))).collect();
        let mut stage = Stage::prepare_with(&common, load, ProcessFault::setup_of(&kinds)).await?;
        let drill = Drill::new(&stage, &self.drill, &common, seed);
        let jobs = stage.ground.path("/apis/batch/v1", "jobs");
        let client = stage.ground.client("load-tests-watches").await?;
        let watches = Watches::open(&client, &jobs, &names, self.watches);
        stage.scale_up(common.replicas()).await?;
        stage.begin().await;
        let records = self.play(&mut stage, drill, &kinds, seed).await?;
        let played = stage.faults_played();
        let mut report = stage.finish("soak").await?.report;
        let missed: Vec<&ProcessFault> =
            kinds.iter().filter(|kind| records.iter().all(|record| record.fault != **kind)).collect();
        report.findings = json!({
            "seed": seed,
            "faults_played": played,
            "process_faults": records,
            "process_faults_not_played": missed,
            "watches": watches.findings(),
            "limits": limits(common.limits, &report),
            "memory": memory(&report),
        });
        if !records.is_empty() {
            println!("{}", table(&records));
        }
        if let Some(file) = &self.write {
            document::fill(file, "process-faults", &table(&records))?;
        }
        if !missed.is_empty() {
            println!("not played: {}", missed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        }
        println!("watches: {}", report.findings["watches"]);
        println!("limits of a replica: {}", report.findings["limits"]);
        let code = conclude(&report, common.report.as_ref())?;
        let recovered = records.iter().all(|record| record.recovered_after_s.is_some());
        Ok(if recovered && watches.all_opened() { code } else { ExitCode::FAILURE })
    }

    /// Plays the load to its end, and the faults meanwhile.
    async fn play(
        &self,
        stage: &mut Stage,
        mut drill: Drill,
        kinds: &[ProcessFault],
        seed: u64,
    ) -> Result<Vec<Record>> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut next: Vec<ProcessFault> = Vec::new();
        if !kinds.is_empty() {
            stage.skip_faults(true);
            drill.calm(stage, WARM_UP).await?;
            stage.skip_faults(false);
        }
        while !kinds.is_empty() && !stage.is_late() && !drill.calm(stage, self.process_fault_period).await? {
            if next.is_empty() {
                next = kinds.to_vec();
                next.shuffle(&mut random);
            }
            if let Some(fault) = next.pop() {
                eprintln!("{}", drill.play(stage, fault).await?);
            }
        }
        stage.play().await?;
        Ok(drill.into_records())
    }
}

/// The limits of replicas, and how near they came to them.
fn limits(limits: Limits, report: &Report) -> Value {
    let most = |of: fn(&crate::report::Controller) -> u64| report.controller.iter().map(of).max();
    json!({
        "open_files": limits.open_files,
        "most_open_files": most(|replica| replica.open_files),
        "memory_bytes": limits.memory_mib.map(|size| size << 20),
        "peak_virtual_bytes": most(|replica| replica.peak_virtual_bytes),
        "peak_rss_bytes": most(|replica| replica.peak_rss_bytes),
    })
}

fn load_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| *factor > 0.0 && *factor <= 100.0);
    factor.ok_or_else(|| "a number from above 0 to 100 is expected".to_owned())
}

/// Random faults of all kinds in that time.
fn faults(random: &mut SmallRng, time: Duration, period: Duration) -> Vec<TimedFault> {
    let seconds = SignedDuration::from_secs;
    let menu = [
        (FaultKind::Delay(SignedDuration::from_millis(300)), seconds(5), 1),
        (FaultKind::Refuse(429), seconds(5), 2),
        (FaultKind::Refuse(500), seconds(3), 3),
        (FaultKind::Refuse(503), seconds(2), 1),
        (FaultKind::LoseReplies(true), seconds(3), 5),
        (FaultKind::Partition(true), seconds(3), 1),
        (FaultKind::HoldWatches(true), seconds(3), 1),
        (FaultKind::ExpireWatches(true), seconds(0), 1),
        (FaultKind::BreakWatches(true), seconds(0), 1),
    ];
    let mut faults = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += period.mul_f64(random.random_range(0.5..1.5));
        let (Some((kind, lasting, every)), true) = (menu.choose(random).cloned(), at < time) else {
            return faults;
        };
        faults.push(TimedFault {
            at: SignedDuration::try_from(at).unwrap_or_default(),
            r#for: lasting,
            user_agent: "yardmaster/".into(),
            methods: Vec::new(),
            path: String::new(),
            every,
            kind,
        });
    }
}

/// Mean memory of all replicas together in the second and in the last quarter, in bytes, which shows growth.
fn memory(report: &Report) -> Value {
    let quarter = report.series.len() / 4;
    let mean = |from: usize| {
        let points = report.series.get(from..from + quarter).unwrap_or_default();
        let sum: u64 = points.iter().flat_map(|point| point.replicas.values()).map(|(_, rss)| *rss).sum();
        sum / (points.len() as u64).max(1)
    };
    json!({"second_quarter_bytes": mean(quarter), "last_quarter_bytes": mean(quarter * 3)})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let hour = Duration::from_secs(3600);
        let list = |seed| {
            let faults = faults(&mut SmallRng::seed_from_u64(seed), hour, Duration::from_secs(10));
            serde_json::to_value(faults).unwrap()
        };
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
        let count = list(1).as_array().unwrap().len();
        assert!((300..420).contains(&count), "{count}");
        let again: Vec<TimedFault> = serde_json::from_value(list(1)).unwrap();
        assert_eq!(again.len(), count, "the API server's process understands them");
    }
}
