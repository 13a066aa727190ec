//! ServiceAccounts with tokens of the server, also where it has no users.

use super::*;

#[tokio::test]
async fn without_users_the_owner_may_do_everything_and_accounts_have_their_roles() {
    let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
    let owner = client(server.kubeconfig()).await;
    let review =
        |verb: &str| Some(json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "nodes"}}}));
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(ok(&owner, "POST", reviews, review("delete")).await["status"], json!({"allowed": true}));

    // The roles of a new cluster let an account look at the server, and at nothing else.
    let token = token_of(&owner, "default").await;
    let account = client(server.kubeconfig_with(Some(&token))).await;
    for path in ["/version", "/apis", "/api/v1", "/openapi/v3"] {
        ok(&account, "GET", path, None).await;
    }
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = ok(&account, "POST", who, Some(json!({}))).await;
    assert_eq!(answer["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    assert_eq!(ok(&account, "POST", reviews, review("list")).await["status"], json!({"allowed": false}));
    for (method, path) in [
        ("GET", PODS),
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("GET", "/metrics"),
    ] {
        let message = refused(&account, method, path, None).await;
        assert!(message.contains("\"system:serviceaccount:default:default\" cannot"), "{message}");
    }

    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "reads"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts:default"}],
    });
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "reads"}, "rules": rules});
    ok(&owner, "POST", &format!("{RBAC}/clusterroles"), Some(role)).await;
    ok(&owner, "POST", &format!("{RBAC}/namespaces/default/rolebindings"), Some(binding)).await;
    ok(&account, "GET", PODS, None).await;
    refused(&account, "GET", "/api/v1/namespaces/kube-system/pods", None).await;
    server.shutdown().await;
}

/// A token of an account in `default`.
async fn token_of(owner: &Client, account: &str) -> String {
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let issued = ok(owner, "POST", &path, Some(json!({}))).await;
    issued["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_is_valid_as_long_as_its_account_and_with_the_key_of_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        || ApiServerConfig { data_dir: Some(directory.path().join("data")), ..ApiServerConfig::default() };
    let (first, other) = (
        ApiServer::start(config()).await.unwrap(),
        ApiServer::start(ApiServerConfig::default()).await.unwrap(),
    );
    let owner = client(first.kubeconfig()).await;
    ok(
        &owner,
        "POST",
        "/api/v1/namespaces/default/serviceaccounts",
        Some(json!({"metadata": {"name": "robot"}})),
    )
    .await;
    let token = token_of(&owner, "robot").await;
    let code = async |server: &ApiServer| {
        send(&client(server.kubeconfig_with(Some(&token))).await, "GET", "/apis", None).await.0
    };
    assert_eq!((code(&first).await, code(&other).await), (200, 401));
    first.shutdown().await;
    other.shutdown().await;

    // The key is kept with the objects, and only the owner can read it.
    let key = directory.path().join("data/credentials/service-account.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let again = ApiServer::start(config()).await.unwrap();
    assert_eq!(code(&again).await, 200);
    let owner = client(again.kubeconfig()).await;
    ok(&owner, "DELETE", "/api/v1/namespaces/default/serviceaccounts/robot", None).await;
    assert_eq!(code(&again).await, 401);
    again.shutdown().await;
}
