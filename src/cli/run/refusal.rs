//! What to do with a file that `run` cannot take.

/// Why an object of another kind is not taken, and what takes it.
pub(super) fn kind(api_version: Option<&str>, kind: &str) -> String {
    let refused = format!("kind {kind} is not supported: yardmaster runs batch/v1 Job");
    if kind == "CronJob" {
        return format!("{refused}; its spec.jobTemplate is the spec of one");
    }
    if api_version.is_some_and(|version| is_served(version, kind)) {
        return format!(
            "{refused}; `yardmaster cluster` takes it by kubectl, and the Job by `yardmaster run --kubeconfig FILE`"
        );
    }
    format!("{refused}; leave it out, or run the Job with --kubeconfig FILE on a cluster that has it")
}

#[cfg(feature = "embedded")]
fn is_served(api_version: &str, kind: &str) -> bool {
    yardmaster_embedded::is_created(api_version, kind)
}

#[cfg(not(feature = "embedded"))]
fn is_served(_api_version: &str, _kind: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_a_way_out() {
        assert!(kind(Some("apps/v1"), "Deployment").contains("leave it out"));
        assert!(kind(Some("batch/v1"), "CronJob").contains("jobTemplate"));
        #[cfg(feature = "embedded")]
        assert!(kind(Some("v1"), "ConfigMap").contains("`yardmaster cluster` takes it"));
    }
}
