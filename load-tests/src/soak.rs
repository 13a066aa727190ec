//! `soak`: a long mixed load with faults of the API server and killed replicas.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use jiff::SignedDuration;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::conclude;
use crate::faults::{FaultKind, TimedFault};
use crate::load::Load;
use crate::report::Report;
use crate::stage::{CommonArgs, Stage};

/// Flags of `soak`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SoakArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Minutes during which Jobs are created.
    #[arg(long, value_name = "M", default_value_t = 10)]
    pub(crate) minutes: u32,
    /// Mean time between faults of the API server; 0s: no faults. With --kubeconfig there are none.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) fault_period: Duration,
    /// Time between kills of a replica, each of which is replaced; 0s: no kills.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    pub(crate) kill_period: Duration,
    /// Seed of the faults [default: a new one for each run, shown in the report].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

impl SoakArgs {
    fn load(&self, seed: u64) -> Result<Load> {
        let mut load = Load::parse(include_str!("../loads/soak.yaml"))?;
        for wave in &mut load.waves {
            wave.jobs *= self.minutes.max(1);
        }
        if self.common.kubeconfig.is_none() && !self.fault_period.is_zero() {
            let time = Duration::from_secs(60) * self.minutes;
            load.faults = faults(&mut SmallRng::seed_from_u64(seed), time, self.fault_period);
        }
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let seed =
            self.seed.unwrap_or_else(|| u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs()));
        let common = CommonArgs {
            timeout: self.common.timeout + Duration::from_secs(60) * self.minutes,
            ..self.common.clone()
        };
        let mut stage = Stage::prepare(&common, self.load(seed)?).await?;
        stage.scale_up(common.replicas).await?;
        stage.begin();
        let mut kills = 0;
        if self.kill_period.is_zero() {
            stage.play().await?;
        } else {
            let end = Instant::now() + common.timeout;
            while !stage.play_for(self.kill_period).await? && Instant::now() < end {
                stage.fleet.kill_oldest().await;
                stage.scale_up(common.replicas).await?;
                kills += 1;
            }
        }
        let mut report = stage.finish("soak").await?.report;
        report.findings = json!({"seed": seed, "kills": kills, "memory": memory(&report)});
        conclude(&report, common.report.as_ref())
    }
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
fn memory(report: &Report) -> serde_json::Value {
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
