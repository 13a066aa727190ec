//! The rights of the replicas' account, and of who installs them, as the API server reviews them.

use std::collections::BTreeMap;
use std::fmt;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use super::context::{Context, ServiceAccount, message};
use super::{CheckId, Finding};
use crate::actors::{ControllerConfig, DebugAccess, MetricsAccess};

pub(super) const CONTROLLER: CheckId = CheckId { group: "rights", name: "rights" };
pub(super) const INSTALLER: CheckId = CheckId { group: "rights", name: "installer-rights" };

/// Reviews that are requested concurrently.
const AT_ONCE: usize = 8;

/// A right to do something with one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    /// In the namespace of the Leases only.
    namespaced: bool,
}

impl Right {
    const fn cluster(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { verb, group, resource, subresource: "", namespaced: false }
    }

    const fn part(
        verb: &'static str,
        group: &'static str,
        resource: &'static str,
        subresource: &'static str,
    ) -> Self {
        Self { verb, group, resource, subresource, namespaced: false }
    }

    const fn namespaced(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { verb, group, resource, subresource: "", namespaced: true }
    }

    fn attributes(&self, namespace: &str) -> ResourceAttributes {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ResourceAttributes {
            namespace: self.namespaced.then(|| namespace.to_owned()),
            verb: text(self.verb),
            group: text(self.group),
            resource: text(self.resource),
            subresource: text(self.subresource),
            ..ResourceAttributes::default()
        }
    }

    /// The resource as it is written in a Role.
    fn target(&self) -> String {
        let part = if self.subresource.is_empty() { "" } else { "/" };
        let group = if self.group.is_empty() { "" } else { "." };
        format!("{}{part}{}{group}{}", self.resource, self.subresource, self.group)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.target())
    }
}

/// The rights that replicas with these settings use, and no others.
pub(super) fn of_controller(config: &ControllerConfig) -> Vec<Right> {
    const BATCH: &str = "batch";
    const LEASES: &str = "coordination.k8s.io";
    const SCHEDULING: &str = "scheduling.k8s.io";
    let mut rights: Vec<Right> = Vec::new();
    rights.extend(
        ["list", "watch", "get", "create", "patch", "delete"].map(|verb| Right::cluster(verb, "", "pods")),
    );
    rights.extend(["list", "watch", "get"].map(|verb| Right::cluster(verb, BATCH, "jobs")));
    if config.ttl_controller {
        rights.push(Right::cluster("delete", BATCH, "jobs"));
    }
    rights.push(Right::part("patch", BATCH, "jobs", "status"));
    // For `blockOwnerDeletion` of the pods' owner, where admission asks for it.
    rights.push(Right::part("update", BATCH, "jobs", "finalizers"));
    rights.extend(["create", "patch"].map(|verb| Right::cluster(verb, "", "events")));
    rights.extend(
        ["get", "list", "watch", "create", "update", "delete", "patch"]
            .map(|verb| Right::namespaced(verb, LEASES, "leases")),
    );
    if config.feature_gates.workload_with_job {
        for resource in ["workloads", "podgroups"] {
            rights.extend(["list", "create"].map(|verb| Right::cluster(verb, SCHEDULING, resource)));
        }
    }
    if config.metrics_access == MetricsAccess::Authorized
        || matches!(config.debug_access, DebugAccess::Authorized)
    {
        rights.push(Right::cluster("create", "authentication.k8s.io", "tokenreviews"));
        rights.push(Right::cluster("create", "authorization.k8s.io", "subjectaccessreviews"));
    }
    rights
}

/// The right by which an installer may grant rights that it does not have.
const ESCALATE: Right = Right::cluster("escalate", "rbac.authorization.k8s.io", "clusterroles");

