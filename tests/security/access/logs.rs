//! The kubelet's port, which serves container logs to the API server only.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, LogParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use yardmaster_embedded::kubelet::{Kubelet, KubeletConfig};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

use super::wire::{PATIENCE, bearer, begin, client, request};

/// A pod that has printed a secret, and the address of its kubelet.
struct Printed {
    server: ApiServer,
    kubelet: Kubelet,
    pods: Api<Pod>,
    address: SocketAddr,
}

impl Printed {
    async fn start() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let client = client(&server);
        let supervisor = Some(env!("CARGO_BIN_EXE_yardmaster").into());
        let config = KubeletConfig { supervisor, ..KubeletConfig::default() };
        let kubelet = Kubelet::start(client.clone(), config).await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod = json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "none", "command": ["echo", "secret of the owner"]},
        ]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while pods.get("p").await.unwrap().status.unwrap_or_default().phase.as_deref() != Some("Succeeded") {
            assert!(Instant::now() < deadline, "the pod does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let node = Api::<Node>::all(client).get("yardmaster-local").await.unwrap();
        let endpoints = node.status.unwrap().daemon_endpoints.unwrap();
        let port = u16::try_from(endpoints.kubelet_endpoint.unwrap().port).unwrap();
        Self { server, kubelet, pods, address: ([127, 0, 0, 1], port).into() }
    }

    async fn logs(&self) -> String {
        let logs = tokio::time::timeout(PATIENCE, self.pods.logs("p", &LogParams::default())).await;
        logs.expect("a log").unwrap()
    }

    async fn stop(self) {
        self.kubelet.shutdown().await;
        self.server.shutdown().await;
    }
}

/// The pod `p` on a node whose kubelet is at this port.
async fn pod_of_kubelet_at(server: &ApiServer, port: u16) -> Api<Pod> {
    let client = client(server);
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::default_namespaced(client));
    let node = json!({"metadata": {"name": "n"}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods
}

/// The value of `Authorization` that an API server sends to the kubelet of a node.
pub(super) async fn token_shown_to_kubelets(server: &ApiServer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = pod_of_kubelet_at(server, listener.local_addr().unwrap().port()).await;
    let asking = tokio::spawn(async move { pods.logs("p", &LogParams::default()).await.is_ok() });
    let (stream, _) = listener.accept().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let shown = loop {
        let line = lines.next_line().await.unwrap().expect("a token");
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            break value.to_owned();
        }
    };
    asking.abort();
    shown
}

#[tokio::test]
async fn a_log_is_for_the_api_server_alone() {
    let printed = Printed::start().await;
    let path = "/containerLogs/default/p/c";
    let owner = bearer(&printed.server);
    for headers in [
        vec!["Host: localhost"],
        vec!["Host: localhost", "Authorization: Bearer guessed"],
        // The owner reads logs through the API server; the kubelet does not know the owner.
        vec!["Host: localhost", &owner],
    ] {
        for path in [path, "/containerLogs/default/none/c", "/healthz", "/"] {
            let answer = request(printed.address, "GET", path, &headers, "").await;
            assert_eq!((answer.code, &*answer.body), (401, "Unauthorized"), "{path} with {headers:?}");
        }
    }
    assert_eq!(printed.logs().await, "secret of the owner\n");
    printed.stop().await;
}

#[tokio::test]
async fn half_open_connections_to_a_kubelet_keep_the_api_server_not_out() {
    let printed = Printed::start().await;
    let mut half_open = Vec::new();
    for _ in 0..300 {
        half_open.push(begin(printed.address, "GET / HTTP/1.1\r\n").await);
    }
    assert_eq!(printed.logs().await, "secret of the owner\n");
    super::wire::until_closed(&mut half_open[0]).await;
    printed.stop().await;
}

#[tokio::test]
async fn the_port_of_an_earlier_kubelet_is_not_asked() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        || ApiServerConfig { data_dir: Some(directory.path().to_owned()), ..ApiServerConfig::default() };
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ApiServer::start(config()).await.unwrap();
    pod_of_kubelet_at(&server, stranger.local_addr().unwrap().port()).await;
    server.shutdown().await;

    let server = ApiServer::start(config()).await.unwrap();
    let client = client(&server);
    // A write of another client does not make the address valid again.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    Api::<Node>::all(client.clone()).patch("n", &PatchParams::default(), &label).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let parameters = LogParams::default();
    tokio::select! {
        answer = pods.logs("p", &parameters) => assert!(answer.unwrap_err().to_string().contains("no preferred addresses")),
        _ = stranger.accept() => panic!("the API server goes to a stranger"),
        () = tokio::time::sleep(PATIENCE) => panic!("no answer"),
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_kubelet_that_does_not_answer_holds_no_slot() {
    let config = ApiServerConfig { max_inflight: Some(1), ..ApiServerConfig::default() };
    let server = ApiServer::start(config).await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = pod_of_kubelet_at(&server, silent.local_addr().unwrap().port()).await;
    let asking = tokio::spawn(async move { pods.logs("p", &LogParams::default()).await.is_ok() });
    let _asked = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("a request").unwrap();
    assert_eq!(super::wire::get(&client(&server), super::wire::PODS).await, 200);
    asking.abort();
    server.shutdown().await;
}
