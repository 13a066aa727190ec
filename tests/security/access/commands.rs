//! The commands: how they treat tokens, and which files they refuse.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;

use super::wire::{MAPS, get, request};
use crate::binary::{Background, yardmaster};

fn cluster(flags: &[&str]) -> std::process::Command {
    let mut command = yardmaster();
    command.arg("cluster").args(flags);
    command
}

/// The only line of a command that refuses its input.
fn refusal(output: &Output) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    errors
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Address of a cluster that has printed it.
fn address(cluster: &mut Background) -> std::net::SocketAddr {
    let line = Background::line(cluster.0.stdout.take().unwrap(), "API server");
    line.rsplit_once("//").unwrap().1.trim().parse().unwrap()
}

fn stop(mut cluster: Background) {
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
}

#[tokio::test]
async fn only_the_kubeconfig_has_the_token_and_only_its_owner_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    // A file that others can read is replaced.
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let written = file.display().to_string();
    let mut cluster = Background::start(&mut cluster(&["--api-only", "--write-kubeconfig", &written]));
    let address = address(&mut cluster);
    assert_eq!(mode(&file), 0o600);
    assert_eq!(request(address, "GET", MAPS, &["Host: localhost"], "").await.status(), 401);

    let kubeconfig = Kubeconfig::read_from(&file).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(get(&client, MAPS).await, 200);

    let text = std::fs::read_to_string(&file).unwrap();
    let token = text.split("token: ").nth(1).unwrap().split_whitespace().next().unwrap().trim_matches('"');
    assert_eq!(token.len(), 64, "{text}");
    let command_line = std::fs::read(format!("/proc/{}/cmdline", cluster.0.id())).unwrap();
    assert!(!String::from_utf8_lossy(&command_line).contains(token));
    stop(cluster);
}

#[test]
fn a_kept_run_writes_its_kubeconfig_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let job = directory.path().join("job.yaml");
    let manifest = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: \
                    Never, containers: [{name: c, image: i, command: ['true']}]}}}}";
    std::fs::write(&job, manifest).unwrap();
    let mut run = Background::start(yardmaster().arg("run").arg(&job).arg("--keep"));
    let line = Background::line(run.0.stderr.take().unwrap(), "export KUBECONFIG=");
    let kubeconfig = Path::new(line.split_once('=').unwrap().1);
    assert_eq!((mode(kubeconfig), mode(kubeconfig.parent().unwrap())), (0o600, 0o700));
    assert!(std::fs::read_to_string(kubeconfig).unwrap().contains("token: "));
    stop(run);
}

#[tokio::test]
async fn no_token_is_a_choice_that_the_process_kubelet_refuses() {
    let refused = refusal(&cluster(&["--insecure-no-token"]).output().unwrap());
    assert!(refused.contains("--insecure-no-token") && refused.contains("--kubelet simulated"), "{refused}");
    let both = ["--insecure-no-token", "--api-only", "--token-file", "x"];
    assert!(refusal(&cluster(&both).output().unwrap()).contains("--token-file"));

    let mut open = Background::start(&mut cluster(&["--insecure-no-token", "--api-only"]));
    let address = address(&mut open);
    assert_eq!(request(address, "GET", MAPS, &["Host: localhost"], "").await.code, 200);
    assert_eq!(request(address, "GET", MAPS, &["Host: evil.example"], "").await.status(), 403);
    let warning = Background::line(open.0.stderr.take().unwrap(), "--insecure-no-token");
    assert!(warning.starts_with("WARNING"), "{warning}");
    stop(open);
}

#[tokio::test]
async fn a_token_file_that_others_can_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let path = file.display().to_string();
    let flags = ["--api-only", "--token-file", &*path];
    std::fs::write(&file, "my-own-token\n").unwrap();
    for others in [0o644, 0o640, 0o604, 0o622] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(others)).unwrap();
        let refused = refusal(&cluster(&flags).output().unwrap());
        assert!(refused.contains(&path) && refused.contains("chmod 600"), "{refused}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut started = Background::start(&mut cluster(&flags));
    let address = address(&mut started);
    let own = ["Host: localhost", "Authorization: Bearer my-own-token"];
    assert_eq!(request(address, "GET", MAPS, &own, "").await.code, 200);
    assert_eq!(request(address, "GET", MAPS, &own[..1], "").await.status(), 401);
    stop(started);

    for (text, why) in [("\n", "contains no token"), ("two words", "one word")] {
        std::fs::write(&file, text).unwrap();
        assert!(refusal(&cluster(&flags).output().unwrap()).contains(why));
    }
    // A test that is not root's cannot give a file away.
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(refusal(&cluster(&flags).output().unwrap()).contains("another user"));
    }
}

#[test]
fn other_hosts_need_two_flags_and_get_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (token, kubeconfig) = (directory.path().join("token"), directory.path().join("kubeconfig"));
    std::fs::write(&token, "my-own-token").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let everywhere = ["--api-only", "--listen", "0.0.0.0:0"];
    assert!(refusal(&cluster(&everywhere).output().unwrap()).contains("--allow-remote"));
    let mut command = cluster(&everywhere);
    command.arg("--allow-remote").arg("--token-file").arg(&token);
    command.args(["--tls-san", "jobs.example,192.0.2.7"]).arg("--write-kubeconfig").arg(&kubeconfig);
    let mut remote = Background::start(&mut command);
    let line = Background::line(remote.0.stdout.take().unwrap(), "API server");
    assert!(line.contains("https://"), "{line}");
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("certificate-authority-data"));
    let status = yardmaster().args(["status", "--kubeconfig"]).arg(&kubeconfig).output().unwrap();
    assert_eq!(status.status.code(), Some(0), "{}", String::from_utf8_lossy(&status.stderr));
    stop(remote);
    let mut bad = cluster(&["--api-only", "--tls-san", "not a name"]);
    assert!(refusal(&bad.output().unwrap()).contains("--tls-san"));
}