/// The rights to install the Helm chart with its defaults.
fn of_installer() -> Vec<Right> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
    const ADMISSION: &str = "admissionregistration.k8s.io";
    vec![
        Right::cluster("create", ADMISSION, "validatingadmissionpolicies"),
        Right::cluster("create", ADMISSION, "validatingadmissionpolicybindings"),
        Right::cluster("create", RBAC, "clusterroles"),
        Right::cluster("create", RBAC, "clusterrolebindings"),
        Right::cluster("create", FLOW_CONTROL, "flowschemas"),
        Right::cluster("create", FLOW_CONTROL, "prioritylevelconfigurations"),
        Right::namespaced("create", RBAC, "roles"),
        Right::namespaced("create", RBAC, "rolebindings"),
        Right::namespaced("create", "", "serviceaccounts"),
        Right::namespaced("create", "", "services"),
        // Helm keeps releases in Secrets, and runs the chart's checks in pods.
        Right::namespaced("create", "", "secrets"),
        Right::namespaced("create", "", "pods"),
        Right::namespaced("create", "apps", "deployments"),
        Right::namespaced("create", "policy", "poddisruptionbudgets"),
    ]
}

/// Whether the replicas may do what they do.
pub(super) async fn controller(cx: &Context) -> Finding {
    let rights = of_controller(&cx.controller);
    match missing(cx, &rights).await {
        Ok(missing) => evaluate(
            cx,
            rights.len(),
            &missing,
            "Install the ClusterRole and the Role of the Helm chart (rbac.create=true) and bind the \
             account to them",
        ),
        Err(error) => unknown(cx, &error),
    }
}

/// Whether the own account may install the Helm chart.
pub(super) async fn installer(cx: &Context) -> Finding {
    let rights = of_installer();
    // A role can be created by those who have its rights, or may escalate.
    let asked = async {
        let may_escalate = missing(cx, &[ESCALATE]).await?.is_empty();
        let granted = if may_escalate { Vec::new() } else { of_controller(&cx.controller) };
        missing(cx, &[rights.clone(), granted].concat()).await
    };
    match asked.await {
        Ok(missing) => evaluate(
            cx,
            rights.len(),
            &missing,
            "Let a cluster administrator install the chart, or grant these rights",
        ),
        Err(error) => unknown(cx, &error),
    }
}

fn evaluate(cx: &Context, count: usize, missing: &[Right], remedy: &str) -> Finding {
    judge(&whose(cx.account.as_ref()), cx.namespace(), count, missing, remedy)
}

fn whose(account: Option<&ServiceAccount>) -> String {
    account.map_or_else(
        || "the own account".to_owned(),
        |account| format!("service account {}/{}", account.namespace, account.name),
    )
}

fn judge(whose: &str, namespace: &str, count: usize, missing: &[Right], remedy: &str) -> Finding {
    if missing.is_empty() {
        return Finding::ok(format!("{whose} has all {count} rights"));
    }
    let mut verbs: BTreeMap<(bool, String), Vec<&str>> = BTreeMap::new();
    for right in missing {
        verbs.entry((right.namespaced, right.target())).or_default().push(right.verb);
    }
    let scopes = verbs.iter().map(|((namespaced, target), verbs)| {
        let within = if *namespaced { format!(" in namespace {namespace}") } else { String::new() };
        format!("{} {target}{within}", verbs.join(", "))
    });
    Finding::failed(
        format!("{whose} may not: {}", scopes.collect::<Vec<_>>().join("; ")),
        format!("{remedy}."),
    )
}

fn unknown(cx: &Context, error: &str) -> Finding {
    let remedy = match cx.account {
        Some(_) => {
            "Use an account that may create SubjectAccessReviews, or check from a pod of the service account."
        }
        None => "Use an account in the group system:authenticated: that group may ask for its own rights.",
    };
    Finding::failed(format!("the API server does not tell the rights: {error}"), remedy)
}

/// The rights of these that the account does not have.
async fn missing(cx: &Context, rights: &[Right]) -> Result<Vec<Right>, String> {
    let reviews = rights.iter().map(async |right| Ok::<_, String>((*right, has(cx, right).await?)));
    let answers: Vec<(Right, bool)> = stream::iter(reviews).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().filter(|(_, granted)| !granted).map(|(right, _)| right).collect())
}

