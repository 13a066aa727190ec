//! PersistentVolumeClaims: each has a folder of this host, which outlives the pods that use it.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::setup::SetupError;
use super::volumes;

/// Permissions of a claim's folder: containers may run as any user.
const WRITTEN_BY_ALL: u32 = 0o777;
/// Permissions of the folders around it.
const PRIVATE: u32 = 0o700;

/// Where the folders of claims are.
#[derive(Clone, Debug, Default)]
pub enum Claims {
    /// With the kubelet's own data: a claim that is deleted and created again has a new folder.
    #[default]
    OfCluster,
    /// In this folder, by namespace and name, whatever becomes of the cluster and its objects.
    Kept(PathBuf),
}

impl Claims {
    /// The folder of a claim, which is made unless it is there. `data` is the kubelet's own folder.
    pub(super) async fn provide(
        &self,
        data: &Path,
        claim: &PersistentVolumeClaim,
    ) -> Result<PathBuf, SetupError> {
        let metadata = &claim.metadata;
        let part = |given: &Option<String>| given.clone().unwrap_or_default();
        let folder = match self {
            Self::OfCluster => data.join("claims").join(part(&metadata.uid)),
            Self::Kept(root) => root.join(part(&metadata.namespace)).join(part(&metadata.name)),
        };
        let made = tokio::task::spawn_blocking(move || make(&folder).map(|()| folder)).await;
        let made = made.unwrap_or_else(|panic| Err(panic.into()));
        made.map_err(|error| volumes::unusable(&format!("claim {:?}", part(&metadata.name)), &error))
    }
}

fn make(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    // Other users of this machine do not get as far as the folder.
    DirBuilder::new().recursive(true).mode(PRIVATE).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(WRITTEN_BY_ALL))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_claim_has_a_folder_of_its_own_that_stays() {
        let directory = tempfile::tempdir().unwrap();
        let claim = |uid: &str| {
            let metadata = serde_json::json!({"namespace": "n", "name": "data", "uid": uid});
            serde_json::from_value::<PersistentVolumeClaim>(serde_json::json!({ "metadata": metadata }))
                .unwrap()
        };
        let kept = Claims::Kept(directory.path().join("kept"));
        let folder = kept.provide(directory.path(), &claim("1")).await.unwrap();
        std::fs::write(folder.join("result"), "42").unwrap();
        let again = kept.provide(directory.path(), &claim("2")).await.unwrap();
        assert_eq!(std::fs::read(again.join("result")).unwrap(), b"42");
        assert_eq!(again, directory.path().join("kept/n/data"));
        let mode =
            |path: &str| std::fs::metadata(directory.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("kept"), mode("kept/n"), mode("kept/n/data")), (PRIVATE, PRIVATE, WRITTEN_BY_ALL));

        let first = Claims::OfCluster.provide(directory.path(), &claim("1")).await.unwrap();
        let second = Claims::OfCluster.provide(directory.path(), &claim("2")).await.unwrap();
        assert_ne!(first, second);
        assert_eq!(std::fs::metadata(second).unwrap().permissions().mode() & 0o777, WRITTEN_BY_ALL);
    }
}
