//! Where the processes of a pod find its volumes.

use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::pod::{Container, PodSpec, Volume, VolumeMount};
use super::supervisor::{START_MOUNTED, TRY};
use super::volumes;

/// How long the trial of a mount may take.
const TRIAL: Duration = Duration::from_secs(5);
/// A folder of the machine that processes need as it is.
const PROCESSES: &str = "/proc";

/// Where the processes of a pod find its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounting {
    /// At their paths: a container with mounts has a mount namespace.
    AtPaths,
    /// In folders that variables name.
    ByVariable {
        /// Why they are not mounted.
        why: Arc<str>,
    },
}

impl Mounting {
    /// Finds out whether the kernel lets this user mount volumes, by a trial of the program that supervises
    /// processes: this program itself by default.
    pub async fn of_this_host(supervisor: Option<&Path>) -> Self {
        match trial(supervisor).await {
            Ok(()) => Self::AtPaths,
            Err(why) => Self::ByVariable { why: why.into() },
        }
    }

    /// Whether a container has a mount namespace.
    pub(super) fn mounts(&self, spec: &PodSpec, container: &Container) -> bool {
        *self == Self::AtPaths && needs_mounts(spec, container)
    }

    /// Why the volumes of a pod are not at their paths; `None` if they are.
    pub(super) fn why_not(&self, spec: &PodSpec) -> Option<String> {
        let Self::ByVariable { why } = self else { return None };
        let needs_mounts = |slot| needs_mounts(spec, spec.container(slot));
        spec.slots().any(needs_mounts).then(|| {
            let variables = volumes::variable("*");
            format!("volumes are in the folders that {variables} name, not at their mountPath: {why}")
        })
    }
}

async fn trial(supervisor: Option<&Path>) -> Result<(), String> {
    let program = supervisor.map_or_else(std::env::current_exe, |given| Ok(given.to_owned()));
    let mut command = tokio::process::Command::new(program.map_err(|error| error.to_string())?);
    command.args([START_MOUNTED, TRY]).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TRIAL, command.output()).await {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("a trial took more than {} s", TRIAL.as_secs())),
    };
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(told.lines().next_back().unwrap_or("a trial failed").to_owned())
}

/// Whether a container needs mounts: it has one that the host does not have by itself. Every container has
/// the token of the usual account, which needs none: a namespace costs more than a short process.
fn needs_mounts(spec: &PodSpec, container: &Container) -> bool {
    let is_given = |mount: &VolumeMount| is_found(spec, mount) && !mount.read_only;
    let is_access = |mount: &VolumeMount| spec.volume(mount).is_some_and(|volume| volume.is_access);
    let is_usual = |mount: &VolumeMount| is_access(mount) && !spec.names_account();
    container.volume_mounts.iter().any(|mount| !is_given(mount) && !is_usual(mount))
}

/// Whether the path of a mount is the volume itself on the host.
pub(super) fn is_found(spec: &PodSpec, mount: &VolumeMount) -> bool {
    spec.volume(mount).is_some_and(|volume| is_in_place(volume, mount))
}

fn is_in_place(volume: &Volume, mount: &VolumeMount) -> bool {
    let path = volume.host_path.as_ref().map(|source| Path::new(&source.path).join(&mount.sub_path));
    path.is_some_and(|path| path == Path::new(&mount.mount_path)) && mount.sub_path_expr.is_empty()
}

/// The absolute path of a mount.
pub(super) fn target(mount: &VolumeMount) -> PathBuf {
    Path::new("/").join(&mount.mount_path)
}

/// Why no process can have a mount at this path.
pub(super) fn unmountable(mount: &VolumeMount) -> Option<String> {
    let path = target(mount);
    if path.components().any(|part| part == Component::ParentDir) {
        return Some(format!("{}: write the path without `..`", mount.mount_path));
    }
    let is_needed = path == Path::new("/") || path.starts_with(PROCESSES);
    is_needed.then(|| {
        format!(
            "volume {:?} cannot be mounted at {}: processes need the files of this machine there; choose another \
             path",
            mount.name, mount.mount_path
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::service_account;
    use super::*;

    #[test]
    fn the_token_of_the_usual_account_needs_no_mounts() {
        let needs = |account: Value, mounts: Value, has_token: bool| {
            let container = json!({"name": "c", "volumeMounts": mounts});
            let volumes = json!([{"name": "work", "emptyDir": {}}]);
            let spec = json!({"serviceAccountName": account, "containers": [container], "volumes": volumes});
            let mut spec: PodSpec = serde_json::from_value(spec).unwrap();
            if has_token {
                service_account::mount(&mut spec, service_account::PROCESS_MODE);
            }
            needs_mounts(&spec, &spec.containers[0])
        };
        let at = |path: &str| json!([{"name": "work", "mountPath": path}]);
        for (account, mounts, has_token, expected) in [
            (Value::Null, json!([]), false, false),
            (Value::Null, json!([]), true, false),
            (json!("default"), json!([]), true, false),
            (json!("robot"), json!([]), true, true),
            (json!("robot"), json!([]), false, false),
            (Value::Null, at("/work"), true, true),
            // A volume of the pod's own in the place of the token.
            (Value::Null, at(service_account::PATH), true, true),
        ] {
            assert_eq!(needs(account.clone(), mounts.clone(), has_token), expected, "{account} {mounts}");
        }
    }
}
