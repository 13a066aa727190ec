//! TLS for the pages, with certificate files that may be replaced at any time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::fs;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time between looks at the files.
const RELOAD_PERIOD: Duration = Duration::from_secs(10);

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and behind it those that lead to its CA.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Why certificate files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file has the wrong content.
    #[error("{}: {error}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// Why not.
        error: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{}: contains no certificate", .0.display())]
    Empty(PathBuf),
    /// The key is of an unknown kind, or does not belong to the certificate.
    #[error("{} and {}: {error}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The files.
        files: TlsFiles,
        /// Why not.
        error: rustls::Error,
    },
}

/// Accepts TLS connections. Clones share the certificate.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the files, now and again whenever they have changed, on the current tokio runtime. Files that
    /// cannot be used later leave the certificate as it is.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn start(files: TlsFiles) -> Result<Self, TlsError> {
        let pem = Pem::read(&files).await?;
        let current = Arc::new(Current(RwLock::new(pem.certified(&files)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Unusable { files: files.clone(), error })?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        tokio::spawn(follow(files, pem, Arc::downgrade(&current)));
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// When the client does not speak TLS, or refuses the certificate.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

/// The certificate in use.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

/// Takes the files over whenever they have changed and can be used, until the acceptors are gone. Between the
/// replacement of the one file and of the other they cannot be used.
async fn follow(files: TlsFiles, mut pem: Pem, current: Weak<Current>) {
    let mut complained = false;
    loop {
        sleep(RELOAD_PERIOD).await;
        if current.strong_count() == 0 {
            return;
        }
        let read = Pem::read(&files).await;
        if read.as_ref().is_ok_and(|read| *read == pem) {
            complained = false;
            continue;
        }
        match read.and_then(|read| Ok((read.certified(&files)?, read))) {
            Ok((certified, read)) => {
                tracing::info!(certificate = %files.certificate.display(), "the TLS certificate has changed");
                if let Some(current) = current.upgrade() {
                    *current.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
                }
                (pem, complained) = (read, false);
            }
            Err(error) if !complained => {
                tracing::warn!(%error, "the TLS certificate stays as it is");
                complained = true;
            }
            Err(_) => {}
        }
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pem {
    async fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = async |file: &Path| {
            fs::read(file).await.map_err(|error| TlsError::Read { file: file.to_owned(), error })
        };
        Ok(Self { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
    }

    fn certified(&self, files: &TlsFiles) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| TlsError::Pem { file: files.certificate.clone(), error })?;
        if chain.is_empty() {
            return Err(TlsError::Empty(files.certificate.clone()));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| TlsError::Pem { file: files.key.clone(), error })?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        certified.map(Arc::new).map_err(|error| TlsError::Unusable { files: files.clone(), error })
    }
}
