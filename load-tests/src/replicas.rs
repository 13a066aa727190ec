//! Controller replicas as child processes, and the cost of each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Request;
use kube::config::Kubeconfig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::limits::Limits;
use crate::proxy::Proxy;
use crate::usage::{Counters, Usage, listening_ports};

/// Limit for the start and the end of a replica.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limit for the answer of one of its pages.
const PAGE: Duration = Duration::from_secs(5);

/// This program acts as the controller if called by this name.
pub(crate) const CONTROLLER: &str = "yardmaster";

/// The command line of replicas.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Another program than this one.
    pub(crate) program: Option<PathBuf>,
    pub(crate) kubeconfig: PathBuf,
    /// `--controller-name`.
    pub(crate) controller_name: String,
    pub(crate) lease_namespace: String,
    /// More flags.
    pub(crate) flags: Vec<String>,
    pub(crate) limits: Limits,
    /// The shortest back-off of pods that Jobs may ask for.
    pub(crate) least_backoff: &'static str,
    /// The API server to which each replica has a proxy. Without it, replicas connect directly.
    pub(crate) upstream: Option<SocketAddr>,
    /// Where logs go.
    pub(crate) directory: PathBuf,
}

/// A controller process.
pub(crate) struct Replica {
    pub(crate) identity: String,
    pid: i32,
    child: Child,
    log: PathBuf,
    /// Whether its process group counts, since it may have children.
    group: bool,
    metrics: Option<kube::Client>,
    /// Its way to the API server.
    proxy: Option<Proxy>,
    was_ready: bool,
    /// Its usage when it became ready.
    baseline: Usage,
    last: Usage,
    /// Its counters when counting began.
    counted_before: Counters,
    counters: Counters,
}

/// A look at a running replica: its pages and its usage.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) identity: String,
    pid: i32,
    pages: kube::Client,
}

impl Probe {
    /// Its resource usage. Returns `None` once it has ended.
    pub(crate) fn usage(&self) -> Option<Usage> {
        Usage::of(self.pid)
    }

    /// Its requests to the API server since its start, as it counts them.
    pub(crate) async fn requests(&self) -> Option<u64> {
        let request = Request::get("/metrics").body(Vec::new()).ok()?;
        let text = tokio::time::timeout(PAGE, self.pages.request_text(request)).await.ok()?.ok()?;
        Some(Counters::parse(&text).ok()?.requests)
    }

    /// Reads a health page. The error is its answer in one line, or says that there is none within the limit.
    pub(crate) async fn is_well(&self, path: &str, limit: Duration) -> Result<(), String> {
        let request =
            Request::get(path).body(kube::client::Body::empty()).map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(limit, self.pages.send(request)).await;
        let answer =
            answer.map_err(|_| format!("no answer in {limit:?}"))?.map_err(|error| error.to_string())?;
        let code = answer.status();
        let body = answer.into_body().collect_bytes().await.unwrap_or_default();
        match code.is_success() {
            true => Ok(()),
            false => Err(format!("{code}: {}", String::from_utf8_lossy(&body).trim().replace('\n', "; "))),
        }
    }
}

/// The cost of a replica from ready to its end.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) identity: String,
    pub(crate) usage: Usage,
    pub(crate) counters: Counters,
}

impl Recipe {
    /// Starts the replica with this number. Does not wait until it is ready.
    pub(crate) fn start(&self, number: usize) -> Result<Replica> {
        let identity = format!("replica-{number}");
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()?,
        };
        let proxy = self.upstream.map(Proxy::start).transpose()?;
        let kubeconfig = match &proxy {
            Some(proxy) => self.kubeconfig_of(proxy, &identity)?,
            None => self.kubeconfig.clone(),
        };
        let mut command = self.command(&program)?;
        forget_settings(command.as_std_mut());
        command.env("YARDMASTER_POD_FAILURE_BACKOFF_MIN", self.least_backoff);
        command
            .args(["controller", "--exit-with-stdin", "--listen", "127.0.0.1:0", "--identity", &identity])
            .args(["--controller-name", &self.controller_name, "--lease-namespace", &self.lease_namespace])
            .args(["--log-level", "warn"])
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(&self.flags);
        let log = self.directory.join(format!("{identity}.log"));
        let child =
            spawn(&mut command, &log).with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Replica { proxy, ..Replica::of(identity, child, log)? })
    }

    /// The command that becomes this program.
    fn command(&self, program: &Path) -> Result<Command> {
        if self.limits.is_none() {
            let mut command = Command::new(program);
            // This program acts as the controller under this name, so a replica is always of the same build.
            command.arg0(CONTROLLER);
            return Ok(command);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("limited").args(self.limits.flags()).arg("--").arg(program);
        Ok(command)
    }

    /// Writes a kubeconfig that leads to a proxy.
    fn kubeconfig_of(&self, proxy: &Proxy, identity: &str) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(&self.kubeconfig)?;
        for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            let url: http::Uri = cluster.server.as_deref().unwrap_or_default().parse()?;
            let scheme = url.scheme_str().unwrap_or("http");
            // The certificate is still the API server's.
            cluster.tls_server_name = cluster.tls_server_name.take().or_else(|| url.host().map(Into::into));
            cluster.server = Some(format!("{scheme}://{}", proxy.address()));
        }
        let file = self.directory.join(format!("kubeconfig-{identity}"));
        std::fs::write(&file, serde_saphyr::to_string(&config)?)?;
        Ok(file)
    }
}

