//! The obstacles that a pod meets on this machine.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

fn found(spec: &Value) -> Vec<Finding> {
    let runtime = Runtime::Processes(Workspace::OfPod, Mounting::AtPaths);
    obstacles(spec, &Machine::new("here", runtime, &[]))
}

fn fields(spec: &Value) -> Vec<String> {
    found(spec).into_iter().map(|(field, _)| field).collect()
}

fn container(more: &Value) -> Value {
    let mut container = json!({"name": "c", "command": ["sh"]});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

/// The fields that stand in the way of a pod with one such container.
fn of_container(more: Value) -> Vec<String> {
    fields(&json!({"containers": [container(&more)]}))
}

#[test]
fn programs_and_directories_must_be_there() {
    assert_eq!(of_container(json!({})), [""; 0]);
    for (command, is_there) in [
        ("no-such-program", false),
        ("/bin/sh", true),
        ("/no/such/program", false),
        ("./in-a-new-folder", false),
        ("$(PROGRAM)", true),
        ("/etc", false),
        ("/etc/passwd", false),
    ] {
        let missing: &[&str] = if is_there { &[] } else { &["containers[0].command"] };
        assert_eq!(of_container(json!({"command": [command]})), missing, "{command}");
    }
    for directory in ["/no/such", "made-by-nobody", "$(HOME)"] {
        assert_eq!(of_container(json!({"workingDir": directory})), ["containers[0].workingDir"]);
    }
    for directory in ["", ".", "/"] {
        assert_eq!(of_container(json!({"workingDir": directory})), [""; 0]);
    }
    // A volume may have what this machine has not.
    for (command, directory, is_there) in [
        ("/no/such/program", "", true),
        ("/no/other/program", "", false),
        ("sh", "/no/such/below", true),
        ("sh", "/no/such-other", false),
    ] {
        let mount = json!({"name": "v", "mountPath": "/no/such"});
        let mounted = json!({"command": [command], "workingDir": directory, "volumeMounts": [mount]});
        assert_eq!(of_container(mounted).is_empty(), is_there, "{command} {directory}");
    }
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(script.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (interpreter, is_there) in [("/bin/sh", true), (" /bin/sh -e", true), ("/no/such", false)] {
        std::fs::write(script.path(), format!("#!{interpreter}\n")).unwrap();
        let missing: &[&str] = if is_there { &[] } else { &["containers[0].command"] };
        assert_eq!(of_container(json!({"command": [script.path()]})), missing, "{interpreter}");
    }
    // A path that an earlier container may make, and a PATH that is not known.
    let later =
        json!({"initContainers": [container(&json!({}))], "containers": [{"command": ["/made/later"]}]});
    assert_eq!(fields(&later), [""; 0]);
    let path = |value: &str| json!({"command": ["sh"], "env": [{"name": "PATH", "value": value}]});
    assert_eq!(of_container(path("/no/such")), ["containers[0].command"]);
    assert_eq!(of_container(path("$(OTHER)")), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn words_and_variables_must_be_short_enough_for_the_system() {
    let text = |length: usize| "x".repeat(length);
    for (text, fits) in [
        (text(WORD_MAX), true),
        (text(WORD_MAX + 1), false),
        (text(WORD_MAX - 1) + "$(NAME)", true),
        (text(WORD_MAX) + "$$$$", false),
        (text(WORD_MAX) + "$(date +%s)", false),
        (text(2 * WORD_MAX) + "$(NAME", false),
        ("$($$)".to_owned(), true),
    ] {
        let wanted: &[&str] = if fits { &[] } else { &["containers[0].args[1]"] };
        assert_eq!(of_container(json!({"args": ["a", text]})), wanted, "{} bytes", text.len());
    }
    let env = |length: usize| json!({"env": [{"name": "A"}, {"name": "B", "value": text(length)}]});
    assert_eq!(of_container(env(WORD_MAX - 2)), [""; 0]);
    assert_eq!(of_container(env(WORD_MAX - 1)), ["containers[0].env[1].value"]);
    let command = json!({"command": ["sh", "-c", text(WORD_MAX + 1)]});
    let found = found(&json!({"containers": [container(&command)]}));
    assert_eq!(found, [("containers[0].command[2]".into(), Obstacle::TooLong(WORD_MAX + 1))]);
}

#[test]
fn objects_that_are_not_optional_are_needed() {
    let map = |optional| json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": optional}}}]);
    assert_eq!(of_container(json!({"env": map(true)})), [""; 0]);
    assert_eq!(
        of_container(json!({"env": map(false)})),
        ["containers[0].env[0].valueFrom.configMapKeyRef.name"]
    );
    let spec = json!({
        "volumes": [
            {"name": "s", "secret": {"secretName": "db"}},
            {"name": "p", "projected": {"sources": [{"downwardAPI": {}}, {"configMap": {"name": "m"}}]}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "c", "projected": {"sources": [{"podCertificate": {"keyType": "RSA3072", "signerName": "s"}}]}},
        ],
        "containers": [container(&json!({"envFrom": [{"secretRef": {"name": "db"}}]}))],
    });
    // Each namespace has this one.
    let root = json!([{"name": "r", "configMap": {"name": "kube-root-ca.crt"}}]);
    assert_eq!(fields(&json!({"volumes": root, "containers": [container(&json!({}))]})), [""; 0]);
    let secret = || Obstacle::Object("Secret", "db".into());
    assert_eq!(
        found(&spec),
        [
            ("volumes[0].secret.secretName".into(), secret()),
            (
                "volumes[1].projected.sources[1].configMap.name".into(),
                Obstacle::Object("ConfigMap", "m".into())
            ),
            (
                "volumes[3].projected.sources[0].podCertificate".into(),
                Obstacle::Unsupported(NOT_ISSUED.into())
            ),
            ("containers[0].envFrom[0].secretRef.name".into(), secret()),
        ]
    );
}

#[test]
fn requests_must_fit_on_the_machine() {
    let asks = |resources: Value| of_container(json!({ "resources": resources }));
    assert_eq!(
        asks(json!({"requests": {"cpu": "1m", "memory": "1Ki", "ephemeral-storage": "1Ki"}})),
        [""; 0]
    );
    let disk = asks(json!({"requests": {"ephemeral-storage": "9000Ti"}}));
    assert_eq!(disk, ["containers[0].resources.requests[ephemeral-storage]"]);
    assert_eq!(asks(json!({"limits": {"memory": "900Ti"}})), ["containers[0].resources.limits[memory]"]);
    let lower = json!({"limits": {"memory": "900Ti"}, "requests": {"memory": "1Ki"}});
    assert_eq!(asks(lower), [""; 0]);
    let gpus =
        found(&json!({"containers": [container(&json!({"resources": {"limits": {"nvidia.com/gpu": 8}}}))]}));
    let obstacle = Obstacle::Resource { name: "nvidia.com/gpu".into(), asked: "8".into(), there: None };
    assert_eq!(gpus, [("containers[0].resources.limits[nvidia.com/gpu]".into(), obstacle)]);
    // Each fits, both together do not.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let all = container(&json!({"resources": {"requests": {"cpu": cpus}}}));
    assert_eq!(fields(&json!({"containers": [all]})), [""; 0]);
    assert_eq!(fields(&json!({"initContainers": [all], "containers": [all]})), [""; 0]);
    assert_eq!(fields(&json!({"containers": [all, all]})), ["containers[1].resources.requests[cpu]"]);
}

#[test]
fn pods_of_other_nodes_do_not_run() {
    let on = |node: &str| fields(&json!({"nodeName": node, "containers": [container(&json!({}))]}));
    assert_eq!((on("here"), on("there")), (vec![], vec!["nodeName".to_owned()]));
}
