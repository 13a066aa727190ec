//! A proxy that the environment names. It must see neither the traffic nor the token of an embedded cluster.

use std::net::TcpListener;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::binary::{Background, yardmaster};

/// A proxy that nobody should talk to.
struct Proxy(TcpListener);

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    /// The command with the variables of a site where everybody uses this proxy.
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
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.exit_code(), Some(0));
    proxy.assert_unused();
}
