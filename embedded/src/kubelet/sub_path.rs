//! The part of a volume that a container mounts.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
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

/// The path of a mount's source on this host: the volume, or a folder in it, which is made unless it is
/// there.
///
/// # Errors
///
/// If the path leads out of the volume, or nowhere.
pub(super) fn provide(mount: &VolumeMount, root: &Path, below: &str) -> Result<PathBuf, SetupError> {
    find_after(mount, root, below, |below| make_below(root, below))
}

/// The path of a mount's source on this host, in a volume that cannot be written.
///
/// # Errors
///
/// If the path leads out of the volume, or nowhere.
pub(super) fn find(mount: &VolumeMount, root: &Path, below: &str) -> Result<PathBuf, SetupError> {
    find_after(mount, root, below, |_| Ok(()))
}

fn find_after(
    mount: &VolumeMount,
    root: &Path,
    below: &str,
    make: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<PathBuf, SetupError> {
    if below.is_empty() {
        return Ok(root.to_owned());
    }
    let outside = || {
        let message = format!("subPath {below:?} leads out of volume {:?}", mount.name);
        SetupError::refused(CONFIG_ERROR, message)
    };
    let unmade = |error: std::io::Error| {
        SetupError::waiting(CONFIG_ERROR, format!("subPath {below:?} of volume {:?}: {error}", mount.name))
    };
    if !Path::new(below).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let path = root.join(below);
    make(Path::new(below)).map_err(unmade)?;
    // A container may have put a symbolic link there.
    let (path, root) = (path.canonicalize().map_err(unmade)?, root.canonicalize().map_err(unmade)?);
    if path.starts_with(&root) { Ok(path) } else { Err(outside()) }
}

/// Makes the folders of a path within a volume, with the permissions of the volume. Nothing is made behind a
/// symbolic link.
fn make_below(root: &Path, below: &Path) -> std::io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(root, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode & 0o777);
    for part in below.components().filter(|part| matches!(part, Component::Normal(_))) {
        let is_made = match rustix::fs::mkdirat(&folder, part.as_os_str(), mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let next = rustix::fs::openat(&folder, part.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty());
        let Ok(next) = next else {
            // A file, or a link: where it leads is judged by the caller.
            return Ok(());
        };
        if is_made {
            rustix::fs::fchmod(&next, mode)?;
        }
        folder = next;
    }
    Ok(())
}
