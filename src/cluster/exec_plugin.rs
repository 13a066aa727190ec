//! Credential plugins: programs that a kubeconfig names under `exec`.
//!
//! kube runs them as well, but several times for one client, and a certificate that one gives is never renewed.

use std::io::{ErrorKind, IsTerminal as _};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Why a plugin gave no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The kubeconfig names no program.
    #[error("the credential plugin has no command")]
    NoCommand,
    /// The plugin must talk to a user, and there is no terminal.
    #[error("the credential plugin {0} must talk to a user at a terminal")]
    NoTerminal(String),
    /// The plugin cannot be started.
    #[error("the credential plugin {command} cannot be started: {problem}")]
    Start {
        /// The program.
        command: String,
        /// Why, with the kubeconfig's hint about its installation.
        problem: String,
    },
    /// The plugin failed.
    #[error("the credential plugin {command} failed ({status}){problem}")]
    Failed {
        /// The program.
        command: String,
        /// Its exit code or signal.
        status: std::process::ExitStatus,
        /// The last line of its standard error.
        problem: String,
    },
    /// Its answer cannot be read. The answer is not repeated: it may hold secrets.
    #[error(
        "the answer of the credential plugin {0} is no ExecCredential with a token or a certificate and key"
    )]
    Answer(String),
}

/// The answer of a credential plugin.
#[derive(Debug)]
pub(super) struct ExecCredential {
    pub(super) token: Option<SecretString>,
    /// A certificate and its key, in PEM.
    pub(super) certificate: Option<(String, SecretString)>,
    /// When they are no longer valid.
    pub(super) until: Option<Timestamp>,
}

/// The input of a plugin.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecInfo<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a str>,
    spec: ExecSpec<'a>,
}

#[derive(Serialize)]
struct ExecSpec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

/// The output of a plugin.
#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs a plugin to its end.
pub(super) fn run(exec: &ExecConfig) -> Result<ExecCredential, ExecError> {
    let name = exec.command.as_deref().ok_or(ExecError::NoCommand)?;
    let at_terminal = std::io::stdin().is_terminal();
    let interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !at_terminal => {
            return Err(ExecError::NoTerminal(name.to_owned()));
        }
        _ => at_terminal,
    };
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let spec = ExecSpec { interactive, cluster };
    let info = ExecInfo { kind: "ExecCredential", api_version: exec.api_version.as_deref(), spec };
    let info = serde_json::to_string(&info).map_err(|error| start_error(name, error.to_string()))?;
    let mut command = Command::new(name);
    command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info);
    let variables = exec.env.iter().flatten();
    command.envs(variables.filter_map(|variable| Some((variable.get("name")?, variable.get("value")?))));
    if interactive {
        command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
    } else {
        command.stdin(Stdio::null());
    }
    let output = command.output().map_err(|error| {
        let hint = exec.install_hint.as_deref().filter(|_| error.kind() == ErrorKind::NotFound);
        let hint = hint.map(|hint| format!(" ({})", hint.trim())).unwrap_or_default();
        start_error(name, format!("{error}{hint}"))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        let problem = last.map(|line| format!(": {line}")).unwrap_or_default();
        return Err(ExecError::Failed { command: name.to_owned(), status: output.status, problem });
    }
    read(&output.stdout).ok_or_else(|| ExecError::Answer(name.to_owned()))
}

fn start_error(command: &str, problem: String) -> ExecError {
    ExecError::Start { command: command.to_owned(), problem }
}

/// Some plugins write YAML, which client-go takes as well.
fn read(answer: &[u8]) -> Option<ExecCredential> {
    let Answer { status } = serde_json::from_value(yardmaster_manifest::value(answer).ok()?).ok()?;
    let until = match status.expiration_timestamp {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let certificate = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some((certificate, key.into())),
        (None, None) => None,
        _ => return None,
    };
    let token = status.token.filter(|token| !token.is_empty()).map(SecretString::from);
    (token.is_some() || certificate.is_some()).then_some(ExecCredential { token, certificate, until })
}
