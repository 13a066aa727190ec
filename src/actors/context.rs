//! The services that a replica provides to its actors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::api_backoff::ApiBackoff;
use super::clock::{Clock, Clocks, SteadyClock};
use super::config::ControllerConfig;
use super::loads::LoadBoard;
use super::rereads::Rereads;
use super::subscription::SubscriptionId;
use super::supervision::{Downfall, Unit};
use crate::cluster::boot_clock::BootClock;
use crate::cluster::events::Recorder;
use crate::cluster::gate::{GateConfig, WriteGate};
use crate::cluster::reads::Reader;
use crate::cluster::transport::Transport;
use crate::cluster::watch::Vigil;
use crate::cluster::wire::{JobDecoder, SelfWriteCache};
use crate::telemetry::metrics::Metrics;

/// The services that a replica provides to its actors. Clones share everything.
#[derive(Clone)]
pub struct ReplicaContext {
    /// Settings.
    pub config: Arc<ControllerConfig>,
    /// The tokio pool, for everything that waits for the network.
    pub runtime: Handle,
    /// The time of day, which never goes backwards.
    pub clock: Arc<dyn Clock>,
    /// The clock by which rights end.
    pub boot_clock: Arc<dyn BootClock>,
    /// The network.
    pub transport: Arc<dyn Transport>,
    /// The one way out for writes.
    pub gate: WriteGate,
    /// Live reads.
    pub reads: Reader,
    /// Kubernetes Events.
    pub recorder: Recorder,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The work that is left for each shard.
    pub loads: LoadBoard,
    /// Jobs as our own status writes left them, until the watch shows those writes.
    pub self_writes: SelfWriteCache,
    /// Further reads of objects that cannot be read.
    pub rereads: Rereads,
    /// How often the API server has been seen to show an earlier history. Each time, all watches begin anew.
    pub rewinds: Arc<watch::Sender<u64>>,
    /// What panics here ends the replica.
    pub downfall: Downfall,
    /// Looks after all watches of the replica.
    pub vigil: Vigil,
    /// Next number of [`seed`](Self::seed).
    seeds: Arc<AtomicU64>,
    /// Number of the next subscription.
    subscriptions: Arc<AtomicU64>,
}

impl ReplicaContext {
    /// The context of a replica with these settings, over this network.
    pub fn new(
        mut config: ControllerConfig,
        transport: Arc<dyn Transport>,
        metrics: Arc<Metrics>,
        runtime: Handle,
        clocks: Clocks,
    ) -> Self {
        // Counting the cores means reading files, which is too slow for each look at a Job.
        config.arbiters = config.arbiter_count();
        let limits =
            GateConfig { qps: config.kube_api_qps, burst: config.kube_api_burst, ..GateConfig::default() };
        let gate = WriteGate::open(transport.clone(), limits, config.finalizer(), metrics.clone());
        let recorder = Recorder::start(gate.clone(), config.event_source(), metrics.clone(), config.seed);
        let reads = Reader::new(transport.clone(), config.finalizer(), job_decoder(&config), metrics.clone());
        let seeds = Arc::new(AtomicU64::new(config.seed));
        let loads = LoadBoard::new(config.shards);
        metrics.shards.set(config.shards.shards().count() as i64);
        Self {
            config: Arc::new(config),
            runtime,
            boot_clock: clocks.boot.clone(),
            clock: Arc::new(SteadyClock::new(clocks)),
            transport,
            gate,
            reads,
            recorder,
            metrics,
            loads,
            self_writes: SelfWriteCache::default(),
            rereads: Rereads::default(),
            rewinds: Arc::default(),
            downfall: Downfall::default(),
            vigil: Vigil::default(),
            seeds,
            subscriptions: Arc::default(),
        }
    }

    /// A decoder that keeps of Jobs what this replica needs.
    pub fn job_decoder(&self) -> JobDecoder {
        job_decoder(&self.config)
    }

    /// A seed for something that varies by chance: another one at each call, and the same sequence for the
    /// same settings.
    pub fn seed(&self) -> u64 {
        self.seeds.fetch_add(1, Ordering::Relaxed)
    }

    /// A part of the replica without which it must end.
    pub fn vital(&self, what: &'static str) -> Unit {
        let downfall = self.downfall.clone();
        Unit::new(self.runtime.clone(), move || downfall.cause(what))
    }

    /// The identity of a new subscription.
    pub fn next_subscription(&self) -> SubscriptionId {
        SubscriptionId(self.subscriptions.fetch_add(1, Ordering::Relaxed))
    }

    /// The pauses between attempts of one request (`--api-backoff`, `--api-backoff-max`).
    pub fn api_backoff(&self) -> ApiBackoff {
        ApiBackoff::new(self.config.api_backoff, self.config.api_backoff_max, self.seed())
    }
}

fn job_decoder(config: &ControllerConfig) -> JobDecoder {
    JobDecoder::new().with_traces(config.traces.is_on())
}
