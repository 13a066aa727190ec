//! Why an API server could not start.

/// Why an API server could not start, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The address could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: std::net::SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An address that others can reach needs a token.
    #[error("refusing to listen on {0}, which is not a loopback address, without a token")]
    TokenRequired(std::net::SocketAddr),
    /// A token cannot be used.
    #[error("token: {0}")]
    Token(#[from] super::authentication::TokenError),
    /// The credentials in the data directory cannot be used.
    #[error(transparent)]
    Credentials(#[from] super::credentials::CredentialsError),
    /// There is no TLS for an address that others can reach.
    #[error("TLS: {0}")]
    Tls(#[source] super::tls::TlsError),
    /// The data directory cannot be used.
    #[error("data directory {}: {source}", directory.display())]
    DataDir {
        /// The requested directory.
        directory: std::path::PathBuf,
        /// Why it cannot be used.
        source: super::store::DataDirError,
    },
    /// The objects of a new cluster could not be created.
    #[error("cannot create the initial namespaces: {0}")]
    Bootstrap(String),
}

impl From<super::tls::TlsError> for EmbeddedError {
    fn from(error: super::tls::TlsError) -> Self {
        match error {
            super::tls::TlsError::Credentials(error) => Self::Credentials(error),
            other => Self::Tls(other),
        }
    }
}
