//! Failures around containers: of their engine, the disk, and the programs of the cluster itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::binary::{self, Background};
use super::commands::{Ended, yardmaster};
use super::*;

/// A folder that containers may write into.
fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// A Job whose containers run a script with a folder of this machine at `/host`.
fn job(name: &str, host: &Path, spec: Value, script: &str) -> Value {
    let mut container = shell(script, json!({"volumeMounts": [{"name": "host", "mountPath": "/host"}]}));
    container["name"] = "main".into();
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container],
            "volumes": [{"name": "host", "hostPath": {"path": host}}],
        }}},
    });
    json_patch::merge(&mut job["spec"], &spec);
    job
}

fn file_of(folder: &Path, job: &Value) -> PathBuf {
    let file = folder.join(format!("{}.json", job["metadata"]["name"].as_str().unwrap()));
    std::fs::write(&file, job.to_string()).unwrap();
    file
}

#[test]
fn an_engine_that_dies_and_comes_back_costs_no_pod() {
    let Some(mut engine) = engine::Mortal::start("mortal") else { return };
    let host = shared_folder();
    let script =
        "echo ran >> /host/$JOB_COMPLETION_INDEX; until test -e /host/go; do sleep 0.1; done; echo done";
    let spec = json!({"completionMode": "Indexed", "completions": 6, "parallelism": 3, "backoffLimit": 0});
    let file = file_of(host.path(), &job("survivor", host.path(), spec, script));
    let args = ["run", file.to_str().unwrap(), "--runtime", "containers", "-o", "json", "--log-dir"];
    let logs = host.path().join("logs");
    let mut run = yardmaster(&engine.address(), &[&args[..], &[logs.to_str().unwrap()]].concat());
    let run = Background::start(&mut run);
    let ran = |index: u32| std::fs::read_to_string(host.path().join(index.to_string())).unwrap_or_default();
    binary::until("three containers run", || (0..3).all(|index| !ran(index).is_empty()));
    // It dies after it has said that they run.
    std::thread::sleep(Duration::from_secs(2));
    engine.kill();
    // They end while no engine watches them, and three others wait for their creation.
    std::fs::write(host.path().join("go"), "").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    engine.restart();
    let Ended { status, stdout, stderr } = Ended::of(run);
    assert_eq!(status, Some(0), "{stderr}");
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&found["status"]["succeeded"], &found["status"]["failed"]),
        (&json!(6), &Value::Null),
        "{stderr}"
    );
    for index in 0..6 {
        assert_eq!(ran(index), "ran\n", "index {index} of {stderr}");
    }
    // Output from before the failure is kept; later output is read again.
    for index in 3..6 {
        let log = std::fs::read_to_string(logs.join(format!("{index}.log"))).unwrap();
        assert_eq!(log, "done\n", "{index}");
    }
}

#[test]
fn the_output_of_a_container_goes_on_when_its_engine_comes_back() {
    let Some(mut engine) = engine::Mortal::start("output") else { return };
    let host = shared_folder();
    let script = "echo begins; until test -e /host/go; do sleep 0.1; done; sleep 3; echo ends";
    let logs = host.path().join("logs");
    let file = file_of(host.path(), &job("speaker", host.path(), json!({"backoffLimit": 0}), script));
    let args = [
        "run",
        file.to_str().unwrap(),
        "--runtime",
        "containers",
        "--logs",
        "--log-dir",
        logs.to_str().unwrap(),
    ];
    let run = Background::start(&mut yardmaster(&engine.address(), &args));
    binary::until("its output is there", || manifests::lines(&logs) == ["begins"]);
    engine.kill();
    engine.restart();
    std::fs::write(host.path().join("go"), "").unwrap();
    let Ended { status, stdout, stderr } = Ended::of(run);
    assert_eq!((status, stdout.as_str()), (Some(0), "begins\nends\n"), "{stderr}");
}

