//! A restore of etcd from a backup while a replica runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::sync::RwLock;
use tokio::time::timeout;
use yardmaster::actors::{Controller, ControllerError, Fatal};
use yardmaster_embedded::{Clock, InProcess, InProcessConfig, Snapshot};

use super::settings;
use crate::binary::PATIENCE;

struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// An API server whose backups are restored while no request is answered.
type Shared = Arc<RwLock<InProcess>>;

/// Starts an API server on a free port of this host, for as long as the runtime lives. Returns it, and how
/// clients reach it.
async fn serve() -> (Shared, kube::Config) {
    let api = InProcess::new(InProcessConfig::default(), Arc::new(HostClock)).unwrap();
    let api = Arc::new(RwLock::new(api));
    let served = api.clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let api = served.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let api = api.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let request = Request::from_parts(parts, body);
                    Ok::<_, hyper::Error>(api.read().await.respond(request).await)
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    (api, kube::Config::new(url))
}

/// The version of the only heartbeat.
async fn heartbeat(leases: &Api<Lease>) -> Option<String> {
    let heartbeats = ListParams::default().labels("yardmaster.dev/lease=replica");
    leases.list(&heartbeats).await.unwrap().items.pop()?.metadata.resource_version
}

/// Restores a backup under a replica. Waits until the replica has ended for that reason, and until the next
/// one is ready.
async fn restore(api: &Shared, config: kube::Config, replica: Controller, backup: &Snapshot) {
    // The replica writes a heartbeat that the backup lacks.
    let leases: Api<Lease> = Api::default_namespaced(kube::Client::try_from(config.clone()).unwrap());
    let (before, deadline) = (heartbeat(&leases).await, Instant::now() + PATIENCE);
    while heartbeat(&leases).await == before {
        assert!(Instant::now() < deadline, "no heartbeat after {before:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    api.write().await.restore(backup);
    let ended = timeout(PATIENCE, replica.ended()).await.expect("the replica notices the restore");
    assert!(matches!(ended, ControllerError::Fatal(Fatal::VersionsWentBack)), "{ended}");
    replica.abort().await;
    let next = Controller::start(settings(), config).await.unwrap();
    timeout(PATIENCE, next.ready()).await.expect("the next replica begins from the backup");
    next.shutdown().await;
}

/// The write of the heartbeat conflicts, and a live read finds an older version than was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_ends_when_its_heartbeat_is_older_than_it_has_written() {
    let (api, config) = serve().await;
    let replica = Controller::start(settings(), config.clone()).await.unwrap();
    timeout(PATIENCE, replica.ready()).await.unwrap();
    let backup = api.read().await.snapshot();
    restore(&api, config, replica, &backup).await;
}

/// The backup has no heartbeat. The replica writes one, and its version is older than versions it has seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_ends_when_a_new_heartbeat_is_older_than_others_it_has_seen() {
    let (api, config) = serve().await;
    let backup = api.read().await.snapshot();
    let replica = Controller::start(settings(), config.clone()).await.unwrap();
    timeout(PATIENCE, replica.ready()).await.unwrap();
    // The history of before is longer than everything that the replica writes after the restore.
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config.clone()).unwrap());
    for number in 0..100 {
        let map = json!({"metadata": {"name": format!("map-{number}")}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    restore(&api, config, replica, &backup).await;
}
