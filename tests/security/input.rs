//! Bad input never stops the process, and costs what it weighs.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use yardmaster_embedded::{ApiServer, ApiServerConfig};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server, and plain requests to it.
struct Stage {
    server: ApiServer,
    client: kube::Client,
}

impl Stage {
    async fn new() -> Self {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &options).await.unwrap();
        Self { server, client: kube::Client::try_from(config).unwrap() }
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: String) -> (StatusCode, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(kube::client::Body::from(body.into_bytes()))
            .unwrap();
        let answer = async {
            let response = self.client.send(request).await.unwrap();
            let (parts, body) = response.into_parts();
            (parts.status, serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap())
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap()
    }

    async fn create(&self, plural: &str, object: &Value) -> (StatusCode, Value) {
        let group = if plural == "jobs" { "apis/batch/v1" } else { "api/v1" };
        let path = format!("/{group}/namespaces/default/{plural}");
        self.send("POST", &path, "application/json", object.to_string()).await
    }

    async fn patch(&self, name: &str, kind: &str, patch: &Value) -> (StatusCode, Value) {
        let path = format!("/api/v1/namespaces/default/configmaps/{name}?fieldManager=test");
        self.send("PATCH", &path, &format!("application/{kind}"), patch.to_string()).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send("GET", path, "", String::new()).await
    }

    /// Waits until an object is gone.
    async fn gone(&self, path: &str) {
        let gone = async {
            while self.get(path).await.0 != StatusCode::NOT_FOUND {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap();
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x"}})
}

/// A pod that runs nowhere, changed by a merge patch.
fn pod(name: &str, patch: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "none", "containers": [{"name": "c", "image": "i"}]}});
    json_patch::merge(&mut pod, patch);
    pod
}

#[tokio::test]
async fn a_patch_that_copies_ever_more_is_refused() {
    let stage = Stage::new().await;
    let mut object = map("m");
    object["data"]["a"] = "x".repeat(100 << 10).into();
    stage.create("configmaps", &object).await;
    // Each operation doubles the object: 60 of them, 3 kB, would take all memory of the world.
    let copies: Value =
        (0..60).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/b{n}")})).collect();
    let (code, refusal) = stage.patch("m", "json-patch+json", &copies).await;
    assert_eq!((code.as_u16(), &refusal["reason"]), (422, &json!("Invalid")), "{refusal}");
    // Copies of less than 3 MiB are allowed, as in Kubernetes.
    let few: Value =
        (0..2).map(|n| json!({"op": "copy", "from": "/data/a", "path": format!("/data/c{n}")})).collect();
    let (code, patched) = stage.patch("m", "json-patch+json", &few).await;
    assert_eq!(code, StatusCode::OK, "{patched}");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_patch_that_nests_ever_deeper_is_refused() {
    let stage = Stage::new().await;
    stage.create("configmaps", &map("m")).await;
    let copies: Value = vec![json!({"op": "copy", "from": "/data", "path": "/data/a"}); 9_000].into();
    let deep = |inner: Value, _| json!({ "a": inner });
    let value = (0..100).fold(json!({}), deep);
    let adds: Value =
        (0..40).map(|n| json!({"op": "add", "path": "/a".repeat(n * 100 + 1), "value": value})).collect();
    for patch in [copies, adds] {
        let (code, refusal) = stage.patch("m", "json-patch+json", &patch).await;
        assert_eq!((code.as_u16(), &refusal["reason"]), (422, &json!("Invalid")), "{refusal}");
    }
    // Other patches are as deep as their text.
    for kind in ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml", "json-patch+json"] {
        let path = "/api/v1/namespaces/default/configmaps/m?fieldManager=test";
        let body = "{\"data\":".repeat(40_000);
        let (code, refusal) = stage.send("PATCH", path, &format!("application/{kind}"), body).await;
        assert_eq!((code.as_u16(), &refusal["kind"]), (400, &json!("Status")), "{kind}: {refusal}");
    }
    assert_eq!(stage.get("/api/v1/namespaces/default/configmaps/m").await.1["data"], json!({"a": "x"}));
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_patch_has_ten_thousand_operations_at_most() {
    let stage = Stage::new().await;
    stage.create("configmaps", &map("m")).await;
    let tests =
        |count| Value::from(vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); count]);
    assert_eq!(stage.patch("m", "json-patch+json", &tests(10_000)).await.0, StatusCode::OK);
    let (code, refusal) = stage.patch("m", "json-patch+json", &tests(10_001)).await;
    let message =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!((code.as_u16(), &refusal["message"]), (413, &json!(message)));
    assert_eq!(refusal["reason"], "RequestEntityTooLarge");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn any_number_of_seconds_is_a_time() {
    let stage = Stage::new().await;
    for (number, grace) in [i64::MIN, -1, 300_000_000_000, i64::MAX].into_iter().enumerate() {
        for (way, spec) in [("spec", grace), ("query", 30), ("body", 30)] {
            let name = format!("p{number}-{way}");
            let path = format!("/api/v1/namespaces/default/pods/{name}");
            let spec = json!({"spec": {"terminationGracePeriodSeconds": spec}});
            let (code, created) = stage.create("pods", &pod(&name, &spec)).await;
            assert_eq!(code, StatusCode::CREATED, "{created}");
            let query = if way == "query" { format!("?gracePeriodSeconds={grace}") } else { String::new() };
            let body =
                if way == "body" { json!({"gracePeriodSeconds": grace}).to_string() } else { String::new() };
            let (code, deleted) =
                stage.send("DELETE", &format!("{path}{query}"), "application/json", body).await;
            assert_eq!(code, StatusCode::OK, "{deleted}");
            let held = grace.max(1);
            assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], held, "{deleted}");
            if grace > 1 {
                assert_eq!(deleted["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z", "{deleted}");
            }
            // Less grace than before.
            let shorter = format!("{path}?gracePeriodSeconds={}", i64::MIN);
            assert_eq!(stage.send("DELETE", &shorter, "", String::new()).await.0, StatusCode::OK);
            stage.gone(&path).await;
        }
    }
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_watch_may_be_endless() {
    let stage = Stage::new().await;
    stage.create("configmaps", &map("m")).await;
    for seconds in [i64::MIN, -1, 300_000_000_000, i64::MAX] {
        let path = format!(
            "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&timeoutSeconds={seconds}"
        );
        let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
        let response = stage.client.send(request).await.unwrap();
        let mut body = response.into_body();
        let first = tokio::time::timeout(PATIENCE, http_body_util::BodyExt::frame(&mut body)).await.unwrap();
        let first = first.unwrap().unwrap().into_data().unwrap();
        assert!(String::from_utf8_lossy(&first).starts_with(r#"{"type":"ADDED""#), "{seconds}");
    }
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_job_with_endless_grace_does_not_end_garbage_collection() {
    let stage = Stage::new().await;
    let owner = |name: &str, uid: &Value| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true}]);
    let (_, first) = stage.create("configmaps", &map("first")).await;
    let spec = json!({"metadata": {"ownerReferences": owner("first", &first["metadata"]["uid"])},
        "spec": {"terminationGracePeriodSeconds": 300_000_000_000_i64}});
    assert_eq!(stage.create("pods", &pod("p", &spec)).await.0, StatusCode::CREATED);
    let path = "/api/v1/namespaces/default/configmaps/first?propagationPolicy=Background";
    assert_eq!(stage.send("DELETE", path, "", String::new()).await.0, StatusCode::OK);
    // The collector marks the pod, and is there for others.
    let (_, second) = stage.create("configmaps", &map("second")).await;
    let mut third = map("third");
    third["metadata"]["ownerReferences"] = owner("second", &second["metadata"]["uid"]);
    stage.create("configmaps", &third).await;
    let path = "/api/v1/namespaces/default/configmaps/second?propagationPolicy=Background";
    assert_eq!(stage.send("DELETE", path, "", String::new()).await.0, StatusCode::OK);
    stage.gone("/api/v1/namespaces/default/configmaps/third").await;
    let (_, marked) = stage.get("/api/v1/namespaces/default/pods/p").await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 300_000_000_000_i64, "{marked}");
    stage.server.shutdown().await;
}

