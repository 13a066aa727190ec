//! Pods reach the API server with the tokens of their ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};

use super::*;

/// The folder of the account, for processes.
const FOLDER: &str = "YARDMASTER_VOLUME_KUBE_API_ACCESS";
/// A container of this program, which runs a test of this file.
fn client(test: &str) -> Value {
    let (program, test) = (std::env::current_exe().unwrap(), format!("accounts::{test}"));
    json!({"name": "main", "image": "none", "command": [program, "--ignored", "--exact", test, "--nocapture"]})
}

/// The configuration of a client in a pod, from its variables and the files of its account.
fn config_in_a_pod() -> kube::Config {
    let variable = |name: &str| std::env::var(name).unwrap();
    let file = |name: &str| std::fs::read_to_string(Path::new(&variable(FOLDER)).join(name)).unwrap();
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
    let mut config = kube::Config::new(format!("https://{host}:{port}").parse().unwrap());
    let authority = file("ca.crt");
    let authority: String = authority.lines().filter(|line| !line.starts_with("-----")).collect();
    config.root_cert = Some(vec![STANDARD.decode(authority).unwrap()]);
    config.auth_info.token = Some(file("token").into());
    config.default_namespace = file("namespace");
    config
}

/// Prints its user, and how many pods it sees in each namespace, or the code of a refusal.
#[tokio::test]
#[ignore = "other tests run it in pods"]
async fn a_client_lists_pods() {
    let client = kube::Client::try_from(config_in_a_pod()).unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    println!("user {}", review.status.unwrap().user_info.unwrap().username.unwrap());
    for namespace in ["default", "other"] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        match pods.list(&ListParams::default()).await {
            Ok(pods) => println!("{namespace}: {}", pods.items.len()),
            Err(kube::Error::Api(refusal)) => println!("{namespace}: {}", refusal.code),
            Err(error) => println!("{namespace}: {error}"),
        }
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Lets an account of `default` read the pods there.
async fn allow(cluster: &Cluster, account: &str) {
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    let roles: Api<Role> = Api::namespaced(cluster.client.clone(), "default");
    create(&roles, json!({"metadata": {"name": account}, "rules": [rule]})).await;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), "default");
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account});
    let subjects = json!([{"kind": "ServiceAccount", "name": account}]);
    create(&bindings, json!({"metadata": {"name": account}, "roleRef": role, "subjects": subjects})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_rights_of_its_account_and_no_others() {
    let cluster = Cluster::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    create(&accounts, json!({"metadata": {"name": "reader"}})).await;
    create(&Api::<Namespace>::all(cluster.client.clone()), json!({"metadata": {"name": "other"}})).await;
    allow(&cluster, "reader").await;
    let mut reader = json!({"containers": [client("a_client_lists_pods")]});
    cluster.create("of-default", reader.clone()).await;
    reader["serviceAccountName"] = json!("reader");
    cluster.create("reader", reader).await;
    for (pod, expected) in [
        ("of-default", "user system:serviceaccount:default:default\ndefault: 403\nother: 403\n"),
        ("reader", "user system:serviceaccount:default:reader\ndefault: 2\nother: 403\n"),
    ] {
        let ended = cluster.ended(pod).await;
        let logs = cluster.logs(pod).await;
        assert_eq!(phase_of(&ended), "Succeeded", "{logs}");
        assert!(logs.contains(expected), "{pod}: {logs}");
    }
    // The object stays as it was created.
    let spec = cluster.pods.get("reader").await.unwrap().spec.unwrap();
    assert_eq!((spec.volumes, spec.containers[0].volume_mounts.clone()), (None, None));
    cluster.stop().await;
}

/// Prints its user, as a client that is made for a cluster.
#[tokio::test]
#[ignore = "another test runs it in a pod"]
async fn a_client_without_configuration_says_who_it_is() {
    let client = kube::Client::try_from(kube::Config::incluster().unwrap()).unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    println!("user {}", review.status.unwrap().user_info.unwrap().username.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_pod_names_an_account_needs_no_configuration() {
    let Some(cluster) = mounts::cluster().await else { return };
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    create(&accounts, json!({"metadata": {"name": "robot"}})).await;
    let container = client("a_client_without_configuration_says_who_it_is");
    cluster.create("p", json!({"serviceAccountName": "robot", "containers": [container]})).await;
    let ended = cluster.ended("p").await;
    let logs = cluster.logs("p").await;
    assert_eq!(phase_of(&ended), "Succeeded", "{logs}");
    assert!(logs.contains("user system:serviceaccount:default:robot\n"), "{logs}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_no_token_if_it_or_its_account_says_so() {
    let cluster = Cluster::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    create(&accounts, json!({"metadata": {"name": "silent"}, "automountServiceAccountToken": false})).await;
    let pod = |account: &str, own: Value| {
        json!({
            "serviceAccountName": account, "automountServiceAccountToken": own,
            "containers": [container(&format!("echo ${FOLDER}; echo at $KUBERNETES_SERVICE_HOST"))],
        })
    };
    for (name, account, own, has_token) in [
        ("usual", "default", Value::Null, true),
        ("not-itself", "default", json!(false), false),
        ("not-its-account", "silent", Value::Null, false),
        ("against-its-account", "silent", json!(true), true),
    ] {
        cluster.create(name, pod(account, own)).await;
        cluster.phase(name, "Succeeded").await;
        let logs = cluster.logs(name).await;
        assert_eq!(logs.starts_with('/'), has_token, "{name}: {logs}");
        assert!(logs.ends_with("at 127.0.0.1\n"), "{name}: {logs}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projected_token_is_for_its_audience_and_ends_with_the_pod() {
    let cluster = Cluster::start().await;
    let token =
        json!({"serviceAccountToken": {"path": "deep/vault", "audience": "vault", "expirationSeconds": 600}});
    let volume = json!({"name": "vault", "projected": {"sources": [token], "defaultMode": 0o400}});
    let script = "cd $YARDMASTER_VOLUME_VAULT/deep; stat -c '%a' vault; cat vault; echo; sleep 300";
    cluster.create("p", json!({"volumes": [volume], "containers": [container(script)]})).await;
    let mut logs = String::new();
    until("the token is printed", async || {
        logs = cluster.pods.logs("p", &LogParams::default()).await.unwrap_or_default();
        logs.lines().count() == 2
    })
    .await;
    let lines: Vec<&str> = logs.lines().collect();
    assert_eq!(lines[0], "400");
    let reviews: Api<TokenReview> = Api::all(cluster.client.clone());
    let review = async |audience: &str| {
        let spec = TokenReviewSpec { token: lines[1].to_owned(), audiences: Some(vec![audience.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap()
    };
    let status = review("vault").await;
    let user = status.user.clone().unwrap_or_default();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:default"), "{status:?}");
    assert_eq!(user.extra.unwrap()["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(review("other").await.authenticated, None);
    cluster
        .pods
        .delete("p", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .unwrap();
    cluster.gone("p").await;
    assert_eq!(review("vault").await.authenticated, None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_account() {
    let cluster = Cluster::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    create(&accounts, json!({"metadata": {"name": "late"}})).await;
    // The gate holds it until the account is gone.
    let gate = json!([{"name": "example.com/gate"}]);
    let spec =
        json!({"serviceAccountName": "late", "schedulingGates": gate, "containers": [container("true")]});
    cluster.create("p", spec).await;
    accounts.delete("late", &DeleteParams::default()).await.unwrap();
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    cluster.pods.patch("p", &PatchParams::default(), &open).await.unwrap();
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    until("it is told why", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.iter().any(|event| {
            let message = event.message.clone().unwrap_or_default();
            event.reason.as_deref() == Some("FailedMount")
                && message.contains("serviceaccounts \"late\" not found")
        })
    })
    .await;
    create(&accounts, json!({"metadata": {"name": "late"}})).await;
    cluster.phase("p", "Succeeded").await;
    cluster.stop().await;
}
