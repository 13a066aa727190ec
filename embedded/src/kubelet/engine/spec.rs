//! The request to an engine to make a container of a pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, Mount, MountImageOptions, MountType,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::super::environment::{self, Variables};
use super::super::pod::{Container, PodKey, PodSpec, SecurityContext, Slot, VolumeMount};
use super::super::quantity;
use super::super::setup::SetupError;
use super::super::sub_path;
use super::super::volumes::{self, Volumes};
use super::{Engine, LocalImage, Network, Sandbox, ports};

/// Reason of a container whose configuration cannot be met.
const CONFIG_ERROR: &str = "CreateContainerConfigError";
/// Reason of a container that cannot be made.
const CREATE_ERROR: &str = "CreateContainerError";
/// CPU shares of a request of one CPU.
const SHARES_PER_CPU: f64 = 1024.0;
/// The period in which a CPU limit counts, in microseconds.
const CPU_PERIOD: i64 = 100_000;
/// The least time of a CPU in a period that Linux takes.
const MIN_CPU_QUOTA: i64 = 1_000;
/// The least CPU shares that Linux takes.
const MIN_SHARES: f64 = 2.0;
/// The signal that asks a container to stop, unless its image names another.
const STOP_SIGNAL: &str = "SIGTERM";

/// All that a container is made from.
#[derive(Debug)]
pub(in crate::kubelet) struct Recipe {
    pub(super) name: String,
    pub(super) body: ContainerCreateBody,
    /// The signal that asks it to stop.
    pub(super) stop_signal: String,
    /// The volumes of this host, and parts of them, that it mounts.
    pub(super) sources: Vec<sub_path::Source>,
    /// The image's ID.
    pub(in crate::kubelet) image_id: String,
    /// Its variables, without those of its image.
    pub(in crate::kubelet) variables: Variables,
}

/// The ingredients of a recipe.
pub(in crate::kubelet) struct Ingredients<'a> {
    pub(in crate::kubelet) key: &'a PodKey,
    pub(in crate::kubelet) spec: &'a PodSpec,
    pub(in crate::kubelet) slot: Slot,
    /// Number of the run.
    pub(in crate::kubelet) attempt: u32,
    pub(in crate::kubelet) image: LocalImage,
    pub(in crate::kubelet) environment: Variables,
    pub(in crate::kubelet) volumes: &'a Volumes,
    /// The pod's volumes that are images, as far as the container mounts them.
    pub(in crate::kubelet) image_volumes: &'a BTreeMap<String, ImageSource>,
    /// The file that the container writes its termination message into.
    pub(in crate::kubelet) termination_log: PathBuf,
    pub(in crate::kubelet) sandbox: Option<&'a Sandbox>,
    /// The numbers of its GPUs.
    pub(in crate::kubelet) gpus: &'a [String],
    /// The place of the pod in a network, unless it has the usual one.
    pub(in crate::kubelet) network: Option<&'a Network>,
}

/// The source of a mount of a volume that is an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubelet) enum ImageSource {
    /// The image with this ID, which the engine mounts itself.
    Image(String),
    /// A folder with its files.
    Folder(PathBuf),
}

