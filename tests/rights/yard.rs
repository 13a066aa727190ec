//! A cluster that controls access, and replicas that run there as the chart's service account.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;

use http::{Method, StatusCode};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig, KubeletMode};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Denial, Fault, FaultScope, Rbac, User};

use crate::binary::{Background, yardmaster};
use crate::case::Case;
use crate::render::NAMESPACE;
use crate::work::{NAMESPACES, REFUSED, send};

const TOKEN: &str = "token-of-the-service-account";

/// A cluster with replicas.
pub(crate) struct Yard {
    /// The embedded API server, unless the cluster is a real one.
    server: Option<ApiServer>,
    /// An administrator's client.
    pub(crate) client: Client,
    kubelet: Kubelet,
    denials: tokio::sync::Mutex<UnboundedReceiver<Denial>>,
    /// Refusals that have been received.
    seen: Mutex<Vec<Denial>>,
    /// The service account's kubeconfig, and the logs.
    directory: TempDir,
    replicas: Mutex<Vec<Background>>,
}

impl Yard {
    /// An embedded API server with the objects of a case and these feature gates.
    pub(crate) async fn start(case: &Case, mut gates: BTreeMap<String, bool>) -> Self {
        gates.extend(["GenericWorkload", "WorkloadWithJob"].map(|gate| (gate.to_owned(), case.gangs)));
        let (sink, denials) = unbounded_channel();
        let user = User::service_account(NAMESPACE, case.account());
        let rbac = Rbac { users: BTreeMap::from([(TOKEN.to_owned(), user)]), denials: Some(sink) };
        let config = ApiServerConfig {
            rbac: Some(rbac),
            owner_references_permission_enforcement: true,
            feature_gates: gates,
            ..ApiServerConfig::default()
        };
        let server = ApiServer::start(config).await.unwrap();
        let path = format!("/namespaces/{REFUSED}/pods");
        let scope = FaultScope { methods: vec![Method::POST], path, ..FaultScope::default() };
        server.faults().inject(Fault::Refuse(StatusCode::INTERNAL_SERVER_ERROR), scope, Some(3));
        let own = server.kubeconfig_with(Some(TOKEN));
        let client = client(server.kubeconfig()).await;
        Self::with(Some(server), client, own, denials, case).await
    }

