//! The names and addresses under which a server may be reached.

use std::net::IpAddr;

/// The host names and addresses of one server, for its certificate and to compare with the `Host` header of
/// requests.
#[derive(Clone, Debug)]
pub(crate) struct HostNames {
    /// In lower case.
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl HostNames {
    /// The names of a server that listens on `address`, and `further` ones.
    pub(crate) fn new(address: IpAddr, further: &[String]) -> Self {
        let mut names = Self { names: vec!["localhost".into()], addresses: Vec::new() };
        names.addresses.extend([IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into()]);
        if address.is_unspecified() {
            names.addresses.extend(interfaces());
        } else if !names.addresses.contains(&address) {
            names.addresses.push(address);
        }
        if !address.is_loopback()
            && let Ok(own) = hostname::get()
        {
            names.names.extend(own.into_string().ok().filter(|name| is_name(name)));
        }
        for one in further {
            match one.trim_matches(['[', ']']).parse() {
                Ok(address) => names.addresses.push(address),
                Err(_) => names.names.push(one.clone()),
            }
        }
        names.names.iter_mut().for_each(|name| name.make_ascii_lowercase());
        names
    }

    /// All names and addresses.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        self.names.iter().cloned().chain(self.addresses.iter().map(ToString::to_string))
    }

    /// An address under which other hosts reach the server, if it has one.
    pub(crate) fn remote_address(&self) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| !address.is_loopback())
    }

    /// Whether the host of a URL names this server. Every loopback address does: no other host has it.
    pub(crate) fn contains(&self, host: &str) -> bool {
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.addresses.contains(&address),
            Err(_) => {
                let host = host.strip_suffix('.').unwrap_or(host);
                self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// Whether a text is a host name or an IP address, as a certificate can hold it.
pub fn is_host(text: &str) -> bool {
    text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || is_name(text)
}

/// Whether a text can be a host name in a certificate.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The addresses of this machine's interfaces, except loopback. Addresses that need a zone are left out,
/// since no certificate can hold them.
pub(crate) fn interfaces() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    let mut addresses: Vec<IpAddr> = all
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
        })
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_loopback(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        })
        .collect();
    // Most networks have IPv4.
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_is_known_by_loopback_names_alone() {
        let names = HostNames::new([127, 0, 0, 1].into(), &[]);
        for host in ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.9.10", "[::1]", "::1"] {
            assert!(names.contains(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
        {
            assert!(!names.contains(host), "{host}");
        }
        assert_eq!(names.remote_address(), None);
    }

    #[test]
    fn a_server_for_others_is_known_by_its_address_and_its_further_names() {
        let further = ["Jobs.example.com".to_owned(), "[2001:db8::1]".to_owned()];
        let names = HostNames::new([192, 0, 2, 1].into(), &further);
        for host in ["192.0.2.1", "jobs.example.com", "[2001:db8::1]", "localhost"] {
            assert!(names.contains(host), "{host}");
        }
        assert!(!names.contains("example.com") && !names.contains("192.0.2.2"));
        assert_eq!(names.remote_address(), Some([192, 0, 2, 1].into()));
        assert!(names.all().any(|name| name == "2001:db8::1"));
    }

    #[test]
    fn names_of_certificates() {
        for name in ["a", "node-1", "a.b-c.d9"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "-a", "a-", "a..b", "é", "*.a", "a/b", "a:1"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
