//! Volumes of processes at their paths, in mount namespaces.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};

use super::*;

/// A cluster whose processes have mounts; `None` where the kernel allows none.
pub(crate) async fn cluster() -> Option<Cluster> {
    if let Mounting::ByVariable { why } = Mounting::of_this_host(with_processes().supervisor.as_deref()).await
    {
        assert!(std::env::var_os("CI").is_none(), "no mounts: {why}");
        eprintln!("skipped: {why}");
        return None;
    }
    Some(Cluster::start().await)
}

fn mount(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path})
}

/// A container with mounts.
fn mounted(script: &str, mounts: Value) -> Value {
    with(container(script), json!({ "volumeMounts": mounts }))
}

/// A container with more fields.
fn with(mut container: Value, fields: Value) -> Value {
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    container
}

fn pod(volumes: Value, container: Value) -> Value {
    json!({"volumes": volumes, "containers": [container], "terminationGracePeriodSeconds": 5})
}

fn scratch() -> Value {
    json!([{"name": "scratch", "emptyDir": {}}])
}

impl Cluster {
    /// The log of a pod that has to succeed.
    async fn log_of(&self, name: &str, spec: Value) -> String {
        self.create(name, spec).await;
        let pod = self.ended(name).await;
        let log = self.logs(name).await;
        assert_eq!(phase_of(&pod), "Succeeded", "{log} {:?}", pod.status);
        log
    }

    async fn make<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let all: Api<K> = Api::namespaced(self.client.clone(), "default");
        all.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn make_map(&self) {
        self.make::<ConfigMap>(json!({"metadata": {"name": "settings"}, "data": {"key": "from the map\n"}}))
            .await;
    }
}

