//! The environment of scenarios: an API server, and the controller under test, which can be stopped and
//! started.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::{sync::Mutex, time::timeout};
use yardmaster::{
    actors::{Controller, ControllerConfig, FeatureGates},
    sharding::ShardCount,
};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Fault, FaultScope};

use crate::scenario::{mode::Mode, play::RECORDED_QUIET};

/// Quiet time before the first comparison on an embedded API server, unless `YARDMASTER_SCENARIO_QUIET_MS`
/// overrides it.
const EMBEDDED_QUIET: Duration = Duration::from_millis(400);
/// Limit until a controller is ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Few shards, since every start of the controller claims all of them.
const SHARDS: u32 = 4;

/// An API server and one controller on it.
pub(crate) struct Arena {
    cluster: kube::Config,
    /// The API server, if it is embedded.
    server: Option<ApiServer>,
    settings: ControllerConfig,
    controller: Mutex<Option<Controller>>,
    quiet: Duration,
}

impl Arena {
    /// An API server in this process, with a controller.
    pub(crate) async fn embedded(mode: Mode, gates: &[String]) -> Result<Self> {
        let config = ApiServerConfig { feature_gates: gates_of(gates), ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.context("the embedded API server")?;
        let cluster = kube_config(server.kubeconfig()).await?;
        let quiet = quiet_from_environment()?.unwrap_or(EMBEDDED_QUIET);
        Self::start(cluster, Some(server), mode, gates, quiet).await
    }

    /// A controller on the cluster of a kubeconfig.
    pub(crate) async fn cluster(kubeconfig: Kubeconfig, mode: Mode, gates: &[String]) -> Result<Self> {
        let cluster = kube_config(kubeconfig).await?;
        let quiet = quiet_from_environment()?.unwrap_or(RECORDED_QUIET);
        Self::start(cluster, None, mode, gates, quiet).await
    }

    async fn start(
        cluster: kube::Config,
        server: Option<ApiServer>,
        mode: Mode,
        gates: &[String],
        quiet: Duration,
    ) -> Result<Self> {
        let settings = ControllerConfig {
            controller_name: mode.controller_name().to_owned(),
            identity: "scenarios".to_owned(),
            shards: ShardCount::new(SHARDS)?,
            // A crashed controller leaves its leases behind, and the next one waits until they expire.
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(500),
            ttl_controller: true,
            feature_gates: FeatureGates {
                workload_with_job: gates.iter().any(|gate| gate == "WorkloadWithJob"),
            },
            arbiters: 1,
            ..ControllerConfig::default()
        };
        let arena = Self { cluster, server, settings, controller: Mutex::new(None), quiet };
        arena.start_controller().await?;
        Ok(arena)
    }

    pub(crate) fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.cluster.clone())?)
    }

    /// Quiet time before a state is compared.
    pub(crate) fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Holds all watches until [`release_watches`](Self::release_watches), if the API server is embedded. All
    /// writes in between reach the controller at one moment.
    pub(crate) fn hold_watches(&self) {
        if let Some(server) = &self.server {
            server.faults().inject(Fault::HoldWatches, FaultScope::default(), None);
        }
    }

    pub(crate) fn release_watches(&self) {
        if let Some(server) = &self.server {
            server.faults().clear();
        }
    }

    /// Starts the controller unless it runs, and waits until it is ready.
    pub(crate) async fn start_controller(&self) -> Result<()> {
        let mut controller = self.controller.lock().await;
        if controller.is_none() {
            // A new process would have a new seed.
            let settings = ControllerConfig { seed: rand::random(), ..self.settings.clone() };
            let started = Controller::start(settings, self.cluster.clone()).await?;
            let ready = timeout(START_LIMIT, started.ready()).await;
            *controller = Some(started);
            ready.with_context(|| format!("the controller is not ready after {START_LIMIT:?}"))?;
        }
        Ok(())
    }

    /// Stops the controller without a shutdown, as a crash would.
    pub(crate) async fn stop_controller(&self) {
        if let Some(controller) = self.controller.lock().await.take() {
            controller.abort().await;
        }
    }

    /// Ends the controller, and the API server if it is embedded.
    pub(crate) async fn shutdown(self) {
        if let Some(controller) = self.controller.into_inner() {
            controller.shutdown().await;
        }
        if let Some(server) = self.server {
            server.shutdown().await;
        }
    }
}

async fn kube_config(kubeconfig: Kubeconfig) -> Result<kube::Config> {
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn quiet_from_environment() -> Result<Option<Duration>> {
    let Ok(text) = std::env::var("YARDMASTER_SCENARIO_QUIET_MS") else { return Ok(None) };
    let millis = text.parse().context("YARDMASTER_SCENARIO_QUIET_MS")?;
    Ok(Some(Duration::from_millis(millis)))
}

/// All feature gates that scenarios use, on or off.
fn gates_of(gates: &[String]) -> BTreeMap<String, bool> {
    const GANG: [&str; 2] = ["GenericWorkload", "WorkloadWithJob"];
    let off = GANG.into_iter().map(|gate| (gate.to_owned(), false));
    off.chain(gates.iter().map(|gate| (gate.clone(), true))).collect()
}