    /// A real cluster with the objects of a case; `None` if it does not serve what the case needs.
    pub(crate) async fn on_a_real_cluster(case: &Case, kubeconfig: &Path) -> Option<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let client = client(kubeconfig.clone()).await;
        let workloads = send(&client, Method::GET, "/apis/scheduling.k8s.io/v1alpha2/workloads", None).await;
        if case.gangs && workloads.is_err() {
            return None;
        }
        let (_, denials) = unbounded_channel();
        let yard = Self::with(None, client.clone(), Kubeconfig::default(), denials, case).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
        let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
        let answer =
            accounts.create_token_request(case.account(), &PostParams::default(), &request).await.unwrap();
        let mut own = kubeconfig;
        let user = AuthInfo { token: answer.status.unwrap().token.map(Into::into), ..AuthInfo::default() };
        own.auth_infos.iter_mut().for_each(|info| info.auth_info = Some(user.clone()));
        yard.write_kubeconfig(&own);
        Some(yard)
    }

    async fn with(
        server: Option<ApiServer>,
        client: Client,
        own: Kubeconfig,
        denials: UnboundedReceiver<Denial>,
        case: &Case,
    ) -> Self {
        for namespace in NAMESPACES.iter().chain(&[NAMESPACE]) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            apply(&client, &namespace).await;
        }
        for object in &case.objects {
            apply(&client, object).await;
        }
        let simulated = KubeletConfig { mode: KubeletMode::Simulated, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(client.clone(), simulated).await.unwrap();
        let (directory, replicas) = (tempfile::tempdir().unwrap(), Mutex::default());
        let denials = tokio::sync::Mutex::new(denials);
        let yard = Self { server, client, kubelet, denials, seen: Mutex::default(), directory, replicas };
        yard.write_kubeconfig(&own);
        yard
    }

    fn write_kubeconfig(&self, kubeconfig: &Kubeconfig) {
        let text = serde_json::to_string(kubeconfig).unwrap();
        std::fs::write(self.directory.path().join("kubeconfig"), text).unwrap();
    }

    /// Whether requests are made to fail on purpose.
    pub(crate) fn injects_faults(&self) -> bool {
        self.server.is_some()
    }

    /// Starts this many replicas with the arguments of the case.
    pub(crate) fn join(&mut self, case: &Case, replicas: usize) {
        for number in 0..replicas {
            let log = || File::create(self.log(number)).unwrap();
            let listen = |argument: &String| argument.starts_with("--listen=");
            let mut command = yardmaster();
            command.args(case.arguments().iter().filter(|argument| !listen(argument)));
            command.args(["--listen", "127.0.0.1:0"]);
            command.env("POD_NAMESPACE", NAMESPACE).env("POD_NAME", format!("replica-{number}"));
            command.env("YARDMASTER_KUBECONFIG", self.directory.path().join("kubeconfig"));
            command.stdout(Stdio::null()).stderr(log());
            self.replicas.lock().unwrap().push(Background::start(&mut command));
        }
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.directory.path().join(format!("replica-{number}.log"))
    }

    /// The logs of the replicas.
    pub(crate) fn logs(&self) -> String {
        let text = |number| std::fs::read_to_string(self.log(number)).unwrap_or_default();
        (0..self.replicas.lock().unwrap().len()).map(text).collect()
    }

    /// Sends a signal to all replicas.
    pub(crate) fn signal_all(&self, signal: Signal) {
        self.replicas.lock().unwrap().iter().for_each(|replica| replica.signal(signal));
    }

    /// Whether all replicas have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.replicas.lock().unwrap().iter_mut().all(|one| one.0.try_wait().unwrap().is_some())
    }

    /// Ends one replica by SIGTERM.
    pub(crate) async fn leave_one(&self) {
        let mut replica = self.replicas.lock().unwrap().remove(0);
        replica.signal(Signal::SIGTERM);
        let code = tokio::task::spawn_blocking(move || replica.exit_code()).await.unwrap();
        assert_eq!(code, Some(0));
    }

    /// Ends all replicas by SIGTERM.
    pub(crate) fn leave(&mut self) {
        self.signal_all(Signal::SIGTERM);
        for replica in self.replicas.lock().unwrap().iter_mut() {
            assert_eq!(replica.exit_code(), Some(0));
        }
    }

    /// The first refusal.
    pub(crate) async fn denied(&self) -> Denial {
        match self.denials.lock().await.recv().await {
            Some(denial) => denial,
            None => std::future::pending().await,
        }
    }

    /// All refusals so far. On a real cluster: the refusals that the replicas have logged.
    pub(crate) fn denials(&self) -> Vec<Denial> {
        let mut seen = self.seen.lock().unwrap();
        if let Ok(mut denials) = self.denials.try_lock() {
            seen.extend(std::iter::from_fn(|| denials.try_recv().ok()));
        }
        if self.server.is_none() {
            let logs = self.logs();
            let refusals = logs.lines().filter(|line| line.contains("forbidden"));
            return refusals.map(|line| Denial { user: String::new(), message: line.to_owned() }).collect();
        }
        seen.clone()
    }

    /// Ends the cluster. A real one loses all that was created there but the namespaces.
    pub(crate) async fn end(self, case: &Case) {
        drop(self.replicas);
        if self.server.is_none() {
            for object in &case.objects {
                send(&self.client, Method::DELETE, &path(object, true), None).await.unwrap();
            }
            for namespace in NAMESPACES.iter().chain(&[NAMESPACE]) {
                for of in ["apis/batch/v1 jobs", "api/v1 pods", "apis/coordination.k8s.io/v1 leases"] {
                    let (group, plural) = of.split_once(' ').unwrap();
                    let path =
                        format!("/{group}/namespaces/{namespace}/{plural}?propagationPolicy=Background");
                    send(&self.client, Method::DELETE, &path, None).await.unwrap();
                }
            }
        }
        self.kubelet.shutdown().await;
        if let Some(server) = self.server {
            server.shutdown().await;
        }
    }
}

pub(crate) async fn client(kubeconfig: Kubeconfig) -> Client {
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The path of an object, or of its collection.
fn path(object: &Value, named: bool) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let version = text(&object["apiVersion"]);
    let prefix = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let plural = format!("{}s", text(&object["kind"]).to_lowercase());
    let name = if named { format!("/{}", text(&object["metadata"]["name"])) } else { String::new() };
    format!("{prefix}/{version}{namespace}/{plural}{name}")
}

/// Creates an object, unless it is there already.
pub(crate) async fn apply(client: &Client, object: &Value) {
    match send(client, Method::POST, &path(object, false), Some(object)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.unwrap()),
    }
}