/// A small disk at a folder. It is taken away when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// The disk, if this user may mount one.
    fn of(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={megabytes}m,mode=0700");
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output().unwrap();
        if mounted.status.success() {
            return Some(Self(folder));
        }
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("skipped: {why}");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_ends_the_cluster_with_a_line_and_the_next_start_goes_on() {
    let Some(address) = engine::address() else { return };
    let Some(disk) = SmallDisk::of(16) else { return };
    let host = shared_folder();
    let (config, data) = (host.path().join("kubeconfig"), disk.path().join("data"));
    let (config, data) = (config.to_str().unwrap(), data.to_str().unwrap());
    let start = || {
        let args = ["cluster", "--runtime", "containers", "--data-dir", data, "--write-kubeconfig", config];
        let mut cluster = Background::start(&mut yardmaster(address, &args));
        Background::line(cluster.0.stdout.take().unwrap(), "KUBECONFIG");
        cluster
    };
    let run = |object: &Value| {
        let file = file_of(host.path(), object);
        let args = ["run", "--kubeconfig", config, file.to_str().unwrap()];
        Background::start(&mut yardmaster(address, &args))
    };
    let mut cluster = start();
    // The first pod fills the disk, and goes on.
    let script =
        "test -e /host/full && exit 0; dd if=/dev/zero of=/scratch/fill bs=64k; touch /host/full; sleep 600";
    let mut filler = job("filler", host.path(), json!({"backoffLimit": 3}), script);
    let pod = &mut filler["spec"]["template"]["spec"];
    pod["volumes"].as_array_mut().unwrap().push(json!({"name": "work", "emptyDir": {}}));
    let mounts = pod["containers"][0]["volumeMounts"].as_array_mut().unwrap();
    mounts.push(json!({"name": "work", "mountPath": "/scratch"}));
    let mut follower = run(&filler);
    binary::until("the disk is full", || host.path().join("full").exists());
    // If it were interrupted, it would delete its Job.
    follower.0.kill().unwrap();

    let key = "x".repeat(900_000);
    let large =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"key": key}});
    let small = job("small", host.path(), json!({}), "true");
    let both =
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "both"}, "items": [large, small]});
    let refused = Ended::of(run(&both));
    assert_eq!(refused.status, Some(3), "{}", refused.stderr);
    assert!(refused.stderr.contains("No space left on device"), "{}", refused.stderr);
    assert_eq!(cluster.exit_code(), Some(3));
    let told = std::io::read_to_string(cluster.0.stderr.take().unwrap()).unwrap();
    let expected = format!("--data-dir {data}: cannot keep what is written: No space left on device");
    assert!(told.lines().last().is_some_and(|line| line.contains(&expected)), "{told}");
    let process = cluster.0.id().to_string();
    let owners = || engine::owners("dev.yardmaster.owner");
    let is_its = |owner: &String| owner.split(':').nth(1) == Some(&process);
    binary::until("its containers are gone", || !owners().iter().any(is_its));

    remove_fill(Path::new(data));
    let mut cluster = start();
    binary::until("the Job is complete", || {
        let shown = yardmaster(address, &["status", "--kubeconfig", config, "-o", "json"]).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let jobs = shown["jobs"].as_array().cloned().unwrap_or_default();
        jobs.iter().any(|job| job["name"] == "filler" && job["state"] == "Complete")
    });
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
}

/// Removes what fills the disk.
fn remove_fill(data: &Path) {
    let files = walkdir::WalkDir::new(data).into_iter().filter_map(Result::ok);
    let fill =
        files.filter(|file| file.file_name() == "fill").map(walkdir::DirEntry::into_path).next().unwrap();
    std::fs::remove_file(fill).unwrap();
}

/// The processes that a process has started, with theirs.
fn descendants(process: i32) -> Vec<i32> {
    let all = procfs::process::all_processes().unwrap().filter_map(Result::ok);
    let children = all.filter_map(|process| process.stat().ok()).filter(|stat| stat.ppid == process);
    children.flat_map(|child| [vec![child.pid], descendants(child.pid)].concat()).collect()
}

#[test]
fn a_start_after_everything_was_killed_removes_what_is_ours_and_nothing_else() {
    let Some(address) = engine::address() else { return };
    let host = shared_folder();
    // The containers, the network and the volume of another user, with names like ours.
    let theirs = format!("yardmaster_of_others_{}", std::process::id());
    let label = format!("test={theirs}");
    engine::podman(&[
        "run",
        "--detach",
        "--name",
        &theirs,
        "--label",
        &label,
        engine::BUSYBOX,
        "sleep",
        "600",
    ]);
    engine::podman(&["network", "create", "--label", &label, &theirs]);
    engine::podman(&["volume", "create", "--label", &label, &theirs]);

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}});
    let script = "touch /host/ran; exec sleep 600";
    let mut left = job("left", host.path(), json!({"parallelism": 2, "completions": 2}), script);
    // With a sandbox, and in a network.
    let pod = &mut left["spec"]["template"]["spec"];
    let mut beside = pod["containers"][0].clone();
    beside["name"] = "beside".into();
    pod["containers"].as_array_mut().unwrap().push(beside);
    let list =
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "all"}, "items": [service, left]});
    let file = file_of(host.path(), &list);
    let run = Background::start(&mut yardmaster(
        address,
        &["run", file.to_str().unwrap(), "--runtime", "containers"],
    ));
    let process = run.0.id();
    let is_its = |owner: &String| owner.split(':').nth(1) == Some(&process.to_string());
    let containers = || engine::owners("dev.yardmaster.owner").iter().filter(|owner| is_its(owner)).count();
    let networks = || {
        let names = engine::networks("dev.yardmaster.owner");
        names.iter().filter(|name| name.contains(&format!("-{process}-"))).count()
    };
    binary::until("two pods run", || containers() == 6);
    assert_eq!(networks(), 1);
    let whole = i32::try_from(process).unwrap();
    for process in [vec![whole], descendants(whole)].concat() {
        // Some end with their parent.
        let _ended = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
    drop(run);

    let next = file_of(host.path(), &job("next", host.path(), json!({}), "true"));
    let output =
        yardmaster(address, &["run", next.to_str().unwrap(), "--runtime", "containers"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    binary::until("nothing is left", || (containers(), networks()) == (0, 0));
    let filter = format!("label={label}");
    let running = ["ps", "--filter", &filter, "--format", "{{.Names}}"];
    let network = ["network", "ls", "--filter", &filter, "--format", "{{.Name}}"];
    let volume = ["volume", "ls", "--filter", &filter, "--format", "{{.Name}}"];
    for args in [&running[..], &network, &volume] {
        assert_eq!(engine::podman(args), theirs, "{args:?}");
    }
    engine::podman(&["rm", "--force", "--time", "0", &theirs]);
    engine::podman(&["network", "rm", &theirs]);
    engine::podman(&["volume", "rm", &theirs]);
}
