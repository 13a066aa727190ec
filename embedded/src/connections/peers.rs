//! The peer of a connection, as far as it is known before it sends anything.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    /// The client's.
    pub(super) peer: SocketAddr,
    /// Ours.
    pub(super) own: SocketAddr,
}

impl Ends {
    /// Whether the client is on this host. Then its address is loopback, or the one that it connects to.
    pub(super) fn is_local(self) -> bool {
        let peer = self.peer.ip().to_canonical();
        peer.is_loopback() || peer == self.own.ip().to_canonical()
    }

    /// The same ends in plain IPv4. A dual-stack socket shows IPv4 addresses within IPv6.
    fn canonical(self) -> Self {
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        Self { peer: canonical(self.peer), own: canonical(self.own) }
    }
}

/// A user or a host, whose connections share one allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// A user of this host. The address does not identify the user: all users may use all of 127.0.0.0/8.
    User(u32),
    /// A host, or a network of IPv6, of which one host has many addresses.
    Host(IpAddr),
}

impl Peer {
    /// The peer of a connection. `user` is the user of a client on this host, if known.
    pub(super) fn of(ends: Ends, user: Option<u32>) -> Self {
        if let Some(user) = user {
            return Self::User(user);
        }
        Self::Host(match ends.peer.ip().to_canonical() {
            address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// The users of these connections' clients on this host. The host's sockets are read once for all of them.
pub(super) fn users(of: &[Ends]) -> HashMap<Ends, u32> {
    let wanted: HashMap<Ends, Ends> = of.iter().map(|ends| (ends.canonical(), *ends)).collect();
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let sockets = tables.into_iter().flat_map(Result::unwrap_or_default);
    let found = sockets.filter_map(|socket| {
        // The client's own socket: its local end is the peer. Without an inode, no process holds it any more.
        let ends = Ends { peer: socket.local_address, own: socket.remote_address }.canonical();
        wanted.get(&ends).filter(|_| socket.inode != 0).map(|ends| (*ends, socket.uid))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_client_on_this_host_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            // Hosts may be without IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if address.contains("::1") { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((host, port)).unwrap();
            let (stream, peer) = listener.accept().unwrap();
            let ends = Ends { peer, own: stream.local_addr().unwrap() };
            let own = rustix::process::getuid().as_raw();
            assert_eq!(users(&[ends]), [(ends, own)].into(), "{address}");
            drop(client);
            assert!(users(&[ends]).is_empty(), "{address}");
        }
    }

    #[test]
    fn hosts_are_told_apart_and_addresses_of_one_are_not() {
        let peer = |address: &str| {
            let peer = address.parse().unwrap();
            Peer::of(Ends { peer, own: "10.0.0.1:443".parse().unwrap() }, None)
        };
        for (one, other, same) in [
            ("127.0.0.1:1", "127.9.9.9:2", true),
            ("127.0.0.1:1", "[::1]:1", true),
            ("10.0.0.2:1", "[::ffff:10.0.0.2]:2", true),
            ("10.0.0.2:1", "10.0.0.3:1", false),
            ("[2001:db8::1]:1", "[2001:db8::2:0:0:1]:1", true),
            ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false),
        ] {
            assert_eq!(peer(one) == peer(other), same, "{one} {other}");
        }
    }
}
