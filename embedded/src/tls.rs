//! TLS for a server that other hosts can reach. The server has its own certificate authority, which its
//! kubeconfig names, and gets a new certificate at each start.

use std::sync::Arc;

use jiff::{ToSpan as _, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::credentials::{Credentials, CredentialsError};
use crate::host_names::HostNames;

const KEY: &str = "ca.key";
const CERTIFICATE: &str = "ca.crt";

/// How long the authority is valid, in years. Kubeconfigs with it are valid as long.
const AUTHORITY_YEARS: i64 = 10;
/// How long the server's certificate is valid, in years.
const SERVER_YEARS: i64 = 1;

/// Why a server has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The files of the authority cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// No certificate could be made.
    #[error("{0}")]
    Certificate(#[from] rcgen::Error),
    /// The certificate is not usable.
    #[error("{0}")]
    Rustls(#[from] tokio_rustls::rustls::Error),
    /// The authority's certificate is not in PEM.
    #[error("ca.crt: {0}")]
    NotPem(String),
}

/// The authority that signs the certificates of one server.
pub(crate) struct CertificateAuthority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// A new authority, whose key is in memory alone.
    pub(crate) fn generate() -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let pem = authority().self_signed(&key)?.pem();
        Self::of(key, pem)
    }

    /// The authority that a server keeps; a new one if it has none.
    pub(crate) fn open(credentials: &Credentials) -> Result<Self, TlsError> {
        if let (Some(key), Some(pem)) = (credentials.read(KEY)?, credentials.read(CERTIFICATE)?) {
            return Self::of(KeyPair::from_pem(&key)?, pem);
        }
        let made = Self::generate()?;
        credentials.write(KEY, &made.issuer.key().serialize_pem())?;
        credentials.write(CERTIFICATE, &made.pem)?;
        Ok(made)
    }

    fn of(key: KeyPair, pem: String) -> Result<Self, TlsError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes());
        let der = der.map_err(|error| TlsError::NotPem(error.to_string()))?;
        Ok(Self { pem, der, issuer: Issuer::new(authority(), key) })
    }

    /// The authority's certificate in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// The authority's certificate in DER.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// TLS with a new certificate for these names, whose key is in memory alone.
    pub(crate) fn server_config(&self, names: &HostNames) -> Result<ServerConfig, TlsError> {
        let mut params = CertificateParams::new(names.all().collect::<Vec<_>>())?;
        params.distinguished_name = name("yardmaster");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, SERVER_YEARS);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone(), self.der.clone()], private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("yardmaster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_YEARS);
    params
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// From yesterday, for clocks that differ a little.
fn set_validity(params: &mut CertificateParams, years: i64) {
    let today = Zoned::now().date();
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = date(today.saturating_sub(1.day()));
    params.not_after = date(today.saturating_add(years.years()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn an_authority_is_kept_in_files_of_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(directory.path()).unwrap();
        let first = CertificateAuthority::open(&credentials).unwrap();
        let again = CertificateAuthority::open(&credentials).unwrap();
        assert_eq!(first.pem(), again.pem());
        let names = HostNames::new([127, 0, 0, 1].into(), &[]);
        assert!(again.server_config(&names).is_ok());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let folder = directory.path().join("credentials");
        assert_eq!(mode(&folder), 0o700);
        for name in [KEY, CERTIFICATE] {
            assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
        }
        let exposed = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(folder.join(KEY), exposed).unwrap();
        let replaced = CertificateAuthority::open(&credentials).unwrap();
        assert_ne!(first.pem(), replaced.pem(), "others could sign with its key");
        assert_eq!(mode(&folder.join(KEY)), 0o600);
    }
}
