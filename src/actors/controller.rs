//! A controller replica: its threads, its actors and the services that they share.
//!
//! Actors run on arbiters, threads of their own ([`super::threads`]). Shards are spread over them; the first
//! also runs the replica's own actors. Watches, decoding and requests run on the tokio runtime that the
//! controller is started on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Addr, System};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::clock::Clocks;
use super::config::ControllerConfig;
use super::context::ReplicaContext;
use super::replica::Actors;
use super::supervision::{Downfall, Fatal};
use super::threads;
use crate::actors::leases::{Incompatibility, LeaseManager, LeaseManagerHandle, ReplicaPhase};
use crate::actors::messages::protocol::ShardProgress;
use crate::actors::orphans::stripped_pods::election::Election;
use crate::actors::pages::probe::ReplicaProbe;
use crate::actors::shards::replica_actor::{DescribeAll, ReplicaActor};
use crate::actors::shards::shard_actor::ShardReport;
use crate::cluster::events::Recorder;
use crate::cluster::gate::WriteGate;
use crate::cluster::transport::{ConnectError, Connection, connect_measured};
use crate::telemetry::http::{self, Probe as _, Tls, TlsError};
use crate::telemetry::metrics::Metrics;

/// How long a controller that stops waits for its writes ...
const FLUSH_TIMEOUT: Duration = Duration::from_secs(8);
/// ... of which for Events that only inform ...
const NORMAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(1);
/// ... and then to step down as the replica that looks for stripped pods.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// A running controller replica.
pub struct Controller {
    system: System,
    thread: JoinHandle<()>,
    replica: Addr<ReplicaActor>,
    lease_manager: LeaseManagerHandle,
    probe: ReplicaProbe,
    lease_task: AbortHandle,
    election: Election,
    gate: WriteGate,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    downfall: Downfall,
    /// Where the HTTP pages are.
    address: Option<SocketAddr>,
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
    /// Their certificate cannot be used.
    #[error("the TLS certificate: {0}")]
    Tls(#[from] TlsError),
    /// The operating system gave no thread.
    #[error("no thread for the actors: {0}")]
    Thread(#[from] std::io::Error),
    /// The actors ended by themselves, or before they began.
    #[error("the actors are gone")]
    Actors,
    /// The whole replica must end, and a new process takes its place.
    #[error(transparent)]
    Fatal(#[from] Fatal),
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
            Some(at) => Some(http::bind(at).map_err(|e| ControllerError::Listen(at, e))?),
        };
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let tls = match config.tls.clone() {
            None => None,
            Some(files) => Some(Tls::start(files).await?),
        };
        config.traces = config.traces.of_server(&kube.cluster_url);
        let metrics = Arc::new(Metrics::new());
        let Connection { client, transport } =
            connect_measured(kube, &config.identity, &metrics.rest_client)?;
        let cx = ReplicaContext::new(
            config,
            transport.clone(),
            metrics.clone(),
            Handle::current(),
            Clocks::of_this_host(),
        );
        let (gate, recorder) = (cx.gate.clone(), cx.recorder.clone());
        let config = cx.config.clone();
        let (lease_manager, handle) = LeaseManager::new(cx.clone());
        let (started, actors) = oneshot::channel();
        let (progress, of_actors) = (handle.progress().clone(), cx.clone());
        let runtime = threads::actors(config.answer_time.clone())?;
        let thread = std::thread::Builder::new().name("yardmaster-actors".into()).spawn(move || {
            let runner = System::with_tokio_rt(|| runtime);
            let actors = runner.block_on(async move {
                Ok::<_, io::Error>((System::current(), Actors::start(of_actors, progress)?))
            });
            let runs = actors.is_ok();
            // If this fails, no caller is left who could stop the actors.
            if started.send(actors).is_ok() && runs {
                // The exit code of a system is for programs that consist of one.
                let _ = runner.run();
            }
        })?;
        let (system, Actors { replica, stripped_pods }) =
            actors.await.map_err(|_| ControllerError::Actors)??;
        let lease_task = lease_manager.start(replica.clone().recipient());
        let election = Election::start(client, &config, stripped_pods);
        let probe = ReplicaProbe::new(replica.clone(), handle.clone(), &cx);
        let pages = listener.map(|listener| probe.clone().serve(listener, tls, transport));
        let _pages = pages.transpose()?;
        Ok(Self {
            system,
            thread,
            replica,
            lease_manager: handle,
            probe,
            lease_task,
            election,
            gate,
            recorder,
            metrics,
            downfall: cx.downfall.clone(),
            address,
            _pages,
        })
    }

    /// Where the HTTP pages are, if they are served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits until the heartbeat is valid and the caches of all owned shards are synced, or the replica has
    /// ended.
    pub async fn ready(&self) {
        let mut view = self.lease_manager.view();
        // The wait fails only when the lease manager is gone, which ends the replica.
        let _ = view.wait_for(|view| view.phase != ReplicaPhase::Starting).await;
    }

    /// Whether the heartbeat is valid and the caches of all owned shards are synced.
    pub fn is_ready(&self) -> bool {
        self.probe.ready().is_ok()
    }

    /// Waits until the replica ends by itself, and returns the reason.
    pub async fn ended(&self) -> ControllerError {
        let mut view = self.lease_manager.view();
        let ended = async {
            let ended = view.wait_for(|view| matches!(view.phase, ReplicaPhase::Ended(_))).await;
            match ended.map(|view| view.phase) {
                Ok(ReplicaPhase::Ended(Some(error))) => error.into(),
                Ok(_) => ControllerError::Actors,
                // The lease manager is gone, for a reason that is reported next.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            why = self.downfall.comes() => why.into(),
            error = ended => error,
        }
    }

    /// The metrics of this replica.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// A report on each owned shard; empty once the actors are gone.
    pub async fn shards(&self) -> Vec<ShardReport> {
        self.replica.send(DescribeAll).await.unwrap_or_default()
    }

    /// Stops: waits for the answers of requests in flight, releases all shards, and ends. Unsent requests
    /// are left to the next owners.
    pub async fn shutdown(self) {
        let mut view = self.lease_manager.view();
        self.lease_manager.progress().report(ShardProgress::Leave);
        let flushed = async {
            // The wait fails only when the lease manager is gone.
            let _ = view.wait_for(|view| matches!(view.phase, ReplicaPhase::Ended(_))).await;
            self.gate.idle().await;
            self.recorder.flush_reports(NORMAL_EVENTS_TIMEOUT).await;
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            tracing::warn!("stopped with writes unanswered");
        }
        let events = self.recorder.unsent();
        if events > 0 {
            tracing::warn!(events, "stopped with Events unsent");
        }
        // Events that wait on a slow API server do not keep the Lease from another replica.
        if tokio::time::timeout(STEP_DOWN_TIMEOUT, self.election.step_down()).await.is_err() {
            tracing::warn!("stopped without an answer about the Lease of the search for stripped pods");
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
