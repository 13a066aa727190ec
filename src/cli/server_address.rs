//! The address of the API server, for messages: the errors of the client do not name it.

use std::sync::OnceLock;

static ADDRESS: OnceLock<String> = OnceLock::new();

/// Records the address. A process talks to one API server.
pub(super) fn set(address: String) {
    let _same = ADDRESS.set(address);
}

/// The address, once it is known.
pub(super) fn get() -> Option<&'static str> {
    ADDRESS.get().map(String::as_str)
}
