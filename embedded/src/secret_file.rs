//! Files with secrets, which only their owner may read.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum size of a file with a secret, in bytes.
const LONGEST: u64 = 64 << 10;

/// Why a file with a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Its mode lets others read or change it.
    #[error("others may use this file, its mode is {0:04o}: use `chmod 600`, and a new secret")]
    Exposed(u32),
    /// It belongs to another user, who can read and change it.
    #[error("this file belongs to another user (uid {0})")]
    Foreign(u32),
    /// It is too long for a secret.
    #[error("this file is longer than {LONGEST} bytes")]
    TooLong,
}

/// Reads a file that belongs to this user, and that no other user may read or change.
pub(crate) fn read(path: &Path) -> Result<String, SecretFileError> {
    let file = File::open(path)?;
    // Checks the open file, since the path may lead to another file by now.
    let metadata = file.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretFileError::Foreign(metadata.uid()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(SecretFileError::Exposed(metadata.mode() & 0o7777));
    }
    let mut text = String::new();
    if file.take(LONGEST + 1).read_to_string(&mut text)? as u64 > LONGEST {
        return Err(SecretFileError::TooLong);
    }
    Ok(text)
}

/// Writes a file with mode 0600, whole or not at all, in place of one that exists.
pub(crate) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Temporary files have mode 0600.
    let mut temporary = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_written_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "of others").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        write(&path, "ours").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), "ours");
    }

    #[test]
    fn a_file_that_others_may_use_holds_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, "s").unwrap();
        for mode in [0o604, 0o640, 0o620, 0o602, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read(&path), Err(SecretFileError::Exposed(found)) if found == mode), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert!(read(&path).is_ok());
    }

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, &"s".repeat(LONGEST as usize + 1)).unwrap();
        assert!(matches!(read(&path), Err(SecretFileError::TooLong)));
    }
}
