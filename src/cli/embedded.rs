//! A complete cluster within this process: API server, controllers and kubelet.

use std::io::{IsTerminal as _, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use etcetera::BaseStrategy as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::Kubeconfig;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::console::note;
use super::job_page::{JobPage, Offer};
use super::page_client::{PageAddress, new_token};
use super::temporary::{private_directory, write_private};
use super::trace::waterfall_of;
use crate::actors::{Controller, ControllerConfig, DebugAccess};
use crate::sharding::ShardCount;
use crate::telemetry::http::{Live, Secret};
use crate::telemetry::traces::JobTraces;
use yardmaster_embedded::kubelet::{self, Claims, Kubelet, KubeletConfig, START_MOUNTED};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// How long the end of a trace may take after that of its Job.
const LATEST_END: Duration = Duration::from_secs(1);

/// Becomes a process of a pod, if the supervisor has started this program for that: before anything else,
/// since each such process waits for it.
pub(super) fn start_mounted() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != START_MOUNTED {
        return None;
    }
    match kubelet::start_mounted(args.next().as_deref().and_then(std::ffi::OsStr::to_str)) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            note(error);
            Some(ExitCode::from(3))
        }
    }
}

/// Supervises the processes of a cluster's pods until the cluster has ended and all of them are killed.
pub(super) fn supervise() -> ExitCode {
    match kubelet::supervise() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("{}: {error}", kubelet::SUPERVISE));
            ExitCode::from(3)
        }
    }
}

/// A running embedded cluster.
pub(super) struct EmbeddedCluster {
    kubelet: Kubelet,
    controllers: Vec<Controller>,
    server: ApiServer,
    client: kube::Client,
    traces: JobTraces,
    /// The token of the page that the first controller serves, if it does.
    page_token: Option<String>,
    directory: TempDir,
}

impl EmbeddedCluster {
    /// Starts everything, with a controller for each of these values of `spec.managedBy`, and a kubelet that has its data and
    /// claims here. `has_page`: the first controller serves its page, which the kubeconfig names.
    pub(super) async fn start(
        controller_names: &[&str],
        kubelet: KubeletConfig,
        traces: &JobTraces,
        has_page: bool,
    ) -> anyhow::Result<Self> {
        let directory = private_directory()?;
        let server = ApiServer::start(ApiServerConfig::default()).await?;
        let config = server.client_config();
        // A shard per core uses all cores; more shards would only add watches.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let shards = ShardCount::new(cores.next_power_of_two().min(ShardCount::MAX))?;
        let client = kube::Client::try_from(config.clone())?;
        let mut controllers = Vec::new();
        let page_token = has_page.then(new_token);
        for name in controller_names {
            let mut settings = controller_config(name, shards, traces.clone());
            if let Some(token) = page_token.as_deref().filter(|_| controllers.is_empty()) {
                settings.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
                settings.debug_access = DebugAccess::Secret(Secret::new(token));
                settings.live = Live::of(JobPage::of_owner(client.clone(), Offer::default()));
            }
            controllers.push(Controller::start(settings, config.clone()).await?);
        }
        let data_dir = Some(directory.path().join("pods"));
        let kubelet = KubeletConfig { data_dir, api: server.pod_entrance(), claims: claims(), ..kubelet };
        let kubelet = Kubelet::start(client.clone(), kubelet).await?;
        Ok(Self { kubelet, controllers, server, client, traces: traces.clone(), page_token, directory })
    }

    /// The waterfall of a Job that has ended, if traces are kept. The controller records the end a moment after it has
    /// written it.
    pub(super) async fn trace(&self, namespace: &str, name: &str) -> Option<String> {
        let deadline = Instant::now() + LATEST_END;
        loop {
            let traces = self.traces.latest(namespace, name)?;
            let scopes = traces.resource_spans.iter().flat_map(|part| &part.scope_spans);
            let has_ended = scopes.flat_map(|scope| &scope.spans).any(|span| span.name == "job");
            if has_ended || Instant::now() > deadline {
                return waterfall_of(traces, namespace, name);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client of the API server.
    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Creates a namespace unless it exists.
    pub(super) async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop).with_context(|| format!("cannot create namespace {name}")),
        }
    }

    /// Writes a kubeconfig, and returns a text for standard error that says how to use it. Only a terminal gets the address of
    /// the page, since it has a token.
    pub(super) fn address(&self) -> anyhow::Result<String> {
        let file = self.directory.path().join("kubeconfig");
        let mut kubeconfig = self.server.secure_kubeconfig();
        let page = self.controllers.first().and_then(Controller::address);
        let page = page.zip(self.page_token.as_ref());
        let page = page.map(|(page, token)| format!("http://{page}/#token={token}"));
        if let Some(page) = &page {
            let file = self.directory.path().join("page-url");
            write_private(&file, page)?;
            PageAddress::write(&file, &mut kubeconfig);
        }
        write_kubeconfig(&kubeconfig, &file)?;
        let page = page.filter(|_| std::io::stderr().is_terminal());
        let page = page.map(|page| format!("\nIts page is {page}")).unwrap_or_default();
        Ok(format!(
            "The embedded cluster is at {}\n  export KUBECONFIG={}{page}",
            self.server.secure_url(),
            file.display()
        ))
    }

    /// Shuts everything down, including all processes of pods.
    pub(super) async fn shutdown(self) {
        self.kubelet.shutdown().await;
        for controller in self.controllers {
            controller.shutdown().await;
        }
        self.server.shutdown().await;
    }
}

fn controller_config(name: &str, shards: ShardCount, traces: JobTraces) -> ControllerConfig {
    ControllerConfig {
        controller_name: name.to_owned(),
        identity: format!("yardmaster-{}", name.replace(['.', '/'], "-")),
        shards,
        ttl_controller: true,
        seed: rand::random(),
        traces,
        ..ControllerConfig::default()
    }
}

/// Where the data of claims is: with the user's data, since the cluster ends with its Jobs.
fn claims() -> Claims {
    claims_folder().map_or(Claims::OfCluster, Claims::Kept)
}

/// The folder with the data of claims, by namespace and name; `None` for a user without a home.
pub(super) fn claims_folder() -> Option<PathBuf> {
    let folders = etcetera::choose_base_strategy().ok()?;
    Some(folders.data_dir().join("yardmaster").join("claims"))
}

/// The absolute path, for use in other directories.
pub(super) fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Writes a kubeconfig atomically, readable by its owner only.
pub(super) fn write_kubeconfig(kubeconfig: &Kubeconfig, file: &Path) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(kubeconfig)?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let write = || -> std::io::Result<()> {
        // Temporary files are readable by their owner only.
        let mut temporary = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        temporary.write_all(text.as_bytes())?;
        temporary.persist(file)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