impl Engine {
    /// The recipe of a container.
    ///
    /// # Errors
    /// If its pod asks for what no engine gives, or for a volume's folder that is not there.
    pub(in crate::kubelet) fn recipe(&self, given: Ingredients<'_>) -> Result<Recipe, SetupError> {
        let container = given.spec.container(given.slot);
        if container.command.is_empty() && container.args.is_empty() && !given.image.has_command {
            let message = format!(
                "container {:?}: no command specified, and image {:?} has none",
                container.name, container.image
            );
            return Err(SetupError::waiting(CREATE_ERROR, message));
        }
        let context = container.security_context.over(&given.spec.security_context);
        user_fits(&context, &given.image)?;
        let PodKey { namespace, name, uid } = given.key;
        let expanded = |words: &[String]| -> Option<Vec<String>> {
            let words = words.iter().map(|word| environment::expand(word, &given.environment));
            Some(words.collect()).filter(|words: &Vec<_>| !words.is_empty())
        };
        let (mounts, sources) = mounts(container, &given, self.0.is_podman())?;
        // With a sandbox, its ports are those of all containers.
        let bindings = match given.sandbox {
            Some(_) => None,
            None => ports::bindings(given.spec, std::iter::once(given.slot)),
        };
        // In Docker, the host name of a sandbox is that of all containers, which must not have one then.
        let hostname = given.spec.host_name(name);
        let has_own_name = !given.spec.host_network && (given.sandbox.is_none() || self.0.is_podman());
        Ok(Recipe {
            name: format!("yardmaster_{}_{name}_{namespace}_{uid}_{}", container.name, given.attempt),
            stop_signal: given.image.stop_signal.clone().unwrap_or_else(|| STOP_SIGNAL.into()),
            body: ContainerCreateBody {
                hostname: has_own_name.then_some(hostname),
                image: Some(given.image.id.clone()),
                entrypoint: expanded(&container.command),
                cmd: expanded(&container.args),
                env: Some(given.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()),
                working_dir: container.working_dir.clone().filter(|directory| !directory.is_empty()),
                user: user(&context),
                labels: Some(self.labels(uid)),
                exposed_ports: ports::exposed(bindings.as_ref()),
                // With a sandbox, its place is that of all containers.
                networking_config: given.network.filter(|_| given.sandbox.is_none()).map(Network::config),
                host_config: Some(HostConfig {
                    port_bindings: bindings,
                    ..host_config(container, &context, &given, mounts)?
                }),
                ..ContainerCreateBody::default()
            },
            sources,
            image_id: given.image.id,
            variables: given.environment,
        })
    }
}

fn host_config(
    container: &Container,
    context: &SecurityContext,
    given: &Ingredients<'_>,
    mounts: Vec<Mount>,
) -> Result<HostConfig, SetupError> {
    let spec = given.spec;
    let shared = given.sandbox.map(|sandbox| format!("container:{}", sandbox.id()));
    let host = |is_wanted: bool| is_wanted.then(|| "host".to_owned());
    let whole = |list: &Option<BTreeMap<String, Quantity>>, name: &str| {
        let Quantity(amount) = list.as_ref()?.get(name)?;
        quantity::parse(amount).filter(|amount| *amount > 0.0)
    };
    let limit = |name: &str| whole(&container.resources.limits, name);
    let request = |name: &str| whole(&container.resources.requests, name).or_else(|| limit(name));
    // Numbers beyond what an engine takes are those of its largest.
    let memory = limit("memory").map(|bytes| bytes as i64);
    let capabilities = context.capabilities.clone().unwrap_or_default();
    let groups = context.supplemental_groups.iter().chain(&context.fs_group).map(i64::to_string);
    Ok(HostConfig {
        mounts: Some(mounts),
        memory,
        // No swap beside the memory, as in Kubernetes.
        memory_swap: memory,
        // More CPUs than there are is no limit, and no error.
        cpu_period: limit("cpu").map(|_| CPU_PERIOD),
        cpu_quota: limit("cpu").map(|cpus| ((cpus * CPU_PERIOD as f64) as i64).max(MIN_CPU_QUOTA)),
        cpu_shares: request("cpu").map(|cpus| (cpus * SHARES_PER_CPU).max(MIN_SHARES) as i64),
        device_requests: (!given.gpus.is_empty()).then(|| vec![devices(given.gpus)]),
        cap_add: capabilities.add,
        cap_drop: capabilities.drop,
        privileged: context.privileged,
        readonly_rootfs: context.read_only_root_filesystem,
        security_opt: security_options(context)?,
        group_add: Some(groups.collect()),
        network_mode: host(spec.host_network)
            .or_else(|| shared.clone())
            .or_else(|| given.network.map(Network::mode)),
        ipc_mode: host(spec.host_ipc).or_else(|| shared.clone()),
        pid_mode: host(spec.host_pid).or_else(|| shared.filter(|_| spec.share_process_namespace)),
        // With a sandbox, its hosts are those of all containers.
        extra_hosts: (given.sandbox.is_none() || spec.host_network).then(|| extra_hosts(spec)),
        // Its output is copied as it comes.
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        ..HostConfig::default()
    })
}

