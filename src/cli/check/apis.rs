//! The APIs that Yardmaster uses.

use super::context::{Context, message};
use super::{CheckId, Finding};

pub(super) const CHECK: CheckId = CheckId { group: "kubernetes", name: "apis" };

/// An API, and what is not possible without it.
#[derive(Clone, Copy, Debug)]
struct Needed {
    group_version: &'static str,
    resource: &'static str,
    /// The feature to switch off where the API is absent; `None` if nothing works without it.
    optional: Option<&'static str>,
}

const fn needed(group_version: &'static str, resource: &'static str) -> Needed {
    Needed { group_version, resource, optional: None }
}

const NEEDED: [Needed; 5] = [
    needed("v1", "pods"),
    needed("v1", "events"),
    needed("batch/v1", "jobs"),
    needed("coordination.k8s.io/v1", "leases"),
    Needed {
        group_version: "flowcontrol.apiserver.k8s.io/v1",
        resource: "flowschemas",
        optional: Some("flowControl of the Helm chart"),
    },
];

const GANG: [Needed; 2] =
    [needed("scheduling.k8s.io/v1alpha2", "workloads"), needed("scheduling.k8s.io/v1alpha2", "podgroups")];

pub(super) async fn check(cx: &Context) -> Finding {
    let gang: &[Needed] = if cx.controller.feature_gates.workload_with_job { &GANG } else { &[] };
    let mut absent = Vec::new();
    for api in NEEDED.iter().chain(gang) {
        match serves(cx, api).await {
            Ok(true) => {}
            Ok(false) => absent.push(*api),
            Err(error) => {
                return Finding::failed(
                    format!("the APIs are unknown: {error}"),
                    "Use an account that may read discovery, as the group system:authenticated may.",
                );
            }
        }
    }
    evaluate(&absent)
}

async fn serves(cx: &Context, api: &Needed) -> Result<bool, String> {
    let listed = match api.group_version {
        "v1" => cx.client.list_core_api_resources("v1").await,
        other => cx.client.list_api_group_resources(other).await,
    };
    match listed {
        Ok(listed) => Ok(listed.resources.iter().any(|resource| resource.name == api.resource)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(message(&error)),
    }
}

fn evaluate(absent: &[Needed]) -> Finding {
    let names = |apis: &[Needed]| {
        apis.iter()
            .map(|api| format!("{} of {}", api.resource, api.group_version))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (optional, required): (Vec<Needed>, Vec<Needed>) =
        absent.iter().partition(|api| api.optional.is_some());
    if !required.is_empty() {
        return Finding::failed(
            format!("the API server does not serve {}", names(&required)),
            "Switch these APIs on (--runtime-config of kube-apiserver), or the feature gates of \
             Yardmaster off.",
        );
    }
    if optional.is_empty() {
        return Finding::ok("the API server serves all that is needed");
    }
    let parts: Vec<&str> = optional.iter().filter_map(|api| api.optional).collect();
    Finding::warning(
        format!("the API server does not serve {}", names(&optional)),
        format!("Switch off: {}.", parts.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Status;

    #[test]
    fn an_absent_api_fails_unless_it_is_optional() {
        assert_eq!(evaluate(&[]).status, Status::Ok);
        let [.., flow_control] = NEEDED;
        let warning = evaluate(&[flow_control]);
        assert_eq!(warning.status, Status::Warning);
        assert!(warning.remedy.is_some_and(|remedy| remedy.contains("flowControl")));
        let failed = evaluate(&[flow_control, GANG[0]]);
        assert_eq!(failed.status, Status::Failed);
        assert!(
            failed.message.ends_with("does not serve workloads of scheduling.k8s.io/v1alpha2"),
            "{}",
            failed.message
        );
    }
}
