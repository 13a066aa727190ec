//! Containers reach the API server with the tokens of their ServiceAccounts, as clients in a cluster do.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Client;

use super::*;

/// The folder in which clients look for their account.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A container of this program, which runs a test of this file. It has the libraries of this host.
fn client(test: &str) -> Value {
    let program = std::env::current_exe().unwrap();
    let (folder, name) = (program.parent().unwrap(), program.file_name().unwrap().to_str().unwrap());
    let libraries = ["/lib", "/lib64", "/usr/lib"].into_iter().filter(|path| Path::new(path).exists());
    let folders = libraries.map(|path| (path, path)).chain([(folder.to_str().unwrap(), "/program")]);
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for (number, (path, at)) in folders.enumerate() {
        let volume = format!("v{number}");
        volumes.push(json!({"name": volume, "hostPath": {"path": path}}));
        mounts.push(json!({"name": volume, "mountPath": at, "readOnly": true}));
    }
    let command = json!([
        format!("/program/{name}"),
        "--ignored",
        "--exact",
        format!("accounts::{test}"),
        "--nocapture"
    ]);
    let container = json!({"name": "main", "image": BUSYBOX, "command": command, "volumeMounts": mounts});
    json!({"volumes": volumes, "containers": [container]})
}

/// Prints how many pods it sees in each namespace, or the code of a refusal.
#[tokio::test]
#[ignore = "another test runs it in containers"]
async fn a_client_in_a_cluster_lists_pods() {
    let client = Client::try_from(kube::Config::incluster().unwrap()).unwrap();
    for namespace in ["default", "kube-system"] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        match pods.list(&ListParams::default()).await {
            Ok(pods) => println!("{namespace}: {}", pods.items.len()),
            Err(kube::Error::Api(refusal)) => println!("{namespace}: {}", refusal.code),
            Err(error) => println!("{namespace}: {error:?}"),
        }
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_usual_configuration_works_in_each_network() {
    let Some(cluster) = Cluster::start().await else { return };
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]});
    create(&roles, json!({"metadata": {"name": "lists-pods"}, "rules": [rule]})).await;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), "default");
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lists-pods"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "default"}]);
    create(&bindings, json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})).await;

    let prints = async |name: &str, more: Value| {
        let mut spec = client("a_client_in_a_cluster_lists_pods");
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cluster.prints(name, spec).await
    };
    let logs = prints("usual", json!({})).await;
    assert!(logs.contains("default: 1\nkube-system: 403\n"), "{logs}");
    let logs = prints("of-host", json!({"hostNetwork": true})).await;
    assert!(logs.contains("default: 2\nkube-system: 403\n"), "{logs}");
    // Pods of a namespace with Services have a network of their own.
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
    create(
        &services,
        json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
    )
    .await;
    let logs = prints("named", json!({})).await;
    assert!(logs.contains("default: 3\nkube-system: 403\n"), "{logs}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_needs_no_configuration() {
    let Some(cluster) = Cluster::start().await else { return };
    let Ok(kubectl) = which::which("kubectl") else {
        eprintln!("skipped: kubectl is not found");
        return;
    };
    let program = json!({"name": "kubectl", "hostPath": {"path": kubectl, "type": "File"}});
    let mounts = json!([{"name": "kubectl", "mountPath": "/bin/kubectl"}]);
    let script = "kubectl auth whoami -o jsonpath='{.status.userInfo.username}' 2>/dev/null; echo; kubectl get pods 2>&1 || true";
    let container = shell(script, json!({"volumeMounts": mounts}));
    let logs = cluster.prints("p", json!({"volumes": [program], "containers": [container]})).await;
    assert!(logs.starts_with("system:serviceaccount:default:default\n"), "{logs}");
    assert!(logs.contains("cannot list resource \"pods\""), "{logs}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_for_containers_takes_tokens_of_accounts_alone() {
    let Some(cluster) = Cluster::start().await else { return };
    let script = format!(
        "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; cat {FOLDER}/token; echo; sleep 300"
    );
    cluster.create("p", json!({"containers": [shell(&script, json!({}))]})).await;
    cluster.wait("p", |pod| phase_of(pod) == "Running").await;
    let deadline = Instant::now() + PATIENCE;
    let logs = loop {
        let logs = cluster.logs_of("p", "main").await;
        if logs.lines().count() == 2 {
            break logs;
        }
        assert!(Instant::now() < deadline, "{logs}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (address, token) = logs.trim_end().split_once('\n').unwrap();
    assert!(!address.starts_with("127."), "{address}");

    let trusted = cluster.server.secure_kubeconfig();
    let trusted = kube::Config::from_custom_kubeconfig(trusted, &KubeConfigOptions::default()).await.unwrap();
    let code = async |token: Option<&str>, path: &str| {
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = trusted.root_cert.clone();
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = Client::try_from(config).unwrap();
        client
            .send(http::Request::get(path).body(Vec::new().into()).unwrap())
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let pods = "/api/v1/namespaces/default/pods";
    let owner = cluster.server.token().unwrap().expose();
    for (token, path, expected) in [
        (None, "/healthz", 401),
        (None, pods, 401),
        (Some(owner), pods, 401),
        (Some("wrong"), pods, 401),
        (Some(token), "/version", 200),
        (Some(token), pods, 403),
    ] {
        assert_eq!(code(token, path).await, expected, "{path}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_account_are_at_their_paths_for_any_user() {
    let Some(cluster) = Cluster::start().await else { return };
    let script = format!(
        "id -u; cd {FOLDER}; ls; cat namespace; echo; cat ca.crt; touch x 2>&1 | grep -c 'Read-only'"
    );
    let fields = json!({"securityContext": {"runAsUser": 1234}});
    let logs = cluster.prints("p", json!({"containers": [shell(&script, fields)]})).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let authority = maps.get("kube-root-ca.crt").await.unwrap().data.unwrap()["ca.crt"].clone();
    assert_eq!(logs, format!("1234\nca.crt\nnamespace\ntoken\ndefault\n{authority}1\n"));
    let none = format!("ls {FOLDER} 2>&1 | grep -c 'No such file'");
    let spec = json!({"automountServiceAccountToken": false, "containers": [shell(&none, json!({}))]});
    assert_eq!(cluster.prints("none", spec).await, "1\n");
    cluster.stop().await;
}
