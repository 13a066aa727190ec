//! Volumes as directories of this host.
//!
//! A container of an engine has them mounted at their paths, and so has a process where [`super::mounting`]
//! says that the kernel allows it. Any process finds the path of each volume in the variable
//! `YARDMASTER_VOLUME_<NAME>` (upper case, `-` becomes `_`). Where it would look elsewhere without mounts,
//! [`super::refusals`] refuses the pod.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use k8s_openapi::api::core::v1 as core;

use super::KubeletMode;
use super::client::Data;
use super::environment;
use super::host_path;
use super::pod::{Pod, PodSpec, Volume, VolumeMount};
use super::pod_folder::PodFolder;
use super::refusals::FAILED_MOUNT;
use super::setup::SetupError;
use super::worker::Worker;

/// Permissions of files without a mode of their own, as the API server defaults them.
const DEFAULT_MODE: i32 = 0o644;

/// Permissions that a pod's `fsGroup` adds to files.
const GROUP_READS: u32 = 0o040;
/// Permissions of the folder of a volume that the pod fills, and of another.
const WRITTEN_BY_ALL: u32 = 0o777;
pub(super) const READ_BY_ALL: u32 = 0o755;

/// The files of a volume, by relative path.
type Files = BTreeMap<String, VolumeFile>;

#[derive(Debug, PartialEq, Eq)]
struct VolumeFile {
    content: Vec<u8>,
    /// Permissions.
    mode: u32,
}

impl VolumeFile {
    /// A file with a mode from the API.
    fn new(content: Vec<u8>, mode: i32) -> Self {
        Self { content, mode: mode.unsigned_abs() & 0o777 }
    }
}

/// The users of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// This user, as whom processes run.
    Own,
    /// Any user of a container.
    Any,
}

/// The paths of a pod's volumes on this host, by the volumes' names.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// Creates the pod's volumes: in its folder, unless they outlive it. Image volumes come with the containers that
/// mount them.
pub(super) async fn prepare(worker: &Worker) -> Result<Volumes, SetupError> {
    let Worker { client, pod, folder, context, .. } = worker;
    let mut volumes = Volumes::new();
    for volume in pod.spec.volumes.iter().filter(|volume| volume.image.is_none()) {
        let path = if let Some(host) = &volume.host_path {
            on_host(host).await?
        } else if let Some(source) = &volume.persistent_volume_claim {
            let claim = client.bound_claim(&source.claim_name).await?;
            context.claims.provide(context.pods.path(), &claim).await?
        } else {
            let files = files(worker, volume).await?;
            let users = match &context.mode {
                KubeletMode::Containers(_) => Users::Any,
                KubeletMode::Process | KubeletMode::Simulated => Users::Own,
            };
            fill(folder, volume.name.clone(), files, users, pod.spec.security_context.fs_group).await?;
            folder.volume_path(&volume.name)
        };
        volumes.insert(volume.name.clone(), path);
    }
    Ok(volumes)
}

/// A path of this host, once it is as the pod wants it.
async fn on_host(source: &core::HostPathVolumeSource) -> Result<PathBuf, SetupError> {
    let wanted = source.clone();
    let provided = tokio::task::spawn_blocking(move || host_path::provide(&wanted)).await;
    provided.unwrap_or_else(|panic| Err(panic.to_string())).map_err(SetupError::missing)?;
    Ok(PathBuf::from(&source.path))
}

/// The kind of a volume that no folder can stand for, and why it is not given.
pub(super) fn unsupported(volume: &Volume) -> Option<(&str, String)> {
    let is_folder = volume.empty_dir.is_some()
        || volume.host_path.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some();
    let kind = volume.other.keys().next().map_or("unknown", String::as_str);
    (!is_folder).then(|| {
        (kind, format!("volume {:?}: a {kind} volume is not supported by the local kubelet", volume.name))
    })
}

