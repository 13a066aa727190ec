//! One controller replica: its threads, its actors and the services that they share.
//!
//! Actors run on arbiters, threads of their own ([`super::threads`]). Shards are spread over them; the first
//! also runs the replica's own actors. Watches, decoding and requests run on the tokio runtime that the
//! controller is started on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Actor, Addr, System};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::clock::SystemClock;
use super::config::ControllerConfig;
use super::context::ReplicaContext;
use super::lease_manager::{Incompatibility, LeaseManager, LeaseManagerHandle, ReplicaPhase};
use super::orphan_controller::OrphanController;
use super::orphan_controller::election::Election;
use super::protocol::ShardProgress;
use super::replica_actor::{DescribeAll, ReplicaActor};
use super::shard_actor::ShardReport;
use super::threads;
use crate::cluster::events::Recorder;
use crate::cluster::gate::WriteGate;
use crate::cluster::transport::{ConnectError, Connection, connect};
use crate::telemetry::http::{self, Probe};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::JobTraces;

/// How long a controller that stops waits for its writes in flight.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// One running controller replica.
pub struct Controller {
    system: System,
    thread: JoinHandle<()>,
    actors: Actors,
    lease_task: AbortHandle,
    election: Election,
    gate: WriteGate,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    /// Ends the HTTP pages when dropped.
    _pages: Option<oneshot::Sender<()>>,
}

