//! The part of a volume that a container mounts.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::environment::{self, Variables};
use super::pod::VolumeMount;
use super::refusals::CONFIG_ERROR;
use super::setup::SetupError;

/// The path of the part within the volume of a container with these variables; empty for all of it.
pub(super) fn of(mount: &VolumeMount, variables: &Variables) -> String {
    match mount.sub_path_expr.as_str() {
        "" => mount.sub_path.clone(),
        expression => environment::expand(expression, variables),
    }
}

/// The source of a mount on this host.
#[derive(Debug)]
pub(super) struct Source {
    /// The path, without symbolic links if it is that of a part.
    pub(super) path: PathBuf,
    /// The volume that the path must not leave, without symbolic links. Absent if no container can change the path.
    volume: Option<PathBuf>,
}

impl Source {
    /// All of a volume.
    fn whole(root: &Path) -> Self {
        Self { path: root.to_owned(), volume: None }
    }

    /// The same source, in a volume that no container can write. The kubelet may replace its files at any time.
    pub(super) fn in_filled_volume(self) -> Self {
        Self { volume: None, ..self }
    }

    /// Whether the path leads out of its volume by now. The programs of a pod may put a link to another folder of
    /// this host there before the engine mounts it.
    ///
    /// A path that leads nowhere, or to another folder of the volume, does not count. A program may rename, remove
    /// and replace its own folder as soon as it runs. A link that was there for a moment is not seen.
    pub(super) fn leads_out(&self) -> bool {
        self.volume
            .as_ref()
            .is_some_and(|volume| resolve(&self.path).is_ok_and(|now| !now.starts_with(volume)))
    }
}

/// The source of a mount on this host: the volume, or a folder in it, which is made unless it is there.
///
/// # Errors
///
/// If the path leads out of the volume, or nowhere.
pub(super) fn provide(mount: &VolumeMount, root: &Path, below: &str) -> Result<Source, SetupError> {
    find_after(mount, root, below, |below| make_below(root, below))
}

/// The source of a mount on this host, in a volume that cannot be written.
///
/// # Errors
///
/// If the path leads out of the volume, or nowhere.
pub(super) fn find(mount: &VolumeMount, root: &Path, below: &str) -> Result<Source, SetupError> {
    find_after(mount, root, below, |_| Ok(())).map(Source::in_filled_volume)
}

fn find_after(
    mount: &VolumeMount,
    root: &Path,
    below: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Source, SetupError> {
    if below.is_empty() {
        return Ok(Source::whole(root));
    }
    let outside = || {
        let message = format!("subPath {below:?} leads out of volume {:?}", mount.name);
        SetupError::refused(CONFIG_ERROR, message)
    };
    let unmade = |error: io::Error| {
        SetupError::waiting(CONFIG_ERROR, format!("subPath {below:?} of volume {:?}: {error}", mount.name))
    };
    if !Path::new(below).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    make(Path::new(below)).map_err(unmade)?;
    let path = resolve(&root.join(below)).map_err(unmade)?;
    let volume = root.canonicalize().map_err(unmade)?;
    // A container may have put a symbolic link there.
    if path.starts_with(&volume) { Ok(Source { path, volume: Some(volume) }) } else { Err(outside()) }
}

/// The path of a file or a folder without symbolic links: of the file that is opened, whatever happens to the path
/// meanwhile.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let opened = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Makes the folders of a path within a volume, with the permissions of the volume. Nothing is made behind a
/// symbolic link.
fn make_below(root: &Path, below: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = fs::open(root, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode & 0o777);
    for part in below.components().filter(|part| matches!(part, Component::Normal(_))) {
        let is_made = match fs::mkdirat(&folder, part.as_os_str(), mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let next = fs::openat(&folder, part.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty());
        let Ok(next) = next else {
            // A file, or a link: where it leads is judged by the caller.
            return Ok(());
        };
        if is_made {
            fs::fchmod(&next, mode)?;
        }
        folder = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_part_is_found_within_its_volume_and_may_change_there() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("volume"), folder.path().join("other"));
        for made in [&root, &other] {
            std::fs::create_dir(made).unwrap();
        }
        symlink("real", root.join("link")).unwrap();
        symlink(&other, root.join("out")).unwrap();
        let mount = VolumeMount { name: "v".into(), ..VolumeMount::default() };
        let part = provide(&mount, &root, "real/deep").unwrap();
        let filled = find(&mount, &root, "link/deep").unwrap();
        assert_eq!(filled.path, part.path, "a link within the volume");
        for outside in ["out", "../other", "/other"] {
            let refused = find(&mount, &root, outside);
            assert!(matches!(refused, Err(SetupError::Refused { .. })), "{outside}: {refused:?}");
        }

        assert!(!part.leads_out());
        std::fs::create_dir(other.join("deep")).unwrap();
        std::fs::rename(root.join("real"), root.join("moved")).unwrap();
        assert!(!part.leads_out(), "nothing is there");
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        assert!(!part.leads_out(), "it was made again");
        std::fs::remove_dir_all(root.join("real")).unwrap();
        symlink("moved", root.join("real")).unwrap();
        assert!(!part.leads_out(), "a link within the volume");
        std::fs::remove_file(root.join("real")).unwrap();
        symlink(&other, root.join("real")).unwrap();
        assert!(part.leads_out(), "a link to another folder of the host");
        assert!(!filled.leads_out(), "no container can have made the link");
        assert!(!provide(&mount, &root, "").unwrap().leads_out());
    }
}
