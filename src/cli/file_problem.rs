//! Why a file cannot be read, without the numbers of the system.

use std::io::{Error, ErrorKind};

/// The reason in plain words.
pub(super) fn file_problem(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::IsADirectory => "is a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
