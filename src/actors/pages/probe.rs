//! The state of this replica, for its HTTP pages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::liveness::Liveness;
use super::overview::{self, Overview, Selected};
use crate::actors::config::{ControllerConfig, DebugAccess, MetricsAccess};
use crate::actors::context::ReplicaContext;
use crate::actors::leases::{LeaseManagerHandle, ReplicaPhase};
use crate::actors::shards::replica_actor::{DescribeAll, ReadJobs, ReplicaActor, SeenJobs};
use crate::actors::supervision::Downfall;
use crate::cluster::access_review::AccessReviewer;
use crate::cluster::boot_clock::BootClock;
use crate::cluster::elsewhere::Elsewhere;
use crate::cluster::supervision::supervised;
use crate::cluster::transport::Transport;
use crate::telemetry::http::{
    self, Access, AccessRules, JobQuery, Overviews, Probe, Reviews, Tls, TraceQuery,
};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::otlp::OtlpTraces;

/// How long readings of the Jobs are shared: many viewers cost the actors no more than one.
const READING_PERIOD: Duration = Duration::from_millis(250);

/// Access to the actors, for the HTTP pages. Clones share everything.
#[derive(Clone)]
pub struct ReplicaProbe {
    replica: Addr<ReplicaActor>,
    lease_manager: LeaseManagerHandle,
    config: Arc<ControllerConfig>,
    metrics: Arc<Metrics>,
    /// When the replica began.
    began: Instant,
    boot_clock: Arc<dyn BootClock>,
    /// The Jobs as they were a moment ago, while there are viewers.
    reading: Arc<Mutex<Option<Arc<SeenJobs>>>>,
    downfall: Downfall,
    liveness: Liveness,
    /// Asks the actors whether they live.
    _asking: Arc<AbortOnDropHandle<()>>,
}

impl ReplicaProbe {
    pub fn new(replica: Addr<ReplicaActor>, lease_manager: LeaseManagerHandle, cx: &ReplicaContext) -> Self {
        let liveness = Liveness::default();
        let (asking, asked) = (liveness.clone(), replica.clone());
        let ask = move || asking.clone().keep_asking(asked.clone());
        let _asking = Arc::new(AbortOnDropHandle::new(tokio::spawn(supervised("the liveness probe", ask))));
        Self {
            replica,
            lease_manager,
            config: cx.config.clone(),
            metrics: cx.metrics.clone(),
            began: cx.boot_clock.now(),
            boot_clock: cx.boot_clock.clone(),
            reading: Arc::default(),
            downfall: cx.downfall.clone(),
            liveness,
            _asking,
        }
    }

    /// Serves the pages until the returned sender is dropped. They have a thread of their own, so that many requests for them
    /// take no time from heartbeats.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn serve(
        self,
        listener: tokio::net::TcpListener,
        tls: Option<Tls>,
        transport: Arc<dyn Transport>,
    ) -> io::Result<oneshot::Sender<()>> {
        let (end, ended) = oneshot::channel::<()>();
        let transport = Arc::new(Elsewhere::new(transport, Handle::current()));
        let access = rules(&self.config, transport);
        let live = self.config.live.clone();
        let pages = http::router(self.metrics.clone(), Arc::new(self), access, live);
        let listener = listener.into_std()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("yardmaster-pages".into()).spawn(move || {
            runtime.block_on(async move {
                match tokio::net::TcpListener::from_std(listener) {
                    // Nothing is ever sent: the other side is dropped.
                    Ok(listener) => http::serve(listener, pages, tls, async { drop(ended.await) }).await,
                    Err(error) => tracing::error!(%error, "the HTTP pages are not served"),
                }
            });
        })?;
        Ok(end)
    }

    /// The Jobs as they are, or were within [`READING_PERIOD`].
    async fn jobs(&self) -> Arc<SeenJobs> {
        let mut reading = self.reading.lock().await;
        if let Some(jobs) = &*reading {
            return jobs.clone();
        }
        let jobs = Arc::new(self.replica.send(ReadJobs).await.unwrap_or_default());
        *reading = Some(jobs.clone());
        let shared = self.reading.clone();
        // Jobs without viewers must not stay in memory.
        tokio::spawn(async move {
            tokio::time::sleep(READING_PERIOD).await;
            *shared.lock().await = None;
        });
        jobs
    }

    async fn read_overview(&self, query: JobQuery) -> Overview {
        let jobs = self.jobs().await;
        let view = self.lease_manager.view().borrow().clone();
        let leases = self.lease_manager.board().read();
        let mut overview = overview::of_leases(&self.config, &leases, &view, self.boot_clock.now());
        overview.gates.push(overview::gate(&self.config, &self.metrics));
        // A selection from very many Jobs takes a while, and heartbeats leave from these
        // threads.
        let selected =
            tokio::task::spawn_blocking(move || overview::select(&jobs, &query, Timestamp::now())).await;
        let Ok(Selected { jobs, job, by_shard }) = selected else { return overview };
        for shard in &mut overview.shards {
            shard.jobs = Some(by_shard.get(&shard.shard).copied().unwrap_or_default());
        }
        (overview.jobs, overview.job) = (jobs, job);
        overview
    }
}

