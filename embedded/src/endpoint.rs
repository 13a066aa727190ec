//! Where and how clients reach the server, as a kubeconfig says.

use std::net::{Ipv4Addr, SocketAddr};

use http::Uri;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use secrecy::SecretString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::host_names::HostNames;
use crate::tls::CertificateAuthority;

/// The name of everything in a kubeconfig.
const NAME: &str = "yardmaster";

/// The addresses of a server and its certificate authority.
pub(crate) struct Endpoint {
    address: SocketAddr,
    url: Uri,
    secure_url: Uri,
    /// In PEM and DER; `None` without TLS.
    authority: Option<(String, Vec<u8>)>,
}

impl Endpoint {
    /// The endpoint of a server that listens on `address`, with TLS if it has an authority. Returns `None` if
    /// the address cannot be part of a URL.
    pub(crate) fn new(
        mut address: SocketAddr,
        names: &HostNames,
        authority: Option<&CertificateAuthority>,
        in_clear: bool,
    ) -> Option<Self> {
        if address.ip().is_unspecified() {
            address.set_ip(names.remote_address().unwrap_or(Ipv4Addr::LOCALHOST.into()));
        }
        let url = |scheme: &str| {
            Uri::builder().scheme(scheme).authority(address.to_string()).path_and_query("/").build().ok()
        };
        Some(Self {
            address,
            url: url(if in_clear { "http" } else { "https" })?,
            secure_url: url(if authority.is_some() { "https" } else { "http" })?,
            authority: authority.map(|authority| (authority.pem().to_owned(), authority.der().to_vec())),
        })
    }

    /// An address that clients can connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate authority in PEM; `None` without TLS.
    pub(crate) fn authority(&self) -> Option<&str> {
        self.authority.as_ref().map(|(pem, _)| pem.as_str())
    }

    /// The address without a final slash, such as `http://127.0.0.1:34567`: in clear if the server accepts
    /// that.
    pub(crate) fn url(&self) -> String {
        without_slash(&self.url)
    }

    /// The address over TLS, if the server has TLS.
    pub(crate) fn secure_url(&self) -> String {
        without_slash(&self.secure_url)
    }

    /// A configuration for clients in this process. Nothing in the environment changes it: no proxy sees the
    /// requests.
    pub(crate) fn client_config(&self, token: Option<SecretString>) -> kube::Config {
        let mut config = kube::Config::new(self.url.clone());
        config.root_cert = self.authority.as_ref().map(|(_, der)| vec![der.clone()]);
        config.auth_info.token = token;
        config
    }

    /// A kubeconfig with one of the addresses.
    pub(crate) fn kubeconfig(&self, url: &str, token: Option<SecretString>) -> Kubeconfig {
        let authority = self.authority.as_ref().filter(|_| url.starts_with("https:"));
        let cluster = Cluster {
            server: Some(url.to_owned()),
            certificate_authority_data: authority.map(|(pem, _)| STANDARD.encode(pem)),
            ..Cluster::default()
        };
        let user = AuthInfo { token, ..AuthInfo::default() };
        let context = Context { cluster: NAME.into(), user: Some(NAME.into()), ..Context::default() };
        Kubeconfig {
            api_version: Some("v1".into()),
            kind: Some("Config".into()),
            clusters: vec![NamedCluster {
                name: NAME.into(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.into(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: NAME.into(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some(NAME.into()),
            ..Kubeconfig::default()
        }
    }
}

fn without_slash(url: &Uri) -> String {
    let text = url.to_string();
    text.strip_suffix('/').map(str::to_owned).unwrap_or(text)
}
