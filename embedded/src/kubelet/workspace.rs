//! Where the processes of a pod work, unless their containers name other folders.

use std::path::{Path, PathBuf};

use super::environment::Variables;
use super::pod_folder::PodFolder;

/// The folders in which pods work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    /// Each pod has folders of its own, which go with it: `HOME`, where its containers start, and `TMPDIR`.
    #[default]
    OfPod,
    /// All pods share the working directory, `HOME` and `TMPDIR` of this process.
    OfHost,
}

/// What a container gets of a workspace.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// `HOME` and `TMPDIR`.
    pub(super) variables: Variables,
    /// The working directory; `None` for that of this process.
    pub(super) directory: Option<PathBuf>,
}

impl Place {
    /// The directory in which a container starts. A relative path is one below the pod's own.
    pub(super) fn starts_in(&self, working_dir: Option<&str>) -> Option<PathBuf> {
        match working_dir.filter(|directory| !directory.is_empty()) {
            Some(given) => Some(self.directory.as_deref().unwrap_or(Path::new("")).join(given)),
            None => self.directory.clone(),
        }
    }
}

impl Workspace {
    /// The place of a pod. Makes its folders unless they exist.
    pub(super) async fn provide(self, pod: &PodFolder) -> std::io::Result<Place> {
        if self == Self::OfHost {
            let host = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
            let variables = ["HOME", "TMPDIR"].into_iter().filter_map(host).collect();
            return Ok(Place { variables, directory: None });
        }
        let pod = pod.clone();
        let made = tokio::task::spawn_blocking(move || pod.work_folders());
        let (home, temporary) = made.await.unwrap_or_else(|panic| Err(panic.into()))?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let variables = [("HOME".to_owned(), text(&home)), ("TMPDIR".to_owned(), text(&temporary))].into();
        Ok(Place { variables, directory: Some(home) })
    }
}
