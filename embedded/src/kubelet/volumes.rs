//! Volumes as directories of this host.
//!
//! A process cannot have its own mounts without root. Instead, every volume is a directory, and each
//! container of the pod finds its path in the variable `YARDMASTER_VOLUME_<NAME>` (upper case, `-` becomes
//! `_`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as core;

use super::client::{Data, PodClient};
use super::environment::{self, Variables};
use super::pod::{Pod, Volume};
use super::setup::SetupError;

/// Creates the pod's volumes below `directory` and returns the variables with their paths.
pub(super) async fn prepare(
    client: &PodClient,
    pod: &Pod,
    directory: &Path,
) -> Result<Variables, SetupError> {
    let mut variables = Variables::new();
    for volume in &pod.spec.volumes {
        let path = match &volume.host_path {
            Some(host) => PathBuf::from(&host.path),
            None => {
                let path = directory.join(&volume.name);
                fill(&path, files(client, pod, volume).await?).await?;
                path
            }
        };
        variables.insert(variable(&volume.name), path.to_string_lossy().into_owned());
    }
    Ok(variables)
}

/// The name of the variable with a volume's directory.
fn variable(volume: &str) -> String {
    format!("YARDMASTER_VOLUME_{}", volume.to_uppercase().replace('-', "_"))
}

/// The files of a volume, by relative path.
async fn files(client: &PodClient, pod: &Pod, volume: &Volume) -> Result<Data, SetupError> {
    if volume.empty_dir.is_some() {
        Ok(Data::new())
    } else if let Some(source) = &volume.config_map {
        let data = client.config_map(&source.name, source.optional.unwrap_or(false)).await?;
        select(data, source.items.as_deref(), &source.name)
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let data = client.secret(name, source.optional.unwrap_or(false)).await?;
        select(data, source.items.as_deref(), name)
    } else if let Some(source) = &volume.downward_api {
        downward(pod, source.items.as_deref())
    } else if let Some(source) = &volume.projected {
        projected(client, pod, source).await
    } else {
        let kind = volume.other.keys().next().map_or("unknown", String::as_str);
        let name = &volume.name;
        let message = format!("volume {name:?}: a {kind} volume is not supported by the local kubelet");
        Err(SetupError::refused("FailedMount", message))
    }
}

async fn projected(
    client: &PodClient,
    pod: &Pod,
    source: &core::ProjectedVolumeSource,
) -> Result<Data, SetupError> {
    let mut files = Data::new();
    for source in source.sources.iter().flatten() {
        if let Some(source) = &source.config_map {
            let data = client.config_map(&source.name, source.optional.unwrap_or(false)).await?;
            files.extend(select(data, source.items.as_deref(), &source.name)?);
        } else if let Some(source) = &source.secret {
            let data = client.secret(&source.name, source.optional.unwrap_or(false)).await?;
            files.extend(select(data, source.items.as_deref(), &source.name)?);
        } else if let Some(source) = &source.downward_api {
            files.extend(downward(pod, source.items.as_deref())?);
        }
        // Service account tokens and trust bundles have no issuer here, so they are missing from the volume.
    }
    Ok(files)
}

/// All keys, or only those in `items`, under the paths in `items`.
fn select(data: Option<Data>, items: Option<&[core::KeyToPath]>, name: &str) -> Result<Data, SetupError> {
    let (Some(mut data), Some(items)) = (data.clone(), items) else { return Ok(data.unwrap_or_default()) };
    let pick = |item: &core::KeyToPath| {
        let content = data.remove(&item.key);
        let message = || format!("references non-existent key: {} in {name:?}", item.key);
        content.map(|content| (item.path.clone(), content)).ok_or_else(|| SetupError::missing(message()))
    };
    items.iter().map(pick).collect()
}

fn downward(pod: &Pod, items: Option<&[core::DownwardAPIVolumeFile]>) -> Result<Data, SetupError> {
    let mut files = BTreeMap::new();
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
        files.insert(item.path.clone(), content.into_bytes());
    }
    Ok(files)
}

async fn fill(directory: &Path, files: Data) -> Result<(), SetupError> {
    let write = async {
        tokio::fs::create_dir_all(directory).await?;
        for (path, content) in files {
            // The API forbids absolute paths and `..` in volume items and keys.
            let path = directory.join(path);
            if let Some(parent) = path.parent() {
                tokio::fs::create_dir_all(parent).await?;
            }
            tokio::fs::write(path, content).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    write
        .await
        .map_err(|error| SetupError::missing(format!("volume directory {}: {error}", directory.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn items_select_and_rename() {
        let data = Data::from([("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())]);
        let item = |key: &str, path: &str| core::KeyToPath { key: key.into(), path: path.into(), mode: None };
        assert_eq!(select(Some(data.clone()), None, "m").unwrap(), data);
        assert_eq!(select(None, Some(&[item("a", "x")]), "m").unwrap(), Data::new());
        let picked = select(Some(data.clone()), Some(&[item("b", "dir/x")]), "m").unwrap();
        assert_eq!(picked, Data::from([("dir/x".into(), b"2".to_vec())]));
        assert!(matches!(select(Some(data), Some(&[item("c", "x")]), "m"), Err(SetupError::Missing(_))));
    }

    #[test]
    fn variables_are_named_after_their_volumes() {
        assert_eq!(variable("work-queue"), "YARDMASTER_VOLUME_WORK_QUEUE");
    }
}