/// The entries of the host's folders into which pods of these tests mount something, and the number of its
/// mounts.
fn host() -> (BTreeSet<PathBuf>, usize) {
    let entries = |folder: &str| {
        let all = std::fs::read_dir(folder).into_iter().flatten();
        all.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let folders = ["/", "/etc", "/var/lib", "/dev", "/opt", "/srv"];
    (folders.iter().flat_map(|folder| entries(folder)).collect(), mounts)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_volume_is_at_its_path_and_the_host_stays_as_it_is() {
    let Some(cluster) = cluster().await else { return };
    let before = host();
    cluster.make_map().await;
    cluster
        .make::<Secret>(json!({"metadata": {"name": "login"}, "stringData": {"password": "of the secret\n"}}))
        .await;
    let claim = json!({
        "metadata": {"name": "results"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    cluster.make::<PersistentVolumeClaim>(claim).await;
    std::fs::write(cluster.file("given"), "of the host\n").unwrap();
    let name = json!([{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let volumes = json!([
        {"name": "empty", "emptyDir": {}},
        {"name": "map", "configMap": {"name": "settings"}},
        {"name": "secret", "secret": {"secretName": "login"}},
        {"name": "downward", "downwardAPI": {"items": name}},
        {"name": "both", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "login"}}]}},
        {"name": "host", "hostPath": {"path": cluster.directory.path(), "type": "Directory"}},
        {"name": "file", "hostPath": {"path": cluster.file("given"), "type": "File"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "results"}},
    ]);
    let mounts = json!([
        mount("empty", "/ym-data"),
        mount("map", "/etc/ym-config"),
        mount("secret", "/ym-secrets/login"),
        mount("downward", "/etc/ym-info"),
        mount("both", "/opt/ym/both"),
        mount("host", "/srv/ym-host"),
        mount("file", "/etc/ym-file"),
        mount("claim", "/var/lib/ym/claim"),
    ]);
    let script = "echo made > /ym-data/a; cat /ym-data/a /etc/ym-config/key /ym-secrets/login/password; \
        cat /etc/ym-info/name; echo; cat /opt/ym/both/key /opt/ym/both/password /srv/ym-host/given /etc/ym-file; \
        echo written > /srv/ym-host/back; echo kept > /var/lib/ym/claim/file; ls /var/lib/ym/claim; \
        cat $YARDMASTER_VOLUME_CLAIM/file; grep -c root /etc/passwd > /dev/null && echo and the host";
    let log = cluster.log_of("p", pod(volumes, mounted(script, mounts))).await;
    let expected = "made\nfrom the map\nof the secret\np\nfrom the map\nof the secret\nof the host\nof the host\n\
        file\nkept\nand the host\n";
    assert_eq!(log, expected);
    assert_eq!(std::fs::read_to_string(cluster.file("back")).unwrap(), "written\n");
    // Another pod finds what the first has left in the claim.
    let again =
        json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "results", "readOnly": true}}]);
    let script = "cat /ym/file; touch /ym/file 2> /dev/null || echo refused";
    let log = cluster.log_of("again", pod(again, mounted(script, json!([mount("claim", "/ym")])))).await;
    assert_eq!(log, "kept\nrefused\n");
    assert_eq!(host(), before);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_share_a_volume_at_paths_of_their_own() {
    let Some(cluster) = cluster().await else { return };
    let first = with(
        mounted("echo from the first > /one/note", json!([mount("scratch", "/one")])),
        json!({"name": "first"}),
    );
    let writer =
        "until test -e /two/go; do sleep 0.05; done; echo from the second >> /two/note; touch /two/done";
    let second = with(mounted(writer, json!([mount("scratch", "/two")])), json!({"name": "second"}));
    let reader = "touch go; until test -e done; do sleep 0.05; done; cat note; ls /two 2> /dev/null || echo only its own";
    let main =
        with(mounted(reader, json!([mount("scratch", "/three/deep")])), json!({"workingDir": "/three/deep"}));
    let spec = json!({"volumes": scratch(), "initContainers": [first], "containers": [main, second]});
    cluster.create("p", spec).await;
    cluster.phase("p", "Succeeded").await;
    let of_main = LogParams { container: Some("main".into()), ..LogParams::default() };
    let log = cluster.pods.logs("p", &of_main).await.unwrap();
    assert_eq!(log, "from the first\nfrom the second\nonly its own\n");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_volume_is_mounted_and_a_read_only_one_refuses_writes() {
    let Some(cluster) = cluster().await else { return };
    cluster.make_map().await;
    let volumes =
        json!([{"name": "scratch", "emptyDir": {}}, {"name": "map", "configMap": {"name": "settings"}}]);
    let mounts = json!([
        mount("scratch", "/ym/all"),
        {"name": "scratch", "mountPath": "/ym/part", "subPath": "a/b"},
        {"name": "scratch", "mountPath": "/ym/named", "subPathExpr": "$(PART)"},
        {"name": "scratch", "mountPath": "/ym/read", "readOnly": true},
        {"name": "map", "mountPath": "/etc/ym.conf", "subPath": "key"},
        mount("map", "/ym/map"),
    ]);
    let script = "echo 1 > /ym/part/x; echo 2 > /ym/named/y; cat /ym/all/a/b/x /ym/all/c/y /etc/ym.conf /ym/read/a/b/x; \
        for file in /ym/read/z /ym/map/key /etc/ym.conf; do (echo 3 > $file) 2> /dev/null || echo refused; done";
    let main = with(mounted(script, mounts), json!({"env": [{"name": "PART", "value": "c"}]}));
    let log = cluster.log_of("p", pod(volumes, main)).await;
    assert_eq!(log, "1\n2\nfrom the map\n1\nrefused\nrefused\nrefused\n");

    let outside = json!([{"name": "scratch", "mountPath": "/ym", "subPathExpr": "$(PART)"}]);
    let main = with(mounted("true", outside), json!({"env": [{"name": "PART", "value": "../../.."}]}));
    cluster.create("outside", pod(scratch(), main)).await;
    let pod = cluster.ended("outside").await;
    assert!(format!("{:?}", pod.status).contains("leads out of volume"), "{:?}", pod.status);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_mounts_come_in_the_order_of_their_depth() {
    let Some(cluster) = cluster().await else { return };
    cluster.make_map().await;
    let volumes = json!([
        {"name": "scratch", "emptyDir": {}}, {"name": "map", "configMap": {"name": "settings"}},
        {"name": "inner", "emptyDir": {}}, {"name": "root", "hostPath": {"path": "/"}},
    ]);
    let mounts = json!([
        mount("map", "/ym/data/conf/d"), mount("inner", "/ym/data/inner"), mount("scratch", "/ym/data"),
        {"name": "root", "mountPath": "/ym/host", "readOnly": true},
    ]);
    let script = "cat /ym/data/conf/d/key; echo a > /ym/data/inner/a; echo b > /ym/data/b; ls /ym/data; \
        ls $YARDMASTER_VOLUME_INNER; test -e /ym/host/etc/passwd && ! test -e /ym/host/ym && echo the host itself";
    let log = cluster.log_of("p", pod(volumes, mounted(script, mounts))).await;
    assert_eq!(log, "from the map\nb\nconf\ninner\na\nthe host itself\n");
    cluster.stop().await;
}

/// The new namespace may change the folder of the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_relative_folder_of_the_host_is_entered_beside_mounts() {
    let Some(usual) = cluster().await else { return };
    usual.stop().await;
    let cluster = Cluster::of(KubeletConfig { workspace: Workspace::OfHost, ..with_processes() }).await;
    let main = with(
        mounted("pwd; ls /ym-data", json!([mount("scratch", "/ym-data")])),
        json!({"workingDir": "tests"}),
    );
    let expected = std::env::current_dir().unwrap().join("tests");
    assert_eq!(cluster.log_of("p", pod(scratch(), main)).await, format!("{}\n", expected.display()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_the_pods_own_takes_the_place_of_the_token() {
    let Some(cluster) = cluster().await else { return };
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let script = format!("echo its own > {path}/token; cat $YARDMASTER_VOLUME_SCRATCH/token; ls {path}");
    let log = cluster.log_of("p", pod(scratch(), mounted(&script, json!([mount("scratch", path)])))).await;
    assert_eq!(log, "its own\ntoken\n");
    cluster.stop().await;
}

/// Files that a container adds beside a mount are its own, and its probes and hooks see them.
#[tokio::test(flavor = "multi_thread")]
async fn probes_and_hooks_find_what_the_container_finds() {
    let Some(cluster) = cluster().await else { return };
    let before = host();
    let probe = json!({"exec": {"command": ["cat", "/ym-data/ready", "/ym-beside"]}, "periodSeconds": 1});
    let stopped = cluster.file("stopped");
    let hook = format!("cat /ym-data/ready /ym-beside - > {} < /ym-data/hook", stopped.display());
    let main = with(
        mounted(
            "echo beside > /ym-beside; echo ready > /ym-data/ready; exec sleep 600",
            json!([mount("scratch", "/ym-data")]),
        ),
        json!({
            "startupProbe": probe, "readinessProbe": probe,
            "lifecycle": {
                "postStart": {"exec": {"command": ["sh", "-c", "pwd > /ym-data/hook"]}},
                "preStop": {"exec": {"command": ["sh", "-c", hook]}},
            },
            "workingDir": "/ym-data",
        }),
    );
    cluster.create("p", pod(scratch(), main)).await;
    cluster.wait("p", |pod| phase_of(pod) == "Running" && condition(pod, "Ready").0 == "True").await;
    assert_eq!(host(), before);
    cluster.pods.delete("p", &DeleteParams::default()).await.unwrap();
    cluster.gone("p").await;
    assert_eq!(std::fs::read_to_string(stopped).unwrap(), "ready\nbeside\n/ym-data\n");
    assert_eq!(host(), before);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_may_hide_the_folder_of_its_pod() {
    let Some(cluster) = cluster().await else { return };
    let tmp = std::env::temp_dir();
    let mounts = json!([mount("scratch", tmp.to_str().unwrap())]);
    let script = "test $PWD = $HOME && test -d $TMPDIR && ls $HOME; echo > note; mktemp > /dev/null; \
        echo why > $YARDMASTER_TERMINATION_LOG; ls -A $YARDMASTER_VOLUME_SCRATCH; echo here";
    let main = mounted(script, mounts);
    let mut spec = pod(scratch(), main);
    spec["containers"][0]["terminationMessagePath"] = json!("/ym/message");
    assert_eq!(cluster.log_of("p", spec).await, "here\n");
    let ended = state(&cluster.ended("p").await).terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("why\n"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_mounts_writes_its_termination_message_where_the_manifest_says() {
    let Some(cluster) = cluster().await else { return };
    for (name, path) in [("usual", "/dev/termination-log"), ("own", "/ym-data/logs/message")] {
        let main = mounted(&format!("echo of {name} > {path}"), json!([mount("scratch", "/ym-data")]));
        let mut spec = pod(scratch(), main);
        spec["containers"][0]["terminationMessagePath"] = json!(path);
        cluster.log_of(name, spec).await;
        let ended = state(&cluster.ended(name).await).terminated.unwrap();
        assert_eq!(ended.message, Some(format!("of {name}\n")));
    }
    assert!(!Path::new("/dev/termination-log").exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_be_in_a_volume() {
    let Some(cluster) = cluster().await else { return };
    cluster
        .make::<ConfigMap>(
            json!({"metadata": {"name": "scripts"}, "data": {"run.sh": "#!/bin/sh\necho ran $1 in $PWD\n"}}),
        )
        .await;
    let volumes = json!([{"name": "scripts", "configMap": {"name": "scripts", "defaultMode": 0o755}}]);
    let mounts = json!([mount("scripts", "/ym/scripts")]);
    let by_path = with(
        mounted("", mounts.clone()),
        json!({"command": ["/ym/scripts/run.sh", "it"], "workingDir": "/"}),
    );
    assert_eq!(cluster.log_of("path", pod(volumes.clone(), by_path)).await, "ran it in /\n");
    let fields = json!({"command": ["run.sh"], "workingDir": "/ym", "env": [{"name": "PATH", "value": "/bin:/ym/scripts"}]});
    let by_name = with(mounted("", mounts.clone()), fields);
    assert_eq!(cluster.log_of("name", pod(volumes.clone(), by_name)).await, "ran in /ym\n");

    for (name, fields, why) in [
        ("none", json!({"command": ["no-such"]}), "exec: \"no-such\": executable file not found in $PATH"),
        ("nowhere", json!({"workingDir": "/ym/x"}), "chdir to cwd (\"/ym/x\") set in config.json failed: "),
        (
            "kind",
            json!({"volumeMounts": [mount("scripts", "/etc/passwd")]}),
            "cannot mount a volume at /etc/passwd: ",
        ),
    ] {
        let main = with(mounted("true", mounts.clone()), fields);
        cluster.create(name, pod(volumes.clone(), main)).await;
        let ended = state(&cluster.ended(name).await).terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (128, Some("StartError")), "{ended:?}");
        assert!(ended.message.unwrap().starts_with(why), "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_can_be_mounted_variables_remain_and_an_event_says_so() {
    let mounting = Some(Mounting::ByVariable { why: "the kernel refuses".into() });
    let cluster = Cluster::of(KubeletConfig { mounting, ..with_processes() }).await;
    let main =
        mounted("echo $YARDMASTER_VOLUME_SCRATCH; ls -d /ym-data", json!([mount("scratch", "/ym-data")]));
    cluster.create("p", pod(scratch(), main)).await;
    cluster.phase("p", "Failed").await;
    let log = cluster.logs("p").await;
    assert!(log.lines().next().unwrap().ends_with("/volumes/scratch"), "{log}");
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let told = async || {
        let all = events.list(&Default::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("MountsByVariable"))
    };
    until("the Event is there", async || told().await.is_some()).await;
    let event = told().await.unwrap();
    assert_eq!((event.type_.as_deref(), event.involved_object.name.as_deref()), (Some("Normal"), Some("p")));
    assert!(event.message.unwrap().ends_with(": the kernel refuses"));
    // A pod that asks for nothing gets no Event.
    cluster.shell("q", "true").await;
    cluster.phase("q", "Succeeded").await;
    assert_eq!(told().await.unwrap().involved_object.name.as_deref(), Some("p"));
    cluster.stop().await;
}

/// Where tests run as root, everything else here needs no user namespace.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_has_mounts_too() {
    let Some(cluster) = cluster().await else { return };
    let home = cluster.file("home");
    std::fs::create_dir(&home).unwrap();
    let program = cluster.file("yardmaster");
    let built = env!("CARGO_BIN_EXE_yardmaster");
    std::fs::hard_link(built, &program).or_else(|_| std::fs::copy(built, &program).map(drop)).unwrap();
    let job = cluster.file("job.yaml");
    let script = "id -u; echo it > /ym-data/deep/x; cat /ym-data/deep/x; stat -c %u /ym-data/deep/x; \
        cat /root/ym-hidden/x; echo beside > /ym-beside && test -r /etc/passwd && echo as before";
    let container =
        mounted(script, json!([mount("scratch", "/ym-data/deep"), mount("scratch", "/root/ym-hidden")]));
    let mut template = pod(scratch(), container);
    template["restartPolicy"] = json!("Never");
    let spec = json!({"backoffLimit": 0, "template": {"spec": template}});
    let text =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}).to_string();
    std::fs::write(&job, text).unwrap();
    for path in [cluster.directory.path(), &home] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "setpriv".into() } else { program.clone() });
    if is_root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    }
    let user = if is_root { 65534 } else { rustix::process::geteuid().as_raw() };
    command.args(["run", "--runtime", "processes", "--volumes", "paths", "--logs"]).arg(&job);
    let output = command.env("HOME", &home).current_dir(&home).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{user}\nit\n{user}\nit\nas before\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{told}");
    assert!(output.status.success() && !Path::new("/ym-beside").exists(), "{told}");
    cluster.stop().await;
}
