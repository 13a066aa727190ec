//! Which proxy leads to a host.
//!
//! The environment is read as by Go programs, kubectl included: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`,
//! in upper or lower case. Loopback never has a proxy. `ALL_PROXY` stands in for those that are not set.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::Authority;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// A proxy, with the credentials that its address holds.
#[derive(Clone)]
pub struct Proxy {
    given: Uri,
    read: Intercept,
}

/// The protocol between a client and its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP in clear.
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS 5. The proxy resolves names.
    Socks5,
}

/// An address that names no proxy. It is not repeated, since it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: http://, https:// or socks5:// with HOST:PORT is expected")]
pub struct ProxyError {
    /// Where the address stands, such as the name of a variable.
    pub place: String,
}

impl Proxy {
    /// Reads the address of a proxy. Without a scheme it is that of an HTTP proxy. `place` says in errors where the
    /// address stands.
    ///
    /// # Errors
    /// When the address is none, or has a scheme other than `http`, `https`, `socks5` and `socks5h`.
    pub fn read(address: &str, place: &str) -> Result<Self, ProxyError> {
        // The matcher answers for any host. It reads the address and the credentials in it.
        let any = Uri::from_static("https://host");
        let error = || ProxyError { place: place.to_owned() };
        let given = address.trim().parse().map_err(|_| error())?;
        let read = Matcher::builder().all(address.trim()).build().intercept(&any);
        let read = read.filter(|read| scheme(read.uri()).is_some()).ok_or_else(error)?;
        Ok(Self { given, read })
    }

    /// The proxy that the environment names for a server; `None`: it is reached without one.
    ///
    /// # Errors
    /// When the variable for this server names no proxy.
    pub fn of_environment(server: &Uri) -> Result<Option<Self>, ProxyError> {
        Self::chosen(server, |name| std::env::var(name).ok())
    }

    fn chosen(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ProxyError> {
        let set = |name: &str| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            names
                .into_iter()
                .find_map(|name| Some((variable(&name).filter(|value| !value.is_empty())?, name)))
        };
        let by_scheme = if is_secure(server) { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let Some((address, name)) = set(by_scheme).or_else(|| set("ALL_PROXY")) else { return Ok(None) };
        let without = set("NO_PROXY").map(|(entries, _)| entries).unwrap_or_default();
        if is_without_proxy(server, &without) {
            return Ok(None);
        }
        Self::read(&address, &name).map(Some)
    }

    /// Its address as it was given, with the credentials.
    pub fn given(&self) -> &Uri {
        &self.given
    }

    /// The protocol that the proxy speaks.
    pub fn scheme(&self) -> Scheme {
        scheme(self.read.uri()).unwrap_or(Scheme::Http)
    }

    /// Where it is, with its port.
    pub fn address(&self) -> Uri {
        let mut parts = self.read.uri().clone().into_parts();
        let default = match self.scheme() {
            Scheme::Http => 80,
            Scheme::Https => 443,
            Scheme::Socks5 => 1080,
        };
        let with_port = |authority: &Authority| match authority.port() {
            Some(_) => Ok(authority.clone()),
            None => format!("{authority}:{default}").parse(),
        };
        parts.authority = parts.authority.and_then(|authority| with_port(&authority).ok());
        Uri::from_parts(parts).unwrap_or_else(|_| self.read.uri().clone())
    }

    /// The credentials.
    pub(super) fn intercept(&self) -> &Intercept {
        &self.read
    }
}

/// Without the credentials.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(self.read.uri()).finish()
    }
}

fn scheme(address: &Uri) -> Option<Scheme> {
    match address.scheme_str() {
        Some("http") => Some(Scheme::Http),
        Some("https") => Some(Scheme::Https),
        Some("socks5" | "socks5h") => Some(Scheme::Socks5),
        _ => None,
    }
}

fn is_secure(server: &Uri) -> bool {
    server.scheme_str() == Some("https")
}

/// Whether the server is on loopback, or an entry of `NO_PROXY` exempts it.
fn is_without_proxy(server: &Uri, entries: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(if is_secure(server) { 443 } else { 80 });
    let on_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") || on_loopback {
        return true;
    }
    let entries: Vec<_> = entries.split(',').filter_map(|entry| for_port(entry.trim(), port)).collect();
    // The matcher does not take it for addresses.
    if entries.contains(&"*") {
        return true;
    }
    // The matcher also takes the domain itself for one of its own subdomains, as curl does.
    let only_below = |entry: &&str| !entry.strip_prefix('.').is_some_and(|d| d.eq_ignore_ascii_case(host));
    let entries: Vec<_> = entries.into_iter().filter(only_below).collect();
    // Any proxy does: the question is whether it is asked.
    let matcher = Matcher::builder().all("http://proxy").no(entries.join(",")).build();
    matcher.intercept(server).is_none()
}

