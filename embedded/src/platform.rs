//! The platform of this process, in the words of Go, which Kubernetes uses.

/// The processor architecture, such as `amd64`.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
