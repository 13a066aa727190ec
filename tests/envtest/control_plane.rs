//! etcd, kube-apiserver and, where a test asks for it, kube-controller-manager, as processes on loopback.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tempfile::TempDir;

use crate::binary::{Background, yardmaster};

/// Limit for everything that does not take time by design. A real control plane beside other tests is slow.
const PATIENCE: Duration = Duration::from_secs(180);

/// A control plane without nodes.
pub(crate) struct ControlPlane {
    assets: PathBuf,
    directory: TempDir,
    pub(crate) client: kube::Client,
    // Ended in this order.
    pub(crate) api_server: Background,
    _etcd: Background,
}

impl ControlPlane {
    /// Starts it; `None`, with a line that says so, where the programs are not there.
    pub(crate) async fn start(more: &[&str]) -> Option<Self> {
        let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
            say("skipped: KUBEBUILDER_ASSETS does not name a folder with etcd and kube-apiserver");
            return None;
        };
        if let Some(missing) = more.iter().find(|program| !assets.join(program).exists()) {
            say(&format!("skipped: there is no {missing} in {}", assets.display()));
            return None;
        }
        let directory = TempDir::new().unwrap();
        let [etcd_port, peer_port, port] = free_ports();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(directory.path().join("service-accounts.key"), key.serialize_pem()).unwrap();
        std::fs::write(directory.path().join("service-accounts.pub"), key.public_key_pem()).unwrap();
        std::fs::write(directory.path().join("tokens.csv"), "token,admin,admin,\"system:masters\"").unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "c", "user": {"token": "token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let etcd = start(
            &assets,
            &directory,
            "etcd",
            &[
                "--data-dir=etcd",
                "--unsafe-no-fsync",
                &format!("--listen-client-urls={etcd_url}"),
                &format!("--advertise-client-urls={etcd_url}"),
                &format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            ],
        );
        let api_server = start(
            &assets,
            &directory,
            "kube-apiserver",
            &[
                &format!("--etcd-servers={etcd_url}"),
                &format!("--secure-port={port}"),
                "--bind-address=127.0.0.1",
                "--cert-dir=certificates",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=service-accounts.pub",
                "--service-account-signing-key-file=service-accounts.key",
                "--token-auth-file=tokens.csv",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/24",
                // There are neither service accounts nor nodes.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            ],
        );
        let kubeconfig = Kubeconfig::read_from(directory.path().join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.proxy_url = None;
        let client = kube::Client::try_from(config).unwrap();
        let plane = Self { assets, directory, client, api_server, _etcd: etcd };
        let is_ready = async || {
            let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(plane.client.clone());
            plane.client.request_text(ready).await.is_ok() && namespaces.get("default").await.is_ok()
        };
        plane.until("the API server is ready", is_ready).await;
        let version = plane.client.apiserver_version().await.unwrap();
        say(&format!("kube-apiserver {} of {}", version.git_version, plane.assets.display()));
        Some(plane)
    }

    /// Whether the API server keeps a field of a Job's spec. If it does not, a line says that the test is skipped: older
    /// versions, and those with the feature gate off, drop the field.
    pub(crate) async fn keeps(&self, field: &str, value: &str) -> bool {
        let job = json!({"metadata": {"name": "kept"}, "spec": {field: value, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}}});
        let request = http::Request::post("/apis/batch/v1/namespaces/default/jobs?dryRun=All")
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(&job).unwrap())
            .unwrap();
        let answer: serde_json::Value = self.client.request(request).await.unwrap();
        let kept = answer["spec"][field] == value;
        if !kept {
            say(&format!("skipped: this API server does not keep `spec.{field}` of Jobs"));
        }
        kept
    }

    /// Controllers of Kubernetes.
    pub(crate) fn built_in(&self, controllers: &[&str]) -> Background {
        let [port] = free_ports();
        start(
            &self.assets,
            &self.directory,
            "kube-controller-manager",
            &[
                "--kubeconfig=kubeconfig",
                &format!("--controllers={}", controllers.join(",")),
                "--leader-elect=false",
                "--kube-api-qps=1000",
                "--kube-api-burst=1500",
                "--service-account-private-key-file=service-accounts.key",
                &format!("--secure-port={port}"),
                "--bind-address=127.0.0.1",
                "--cert-dir=manager-certificates",
            ],
        )
    }

    /// A replica with this `--controller-name`, whose Leases are short.
    pub(crate) fn replica(&self, controller: &str) -> Background {
        self.replica_of_shards(controller, 4)
    }

    /// The same in a cluster with this many shards.
    pub(crate) fn replica_of_shards(&self, controller: &str, shards: u32) -> Background {
        let shards = format!("--shards={shards}");
        let short = ["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms"];
        self.replica_with(controller, short.into_iter().chain([&*shards]))
    }

    /// A replica with these flags.
    pub(crate) fn replica_with<'a>(
        &self,
        controller: &str,
        flags: impl IntoIterator<Item = &'a str>,
    ) -> Background {
        let mut command = yardmaster();
        command.args(["controller", "--listen=127.0.0.1:0", "--controller-name", controller]);
        command.args(flags).arg("--kubeconfig").arg(self.kubeconfig()).current_dir(self.directory.path());
        Background::start(command.stdout(Stdio::null()).stderr(log(&self.directory, "yardmaster")))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// The objects of one kind in the namespace of the tests.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The sum of a metric of the API server, over the series with all these labels.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let of_metric = text.lines().filter(|line| line.split('{').next() == Some(name));
        let series = of_metric.filter(|line| labels.iter().all(|label| line.contains(label)));
        series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            if Instant::now() >= deadline {
                // The logs are the only trace of why.
                let kept = std::env::temp_dir().join(format!("envtest-{}", std::process::id()));
                let _copied = Command::new("cp").arg("-r").arg(self.directory.path()).arg(&kept).status();
                panic!("still not: {what}; logs are in {}", kept.display());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Writes a line once in this process, past the test runner, which shows the output of failed tests only.
fn say(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(line.to_owned()) {
        std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

fn start(assets: &Path, directory: &TempDir, program: &str, flags: &[&str]) -> Background {
    let mut command = Command::new(assets.join(program));
    command.args(flags).current_dir(directory.path()).stdin(Stdio::null());
    Background::start(command.stdout(log(directory, program)).stderr(log(directory, program)))
}

fn log(directory: &TempDir, program: &str) -> File {
    File::options().create(true).append(true).open(directory.path().join(format!("{program}.log"))).unwrap()
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = std::array::from_fn::<_, N, _>(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
