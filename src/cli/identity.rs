//! The default name of a replica.

/// The pod's name if `POD_NAME` is set, else the host name with a random suffix, since that need not be
/// unique.
pub(super) fn default_identity() -> String {
    if let Ok(pod) = std::env::var("POD_NAME") {
        return pod;
    }
    let host =
        hostname::get().map_or_else(|_| "yardmaster".into(), |name| name.to_string_lossy().into_owned());
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{host}-{}", &random[..8])
}
