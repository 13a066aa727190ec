//! The program of a container: where it is on the disk, and why it cannot be started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::environment::Variables;

/// Bytes of the first line of a script that systems read.
const FIRST_LINE: u64 = 256;
/// Permissions of which a program has one.
const EXECUTABLE: u32 = 0o111;

/// Why a process did not start, with the messages of container runtimes.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No such command.
    #[error("exec: \"{0}\": executable file not found in $PATH")]
    NotFound(String),
    /// No such path.
    #[error("exec: \"{0}\": stat {0}: no such file or directory")]
    NoSuchFile(String),
    /// The working directory cannot be entered.
    #[error("chdir to cwd (\"{0}\") set in config.json failed: {1}")]
    Directory(String, std::io::Error),
    /// The disk did not answer before the container had to stop.
    #[error("exec: \"{0}\": stopped before it had started")]
    Stopped(String),
    /// The process can have no mounts of its own.
    #[error("cannot have mounts of its own: {0}")]
    Namespace(std::io::Error),
    /// A volume cannot be mounted there.
    #[error("cannot mount a volume at {0}: {1}")]
    Mount(String, std::io::Error),
    /// The supervisor says why, in the words of these errors.
    #[error("{0}")]
    Told(std::io::Error),
    /// Any other error of the operating system.
    #[error("exec: \"{0}\": {1}")]
    System(String, std::io::Error),
}

/// The program file, found through the container's own PATH.
pub(super) fn locate(
    name: &str,
    environment: &Variables,
    directory: Option<&Path>,
) -> Result<PathBuf, StartError> {
    let directory = directory.unwrap_or(Path::new(""));
    if name.contains('/') {
        let program = directory.join(name);
        let Ok(found) = std::fs::metadata(&program) else {
            return Err(StartError::NoSuchFile(name.to_owned()));
        };
        let kind = match found.mode() & EXECUTABLE {
            _ if found.is_dir() => ErrorKind::IsADirectory,
            0 => ErrorKind::PermissionDenied,
            _ => return with_interpreter(program),
        };
        return Err(StartError::System(name.to_owned(), kind.into()));
    }
    let path = environment.get("PATH").map(OsString::from);
    let found = which::which_in(name, path, directory);
    found.map_err(|_| StartError::NotFound(name.to_owned())).and_then(with_interpreter)
}

/// The program, if there is what runs it: the interpreter that the first line of a script names.
fn with_interpreter(program: PathBuf) -> Result<PathBuf, StartError> {
    let mut line = Vec::new();
    // A program that cannot be read may still run.
    let _unread = File::open(&program)
        .and_then(|file| BufReader::new(file.take(FIRST_LINE)).read_until(b'\n', &mut line));
    let interpreter = line.strip_prefix(b"#!").map(|rest| String::from_utf8_lossy(rest).into_owned());
    match interpreter.as_deref().and_then(|rest| rest.split_whitespace().next()) {
        Some(missing) if missing.starts_with('/') && !Path::new(missing).exists() => {
            Err(StartError::NoSuchFile(missing.to_owned()))
        }
        _ => Ok(program),
    }
}
