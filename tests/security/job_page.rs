//! A Job on the page of a controller: viewers see and do what their own tokens may, and the replica lends no rights.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tempfile::TempDir;
use yardmaster_embedded::{ApiServerConfig, Rbac, User};

use crate::binary::{Background, PATIENCE, until};
use crate::cluster::Cluster;

/// A cluster with a user who may read and patch Jobs of the namespace `default`, and read the logs of its pods.
async fn cluster_with_tenant() -> Cluster {
    let users = BTreeMap::from([("tenant".to_owned(), User::service_account("default", "tenant"))]);
    let rbac = Some(Rbac { users, denials: None });
    let cluster = Cluster::with(ApiServerConfig { rbac, ..ApiServerConfig::default() }).await;
    let client = kube::Client::try_from(cluster.config.clone()).unwrap();
    let create = async |group: &str, kind: &str, namespace: Option<&str>, object: Value| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    };
    const RBAC: &str = "rbac.authorization.k8s.io";
    let subjects = json!([{"kind": "ServiceAccount", "name": "tenant", "namespace": "default"}]);
    let metadata = json!({"name": "tenant"});
    let rules = json!([
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list"]},
    ]);
    create(RBAC, "Role", Some("default"), json!({"metadata": metadata, "rules": rules})).await;
    let role = json!({"apiGroup": RBAC, "kind": "Role", "name": "tenant"});
    let binding = json!({"metadata": metadata, "subjects": subjects, "roleRef": role});
    create(RBAC, "RoleBinding", Some("default"), binding).await;
    create("", "Namespace", None, json!({"metadata": {"name": "others"}})).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "secret-plan"}, "spec": {"suspend": true, "template": template}});
    create("batch", "Job", Some("others"), job).await;
    cluster.create("own", json!({"suspend": false, "completions": 2, "parallelism": 2}), "600s").await;
    cluster
}

/// The pages of a controller in a process of its own.
fn start(cluster: &Cluster, directory: &TempDir, flags: &[&str]) -> (Background, SocketAddr) {
    let mut command = cluster.replica(directory);
    command.args(["--shards", "2", "--print-address"]).args(flags).stdout(Stdio::piped());
    let mut process = Background::start(&mut command);
    let address = Background::line(process.0.stdout.take().unwrap(), ":");
    (process, address.parse().unwrap())
}

