//! The files that a container finds as a process: those of the host, and, in a mount namespace, the volumes
//! at their paths.

use std::path::{Path, PathBuf};

use super::environment::Variables;
use super::mounting;
use super::pod::{Container, PodSpec};
use super::setup::SetupError;
use super::supervisor::{Mount, Namespace};
use super::volumes::{self, Volumes};
use super::{refusals, sub_path};

/// Where a container finds the folder of its pod if a volume hides it.
const POD: &str = "/.yardmaster-pod";

/// The files that a container finds.
#[derive(Debug)]
pub(super) struct View {
    /// The folder of the pod on the host.
    pod: PathBuf,
    kind: Files,
}

#[derive(Debug)]
enum Files {
    /// The files of the host, whatever it mounts.
    Host,
    /// Its volumes, and the files of the host elsewhere.
    Mounted {
        /// A volume hides the folder of the pod, which is at [`POD`] therefore.
        hides_pod: bool,
    },
}

impl View {
    /// The view of a container without mounts, whose pod has this folder.
    pub(super) fn of_host(pod: &Path) -> Self {
        Self { pod: pod.to_owned(), kind: Files::Host }
    }

    /// The view of a container with mounts, whose pod has this folder and these volumes. Asks the disk.
    pub(super) fn mounted(container: &Container, volumes: &Volumes, pod: &Path) -> Self {
        Self { pod: pod.to_owned(), kind: Files::Mounted { hides_pod: hides(container, volumes, pod) } }
    }

    /// Whether it has mounts.
    pub(super) fn is_mounted(&self) -> bool {
        matches!(self.kind, Files::Mounted { .. })
    }

    /// Where the container finds something that is here on the host.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        match (&self.kind, path.strip_prefix(&self.pod)) {
            (Files::Mounted { hides_pod: true }, Ok(below)) => Path::new(POD).join(below),
            _ => path.to_owned(),
        }
    }

    /// The variables with the paths of volumes. The whole of a mounted volume is where the manifest says.
    pub(super) fn variables(&self, container: &Container, volumes: &Volumes) -> Variables {
        let whole = container.volume_mounts.iter().filter(|mount| self.is_mounted() && !mount.is_part());
        let of_host = volumes.iter().map(|(name, path)| (name, self.path(path)));
        let mounted = whole.map(|mount| (&mount.name, mounting::target(mount)));
        let all = of_host.chain(mounted);
        all.map(|(name, path)| (volumes::variable(name), path.to_string_lossy().into_owned())).collect()
    }

    /// The namespace of a container with these variables, and with this file for its termination message.
    /// Makes what is to be mounted. Asks the disk.
    ///
    /// # Errors
    ///
    /// If a `subPath` leads nowhere.
    pub(super) fn namespace(
        &self,
        spec: &PodSpec,
        container: &Container,
        volumes: &Volumes,
        environment: &Variables,
        termination_log: &Path,
    ) -> Result<Option<Namespace>, SetupError> {
        let Files::Mounted { hides_pod } = self.kind else { return Ok(None) };
        let mounted = container.volume_mounts.iter().map(|mount| {
            let unknown =
                || SetupError::refused(refusals::FAILED_MOUNT, format!("no volume {:?}", mount.name));
            let root = volumes.get(&mount.name).ok_or_else(unknown)?;
            Ok(Mount {
                source: sub_path::provide(mount, root, &sub_path::of(mount, environment))?.path,
                target: mounting::target(mount),
                read_only: volumes::is_read_only(spec, mount),
            })
        });
        let message = Mount {
            source: termination_log.to_owned(),
            target: Path::new("/").join(container.termination_message_path()),
            read_only: false,
        };
        let pod = hides_pod.then(|| Mount { source: self.pod.clone(), target: POD.into(), read_only: false });
        let mounts: Result<Vec<_>, SetupError> = mounted.collect();
        Ok(Some(Namespace::Own(mounts?.into_iter().chain([message]).chain(pod).collect())))
    }
}

/// Whether a volume hides this folder.
fn hides(container: &Container, volumes: &Volumes, folder: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = resolved(folder);
    container.volume_mounts.iter().any(|mount| {
        let target = resolved(&mounting::target(mount));
        let is_same =
            volumes.get(&mount.name).is_some_and(|volume| !mount.is_part() && resolved(volume) == target);
        folder.starts_with(&target) && !is_same
    })
}
