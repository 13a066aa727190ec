//! Folders of kustomize, which kubectl builds.

use std::path::Path;
use std::process::Command;

/// The manifests that kubectl makes from a folder.
///
/// # Errors
/// One line: if kubectl is not there, or what it says if it fails.
pub(super) fn build(folder: &Path) -> Result<Vec<u8>, String> {
    let built = Command::new("kubectl").arg("kustomize").arg(folder).output();
    let built = built.map_err(|error| {
        format!("cannot start kubectl ({error}): install it, or run `kustomize build DIR | yardmaster run -`")
    })?;
    if built.status.success() {
        return Ok(built.stdout);
    }
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    // Warnings come before it.
    let error = said.lines().find_map(|line| line.strip_prefix("error: "));
    let last = || said.lines().rfind(|line| !line.trim().is_empty());
    Err(format!("kubectl kustomize: {}", error.or_else(last).unwrap_or("no message")))
}
