//! Requests before the controllers start: health, discovery, leader election, delegated authentication.

use serde_json::{Value, json};

use crate::client::{DISCOVERY, METADATA, STRATEGIC, Stage, TYPED};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

#[tokio::test]
async fn the_server_is_healthy_and_says_what_it_is() {
    let stage = Stage::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = stage.get(path).await;
        assert_eq!((answer.code, &answer.body), (200, &json!("ok")), "{path}");
    }
    let version = stage.get("/version").await.expect(200);
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.36."));
    stage.server.shutdown().await;
}

/// The group versions and resources of an aggregated discovery document.
async fn aggregated(stage: &Stage, path: &str) -> Vec<(String, Vec<Value>)> {
    let answer = stage.get_as(path, DISCOVERY).await;
    let content_type = answer.headers["content-type"].to_str().unwrap().to_owned();
    assert_eq!(content_type, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let document = answer.expect(200);
    let mut found = Vec::new();
    for group in document["items"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            assert_eq!(version["freshness"], "Current");
            let name = version["version"].as_str().unwrap();
            let name =
                group["metadata"]["name"].as_str().map_or(name.into(), |group| format!("{group}/{name}"));
            found.push((name, version["resources"].as_array().unwrap().clone()));
        }
    }
    found
}

#[tokio::test]
async fn both_forms_of_discovery_name_the_same_resources() {
    let stage = Stage::start().await;
    let mut found = aggregated(&stage, "/api").await;
    found.extend(aggregated(&stage, "/apis").await);
    for (version, resources) in &found {
        let prefix = if version.contains('/') { "apis" } else { "api" };
        let legacy = stage.get(&format!("/{prefix}/{version}")).await.expect(200);
        let legacy: Vec<&str> = legacy["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|resource| resource["name"].as_str().filter(|name| !name.contains('/')))
            .collect();
        let resources: Vec<&str> =
            resources.iter().map(|resource| resource["resource"].as_str().unwrap()).collect();
        assert_eq!(resources, legacy, "{version}");
    }
    // kube-controller-manager looks for custom resources and aggregated API servers, and works without them.
    for absent in ["apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1"] {
        assert!(found.iter().all(|(version, _)| version != absent));
        assert_eq!(stage.get(&format!("/apis/{absent}")).await.code, 404);
    }
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_leader_is_elected_and_records_an_event() {
    let stage = Stage::start().await;
    let path = format!("{LEASES}/kube-controller-manager");
    stage.get(&format!("{path}?timeout=5s")).await.refusal(404, "NotFound");
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "host_0f7c", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    let held = stage.post(&format!("{LEASES}?timeout=5s"), &lease).await.expect(201);
    stage.post(LEASES, &lease).await.refusal(409, "AlreadyExists");
    let mut renewed = held.clone();
    renewed["spec"]["renewTime"] = "2026-01-01T00:00:02.000000Z".into();
    let renewed = stage.put(&format!("{path}?timeout=5s"), &renewed).await.expect(200);
    assert_ne!(renewed["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    stage.put(&path, &held).await.refusal(409, "Conflict");

    let events = "/api/v1/namespaces/kube-system/events";
    let event = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": "kube-controller-manager.18a", "namespace": "kube-system"},
        "involvedObject": {
            "kind": "Lease", "namespace": "kube-system", "name": "kube-controller-manager",
            "uid": held["metadata"]["uid"], "apiVersion": "coordination.k8s.io/v1",
        },
        "reason": "LeaderElection", "message": "host_0f7c became leader",
        "source": {"component": "kube-controller-manager"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        "type": "Normal", "eventTime": null, "reportingComponent": "kube-controller-manager", "reportingInstance": "",
    });
    stage.post(events, &event).await.expect(201);
    let again = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:05Z"});
    let path = format!("{events}/kube-controller-manager.18a");
    let patched = stage.patch(&path, TYPED, STRATEGIC, &again).await.expect(200);
    assert_eq!((&patched["count"], &patched["message"]), (&json!(2), &event["message"]));
    // client-go creates the Event again after this 404.
    let gone = format!("{events}/gone.18a");
    stage.patch(&gone, TYPED, STRATEGIC, &again).await.refusal(404, "NotFound");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn requests_to_its_own_endpoints_can_be_reviewed() {
    let stage = Stage::start().await;
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    stage.get(&format!("{maps}/extension-apiserver-authentication")).await.refusal(404, "NotFound");
    let selector = "fieldSelector=metadata.name%3Dextension-apiserver-authentication";
    let list = stage.get(&format!("{maps}?{selector}&limit=500&resourceVersion=0")).await.expect(200);
    assert_eq!(list["items"], json!([]));

    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (groups, is_allowed) in [(json!(["system:masters"]), true), (json!([]), false)] {
        let review = json!({
            "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
            "spec": {
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}, "user": "prometheus", "groups": groups,
            },
            "status": {"allowed": false},
        });
        assert_eq!(stage.post(path, &review).await.expect(201)["status"]["allowed"], is_allowed, "{groups}");
    }
    let review = json!({
        "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
        "spec": {"token": "unknown"}, "status": {"user": {}},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = stage.post(path, &review).await.expect(201)["status"].clone();
    assert_ne!(status["authenticated"], true);
    stage.server.shutdown().await;
}

#[tokio::test]
async fn an_object_is_served_in_the_first_acceptable_form() {
    let stage = Stage::start().await;
    let path = "/api/v1/namespaces/default";
    let (protobuf, json) = ("application/vnd.kubernetes.protobuf", "application/json");
    for (accept, format) in [
        (protobuf, protobuf),
        ("application/vnd.kubernetes.protobuf, */*", protobuf),
        (METADATA, protobuf),
        ("application/json;q=0.9, application/vnd.kubernetes.protobuf", json),
    ] {
        let answer = stage.get_as(path, accept).await;
        assert_eq!(answer.headers["content-type"], format, "{accept}");
        assert_eq!(answer.expect(200)["kind"], "Namespace");
    }
    stage.get_as(path, "application/cbor").await.refusal(406, "NotAcceptable");
    let unknown = ("application/cbor", b"{}".to_vec());
    let answer = stage.send(http::Method::POST, "/api/v1/namespaces/default/pods", TYPED, unknown).await;
    answer.refusal(415, "UnsupportedMediaType");
    stage.server.shutdown().await;
}