/// A list with an element for each number.
fn each(count: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..count).map(element).collect()
}

#[tokio::test]
async fn long_lists_are_checked_in_linear_time() {
    let stage = Stage::new().await;
    // Only the patience of the client is measured. A check that compares all elements with each other takes
    // several times as long, at least without optimization.
    let volumes = each(40_000, |n| json!({"name": format!("v{n}"), "emptyDir": {}}));
    let (code, created) = stage.create("pods", &pod("volumes", &json!({"spec": {"volumes": volumes}}))).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    let wrong = vec![json!({"name": "V"}); 40_000];
    let (code, refusal) = stage.create("pods", &pod("wrong", &json!({"spec": {"volumes": wrong}}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refusal}");
    // A name that is not valid is not taken by the first that has it.
    assert_eq!(refusal["details"]["causes"].as_array().unwrap().len(), 40_000);
    let container = json!({
        "name": "c", "image": "i",
        "env": each(15_000, |n| json!({"name": format!("e{n}")})),
        "ports": each(10_000, |n| json!({"containerPort": 1, "hostPort": n + 1, "name": format!("p{n}")})),
        "volumeMounts": each(10_000, |n| json!({"name": format!("v{n}"), "mountPath": format!("/{n}")})),
    });
    let spec = json!({
        "nodeName": null,
        "containers": [container],
        "volumes": each(10_000, |n| json!({"name": format!("v{n}"), "emptyDir": {}})),
        "imagePullSecrets": each(10_000, |n| json!({"name": format!("s{n}")})),
        "schedulingGates": each(10_000, |n| json!({"name": format!("g{n}")})),
    });
    let (code, created) = stage.create("pods", &pod("lists", &json!({ "spec": spec }))).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    stage.server.shutdown().await;
}

#[tokio::test]
async fn a_refusal_is_no_larger_than_a_client_reads() {
    let stage = Stage::new().await;
    // Each of these references is a cause that shows all of them.
    let owners = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u", "controller": true});
        10_000
    ];
    let (code, refusal) =
        stage.create("pods", &pod("p", &json!({"metadata": {"ownerReferences": owners}}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refusal.to_string().len() < 100 << 20);
    // As in Kubernetes, unknown fields are reported up to a hundred.
    let mut unknown = map("m");
    for n in 0..1000 {
        unknown[format!("x{n}")] = 1.into();
    }
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    let (code, refusal) = stage.send("POST", path, "application/json", unknown.to_string()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(refusal["message"].as_str().unwrap().matches("unknown field").count(), 100);
    stage.server.shutdown().await;
}
