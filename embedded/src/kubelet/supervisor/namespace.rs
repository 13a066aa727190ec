//! Mount namespaces: a new one with mounts of its own, or that of a process that runs.

use std::io::Result;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FileType, Mode, OFlags, StatVfsMountFlags, fstat, stat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change, mount_remount};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::protocol::Mount;
use super::scaffold::{PlaceKind, Scaffold};
use crate::kubelet::lookup::StartError;

/// Moves this process into a new mount namespace with these mounts, of which those with the shortest paths
/// come first. Nothing changes on the host.
pub(super) fn make(mounts: &[Mount]) -> std::result::Result<(), StartError> {
    leave_the_host().map_err(StartError::Namespace)?;
    // Before anything is mounted over them, but in this namespace: files of another one cannot be mounted.
    let sources: std::result::Result<Vec<_>, _> = mounts.iter().map(source).collect();
    let mut all: Vec<_> = mounts.iter().zip(sources?).collect();
    all.sort_by_key(|(mount, _)| mount.target.components().count());
    let mut scaffold = Scaffold::default();
    for (mount, source) in all {
        bind(&source, mount, &mut scaffold).map_err(|error| failed(mount, error))?;
    }
    scaffold.finish().map_err(StartError::Namespace)
}

/// Moves this process into the namespaces of one whose folder in `/proc` this is.
pub(super) fn join(process: &OwnedFd) -> Result<()> {
    let namespace = |name: &str| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(process, format!("ns/{name}"), flags, Mode::empty())
    };
    let (users, mounts) = (namespace("user")?, namespace("mnt")?);
    let (theirs, own) = (fstat(&users)?, stat("/proc/self/ns/user")?);
    // Root has no need of another one, and Linux refuses to enter the own one again.
    if (theirs.st_dev, theirs.st_ino) != (own.st_dev, own.st_ino) {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    Ok(move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?)
}

fn source(mount: &Mount) -> std::result::Result<OwnedFd, StartError> {
    let opened = rustix::fs::open(&mount.source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|error| {
        let message = format!("{}: {}", mount.source.display(), std::io::Error::from(error));
        failed(mount, std::io::Error::other(message))
    })
}

fn failed(mount: &Mount, error: std::io::Error) -> StartError {
    StartError::Mount(mount.target.display().to_string(), error)
}

/// Leaves the mounts of the host to the host. An ordinary user becomes the master of a user namespace for
/// that, in which everybody keeps their number.
fn leave_the_host() -> Result<()> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Err(nix::Error::EPERM) => {
            let (user, group) = (geteuid(), getegid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
            // Linux wants this of an ordinary user before it maps a group.
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        unshared => unshared?,
    }
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

fn bind(source: &OwnedFd, mount: &Mount, scaffold: &mut Scaffold) -> Result<()> {
    let kind = match FileType::from_raw_mode(fstat(source)?.st_mode) {
        FileType::Directory => PlaceKind::Folder,
        _ => PlaceKind::File,
    };
    let place = scaffold.provide(&mount.target, kind)?;
    mount_bind_recursive(format!("/proc/self/fd/{}", source.as_raw_fd()), &place)?;
    if mount.read_only {
        make_read_only(&place)?;
    }
    scaffold.add_volume(place);
    Ok(())
}

/// Makes a mount read-only. Linux keeps an ordinary user from lifting its other restrictions at the same
/// time.
fn make_read_only(place: &Path) -> Result<()> {
    let has = rustix::fs::statvfs(place)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let kept = kept.into_iter().filter(|(flag, _)| has.contains(*flag)).map(|(_, flag)| flag);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, MountFlags::union);
    Ok(mount_remount(place, flags, "")?)
}
