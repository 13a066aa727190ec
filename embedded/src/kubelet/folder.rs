//! Folders in which containers can write. Every step goes through an open folder, and none follows a symbolic
//! link. So the kubelet stays inside and waits for nothing, whatever a container puts there.

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Flags of everything that is opened. Nothing blocks, such as the other end of a FIFO.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Permissions of folders.
const PRIVATE_FOLDER: Mode = Mode::RWXU;
/// Permissions of folders on the way to a file, behind private ones.
const ENTERED_BY_ALL: u32 = 0o755;
/// Permissions of files, unless they have a mode of their own.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// How often a folder is tried to be removed into which another process goes on writing.
const ATTEMPTS: u32 = 10;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder that no container has made, by a path that may contain symbolic links.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a folder in this one.
    pub(super) fn enter(&self, name: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFELY;
        Ok(Self(rustix::fs::openat(&self.0, component(name)?, flags, Mode::empty())?))
    }

    /// Opens a folder in this one, and creates it unless it exists.
    pub(super) fn enter_or_create(&self, name: &str) -> Result<Self> {
        match rustix::fs::mkdirat(&self.0, component(name)?, PRIVATE_FOLDER) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => self.enter(name),
        }
    }

    /// Creates a file. It must not exist.
    pub(super) fn create_file(&self, name: &str) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | SAFELY;
        Ok(rustix::fs::openat(&self.0, component(name)?, flags, PRIVATE_FILE)?.into())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// If it is no plain file, but a FIFO, a device or a symbolic link, for example.
    pub(super) fn open_file(&self, name: &str) -> Result<File> {
        let not_plain = || Error::new(ErrorKind::InvalidInput, "not a plain file");
        let file = match rustix::fs::openat(&self.0, component(name)?, OFlags::RDONLY | SAFELY, Mode::empty())
        {
            Err(Errno::LOOP | Errno::NXIO) => return Err(not_plain()),
            file => file?,
        };
        let is_plain = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::RegularFile;
        if is_plain { Ok(file.into()) } else { Err(not_plain()) }
    }

    /// The end of a plain file: at most this many bytes.
    pub(super) fn read_end(&self, name: &str, bytes: u64) -> Result<Vec<u8>> {
        let mut file = self.open_file(name)?;
        file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(bytes)))?;
        let mut content = Vec::new();
        file.take(bytes).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Creates an empty file with these permissions in this folder, in the place of one that may be there.
    ///
    /// # Errors
    ///
    /// If the name leaves the folder.
    pub(super) fn write_anew(&self, name: &str, mode: u32) -> Result<()> {
        self.remove(name)?;
        self.write(name, &[], mode)
    }

    /// Creates a file with these permissions at a path below this folder, together with the folders on the
    /// way.
    ///
    /// # Errors
    ///
    /// If the path leaves the folder, or if the file exists.
    pub(super) fn write(&self, path: &str, content: &[u8], mode: u32) -> Result<()> {
        let (parent, name) =
            path.rsplit_once('/').map_or((None, path), |(parent, name)| (Some(parent), name));
        let mut folder = None;
        for part in parent.into_iter().flat_map(|parent| parent.split('/')) {
            let next = folder.as_ref().unwrap_or(self).enter_or_create(part)?;
            next.set_mode(ENTERED_BY_ALL)?;
            folder = Some(next);
        }
        let mut file = folder.as_ref().unwrap_or(self).create_file(name)?;
        file.write_all(content)?;
        // Unlike the mode at creation, this one does not depend on the umask.
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Puts other content into the place of a file at a path below this folder. A reader sees the old content
    /// or the new one, and both files have the same mode and group.
    ///
    /// # Errors
    ///
    /// If there is no plain file at the path.
    pub(super) fn replace(&self, path: &str, content: &[u8]) -> Result<()> {
        let (parent, name) =
            path.rsplit_once('/').map_or((None, path), |(parent, name)| (Some(parent), name));
        let mut folder = None;
        for part in parent.into_iter().flat_map(|parent| parent.split('/')) {
            folder = Some(folder.as_ref().unwrap_or(self).enter(part)?);
        }
        let folder = folder.as_ref().unwrap_or(self);
        let old = rustix::fs::fstat(folder.open_file(name)?)?;
        let new = format!(".{}", uuid::Uuid::new_v4());
        let mut file = folder.create_file(&new)?;
        file.write_all(content)?;
        // A process that may not change groups has not changed that of the old file either.
        match rustix::fs::fchown(&file, None, Some(Gid::from_raw(old.st_gid))) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o7777))?;
        Ok(rustix::fs::renameat(&folder.0, &new, &folder.0, name)?)
    }

    /// Gives this folder these permissions.
    pub(super) fn set_mode(&self, mode: u32) -> Result<()> {
        Ok(rustix::fs::fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    /// Gives this folder and all in it to a group, which may write the folders. A user who may not do so leaves them as they are.
    pub(super) fn give_to_group(&self, group: u32) -> Result<()> {
        let owner = Some(Gid::from_raw(group));
        match rustix::fs::fchown(&self.0, None, owner) {
            Err(Errno::PERM) => return Ok(()),
            given => given?,
        }
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.0)?.st_mode);
        rustix::fs::fchmod(&self.0, mode | Mode::RWXG | Mode::SGID)?;
        for name in self.entries()? {
            match rustix::fs::openat(
                &self.0,
                &name,
                OFlags::RDONLY | OFlags::DIRECTORY | SAFELY,
                Mode::empty(),
            ) {
                Ok(folder) => Self(folder).give_to_group(group)?,
                Err(_) => rustix::fs::chownat(&self.0, &name, None, owner, AtFlags::SYMLINK_NOFOLLOW)?,
            }
        }
        Ok(())
    }

    /// Removes a file, or a folder with everything in it. It is no error if there is none.
    ///
    /// # Errors
    ///
    /// If another file system is mounted somewhere in it: nothing of that is removed.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let name = CString::new(component(name)?)?;
        for _ in 1..ATTEMPTS {
            match self.try_remove(&name) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                removed => return removed,
            }
        }
        self.try_remove(&name)
    }

    fn try_remove(&self, name: &CString) -> Result<()> {
        if self.unlink(name)? {
            return Ok(());
        }
        let Some(folder) = self.enter_for_removal(name)? else { return Ok(()) };
        folder.clear()?;
        self.remove_empty(name)
    }

    /// The names of everything in this folder that are text.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        Ok(self.entries()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// Empties this folder. Deeper folders move up first, so that the depth of a tree takes neither stack nor
    /// open files. Files that others remove meanwhile are removed.
    fn clear(&self) -> Result<()> {
        let prefix = uuid::Uuid::new_v4();
        let mut moved = 0_u64;
        loop {
            let before = moved;
            for name in self.entries()? {
                if self.unlink(&name)? {
                    continue;
                }
                let Some(folder) = self.enter_for_removal(&name)? else { continue };
                for inner in folder.entries()? {
                    // A folder that cannot be written cannot be moved either.
                    if folder.unlink(&inner)? || folder.enter_for_removal(&inner)?.is_none() {
                        continue;
                    }
                    absent_is_fine(rustix::fs::renameat(
                        &folder.0,
                        &inner,
                        &self.0,
                        format!("{prefix}-{moved}"),
                    ))?;
                    moved += 1;
                }
                self.remove_empty(&name)?;
            }
            if moved == before {
                return Ok(());
            }
        }
    }

    /// Removes what is no folder; `false` if it is one.
    fn unlink(&self, name: &CString) -> Result<bool> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::ISDIR | Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty folder.
    fn remove_empty(&self, name: &CString) -> Result<()> {
        absent_is_fine(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR))
    }

    /// Opens a folder in this one whatever its permissions, and gives itself all of them; `None` if it is gone. A file system that is
    /// mounted there belongs to others, and is left alone.
    fn enter_for_removal(&self, name: &CString) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFELY;
        let opened = match self.open_here(name, flags) {
            Err(Errno::ACCESS) => self.permit(name, flags).and_then(|()| self.open_here(name, flags)),
            opened => opened,
        };
        let folder = match opened {
            Err(Errno::NOENT) => return Ok(None),
            folder => folder?,
        };
        rustix::fs::fchmod(&folder, PRIVATE_FOLDER)?;
        Ok(Some(Self(folder)))
    }

    /// Gives itself all permissions of a folder in this one.
    fn permit(&self, name: &CString, flags: OFlags) -> rustix::io::Result<()> {
        let place = self.open_here(name, flags | OFlags::PATH)?;
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place));
        rustix::fs::chmod(&place, PRIVATE_FOLDER)
    }

    /// Opens something in this folder, unless something else is mounted there.
    fn open_here(&self, name: &CString, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match rustix::fs::openat2(&self.0, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            // A kernel before Linux 5.6, or a container runtime that does not know the call. Bind mounts of the same
            // file system are not recognised then.
            Err(Errno::NOSYS | Errno::PERM) => {
                let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
                let is_same = rustix::fs::fstat(&opened)?.st_dev == rustix::fs::fstat(&self.0)?.st_dev;
                if is_same { Ok(opened) } else { Err(Errno::XDEV) }
            }
            opened => opened,
        }
    }

    fn entries(&self) -> Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(names)
    }
}

