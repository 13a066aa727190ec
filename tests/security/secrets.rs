//! Secrets are planted wherever the programs get any. They must not come out anywhere.

use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::binary::{Background, PATIENCE, until, yardmaster};
use crate::collector::Collector;

/// A part of each secret.
const PLANTED: &str = "p1anted";
/// The beginning of each token of a ServiceAccount.
const ACCOUNT_TOKEN: &str = "eyJhbGciOi";

/// A command whose both outputs go to a file.
fn logged(command: &mut Command, log: &Path) -> Background {
    let file = File::create(log).unwrap();
    Background::start(command.stdout(file.try_clone().unwrap()).stderr(file))
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

/// The lines with a secret.
fn leaks(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains(PLANTED) || line.contains(ACCOUNT_TOKEN)).collect()
}

/// The rest of the first line after a text, once a log has such a line.
fn printed(log: &Path, before: &str) -> String {
    let find = || text(log).lines().find_map(|line| Some(line.split_once(before)?.1.trim().to_owned()));
    until(before, || find().is_some());
    find().unwrap()
}

/// A page of a controller.
fn page(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(connection, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The command lines of all processes that can be seen.
fn command_lines() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

/// A Job whose pod gets a Secret, runs for a moment, and ends.
async fn run_job_with_secret(kubeconfig: &Path) {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": format!("{PLANTED}-value")}});
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let container = json!({
        "name": "main", "image": "i",
        "command": ["sh", "-c", "test -n \"$K\" && test -s $YARDMASTER_VOLUME_KUBE_API_ACCESS/token && sleep 1"],
        "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    });
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template, "backoffLimit": 0}});
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::default_namespaced(client);
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    let mut seen = Vec::new();
    let deadline = std::time::Instant::now() + PATIENCE;
    while jobs.get("j").await.unwrap().status.and_then(|status| status.succeeded) != Some(1) {
        assert!(std::time::Instant::now() < deadline, "the Job does not end");
        seen.extend(command_lines());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(seen.iter().any(|line| line.contains("test -n")), "the pod is seen");
    seen.retain(|line| line.contains(PLANTED));
    assert_eq!(seen, Vec::<String>::new(), "in a process list");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_traces_pages_and_process_lists_show_no_secret() {
    let (place, collector) = (tempfile::tempdir().unwrap(), Collector::start().await);
    let file = |name: &str| place.path().join(name);
    std::fs::write(file("token"), format!("{PLANTED}-token-of-the-cluster-0123456789")).unwrap();
    std::fs::set_permissions(file("token"), Permissions::from_mode(0o600)).unwrap();
    let traced = |command: &mut Command| {
        command.args(["--log-level", "trace"]).env("YARDMASTER_LOG_LEVEL", "trace");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()).env("OTEL_BSP_SCHEDULE_DELAY", "100");
        command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={PLANTED}-header"));
    };
    let mut command = yardmaster();
    command.arg("cluster").arg("--token-file").arg(file("token")).arg("--data-dir").arg(file("data"));
    traced(command.arg("--write-kubeconfig").arg(file("kubeconfig")));
    let mut cluster = logged(&mut command, &file("cluster"));
    printed(&file("cluster"), "API server");
    let mut command = yardmaster();
    command.args(["controller", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(file("kubeconfig"));
    traced(&mut command);
    let mut controller = logged(&mut command, &file("controller"));

    run_job_with_secret(&file("kubeconfig")).await;
    collector.until("job").await;
    assert!(collector.exports().iter().all(|export| export.contains(PLANTED)), "the header is sent");
    assert_eq!(leaks(&format!("{:#?}", collector.spans())), Vec::<&str>::new(), "in a trace");
    let status = yardmaster().args(["status", "-o", "json", "--kubeconfig"]).arg(file("kubeconfig")).output();
    let status = format!("{:?}", status.unwrap());
    assert!(status.contains(r#"\"name\":\"j\""#) && leaks(&status).is_empty(), "{status}");
    let address = printed(&file("controller"), "serving the HTTP pages address=");
    for path in ["/metrics", "/debug/shards", "/debug/overview"] {
        let page = page(&address, path);
        assert!(page.starts_with("HTTP/1.") && page.contains(" 200 OK") && leaks(&page).is_empty(), "{page}");
    }
    for process in [&mut controller, &mut cluster] {
        process.signal(Signal::SIGTERM);
        assert_eq!(process.exit_code(), Some(0));
    }
    for name in ["cluster", "controller"] {
        let log = text(&file(name));
        assert!(log.contains("TRACE"), "everything is logged: {}", log.len());
        assert_eq!(leaks(&log), Vec::<&str>::new(), "in the log of the {name}");
    }
}

#[test]
fn errors_about_a_kubeconfig_show_none_of_its_lines() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("kubeconfig");
    for user in [
        format!("{{token: \"{PLANTED}\", wrong"),
        format!("{{token: [{PLANTED}]}}"),
        PLANTED.to_owned(),
        format!("{{client-key-data: {PLANTED}, client-certificate-data: {PLANTED}}}"),
        format!("{{token: \"{PLANTED}\\n{PLANTED}\"}}"),
    ] {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:9'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users:\n- name: u\n  user: {user}\n"
        );
        std::fs::write(&file, kubeconfig).unwrap();
        for command in ["status", "check", "controller"] {
            let by_flag = yardmaster().arg(command).arg("--kubeconfig").arg(&file).output().unwrap();
            let by_variable = yardmaster().arg(command).env("KUBECONFIG", &file).output().unwrap();
            for output in [by_flag, by_variable] {
                let errors =
                    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
                assert!(matches!(output.status.code(), Some(2 | 3)), "{command}, {user}: {errors}");
                assert_eq!(errors.lines().count(), 1, "{command}, {user}: {errors}");
                assert!(!errors.contains(PLANTED), "{command}, {user}: {errors}");
            }
        }
    }
}