/// Whether a container may not write a mount: Kubernetes fills its volume, or the pod says so.
pub(super) fn is_read_only(spec: &PodSpec, mount: &VolumeMount) -> bool {
    let claim = spec.volume(mount).and_then(|volume| volume.persistent_volume_claim.as_ref());
    mount.read_only || is_filled(spec, mount) || claim.is_some_and(|claim| claim.read_only == Some(true))
}

/// Whether Kubernetes fills the volume of a mount, so that no container can write it.
pub(super) fn is_filled(spec: &PodSpec, mount: &VolumeMount) -> bool {
    spec.volume(mount).is_some_and(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.downward_api.is_some()
            || volume.projected.is_some()
    })
}

/// The name of the variable with a volume's directory.
pub(super) fn variable(volume: &str) -> String {
    format!("YARDMASTER_VOLUME_{}", volume.to_uppercase().replace('-', "_"))
}

/// The files of a volume; `None` if the pod itself fills it.
async fn files(worker: &Worker, volume: &Volume) -> Result<Option<Files>, SetupError> {
    let Worker { client, pod, .. } = worker;
    let files = if volume.empty_dir.is_some() || volume.ephemeral.is_some() {
        return Ok(None);
    } else if let Some(source) = &volume.config_map {
        let data = client.config_map(&source.name, source.optional.unwrap_or(false)).await?;
        select(data, source.items.as_deref(), &source.name, source.default_mode)
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let data = client.secret(name, source.optional.unwrap_or(false)).await?;
        select(data, source.items.as_deref(), name, source.default_mode)
    } else if let Some(source) = &volume.downward_api {
        downward(pod, source.items.as_deref(), source.default_mode)
    } else if let Some(source) = &volume.projected {
        projected(worker, source, volume.is_access).await
    } else {
        // Refused before.
        Err(SetupError::refused(FAILED_MOUNT, unsupported(volume).unwrap_or_default().1))
    };
    files.map(Some)
}

async fn projected(
    worker: &Worker,
    projection: &core::ProjectedVolumeSource,
    is_access: bool,
) -> Result<Files, SetupError> {
    let Worker { client, pod, context, .. } = worker;
    let mode = projection.default_mode;
    let mut files = Files::new();
    for source in projection.sources.iter().flatten() {
        if let Some(source) = &source.config_map {
            let data = match is_access {
                true => context.accounts.authority(client).await?,
                false => client.config_map(&source.name, source.optional.unwrap_or(false)).await?,
            };
            files.extend(select(data, source.items.as_deref(), &source.name, mode)?);
        } else if let Some(source) = &source.secret {
            let data = client.secret(&source.name, source.optional.unwrap_or(false)).await?;
            files.extend(select(data, source.items.as_deref(), &source.name, mode)?);
        } else if let Some(source) = &source.downward_api {
            files.extend(downward(pod, source.items.as_deref(), mode)?);
        } else if let Some(source) = &source.service_account_token {
            let token = client.token(&pod.spec, source).await?;
            let file = VolumeFile::new(token.into_bytes(), mode.unwrap_or(DEFAULT_MODE));
            files.insert(source.path.clone(), file);
        }
        // Trust bundles and certificates have no issuer here, so they are missing from the volume.
    }
    Ok(files)
}

/// All keys, or only those in `items`, under the paths in `items`.
fn select(
    data: Option<Data>,
    items: Option<&[core::KeyToPath]>,
    name: &str,
    default_mode: Option<i32>,
) -> Result<Files, SetupError> {
    let default_mode = default_mode.unwrap_or(DEFAULT_MODE);
    let data = match (data, items) {
        (Some(data), Some(_)) => data,
        (data, _) => {
            let all = data.unwrap_or_default().into_iter();
            return Ok(all.map(|(key, content)| (key, VolumeFile::new(content, default_mode))).collect());
        }
    };
    let pick = |item: &core::KeyToPath| {
        let message = || format!("references non-existent key: {} in {name:?}", item.key);
        let content = data.get(&item.key).cloned().ok_or_else(|| SetupError::missing(message()))?;
        Ok((item.path.clone(), VolumeFile::new(content, item.mode.unwrap_or(default_mode))))
    };
    items.unwrap_or_default().iter().map(pick).collect()
}

