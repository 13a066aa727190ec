//! Temporary folders.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

/// A temporary directory that only this user can enter.
pub(super) fn private_directory() -> std::io::Result<TempDir> {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("yardmaster-").permissions(private).tempdir()
}