/// The thing to remove may be gone already.
fn absent_is_fine(done: rustix::io::Result<()>) -> Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// The name, if it names something in the folder itself.
fn component(name: &str) -> Result<&str> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        let message = format!("{name:?} does not name a file in its folder");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::*;
    use crate::kubelet::test_mounts;

    #[test]
    fn others_may_remove_the_same_at_the_same_time() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let tree = directory.path().join("tree");
            for number in 0..50 {
                let inner = tree.join(format!("{number}/inner"));
                std::fs::create_dir_all(&inner).unwrap();
                std::fs::write(inner.join("file"), "").unwrap();
            }
            std::thread::scope(|scope| {
                // It may meet what is gone by then.
                scope.spawn(|| std::fs::remove_dir_all(&tree).ok());
                Folder::open(directory.path()).unwrap().remove("tree").unwrap();
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn paths_stay_inside() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let folder = Folder::open(&directory.path().join("a")).unwrap();
        for path in ["../x", "b/../../x", "/x", "", ".", "b/", "b//x", "..", "b/\0"] {
            let refused = folder.write(path, b"", 0o600).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{path:?}: {refused}");
        }
        symlink(directory.path(), directory.path().join("a/up")).unwrap();
        assert!(folder.write("up/x", b"", 0o600).is_err());
        symlink(directory.path().join("x"), directory.path().join("a/link")).unwrap();
        assert!(folder.write("link", b"", 0o600).is_err());
        assert!(!directory.path().join("x").exists());
        folder.write("b/c/..x", b"it", 0o640).unwrap();
        let written = directory.path().join("a/b/c/..x");
        assert_eq!(std::fs::read(&written).unwrap(), b"it");
        assert_eq!(written.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_is_replaced_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        folder.write("deep/token", b"old", 0o640).unwrap();
        let path = directory.path().join("deep/token");
        let mut reader = std::fs::File::open(&path).unwrap();
        folder.replace("deep/token", b"new").unwrap();
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!((&*seen, &*std::fs::read(&path).unwrap()), ("old", &b"new"[..]));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(directory.path().join("deep").read_dir().unwrap().count(), 1, "nothing else is left");

        // A container may have put something else there.
        std::fs::remove_file(&path).unwrap();
        let outside = directory.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        symlink(&outside, &path).unwrap();
        assert!(folder.replace("deep/token", b"new").is_err());
        assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
    }

    #[test]
    fn only_plain_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        assert!(Command::new("mkfifo").arg(directory.path().join("fifo")).status().unwrap().success());
        symlink("/dev/zero", directory.path().join("zero")).unwrap();
        std::fs::create_dir(directory.path().join("folder")).unwrap();
        for name in ["fifo", "zero", "folder"] {
            assert_eq!(folder.read_end(name, 9).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        std::fs::write(directory.path().join("plain"), "0123456789").unwrap();
        assert_eq!(folder.read_end("plain", 3).unwrap(), b"789");
        assert_eq!(folder.read_end("plain", 99).unwrap(), b"0123456789");
    }

    #[test]
    fn what_is_mounted_in_a_folder_is_left_alone() {
        if !test_mounts::are_own(concat!(module_path!(), "::what_is_mounted_in_a_folder_is_left_alone")) {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "").unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let bind = [std::ffi::OsStr::new("--bind"), kept.as_os_str()].to_vec();
        let tmpfs = ["-t", "tmpfs", "none"].map(std::ffi::OsStr::new).to_vec();
        for (at, what) in [("pod/data", tmpfs), ("pod/a/b", bind)] {
            let at = directory.path().join(at);
            std::fs::create_dir_all(&at).unwrap();
            test_mounts::mount(what, &at);
            std::fs::write(at.join("file"), "").unwrap();
            let refused = folder.remove("pod").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::CrossesDevices, "{refused}");
            assert!(at.join("file").exists());
            assert!(Command::new("umount").arg(&at).status().unwrap().success());
            folder.remove("pod").unwrap();
        }
        assert!(kept.join("file").exists() && !directory.path().join("pod").exists());
    }

    #[test]
    fn trees_of_any_depth_and_permissions_are_removed_and_nothing_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "").unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let mut deepest = folder.enter_or_create("tree").unwrap();
        for _ in 0..1_500 {
            deepest = deepest.enter_or_create("d").unwrap();
        }
        deepest.write("file", b"", 0o600).unwrap();
        let tree = directory.path().join("tree");
        symlink(&kept, tree.join("link")).unwrap();
        std::fs::create_dir_all(tree.join("locked/inner/more")).unwrap();
        for (path, mode) in [("locked/inner", 0o000), ("locked", 0o500)] {
            std::fs::set_permissions(tree.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        folder.remove("tree").unwrap();
        assert!(!tree.exists() && kept.join("file").exists());
        symlink(&kept, &tree).unwrap();
        folder.remove("tree").unwrap();
        assert!(tree.symlink_metadata().is_err() && kept.join("file").exists());
        folder.remove("tree").unwrap();
    }
}
