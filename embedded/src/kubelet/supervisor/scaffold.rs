//! Places for mounts that the host does not have.
//!
//! A folder in which a place is missing gets a twin in memory, which is mounted over it. The twin shows
//! everything that the folder has: folders and files are mounted into it, and links are copied. In the twin
//! the place is made, and nothing is written on the host. Files that processes add beside it are theirs
//! alone, and end with them, as in a container.
//!
//! Within a volume a missing place is made in the volume, as in Kubernetes: new files belong there, and not
//! into a twin.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, FileType};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, fstat, readlinkat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::process::{chroot, fchdir};

/// Permissions of a folder that its owner needs.
const OWNER: u32 = 0o700;
/// Permissions of a file or a folder.
const PERMISSIONS: u32 = 0o7777;

/// The kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    File,
    Folder,
}

/// The folders of a new mount namespace that are not the host's.
#[derive(Debug, Default)]
pub(super) struct Scaffold {
    /// The mounted volumes, without symbolic links.
    volumes: Vec<PathBuf>,
    twins: Vec<Twin>,
}

#[derive(Debug)]
struct Twin {
    file_system: u64,
    folder: PathBuf,
}

impl Scaffold {
    /// A place at this absolute path, made unless there is one. Returns it without symbolic links.
    pub(super) fn provide(&mut self, path: &Path, kind: PlaceKind) -> Result<PathBuf> {
        let (parent, missing) = nearest(path)?;
        let Some((first, rest)) = missing.split_first() else { return Ok(parent) };
        if !self.is_own(&parent)? {
            self.make_twin(&parent, first)?;
        }
        let mut place = parent.join(first);
        for next in rest {
            make(&place, PlaceKind::Folder)?;
            place.push(next);
        }
        make(&place, kind)?;
        Ok(place)
    }

    /// Ends the work: from now on twins can be mounted as any folder, such as in a namespace within this one.
    pub(super) fn finish(self) -> Result<()> {
        self.twins.iter().try_for_each(|twin| Ok(mount_change(&twin.folder, MountPropagationFlags::PRIVATE)?))
    }

    /// Remembers that a volume is mounted here.
    pub(super) fn add_volume(&mut self, place: PathBuf) {
        self.volumes.push(place);
    }

    /// Whether something may be made in this folder: in a volume or in a twin.
    fn is_own(&self, folder: &Path) -> Result<bool> {
        let file_system = rustix::fs::stat(folder)?.st_dev;
        let is_in_volume = self.volumes.iter().any(|volume| folder.starts_with(volume));
        Ok(is_in_volume || self.twins.iter().any(|twin| twin.file_system == file_system))
    }

    /// Mounts a twin over a folder, without what it has of this name.
    fn make_twin(&mut self, folder: &Path, without: &OsStr) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let original = rustix::fs::open(folder, flags, Mode::empty())?;
        let entries = entries(folder)?;
        let mode = (fstat(&original)?.st_mode & PERMISSIONS) | OWNER;
        let options = CString::new(format!("mode={mode:o}"))?;
        mount("yardmaster", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
        if folder == Path::new("/") {
            // A process keeps its root when another is mounted over it. The parent of a root is what was
            // mounted there last.
            chroot("/..")?;
        }
        // So that a volume that has the folder in it shows the original.
        mount_change(folder, MountPropagationFlags::UNBINDABLE)?;
        let file_system = rustix::fs::stat(folder)?.st_dev;
        self.twins.push(Twin { file_system, folder: folder.to_owned() });
        if entries.is_empty() {
            return Ok(());
        }
        // Relative paths lead into the original, absolute ones into the twin.
        fchdir(&original)?;
        entries
            .iter()
            .filter(|(name, _)| name != without)
            .try_for_each(|(name, kind)| show(name, *kind, &folder.join(name)))
    }
}

/// The part of a path that is there, without symbolic links, and the names behind it. A folder that cannot be
/// entered counts as empty.
fn nearest(path: &Path) -> Result<(PathBuf, Vec<OsString>)> {
    let mut missing = Vec::new();
    for parent in path.ancestors() {
        match parent.canonicalize() {
            Ok(parent) => {
                missing.reverse();
                return Ok((parent, missing));
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
        match parent.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Err(ErrorKind::NotFound.into())
}

fn make(place: &Path, kind: PlaceKind) -> Result<()> {
    match kind {
        PlaceKind::Folder => std::fs::create_dir(place),
        PlaceKind::File => File::create_new(place).map(drop),
    }
}

/// The entries of a folder; none if it cannot be entered.
fn entries(folder: &Path) -> Result<Vec<(OsString, FileType)>> {
    if access(folder, Access::EXEC_OK).is_err() {
        return Ok(Vec::new());
    }
    let unlisted =
        |error: Error| Error::new(error.kind(), format!("cannot list {}: {error}", folder.display()));
    let found = std::fs::read_dir(folder).map_err(unlisted)?;
    found.map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))).collect()
}

/// Shows what is in the current directory under this name at another place.
fn show(name: &OsStr, kind: FileType, place: &Path) -> Result<()> {
    if kind.is_symlink() {
        return match readlinkat(rustix::fs::CWD, name, Vec::new()) {
            Err(Errno::NOENT) => Ok(()),
            target => symlink(OsStr::from_bytes(target?.as_bytes()), place),
        };
    }
    make(place, if kind.is_dir() { PlaceKind::Folder } else { PlaceKind::File })?;
    match mount_bind_recursive(name, place) {
        // It is gone by now, or it is one of the few things that cannot be mounted twice, such as a mount
        // namespace.
        Err(Errno::NOENT | Errno::INVAL | Errno::ACCESS) => {
            if kind.is_dir() {
                std::fs::remove_dir(place)
            } else {
                std::fs::remove_file(place)
            }
        }
        shown => Ok(shown?),
    }
}
