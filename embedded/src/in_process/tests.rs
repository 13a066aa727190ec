#![allow(clippy::unwrap_used)]

mod account_tokens;
mod client;
mod determinism;
mod protobuf;

use serde_json::{Value, json};

use self::client::{Client, JSON, MERGE, Watcher, job, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Creates pods of these names and returns the revision of the last one.
async fn create_pods(client: &Client, names: &[&str]) -> u64 {
    for name in names {
        let answer = client.post(PODS, &pod(name, "a")).await;
        assert_eq!(answer.code, 201, "{}", answer.text());
    }
    client.server.revision()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect()
}

/// The types of events and the names of their objects.
fn events(watcher: &mut Watcher) -> Vec<(String, String)> {
    let event = |event: Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    };
    watcher.events().into_iter().map(event).collect()
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

async fn watch_from(client: &Client, revision: u64, more: &str) -> Watcher {
    client.watch(&format!("{PODS}?watch=true&resourceVersion={revision}{more}"), JSON).await
}

/// The status in the only event of a watch that was refused.
fn refusal(watcher: &mut Watcher) -> Value {
    let events = watcher.events();
    assert!(watcher.has_ended());
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event["type"], "ERROR");
    event["object"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_the_same_way_as_over_the_network() {
    let client = Client::new(1);
    let answer = client.post(&format!("{PODS}?fieldValidation=Strict"), &pod("p", "a")).await;
    assert_eq!((answer.code, answer.header("content-type")), (201, "application/json"));
    let stored = answer.json();
    assert_eq!(stored["spec"]["terminationGracePeriodSeconds"], 30, "defaults");
    assert_eq!(stored["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z", "the caller's clock");
    assert_eq!(stored["metadata"]["resourceVersion"], client.server.revision().to_string());
    let mut bad = pod("q", "a");
    bad["spec"]["containers"] = json!([]);
    let refused = client.post(PODS, &bad).await;
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (422, Some("Invalid")));
    let wrong = client.send("PUT", "/api/v1/pods", JSON, JSON, "{}").await;
    assert_eq!(wrong.code, 405);
    assert_eq!(client.get("/apis/nothing/v1/things").await.code, 404);
    let large = client.send("POST", PODS, JSON, JSON, " ".repeat(3 << 20) + "{}").await;
    assert_eq!((large.code, large.json()["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let review = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(review.json()["status"]["userInfo"]["groups"][0], "system:masters");
}

#[tokio::test(start_paused = true)]
async fn no_log_is_fetched_over_the_network() {
    let client = Client::new(1);
    let node = json!({"metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    }});
    assert_eq!(client.post("/api/v1/nodes", &node).await.code, 201);
    let mut bound = pod("p", "a");
    bound["spec"]["nodeName"] = "n".into();
    assert_eq!(client.post(PODS, &bound).await.code, 201);
    let answer = client.get(&format!("{PODS}/p/log")).await;
    assert_eq!(answer.code, 500);
    assert!(answer.text().contains("the server has no network"), "{}", answer.text());
}

#[test]
fn only_watches_need_a_runtime() {
    let created = futures::executor::block_on(async {
        let client = Client::new(1);
        create_pods(&client, &["p"]).await;
        client.get(PODS).await.json()
    });
    assert_eq!(names(&created), ["p"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_dropped_ends_its_watches() {
    let client = Client::new(1);
    let mut watcher = watch_from(&client, client.server.revision(), "").await;
    assert!(watcher.events().is_empty() && !watcher.has_ended());
    drop(client);
    assert!(watcher.events().is_empty() && watcher.has_ended());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_day_is_the_callers() {
    let client = Client::new(1);
    create_pods(&client, &["p"]).await;
    client.clock.advance(300);
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let answer = client.send("GET", PODS, table, JSON, "").await.json();
    assert_eq!(answer["rows"][0]["cells"][4], "5m");
    let mut watcher = client.watch(&format!("{PODS}?watch=true"), table).await;
    let event = watcher.events().remove(0);
    assert_eq!(event["object"]["rows"][0]["cells"][4], "5m");
    let gone = client.send("DELETE", &format!("{PODS}/p"), JSON, JSON, "").await.json();
    assert_eq!(gone["metadata"]["deletionTimestamp"], "2026-01-01T00:05:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_watch_follows_the_clock_of_its_runtime() {
    let client = Client::new(1);
    let revision = create_pods(&client, &["p"]).await;
    let mut watcher =
        watch_from(&client, revision, "&timeoutSeconds=100&allowWatchBookmarks=true&labelSelector=app=a")
            .await;
    assert!(watcher.events().is_empty());
    create_pods(&client, &["q", "r"]).await;
    assert_eq!(events(&mut watcher), [event("ADDED", "q"), event("ADDED", "r")]);
    client.post(PODS, &pod("other", "b")).await;
    assert!(watcher.events().is_empty(), "the selector does not match");
    let began = tokio::time::Instant::now();
    let bookmark = watcher.wait().await.unwrap();
    assert_eq!(bookmark[0]["type"], "BOOKMARK");
    assert_eq!(bookmark[0]["object"]["metadata"]["resourceVersion"], client.server.revision().to_string());
    assert_eq!(began.elapsed().as_secs(), 60);
    assert!(watcher.wait().await.is_some(), "a last bookmark before the end");
    assert!(watcher.wait().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_restored_server_shows_the_past_and_assigns_its_revisions_once_more() {
    let client = Client::new(1);
    let before = create_pods(&client, &["a", "b"]).await;
    let list = client.get(PODS).await.json();
    let snapshot = client.server.snapshot();
    let patched =
        client.send("PATCH", &format!("{PODS}/a"), JSON, MERGE, r#"{"metadata":{"labels":{"x":"y"}}}"#).await;
    client.send("DELETE", &format!("{PODS}/b?gracePeriodSeconds=0"), JSON, JSON, "").await;
    create_pods(&client, &["c"]).await;
    assert_eq!(names(&client.get(PODS).await.json()), ["a", "c"]);
    client.server.restore(&snapshot);
    assert_eq!(client.server.revision(), before);
    assert_eq!(client.get(PODS).await.json(), list, "objects and versions as they were");
    let once_more = create_pods(&client, &["d"]).await;
    assert_eq!(
        once_more.to_string(),
        patched.json()["metadata"]["resourceVersion"],
        "the revision of another write"
    );
    let uids: Vec<Value> =
        [&list["items"][0], &list["items"][1], &client.get(&format!("{PODS}/d")).await.json()]
            .map(|pod| pod["metadata"]["uid"].clone())
            .to_vec();
    assert!(uids[0] != uids[1] && uids[1] != uids[2]);
    // A snapshot can be restored more than once.
    client.server.restore(&snapshot);
    assert_eq!(client.get(PODS).await.json(), list);
    let stale = json!({"metadata": {"resourceVersion": "999", "labels": {"x": "z"}}}).to_string();
    let refused = client.send("PATCH", &format!("{PODS}/a"), JSON, MERGE, stale).await;
    assert_eq!((refused.code, refused.json()["reason"].as_str()), (409, Some("Conflict")));
}

#[tokio::test(start_paused = true)]
async fn watches_after_a_restore() {
    let client = Client::new(1);
    let before = create_pods(&client, &["a"]).await;
    let snapshot = client.server.snapshot();
    let (mut open, mut behind) =
        (watch_from(&client, before, "").await, watch_from(&client, before, "").await);
    let mut labelled = watch_from(&client, before, "&labelSelector=app=a").await;
    let latest = create_pods(&client, &["b", "c", "d"]).await;
    assert_eq!(events(&mut open).len(), 3);
    client.server.restore(&snapshot);
    for watcher in [&mut open, &mut behind, &mut labelled] {
        assert!(watcher.events().is_empty() && watcher.has_ended(), "nothing of what was taken back");
    }
    let old = refusal(&mut watch_from(&client, before - 1, "").await);
    assert_eq!((old["code"].as_u64(), old["reason"].as_str()), (Some(410), Some("Expired")));
    let wanted = format!("too old resource version: {} ({before})", before - 1);
    assert_eq!(old["message"], wanted);
    // As in Kubernetes, a watch from the future is silent until the future has come.
    let mut future = watch_from(&client, latest, "&allowWatchBookmarks=true&timeoutSeconds=200").await;
    let mut current = watch_from(&client, before, "").await;
    create_pods(&client, &["e", "f"]).await;
    assert_eq!(events(&mut current), [event("ADDED", "e"), event("ADDED", "f")]);
    assert!(future.events().is_empty());
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert!(future.events().is_empty(), "no bookmark of a revision that has not come");
    create_pods(&client, &["g", "h"]).await;
    assert_eq!(events(&mut future), [event("ADDED", "h")], "g has the revision from which it watches");
    assert!(!future.has_ended());
    let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let too_large = refusal(&mut watch_from(&client, latest + 9, initial).await);
    assert_eq!((too_large["code"].as_u64(), too_large["reason"].as_str()), (Some(504), Some("Timeout")));
}

#[tokio::test(start_paused = true)]
async fn reads_at_revisions_that_a_restore_took_back_are_too_large() {
    let client = Client::new(1);
    let before = create_pods(&client, &["a", "b"]).await;
    let snapshot = client.server.snapshot();
    let latest = create_pods(&client, &["c"]).await;
    let page = client.get(&format!("{PODS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    client.server.restore(&snapshot);
    for path in [
        format!("{PODS}?resourceVersion={latest}"),
        format!("{PODS}?resourceVersion={latest}&resourceVersionMatch=Exact"),
        format!("{PODS}/a?resourceVersion={latest}"),
        format!("{PODS}?limit=1&continue={token}"),
    ] {
        let answer = client.get(&path).await;
        let status = answer.json();
        assert_eq!((answer.code, status["reason"].as_str()), (504, Some("Timeout")), "{path}");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        let wanted = format!("Timeout: Too large resource version: {latest}, current: {before}");
        assert_eq!(status["message"], wanted);
    }
    let past = client.get(&format!("{PODS}?resourceVersion={}&resourceVersionMatch=Exact", before - 1)).await;
    assert_eq!(past.code, 410, "there is no history");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_forgets_the_past_and_keeps_open_watches() {
    let client = Client::new(1);
    let first = create_pods(&client, &["a", "b", "c"]).await;
    let page = client.get(&format!("{PODS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut open = watch_from(&client, first, "").await;
    let mut labelled = watch_from(&client, first, "&labelSelector=app=a").await;
    let mut behind = watch_from(&client, first - 1, "").await;
    assert!(open.events().is_empty() && labelled.events().is_empty());
    // Writes of another kind: the watches of pods have not read their revisions.
    for name in ["x", "y"] {
        assert_eq!(client.post(LEASES, &json!({"metadata": {"name": name}})).await.code, 201);
    }
    client.server.compact();
    let now = client.server.revision();
    let continued = client.get(&format!("{PODS}?limit=1&continue={token}")).await;
    assert_eq!((continued.code, continued.json()["reason"].as_str()), (410, Some("Expired")));
    let rest = continued.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(names(&client.get(&format!("{PODS}?continue={rest}")).await.json()), ["b", "c"]);
    let exact = format!("{PODS}?resourceVersion={first}&resourceVersionMatch=Exact");
    assert_eq!(client.get(&exact).await.code, 410);
    assert_eq!(
        refusal(&mut watch_from(&client, first, "").await)["code"],
        410,
        "even if nothing has changed since"
    );
    assert_eq!(refusal(&mut watch_from(&client, first, "&labelSelector=app=a").await)["code"], 410);
    assert_eq!(refusal(&mut behind)["code"], 410, "it had not read the creation of c");
    let mut new = watch_from(&client, now, "").await;
    create_pods(&client, &["d"]).await;
    for watcher in [&mut open, &mut labelled, &mut new] {
        assert_eq!(events(watcher), [event("ADDED", "d")]);
    }
    assert_eq!(names(&client.get(PODS).await.json()), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_goes_as_its_propagation_policy_says() {
    let client = Client::new(1);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (policy, finalizer) in
        [("Background", None), ("Foreground", Some("foregroundDeletion")), ("Orphan", Some("orphan"))]
    {
        assert_eq!(client.post(jobs, &job(policy.to_lowercase().as_str())).await.code, 201);
        let path = format!("{jobs}/{}", policy.to_lowercase());
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        let deleted = client.send("DELETE", &path, JSON, JSON, options.to_string()).await;
        assert_eq!(deleted.code, 200);
        let left = client.get(&path).await;
        let Some(finalizer) = finalizer else {
            assert_eq!(left.code, 404);
            continue;
        };
        // No garbage collector runs, so the object stays until the test removes the finalizer.
        assert_eq!(left.json()["metadata"]["finalizers"], json!([finalizer]));
        let release = r#"{"metadata":{"finalizers":null}}"#;
        assert_eq!(client.send("PATCH", &path, JSON, MERGE, release).await.code, 200);
        assert_eq!(client.get(&path).await.code, 404);
    }
}
