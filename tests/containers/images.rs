//! Which image a container gets, and what it waits for.

use super::engine::GREETER;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_says_what_to_run_unless_the_pod_does() {
    let Some(cluster) = Cluster::start().await else { return };
    let with = |fields: Value| {
        let mut container = json!({"name": "main", "image": "greeter:1"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"containers": [container]})
    };
    for (name, fields, printed) in [
        ("entry-point", json!({}), "from the image: nothing\n"),
        ("args", json!({"args": ["of the pod"]}), "from the image: of the pod\n"),
        ("command", json!({"command": ["id", "-u"]}), "1234\n"),
        ("environment", json!({"command": ["sh", "-c", "echo $GREETING; pwd"]}), "hello\n/tmp\n"),
        ("long-name", json!({"image": GREETER}), "from the image: nothing\n"),
    ] {
        assert_eq!(cluster.prints(name, with(fields)).await, printed, "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_waits_for_an_image_as_a_kubelet_says_it() {
    let Some(cluster) = Cluster::start().await else { return };
    let of = |image: &str, policy: &str| json!({"containers": [{"name": "main", "image": image, "imagePullPolicy": policy, "command": ["true"]}]});
    // Nobody serves this port.
    cluster.create("unreachable", of("127.0.0.1:9/none:1", "IfNotPresent")).await;
    let message = cluster.waits("unreachable", "ErrImagePull").await;
    assert!(message.starts_with("Failed to pull image \"127.0.0.1:9/none:1\": "), "{message}");
    let message = cluster.waits("unreachable", "ImagePullBackOff").await;
    assert!(
        message.starts_with("Back-off pulling image \"127.0.0.1:9/none:1\": ErrImagePull: "),
        "{message}"
    );

    cluster.create("never", of("127.0.0.1:9/none:1", "Never")).await;
    let message = cluster.waits("never", "ErrImageNeverPull").await;
    assert_eq!(message, "Container image \"127.0.0.1:9/none:1\" is not present with pull policy of Never");

    cluster.create("invalid", of("UPPER//case", "IfNotPresent")).await;
    cluster.waits("invalid", "InvalidImageName").await;

    cluster
        .create(
            "root",
            json!({
                "securityContext": {"runAsNonRoot": true}, "containers": [shell("true", json!({}))],
            }),
        )
        .await;
    let message = cluster.waits("root", "CreateContainerConfigError").await;
    assert_eq!(message, "container has runAsNonRoot and image will run as root");
    cluster.stop().await;
}