/// The rules for reading the pages, with this transport for questions to the API server.
fn rules(config: &ControllerConfig, transport: Arc<dyn Transport>) -> AccessRules {
    let reviews = Arc::new(Reviews::new(AccessReviewer::new(transport)));
    AccessRules {
        metrics: match config.metrics_access {
            MetricsAccess::Everyone => Access::Everyone,
            MetricsAccess::Authorized => Access::Authorized(reviews.clone()),
        },
        debug: match &config.debug_access {
            DebugAccess::Loopback => Access::Loopback,
            DebugAccess::Secret(secret) => Access::Secret(secret.clone()),
            DebugAccess::Authorized => Access::Authorized(reviews),
            DebugAccess::Off => Access::Off,
        },
    }
}

impl Overviews for ReplicaProbe {
    fn overview(&self, query: JobQuery) -> BoxFuture<'_, Value> {
        Box::pin(async { serde_json::to_value(self.read_overview(query).await).unwrap_or_default() })
    }

    fn trace(&self, TraceQuery { namespace, job }: TraceQuery) -> BoxFuture<'_, Option<OtlpTraces>> {
        let traces = self.config.traces.latest(&namespace, &job);
        Box::pin(async { traces })
    }
}

impl Probe for ReplicaProbe {
    fn healthy(&self) -> Result<(), String> {
        if let Some(why) = self.downfall.has_come() {
            return Err(why.to_string());
        }
        if !self.replica.connected() {
            return Err("the actors are gone".into());
        }
        self.liveness.hangs(self.lease_manager.overdue()).map_or(Ok(()), Err)
    }

    fn ready(&self) -> Result<(), String> {
        self.healthy()?;
        let view = self.lease_manager.view();
        let view = view.borrow();
        let is_alive = view.is_alive(self.boot_clock.now());
        match view.phase {
            ReplicaPhase::Ready if is_alive => Ok(()),
            ReplicaPhase::Ended(_) => Err("the replica has released its shards".into()),
            _ if is_alive => Err("the caches of some shards are not synced".into()),
            _ => Err("the heartbeat is not valid".into()),
        }
    }

    fn shards(&self) -> BoxFuture<'_, Value> {
        Box::pin(async {
            let reports = self.replica.send(DescribeAll).await.unwrap_or_default();
            serde_json::to_value(reports).unwrap_or_default()
        })
    }

    fn measure(&self, metrics: &Metrics) {
        let dropped = self.config.traces.dropped();
        metrics.dropped_spans.inc_by(dropped.saturating_sub(metrics.dropped_spans.get()));
        metrics.trace_memory.set(i64::try_from(self.config.traces.kept_bytes()).unwrap_or(i64::MAX));
        let renewed = self.lease_manager.view().borrow().renewed();
        // A heartbeat that has never been renewed is as old as the replica.
        let age = self.boot_clock.now().saturating_duration_since(renewed.unwrap_or(self.began));
        metrics.heartbeat_age.set(age.as_secs_f64());
    }
}
