//! Temporary folders, and files that hold secrets.

#[cfg(feature = "embedded")]
use std::fs::OpenOptions;
use std::fs::Permissions;
#[cfg(feature = "embedded")]
use std::io::Write as _;
#[cfg(feature = "embedded")]
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::PermissionsExt as _;
#[cfg(feature = "embedded")]
use std::path::Path;

#[cfg(feature = "embedded")]
use anyhow::Context as _;
use tempfile::TempDir;

/// A temporary directory that only this user can enter.
pub(super) fn private_directory() -> std::io::Result<TempDir> {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("yardmaster-").permissions(private).tempdir()
}

/// Writes a new file that only this user can read.
#[cfg(feature = "embedded")]
pub(super) fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))
}
