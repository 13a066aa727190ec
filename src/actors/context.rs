//! The services that a replica provides to its actors.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::clock::{Clock, Clocks, SteadyClock};
use super::config::ControllerConfig;
use super::supervision::{Downfall, Fatal, Unit};
use crate::actors::known_jobs::job_index::JobIndex;
use crate::actors::known_jobs::jobs_by_name::JobsByName;
use crate::actors::known_jobs::last_failures::LastFailures;
use crate::actors::known_jobs::loads::LoadBoard;
use crate::actors::messages::subscription::SubscriptionId;
use crate::actors::pacing::api_backoff::ApiBackoff;
use crate::actors::pacing::large_pods::LargePods;
use crate::actors::pacing::long_works::LongWorks;
use crate::actors::pacing::pauses::Pauses;
use crate::actors::pacing::read_retries::ReadRetries;
use crate::actors::pacing::rest::rest_after;
use crate::actors::pods::pod_watch::{Kind, PodWatch, Services};
use crate::cluster::boot_clock::BootClock;
use crate::cluster::events::Recorder;
use crate::cluster::fair_semaphore::FairSemaphore;
use crate::cluster::gate::{GateConfig, WriteGate};
use crate::cluster::reads::Reader;
use crate::cluster::transport::Transport;
use crate::cluster::wire::{JobDecoder, ObservedPod, PodDecoder, Unreadable};
use crate::job::job_id::JobId;
use crate::telemetry::metrics::Metrics;

/// Labels, adoptions and releases of single pods that are attempted at the same time in a namespace. A tenant may need one for
/// each of its pods.
const POD_WRITES: usize = 32;
/// Lists of pods for Jobs with selectors of their own that are in progress, or rest, in a namespace.
const SELECTED_LISTS: usize = 2;

/// The services that a replica provides to its actors. Clones share everything.
#[derive(Clone)]
pub struct ReplicaContext {
    services: Arc<ReplicaServices>,
    /// Live reads.
    pub reads: Reader,
}

impl Deref for ReplicaContext {
    type Target = ReplicaServices;

    fn deref(&self) -> &ReplicaServices {
        &self.services
    }
}