/// An entry of `NO_PROXY` without its port, if it is for this port: the matcher knows no ports, and no `*.DOMAIN`.
fn for_port(entry: &str, port: u16) -> Option<&str> {
    let is_address = entry.contains('/') || entry.parse::<IpAddr>().is_ok();
    let host = match entry.rsplit_once(':').filter(|_| !is_address) {
        Some((host, only)) if !host.ends_with(':') && only.parse::<u16>().is_ok() => {
            (only.parse() == Ok(port)).then_some(host)?
        }
        _ => entry,
    };
    let host = host.trim_matches(['[', ']']);
    Some(host.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PROXY: &str = "http://proxy:3128";

    fn chosen(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let of =
            |name: &str| variables.iter().find(|(at, _)| *at == name).map(|(_, value)| (*value).to_owned());
        let proxy = Proxy::chosen(&server.parse().unwrap(), of).unwrap();
        proxy.map(|proxy| proxy.address().authority().unwrap().to_string())
    }

    #[test]
    fn the_variable_of_the_scheme_names_the_proxy_in_upper_or_lower_case() {
        let one = |server, name, value| chosen(server, &[(name, value)]);
        assert_eq!(one("https://host:6443", "HTTPS_PROXY", PROXY).as_deref(), Some("proxy:3128"));
        assert_eq!(one("https://host:6443", "https_proxy", PROXY).as_deref(), Some("proxy:3128"));
        assert_eq!(one("https://host:6443", "HTTP_PROXY", PROXY), None, "for servers in clear");
        assert_eq!(one("http://host:8080", "HTTP_PROXY", PROXY).as_deref(), Some("proxy:3128"));
        assert_eq!(one("http://host:8080", "HTTPS_PROXY", PROXY), None);
        assert_eq!(one("https://host", "all_proxy", "socks5://proxy").as_deref(), Some("proxy:1080"));
        assert_eq!(one("https://host", "HTTPS_PROXY", "proxy:3128").as_deref(), Some("proxy:3128"));
        assert_eq!(one("https://host", "HTTPS_PROXY", "https://u:p%40@proxy").as_deref(), Some("proxy:443"));
        assert_eq!(one("https://host", "HTTPS_PROXY", ""), None);
        let both = [("HTTPS_PROXY", ""), ("https_proxy", PROXY), ("ALL_PROXY", "http://other")];
        assert_eq!(chosen("https://host", &both).as_deref(), Some("proxy:3128"), "an empty one is not set");
    }

    #[test]
    fn no_proxy_exempts_hosts_networks_domains_and_ports() {
        let exempt = |server: &str, entries: &str| {
            chosen(server, &[("HTTPS_PROXY", PROXY), ("NO_PROXY", entries)]).is_none()
        };
        for (server, entries, expected) in [
            ("https://10.96.0.1:443", "10.0.0.0/8", true),
            ("https://10.96.0.1:443", "192.168.0.0/16, 10.96.0.1", true),
            ("https://10.96.0.1:443", "10.96.0.2,10.97.0.0/16", false),
            ("https://10.96.0.1:443", "10.96.0.1:443", true),
            ("https://10.96.0.1:443", "10.96.0.1:6443", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "[fd00::1]:443", false),
            ("https://api.example.com:6443", "example.com", true),
            ("https://api.example.com:6443", "EXAMPLE.com", true),
            ("https://api.example.com:6443", ".example.com", true),
            ("https://api.example.com:6443", "*.example.com", true),
            ("https://api.example.com:6443", "example.com:6443", true),
            ("https://api.example.com:6443", "example.com:443", false),
            ("https://api.example.com:6443", "ple.com", false),
            ("https://example.com", "example.com", true),
            ("https://example.com", "example.com:443", true),
            ("https://example.com", ".example.com", false),
            ("https://example.com", "*.example.com", false),
            ("https://notexample.com", "example.com", false),
            ("https://kubernetes.default.svc", "localhost,.svc,.cluster.local", true),
            ("https://api.example.com", "*", true),
            ("https://192.0.2.1", "a,*", true),
            ("https://api.example.com", " ,", false),
        ] {
            assert_eq!(exempt(server, entries), expected, "{server} with NO_PROXY={entries}");
        }
    }

    #[test]
    fn loopback_is_never_reached_through_a_proxy_of_the_environment() {
        for server in
            ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443", "https://127.1.2.3"]
        {
            assert_eq!(chosen(server, &[("HTTPS_PROXY", PROXY), ("ALL_PROXY", PROXY)]), None, "{server}");
        }
        let wrong = |name: &str| (name == "HTTPS_PROXY").then(|| "no proxy".to_owned());
        assert!(Proxy::chosen(&Uri::from_static("https://localhost"), wrong).unwrap().is_none(), "not read");
    }

    #[test]
    fn an_address_that_names_no_proxy_is_refused_without_its_password() {
        for address in
            ["ftp://u:secret@proxy", "socks4://u:secret@proxy:1080", "http://", "not a proxy", "/proxy"]
        {
            let error = Proxy::read(address, "HTTPS_PROXY").unwrap_err().to_string();
            let expected = "HTTPS_PROXY: http://, https:// or socks5:// with HOST:PORT is expected";
            assert_eq!(error, expected, "{address}");
        }
        let schemes = ["http://p:1", "https://p:1", "socks5://p:1", "socks5h://p:1"];
        let read = schemes.map(|address| Proxy::read(address, "").unwrap().scheme());
        assert_eq!(read, [Scheme::Http, Scheme::Https, Scheme::Socks5, Scheme::Socks5]);
    }
}
