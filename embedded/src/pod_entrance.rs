//! The way of pods to the API server: over TLS, with the tokens of their ServiceAccounts.
//!
//! Processes of this host take the port of all clients. The loopback address of a container is its own, so
//! containers need a port at an address that this host has in their network. It is opened for the first of
//! them. Other programs reach it, too, so it accepts no other token, and no request without one.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::connections::{HttpLimits, Places, Port, Transport};
use crate::door::{Admits, Door};
use crate::host_names::HostNames;
use crate::http;
use crate::server::Server;
use crate::tls::{CertificateAuthority, TlsError};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Containers take no more than a quarter of the files that this process may open, so that other clients have room.
const PART_OF_FILES: u64 = 4;

/// The way of pods to one API server. Copies share its ports.
#[derive(Clone)]
pub struct PodEntrance(Arc<Entrances>);

struct Entrances {
    server: Arc<Server>,
    authority: CertificateAuthority,
    address: SocketAddr,
    limits: HttpLimits,
    /// Of all ports: a namespace with a Service has a network, and authors of pods choose how many there are.
    places: Places,
    tasks: TaskTracker,
    /// The ports that are open, by their address.
    ports: Mutex<HashMap<IpAddr, SocketAddr>>,
}

/// Why a network has no port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodEntranceError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] std::io::Error),
    /// There is no certificate for the address.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl PodEntrance {
    /// The way to a server that listens on `address`, where it speaks TLS among others.
    pub(crate) fn new(
        server: Arc<Server>,
        authority: CertificateAuthority,
        address: SocketAddr,
        limits: HttpLimits,
        tasks: TaskTracker,
    ) -> Self {
        let places = Places::new(&limits, PART_OF_FILES);
        Self(Arc::new(Entrances {
            server,
            authority,
            address,
            limits,
            places,
            tasks,
            ports: Mutex::default(),
        }))
    }

    /// The address for processes of this host.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The address for containers in whose network this host has the address `host`. It need not have it yet:
    /// some engines set up a network with its first container.
    pub(crate) async fn address_in_network(&self, host: IpAddr) -> Result<SocketAddr, PodEntranceError> {
        let mut ports = self.0.ports.lock().await;
        if let Some(open) = ports.get(&host) {
            return Ok(*open);
        }
        let listener = listen(host)?;
        let address = listener.local_addr()?;
        let names = HostNames::new(host, &[]);
        let tls = self.0.authority.server_config(&names)?;
        let port = Port {
            listener,
            transport: Transport::Tls(TlsAcceptor::from(Arc::new(tls))),
            limits: self.0.limits,
            places: self.0.places.clone(),
            stop: self.0.server.stop.clone(),
            tasks: self.0.tasks.clone(),
        };
        let (server, door) = (Arc::clone(&self.0.server), Arc::new(Door { names, admits: Admits::Accounts }));
        let handle = move |request, connection| {
            http::handle(Arc::clone(&server), request, connection, Arc::clone(&door))
        };
        tokio::spawn(port.serve(handle));
        ports.insert(host, address);
        Ok(address)
    }
}

fn listen(address: IpAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    sockopt::set_ip_freebind(&socket, true)?;
    socket.bind((address, 0).into())?;
    socket.listen(BACKLOG)
}

impl fmt::Debug for PodEntrance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PodEntrance({})", self.0.address)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use k8s_openapi::api::authentication::v1::TokenRequest;
    use k8s_openapi::api::core::v1::ServiceAccount;
    use kube::api::{Api, PostParams};
    use tokio::net::TcpStream;

    use crate::{ApiServer, ApiServerConfig, HttpLimits};

    /// Each port holds the place for its next connection.
    #[tokio::test]
    async fn the_ports_of_all_networks_share_their_connections() {
        let limits =
            HttpLimits { connections: 4, arrival: Duration::from_secs(600), ..HttpLimits::default() };
        let config = ApiServerConfig { limits, ..ApiServerConfig::default() };
        let server = ApiServer::start(config).await.unwrap();
        let entrance = server.pod_entrance().unwrap();
        let mut addresses = Vec::new();
        for last in [2, 3] {
            addresses.push(entrance.address_in_network([127, 0, 0, last].into()).await.unwrap());
        }
        let mut open = Vec::new();
        for address in addresses {
            for _ in 0..4 {
                open.push(TcpStream::connect(address).await.unwrap());
            }
        }
        // The server speaks first to none of them: it closes the accepted ones when it stops.
        let free = || entrance.0.places.free();
        let deadline = Instant::now() + Duration::from_secs(60);
        while free() > 0 {
            assert!(Instant::now() < deadline, "{} places are free", free());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(open);
        while free() < 2 {
            assert!(Instant::now() < deadline, "{} places are free", free());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_port_of_a_network_takes_tokens_of_accounts_alone() {
        let server = ApiServer::start(ApiServerConfig::default()).await.unwrap();
        let entrance = server.pod_entrance().unwrap();
        let host = [127, 0, 0, 2].into();
        let address = entrance.address_in_network(host).await.unwrap();
        assert_eq!(address.ip(), host);
        assert_eq!(entrance.address_in_network(host).await.unwrap(), address, "one port for each network");

        let owner = kube::Client::try_from(server.client_config()).unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(owner, "default");
        let request = (PostParams::default(), TokenRequest::default());
        let issued = accounts.create_token_request("default", &request.0, &request.1).await.unwrap();
        let account = issued.status.unwrap().token.unwrap();
        // The authority that pods get vouches for the address.
        let code = async |token: Option<&str>, path: &str| {
            let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
            config.root_cert = server.client_config().root_cert;
            config.auth_info.token = token.map(|token| token.to_owned().into());
            let request = http::Request::get(path).body(Vec::new().into()).unwrap();
            kube::Client::try_from(config).unwrap().send(request).await.unwrap().status().as_u16()
        };
        let (secrets, owner) = ("/api/v1/namespaces/default/secrets", server.token().unwrap().expose());
        for (token, path, expected) in [
            (None, "/healthz", 401),
            (None, secrets, 401),
            (Some("wrong"), secrets, 401),
            (Some(owner), secrets, 401),
            (Some(&*account), "/healthz", 200),
            (Some(&*account), secrets, 403),
        ] {
            assert_eq!(code(token, path).await, expected, "{path}");
        }
        server.shutdown().await;
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
