//! The identity of the API server and our own, as files and credential plugins state them at one
//! time. Certificates and tokens are renewed while we run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::ExecConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};

use super::exec_plugin::{self, ExecCredential, ExecError};

/// How often files are read again, and how long before its end a plugin's answer is renewed at most.
const PERIOD: Duration = Duration::from_secs(60);
/// Shortest pause between two runs of a plugin.
pub(super) const PLUGIN_PAUSE: Duration = Duration::from_secs(10);

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    File(PathBuf, std::io::Error),
    /// The authorities' file holds no certificate.
    #[error("{0} holds no certificate in PEM")]
    Authorities(PathBuf),
    /// No header can hold the token.
    #[error("the token must be one line of visible ASCII characters")]
    Token,
    /// Reading was cut off.
    #[error("reading the credentials ended early: {0}")]
    Broken(#[from] tokio::task::JoinError),
    /// A plugin gave none.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Certificates and tokens from outside the configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    authorities: Option<Vec<Vec<u8>>>,
    /// Our certificate in PEM, and its key, from files.
    certificate: Option<String>,
    key: Option<SecretString>,
    token: Option<SecretString>,
    given: Option<Given>,
}

/// The answer of a credential plugin.
#[derive(Clone, Debug)]
struct Given {
    token: Option<SecretString>,
    certificate: Option<(String, SecretString)>,
    renew_at: Option<Timestamp>,
}

impl Given {
    fn by(exec: &ExecConfig, now: Timestamp) -> Result<Self, ExecError> {
        let ExecCredential { token, certificate, until } = exec_plugin::run(exec)?;
        let renew_at = until.map(|until| {
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            now + left.saturating_sub((left / 10).min(PERIOD)).max(PLUGIN_PAUSE)
        });
        Ok(Self { token, certificate, renew_at })
    }
}

impl Credentials {
    /// Whether a configuration names files or a plugin.
    pub(super) fn are_outside(config: &kube::Config) -> bool {
        let auth = &config.auth_info;
        let files = [&auth.client_certificate, &auth.client_key, &auth.token_file];
        config.root_cert_file.is_some() || auth.exec.is_some() || files.into_iter().any(Option::is_some)
    }

    /// Reads the files that a configuration names, and runs its plugin unless there are credentials whose answer of
    /// it is to be kept. This blocks.
    ///
    /// # Errors
    /// When a file cannot be read, or the plugin gives nothing.
    pub(super) fn load(config: &kube::Config, keep: Option<&Self>) -> Result<Self, CredentialsError> {
        let auth = &config.auth_info;
        let mut loaded = Self::default();
        if let Some(file) = &config.root_cert_file {
            loaded.authorities = Some(certificates(file)?);
        }
        if let (None, Some(file)) = (&auth.client_certificate_data, &auth.client_certificate) {
            loaded.certificate = Some(text(file.as_ref())?);
        }
        if let (None, Some(file)) = (&auth.client_key_data, &auth.client_key) {
            loaded.key = Some(text(file.as_ref())?.into());
        }
        let has_others = auth.auth_provider.is_some() || auth.token.is_some() || auth.username.is_some();
        match (&auth.token_file, &auth.exec) {
            _ if has_others => {}
            (Some(file), _) => loaded.token = Some(text(file.as_ref())?.trim().to_owned().into()),
            (None, Some(exec)) => {
                let kept = keep.and_then(|keep| keep.given.clone());
                loaded.given = Some(kept.map_or_else(|| Given::by(exec, Timestamp::now()), Ok)?);
            }
            (None, None) => {}
        }
        match loaded.token().map(HeaderValue::from_str) {
            Some(Err(_)) => Err(CredentialsError::Token),
            _ => Ok(loaded),
        }
    }

    fn token(&self) -> Option<&str> {
        let token = self.given.as_ref().map_or(&self.token, |given| &given.token);
        token.as_ref().map(SecretString::expose_secret)
    }

    /// A certificate and its key, in PEM. A plugin's certificate comes first, as in client-go.
    fn identity(&self) -> (Option<&str>, Option<&str>) {
        match self.given.as_ref().and_then(|given| given.certificate.as_ref()) {
            Some((certificate, key)) => (Some(certificate), Some(key.expose_secret())),
            None => (self.certificate.as_deref(), self.key.as_ref().map(SecretString::expose_secret)),
        }
    }

    /// The configuration with them in it, so that it names no files and no plugin any more.
    pub(super) fn put_into(&self, config: &kube::Config) -> kube::Config {
        let mut config = config.clone();
        config.root_cert_file = None;
        if let Some(authorities) = &self.authorities {
            config.root_cert = Some(authorities.clone());
        }
        let auth = &mut config.auth_info;
        (auth.exec, auth.token_file) = (None, None);
        let (certificate, key) = self.identity();
        if let Some(certificate) = certificate {
            auth.client_certificate_data = Some(STANDARD.encode(certificate));
        }
        if let Some(key) = key {
            auth.client_key_data = Some(STANDARD.encode(key).into());
        }
        if let Some(token) = self.token() {
            auth.token = Some(token.into());
        }
        config
    }

    /// Whether connections made with the others are as good as those made with these.
    pub(super) fn connect_as(&self, others: &Self) -> bool {
        self.authorities == others.authorities && self.identity() == others.identity()
    }

    /// Whether both send the same token.
    pub(super) fn send_as(&self, others: &Self) -> bool {
        self.token() == others.token()
    }

    /// Time until the next look at the files, or until the plugin is due. A machine may be suspended while its timers
    /// stand still, so it is never longer than a minute.
    pub(super) fn next_look(&self, now: Timestamp) -> Duration {
        let due = self.renew_at().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        due.map_or(PERIOD, |due| due.min(PERIOD))
    }

    /// Whether the answer of the plugin is about to end.
    pub(super) fn are_due(&self, now: Timestamp) -> bool {
        self.renew_at().is_some_and(|at| at <= now)
    }

    fn renew_at(&self) -> Option<Timestamp> {
        self.given.as_ref()?.renew_at
    }
}

fn text(file: &Path) -> Result<String, CredentialsError> {
    std::fs::read_to_string(file).map_err(|error| CredentialsError::File(file.to_owned(), error))
}

fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, CredentialsError> {
    let pem = std::fs::read(file).map_err(|error| CredentialsError::File(file.to_owned(), error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Err(CredentialsError::Authorities(file.to_owned()));
    }
    Ok(found.into_iter().map(|certificate| certificate.to_vec()).collect())
}
