//! The network between a client and a server: proxies, and connections that have died.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::server::Authority;

/// Forwards connections until they are killed. The first killed connection that is used is reset. The others
/// accept requests without a word, as the system does on both sides of a router that has forgotten them.
pub(super) struct Dead {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    /// Connections with smaller numbers are dead.
    dead: AtomicUsize,
    used_after_death: AtomicUsize,
}

impl Dead {
    pub(super) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<State>::default());
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(forward(client, server, number, shared.clone()));
            }
        });
        Self { address, state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn kill(&self) {
        self.state.dead.store(self.connections(), Ordering::SeqCst);
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(super) fn used_after_death(&self) -> usize {
        self.state.used_after_death.load(Ordering::SeqCst)
    }
}

async fn forward(client: TcpStream, server: SocketAddr, number: usize, state: Arc<State>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut client, mut up, mut down) = (client, vec![0; 4096], vec![0; 4096]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(read @ 1..) = read else { return };
                if number < state.dead.load(Ordering::SeqCst) {
                    if state.used_after_death.fetch_add(1, Ordering::SeqCst) == 0 {
                        client.set_zero_linger().unwrap();
                        return;
                    }
                    return std::future::pending().await;
                }
                server.write_all(&up[..read]).await.unwrap();
            }
            read = server.read(&mut down) => {
                let Ok(read @ 1..) = read else { return };
                client.write_all(&down[..read]).await.unwrap();
            }
        }
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Http,
    HttpOverTls,
    Socks5,
    /// HTTP, and it wants other credentials.
    Refusal,
    Nothing,
}

/// A proxy that leads to one server, for every requested host.
pub(super) struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Proxy {
    pub(super) async fn start(speaks: Speaks, server: SocketAddr, authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let (noted, tls) = (asked.clone(), TlsAcceptor::from(authority.server()));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (noted, tls) = (noted.clone(), tls.clone());
                tokio::spawn(async move {
                    let mut client: Box<dyn Io> = match speaks {
                        Speaks::HttpOverTls => Box::new(tls.accept(client).await.unwrap()),
                        Speaks::Nothing => return std::future::pending().await,
                        _ => Box::new(client),
                    };
                    let asked = match speaks {
                        Speaks::Socks5 => socks(&mut client).await,
                        _ => connect(&mut client, speaks).await,
                    };
                    noted.lock().unwrap().push(asked);
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ended = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, asked }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `HOST:PORT[ USER:PASSWORD]` for each connection.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn connect(client: &mut (impl Io + ?Sized), speaks: Speaks) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let host = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
    let basic = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: Basic "));
    let basic = basic.map(|text| String::from_utf8(STANDARD.decode(text).unwrap()).unwrap());
    let answer = match speaks {
        Speaks::Refusal => "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
        _ => "HTTP/1.1 200 Connection established\r\n\r\n",
    };
    client.write_all(answer.as_bytes()).await.unwrap();
    format!("{host}{}", basic.map(|basic| format!(" {basic}")).unwrap_or_default())
}

/// RFC 1928, and RFC 1929 where the client has credentials.
async fn socks(client: &mut (impl Io + ?Sized)) -> String {
    assert_eq!(client.read_u8().await.unwrap(), 5);
    let methods = bytes(client).await;
    let (authorizes, mut credentials) = (methods.contains(&2), String::new());
    client.write_all(&[5, if authorizes { 2 } else { 0 }]).await.unwrap();
    if authorizes {
        assert_eq!(client.read_u8().await.unwrap(), 1);
        let (user, password) = (text(client).await, text(client).await);
        credentials = format!(" {user}:{password}");
        client.write_all(&[1, 0]).await.unwrap();
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request, [5, 1, 0, 3], "connect to a name");
    let (host, port) = (text(client).await, client.read_u16().await.unwrap());
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    format!("{host}:{port}{credentials}")
}

async fn bytes(client: &mut (impl Io + ?Sized)) -> Vec<u8> {
    let mut read = vec![0; client.read_u8().await.unwrap().into()];
    client.read_exact(&mut read).await.unwrap();
    read
}

async fn text(client: &mut (impl Io + ?Sized)) -> String {
    String::from_utf8(bytes(client).await).unwrap()
}
