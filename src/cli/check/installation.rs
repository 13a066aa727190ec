//! Which controllers have replicas on the cluster, and where their Leases are.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;

use super::{CheckId, Finding, shards};
use crate::cli::lists::views;
use crate::cli::ownership::{Ownership, ReplicaState};
use crate::job::names::EXTERNAL_CONTROLLER;
use crate::sharding::lease::{LEASE_LABEL, controller_label};

/// A controller with Leases in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Installation {
    controller: String,
    namespace: String,
    /// Whether a replica renews its heartbeat.
    lives: bool,
}

/// The installation to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// Name of the controller.
    pub(super) controller: String,
    /// The namespace of its Leases, if it has any.
    pub(super) namespace: Option<String>,
    /// Names of the controllers that run, if this one has no Leases.
    pub(super) others: Vec<String>,
}

/// The controllers with Leases in a namespace, or in all; none if they cannot be listed.
pub(super) async fn find(client: &kube::Client, namespace: Option<&str>) -> Vec<Installation> {
    let leases =
        views::<_, Lease>(Ownership::leases(client, namespace), &ListParams::default().labels(LEASE_LABEL));
    let leases: Vec<Lease> = leases.try_collect().await.unwrap_or_default();
    let mut by_namespace: BTreeMap<String, Vec<Lease>> = BTreeMap::new();
    for lease in leases {
        by_namespace.entry(lease.metadata.namespace.clone().unwrap_or_default()).or_default().push(lease);
    }
    let mut found = Vec::new();
    for (namespace, leases) in by_namespace {
        let ownership = Ownership::of(&leases, Timestamp::now());
        for controller in ownership.controllers() {
            let mut replicas =
                ownership.replicas.iter().filter(|replica| replica.controller == controller.name);
            let lives = replicas.any(|replica| replica.state != ReplicaState::Silent);
            let (controller, namespace) = (controller.name.clone(), namespace.clone());
            found.push(Installation { controller, namespace, lives });
        }
    }
    found
}

/// The installation of the given name; without one the usual, else the only one that lives.
///
/// # Errors
///
/// The flag that has to say which one is meant.
pub(super) fn select(found: &[Installation], given: Option<&str>) -> Result<Selected, String> {
    let lives: BTreeSet<&str> = found.iter().filter(|one| one.lives).map(|one| &*one.controller).collect();
    let usual = found.iter().any(|one| one.controller == EXTERNAL_CONTROLLER).then_some(EXTERNAL_CONTROLLER);
    let several = || lives.iter().copied().collect::<Vec<_>>();
    let controller = match (given.or(usual), &*several()) {
        (Some(name), _) => name,
        (None, []) => EXTERNAL_CONTROLLER,
        (None, [only]) => only,
        (None, several) => {
            return Err(format!("--controller-name: replicas run as {}; name one", several.join(", ")));
        }
    };
    // Replicas of old versions have written no name.
    let label = controller_label(controller);
    let its = found.iter().filter(|one| one.controller == controller || one.controller == label);
    let namespaces: BTreeSet<&str> = its.map(|one| &*one.namespace).collect();
    let namespaces: Vec<&str> = namespaces.into_iter().collect();
    let (namespace, others) = match *namespaces {
        [] => (None, several().into_iter().map(str::to_owned).collect()),
        [only] => (Some(only.to_owned()), Vec::new()),
        _ => {
            let namespaces = namespaces.join(", ");
            return Err(format!("--lease-namespace: replicas have Leases in {namespaces}; name one"));
        }
    };
    Ok(Selected { controller: controller.to_owned(), namespace, others })
}

/// The finding if no replica has the name that was given, and replicas of these names run.
pub(super) fn misnamed(controller: &str, others: &[String]) -> (CheckId, Finding) {
    let running = others.join(", ");
    let finding = Finding::failed(
        format!("no replica runs as {controller}; replicas run as {running}"),
        format!(
            "Check those: `yardmaster check --controller-name {}`. If others should run, start them.",
            others.first().map_or("NAME", String::as_str)
        ),
    );
    (shards::REPLICAS, finding)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job::names::BUILT_IN_CONTROLLER;

    fn installed(controller: &str, namespace: &str, lives: bool) -> Installation {
        Installation { controller: controller.into(), namespace: namespace.into(), lives }
    }

    #[test]
    fn the_controller_that_runs_is_checked() {
        let built_in = || installed(BUILT_IN_CONTROLLER, "default", true);
        let external = |lives| installed(EXTERNAL_CONTROLLER, "system", lives);
        let other = || installed("example.com/jobs", "other", true);
        let dead = installed("example.com/old", "other", false);
        for (found, given, expected) in [
            (vec![], None, Ok((EXTERNAL_CONTROLLER, None, vec![]))),
            (vec![dead], None, Ok((EXTERNAL_CONTROLLER, None, vec![]))),
            (vec![built_in()], None, Ok((BUILT_IN_CONTROLLER, Some("default"), vec![]))),
            // The usual one is meant, also while it is down.
            (vec![built_in(), external(false)], None, Ok((EXTERNAL_CONTROLLER, Some("system"), vec![]))),
            (vec![built_in(), other()], None, Err("--controller-name")),
            (
                vec![built_in(), other()],
                Some("example.com/jobs"),
                Ok(("example.com/jobs", Some("other"), vec![])),
            ),
            (
                vec![built_in()],
                Some(EXTERNAL_CONTROLLER),
                Ok((EXTERNAL_CONTROLLER, None, vec![BUILT_IN_CONTROLLER.to_owned()])),
            ),
            (vec![external(true), installed(EXTERNAL_CONTROLLER, "b", true)], None, Err("--lease-namespace")),
        ] {
            match (select(&found, given), expected) {
                (Ok(selected), Ok((controller, namespace, others))) => {
                    assert_eq!(
                        (&*selected.controller, selected.namespace.as_deref()),
                        (controller, namespace)
                    );
                    assert_eq!(selected.others, others);
                }
                (Err(problem), Err(flag)) => assert!(problem.starts_with(flag), "{problem}"),
                (selected, _) => panic!("{selected:?} of {found:?}"),
            }
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_told_with_those_that_do() {
        let (_, finding) = misnamed("a", &["b".to_owned()]);
        assert_eq!(finding.message, "no replica runs as a; replicas run as b");
        assert!(finding.remedy.unwrap().contains("--controller-name b"));
    }
}
