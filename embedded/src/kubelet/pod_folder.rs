//! A folder for each pod, with its volumes, logs and termination messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::Folder;
use super::pod::PodKey;
use crate::data_dir::{self, Claim, ClaimError};

/// The file in each pod's folder that says for which pod the kubelet has made it: it contains the uid.
const RECORD: &str = ".yardmaster-pod";
/// The folder of a pod's volumes.
const VOLUMES: &str = "volumes";
/// The folder in which a pod's containers start.
const HOME: &str = "home";
/// The folder of a pod's temporary files.
const TEMPORARY: &str = "tmp";
/// The folder of a pod's logs.
const LOGS: &str = "logs";

/// The folders of all pods.
#[derive(Clone, Debug)]
pub(super) struct PodFolders {
    folder: Arc<Folder>,
    path: PathBuf,
}

impl PodFolders {
    /// Takes a directory for the folders of pods.
    pub(super) fn claim(path: &Path) -> Result<Self, ClaimError> {
        let made_earlier = |folder: &Folder, name: &str| {
            uid_in(name).is_some_and(|uid| uuid::Uuid::try_parse(uid).is_ok())
                && folder.enter(name).is_ok_and(|pod| pod.enter(LOGS).is_ok() || pod.enter(VOLUMES).is_ok())
        };
        let is_earlier = |names: &[std::ffi::OsString]| {
            let mut names = names.iter().filter_map(|name| name.to_str());
            Folder::open(path).is_ok_and(|folder| names.any(|name| made_earlier(&folder, name)))
        };
        let claim = data_dir::claim(path, is_earlier)?;
        let folder = Folder::open(path)?;
        if claim == Claim::Earlier {
            for name in folder.names()?.iter().filter(|name| made_earlier(&folder, name)) {
                record(&folder.enter(name)?, uid_in(name).unwrap_or_default())?;
            }
        }
        Ok(Self { folder: Arc::new(folder), path: path.to_owned() })
    }

    /// The folder of a pod.
    pub(super) fn of(&self, pod: &PodKey) -> PodFolder {
        let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
        PodFolder { pods: Arc::clone(&self.folder), path: self.path.join(&name), name, uid: pod.uid.clone() }
    }

    /// Where they are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folders that a kubelet has made.
    pub(super) fn all(&self) -> Vec<PodFolder> {
        let names = self.folder.names().unwrap_or_default().into_iter();
        let folders = names.filter_map(|name| {
            let uid = uid_in(&name)?.to_owned();
            let folder = self.folder.enter(&name).ok()?;
            // A byte more than expected reveals a longer record.
            let recorded = folder.read_end(RECORD, uid.len() as u64 + 1).ok()?;
            let pods = Arc::clone(&self.folder);
            (recorded == uid.as_bytes()).then(|| PodFolder { pods, path: self.path.join(&name), name, uid })
        });
        folders.collect()
    }
}

/// The uid in the name of a pod's folder.
fn uid_in(name: &str) -> Option<&str> {
    let (pod, uid) = name.rsplit_once('_')?;
    let (namespace, name) = pod.split_once('_')?;
    [namespace, name, uid].iter().all(|part| !part.is_empty()).then_some(uid)
}

fn record(folder: &Folder, uid: &str) -> std::io::Result<()> {
    match folder.write(RECORD, uid.as_bytes(), 0o600) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// The folder of one pod. Methods access the disk.
#[derive(Clone, Debug)]
pub(super) struct PodFolder {
    pods: Arc<Folder>,
    name: String,
    uid: String,
    path: PathBuf,
}

impl PodFolder {
    /// The path, for the pod itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a volume, for the pod itself.
    pub(super) fn volume_path(&self, volume: &str) -> PathBuf {
        self.path.join(VOLUMES).join(volume)
    }

    /// The uid of the pod.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Opens the folder, which must exist.
    pub(super) fn open(&self) -> std::io::Result<Folder> {
        self.pods.enter(&self.name)
    }

    /// The folder of volumes.
    pub(super) fn volumes(&self) -> std::io::Result<Folder> {
        self.create()?.enter_or_create(VOLUMES)
    }

    /// The paths of the folders for the pod's own files and for its temporary ones, which are made unless they
    /// exist.
    pub(super) fn work_folders(&self) -> std::io::Result<(PathBuf, PathBuf)> {
        let folder = self.create()?;
        for name in [HOME, TEMPORARY] {
            folder.enter_or_create(name)?;
        }
        Ok((self.path.join(HOME), self.path.join(TEMPORARY)))
    }

    /// The folder of all logs, which must exist.
    pub(super) fn logs(&self) -> std::io::Result<Folder> {
        self.open()?.enter(LOGS)
    }

    /// The folder of the logs of a container.
    pub(super) fn create_logs(&self, container: &str) -> std::io::Result<Folder> {
        self.create()?.enter_or_create(LOGS)?.enter_or_create(container)
    }

    /// Opens the folder, which is made unless it exists.
    pub(super) fn create(&self) -> std::io::Result<Folder> {
        let folder = self.pods.enter_or_create(&self.name)?;
        record(&folder, &self.uid)?;
        Ok(folder)
    }

    /// Removes the folder, if there is one.
    pub(super) async fn remove(self) {
        let path = self.path.clone();
        let removed = tokio::task::spawn_blocking(move || self.pods.remove(&self.name)).await;
        if let Err(error) = removed.unwrap_or_else(|panic| Err(panic.into())) {
            tracing::warn!(directory = %path.display(), %error, "cannot remove a pod's directory");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(uid: &str) -> PodKey {
        PodKey { namespace: "default".into(), name: "a".into(), uid: uid.into() }
    }

    fn uids(pods: &PodFolders) -> Vec<String> {
        let mut uids: Vec<_> = pods.all().iter().map(|pod| pod.uid().to_owned()).collect();
        uids.sort();
        uids
    }

    #[test]
    fn only_folders_that_a_kubelet_has_made_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let pods = PodFolders::claim(directory.path()).unwrap();
        pods.of(&key("1")).volumes().unwrap();
        pods.of(&key("2")).create_logs("main").unwrap();
        for name in ["my_project", "a_b_c", "default_a_3", "file"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("default_a_3").join(RECORD), "33").unwrap();
        assert_eq!(uids(&pods), ["1", "2"]);
        assert_eq!(uids(&PodFolders::claim(directory.path()).unwrap()), ["1", "2"]);
    }

    #[test]
    fn folders_of_an_earlier_version_are_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let uid = uuid::Uuid::new_v4().to_string();
        std::fs::create_dir_all(directory.path().join("my_own_project/logs")).unwrap();
        assert!(matches!(PodFolders::claim(directory.path()), Err(ClaimError::Foreign)));
        std::fs::create_dir_all(directory.path().join(format!("default_a_{uid}/logs"))).unwrap();
        std::fs::create_dir_all(directory.path().join(format!("my_own_{}", uuid::Uuid::new_v4()))).unwrap();
        assert_eq!(uids(&PodFolders::claim(directory.path()).unwrap()), [uid]);
    }
}