/// The names that the pod gives addresses.
pub(super) fn extra_hosts(spec: &PodSpec) -> Vec<String> {
    spec.host_aliases.iter().flat_map(host_alias).collect()
}

fn host_alias(alias: &k8s_openapi::api::core::v1::HostAlias) -> impl Iterator<Item = String> {
    alias.hostnames.iter().flatten().map(|name| format!("{name}:{}", alias.ip))
}

fn devices(gpus: &[String]) -> DeviceRequest {
    DeviceRequest {
        device_ids: Some(gpus.to_vec()),
        capabilities: Some(vec![vec!["gpu".into()]]),
        ..DeviceRequest::default()
    }
}

fn security_options(context: &SecurityContext) -> Result<Option<Vec<String>>, SetupError> {
    let mut options = Vec::new();
    if context.allow_privilege_escalation == Some(false) {
        options.push("no-new-privileges".to_owned());
    }
    match context.seccomp_profile.as_ref().map(|profile| profile.type_.as_str()) {
        // Every engine begins with a profile of its own.
        None | Some("RuntimeDefault") => {}
        Some("Unconfined") => options.push("seccomp=unconfined".into()),
        Some(other) => {
            let message = format!("seccompProfile.type {other}: this node has no profiles of its own");
            return Err(SetupError::refused(CONFIG_ERROR, message));
        }
    }
    Ok(Some(options))
}

/// The user and group of a container's processes, unless they are those of its image.
fn user(context: &SecurityContext) -> Option<String> {
    match (context.run_as_user, context.run_as_group) {
        (Some(user), Some(group)) => Some(format!("{user}:{group}")),
        (Some(user), None) => Some(user.to_string()),
        // As in Kubernetes, the group alone goes with the user root.
        (None, Some(group)) => Some(format!("0:{group}")),
        (None, None) => None,
    }
}

/// Whether a container that must not run as root does not.
fn user_fits(context: &SecurityContext, image: &LocalImage) -> Result<(), SetupError> {
    if context.run_as_non_root != Some(true) {
        return Ok(());
    }
    let of_image = image.user.split(':').next().unwrap_or_default();
    let message = match context.run_as_user {
        Some(0) => "container's runAsUser breaks non-root policy".to_owned(),
        Some(_) => return Ok(()),
        None if matches!(of_image, "" | "0" | "root") => {
            "container has runAsNonRoot and image will run as root".to_owned()
        }
        None if of_image.parse::<u32>().is_err() => format!(
            "container has runAsNonRoot and image has non-numeric user ({of_image}), cannot verify user is non-root"
        ),
        None => return Ok(()),
    };
    Err(SetupError::waiting(CONFIG_ERROR, message))
}

/// The mounts of a container, and the sources of those that mount a volume of this host.
fn mounts(
    container: &Container,
    given: &Ingredients<'_>,
    is_podman: bool,
) -> Result<(Vec<Mount>, Vec<sub_path::Source>), SetupError> {
    let bind = |source: &Path, target: &str, read_only: bool| Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        ..Mount::default()
    };
    let (mut mounts, mut sources) = (Vec::new(), Vec::new());
    for mount in &container.volume_mounts {
        let below = sub_path::of(mount, &given.environment);
        let (source, read_only) = match given.image_volumes.get(&mount.name) {
            Some(ImageSource::Image(id)) => {
                mounts.push(image(id, mount, below, is_podman));
                continue;
            }
            Some(ImageSource::Folder(root)) => (sub_path::find(mount, root, &below)?, true),
            None => {
                // The API server accepts no mount of a volume that is not there.
                let root = given.volumes.get(&mount.name).cloned().unwrap_or_default();
                let source = sub_path::provide(mount, &root, &below)?;
                let is_filled = volumes::is_filled(given.spec, mount);
                let source = if is_filled { source.in_filled_volume() } else { source };
                (source, volumes::is_read_only(given.spec, mount))
            }
        };
        mounts.push(bind(&source.path, &mount.mount_path, read_only));
        sources.push(source);
    }
    mounts.push(bind(&given.termination_log, container.termination_message_path(), false));
    Ok((mounts, sources))
}

