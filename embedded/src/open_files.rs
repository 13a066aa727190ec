//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than enough. Some programs start slowly with a limit of millions.
const ENOUGH: u64 = 65_536;

/// Raises the limit as far as allowed, since each connection and each container needs some files. Returns the
/// limit as it is then.
pub(crate) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let possible = limit.maximum.map_or(ENOUGH, |maximum| maximum.min(ENOUGH));
    if current >= possible {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), ..limit }) {
        Ok(()) => possible,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            current
        }
    }
}