async fn has(cx: &Context, right: &Right) -> Result<bool, String> {
    let attributes = Some(right.attributes(cx.namespace()));
    let parameters = PostParams::default();
    let status = match &cx.account {
        None => {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes: attributes, ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            Api::all(cx.client.clone()).create(&parameters, &review).await.map(|review| review.status)
        }
        Some(account) => {
            let spec = SubjectAccessReviewSpec {
                resource_attributes: attributes,
                user: Some(account.user()),
                groups: Some(account.groups()),
                ..Default::default()
            };
            let review = SubjectAccessReview { spec, ..Default::default() };
            Api::all(cx.client.clone()).create(&parameters, &review).await.map(|review| review.status)
        }
    };
    Ok(status.map_err(|error| message(&error))?.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::actors::FeatureGates;
    use crate::cli::check::report::Status;

    fn list(config: &ControllerConfig) -> Vec<String> {
        of_controller(config).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_rights_follow_the_settings() {
        let usual = list(&ControllerConfig::default());
        assert_eq!(usual.len(), 20);
        for right in
            ["patch jobs/status.batch", "update jobs/finalizers.batch", "update leases.coordination.k8s.io"]
        {
            assert!(usual.iter().any(|other| other == right), "{right}");
        }
        let reviews =
            ["create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"];
        let others = ["delete jobs.batch", "list workloads.scheduling.k8s.io", "update pods"];
        for right in others.into_iter().chain(reviews) {
            assert!(!usual.iter().any(|other| other == right), "{right}");
        }
        let metrics =
            ControllerConfig { metrics_access: MetricsAccess::Authorized, ..ControllerConfig::default() };
        let debug = ControllerConfig { debug_access: DebugAccess::Authorized, ..ControllerConfig::default() };
        for config in [metrics, debug] {
            assert_eq!(list(&config)[usual.len()..], reviews);
        }
        let feature_gates = FeatureGates { workload_with_job: true };
        let all =
            list(&ControllerConfig { ttl_controller: true, feature_gates, ..ControllerConfig::default() });
        for right in ["delete jobs.batch", "create podgroups.scheduling.k8s.io"] {
            assert!(all.iter().any(|other| other == right), "{right}");
        }
    }

    /// The objects of the chart with its defaults.
    fn chart() -> Vec<Value> {
        let rendered = include_str!("../../../tests/chart/snapshots/defaults.yaml");
        rendered.split("\n---\n").map(|object| serde_saphyr::from_str(object).unwrap()).collect()
    }

    fn texts(list: &Value) -> impl Iterator<Item = &str> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    #[test]
    fn the_rights_are_those_that_the_chart_grants() {
        let mut granted = BTreeSet::new();
        for role in chart() {
            let is_role = matches!(role["kind"].as_str(), Some("ClusterRole" | "Role"));
            if !is_role || role["metadata"]["labels"]["app.kubernetes.io/component"] != "controller" {
                continue;
            }
            for rule in role["rules"].as_array().into_iter().flatten() {
                // The chart has a rule for each group.
                let group = texts(&rule["apiGroups"]).next().unwrap();
                let dot = if group.is_empty() { "" } else { "." };
                for resource in texts(&rule["resources"]) {
                    granted
                        .extend(texts(&rule["verbs"]).map(|verb| format!("{verb} {resource}{dot}{group}")));
                }
            }
        }
        let asked: BTreeSet<String> = list(&ControllerConfig::default()).into_iter().collect();
        assert_eq!(asked, granted);
    }

    #[test]
    fn the_installer_may_create_every_object_of_the_chart() {
        let rights = of_installer();
        for object in chart() {
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let plural =
                kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
            assert!(rights.iter().any(|right| right.resource == plural), "{plural}");
        }
    }

    #[test]
    fn each_missing_right_is_named() {
        let missing = [
            Right::cluster("list", "", "pods"),
            Right::namespaced("get", "coordination.k8s.io", "leases"),
            Right::cluster("watch", "", "pods"),
            Right::part("patch", "batch", "jobs", "status"),
        ];
        let finding = judge("the own account", "system", 20, &missing, "Grant them");
        assert_eq!(finding.status, Status::Failed);
        assert_eq!(
            finding.message,
            "the own account may not: patch jobs/status.batch; list, watch pods; \
             get leases.coordination.k8s.io in namespace system"
        );
        assert_eq!(finding.remedy.as_deref(), Some("Grant them."));
        assert_eq!(judge("the own account", "system", 20, &[], "").status, Status::Ok);
    }
}