/// The code and the whole answer to a request.
fn ask(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n");
    headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
    request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

const TENANT: (&str, &str) = ("Authorization", "Bearer tenant");
const JSON: (&str, &str) = ("Content-Type", "application/json");
const PAGE: (&str, &str) = ("Yardmaster-Page", "1");

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_what_its_token_may_and_nothing_of_other_namespaces() {
    let (cluster, directory) = (cluster_with_tenant().await, tempfile::tempdir().unwrap());
    let (_process, at) = start(&cluster, &directory, &[]);
    let read = |path: &str, headers: &[(&str, &str)]| ask(at, "GET", path, headers, "");
    until("the pages are served", || read("/livez", &[]).0 == 200);
    cluster
        .until("own", "active", |job| job.status.as_ref().and_then(|status| status.active) == Some(2))
        .await;

    // Without a token of the cluster there is only what the replicas know.
    assert_eq!(read("/debug/overview?job=default/own", &[]).0, 200);
    for path in ["job", "job/pods", "job/events", "job/yaml", "job/actions", "job/log"] {
        let at = format!("/debug/{path}?namespace=default&name=own&pod=p");
        assert_eq!(read(&at, &[]).0, 401, "{path}");
        // Without the switch, the API server is not asked.
        let stolen = if path == "job/actions" { 200 } else { 401 };
        assert_eq!(read(&at, &[("Authorization", "Bearer stolen")]).0, stolen, "{path}");
    }
    let (code, report) = read("/debug/job?namespace=default&name=own", &[TENANT]);
    assert!(code == 200 && report.contains("\"parallelism\":2"), "{report}");
    let (code, pods) = read("/debug/job/pods?namespace=default&name=own", &[TENANT]);
    assert!(code == 200 && pods.contains("\"name\":[\"own-") && pods.contains("\"why\":"), "{pods}");
    for path in ["job/events", "job/yaml"] {
        assert_eq!(read(&format!("/debug/{path}?namespace=default&name=own"), &[TENANT]).0, 200, "{path}");
    }

    for path in ["job", "job/pods", "job/events", "job/yaml", "job/log"] {
        let path = format!("/debug/{path}?namespace=others&name=secret-plan&pod=p");
        let (code, answer) = read(&path, &[TENANT]);
        assert_eq!(code, 403, "{path}: {answer}");
        assert!(!answer.contains("suspend"), "{path}: {answer}");
    }
    // A name is no path.
    for query in [
        "namespace=default/jobs/own/..&name=own",
        "namespace=default&name=..",
        "namespace=..&name=own",
        "namespace=default&name=own%3Fwatch%3D1",
        "namespace=default&name=",
    ] {
        assert_eq!(read(&format!("/debug/job?{query}"), &[TENANT]).0, 400, "{query}");
    }
    let path = "/debug/job/log?namespace=default&name=own&pod=..%2F..%2Fothers";
    assert_eq!(read(path, &[TENANT]).0, 400);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_need_the_switch_the_right_and_the_page_itself() {
    let (cluster, directory) = (cluster_with_tenant().await, tempfile::tempdir().unwrap());
    let uid = cluster.jobs.get("own").await.unwrap().metadata.uid.unwrap();
    let own = "/debug/job/act?namespace=default&name=own";
    let body = |action: &str| json!({"uid": uid, "action": action}).to_string();
    let suspended = async || cluster.jobs.get("own").await.unwrap().spec.unwrap().suspend;

    let (process, at) = start(&cluster, &directory, &[]);
    until("the pages are served", || ask(at, "GET", "/livez", &[], "").0 == 200);
    let (code, answer) = ask(at, "POST", own, &[TENANT, JSON, PAGE], &body("suspend"));
    assert!(code == 403 && answer.contains("--page-actions"), "{answer}");
    let (_, answer) = ask(at, "GET", "/debug/job/actions?namespace=default&name=own", &[TENANT], "");
    assert!(answer.contains(r#"{"actions":[],"switchedOn":false}"#), "{answer}");
    drop(process);

    let (_process, at) = start(&cluster, &directory, &["--page-actions"]);
    until("the pages are served", || ask(at, "GET", "/livez", &[], "").0 == 200);
    let (_, answer) = ask(at, "GET", "/debug/job/actions?namespace=default&name=own", &[TENANT], "");
    assert!(answer.contains(r#"{"actions":["suspend","resume"],"switchedOn":true}"#), "{answer}");
    let foreign = ("Origin", "http://evil.example");
    for (headers, action, expected) in [
        (vec![JSON, PAGE], "suspend", 401),
        (vec![TENANT, JSON], "suspend", 403),
        (vec![TENANT, PAGE, ("Content-Type", "text/plain")], "suspend", 415),
        (vec![TENANT, JSON, PAGE, foreign], "suspend", 403),
        (vec![TENANT, JSON, PAGE, ("Sec-Fetch-Site", "cross-site")], "suspend", 403),
        // The tenant has no right to delete or create Jobs.
        (vec![TENANT, JSON, PAGE], "delete", 403),
    ] {
        let (code, answer) = ask(at, "POST", own, &headers, &body(action));
        assert_eq!(code, expected, "{headers:?} {action}: {answer}");
    }
    let other = "/debug/job/act?namespace=others&name=secret-plan";
    assert_eq!(ask(at, "POST", other, &[TENANT, JSON, PAGE], &body("resume")).0, 403);
    // Another Job of this name is left alone: a UID cannot change.
    let stale = json!({"uid": "00000000-0000-0000-0000-000000000000", "action": "suspend"}).to_string();
    assert_eq!(ask(at, "POST", own, &[TENANT, JSON, PAGE], &stale).0, 422);
    assert_eq!(suspended().await, Some(false));

    let (code, answer) = ask(at, "POST", own, &[TENANT, JSON, PAGE], &body("suspend"));
    assert_eq!(code, 200, "{answer}");
    assert_eq!(suspended().await, Some(true));
    assert_eq!(ask(at, "POST", own, &[TENANT, JSON, PAGE], &body("resume")).0, 200);
    cluster.until("own", "resumed", |job: &Job| job.spec.as_ref().unwrap().suspend == Some(false)).await;
    cluster.end().await;
}
