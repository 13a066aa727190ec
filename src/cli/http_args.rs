//! Flags about who may read the HTTP pages of a controller, and how.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Failure;
use super::job_page::{JobPage, Offer};
use crate::actors::{DebugAccess, MetricsAccess};
use crate::cluster::transport::ViewerClients;
use crate::telemetry::http::{Live, Secret, TlsFiles};

/// Flags about the HTTP pages.
#[derive(Debug, Args)]
pub(super) struct PagesArgs {
    /// File with the certificate of the HTTP pages and those that lead to its CA, in PEM; read again when it
    /// changes [default: no TLS].
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// File with the private key of that certificate, in PEM; read again when it changes [default: no TLS].
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Who may read /metrics: everyone, or those whose token has the right to get it (TokenReview,
    /// SubjectAccessReview).
    #[arg(long, value_name = "WHO", default_value = "everyone")]
    metrics_access: WhoMetrics,
    /// Who may read / and /debug: processes of this host (loopback, which is where kubectl port-forward comes
    /// from), those who send the token of --debug-token-file, those whose token has the right to get the path
    /// (authorized), or nobody (off).
    #[arg(long, value_name = "WHO", default_value = "loopback")]
    debug_access: WhoDebug,
    /// File with the bearer token of --debug-access token; nobody else may read the file.
    #[arg(long, value_name = "FILE", required_if_eq("debug_access", "token"))]
    debug_token_file: Option<PathBuf>,
    /// Let viewers of the page suspend, resume, delete and retry Jobs with their own bearer tokens, where these
    /// have the right [default: off].
    #[arg(long)]
    page_actions: bool,
    /// Address of a trace for links of the page, with {trace} where the trace id belongs [default: no links].
    #[arg(long, value_name = "URL", value_parser = trace_url)]
    page_trace_url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WhoMetrics {
    Everyone,
    Authorized,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WhoDebug {
    Loopback,
    Token,
    Authorized,
    Off,
}

impl PagesArgs {
    pub(super) fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.tls_cert_file.clone()?, self.tls_private_key_file.clone()?);
        Some(TlsFiles { certificate, key })
    }

    /// The source of the page for everything about one Job that only the API server of this configuration knows. A viewer
    /// without a bearer token of the cluster has no rights there.
    pub(super) fn live(&self, kube: &kube::Config) -> Result<Live, Failure> {
        Ok(match self.debug_access {
            WhoDebug::Loopback | WhoDebug::Authorized => {
                let offer = Offer { actions: self.page_actions, trace_url: self.page_trace_url.clone() };
                Live::of(JobPage::of_viewers(ViewerClients::new(kube)?, offer))
            }
            WhoDebug::Token | WhoDebug::Off => Live::default(),
        })
    }

    pub(super) fn metrics_access(&self) -> MetricsAccess {
        self.metrics_access.into()
    }

    pub(super) fn debug_access(&self) -> Result<DebugAccess, Failure> {
        Ok(match (self.debug_access, &self.debug_token_file) {
            (WhoDebug::Token, Some(file)) => DebugAccess::Secret(Secret::new(&token(file)?)),
            (WhoDebug::Token, None) => {
                return Err(Failure::bad_input("--debug-access token: requires --debug-token-file"));
            }
            (_, Some(_)) => {
                return Err(Failure::bad_input("--debug-token-file: requires --debug-access token"));
            }
            (WhoDebug::Loopback, None) => DebugAccess::Loopback,
            (WhoDebug::Authorized, None) => DebugAccess::Authorized,
            (WhoDebug::Off, None) => DebugAccess::Off,
        })
    }
}

impl From<WhoMetrics> for MetricsAccess {
    fn from(who: WhoMetrics) -> Self {
        match who {
            WhoMetrics::Everyone => Self::Everyone,
            WhoMetrics::Authorized => Self::Authorized,
        }
    }
}

/// A value of `--page-trace-url`. The page follows no other scheme: such a link could run a script.
fn trace_url(text: &str) -> Result<String, String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    let has_place = text.contains("{trace}");
    (is_web && has_place)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected http(s)://...{trace}...".to_owned())
}

/// Maximum size of a file with a token, in bytes.
const LONGEST_TOKEN_FILE: u64 = 64 << 10;

/// The token in a file.
fn token(file: &Path) -> Result<String, Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::bad_input(format!("--debug-token-file {}: {why}", file.display()))
    };
    let open = File::open(file).map_err(|error| refuse(&error))?;
    // Checks the open file, since the path may lead to another file by now.
    let metadata = open.metadata().map_err(|error| refuse(&error))?;
    if is_open_to_others(&metadata) {
        return Err(refuse(&"other users can read it; run `chmod 600` on it"));
    }
    let mut text = String::new();
    open.take(LONGEST_TOKEN_FILE).read_to_string(&mut text).map_err(|error| refuse(&error))?;
    match text.trim() {
        "" => Err(refuse(&"contains no token")),
        token => Ok(token.to_owned()),
    }
}

#[cfg(unix)]
fn is_open_to_others(file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match file.uid() {
        uid if uid == rustix::process::geteuid().as_raw() => file.mode() & 0o077 != 0,
        // A kubelet gives the files of a Secret to root, and to the group of the pod.
        0 => file.mode() & 0o027 != 0,
        // Another user can read and change it.
        _ => true,
    }
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        for (mode, is_refused) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(token(&file).is_err(), is_refused, "{mode:o}");
        }
    }
}
