//! The HTTP pages of a replica.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use yardmaster::actors::{Controller, ControllerConfig};

use super::settings;
use crate::binary::{PATIENCE, until};
use crate::cluster::Cluster;

/// A controller with HTTP pages, and their address.
async fn with_pages(config: kube::Config) -> (Controller, SocketAddr) {
    let settings = ControllerConfig { listen: Some(([127, 0, 0, 1], 0).into()), ..settings() };
    let controller = Controller::start(settings, config).await.unwrap();
    let at = controller.address().unwrap();
    (controller, at)
}

/// Status code and body of a page.
async fn get(at: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_show_what_the_replica_does() {
    let cluster = Cluster::start().await;
    let (controller, at) = with_pages(cluster.config.clone()).await;
    tokio::time::timeout(PATIENCE, controller.ready()).await.unwrap();
    assert_eq!(get(at, "/healthz").await, (200, "ok".into()));
    assert_eq!(get(at, "/readyz").await, (200, "ok".into()));

    cluster.create("long", json!({"completions": 3, "parallelism": 3}), "1h").await;
    cluster.create("short", json!({"completions": 1}), "10ms").await;
    cluster.completes("short").await;
    cluster.until("long", "active", |job| job.status.as_ref().unwrap().active == Some(3)).await;
    let (code, shards) = get(at, "/debug/shards").await;
    let shards: Value = serde_json::from_str(&shards).unwrap();
    let shards = shards.as_array().unwrap();
    assert_eq!((code, shards.len()), (200, 4));
    for (number, shard) in shards.iter().enumerate() {
        assert_eq!((&shard["shard"], &shard["state"]), (&json!(number), &json!("active")));
        assert!(shard["epoch"].is_u64());
    }
    let sum = |field: &str| shards.iter().map(|shard| shard[field].as_u64().unwrap()).sum::<u64>();
    // The bound is loose: a finished Job counts only while its shard holds it.
    assert!((1..=2).contains(&sum("jobs")) && sum("pods") >= 3, "{shards:?}");

    let value_in = |metrics: &str, series: &str| -> f64 {
        let lines = metrics.lines().filter(|line| line.starts_with(series));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    };
    // An end counts once its write has been answered.
    let finished = async {
        loop {
            let (code, metrics) = get(at, "/metrics").await;
            assert_eq!(code, 200);
            if value_in(&metrics, "job_controller_jobs_finished_total{") > 0.0 {
                break metrics;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let metrics = tokio::time::timeout(PATIENCE, finished).await.unwrap();
    let value = |series: &str| value_in(&metrics, series);
    assert_eq!(value("yardmaster_owned_shards "), 4.0);
    assert!(value("job_controller_job_pods_creation_total{") >= 1.0);
    assert_eq!(value("job_controller_jobs_finished_total{"), 1.0);
    assert!(value("yardmaster_watch_events_total{") > 0.0);
    for name in ["long", "short"] {
        assert!(!metrics.contains(&format!("\"{name}")), "a Job's name is in a label");
    }
    controller.shutdown().await;
    until("the pages end with their controller", || std::net::TcpStream::connect(at).is_err());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_an_api_server_is_healthy_but_not_ready() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (controller, at) = with_pages(kube::Config::new(format!("http://{nobody}").parse().unwrap())).await;
    assert_eq!(get(at, "/healthz").await, (200, "ok".into()));
    assert_eq!(get(at, "/readyz").await.0, 503);
    controller.shutdown().await;
}