/// Removes the variables with settings of Yardmaster from the environment of a program.
pub(crate) fn forget_settings(command: &mut std::process::Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("YARDMASTER_")) {
        command.env_remove(name);
    }
}

/// The last line of a log, or nothing.
pub(crate) fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_owned()
}

/// Starts a command in its own process group, with its output in a file.
fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let file = std::fs::File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file).process_group(0).kill_on_drop(true);
    Ok(command.spawn()?)
}

impl Replica {
    /// Starts another controller by a shell.
    pub(crate) fn foreign(command: &str, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]).env("KUBECONFIG", kubeconfig);
        let child = spawn(&mut shell, log).with_context(|| command.to_owned())?;
        Ok(Self { group: true, ..Self::of("reference".into(), child, log.to_owned())? })
    }

    fn of(identity: String, child: Child, log: PathBuf) -> Result<Self> {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("no process id")?;
        Ok(Self {
            identity,
            pid,
            child,
            log,
            group: false,
            metrics: None,
            proxy: None,
            was_ready: false,
            baseline: Usage::default(),
            last: Usage::default(),
            counted_before: Counters::default(),
            counters: Counters::default(),
        })
    }

    /// Waits until `/readyz` succeeds. Its usage counts from then on.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        if self.was_ready {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            self.check()?;
            if self.metrics.is_none()
                && let Some(port) = listening_ports(self.pid).and_then(|ports| ports.first().copied())
            {
                let address = format!("http://127.0.0.1:{port}").parse()?;
                self.metrics = Some(kube::Client::try_from(kube::Config::new(address))?);
            }
            if self.get("/readyz").await.is_some() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                bail!("{} does not become ready", self.identity);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.begin();
        Ok(())
    }

    /// Counts its usage from now on.
    pub(crate) fn begin(&mut self) {
        self.was_ready = true;
        self.baseline = self.usage().unwrap_or_default();
        self.last = self.baseline;
    }

    /// Counts its usage and requests from now on.
    pub(crate) async fn begin_counting(&mut self) {
        self.begin();
        self.counted_before = self.count().await.clone();
    }

    /// A way to look at it from another task, once it is [`ready`](Self::ready).
    pub(crate) fn probe(&self) -> Option<Probe> {
        let (identity, pid) = (self.identity.clone(), self.pid);
        Some(Probe { identity, pid, pages: self.metrics.clone()? })
    }

    fn usage(&self) -> Option<Usage> {
        if self.group { Usage::of_group(self.pid) } else { Usage::of(self.pid) }
    }

    async fn get(&self, path: &str) -> Option<String> {
        let request = Request::get(path).body(Vec::new()).ok()?;
        tokio::time::timeout(PAGE, self.metrics.as_ref()?.request_text(request)).await.ok()?.ok()
    }

    /// Reads its resource usage.
    pub(crate) fn measure(&mut self) -> Usage {
        if let Some(now) = self.usage().filter(|now| now.cpu_s >= self.last.cpu_s) {
            // Of open files, the most that were seen are of interest.
            self.last = Usage { open_files: now.open_files.max(self.last.open_files), ..now };
        }
        self.last
    }

    /// Reads its metrics.
    pub(crate) async fn count(&mut self) -> &Counters {
        if let Some(counters) = self.get("/metrics").await.and_then(|text| Counters::parse(&text).ok()) {
            self.counters = counters;
        }
        &self.counters
    }

    /// Its way to the API server, if that is a proxy.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// An error with its last words if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} has ended with {status}: {}", self.identity, last_line(&self.log)),
            None => Ok(()),
        }
    }

    /// The state of its process as the kernel names it: R, S, T, ...
    pub(crate) fn state(&self) -> Option<char> {
        procfs::process::Process::new(self.pid).ok()?.stat().ok().map(|stat| stat.state)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended already.
        let _gone = kill(Pid::from_raw(self.pid), signal);
    }

    /// Its cost, as last read by [`measure`](Self::measure) and [`count`](Self::count).
    pub(crate) fn cost(&self) -> Cost {
        let usage = Usage { cpu_s: self.last.cpu_s - self.baseline.cpu_s, ..self.last };
        Cost {
            identity: self.identity.clone(),
            usage,
            counters: self.counters.clone().since(&self.counted_before),
        }
    }

    /// Waits for its end, and kills it after [`PATIENCE`]. Returns whether it ended successfully.
    pub(crate) async fn wait(&mut self) -> bool {
        // `Child::wait` closes the input, which would end the replica in another way than the signal under
        // test.
        let _input = self.child.stdin.take();
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(ended) => ended.is_ok_and(|status| status.success()),
            Err(_) => {
                let _killed = self.child.kill().await;
                false
            }
        }
    }

    /// Reads its figures, ends it by SIGTERM and returns its cost.
    pub(crate) async fn end(mut self) -> Cost {
        self.measure();
        self.count().await;
        self.signal(Signal::SIGTERM);
        self.wait().await;
        self.cost()
    }
}