/// An image that the engine mounts read-only.
fn image(id: &str, mount: &VolumeMount, below: String, is_podman: bool) -> Mount {
    Mount {
        typ: Some(MountType::IMAGE),
        source: Some(id.to_owned()),
        target: Some(mount.mount_path.clone()),
        // Podman mounts images read-only, and refuses to be asked for it.
        read_only: (!is_podman).then_some(true),
        image_options: (!below.is_empty()).then_some(MountImageOptions { subpath: Some(below) }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    /// The mount of a volume of this kind, and its source. The volume is a folder of this host.
    fn mounted(kind: &str, source: &Value, folder: &Path, below: &str) -> (Mount, sub_path::Source) {
        let mount = json!({"name": "v", "mountPath": "/v", "subPath": below});
        let spec: PodSpec = serde_json::from_value(json!({
            "volumes": [{"name": "v", kind: source}],
            "containers": [{"name": "c", "volumeMounts": [mount]}],
        }))
        .unwrap();
        let given = Ingredients {
            key: &PodKey { namespace: "n".into(), name: "p".into(), uid: "1".into() },
            spec: &spec,
            slot: Slot::Main(0),
            attempt: 0,
            image: LocalImage::default(),
            environment: Variables::new(),
            volumes: &[("v".to_owned(), folder.to_owned())].into(),
            image_volumes: &BTreeMap::new(),
            termination_log: "/log".into(),
            sandbox: None,
            gpus: &[],
            network: None,
        };
        let (mut mounts, mut sources) = mounts(&spec.containers[0], &given, false).unwrap();
        (mounts.remove(0), sources.remove(0))
    }

    #[test]
    fn volumes_that_kubernetes_fills_are_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let kinds = [
            ("configMap", json!({"name": "m"}), true),
            ("secret", json!({"secretName": "s"}), true),
            ("downwardAPI", json!({}), true),
            ("projected", json!({}), true),
            ("emptyDir", json!({}), false),
            ("hostPath", json!({"path": "/"}), false),
            ("persistentVolumeClaim", json!({"claimName": "c"}), false),
            ("persistentVolumeClaim", json!({"claimName": "c", "readOnly": true}), true),
        ];
        for (kind, source, read_only) in kinds {
            let (mount, _) = mounted(kind, &source, folder.path(), "");
            assert_eq!(
                (mount.target.as_deref(), mount.read_only),
                (Some("/v"), Some(read_only)),
                "{kind} {source}"
            );
        }
    }

    #[test]
    fn a_part_is_watched_unless_kubernetes_fills_its_volume() {
        for (kind, source, is_watched) in [
            ("configMap", json!({"name": "m"}), false),
            ("secret", json!({"secretName": "s"}), false),
            ("downwardAPI", json!({}), false),
            ("projected", json!({}), false),
            ("emptyDir", json!({}), true),
            ("hostPath", json!({"path": "/"}), true),
            // Pods that mount it otherwise may write it.
            ("persistentVolumeClaim", json!({"claimName": "c", "readOnly": true}), true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (_, part) = mounted(kind, &source, folder.path(), "part");
            std::fs::remove_dir(folder.path().join("part")).unwrap();
            std::os::unix::fs::symlink("/", folder.path().join("part")).unwrap();
            assert_eq!(part.leads_out(), is_watched, "{kind} {source}");
        }
    }
}
