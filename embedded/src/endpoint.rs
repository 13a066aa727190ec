//! Where and how clients reach the server, as a kubeconfig tells them.

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

/// The address of a server and its certificate authority.
pub(crate) struct Endpoint {
    url: Uri,
    /// In PEM and DER; `None` without TLS.
    authority: Option<(String, Vec<u8>)>,
}

impl Endpoint {
    /// The endpoint of a server that listens on `address`, with TLS if it has an authority. `None` if no client
    /// can be given this address.
    pub(crate) fn new(
        mut address: SocketAddr,
        names: &HostNames,
        authority: Option<&CertificateAuthority>,
    ) -> Option<Self> {
        if address.ip().is_unspecified() {
            address.set_ip(names.remote_address().unwrap_or(Ipv4Addr::LOCALHOST.into()));
        }
        let scheme = if authority.is_some() { "https" } else { "http" };
        let authority = authority.map(|authority| (authority.pem().to_owned(), authority.der().to_vec()));
        let url = Uri::builder().scheme(scheme).authority(address.to_string()).path_and_query("/").build();
        Some(Self { url: url.ok()?, authority })
    }

    /// The address without a final slash, such as `http://127.0.0.1:34567`.
    pub(crate) fn url(&self) -> String {
        let text = self.url.to_string();
        text.strip_suffix('/').map(str::to_owned).unwrap_or(text)
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &str {
        self.url.scheme_str().unwrap_or_default()
    }

    /// A configuration for clients in this process. Nothing in the environment changes it: no proxy sees the
    /// requests.
    pub(crate) fn client_config(&self, token: Option<SecretString>) -> kube::Config {
        let mut config = kube::Config::new(self.url.clone());
        config.root_cert = self.authority.as_ref().map(|(_, der)| vec![der.clone()]);
        config.auth_info.token = token;
        config
    }

    /// A kubeconfig.
    pub(crate) fn kubeconfig(&self, token: Option<SecretString>) -> Kubeconfig {
        let cluster = Cluster {
            server: Some(self.url()),
            certificate_authority_data: self.authority.as_ref().map(|(pem, _)| STANDARD.encode(pem)),
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
