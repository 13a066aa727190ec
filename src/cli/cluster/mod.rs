//! `yardmaster cluster`: runs an embedded cluster in the foreground.

mod page;
mod replicas;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tempfile::TempDir;

use self::page::ClusterPage;
use self::replicas::Replicas;
use super::console::note;
use super::embedded::write_kubeconfig;
use super::job_page::{JobPage, Offer};
use super::page_client::PageAddress;
use super::pod_runtime::{PodRuntime, RuntimeArgs, RuntimeChoice};
use super::signals::Interrupts;
use super::temporary::private_directory;
use super::{Failure, embedded};
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, KubeletError, KubeletMode};
use yardmaster_embedded::{
    ApiServer, ApiServerConfig, Authentication, DataDirError, EmbeddedError, Token, is_host,
};

/// Flags of `cluster`.
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// Address of the API server; port 0 picks a free port.
    #[arg(
        long, value_name = "ADDRESS:PORT",
        default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    )]
    listen: SocketAddr,
    /// Number of controller replicas, each a separate process; set their flags by YARDMASTER_ environment
    /// variables.
    #[arg(long, value_name = "N", default_value_t = 1)]
    replicas: u16,
    /// Address of the page that shows Jobs, shards and replicas; port 0 picks a free port.
    #[arg(
        long, value_name = "ADDRESS:PORT",
        default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    )]
    page_listen: SocketAddr,
    /// Let the page suspend, resume, delete and retry Jobs [default: off].
    #[arg(long)]
    page_actions: bool,
    /// How pods run: as processes of this host, simulated without processes, or not at all [default: as --runtime says].
    #[arg(long, value_name = "MODE")]
    kubelet: Option<KubeletChoice>,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Run pods in the current directory, with your HOME and TMPDIR [default: in folders of their own].
    #[arg(long)]
    here: bool,
    /// Write a kubeconfig for the cluster to this file [default: a temporary file].
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,
    /// Store the API server's objects in this directory, so that they survive restarts and crashes; it must be
    /// empty or from an earlier start, and becomes readable by this user only [default: memory only].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Start only the API server: no controller, no garbage collector, no kubelet [default: off].
    #[arg(long)]
    api_only: bool,
    /// Allow a --listen address that other hosts can reach, served over TLS; requires --token-file [default:
    /// off].
    #[arg(long, requires = "token_file")]
    allow_remote: bool,
    /// Further host names and addresses of the API server, for its certificate and the Host header [default:
    /// none].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = host_name)]
    tls_san: Vec<String>,
    /// File with the bearer token that every request must carry; nobody else may read it [default: a random
    /// token, only in the kubeconfig].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let every user of this machine do everything, without a token; not with --kubelet process [default: off].
    #[arg(long, conflicts_with = "token_file")]
    insecure_no_token: bool,
    /// Maximum number of concurrent requests, watches not counted; further ones get 429 [default: no limit].
    #[arg(long, value_name = "N")]
    max_inflight: Option<NonZeroUsize>,
    /// Feature gates of the API server and the controllers, such as WorkloadWithJob=true.
    #[arg(long, value_name = "NAME=BOOL,...", value_delimiter = ',', value_parser = super::feature_gate)]
    feature_gates: Vec<(String, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KubeletChoice {
    Process,
    Simulated,
    None,
}

/// How the pods of a cluster run.
enum Pods {
    Run(PodRuntime),
    Simulated,
    NotRun,
}

impl Pods {
    /// The kubelet that runs them, if there is one.
    fn kubelet(&self) -> Option<KubeletConfig> {
        match self {
            Self::Run(runtime) => Some(runtime.kubelet()),
            Self::Simulated => {
                Some(KubeletConfig { mode: KubeletMode::Simulated, ..KubeletConfig::default() })
            }
            Self::NotRun => None,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Run(runtime) => runtime.describe(),
            Self::Simulated => "simulated".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

impl ClusterArgs {
    /// How pods run. With `--api-only` nothing runs them.
    async fn pods(&self) -> Result<Pods, Failure> {
        let runtime = match self.kubelet {
            _ if self.api_only => return Ok(Pods::NotRun),
            Some(KubeletChoice::None) => return Ok(Pods::NotRun),
            Some(KubeletChoice::Simulated) => return Ok(Pods::Simulated),
            Some(KubeletChoice::Process) if self.runtime.runtime == RuntimeChoice::Containers => {
                return Err(Failure::bad_input(
                    "--kubelet process and --runtime containers exclude each other: leave one of them out",
                ));
            }
            Some(KubeletChoice::Process) => RuntimeChoice::Processes,
            None => self.runtime.runtime,
        };
        let runtime = RuntimeArgs { runtime, ..self.runtime.clone() };
        PodRuntime::choose(&runtime, self.here).await.map(Pods::Run)
    }

    /// Whether pods run what their Jobs say.
    fn runs_pods(&self) -> bool {
        !self.api_only && matches!(self.kubelet, None | Some(KubeletChoice::Process))
    }

    fn authentication(&self) -> Result<Authentication, Failure> {
        if self.insecure_no_token {
            return match self.runs_pods() {
                true => Err(Failure::bad_input(
                    "--insecure-no-token: every user of this machine could start processes as you: requires \
                     --kubelet simulated, --kubelet none or --api-only",
                )),
                false => Ok(Authentication::Anonymous),
            };
        }
        let Some(file) = &self.token_file else { return Ok(Authentication::Generated) };
        let token = Token::read(file)
            .map_err(|error| Failure::bad_input(format!("--token-file {}: {error}", file.display())))?;
        Ok(Authentication::Token(token))
    }

    fn server(&self) -> Result<ApiServerConfig, Failure> {
        if !self.listen.ip().is_loopback() && !self.allow_remote {
            return Err(Failure::bad_input(format!(
                "--listen {}: other hosts can reach this address: requires --allow-remote and --token-file",
                self.listen
            )));
        }
        if !self.page_listen.ip().is_loopback() {
            return Err(Failure::bad_input(format!(
                "--page-listen {}: must be an address of this host alone, such as 127.0.0.1:0",
                self.page_listen
            )));
        }
        Ok(ApiServerConfig {
            listen: self.listen,
            host_names: self.tls_san.clone(),
            authentication: self.authentication()?,
            data_dir: self.data_dir.clone(),
            api_only: self.api_only,
            max_inflight: self.max_inflight.map(NonZeroUsize::get),
            feature_gates: self.feature_gates.iter().cloned().collect::<BTreeMap<_, _>>(),
            ..ApiServerConfig::default()
        })
    }
}

/// Runs the cluster until Ctrl-C or SIGTERM.
pub(super) async fn run(args: ClusterArgs) -> Result<ExitCode, Failure> {
    let server = args.server()?;
    if args.insecure_no_token {
        note("WARNING: --insecure-no-token: every user of this machine may do everything in this cluster.");
    }
    let pods = args.pods().await?;
    let mut interrupts = Interrupts::listen()?;
    let mut cluster = Cluster::start(&args, server, pods).await.map_err(start_failure)?;
    // The reader of standard output may have closed it already.
    let mut output = std::io::stdout();
    let _written = writeln!(output, "{}", cluster.describe(output.is_terminal()));
    let broken = tokio::select! {
        () = interrupts.next() => None,
        never = cluster.replicas.watch() => match never {},
        why = cluster.server.broken() => Some(why),
    };
    tokio::select! {
        () = cluster.shutdown() => {}
        // At the second interrupt the remaining parts are dropped, which kills their processes.
        () = interrupts.next() => {}
    }
    match broken {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => {
            let directory = args.data_dir.unwrap_or_default();
            let directory = directory.display();
            let next = "make room there, or mend the disk, and start again: what was acknowledged is kept";
            Err(Failure::CouldNotRun(anyhow::anyhow!("--data-dir {directory}: {why}; {next}")))
        }
    }
}

/// A value of `--tls-san`.
fn host_name(text: &str) -> Result<String, String> {
    if is_host(text) { Ok(text.to_owned()) } else { Err("neither a host name nor an IP address".into()) }
}

/// A data directory that can never be used is bad input; one that is in use or damaged is not. Credentials that
/// others may read are bad input, too.
fn start_failure(error: anyhow::Error) -> Failure {
    let (directory, why) = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(EmbeddedError::DataDir { directory, source: DataDirError::Unusable(why) }), _) => {
            (directory, why.to_string())
        }
        (Some(EmbeddedError::DataDir { directory, source: DataDirError::NotOurs(why) }), _)
        | (_, Some(KubeletError::DataDir(directory, why))) => (directory, why.to_string()),
        (Some(EmbeddedError::Credentials(error)), _) => {
            return Failure::bad_input(format!("--data-dir: {error}"));
        }
        _ => return Failure::CouldNotRun(error),
    };
    Failure::bad_input(format!("--data-dir {}: {why}", directory.display()))
}

/// A running cluster.
struct Cluster {
    replicas: Replicas,
    /// Absent without controllers.
    page: Option<ClusterPage>,
    kubelet: Option<Kubelet>,
    server: ApiServer,
    kubeconfig: PathBuf,
    pods: Pods,
    // Removed on drop, with the kubeconfig in it.
    _directory: TempDir,
}

impl Cluster {
    async fn start(args: &ClusterArgs, server: ApiServerConfig, pods: Pods) -> anyhow::Result<Self> {
        let directory = private_directory()?;
        let server = ApiServer::start(server).await?;
        let client = kube::Client::try_from(server.client_config())?;
        let jobs = JobPage::of_owner(client.clone(), Offer { actions: args.page_actions, trace_url: None });
        let kubelet = match pods.kubelet() {
            Some(config) => {
                let data_dir = args.data_dir.as_deref().unwrap_or(directory.path());
                let data_dir = Some(embedded::absolute(&data_dir.join("pods")));
                let config = KubeletConfig { data_dir, api: server.pod_entrance(), ..config };
                Some(Kubelet::start(client, config).await?)
            }
            None => None,
        };
        let kubeconfig = args.write_kubeconfig.clone().unwrap_or_else(|| directory.path().join("kubeconfig"));
        let mut secure = server.secure_kubeconfig();
        // A file of their own, since the user's may be replaced or removed. Over TLS as well, so that no process that
        // takes over the port after a crash gets the token.
        let own = directory.path().join("controllers.kubeconfig");
        write_kubeconfig(&secure, &own)?;
        let count = if args.api_only { 0 } else { args.replicas };
        let token = page::Token::create(directory.path())?;
        let replicas = Replicas::start(count, &own, token.file(), &args.feature_gates)?;
        let page = match count {
            0 => None,
            _ => Some(ClusterPage::serve(args.page_listen, token, replicas.pages().clone(), jobs)?),
        };
        if let Some(page) = &page {
            PageAddress::write(page.file(), &mut secure);
        }
        write_kubeconfig(&secure, &kubeconfig)?;
        Ok(Self { replicas, page, kubelet, server, kubeconfig, pods, _directory: directory })
    }

    /// The addresses and components of the cluster. No secret is among them, unless a user at a terminal is the only reader.
    fn describe(&self, on_terminal: bool) -> String {
        let page = self.page.as_ref().map(|page| format!("page         {}\n", page.describe(on_terminal)));
        format!(
            "API server   {}\ncontrollers  {}\n{}pods         {}\n\n  export KUBECONFIG={}\n",
            self.server.secure_url(),
            self.replicas.describe(),
            page.unwrap_or_default(),
            self.pods.describe(),
            embedded::absolute(&self.kubeconfig).display(),
        )
    }

    async fn shutdown(self) {
        self.replicas.shutdown().await;
        if let Some(kubelet) = self.kubelet {
            kubelet.shutdown().await;
        }
        self.server.shutdown().await;
    }
}
