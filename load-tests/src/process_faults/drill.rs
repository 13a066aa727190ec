//! Plays faults one after the other, and measures how long each keeps work from being done.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::JoinSet;

use super::{ProcessFault, Record, acts};
use crate::claims::{Claims, all_owned, moved};
use crate::report::round;
use crate::stage::{CommonArgs, Stage};

/// Work may be owed this many times as long as before the fault.
const LATER_THAN_BEFORE: u32 = 2;
/// The effect of a fault is over when it has not shown for this long.
const CALM: Duration = Duration::from_secs(3);
/// Limit of the effect of a fault. A watch that has died without a word is opened again after 20 s and its turn.
const PATIENCE: Duration = Duration::from_secs(180);

/// Flags of all commands with faults of processes and connections.
#[derive(Clone, Debug, Args)]
pub(crate) struct DrillArgs {
    /// Length of faults that last.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) fault_time: Duration,
    /// Work that is owed for less than this long is on time, however fast things were before the fault.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) on_time: Duration,
    /// Delay of a slow link, in each direction.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    pub(crate) link_delay: Duration,
    /// Delay of a slow webhook.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    pub(crate) webhook_delay: Duration,
    /// Time after which the API server gives a failing webhook up.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) webhook_timeout: Duration,
}

/// Faults in progress.
pub(crate) struct Drill {
    pub(super) args: DrillArgs,
    pub(super) random: SmallRng,
    claims: Claims,
    shards: u32,
    replicas: usize,
    /// Longest time for which work was owed while there was no fault.
    usual: Duration,
    records: Vec<Record>,
    _watching: JoinSet<()>,
}

impl Drill {
    /// Prepares faults on this stage.
    pub(crate) fn new(stage: &Stage, args: &DrillArgs, common: &CommonArgs, seed: u64) -> Self {
        let claims = Claims::default();
        let mut watching = JoinSet::new();
        let leases = stage.ground.path("/apis/coordination.k8s.io/v1", "leases");
        watching.spawn(claims.clone().follow(stage.client.clone(), leases));
        Self {
            args: args.clone(),
            random: SmallRng::seed_from_u64(seed),
            claims,
            shards: common.shards,
            replicas: common.replicas(),
            usual: Duration::ZERO,
            records: Vec::new(),
            _watching: watching,
        }
    }

    /// The owners of shards.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Changes the number of replicas that are kept up.
    pub(crate) fn keep_up(&mut self, replicas: usize) {
        self.replicas = replicas;
    }

    /// Runs the load without a fault. Returns whether all Jobs have ended.
    pub(crate) async fn calm(&mut self, stage: &mut Stage, time: Duration) -> Result<bool> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if stage.step().await? {
                return Ok(true);
            }
            self.usual = self.usual.max(stage.ledger.debt(Instant::now()));
        }
        Ok(false)
    }

    /// Plays a fault, and waits until its effect is over. The API server plays none of its own meanwhile, so that
    /// the effect is this fault's alone.
    pub(crate) async fn play(&mut self, stage: &mut Stage, fault: ProcessFault) -> Result<&Record> {
        let (at_s, begun, owners) = (stage.elapsed(), Instant::now(), self.claims.owners());
        stage.skip_faults(true);
        let act = acts::play(self, stage, fault).await?;
        let lasted_s = round(begun.elapsed().as_secs_f64());
        stage.scale_up(self.replicas).await?;
        let recovered = self.wait_until_recovered(stage, begun).await?;
        stage.skip_faults(false);
        let record = Record {
            fault,
            target: act.target,
            at_s,
            lasted_s,
            recovered_after_s: recovered.map(|time| round(time.as_secs_f64())),
            shards_moved: moved(&owners, &self.claims.owners()),
            observed: act.observed,
        };
        self.records.push(record);
        // The record was pushed in the line before.
        self.records.last().ok_or_else(|| anyhow::anyhow!("no record"))
    }

    /// Waits until no work is owed for long and running replicas own all shards. Returns the time since `begun`,
    /// `None` if that does not happen.
    async fn wait_until_recovered(&self, stage: &mut Stage, begun: Instant) -> Result<Option<Duration>> {
        let limit = self.args.on_time.max(self.usual * LATER_THAN_BEFORE);
        // Work that gets stuck is late only after the limit, so things are calm only after more than that.
        let calm = CALM + limit;
        let mut well_since = None;
        loop {
            stage.step().await?;
            let owned = all_owned(&self.claims.owners(), self.shards, &stage.fleet.identities());
            let now = Instant::now();
            if !owned || stage.ledger.debt(now) > limit {
                well_since = None;
            } else if now - *well_since.get_or_insert(now) >= calm {
                return Ok(well_since.map(|since| since - begun));
            }
            if begun.elapsed() > PATIENCE + self.args.fault_time {
                return Ok(None);
            }
        }
    }

    /// The records of all faults.
    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records
    }
}
