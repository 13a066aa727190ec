//! The embedded API server with RBAC: who may do what, and what refusals say.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accounts;
mod escalation;

use std::collections::BTreeMap;

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Denial, Rbac, User};

use kube::Client;
use kube::config::KubeConfigOptions;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with an administrator, a user `jane`, and the service account `robot` of namespace `default`.
struct Server {
    server: ApiServer,
    admin: Client,
    jane: Client,
    robot: Client,
    denials: UnboundedReceiver<Denial>,
}

impl Server {
    async fn start() -> Self {
        let (denials, received) = unbounded_channel();
        let users = BTreeMap::from([
            ("j".to_owned(), User::new("jane", &["readers"])),
            ("r".to_owned(), User::service_account("default", "robot")),
        ]);
        let config = ApiServerConfig {
            rbac: Some(Rbac { users, denials: Some(denials) }),
            owner_references_permission_enforcement: true,
            ..ApiServerConfig::default()
        };
        let server = ApiServer::start(config).await.unwrap();
        let admin = client(server.kubeconfig()).await;
        let jane = client(server.kubeconfig_with(Some("j"))).await;
        let robot = client(server.kubeconfig_with(Some("r"))).await;
        Self { server, admin, jane, robot, denials: received }
    }

    /// Gives rights in namespace `default` to the service account.
    async fn allow_robot(&self, name: &str, rules: Value) {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        ok(&self.admin, "POST", &format!("{RBAC}/namespaces/default/roles"), Some(role)).await;
        let binding = json!({
            "metadata": {"name": name}, "roleRef": {"kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
        });
        ok(&self.admin, "POST", &format!("{RBAC}/namespaces/default/rolebindings"), Some(binding)).await;
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Code and body of an answer.
async fn send(client: &Client, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        "APPLY" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let method = if method == "APPLY" { "PATCH" } else { method };
    let body = body.map(|body| serde_json::to_vec(&body).unwrap()).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let answer = client.send(request.body(body.into()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn ok(client: &Client, method: &str, path: &str, body: Option<Value>) -> Value {
    let (code, answer) = send(client, method, path, body).await;
    assert!((200..300).contains(&code), "{method} {path}: {answer}");
    answer
}

/// The message of a refusal for lack of rights.
async fn refused(client: &Client, method: &str, path: &str, body: Option<Value>) -> String {
    let (code, answer) = send(client, method, path, body).await;
    assert_eq!((code, &answer["reason"]), (403, &json!("Forbidden")), "{method} {path}: {answer}");
    answer["message"].as_str().unwrap().to_owned()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn refusals_have_the_words_of_kubernetes() {
    let mut server = Server::start().await;
    let robot = r#"User "system:serviceaccount:default:robot" cannot"#;
    for (method, path, wanted) in [
        (
            "GET",
            "/api/v1/pods",
            format!(
                r#"pods is forbidden: {robot} list resource "pods" in API group "" at the cluster scope"#
            ),
        ),
        (
            "GET",
            "/api/v1/pods?watch=true",
            format!(
                r#"pods is forbidden: {robot} watch resource "pods" in API group "" at the cluster scope"#
            ),
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/p",
            format!(
                r#"pods "p" is forbidden: {robot} get resource "pods" in API group "" in the namespace "default""#
            ),
        ),
        (
            "PATCH",
            "/apis/batch/v1/namespaces/default/jobs/j/status",
            format!(
                r#"jobs.batch "j" is forbidden: {robot} patch resource "jobs/status" in API group "batch" in the namespace "default""#
            ),
        ),
        (
            "DELETE",
            "/apis/batch/v1/namespaces/default/jobs",
            format!(
                r#"jobs.batch is forbidden: {robot} deletecollection resource "jobs" in API group "batch" in the namespace "default""#
            ),
        ),
        // Resources that are not served are refused like those that are.
        (
            "GET",
            "/apis/example.com/v1/widgets/w",
            format!(
                r#"widgets.example.com "w" is forbidden: {robot} get resource "widgets" in API group "example.com" at the cluster scope"#
            ),
        ),
        ("GET", "/metrics", format!(r#"forbidden: {robot} get path "/metrics""#)),
    ] {
        assert_eq!(refused(&server.robot, method, path, None).await, wanted);
        let denial = server.denials.try_recv().unwrap();
        assert_eq!((&*denial.user, denial.message), ("system:serviceaccount:default:robot", wanted));
    }
    let (code, status) = send(&server.robot, "GET", "/apis/batch/v1/namespaces/default/jobs/j", None).await;
    assert_eq!((code, &status["details"]), (403, &json!({"name": "j", "group": "batch", "kind": "jobs"})));
    server.server.shutdown().await;
}

#[tokio::test]
async fn users_without_roles_may_look_at_the_server_and_at_their_own_rights() {
    let server = Server::start().await;
    for path in ["/version", "/healthz", "/apis", "/api/v1", "/apis/batch/v1", "/openapi/v2", "/openapi/v3"] {
        ok(&server.jane, "GET", path, None).await;
    }
    let anonymous = client(server.server.kubeconfig_with(None)).await;
    ok(&anonymous, "GET", "/version", None).await;
    let message = refused(&anonymous, "GET", "/apis", None).await;
    assert_eq!(message, r#"forbidden: User "system:anonymous" cannot get path "/apis""#);
    let stranger = client(server.server.kubeconfig_with(Some("x"))).await;
    assert_eq!(send(&stranger, "GET", "/version", None).await.0, 401);

    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = ok(&server.jane, "POST", who, Some(json!({}))).await;
    let groups = json!(["readers", "system:authenticated"]);
    assert_eq!(answer["status"]["userInfo"], json!({"username": "jane", "groups": groups}));
    server.server.shutdown().await;
}

#[tokio::test]
async fn rights_follow_roles_and_bindings_at_once() {
    let server = Server::start().await;
    assert!(refused(&server.robot, "GET", PODS, None).await.ends_with(r#"in the namespace "default""#));
    let reads = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    server.allow_robot("reader", reads).await;
    ok(&server.robot, "GET", PODS, None).await;
    refused(&server.robot, "GET", "/api/v1/pods", None).await;
    refused(&server.robot, "POST", PODS, Some(pod("p"))).await;

    let role = format!("{RBAC}/namespaces/default/roles/reader");
    ok(&server.admin, "PATCH", &role, Some(json!({"rules": []}))).await;
    refused(&server.robot, "GET", PODS, None).await;
    ok(&server.admin, "DELETE", &role, None).await;
    let message = refused(&server.robot, "GET", PODS, None).await;
    let missing = r#": RBAC: role.rbac.authorization.k8s.io "reader" not found"#;
    assert!(message.ends_with(missing), "{message}");

    // The role of a binding stays; whom it is for may change.
    let binding = format!("{RBAC}/namespaces/default/rolebindings/reader");
    let other = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}});
    let (code, answer) = send(&server.admin, "PATCH", &binding, Some(other)).await;
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().ends_with("cannot change roleRef"), "{answer}");
    server.server.shutdown().await;
}

#[tokio::test]
async fn the_default_roles_collect_the_rules_of_others() {
    let server = Server::start().await;
    let binding = |name: &str, role: &str, subject: Value| {
        json!({
            "metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject],
        })
    };
    let readers = json!({"kind": "Group", "name": "readers"});
    let edit = Some(binding("readers", "edit", readers));
    ok(&server.admin, "POST", &format!("{RBAC}/clusterrolebindings"), edit).await;
    ok(&server.jane, "GET", "/api/v1/pods", None).await;
    ok(&server.jane, "POST", PODS, Some(pod("p"))).await;
    refused(&server.jane, "GET", &format!("{RBAC}/roles"), None).await;
    let role = |label: &str, resource: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{label}");
        Some(json!({
            "metadata": {"name": resource, "labels": {label: "true"}},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}],
        }))
    };
    let (path, nodes) = (format!("{RBAC}/clusterroles"), "/api/v1/nodes");
    refused(&server.jane, "GET", nodes, None).await;
    ok(&server.admin, "POST", &path, role("view", "nodes")).await;
    ok(&server.jane, "GET", nodes, None).await;

    // A role gives what the roles that collect less give, and only in the namespace of its binding.
    let robot = || json!({"kind": "ServiceAccount", "name": "robot"});
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let (jobs, roles) =
        ("/apis/batch/v1/namespaces/default/jobs", format!("{RBAC}/namespaces/default/roles"));
    ok(&server.admin, "POST", &bindings, Some(binding("view", "view", robot()))).await;
    ok(&server.robot, "GET", jobs, None).await;
    refused(&server.robot, "GET", "/api/v1/namespaces/default/secrets", None).await;
    refused(&server.robot, "POST", PODS, Some(pod("q"))).await;
    ok(&server.admin, "POST", &bindings, Some(binding("admin", "admin", robot()))).await;
    for path in [jobs, "/api/v1/namespaces/default/secrets", &roles] {
        ok(&server.robot, "GET", path, None).await;
    }
    refused(&server.robot, "GET", "/apis/batch/v1/namespaces/kube-system/jobs", None).await;
    server.server.shutdown().await;
}

/// The deprecated prefix makes a watch of any request, so nothing else may come below it.
#[tokio::test]
async fn the_right_to_watch_changes_nothing() {
    let server = Server::start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["watch"]}]);
    server.allow_robot("watches", rules).await;
    ok(&server.admin, "POST", "/api/v1/namespaces/default/pods", Some(pod("p"))).await;
    let pods = "/api/v1/watch/namespaces/default/pods";
    for (method, path) in [
        ("POST", pods.to_owned()),
        ("DELETE", pods.to_owned()),
        ("PUT", format!("{pods}/p")),
        ("PATCH", format!("{pods}/p")),
        ("DELETE", format!("{pods}/p")),
        ("PATCH", format!("{pods}/p/status")),
    ] {
        let (code, answer) = send(&server.robot, method, &path, Some(pod("p"))).await;
        assert_eq!(code, 405, "{method} {path}: {answer}");
    }
    server.server.shutdown().await;
}

#[tokio::test]
async fn a_change_that_creates_needs_the_right_to_create() {
    let server = Server::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let rule = |verbs: &[&str]| json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    server.allow_robot("changes", rule(&["update", "patch"])).await;
    let applied = format!("{path}?fieldManager=m");
    for (method, path) in [("PUT", path), ("APPLY", &applied)] {
        let message = refused(&server.robot, method, path, Some(lease.clone())).await;
        assert!(message.contains(r#"cannot create resource "leases""#), "{message}");
    }
    server.allow_robot("creates", rule(&["create"])).await;
    ok(&server.robot, "PUT", path, Some(lease)).await;
    server.server.shutdown().await;
}

#[tokio::test]
async fn owner_references_need_rights_on_the_owner() {
    let server = Server::start().await;
    let rule = |resource: &str, group: &str, verbs: &[&str]| json!([{"apiGroups": [group], "resources": [resource], "verbs": verbs}]);
    server.allow_robot("pods", rule("pods", "", &["create", "patch"])).await;
    let owned = |name: &str, blocks: bool| {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "blockOwnerDeletion": blocks,
        }]);
        pod
    };
    ok(&server.robot, "POST", PODS, Some(owned("a", false))).await;
    assert_eq!(
        refused(&server.robot, "POST", PODS, Some(owned("b", true))).await,
        r#"pods "b" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#
    );
    ok(&server.admin, "POST", PODS, Some(pod("c"))).await;
    let metadata = |blocks: bool| Some(json!({"metadata": owned("c", blocks)["metadata"]}));
    let c = format!("{PODS}/c");
    assert_eq!(
        refused(&server.robot, "PATCH", &c, metadata(false)).await,
        r#"pods "c" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>"#
    );
    server.allow_robot("delete", rule("pods", "", &["delete"])).await;
    let message = refused(&server.robot, "PATCH", &c, metadata(true)).await;
    assert!(message.contains("you can't set finalizers on"), "{message}");
    server.allow_robot("finalizers", rule("jobs/finalizers", "batch", &["update"])).await;
    ok(&server.robot, "PATCH", &c, metadata(true)).await;
    ok(&server.robot, "POST", PODS, Some(owned("b", true))).await;
    server.server.shutdown().await;
}

#[tokio::test]
async fn reviews_tell_who_may_do_what() {
    let server = Server::start().await;
    server
        .allow_robot("reader", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]))
        .await;
    let reviews = "/apis/authorization.k8s.io/v1";
    let what = |verb: &str| json!({"namespace": "default", "verb": verb, "resource": "pods"});
    let own = |verb: &str| Some(json!({"spec": {"resourceAttributes": what(verb)}}));
    let path = format!("{reviews}/selfsubjectaccessreviews");
    let reason =
        r#"RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "robot/default""#;
    let answer = ok(&server.robot, "POST", &path, own("list")).await;
    assert_eq!(answer["status"], json!({"allowed": true, "reason": reason}));
    assert_eq!(ok(&server.robot, "POST", &path, own("watch")).await["status"], json!({"allowed": false}));
    assert_eq!(ok(&server.admin, "POST", &path, own("watch")).await["status"], json!({"allowed": true}));

    let path = format!("{reviews}/subjectaccessreviews");
    let robot = |verb: &str| {
        let user = "system:serviceaccount:default:robot";
        Some(json!({"spec": {"user": user, "resourceAttributes": what(verb)}}))
    };
    refused(&server.jane, "POST", &path, robot("list")).await;
    assert_eq!(ok(&server.admin, "POST", &path, robot("list")).await["status"]["allowed"], true);
    assert_eq!(ok(&server.admin, "POST", &path, robot("get")).await["status"]["allowed"], false);
    let (code, _) = send(&server.admin, "POST", &path, Some(json!({"spec": {"user": "u"}}))).await;
    assert_eq!(code, 422);

    // A review of a namespace says nothing of others, nor of paths.
    let local = |namespace: &str| format!("{reviews}/namespaces/{namespace}/localsubjectaccessreviews");
    let answer = ok(&server.admin, "POST", &local("default"), robot("list")).await;
    assert_eq!(answer["status"]["allowed"], true);
    let (code, _) = send(&server.admin, "POST", &local("kube-system"), robot("list")).await;
    assert_eq!(code, 422);
    let healthz = json!({"user": "jane", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}});
    let (code, _) = send(&server.admin, "POST", &local("default"), Some(json!({"spec": healthz}))).await;
    assert_eq!(code, 422);

    let token = Some(json!({"spec": {"token": "j"}}));
    let answer = ok(&server.admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", token).await;
    assert_eq!(answer["status"]["user"]["username"], "jane");
    server.server.shutdown().await;
}

/// Ignoring the headers would answer with the rights of the sender: a `can-i` of another user would be wrong.
#[tokio::test]
async fn nobody_acts_as_another_user() {
    let server = Server::start().await;
    let open = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let owner = client(open.kubeconfig()).await;
    let impersonated = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Extra-scopes", "view"),
    ];
    for (who, client) in [("administrator", &server.admin), ("user", &server.jane), ("owner", &owner)] {
        for (header, value) in impersonated {
            let request =
                http::Request::get("/version").header(header, value).body(kube::client::Body::empty());
            let answer = client.send(request.unwrap()).await.unwrap();
            let code = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((code, &body["reason"]), (403, &json!("Forbidden")), "{who}, {header}: {body}");
            assert!(body["message"].as_str().unwrap().contains("impersonate"), "{who}, {header}: {body}");
        }
        assert_eq!(
            send(client, "GET", "/version", None).await.0,
            200,
            "{who}: an answer to the request itself"
        );
    }
}
