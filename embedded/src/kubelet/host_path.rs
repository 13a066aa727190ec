//! Files and folders of this host that a pod names as a volume.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::HostPathVolumeSource;

/// Creates what the pod wants created, and checks that the path is what the pod says it is.
///
/// # Errors
///
/// A text that says what is not as wanted.
pub(super) fn provide(source: &HostPathVolumeSource) -> Result<(), String> {
    let path = Path::new(&source.path);
    let created = match type_of(source) {
        "DirectoryOrCreate" => std::fs::create_dir_all(path),
        "FileOrCreate" => create_file(path),
        _ => Ok(()),
    };
    created.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
    check(source)
}

/// Checks that the path is what the pod says it is, if there is anything.
///
/// # Errors
///
/// A text that says what is not as wanted.
pub(super) fn check(source: &HostPathVolumeSource) -> Result<(), String> {
    let path = Path::new(&source.path);
    let found = std::fs::metadata(path).map(|found| found.file_type()).ok();
    let (is_wanted, what): (fn(&std::fs::FileType) -> bool, _) = match type_of(source) {
        "Directory" | "DirectoryOrCreate" => (std::fs::FileType::is_dir, "a directory"),
        "File" | "FileOrCreate" => (std::fs::FileType::is_file, "a file"),
        "Socket" => (|found| found.is_socket(), "a socket file"),
        "CharDevice" => (|found| found.is_char_device(), "a character device"),
        "BlockDevice" => (|found| found.is_block_device(), "a block device"),
        _ => return Ok(()),
    };
    let may_be_absent = type_of(source).ends_with("OrCreate");
    if found.as_ref().map_or(may_be_absent, is_wanted) {
        return Ok(());
    }
    Err(format!("hostPath type check failed: {} is not {what}", source.path))
}

fn type_of(source: &HostPathVolumeSource) -> &str {
    source.type_.as_deref().unwrap_or_default()
}

fn create_file(path: &Path) -> io::Result<()> {
    match std::fs::File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_must_be_what_the_pod_says() {
        let directory = tempfile::tempdir().unwrap();
        let source = |name: &str, type_: &str| HostPathVolumeSource {
            path: directory.path().join(name).display().to_string(),
            type_: Some(type_.into()),
        };
        std::fs::write(directory.path().join("file"), "").unwrap();
        std::fs::create_dir(directory.path().join("folder")).unwrap();
        for (name, type_, fits) in [
            ("file", "", true),
            ("none", "", true),
            ("file", "File", true),
            ("file", "Directory", false),
            ("folder", "Directory", true),
            ("folder", "FileOrCreate", false),
            ("none", "File", false),
            ("none", "Socket", false),
            ("none", "DirectoryOrCreate", true),
        ] {
            assert_eq!(check(&source(name, type_)).is_ok(), fits, "{name} as {type_}");
        }
        for (name, type_) in [("made/deep", "DirectoryOrCreate"), ("made/file", "FileOrCreate")] {
            provide(&source(name, type_)).unwrap();
        }
        assert!(directory.path().join("made/deep").is_dir() && directory.path().join("made/file").is_file());
    }
}