/// The services of a replica. All clones of its [`ReplicaContext`] share them.
pub struct ReplicaServices {
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
    /// Writes about single pods that are attempted.
    pub pod_writes: FairSemaphore,
    /// Lists of the pods that Jobs with selectors of their own select, and their rests.
    pub selected_lists: FairSemaphore,
    /// Turns of pods of templates that are not kept.
    pub large_pods: LargePods,
    /// How long the Jobs of each namespace have worked in long turns.
    pub long_works: LongWorks,
    /// Kubernetes Events.
    pub recorder: Recorder,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The work that is left for each shard.
    pub loads: LoadBoard,
    /// Further reads of objects that cannot be read.
    pub read_retries: ReadRetries,
    /// When pods may be labelled again, by whichever part of the replica.
    pub label_pauses: Pauses,
    /// Why the whole replica must end, if it must.
    pub downfall: Downfall,
    /// The Jobs of the shards that this replica owns.
    pub job_index: Arc<JobIndex>,
    /// All Jobs of the cluster, for those that wait for others.
    pub jobs_by_name: JobsByName,
    /// The last failures of these Jobs.
    pub last_failures: LastFailures,
    /// The watch of the pods of all shards that have the label of a Job's UID.
    pub pod_watch: PodWatch,
    /// The watch of those that lack it, for shards that have Jobs with a selector of their own.
    pub unlabelled_pods: PodWatch,
    /// Next number of [`seed`](Self::seed).
    seeds: Arc<AtomicU64>,
    /// Number of the next subscription.
    subscriptions: AtomicU64,
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
        let limits = GateConfig {
            qps: config.kube_api_qps,
            burst: config.kube_api_burst,
            answer_time: config.answer_time.clone(),
            ..GateConfig::default()
        };
        let gate = WriteGate::open(transport.clone(), limits, config.finalizer(), metrics.clone());
        let recorder = Recorder::start(gate.clone(), config.event_source(), metrics.clone(), config.seed);
        let reads = Reader::new(transport.clone(), config.finalizer(), job_decoder(&config), metrics.clone());
        let seeds = Arc::new(AtomicU64::new(config.seed));
        let loads = LoadBoard::new(config.shards);
        metrics.shards.set(config.shards.shards().count() as i64);
        let job_index = Arc::<JobIndex>::default();
        let services = Services {
            transport: transport.clone(),
            metrics: metrics.clone(),
            seeds: seeds.clone(),
            shards: config.shards,
            jobs: job_index.clone(),
            kind: Kind::Labelled,
            decoder: PodDecoder::new(config.finalizer()).reading_runs(config.traces.is_on()),
            #[cfg(feature = "test-hooks")]
            test_hooks: config.test_hooks.clone(),
        };
        let unlabelled = Services { kind: Kind::Unlabelled, ..services.clone() };
        let unlabelled_pods = PodWatch::begin(unlabelled, &runtime);
        let pod_watch = PodWatch::begin(services, &runtime);
        let services = ReplicaServices {
            config: Arc::new(config),
            runtime,
            boot_clock: clocks.boot.clone(),
            clock: Arc::new(SteadyClock::new(clocks)),
            transport,
            gate,
            pod_writes: FairSemaphore::of_each_namespace(POD_WRITES),
            selected_lists: FairSemaphore::of_each_namespace(SELECTED_LISTS),
            large_pods: LargePods::default(),
            long_works: LongWorks::default(),
            recorder,
            metrics,
            loads,
            read_retries: ReadRetries::default(),
            label_pauses: Pauses::default(),
            job_index,
            jobs_by_name: JobsByName::default(),
            last_failures: LastFailures::default(),
            downfall: Downfall::default(),
            pod_watch,
            unlabelled_pods,
            seeds,
            subscriptions: AtomicU64::default(),
        };
        Self { services: Arc::new(services), reads }
    }

    /// A decoder that keeps the parts of Jobs that this replica needs.
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
        Unit::new(self.runtime.clone(), move || downfall.cause(Fatal::Panicked(what)))
    }

    /// The identity of a new subscription.
    pub fn next_subscription(&self) -> SubscriptionId {
        SubscriptionId(self.subscriptions.fetch_add(1, Ordering::Relaxed))
    }

    /// The same services, whose live reads are for this Job.
    pub fn for_job(&self, job: &JobId) -> Self {
        Self { services: self.services.clone(), reads: self.reads.for_job(job) }
    }

    /// Reads a pod that cannot be read, until it can be; `None` if it is gone.
    pub async fn until_readable(&self, pod: &Unreadable) -> Option<Box<ObservedPod>> {
        let read = async || self.reads.find_pod(&pod.namespace, &pod.name, &pod.uid).await;
        self.read_retries.until_readable(&pod.namespace, self.api_backoff(), read).await
    }

    /// Lists something of a namespace in one of its turns. The turn rests afterwards, in proportion to the
    /// time of the list without `free`. Returns the result, and when the list began.
    pub async fn in_turn<T>(
        &self,
        namespace: &Arc<str>,
        free: Duration,
        list: impl Future<Output = T>,
    ) -> (T, Instant) {
        let turn = self.selected_lists.acquire(Some(namespace), None).await;
        let began = Instant::now();
        let listed = list.await;
        let rest = rest_after(began.elapsed().saturating_sub(free));
        self.runtime.spawn(async move {
            sleep(rest).await;
            drop(turn);
        });
        (listed, began)
    }

    /// The pauses between attempts of one request (`--api-backoff`, `--api-backoff-max`).
    pub fn api_backoff(&self) -> ApiBackoff {
        ApiBackoff::new(self.config.api_backoff, self.config.api_backoff_max, self.seed())
    }
}

fn job_decoder(config: &ControllerConfig) -> JobDecoder {
    JobDecoder::new().with_traces(config.traces.is_on()).with_defaults(config.default_options.clone())
}
