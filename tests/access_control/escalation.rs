//! Rights that a user cannot give away without having them.

use super::*;

#[tokio::test]
async fn nobody_grants_a_right_that_they_lack() {
    let mut server = Server::start().await;
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rbac = "rbac.authorization.k8s.io";
    let writes = &["create", "update", "patch"];
    server
        .allow_robot(
            "grants",
            json!([
                rule(rbac, "roles", writes),
                rule(rbac, "rolebindings", writes),
                rule("", "pods", &["get"])
            ]),
        )
        .await;
    let (roles, bindings) =
        (format!("{RBAC}/namespaces/default/roles"), format!("{RBAC}/namespaces/default/rolebindings"));
    let role = |name: &str, verbs: &[&str]| {
        Some(json!({"metadata": {"name": name}, "rules": [rule("", "pods", verbs)]}))
    };
    let binding = |name: &str, kind: &str, role: &str| {
        Some(json!({
            "metadata": {"name": name}, "roleRef": {"kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "other"}],
        }))
    };
    ok(&server.robot, "POST", &roles, role("reads", &["get"])).await;
    let lacks = r#"user "system:serviceaccount:default:robot" (groups=["system:serviceaccounts" "system:serviceaccounts:default" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["list" "delete"]}"#;
    let message = refused(&server.robot, "POST", &roles, role("more", &["list", "get", "delete"])).await;
    assert_eq!(message, format!("roles.rbac.authorization.k8s.io \"more\" is forbidden: {lacks}"));
    assert_eq!(server.denials.try_recv().unwrap().message, message);
    let reads = format!("{roles}/reads");
    let message = refused(&server.robot, "PATCH", &reads, role("reads", &["list", "delete"])).await;
    assert!(message.ends_with(lacks), "{message}");
    let created_by_put = format!("{roles}/put");
    refused(&server.robot, "PUT", &created_by_put, role("put", &["list"])).await;

    ok(&server.robot, "POST", &bindings, binding("own", "Role", "reads")).await;
    let message =
        refused(&server.robot, "POST", &bindings, binding("admin", "ClusterRole", "cluster-admin")).await;
    assert!(message.contains(r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#), "{message}");
    let (code, answer) = send(&server.robot, "POST", &bindings, binding("none", "Role", "none")).await;
    assert_eq!(
        (code, answer["message"].as_str()),
        (404, Some("roles.rbac.authorization.k8s.io \"none\" not found"))
    );

    // The verbs `escalate` and `bind` are rights of their own.
    server.allow_robot("escalates", json!([rule(rbac, "roles", &["escalate"])])).await;
    ok(&server.robot, "POST", &roles, role("more", &["list", "delete"])).await;
    refused(&server.robot, "POST", &bindings, binding("more", "Role", "more")).await;
    let only_more =
        json!({"apiGroups": [rbac], "resources": ["roles"], "resourceNames": ["more"], "verbs": ["bind"]});
    server.allow_robot("binds", json!([only_more])).await;
    ok(&server.robot, "POST", &bindings, binding("more", "Role", "more")).await;
    refused(&server.robot, "POST", &bindings, binding("admin", "ClusterRole", "cluster-admin")).await;
    server.server.shutdown().await;
}

#[tokio::test]
async fn only_an_administrator_has_a_role_collect_others() {
    let server = Server::start().await;
    let all = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]}]);
    let role = json!({"metadata": {"name": "writes"}, "rules": all});
    ok(&server.admin, "POST", &format!("{RBAC}/clusterroles"), Some(role)).await;
    let binding = |name: &str, role: &str| {
        let subjects = json!([{"kind": "Group", "name": "readers"}]);
        Some(
            json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects}),
        )
    };
    ok(&server.admin, "POST", &format!("{RBAC}/clusterrolebindings"), binding("writes", "writes")).await;
    let collecting = || {
        let selector = json!({"matchLabels": {"a": "b"}});
        Some(json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [selector]}}))
    };
    let path = format!("{RBAC}/clusterroles");
    let message = refused(&server.jane, "POST", &path, collecting()).await;
    assert!(message.ends_with("must have cluster-admin privileges to use the aggregationRule"), "{message}");
    ok(&server.admin, "POST", &format!("{RBAC}/clusterrolebindings"), binding("admin", "cluster-admin"))
        .await;
    ok(&server.jane, "POST", &path, collecting()).await;
    server.server.shutdown().await;
}