/// Why a controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The API server cannot be addressed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The HTTP pages cannot be served there.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The operating system gave no thread.
    #[error("no thread for the actors: {0}")]
    Thread(#[from] std::io::Error),
    /// The actors ended by themselves, or before they began.
    #[error("the actors are gone")]
    Actors,
    /// The replica must not run on this cluster.
    #[error(transparent)]
    Incompatible(#[from] Incompatibility),
}

impl Controller {
    /// Starts a replica on the current tokio runtime.
    ///
    /// # Errors
    /// When the API server's configuration is unusable or no thread can be started. An API server that does
    /// not answer is no error: the replica waits for it.
    pub async fn start(mut config: ControllerConfig, kube: kube::Config) -> Result<Self, ControllerError> {
        let listener = match config.listen {
            None => None,
            Some(at) => Some(TcpListener::bind(at).await.map_err(|e| ControllerError::Listen(at, e))?),
        };
        config.traces = config.traces.of_server(&kube.cluster_url);
        let traces = config.traces.clone();
        let Connection { client, transport } = connect(kube, &config.identity)?;
        let metrics = Arc::new(Metrics::new());
        let cx =
            ReplicaContext::new(config, transport, metrics.clone(), Handle::current(), Arc::new(SystemClock));
        let (gate, recorder) = (cx.gate.clone(), cx.recorder.clone());
        let config = cx.config.clone();
        let (lease_manager, handle) = LeaseManager::new(cx.clone());
        let (started, actors) = oneshot::channel();
        let progress = handle.progress().clone();
        let runtime = threads::actors()?;
        let thread = std::thread::Builder::new().name("yardmaster-actors".into()).spawn(move || {
            let runner = System::with_tokio_rt(|| runtime);
            let actors = runner.block_on(async move {
                let replica = ReplicaActor::new(cx.clone(), progress)?.start();
                Ok::<_, io::Error>((System::current(), replica, OrphanController::new(cx).start()))
            });
            let runs = actors.is_ok();
            // If this fails, nobody is left who could stop the actors.
            if started.send(actors).is_ok() && runs {
                // The exit code of a system is for programs that consist of one.
                let _ = runner.run();
            }
        })?;
        let (system, replica, orphan_controller) = actors.await.map_err(|_| ControllerError::Actors)??;
        let lease_task = lease_manager.start(replica.clone().recipient());
        let election = Election::start(client, &config, orphan_controller.recipient());
        let actors = Actors { replica, lease_manager: handle, traces };
        let _pages = listener.map(|listener| actors.clone().serve(listener, metrics.clone()));
        Ok(Self { system, thread, actors, lease_task, election, gate, recorder, metrics, _pages })
    }

    /// Waits until the heartbeat is valid and the caches of all owned shards are synced, or the replica has
    /// ended.
    pub async fn ready(&self) {
        let mut view = self.actors.lease_manager.view();
        // It fails only when the lease manager is gone, which ends the replica.
        let _ = view.wait_for(|view| view.phase != ReplicaPhase::Starting).await;
    }

    /// Whether the heartbeat is valid and the caches of all owned shards are synced.
    pub fn is_ready(&self) -> bool {
        self.actors.ready().is_ok()
    }

    /// Waits until the replica ends by itself, and returns the reason.
    pub async fn ended(&self) -> ControllerError {
        let mut view = self.actors.lease_manager.view();
        let ended = view.wait_for(|view| matches!(view.phase, ReplicaPhase::Ended(_))).await;
        match ended.map(|view| view.phase) {
            Ok(ReplicaPhase::Ended(Some(error))) => error.into(),
            _ => ControllerError::Actors,
        }
    }

    /// The metrics of this replica.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// A report on each owned shard; empty once the actors are gone.
    pub async fn shards(&self) -> Vec<ShardReport> {
        self.actors.replica.send(DescribeAll).await.unwrap_or_default()
    }

    /// Stops: finishes the writes that are decided, releases all shards, and ends.
    pub async fn shutdown(self) {
        let mut view = self.actors.lease_manager.view();
        self.actors.lease_manager.progress().report(ShardProgress::Leave);
        let flushed = async {
            // It fails only when the lease manager is gone.
            let _ = view.wait_for(|view| matches!(view.phase, ReplicaPhase::Ended(_))).await;
            self.gate.idle().await;
            self.recorder.flush().await;
            self.election.step_down().await;
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            tracing::warn!("stopped with writes unanswered");
        }
        end(self.lease_task, self.system, self.thread).await;
    }

    /// Ends at once, as a crash would: drops queued writes, and does not wait for those in flight.
    pub async fn abort(self) {
        self.election.abandon();
        end(self.lease_task, self.system, self.thread).await;
    }
}

async fn end(lease_task: AbortHandle, system: System, thread: JoinHandle<()>) {
    lease_task.abort();
    system.stop();
    // A thread that has panicked has ended, too.
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
}

/// Access to the actors, for the HTTP pages.
#[derive(Clone)]
struct Actors {
    replica: Addr<ReplicaActor>,
    lease_manager: LeaseManagerHandle,
    traces: JobTraces,
}

impl Actors {
    /// Serves the pages until the returned sender is dropped.
    fn serve(self, listener: TcpListener, metrics: Arc<Metrics>) -> oneshot::Sender<()> {
        let (end, ended) = oneshot::channel::<()>();
        let pages = http::router(metrics, Arc::new(self));
        tokio::spawn(async move {
            // Nothing is ever sent: the other side is dropped.
            let end = async { drop(ended.await) };
            if let Err(error) = http::serve(listener, pages, end).await {
                tracing::error!(%error, "the HTTP pages are gone");
            }
        });
        end
    }
}

impl Probe for Actors {
    fn healthy(&self) -> Result<(), String> {
        if self.replica.connected() { Ok(()) } else { Err("the actors are gone".into()) }
    }

    fn ready(&self) -> Result<(), String> {
        self.healthy()?;
        let view = self.lease_manager.view();
        let view = view.borrow();
        match view.phase {
            ReplicaPhase::Ready if view.is_alive(Instant::now()) => Ok(()),
            ReplicaPhase::Ended(_) => Err("the replica has released its shards".into()),
            _ if view.is_alive(Instant::now()) => Err("the caches of some shards are not synced".into()),
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
        metrics.dropped_spans.inc_by(self.traces.dropped().saturating_sub(metrics.dropped_spans.get()));
        let renewed = self.lease_manager.view().borrow().renewed();
        metrics.heartbeat_age.set(renewed.map_or(0.0, |renewed| renewed.elapsed().as_secs_f64()));
    }
}
