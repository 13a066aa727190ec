//! Faults of the embedded API server have the promised effect on the selected clients and no others.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Fault, FaultScope};

const DEADLINE: Duration = Duration::from_secs(20);

async fn client(server: &ApiServer, user_agent: &str) -> Client {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, user_agent.parse().unwrap()));
    Client::try_from(config).unwrap()
}

async fn start() -> ApiServer {
    ApiServer::start(ApiServerConfig::default()).await.unwrap()
}

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

fn agent(name: &str) -> FaultScope {
    FaultScope { user_agent: name.into(), ..FaultScope::default() }
}

#[tokio::test]
async fn a_refused_request_changes_nothing_and_hits_only_its_client() {
    let server = start().await;
    let victim = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let other = Api::<ConfigMap>::default_namespaced(client(&server, "other").await);
    let refuse = Fault::Refuse(http::StatusCode::SERVICE_UNAVAILABLE);
    server.faults().inject(refuse, agent("victim"), Some(1));
    match victim.create(&PostParams::default(), &map("a")).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 503),
        answer => panic!("not refused: {answer:?}"),
    }
    assert!(other.get_opt("a").await.unwrap().is_none(), "nothing was written");
    victim.create(&PostParams::default(), &map("a")).await.expect("the fault hits once");
    server.shutdown().await;
}

#[tokio::test]
async fn a_failing_webhook_is_answered_as_kube_apiserver_does_after_its_timeout() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let posts = FaultScope { methods: vec![http::Method::POST], ..agent("victim") };
    server.faults().inject(Fault::FailWebhook(Duration::from_secs(1)), posts, None);
    let asked = std::time::Instant::now();
    let Err(kube::Error::Api(status)) = maps.create(&PostParams::default(), &map("a")).await else {
        panic!("not refused")
    };
    assert!(asked.elapsed() >= Duration::from_secs(1));
    assert_eq!((status.code, &*status.reason), (500, "InternalError"));
    let expected = "Internal error occurred: failed calling webhook \"webhook.example.com\": failed to call webhook: \
                    Post \"https://webhook.example.com/admit?timeout=1s\": context deadline exceeded";
    assert_eq!(status.message, expected);
    assert!(maps.get_opt("a").await.unwrap().is_none(), "nothing was written");
    server.shutdown().await;
}

#[tokio::test]
async fn a_lost_reply_comes_after_the_write() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let posts = FaultScope { methods: vec![http::Method::POST], ..agent("victim") };
    server.faults().inject(Fault::LoseReplies, posts, Some(1));
    maps.create(&PostParams::default(), &map("a")).await.expect_err("no reply");
    assert!(maps.get_opt("a").await.unwrap().is_some(), "the write was applied");
    server.shutdown().await;
}

#[tokio::test]
async fn a_partition_lasts_until_it_is_healed() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let fault = server.faults().inject(Fault::Partition, agent("victim"), None);
    maps.list(&ListParams::default()).await.expect_err("cut off");
    maps.create(&PostParams::default(), &map("a")).await.expect_err("cut off");
    server.faults().remove(fault);
    assert!(maps.get_opt("a").await.unwrap().is_none(), "nothing got through");
    server.shutdown().await;
}

#[tokio::test]
async fn held_watches_deliver_when_released_and_expired_ones_end_with_410() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let listed = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let hold = server.faults().inject(Fault::HoldWatches, agent("victim"), None);
    let mut events = maps.watch(&WatchParams::default(), &listed).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), events.try_next()).await;
    assert!(early.is_err(), "delivered while held: {early:?}");
    server.faults().remove(hold);
    let event = tokio::time::timeout(DEADLINE, events.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");
    server.faults().inject(Fault::ExpireWatches, agent("victim"), Some(1));
    maps.create(&PostParams::default(), &map("b")).await.unwrap();
    let event = tokio::time::timeout(DEADLINE, events.try_next()).await.unwrap().unwrap();
    assert!(matches!(&event, Some(WatchEvent::Error(status)) if status.code == 410), "{event:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn broken_watches_end() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let listed = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &listed).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let event = tokio::time::timeout(DEADLINE, events.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(_))), "{event:?}");
    server.faults().break_watches();
    let end = tokio::time::timeout(DEADLINE, events.try_next()).await.unwrap();
    assert!(matches!(end, Ok(None)), "{end:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn too_many_requests_are_refused_with_429() {
    let config = ApiServerConfig { max_inflight: Some(1), ..ApiServerConfig::default() };
    let server = ApiServer::start(config).await.unwrap();
    // With one slot, a single request succeeds. With none, every request is refused.
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "one").await);
    maps.list(&ListParams::default()).await.expect("one at a time is fine");
    server.shutdown().await;
    let config = ApiServerConfig { max_inflight: Some(0), ..ApiServerConfig::default() };
    let server = ApiServer::start(config).await.unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "none").await);
    match maps.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429),
        answer => panic!("not refused: {answer:?}"),
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_fault_can_hit_every_second_request() {
    let server = start().await;
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "victim").await);
    let half = FaultScope { every: 2, methods: vec![http::Method::POST], ..agent("victim") };
    server.faults().inject(Fault::Refuse(http::StatusCode::TOO_MANY_REQUESTS), half, None);
    let mut refused = Vec::new();
    for name in ["a", "b", "c", "d"] {
        refused.push(maps.create(&PostParams::default(), &map(name)).await.is_err());
    }
    assert_eq!(refused, [true, false, true, false]);
    server.shutdown().await;
}

#[tokio::test]
async fn every_write_is_audited_with_its_client_and_its_result() {
    let (audit, mut records) = tokio::sync::mpsc::unbounded_channel();
    let config = ApiServerConfig { audit: Some(audit), ..ApiServerConfig::default() };
    let server = ApiServer::start(config).await.unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(client(&server, "writer").await);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    maps.create(&PostParams::default(), &map("a")).await.expect_err("exists");
    maps.get("a").await.unwrap();
    maps.delete("a", &Default::default()).await.unwrap();
    server.shutdown().await;
    let mut audited = Vec::new();
    while let Some(record) = records.recv().await {
        assert!(record.received <= record.answered && record.user_agent.contains("writer"), "{record:?}");
        audited.push((record.method.to_string(), record.path, record.created, record.code));
    }
    let all = "/api/v1/namespaces/default/configmaps";
    let created = |code| ("POST".to_owned(), all.to_owned(), Some("a".to_owned()), code);
    assert_eq!(audited, [created(201), created(409), ("DELETE".to_owned(), format!("{all}/a"), None, 200)]);
}
