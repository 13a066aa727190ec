//! The roles and bindings that every cluster has: who may read what the server is and can do, and the roles
//! that administrators give to users.

use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A label of a ClusterRole whose rules the ClusterRole of this name has, too.
fn aggregated_to(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

/// The plural and the object of each default role and binding.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let authenticated = "system:authenticated";
    let mut objects = vec![
        role("cluster-admin", json!([resources("*", "*", &["*"]), paths(&["*"], "*")])),
        role(
            "system:discovery",
            json!([paths(
                &[
                    "/api",
                    "/api/*",
                    "/apis",
                    "/apis/*",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openapi/*",
                    "/readyz",
                    "/version",
                    "/version/",
                ],
                "get"
            )]),
        ),
        role(
            "system:public-info-viewer",
            json!([paths(&["/healthz", "/livez", "/readyz", "/version", "/version/"], "get")]),
        ),
        role(
            "system:basic-user",
            json!([
                {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                resources("authentication.k8s.io", "selfsubjectreviews", &["create"]),
            ]),
        ),
        binding("cluster-admin", &["system:masters"]),
        binding("system:discovery", &[authenticated]),
        binding("system:public-info-viewer", &[authenticated, "system:unauthenticated"]),
        binding("system:basic-user", &[authenticated]),
    ];
    for name in ["admin", "edit", "view"] {
        let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        match name {
            "edit" => labels[aggregated_to("admin")] = "true".into(),
            "view" => labels[aggregated_to("edit")] = "true".into(),
            _ => {}
        }
        let selector = json!({"matchLabels": {aggregated_to(name): "true"}});
        let role = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name, "labels": labels},
            "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": null,
        });
        objects.push(("clusterroles", role));
    }
    objects
}

fn resources(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn paths(paths: &[&str], verb: &str) -> Value {
    json!({"nonResourceURLs": paths, "verbs": [verb]})
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(name: &str, rules: Value) -> (&'static str, Value) {
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata(name), "rules": rules,
    });
    ("clusterroles", role)
}

/// The binding of the ClusterRole of the same name to groups.
fn binding(name: &str, groups: &[&str]) -> (&'static str, Value) {
    let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
    });
    ("clusterrolebindings", binding)
}
