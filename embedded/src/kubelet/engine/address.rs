//! Where the engine listens.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The settings that say where the engine listens.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// `DOCKER_HOST`.
    pub(super) host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub(super) context: Option<String>,
    /// `DOCKER_CONFIG`, else the folder `.docker` of this user.
    pub(super) config: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, else the folder of this user in `/run/user`.
    pub(super) runtime: PathBuf,
}

impl Settings {
    /// The settings in the environment of this process.
    pub(super) fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = || Some(Path::new(&variable("HOME")?).join(".docker"));
        let user = rustix::process::geteuid().as_raw();
        Self {
            host: variable("DOCKER_HOST"),
            context: variable("DOCKER_CONTEXT"),
            config: variable("DOCKER_CONFIG").map(PathBuf::from).or_else(home),
            runtime: variable("XDG_RUNTIME_DIR")
                .map_or_else(|| PathBuf::from(format!("/run/user/{user}")), PathBuf::from),
        }
    }
}

/// The addresses to be tried, in this order. An address that is given is the only one.
pub(super) fn candidates(settings: &Settings) -> Vec<String> {
    if let Some(given) = settings.host.clone().or_else(|| context(settings)) {
        return vec![given];
    }
    let own = ["docker.sock", "podman/podman.sock"].map(|socket| settings.runtime.join(socket));
    let [docker, podman] = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
    let [own_docker, own_podman] = own;
    [docker, own_docker, own_podman, podman].map(|socket| format!("unix://{}", socket.display())).into()
}

/// The address of the Docker context that is chosen.
fn context(settings: &Settings) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        current_context: Option<String>,
    }
    let config = settings.config.as_deref()?;
    let chosen = || read::<Config>(&config.join("config.json"))?.current_context;
    let name = settings.context.clone().or_else(chosen).filter(|name| name != "default")?;
    let contexts = std::fs::read_dir(config.join("contexts/meta")).ok()?;
    contexts
        .filter_map(|context| read::<Context>(&context.ok()?.path().join("meta.json")))
        .find(|context| context.name == name)
        .map(|context| context.endpoints.docker.host)
}

/// A Docker context, as the Docker CLI keeps it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Context {
    name: String,
    endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Endpoints {
    docker: Endpoint,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Endpoint {
    host: String,
}

fn read<T: for<'de> Deserialize<'de>>(file: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn docker_host_is_asked_before_contexts_and_these_before_sockets() {
        let config = tempfile::tempdir().unwrap();
        let meta = config.path().join("contexts/meta/0123");
        std::fs::create_dir_all(&meta).unwrap();
        let context =
            r#"{"Name": "desk", "Metadata": {}, "Endpoints": {"docker": {"Host": "unix:///desk.sock"}}}"#;
        std::fs::write(meta.join("meta.json"), context).unwrap();
        let of = |host: Option<&str>, context: Option<&str>, current: &str| {
            std::fs::write(config.path().join("config.json"), current).unwrap();
            candidates(&Settings {
                host: host.map(str::to_owned),
                context: context.map(str::to_owned),
                config: Some(config.path().to_owned()),
                runtime: "/run/user/7".into(),
            })
        };
        let usual = [
            "unix:///var/run/docker.sock",
            "unix:///run/user/7/docker.sock",
            "unix:///run/user/7/podman/podman.sock",
            "unix:///run/podman/podman.sock",
        ];
        let desk = r#"{"currentContext": "desk"}"#;
        assert_eq!(of(Some("tcp://h:1"), Some("desk"), desk), ["tcp://h:1"]);
        assert_eq!(of(None, Some("desk"), "{}"), ["unix:///desk.sock"]);
        assert_eq!(of(None, None, desk), ["unix:///desk.sock"]);
        assert_eq!(of(None, Some("default"), desk), usual);
        assert_eq!(of(None, None, "not JSON"), usual);
    }
}