fn downward(
    pod: &Pod,
    items: Option<&[core::DownwardAPIVolumeFile]>,
    default_mode: Option<i32>,
) -> Result<Files, SetupError> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let content = if let Some(reference) = &item.field_ref {
            environment::field(pod, &reference.field_path)?
        } else if let (Some(reference), Some(container)) =
            (&item.resource_field_ref, pod.spec.containers.first())
        {
            environment::resource(pod, container, reference)?
        } else {
            String::new()
        };
        let mode = item.mode.or(default_mode).unwrap_or(DEFAULT_MODE);
        files.insert(item.path.clone(), VolumeFile::new(content.into_bytes(), mode));
    }
    Ok(files)
}

/// Makes the folder of a volume. A folder with files is made again, because containers may have changed it.
/// Its group is that of the pod's `fsGroup`, where this process may give it away.
async fn fill(
    folder: &PodFolder,
    volume: String,
    files: Option<Files>,
    users: Users,
    group: Option<i64>,
) -> Result<(), SetupError> {
    let (pod, name) = (folder.clone(), volume.clone());
    let group = group.and_then(|group| u32::try_from(group).ok());
    let filled = tokio::task::spawn_blocking(move || {
        let volumes = pod.volumes()?;
        if files.is_some() {
            volumes.remove(&name)?;
        }
        let folder = volumes.enter_or_create(&name)?;
        let group_reads = if group.is_some() { GROUP_READS } else { 0 };
        for (path, file) in files.iter().flatten() {
            folder.write(path, &file.content, file.mode | group_reads)?;
        }
        // No other user enters the pod's own folder, but its containers may run as any user.
        if users == Users::Any {
            folder.set_mode(if files.is_some() { READ_BY_ALL } else { WRITTEN_BY_ALL })?;
        }
        if let Some(group) = group {
            folder.give_to_group(group)?;
        }
        Ok::<_, std::io::Error>(())
    });
    let filled = filled.await.unwrap_or_else(|panic| Err(panic.into()));
    filled.map_err(|error| unusable(&format!("volume {volume:?}"), &error))
}

/// Why a folder cannot be made: for ever, or as long as the disk is as it is.
pub(super) fn unusable(what: &str, error: &std::io::Error) -> SetupError {
    let message = format!("{what}: {error}");
    match error.kind() {
        // The paths are wrong, or a container has put something else in the place of a folder.
        ErrorKind::InvalidInput | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            SetupError::refused(FAILED_MOUNT, message)
        }
        _ => SetupError::missing(message),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn items_select_and_rename() {
        let data = Data::from([("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())]);
        let item = |key: &str, path: &str, mode| core::KeyToPath { key: key.into(), path: path.into(), mode };
        let file = |content: &str, mode| VolumeFile { content: content.into(), mode };
        let all = Files::from([("a".into(), file("1", 0o644)), ("b".into(), file("2", 0o644))]);
        assert_eq!(select(Some(data.clone()), None, "m", None).unwrap(), all);
        assert_eq!(select(None, Some(&[item("a", "x", None)]), "m", None).unwrap(), Files::new());
        let items = [item("b", "dir/x", None), item("a", "y", Some(0o400))];
        let picked = select(Some(data.clone()), Some(&items), "m", Some(0o600)).unwrap();
        let wanted = Files::from([("dir/x".into(), file("2", 0o600)), ("y".into(), file("1", 0o400))]);
        assert_eq!(picked, wanted);
        let twice = [item("a", "x", None), item("a", "y", None)];
        assert_eq!(select(Some(data.clone()), Some(&twice), "m", None).unwrap().len(), 2);
        let missing = select(Some(data), Some(&[item("c", "x", None)]), "m", None);
        assert!(matches!(missing, Err(SetupError::Missing { .. })));
    }

    #[test]
    fn variables_are_named_after_their_volumes() {
        assert_eq!(variable("work-queue"), "YARDMASTER_VOLUME_WORK_QUEUE");
    }
}
