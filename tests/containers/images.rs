//! Which image a container gets, and what it waits for.

use regex::Regex;

use super::engine::{BUSYBOX, GREETER};
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
    // No registry serves this port.
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

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_becomes_of_an_image_and_its_container_as_those_of_a_kubelet() {
    let Some(cluster) = Cluster::start().await else { return };
    let image = registry::image(registry::QUICK);
    let container = json!({"name": "main", "image": image, "command": ["true"]});
    let spec = json!({"containers": [container]});
    let normal =
        |reason: &str, note: &str| ["Normal", reason, note, "spec.containers{main}"].map(str::to_owned);
    let starts = || [normal("Created", "Container created"), normal("Started", "Container started")];
    let took = Regex::new(
        r"^Successfully pulled image .* in [0-9a-z.]+s \([0-9a-z.]+s including waiting\)\. Image size: [1-9]\d{6,} bytes\.$",
    );
    let took = took.unwrap();
    for (name, first) in [
        (
            "pulled",
            vec![normal("Pulling", &format!("Pulling image \"{image}\"")), normal("Pulled", "Successfully")],
        ),
        (
            "present",
            vec![normal(
                "Pulled",
                &format!(
                    "Container image \"{image}\" already present on machine and can be accessed by the pod"
                ),
            )],
        ),
    ] {
        cluster.create(name, spec.clone()).await;
        cluster.ended(name).await;
        let expected = [first, starts().to_vec()].concat();
        let found = cluster.told(name, expected.len()).await;
        let found: Vec<_> = found
            .into_iter()
            .map(|mut event| {
                if took.is_match(&event[2]) {
                    event[2] = "Successfully".into();
                }
                event
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    }

    let never = json!({"name": "main", "image": "127.0.0.1:9/none:1", "imagePullPolicy": "Never"});
    cluster.create("never", json!({"containers": [never]})).await;
    let warning =
        |reason: &str, note: &str| ["Warning", reason, note, "spec.containers{main}"].map(str::to_owned);
    let expected = [
        warning(
            "ErrImageNeverPull",
            "Container image \"127.0.0.1:9/none:1\" is not present with pull policy of Never",
        ),
        warning("Failed", "Error: ErrImageNeverPull"),
    ];
    assert_eq!(cluster.told("never", 2).await, expected);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_a_volume_that_nobody_can_write() {
    let Some(cluster) = Cluster::start().await else { return };
    let spec = |mounts: Value, script: &str| {
        json!({
            "volumes": [{"name": "image", "image": {"reference": BUSYBOX}}],
            "containers": [shell(script, json!({"volumeMounts": mounts}))],
        })
    };
    let whole = || json!({"name": "image", "mountPath": "/whole"});
    let part = |path: &str| json!({"name": "image", "mountPath": "/part", "subPath": path});
    let look = "cat /whole/etc/passwd | head -n 1; /whole/bin/busybox echo runs; touch /whole/x 2>&1";
    let printed = cluster.prints("whole", spec(json!([whole()]), &format!("{look}; true"))).await;
    let refused = "touch: /whole/x: Read-only file system";
    assert_eq!(printed, format!("root:x:0:0::/:/bin/sh\nruns\n{refused}\n"));

    let script = "cat /part/passwd | tail -n 1; touch /part/x 2>&1 || ls -d /whole/bin";
    let printed = cluster.prints("part", spec(json!([part("etc"), whole()]), script)).await;
    let refused = "touch: /part/x: Read-only file system";
    assert_eq!(printed, format!("builder:x:1234:1234::/tmp:/bin/sh\n{refused}\n/whole/bin\n"));

    cluster.create("absent", spec(json!([part("absent")]), "true")).await;
    let message = cluster.waits("absent", "CreateContainerConfigError").await;
    assert!(message.starts_with("subPath \"absent\" of volume \"image\": No such file"), "{message}");

    let mut missing = spec(json!([whole()]), "true");
    missing["volumes"][0]["image"] = json!({"reference": "127.0.0.1:9/none:1", "pullPolicy": "Never"});
    cluster.create("missing", missing).await;
    let message = cluster.waits("missing", "ErrImageNeverPull").await;
    assert!(message.contains("is not present with pull policy of Never"), "{message}");
    cluster.stop().await;
}
