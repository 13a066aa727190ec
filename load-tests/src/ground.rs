//! The environment of a load: an API server and a namespace.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use crate::faults::TimedFault;

/// Limit for the start and the end of the embedded API server.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server with a namespace for one load.
pub(crate) struct Ground {
    /// Kubeconfig of the API server.
    pub(crate) kubeconfig: PathBuf,
    /// The load's namespace.
    pub(crate) namespace: String,
    /// Directory of temporary files, removed at the end.
    pub(crate) directory: TempDir,
    server: Option<Server>,
}

/// The embedded API server's process.
struct Server {
    child: Child,
    /// Faults are sent through this pipe. The server ends when it closes.
    faults: ChildStdin,
}

impl Ground {
    /// The API server of this kubeconfig, or an embedded one.
    pub(crate) async fn prepare(kubeconfig: Option<&Path>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("yardmaster-load-").tempdir()?;
        // The name is new each time, since a deleted namespace may take a while to disappear.
        let name = format!("load-{}", jiff::Timestamp::now().as_millisecond());
        let (kubeconfig, server) = match kubeconfig {
            Some(file) => (file.to_owned(), None),
            None => {
                let (file, server) = Server::start(directory.path()).await?;
                (file, Some(server))
            }
        };
        let ground = Self { kubeconfig, namespace: name, directory, server };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ground.namespace}});
        let client = ground.client("load-tests").await?;
        let _created: serde_json::Value = client
            .request(Request::post("/api/v1/namespaces").body(namespace.to_string().into_bytes())?)
            .await
            .context("cannot create the load's namespace")?;
        Ok(ground)
    }

    /// A client with this name as User-Agent.
    pub(crate) async fn client(&self, name: &str) -> Result<kube::Client> {
        client(Some(&self.kubeconfig), name).await
    }

    /// Whether the API server is embedded. Only an embedded one has a record of writes and faults.
    pub(crate) fn is_embedded(&self) -> bool {
        self.server.is_some()
    }

    /// Injects a fault into the API server now.
    pub(crate) async fn inject(&mut self, fault: &TimedFault) -> Result<()> {
        let Some(server) = &mut self.server else { bail!("only the embedded API server has faults") };
        let line = format!("{}\n", serde_json::to_string(fault)?);
        server.faults.write_all(line.as_bytes()).await.context("the API server has ended")
    }

    /// The path of a resource in the load's namespace, such as `/api/v1` and `pods`.
    pub(crate) fn path(&self, version: &str, plural: &str) -> String {
        format!("{version}/namespaces/{}/{plural}", self.namespace)
    }

    /// CPU time and memory of the embedded API server.
    pub(crate) fn usage(&self) -> Option<crate::usage::Usage> {
        crate::usage::Usage::of(i32::try_from(self.server.as_ref()?.child.id()?).ok()?)
    }

    /// Ends the embedded API server and returns its record of writes. On another API server, deletes the
    /// load's namespace and returns `None`.
    pub(crate) async fn end(self) -> Result<Option<Record>> {
        let client = self.client("load-tests").await?;
        let Some(Server { mut child, faults }) = self.server else {
            let path = format!("/api/v1/namespaces/{}", self.namespace);
            let _deleted: serde_json::Value = client.request(Request::delete(path).body(Vec::new())?).await?;
            return Ok(None);
        };
        drop(faults);
        let ended =
            tokio::time::timeout(PATIENCE, child.wait()).await.context("the API server does not end")??;
        anyhow::ensure!(ended.success(), "the API server ended with {ended}");
        let file = self.directory.path().join("audit");
        Ok(Some(Record { file, _directory: self.directory }))
    }
}

/// The record of writes of an API server that has ended.
pub(crate) struct Record {
    /// Its file.
    pub(crate) file: PathBuf,
    _directory: TempDir,
}

impl Server {
    async fn start(directory: &Path) -> Result<(PathBuf, Self)> {
        let kubeconfig = directory.join("kubeconfig");
        let mut child = Command::new(std::env::current_exe()?)
            .arg("api-server")
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--audit")
            .arg(directory.join("audit"))
            .stdin(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the API server")?;
        let faults = child.stdin.take().context("the API server has no input")?;
        let begun = Instant::now();
        while !kubeconfig.exists() {
            if let Some(ended) = child.try_wait()? {
                bail!("the API server ended with {ended}");
            }
            if begun.elapsed() > PATIENCE {
                bail!("the API server does not start");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok((kubeconfig, Self { child, faults }))
    }
}

/// A client with this name as User-Agent, without automatic retries.
pub(crate) async fn client(kubeconfig: Option<&Path>, name: &str) -> Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file).with_context(|| file.display().to_string())?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await?,
    };
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_str(name)?));
    Ok(kube::Client::try_from(config)?)
}
