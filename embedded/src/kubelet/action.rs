//! The actions of probes and lifecycle hooks: run a command in a container, or ask one of its ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::engine::Inside;
use super::environment::{self, Variables};
use super::pod::Container;
use super::process::{Launch, Process};
use super::supervisor::{Namespace, Supervisor};
use super::unverified_tls;

/// Bytes of output that a failure is explained with. Kubernetes keeps as much.
const OUTPUT: usize = 10 << 10;
/// Bytes of an HTTP answer that are read.
const BODY: usize = 10 << 10;

/// How long a connection to a published port must last to count.
const SECOND_THOUGHTS: Duration = Duration::from_millis(100);

/// The action of a probe or of a hook.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action<'a> {
    /// Runs a command in the container, in which variables are replaced: it is well if that exits with 0.
    Exec(&'a [String]),
    /// Runs a command in the container as it is.
    ExecVerbatim(&'a [String]),
    /// Asks by HTTP: a status from 200 to 399 is well.
    Http(&'a core::HTTPGetAction),
    /// Connects.
    Tcp(&'a core::TCPSocketAction),
    /// Asks the health service of gRPC.
    Grpc(&'a core::GRPCAction),
    /// Waits.
    Sleep(Duration),
}

impl<'a> Action<'a> {
    /// The action of a probe; `None` if it names none.
    pub(super) fn of_probe(probe: &'a core::Probe) -> Option<Self> {
        let exec = probe.exec.as_ref().map(|exec| Self::Exec(exec.command.as_deref().unwrap_or_default()));
        exec.or_else(|| probe.http_get.as_ref().map(Self::Http))
            .or_else(|| probe.tcp_socket.as_ref().map(Self::Tcp))
            .or_else(|| probe.grpc.as_ref().map(Self::Grpc))
    }

    /// The action of a hook. A hook that connects is kept by Kubernetes for old objects alone, and does nothing.
    pub(super) fn of_hook(hook: &'a core::LifecycleHandler) -> Option<Self> {
        let exec =
            hook.exec.as_ref().map(|exec| Self::ExecVerbatim(exec.command.as_deref().unwrap_or_default()));
        let seconds = |sleep: &core::SleepAction| u64::try_from(sleep.seconds).unwrap_or_default();
        exec.or_else(|| hook.http_get.as_ref().map(Self::Http))
            .or_else(|| hook.sleep.as_ref().map(|sleep| Self::Sleep(Duration::from_secs(seconds(sleep)))))
    }

    /// The port of the container that it asks, unless that is one of another host.
    pub(super) fn port(self, container: &Container) -> Option<u16> {
        match self {
            Self::Http(core::HTTPGetAction { host: Some(host), .. }) if !host.is_empty() => None,
            Self::Http(get) => port(container, &get.port).ok(),
            Self::Tcp(core::TCPSocketAction { host: Some(host), .. }) if !host.is_empty() => None,
            Self::Tcp(socket) => port(container, &socket.port).ok(),
            Self::Grpc(grpc) => u16::try_from(grpc.port).ok(),
            Self::Exec(_) | Self::ExecVerbatim(_) | Self::Sleep(_) => None,
        }
    }
}

/// The actions of a container.
pub(super) fn all(container: &Container) -> impl Iterator<Item = Action<'_>> {
    let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
    let hooks = container.lifecycle.iter().flat_map(|hooks| [&hooks.post_start, &hooks.pre_stop]);
    let probes = probes.into_iter().flatten().filter_map(Action::of_probe);
    probes.chain(hooks.flatten().filter_map(Action::of_hook))
}

/// Whether an action of a container runs a command there.
pub(super) fn runs_commands(container: &Container) -> bool {
    all(container).any(|action| matches!(action, Action::Exec(_) | Action::ExecVerbatim(_)))
}

fn port(container: &Container, given: &IntOrString) -> Result<u16, String> {
    match given {
        IntOrString::Int(number) => {
            u16::try_from(*number).map_err(|_| format!("invalid port number: {number}"))
        }
        IntOrString::String(name) => {
            let named = container.ports.iter().find(|port| port.name.as_deref() == Some(name.as_str()));
            let number = named.and_then(|port| u16::try_from(port.container_port).ok());
            number.ok_or_else(|| format!("couldn't find port: {name}"))
        }
    }
}

/// The run of a container that actions are for.
pub(super) struct Target {
    /// Where its commands run; `None` if it runs none.
    pub(super) place: Option<Place>,
    /// The variables of the container.
    pub(super) variables: Variables,
    /// Where ports of the container are reached on this machine, if that is elsewhere.
    pub(super) published: BTreeMap<u16, u16>,
}

/// Where a container's commands run.
pub(super) enum Place {
    /// On this host.
    Host {
        supervisor: Arc<Supervisor>,
        directory: Option<PathBuf>,
        /// The mount namespace of the container, if it has one.
        namespace: Option<Namespace>,
    },
    /// In a container of an engine.
    Container(Inside),
}

impl Target {
    /// Has commands find what this process of the container finds, if that has a mount namespace.
    pub(super) fn enter_namespace_of(&mut self, process: &Process) {
        if let Some(Place::Host { namespace: Some(namespace), .. }) = &mut self.place {
            *namespace = process.namespace();
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// What is wrong, in the words of Kubernetes.
    pub(super) async fn perform(&self, container: &Container, action: Action<'_>) -> Result<(), String> {
        match action {
            Action::Exec(command) => {
                let expanded = |word: &String| environment::expand(word, &self.variables);
                self.exec(&command.iter().map(expanded).collect::<Vec<_>>()).await
            }
            Action::ExecVerbatim(command) => self.exec(command).await,
            Action::Http(get) => self.get(container, get).await,
            Action::Tcp(socket) => {
                let port = port(container, &socket.port)?;
                let address = self.address(socket.host.as_deref(), port)?;
                let failed = |error: &dyn std::fmt::Display| format!("dial tcp {address}: {error}");
                let stream = TcpStream::connect(&address).await.map_err(|error| failed(&error))?;
                // The publisher of a port may accept connections before it finds that no program listens.
                let is_elsewhere = socket.host.as_ref().is_some_and(|host| !host.is_empty());
                if is_elsewhere || !self.published.contains_key(&port) {
                    return Ok(());
                }
                match tokio::time::timeout(SECOND_THOUGHTS, stream.peek(&mut [0])).await {
                    Ok(Ok(0)) => Err(failed(&"connection refused")),
                    Ok(Err(error)) => Err(failed(&error)),
                    Ok(Ok(_)) | Err(_) => Ok(()),
                }
            }
            Action::Grpc(grpc) => self.ask_health(grpc).await,
            Action::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }

    async fn exec(&self, command: &[String]) -> Result<(), String> {
        let (code, output) = match &self.place {
            None => return Ok(()),
            Some(Place::Host { supervisor, directory, namespace }) => {
                let Some((program, args)) = command.split_first() else { return Ok(()) };
                let launch = Launch {
                    command: program.clone(),
                    args: args.to_vec(),
                    environment: self.variables.clone(),
                    directory: directory.clone(),
                    namespace: namespace.clone(),
                };
                let process = Process::start(supervisor, launch).await.map_err(|error| error.to_string())?;
                let (exit, output) = process.collect(OUTPUT).await;
                (i64::from(exit.code), output)
            }
            Some(Place::Container(inside)) => inside.exec(command, OUTPUT).await?,
        };
        let output = String::from_utf8_lossy(&output).trim_end().to_owned();
        match (code, output) {
            (0, _) => Ok(()),
            (code, output) if output.is_empty() => Err(format!("command exited with {code}")),
            (_, output) => Err(output),
        }
    }

    /// Where a port is reached: on another host, or on this machine.
    fn address(&self, host: Option<&str>, port: u16) -> Result<String, String> {
        match host.filter(|host| !host.is_empty()) {
            Some(host) => Ok(format!("{host}:{port}")),
            None => {
                let here = self.published.get(&port).copied().unwrap_or(port);
                Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), here).to_string())
            }
        }
    }

    async fn get(&self, container: &Container, get: &core::HTTPGetAction) -> Result<(), String> {
        let address = self.address(get.host.as_deref(), port(container, &get.port)?)?;
        let is_tls = get.scheme.as_deref() == Some("HTTPS");
        let path = get.path.as_deref().unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let scheme = if is_tls { "https" } else { "http" };
        let failed = |error: &dyn std::fmt::Display| format!("Get \"{scheme}://{address}{path}\": {error}");
        let mut request = http::Request::get(&path);
        for header in get.http_headers.iter().flatten() {
            request = request.header(&header.name, &header.value);
        }
        let given = request.headers_ref().cloned().unwrap_or_default();
        for (name, value) in [(HOST, address.as_str()), (USER_AGENT, "kube-probe/1.36"), (ACCEPT, "*/*")] {
            if !given.contains_key(&name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
        let stream = TcpStream::connect(&address).await;
        let stream = stream.map_err(|error| failed(&format!("dial tcp {address}: {error}")))?;
        let status = if is_tls {
            let stream = unverified_tls::connect(stream).await.map_err(|error| failed(&error))?;
            ask(TokioIo::new(stream), request).await
        } else {
            ask(TokioIo::new(stream), request).await
        };
        match status.map_err(|error| failed(&error))? {
            200..400 => Ok(()),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        }
    }

    async fn ask_health(&self, grpc: &core::GRPCAction) -> Result<(), String> {
        let port = u16::try_from(grpc.port).map_err(|_| format!("invalid port number: {}", grpc.port))?;
        let address = self.address(None, port)?;
        let failed = |error: String| format!("service unhealthy (cannot be asked at {address}: {error})");
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
        let channel = endpoint.map_err(|error| failed(error.to_string()))?.connect().await;
        let mut client = HealthClient::new(channel.map_err(|error| failed(error.to_string()))?);
        let request = HealthCheckRequest { service: grpc.service.clone().unwrap_or_default() };
        let answer = client.check(request).await.map_err(|error| failed(error.message().to_owned()))?;
        match answer.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            other => Err(format!("service unhealthy (responded with {:?})", other.as_str_name())),
        }
    }
}

/// The status of the answer to one request.
async fn ask<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<u16, hyper::Error>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        // A server that answers slowly is not well; how the answer ends does not matter.
        let _body = Limited::new(response.into_body(), BODY).collect().await;
        Ok(status)
    };
    tokio::select! {
        answer = answer => answer,
        Err(error) = connection => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn target(published: &[(u16, u16)]) -> Target {
        Target { place: None, variables: Variables::new(), published: published.iter().copied().collect() }
    }

    /// A server of one answer, and its port.
    async fn answers(text: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 1024];
                let read = stream.read(&mut asked).await.unwrap();
                assert!(String::from_utf8_lossy(&asked[..read]).starts_with("GET /healthz HTTP/1.1\r\n"));
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        port
    }

    async fn asked(target: &Target, get: serde_json::Value) -> Result<(), String> {
        let get: core::HTTPGetAction = serde_json::from_value(get).unwrap();
        let ports = json!({"name": "c", "ports": [{"name": "web", "containerPort": 80}]});
        let container: Container = serde_json::from_value(ports).unwrap();
        target.perform(&container, Action::Http(&get)).await
    }

    #[tokio::test]
    async fn a_status_below_400_is_well() {
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok(())),
            ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", Ok(())),
            (
                "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
                Err("HTTP probe failed with statuscode: 503".to_owned()),
            ),
        ] {
            let port = answers(answer).await;
            let by_number = asked(&target(&[]), json!({"port": port, "path": "/healthz"})).await;
            assert_eq!(by_number, expected);
            let by_name = asked(&target(&[(80, port)]), json!({"port": "web", "path": "healthz"})).await;
            assert_eq!(by_name, expected);
        }
    }

    #[tokio::test]
    async fn a_connection_that_its_publisher_ends_at_once_is_none() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let socket: core::TCPSocketAction = serde_json::from_value(json!({"port": 80})).unwrap();
        let outcome = target(&[(80, port)]).perform(&Container::default(), Action::Tcp(&socket)).await;
        assert!(outcome.is_err());
    }

    #[tokio::test]
    async fn nobody_and_no_port_are_failures() {
        let refused = asked(&target(&[]), json!({"port": 1})).await.unwrap_err();
        assert!(refused.starts_with("Get \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: "), "{refused}");
        let unknown = asked(&target(&[]), json!({"port": "admin"})).await.unwrap_err();
        assert_eq!(unknown, "couldn't find port: admin");
        let socket: core::TCPSocketAction = serde_json::from_value(json!({"port": 1})).unwrap();
        let refused = target(&[]).perform(&Container::default(), Action::Tcp(&socket)).await.unwrap_err();
        assert!(refused.starts_with("dial tcp 127.0.0.1:1: "), "{refused}");
        let grpc: core::GRPCAction = serde_json::from_value(json!({"port": 1})).unwrap();
        assert!(target(&[]).perform(&Container::default(), Action::Grpc(&grpc)).await.is_err());
    }
}
