//! Data directories: which ones this program may fill and tidy up.
//!
//! A directory is ours if it has a marker. Only an empty directory, or one of a version without markers, gets
//! a marker. The directory belongs to this user alone, because it can contain Secrets.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Marks a data directory, and names its format.
const MARKER: &str = "yardmaster-data-dir";
/// Begins the names of markers that are not complete.
const NEW_MARKER: &str = ".yardmaster-data-dir-";
/// Locked by the process that uses the directory. An interrupted start may leave an empty one.
pub(crate) const LOCK_FILE: &str = "lock";
/// The format that this code reads and writes.
const CURRENT_FORMAT: &str = "format 1";
/// Longest first line of a marker, in bytes.
const MAX_MARKER: u64 = 64;

/// Why a directory cannot be a data directory. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The directory cannot be created or used.
    #[error("{0}")]
    Unusable(#[from] std::io::Error),
    /// The directory has contents that yardmaster did not make.
    #[error("not empty, and not a data directory of yardmaster: choose an empty directory")]
    Foreign,
    /// The directory belongs to another user.
    #[error("belongs to another user (uid {0})")]
    OtherUser(u32),
    /// The directory has the marker of a version with another format.
    #[error("written by another version of yardmaster ({0:?}, this one reads {CURRENT_FORMAT:?})")]
    OtherFormat(String),
}

/// How a directory came to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It had the marker.
    Marked,
    /// It was absent or empty.
    New,
    /// It was written by a version without markers.
    Earlier,
}

/// Claims a directory as data directory: creates it, closes it to other users, and marks it. `is_earlier`
/// recognises the files of a version without markers.
///
/// # Errors
///
/// If the directory is not ours. Then nothing in it has changed.
pub(crate) fn claim(
    directory: &Path,
    is_earlier: impl FnOnce(&[OsString]) -> bool,
) -> Result<Claim, ClaimError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = directory.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(ClaimError::OtherUser(metadata.uid()));
    }
    let (mut marker, mut names) = (read_marker(directory)?, Vec::new());
    if marker.is_none() {
        names = entries(directory)?;
        if names.iter().any(|name| name == MARKER) {
            // Another cluster has claimed the directory meanwhile. The lock decides which of the two gets it.
            marker = read_marker(directory)?;
        }
    }
    let claim = match (marker, names.as_slice()) {
        (Some(format), _) if format == CURRENT_FORMAT => Claim::Marked,
        (Some(format), _) => return Err(ClaimError::OtherFormat(format)),
        (None, []) => Claim::New,
        (None, names) if is_earlier(names) => Claim::Earlier,
        (None, _) => return Err(ClaimError::Foreign),
    };
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    if claim == Claim::Marked {
        make_private(&directory.join(MARKER))?;
    } else {
        write_marker(directory)?;
    }
    Ok(claim)
}

/// Closes a file to other users, if it is there.
pub(crate) fn make_private(file: &Path) -> std::io::Result<()> {
    match file.symlink_metadata() {
        Ok(metadata) if metadata.is_file() && metadata.mode() & 0o077 != 0 => {
            std::fs::set_permissions(file, Permissions::from_mode(0o600))
        }
        _ => Ok(()),
    }
}

/// The names in a directory, without files that an interrupted or a concurrent start makes.
fn entries(directory: &Path) -> std::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let is_empty = || entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
        let is_empty_lock = name == OsStr::new(LOCK_FILE) && is_empty();
        if !is_empty_lock && !name.as_encoded_bytes().starts_with(NEW_MARKER.as_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}

fn read_marker(directory: &Path) -> std::io::Result<Option<String>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags as i32).open(directory.join(MARKER));
    let file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut content = Vec::new();
    file.take(MAX_MARKER).read_to_end(&mut content)?;
    Ok(Some(String::from_utf8_lossy(&content).lines().next().unwrap_or_default().to_owned()))
}

/// Writes the marker atomically: under its name it is either complete or absent.
fn write_marker(directory: &Path) -> std::io::Result<()> {
    // Temporary files are readable by their owner only.
    let mut file = tempfile::Builder::new().prefix(NEW_MARKER).tempfile_in(directory)?;
    writeln!(file, "{CURRENT_FORMAT}")?;
    writeln!(file, "Yardmaster keeps objects, logs and volumes here, and removes what it no longer needs.")?;
    file.as_file().sync_all()?;
    file.persist(directory.join(MARKER))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn two_may_claim_a_new_directory_at_once() {
        for _ in 0..50 {
            let parent = tempfile::tempdir().unwrap();
            let data = parent.path().join("data");
            std::thread::scope(|scope| {
                let claims = [(); 4].map(|()| scope.spawn(|| claim(&data, |_| false)));
                for claimed in claims {
                    claimed.join().unwrap().unwrap();
                }
            });
            assert_eq!(claim(&data, |_| false).unwrap(), Claim::Marked);
        }
    }

    #[test]
    fn an_empty_directory_is_taken_and_marked() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("some/data");
        assert_eq!(claim(&data, |_| false).unwrap(), Claim::New);
        std::fs::write(data.join("file"), "").unwrap();
        assert_eq!(claim(&data, |_| false).unwrap(), Claim::Marked);
        assert_eq!((mode(&data), mode(&data.join(MARKER))), (0o700, 0o600));
    }

    #[test]
    fn a_foreign_directory_is_refused_and_unchanged() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(data.join("thesis.tex"), "x").unwrap();
        let refused = claim(&data, |_| false).unwrap_err();
        assert!(matches!(refused, ClaimError::Foreign), "{refused}");
        assert_eq!(refused.to_string().lines().count(), 1);
        assert_eq!((mode(&data), data.read_dir().unwrap().count()), (0o755, 1));
        // If an earlier version wrote it, it is claimed, and closed to other users.
        let is_earlier = |names: &[OsString]| names == ["thesis.tex"];
        assert_eq!(claim(&data, is_earlier).unwrap(), Claim::Earlier);
        assert_eq!(mode(&data), 0o700);
    }

    #[test]
    fn an_interrupted_start_is_repeated() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(LOCK_FILE), "").unwrap();
        std::fs::write(data.path().join(format!("{NEW_MARKER}x")), "for").unwrap();
        assert_eq!(claim(data.path(), |_| false).unwrap(), Claim::New);
    }

    #[test]
    fn another_format_is_refused() {
        let data = tempfile::tempdir().unwrap();
        for (marker, shown) in [("format 2\nmore", "format 2"), ("", "")] {
            std::fs::write(data.path().join(MARKER), marker).unwrap();
            let refused = claim(data.path(), |_| true).unwrap_err();
            assert!(matches!(&refused, ClaimError::OtherFormat(format) if format == shown), "{refused}");
        }
    }
}
