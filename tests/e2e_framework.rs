//! The requests of Kubernetes' own e2e tests, of their framework and of their tests of Jobs, as a table. They
//! get the answers they need on a cluster with controller and kubelet. `YARDMASTER_KUBECONFIG` names another
//! cluster, with nodes.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde_json::{Value, json};
use yardmaster::actors::{Controller, ControllerConfig};
use yardmaster::sharding::ShardCount;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// Limit for a row.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Table {
    rows: Vec<Row>,
}

/// A request, and what its answer must have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    asks: String,
    #[serde(default = "get")]
    method: String,
    path: String,
    #[serde(default = "json_type")]
    accept: String,
    #[serde(default = "json_type")]
    r#type: String,
    #[serde(default)]
    body: Value,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    has: Value,
    /// A list that must be empty.
    empty: Option<String>,
}

fn get() -> String {
    "GET".into()
}

fn json_type() -> String {
    "application/json".into()
}

fn ok() -> u16 {
    200
}

/// A whole cluster, in this process.
struct Cluster {
    server: ApiServer,
    controller: Controller,
    kubelet: Kubelet,
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let config = client_config(server.kubeconfig()).await;
        let controller = ControllerConfig {
            controller_name: "kubernetes.io/job-controller".into(),
            shards: ShardCount::new(2).unwrap(),
            ..ControllerConfig::default()
        };
        let controller = Controller::start(controller, config.clone()).await.unwrap();
        let supervisor = Some(env!("CARGO_BIN_EXE_yardmaster").into());
        let kubelet = KubeletConfig { supervisor, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(kube::Client::try_from(config).unwrap(), kubelet).await.unwrap();
        Self { server, controller, kubelet }
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.controller.shutdown().await;
        self.server.shutdown().await;
    }
}

async fn client_config(kubeconfig: Kubeconfig) -> kube::Config {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.proxy_url = None;
    config
}

/// Status and body. Bodies that are no JSON are texts, and those of watches `{"events": [...]}`.
async fn answer(client: &kube::Client, row: &Row) -> (u16, Value) {
    let body = if row.body.is_null() { Vec::new() } else { serde_json::to_vec(&row.body).unwrap() };
    let request = http::Request::builder()
        .method(&*row.method)
        .uri(&*row.path)
        .header("Accept", &*row.accept)
        .header("Content-Type", &*row.r#type)
        .body(Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    let body = match values {
        Ok(values) if row.path.contains("watch=1") => json!({"events": values}),
        Ok(values) if values.len() == 1 => values[0].clone(),
        _ => text.into_owned().into(),
    };
    (status, body)
}

/// Where a value lacks what is wanted.
fn lacks(path: &str, value: &Value, wanted: &Value) -> Option<String> {
    let differs = || Some(format!("{path} is {value}, not {wanted}"));
    match (wanted, value) {
        (Value::Null, _) => None,
        (Value::Object(fields), _) => {
            fields.iter().find_map(|(field, wanted)| lacks(&format!("{path}.{field}"), &value[field], wanted))
        }
        (Value::Array(wanted), Value::Array(elements)) => wanted.iter().find_map(|wanted| {
            let found = elements.iter().any(|element| lacks(path, element, wanted).is_none());
            (!found).then(|| format!("{path} has no element like {wanted}"))
        }),
        (Value::String(any), Value::String(text)) if any == "<text>" && !text.is_empty() => None,
        _ if value == wanted => None,
        _ => differs(),
    }
}

async fn problem(client: &kube::Client, row: &Row) -> Option<String> {
    let (status, body) = answer(client, row).await;
    if status != row.status {
        return Some(format!("{status}, not {}: {body}", row.status));
    }
    let left =
        row.empty.as_ref().filter(|field| body[&**field].as_array().is_none_or(|list| !list.is_empty()));
    left.map(|field| format!("{field} is not empty")).or_else(|| lacks("the answer", &body, &row.has))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_e2e_framework_finds_what_it_asks_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/e2e/requests.json");
    let table: Table = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let outside = std::env::var_os("YARDMASTER_KUBECONFIG");
    let cluster = if outside.is_none() { Some(Cluster::start().await) } else { None };
    let kubeconfig = match (&cluster, outside) {
        (Some(cluster), _) => cluster.server.kubeconfig(),
        (None, file) => Kubeconfig::read_from(file.unwrap()).unwrap(),
    };
    let client = kube::Client::try_from(client_config(kubeconfig).await).unwrap();
    for row in &table.rows {
        let deadline = Instant::now() + PATIENCE;
        while let Some(problem) = problem(&client, row).await {
            assert!(Instant::now() < deadline, "{}: {} {}: {problem}", row.asks, row.method, row.path);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
}
