//! Pulls of images: when, with which credentials, and of which image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;

use super::engine::BUSYBOX;
use super::*;

fn with_image(image: &str, fields: Value) -> Value {
    let mut container = json!({"name": "main", "image": image, "command": ["echo", "ran"]});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"containers": [container]})
}

async fn was_pulled(cluster: &Cluster, name: &str) -> bool {
    // Pulled, or present; created; started.
    cluster.told(name, 3).await.iter().any(|[_, reason, ..]| reason == "Pulling")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_as_its_policy_says() {
    let Some(cluster) = Cluster::start().await else { return };
    let policy = |policy: &str| json!({"imagePullPolicy": policy});
    for (name, image, fields, is_pulled) in [
        ("if-not-present", BUSYBOX, policy("IfNotPresent"), false),
        ("never", BUSYBOX, policy("Never"), false),
        ("always", "docker.io/library/busybox:1", policy("Always"), true),
        ("always-again", "docker.io/library/busybox:1", policy("Always"), true),
        ("present-now", "docker.io/library/busybox:1", json!({}), false),
        // A tag that moves is pulled each time, unless the policy says otherwise.
        ("latest", "busybox", json!({}), true),
        ("latest-again", "busybox:latest", json!({}), true),
        ("latest-present", "busybox:latest", policy("IfNotPresent"), false),
    ] {
        assert_eq!(cluster.prints(name, with_image(image, fields)).await, "ran\n", "{name}");
        assert_eq!(was_pulled(&cluster, name).await, is_pulled, "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_names_one_image() {
    let Some(cluster) = Cluster::start().await else { return };
    let digest = registry::digest("alpine");
    let named = |digest: &str| with_image(&format!("quay.io/example/alpine@{digest}"), json!({}));
    assert_eq!(cluster.prints("digest", named(&digest)).await, "ran\n");
    let with_tag = with_image(&format!("quay.io/example/alpine:1@{digest}"), json!({}));
    assert_eq!(cluster.prints("tag-and-digest", with_tag).await, "ran\n");
    cluster.create("other", named(&format!("sha256:{}", "0".repeat(64)))).await;
    let message = cluster.waits("other", "ErrImagePull").await;
    assert!(message.starts_with("Failed to pull image \"quay.io/example/alpine@sha256:0000"), "{message}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_does_not_exist_is_waited_for() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.create("absent", with_image("docker.io/example/no-such-image:1", json!({}))).await;
    let message = cluster.waits("absent", "ErrImagePull").await;
    assert!(message.starts_with("Failed to pull image \"docker.io/example/no-such-image:1\": "), "{message}");
    let message = cluster.waits("absent", "ImagePullBackOff").await;
    assert!(
        message.starts_with("Back-off pulling image \"docker.io/example/no-such-image:1\": "),
        "{message}"
    );
    let events = cluster.told("absent", 5).await;
    let reasons: Vec<_> =
        events.iter().map(|[_, reason, note, _]| (reason.as_str(), note.as_str())).collect();
    assert!(reasons.contains(&("Failed", "Error: ErrImagePull")), "{reasons:?}");
    assert!(reasons.contains(&("Failed", "Error: ImagePullBackOff")), "{reasons:?}");
    let status = cluster.pods.get("absent").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pulls_an_image_is_known_by_the_secrets_of_the_pod_or_its_account() {
    let Some(cluster) = Cluster::start().await else { return };
    let image = registry::locked_image("report");
    let host = image.split('/').next().unwrap();
    cluster.create("nobody", with_image(&image, json!({}))).await;
    let message = cluster.waits("nobody", "ErrImagePull").await;
    assert!(message.contains("unauthorized"), "{message}");

    let login = |user: &str| {
        let config = json!({"auths": {host: {"auth": STANDARD.encode(user)}}}).to_string();
        json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}})
    };
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    for (name, user) in [("wrong", "robot:wrong"), ("right", registry::USER)] {
        let mut secret = login(user);
        secret["metadata"]["name"] = name.into();
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let pulling = |secret: &str| {
        let mut spec = with_image(&image, json!({"imagePullPolicy": "Always"}));
        spec["imagePullSecrets"] = json!([{"name": secret}]);
        spec
    };
    cluster.create("stranger", pulling("wrong")).await;
    cluster.waits("stranger", "ImagePullBackOff").await;
    cluster.stop().await;
    // The engine waits before it is asked for that image again; another cluster does not.
    let Some(cluster) = Cluster::start().await else { return };
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    let mut secret = login(registry::USER);
    secret["metadata"]["name"] = "right".into();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    assert_eq!(cluster.prints("known", pulling("right")).await, "ran\n");

    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(cluster.client.clone(), "default");
    let account = json!({"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "right"}]});
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let mut spec = with_image(&image, json!({"imagePullPolicy": "Always"}));
    spec["serviceAccountName"] = "puller".into();
    spec["automountServiceAccountToken"] = false.into();
    assert_eq!(cluster.prints("of-account", spec).await, "ran\n");
    cluster.stop().await;
}

/// As after `docker login`.
#[test]
fn who_pulls_an_image_is_known_by_the_configuration_of_docker() {
    let Some(address) = engine::address() else { return };
    let image = registry::locked_image("alpine");
    let host = image.split('/').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"auths": {host: {"auth": STANDARD.encode(registry::USER)}}}).to_string();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let mut command =
        commands::yardmaster(address, &["run", "--image", &image, "--logs", "--", "echo", "ran"]);
    let output = command.env("DOCKER_CONFIG", folder.path()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"ran\n"[..]), "{told}");
}
