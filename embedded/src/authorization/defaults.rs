//! The roles and bindings that every cluster has. Some let users read what the server is and can do, and
//! administrators give others to users.

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
        objects.push(collected(name));
    }
    objects
}

/// The role with the rules that `view`, `edit` or `admin` collects from the start: those of Kubernetes about
/// kinds that are served here.
fn collected(by: &str) -> (&'static str, Value) {
    let (read, write) =
        (&["get", "list", "watch"][..], &["create", "delete", "deletecollection", "patch", "update"][..]);
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let written = ["configmaps", "events", "persistentvolumeclaims", "serviceaccounts", "services"];
    let running = ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"];
    let jobs = ["cronjobs", "jobs"];
    let rules = match by {
        "view" => json!([
            rule("", &written, read),
            rule(
                "",
                &["limitranges", "namespaces", "pods", "pods/log", "pods/status", "resourcequotas"],
                read
            ),
            rule("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], read),
        ]),
        "edit" => json!([
            rule("", &[&running[1..], &["secrets"]].concat(), read),
            rule("", &[&running[..], &written, &["secrets"]].concat(), write),
            rule("", &["pods/eviction", "serviceaccounts/token"], &["create"]),
            rule("batch", &jobs, write),
            rule("coordination.k8s.io", &["leases"], &[read, write].concat()),
        ]),
        _ => json!([
            rule("authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
            rule(GROUP, &["rolebindings", "roles"], &[read, write].concat()),
        ]),
    };
    let (kind, mut role) = role(&format!("system:aggregate-to-{by}"), rules);
    role["metadata"]["labels"][aggregated_to(by)] = "true".into();
    (kind, role)
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
