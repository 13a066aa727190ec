//! The chart's hook asks before an uninstallation whether anything still needs the controller. With its own rights it gets an
//! answer, and without any one of them it refuses.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use yardmaster_embedded::{ApiServer, ApiServerConfig, Rbac, User};

use crate::binary::yardmaster;
use crate::render::{NAMESPACE, objects_of_chart, only};
use crate::tools::helms;
use crate::work::send;
use crate::yard::{apply, client};

const TOKEN: &str = "token-of-the-hook";

/// Service account, role, binding and pod of the hook.
struct Hook {
    objects: Vec<Value>,
}

impl Hook {
    /// The same without the rule about a resource.
    fn without(&self, resource: &str) -> Self {
        let mut objects = self.objects.clone();
        let role = objects.iter_mut().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rules = role["rules"].as_array_mut().unwrap();
        let before = rules.len();
        rules.retain(|rule| rule["resources"] != json!([resource]));
        assert_eq!(rules.len(), before - 1, "{resource}");
        Self { objects }
    }

    /// Exit code and output of the hook's container on a cluster with these pods.
    async fn run(&self, pods: &[Value]) -> (Option<i32>, String) {
        let account = only(&self.objects, "ServiceAccount")["metadata"]["name"].as_str().unwrap();
        let user = User::service_account(NAMESPACE, account);
        let rbac = Rbac { users: BTreeMap::from([(TOKEN.to_owned(), user)]), denials: None };
        let config = ApiServerConfig { rbac: Some(rbac), ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.unwrap();
        let administrator = client(server.kubeconfig()).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        apply(&administrator, &namespace).await;
        for object in self.objects.iter().filter(|object| object["kind"] != "Pod") {
            apply(&administrator, object).await;
        }
        for pod in pods {
            send(&administrator, Method::POST, "/api/v1/namespaces/default/pods", Some(pod)).await.unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, serde_json::to_vec(&server.kubeconfig_with(Some(TOKEN))).unwrap())
            .unwrap();

        let container = &only(&self.objects, "Pod")["spec"]["containers"][0];
        let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
        let mut command = yardmaster();
        command.args(arguments).env("POD_NAMESPACE", NAMESPACE).env("YARDMASTER_KUBECONFIG", kubeconfig);
        for variable in container["env"].as_array().unwrap() {
            if let Some(value) = variable["value"].as_str() {
                command.env(variable["name"].as_str().unwrap(), value);
            }
        }
        let output = command.output().unwrap();
        server.shutdown().await;
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_of_an_uninstallation_has_the_rights_to_ask() {
    let Some(helm) = helms().pop() else { return };
    let mut objects = objects_of_chart(&helm, crate::chart().as_os_str(), &[]);
    objects.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete");
    let hook = Hook { objects };

    let (code, text) = hook.run(&[]).await;
    assert_eq!((code, text.matches("ok   ").count()), (Some(0), 2), "{text}");
    let held = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]},
        "metadata": {
            "name": "held", "labels": {"yardmaster.dev/shard": "0"}, "finalizers": ["yardmaster.dev/job-tracking"],
        },
    });
    let (code, text) = hook.run(&[held]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAIL pods-with-finalizer: 1 pod has") && text.contains("default/held"), "{text}");

    for (resource, said) in [("jobs", "cannot list Jobs"), ("pods", "cannot list pods")] {
        let (code, text) = hook.without(resource).run(&[]).await;
        assert_eq!(code, Some(1), "{resource}: {text}");
        assert!(text.contains(said) && text.contains("forbidden"), "{resource}: {text}");
    }
}
