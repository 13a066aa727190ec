//! The environment, command, user and volumes of a container.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_only_its_own_environment() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = json!({"metadata": {"name": "settings"}, "data": {"COLOUR": "red", "SIZE": "9"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    cluster
        .create_with(
            json!({"name": "p", "labels": {"app": "x"}, "annotations": {"batch.kubernetes.io/job-completion-index": "4"}}),
            json!({
                "hostname": "host-4",
                "containers": [{
                    "name": "main", "image": "none",
                    "command": ["sh", "-c"],
                    "args": ["echo '$(GREETING)' $HOSTNAME; env | sort"],
                    "env": [
                        {"name": "WHO", "value": "world"},
                        {"name": "GREETING", "value": "hello $(WHO) $$(WHO) $(NOBODY)"},
                        field("INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
                        field("APP", "metadata.labels['app']"),
                        field("NAME", "metadata.name"),
                        field("NODE", "spec.nodeName"),
                        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "SIZE"}}},
                        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": true}}},
                    ],
                    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
                }],
            }),
        )
        .await;
    cluster.phase("p", "Succeeded").await;
    let logs = cluster.logs("p").await;
    let lines: Vec<_> = logs.lines().collect();
    assert_eq!(lines[0], "hello world $(WHO) $(NOBODY) host-4");
    let has = |line: &str| assert!(lines.contains(&line), "{line} is not in {logs}");
    ["INDEX=4", "APP=x", "NAME=p", "NODE=yardmaster-local", "KEY=9", "P_COLOUR=red"]
        .into_iter()
        .for_each(has);
    assert!(!logs.contains("NONE="));
    // The test's own environment is not inherited.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok() && !logs.contains("CARGO"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_command_is_named() {
    let cluster = Cluster::start().await;
    let run = |command: Value| json!({"containers": [{"name": "main", "image": "none", "command": command}]});
    cluster.create("nosuch", run(json!(["nosuch"]))).await;
    cluster.create("none", json!({"containers": [{"name": "main", "image": "perl:5"}]})).await;

    let nosuch = cluster.phase("nosuch", "Failed").await;
    let end = state(&nosuch).terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (128, Some("StartError")));
    assert_eq!(end.message.as_deref(), Some("exec: \"nosuch\": executable file not found in $PATH"));

    let none = cluster.phase("none", "Failed").await.status.unwrap();
    assert_eq!(none.reason.as_deref(), Some("CreateContainerError"));
    assert!(none.message.unwrap().contains("container \"main\" has no command"));
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    assert!(events.iter().any(|event| event.involved_object.name.as_deref() == Some("none")));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_is_refused() {
    let cluster = Cluster::start().await;
    let mut main = container("exit 0");
    main["securityContext"] = json!({"runAsUser": 54321});
    cluster.create("p", json!({"containers": [main]})).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("CreateContainerConfigError"));
    assert!(status.message.unwrap().ends_with("not as 54321"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_config_map_is_waited_for() {
    let cluster = Cluster::start().await;
    let mut main = container("echo got $VALUE");
    main["env"] = json!([{"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]);
    cluster.create("p", json!({"containers": [main]})).await;
    let waits = |pod: &Pod| {
        pod.status.clone().and_then(|status| status.container_statuses).is_some_and(|mut containers| {
            let waiting = containers.remove(0).state.and_then(|state| state.waiting);
            waiting.and_then(|waiting| waiting.reason).as_deref() == Some("CreateContainerConfigError")
        })
    };
    let pod = cluster.wait("p", waits).await;
    assert_eq!(phase_of(&pod), "Pending");
    let map = json!({"metadata": {"name": "late"}, "data": {"k": "it"}});
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    cluster.phase("p", "Succeeded").await;
    assert_eq!(cluster.logs("p").await, "got it\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_directories_that_containers_share() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = json!({"metadata": {"name": "settings"}, "data": {"k": "from the map"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let mut first = container("cp $YARDMASTER_VOLUME_SETTINGS/dir/key $YARDMASTER_VOLUME_SCRATCH_SPACE/copy");
    first["name"] = json!("first");
    cluster
        .create(
            "p",
            json!({
                "volumes": [
                    {"name": "scratch-space", "emptyDir": {}},
                    {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "k", "path": "dir/key"}]}},
                ],
                "initContainers": [first],
                "containers": [container("cat $YARDMASTER_VOLUME_SCRATCH_SPACE/copy")],
            }),
        )
        .await;
    cluster.phase("p", "Succeeded").await;
    assert_eq!(cluster.logs("p").await, "from the map");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_volumes_have_the_modes_of_the_pod() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = json!({"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let keys = json!([{"key": "a", "path": "a"}, {"key": "b", "path": "b", "mode": 0o440}]);
    let name = json!([{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let volumes = json!([
        {"name": "plain", "configMap": {"name": "settings"}},
        {"name": "map", "configMap": {"name": "settings", "defaultMode": 0o600, "items": keys}},
        {"name": "downward", "downwardAPI": {"defaultMode": 0o444, "items": name}},
        {"name": "both", "projected": {"defaultMode": 0o640, "sources": [
            {"configMap": {"name": "settings", "items": keys}}, {"downwardAPI": {"items": name}},
        ]}},
    ]);
    let script = "for volume in PLAIN MAP DOWNWARD BOTH; do \
        eval cd \\$YARDMASTER_VOLUME_$volume; stat -c '%n %a' *; done";
    cluster.create("p", json!({"volumes": volumes, "containers": [container(script)]})).await;
    cluster.phase("p", "Succeeded").await;
    let expected = "a 644\nb 644\na 600\nb 440\nname 444\na 640\nb 440\nname 640\n";
    assert_eq!(cluster.logs("p").await, expected);
    cluster.stop().await;
}

/// A process would find the host's own file there, and could overwrite it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_mount_cannot_be_given_does_not_start() {
    let mounting = Some(Mounting::ByVariable { why: "the kernel refuses".into() });
    let cluster = Cluster::of(KubeletConfig { mounting, ..with_processes() }).await;
    let (host, written) = (cluster.directory.path().display().to_string(), cluster.file("log"));
    let mut main = container(&format!("echo > {}", written.display()));
    main["volumeMounts"] = json!([{"name": "logs", "mountPath": host}]);
    let spec = |volume: Value, main: Value| {
        let mut volume = volume;
        volume["name"] = json!("logs");
        json!({"volumes": [volume], "containers": [main]})
    };
    cluster.create("p", spec(json!({"emptyDir": {}}), main.clone())).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    // As where a kubelet does not admit a pod. An exit code could match a failure policy.
    assert_eq!((status.reason.as_deref(), status.container_statuses), (Some("FailedMount"), None));
    assert!(status.message.unwrap().contains("YARDMASTER_VOLUME_LOGS"));
    assert!(!written.exists());
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    let told = events.iter().find(|event| event.reason.as_deref() == Some("FailedMount")).unwrap();
    assert_eq!(told.type_.as_deref(), Some("Warning"));

    // The same path is given where it is the host's own that is wanted, and a volume where its variable is used.
    cluster.create("host", spec(json!({"hostPath": {"path": host, "type": "Directory"}}), main)).await;
    cluster.phase("host", "Succeeded").await;
    assert!(written.exists());
    let mut by_variable = container("echo > $LOGS/log && ls $LOGS");
    by_variable["volumeMounts"] = json!([{"name": "logs", "mountPath": "/logs"}]);
    by_variable["env"] = json!([{"name": "LOGS", "value": "$(YARDMASTER_VOLUME_LOGS)"}]);
    cluster.create("variable", spec(json!({"emptyDir": {}}), by_variable)).await;
    cluster.phase("variable", "Succeeded").await;
    assert_eq!(cluster.logs("variable").await, "log\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_has_folders_of_its_own() {
    let cluster = Cluster::start().await;
    let mut first = container("echo from the first > ~/note; mktemp > /dev/null");
    first["name"] = json!("first");
    let mut relative = container("cat ../note; ls $TMPDIR | wc -l");
    relative["workingDir"] = json!("below");
    let mut made = container("mkdir below");
    made["name"] = json!("made");
    cluster.create("a", json!({"initContainers": [first, made], "containers": [relative]})).await;
    cluster.phase("a", "Succeeded").await;
    assert_eq!(cluster.logs("a").await.replace(' ', ""), "fromthefirst\n1\n");
    cluster.shell("b", "pwd; echo $HOME; ls").await;
    cluster.phase("b", "Succeeded").await;
    let logs = cluster.logs("b").await;
    let lines: Vec<_> = logs.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{logs}");
    assert_ne!(Path::new(lines[0]), std::env::current_dir().unwrap());
    cluster.stop().await;
}
