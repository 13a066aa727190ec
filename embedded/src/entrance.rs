//! How clients connect: under which names, over TLS or in clear, and with which token.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use crate::authentication::{Authentication, Token};
use crate::connections::Transport;
use crate::credentials::Credentials;
use crate::door::{Admits, Door};
use crate::endpoint::Endpoint;
use crate::host_names::HostNames;
use crate::tls::CertificateAuthority;
use crate::{ApiServerConfig, EmbeddedError};

/// The entrance of one server.
pub(crate) struct Entrance {
    /// The names of the port, and the senders that it admits.
    pub(crate) door: Door,
    /// The protocols that the server accepts.
    pub(crate) transport: Transport,
    /// Where and how clients reach the server.
    pub(crate) endpoint: Endpoint,
    /// The authority that vouches for the server; `None` without TLS.
    pub(crate) authority: Option<CertificateAuthority>,
    /// The owner's token; `None` if requests need no token.
    pub(crate) owner: Option<Token>,
    /// The secret by which the tokens of ServiceAccounts are signed.
    pub(crate) account_secret: Token,
}

impl Entrance {
    /// The entrance of a server that listens on `address`. A data directory keeps the generated token and the
    /// certificate authority.
    pub(crate) fn open(config: &ApiServerConfig, address: SocketAddr) -> Result<Self, EmbeddedError> {
        let credentials = config.data_dir.as_deref().map(Credentials::open).transpose()?;
        let names = HostNames::new(address.ip(), &config.host_names);
        let authority = match &credentials {
            _ if matches!(config.authentication, Authentication::Anonymous) => None,
            Some(credentials) => Some(CertificateAuthority::open(credentials)?),
            None => Some(CertificateAuthority::generate()?),
        };
        let tls = authority.as_ref().map(|authority| authority.server_config(&names)).transpose()?;
        let transport = match tls.map(|config| TlsAcceptor::from(Arc::new(config))) {
            None => Transport::Clear,
            Some(tls) if is_remote(address) => Transport::Tls(tls),
            Some(tls) => Transport::Either(tls),
        };
        let in_clear = !matches!(transport, Transport::Tls(_));
        let endpoint = Endpoint::new(address, &names, authority.as_ref(), in_clear);
        let unusable = EmbeddedError::Listen { address, source: ErrorKind::InvalidInput.into() };
        let account_secret = match &credentials {
            Some(credentials) => credentials.account_secret()?,
            None => Token::random(),
        };
        let owner = match (&config.authentication, &credentials) {
            (Authentication::Anonymous, _) => None,
            (Authentication::Token(token), _) => Some(token.clone()),
            (Authentication::Generated, Some(credentials)) => Some(credentials.token()?),
            (Authentication::Generated, None) => Some(Token::random()),
        };
        let door = Door { names, admits: Admits::Everybody };
        let endpoint = endpoint.ok_or(unusable)?;
        Ok(Self { door, transport, endpoint, authority, owner, account_secret })
    }
}

/// Whether other hosts can reach an address.
pub(crate) fn is_remote(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}
