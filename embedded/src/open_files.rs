//! The limit of open files of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than enough. Some programs start slowly with a limit of millions.
const ENOUGH: u64 = 65_536;

/// Raises the limit as far as allowed, since each connection and each container needs some files. Returns the
/// limit as it is then.
pub(crate) fn raise_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return ENOUGH };
    if soft >= ENOUGH {
        return soft;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, hard.min(ENOUGH), hard) {
        Ok(()) => hard.min(ENOUGH),
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            soft
        }
    }
}
