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

/// The part of a workspace that a container gets.
#[derive(Debug)]
pub(super) enum Place {
    /// Folders of its pod.
    OfPod {
        /// Its `HOME`, where it starts.
        home: PathBuf,
        /// Its `TMPDIR`.
        temporary: PathBuf,
    },
    /// The folders of this process.
    OfHost,
}

impl Place {
    /// The place as a container finds it that sees paths of the host elsewhere.
    pub(super) fn seen(self, at: impl Fn(&Path) -> PathBuf) -> Self {
        match self {
            Self::OfPod { home, temporary } => Self::OfPod { home: at(&home), temporary: at(&temporary) },
            Self::OfHost => Self::OfHost,
        }
    }

    /// `HOME` and `TMPDIR`.
    pub(super) fn variables(&self) -> Variables {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match self {
            Self::OfPod { home, temporary } => {
                [("HOME".to_owned(), text(home)), ("TMPDIR".to_owned(), text(temporary))].into()
            }
            Self::OfHost => {
                let host = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
                ["HOME", "TMPDIR"].into_iter().filter_map(host).collect()
            }
        }
    }

    /// The directory in which a container starts; `None` for that of this process. A relative path is one
    /// below the pod's own.
    pub(super) fn starts_in(&self, working_dir: Option<&str>) -> Option<PathBuf> {
        let own = match self {
            Self::OfPod { home, .. } => Some(home.as_path()),
            Self::OfHost => None,
        };
        match working_dir.filter(|directory| !directory.is_empty()) {
            Some(given) => Some(own.unwrap_or(Path::new("")).join(given)),
            None => own.map(Path::to_owned),
        }
    }
}

impl Workspace {
    /// The place of a pod. Makes its folders unless they exist.
    pub(super) async fn provide(self, pod: &PodFolder) -> std::io::Result<Place> {
        if self == Self::OfHost {
            return Ok(Place::OfHost);
        }
        let pod = pod.clone();
        let made = tokio::task::spawn_blocking(move || pod.work_folders());
        let (home, temporary) = made.await.unwrap_or_else(|panic| Err(panic.into()))?;
        Ok(Place::OfPod { home, temporary })
    }
}
