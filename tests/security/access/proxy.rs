//! Proxies that the environment or a kubeconfig names. They lead to other clusters, and must see neither the traffic
//! nor the token of an embedded one.

use std::io::{BufRead as _, BufReader, Write as _, copy};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use kube::config::Kubeconfig;
use nix::sys::signal::Signal;

use crate::binary::{Background, yardmaster};

/// A proxy that must get no connections.
struct Proxy(TcpListener);

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    /// The command with the variables of a site whose hosts all use this proxy.
    fn used_by<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let address = format!("http://{}", self.0.local_addr().unwrap());
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, &address);
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy")
    }

    fn assert_unused(&self) {
        let connection = self.0.accept();
        assert!(connection.is_err(), "somebody talked to the proxy: {connection:?}");
    }
}

#[test]
fn a_proxy_in_the_environment_sees_nothing_of_an_embedded_cluster() {
    let (proxy, directory) = (Proxy::start(), tempfile::tempdir().unwrap());
    let job = directory.path().join("job.yaml");
    let manifest = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: \
                    Never, containers: [{name: c, image: i, command: ['true']}]}}}}";
    std::fs::write(&job, manifest).unwrap();
    let mut run = yardmaster();
    let output = proxy.used_by(run.arg("run").arg(&job)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let kubeconfig = directory.path().join("kubeconfig");
    let mut command = yardmaster();
    command.arg("cluster").arg("--write-kubeconfig").arg(&kubeconfig);
    let mut cluster = Background::start(proxy.used_by(&mut command));
    let _up = Background::line(cluster.0.stdout.take().unwrap(), "API server");
    let mut run = yardmaster();
    run.arg("run").arg(&job).arg("--kubeconfig").arg(&kubeconfig);
    let output = proxy.used_by(&mut run).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for command in [&["status"][..], &["logs", "j"]] {
        let mut shown = yardmaster();
        shown.args(command).arg("--kubeconfig").arg(&kubeconfig);
        let output = proxy.used_by(&mut shown).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
    proxy.assert_unused();
}

/// A proxy that leads to one server, whatever it is asked for. It ends with the test.
struct Way {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Way {
    fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, noted) = (server.clone(), noted.clone());
                thread::spawn(move || tunnel(client, &server, &noted));
            }
        });
        Self { url, asked }
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.dedup();
        asked
    }
}

fn tunnel(client: TcpStream, server: &str, noted: &Mutex<Vec<String>>) {
    let mut head = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = head.next() else { return };
    noted.lock().unwrap().push(request);
    let _rest = head.find(|line| line.is_empty());
    let Ok(server) = TcpStream::connect(server) else { return };
    (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || copy(&mut from, &mut to));
    let _ended = copy(&mut &client, &mut &server);
}

/// A kubeconfig of a cluster at a name that only a proxy knows.
fn elsewhere(kubeconfig: &Path, port: u16, proxy: Option<&str>) -> PathBuf {
    let mut read = Kubeconfig::read_from(kubeconfig).unwrap();
    let cluster = read.clusters[0].cluster.as_mut().unwrap();
    cluster.server = Some(format!("https://api.cluster.invalid:{port}"));
    cluster.proxy_url = proxy.map(str::to_owned);
    let file = kubeconfig.with_file_name("elsewhere");
    std::fs::write(&file, serde_saphyr::to_string(&read).unwrap()).unwrap();
    file
}

#[test]
fn another_cluster_is_reached_through_the_proxy_of_its_kubeconfig_or_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let mut command = yardmaster();
    command.args(["cluster", "--tls-san", "api.cluster.invalid", "--write-kubeconfig"]).arg(&kubeconfig);
    let mut cluster = Background::start(&mut command);
    let line = Background::line(cluster.0.stdout.take().unwrap(), "API server");
    let server = line.rsplit("https://").next().unwrap().trim().to_owned();
    let port = server.rsplit(':').next().unwrap().parse().unwrap();
    let (one, other) = (Way::start(server.clone()), Way::start(server));
    let asked = [format!("CONNECT api.cluster.invalid:{port} HTTP/1.1")];

    let status = |proxy: Option<&str>, variables: &[(&str, &str)]| {
        let file = elsewhere(&kubeconfig, port, proxy);
        let mut command = yardmaster();
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        command.arg("status").arg("--kubeconfig").arg(file).envs(variables.iter().copied());
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let found = status(None, &[("https_proxy", &one.url), ("NO_PROXY", "10.0.0.0/8,.svc")]);
    assert_eq!((found.0, one.asked()), (0, asked.to_vec()), "{}", found.1);
    let found = status(Some(&other.url), &[("HTTPS_PROXY", &one.url), ("NO_PROXY", "*")]);
    assert_eq!((found.0, other.asked()), (0, asked.to_vec()), "{}", found.1);
    let found = status(None, &[("HTTPS_PROXY", &one.url), ("NO_PROXY", "cluster.invalid")]);
    assert_eq!(found.0, 3, "nobody else knows the name: {}", found.1);
    let found = status(None, &[("HTTPS_PROXY", "ftp://u:secret@proxy")]);
    assert_eq!(found.1.lines().count(), 1, "{}", found.1);
    assert!(found.0 == 2 && found.1.contains("HTTPS_PROXY: ") && !found.1.contains("secret"), "{}", found.1);
    assert!(one.asked().is_empty() && other.asked().is_empty());
}
