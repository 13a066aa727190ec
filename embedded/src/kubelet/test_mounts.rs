//! Tests that mount something: in a namespace of their own, where that needs no rights.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// Set where mounts are a test's own.
const INSIDE: &str = "YARDMASTER_TEST_IN_OWN_NAMESPACE";

/// Whether this test is in a namespace of its own. If it is not, it is run there once more, and has nothing left to do.
/// `test` is its path, with that of the crate.
pub(super) fn are_own(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let inside = |program: &Path| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount"]).arg(program).env(INSIDE, "yes");
        unshare
    };
    if !inside(Path::new("true")).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this host allows no mounts without rights");
        return false;
    }
    let (_crate, test) = test.split_once("::").unwrap();
    let output = inside(&std::env::current_exe().unwrap()).args(["--exact", test]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Mounts something.
pub(super) fn mount<S: AsRef<std::ffi::OsStr>>(what: impl IntoIterator<Item = S>, at: &Path) {
    let output = Command::new("mount").args(what).arg(at).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
