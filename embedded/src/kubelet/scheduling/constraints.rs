//! The demands of a pod on its node and on the pods beside it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use super::super::host_ports::HostPort;
use super::super::pod::PodSpec;
use super::Amounts;
use crate::rules::label_selector;

/// The field by which a node affinity names its node.
const NODE_NAME: &str = "metadata.name";
/// The effect of a taint that only makes a node unwelcome.
const PREFER: &str = "PreferNoSchedule";
/// The taint of a node that takes no more pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The node, as a scheduler sees it.
#[derive(Clone, Debug, Default)]
pub(in crate::kubelet) struct NodeView {
    pub(super) total: Amounts,
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<core::Taint>,
    is_unschedulable: bool,
}

impl NodeView {
    /// A node that has a name and labels, as far as is known.
    pub(in crate::kubelet) fn labelled(name: &str, labels: BTreeMap<String, String>) -> Self {
        Self { name: name.to_owned(), labels, ..Self::default() }
    }

    pub(in crate::kubelet) fn name(&self) -> &str {
        &self.name
    }

    /// The offers of a node.
    pub(in crate::kubelet) fn of(node: &core::Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Self {
            total: allocatable.map(Amounts::of).unwrap_or_default(),
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            is_unschedulable: spec.unschedulable.unwrap_or_default(),
        }
    }
}

/// The view of a pod that others have.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The ports of the machine that it takes.
    pub(super) host_ports: Vec<HostPort>,
}

/// Why the node is not for a pod, in the words of Kubernetes' scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mismatch {
    #[error("node(s) were unschedulable")]
    Unschedulable,
    #[error("node(s) had untolerated taint(s)")]
    Taint,
    #[error("node(s) didn't match Pod's node affinity/selector")]
    NodeAffinity,
    #[error("node(s) didn't have free ports for the requested pod ports")]
    HostPorts,
    #[error("node(s) didn't match pod affinity rules")]
    PodAffinity,
    #[error("node(s) didn't match pod anti-affinity rules")]
    PodAntiAffinity,
    #[error("node(s) didn't satisfy existing pods anti-affinity rules")]
    ExistingAntiAffinity,
}

/// The part of a spec that is asked here.
pub(super) fn kept(spec: &PodSpec) -> PodSpec {
    PodSpec {
        node_selector: spec.node_selector.clone(),
        affinity: spec.affinity.clone(),
        tolerations: spec.tolerations.clone(),
        ..PodSpec::default()
    }
}

/// Whether the node is as a pod wants it, and `all` pods on it. The pod must also be as those pods want it that
/// exclude others.
pub(super) fn check<'a>(
    spec: &PodSpec,
    pod: &Neighbour,
    node: &NodeView,
    all: impl Iterator<Item = &'a Neighbour> + Clone,
    excluding: impl Iterator<Item = (&'a Neighbour, &'a PodSpec)>,
) -> Result<(), Mismatch> {
    let tolerates = |taint: &core::Taint| spec.tolerations.iter().any(|toleration| covers(toleration, taint));
    let unschedulable =
        core::Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..core::Taint::default() };
    if node.is_unschedulable && !tolerates(&unschedulable) {
        return Err(Mismatch::Unschedulable);
    }
    if node.taints.iter().any(|taint| taint.effect != PREFER && !tolerates(taint)) {
        return Err(Mismatch::Taint);
    }
    if !fits_node(spec, node) {
        return Err(Mismatch::NodeAffinity);
    }
    let is_taken =
        |port: &HostPort| all.clone().any(|other| other.host_ports.iter().any(|taken| taken.excludes(port)));
    if pod.host_ports.iter().any(is_taken) {
        return Err(Mismatch::HostPorts);
    }
    let is_here = |term: &core::PodAffinityTerm| node.labels.contains_key(&term.topology_key);
    // The first of pods that want to be together has no other to be with.
    let has_company = |term: &core::PodAffinityTerm| {
        selects(term, pod, pod) || all.clone().any(|other| selects(term, pod, other))
    };
    if !wanted(spec).iter().all(|term| is_here(term) && has_company(term)) {
        return Err(Mismatch::PodAffinity);
    }
    let meets =
        |term: &core::PodAffinityTerm| is_here(term) && all.clone().any(|other| selects(term, pod, other));
    if excluded(spec).iter().any(meets) {
        return Err(Mismatch::PodAntiAffinity);
    }
    let mut terms = excluding.flat_map(|(owner, spec)| excluded(spec).iter().map(move |term| (owner, term)));
    if terms.any(|(owner, term)| is_here(term) && selects(term, owner, pod)) {
        return Err(Mismatch::ExistingAntiAffinity);
    }
    Ok(())
}

/// Whether a pod keeps others away.
pub(super) fn excludes_others(spec: &PodSpec) -> bool {
    !excluded(spec).is_empty()
}

fn wanted(spec: &PodSpec) -> &[core::PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    let terms = affinity.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

fn excluded(spec: &PodSpec) -> &[core::PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = affinity.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

/// Whether a term of `owner` means another pod.
fn selects(term: &core::PodAffinityTerm, owner: &Neighbour, other: &Neighbour) -> bool {
    let names = term.namespaces.as_deref().unwrap_or_default();
    let is_in = match (names, &term.namespace_selector) {
        ([], None) => other.namespace == owner.namespace,
        // An empty selector means all namespaces. Labels of namespaces are not known here.
        (_, Some(selector)) if *selector == Default::default() => true,
        (names, _) => names.contains(&other.namespace),
    };
    let matches = || label_selector::matches(&json!(term.label_selector), &json!(other.labels));
    is_in && matches().unwrap_or(false)
}

fn covers(toleration: &core::Toleration, taint: &core::Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let is_effect = given(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let is_key = match given(&toleration.key) {
        Some(key) => key == taint.key,
        None => exists,
    };
    let value = |text: &Option<String>| text.clone().unwrap_or_default();
    is_effect && is_key && (exists || value(&toleration.value) == value(&taint.value))
}

/// The field by which a pod selects another node than this, and what that has.
pub(in crate::kubelet) fn unmet(spec: &PodSpec, node: &NodeView) -> Option<(&'static str, String)> {
    if let Some((key, value)) = unmet_label(spec, node) {
        return Some(("nodeSelector", format!("label {key}={value}")));
    }
    let text = "label that nodeAffinity requires".to_owned();
    (!fits_node(spec, node)).then_some(("affinity.nodeAffinity", text))
}

fn unmet_label<'a>(spec: &'a PodSpec, node: &NodeView) -> Option<(&'a String, &'a String)> {
    spec.node_selector.iter().find(|(key, value)| node.labels.get(*key) != Some(*value))
}

fn fits_node(spec: &PodSpec, node: &NodeView) -> bool {
    if unmet_label(spec, node).is_some() {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| is_met(term, node)))
}

/// An empty term is never met.
fn is_met(term: &core::NodeSelectorTerm, node: &NodeView) -> bool {
    let (labels, fields) = (&term.match_expressions, &term.match_fields);
    let (labels, fields) = (labels.as_deref().unwrap_or_default(), fields.as_deref().unwrap_or_default());
    let of_field = |key: &str| (key == NODE_NAME).then_some(node.name.as_str());
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|one| holds(one, node.labels.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| holds(one, of_field(&one.key)))
}

fn holds(requirement: &core::NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => is_among(),
        "NotIn" => !is_among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => bound().is_some_and(|(value, bound)| value > bound),
        "Lt" => bound().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: Value) -> NodeView {
        let metadata = json!({"name": "node", "labels": {"disk": "ssd", "cpus": "8"}});
        NodeView::of(&serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    }

    fn neighbour(namespace: &str, labels: BTreeMap<String, String>) -> Neighbour {
        Neighbour { namespace: namespace.into(), labels, host_ports: Vec::new() }
    }

    fn checked(spec: Value, node: &NodeView) -> Result<(), Mismatch> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let pod = neighbour("n", BTreeMap::new());
        check(&spec, &pod, node, std::iter::empty(), std::iter::empty())
    }

    #[test]
    fn a_pod_runs_on_a_node_that_it_selects() {
        let node = node(json!({}));
        let affinity = |terms: Value| {
            let required =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            json!({"affinity": {"nodeAffinity": required}})
        };
        let labels = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let fields = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        for (spec, fits) in [
            (json!({}), true),
            (json!({"nodeSelector": {"disk": "ssd"}}), true),
            (json!({"nodeSelector": {"disk": "hdd"}}), false),
            (affinity(json!([labels("disk", "In", &["hdd", "ssd"])])), true),
            (affinity(json!([labels("disk", "NotIn", &["ssd"])])), false),
            (affinity(json!([labels("gpu", "NotIn", &["a"])])), true),
            (affinity(json!([labels("gpu", "Exists", &[])])), false),
            (affinity(json!([labels("gpu", "DoesNotExist", &[])])), true),
            (affinity(json!([labels("cpus", "Gt", &["7"])])), true),
            (affinity(json!([labels("cpus", "Lt", &["8"])])), false),
            (affinity(json!([labels("gpu", "Exists", &[]), labels("disk", "Exists", &[])])), true),
            (affinity(json!([{}])), false),
            (affinity(json!([fields("node")])), true),
            (affinity(json!([fields("other")])), false),
        ] {
            let expected = if fits { Ok(()) } else { Err(Mismatch::NodeAffinity) };
            assert_eq!(checked(spec.clone(), &node), expected, "{spec}");
        }
    }

    #[test]
    fn a_taint_keeps_pods_away_that_do_not_tolerate_it() {
        let taint = |effect: &str| json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
        let tainted = node(taint("NoSchedule"));
        let with = |toleration: Value| json!({"tolerations": [toleration]});
        for (toleration, fits) in [
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "l", "operator": "Exists"}), false),
        ] {
            let expected = if fits { Ok(()) } else { Err(Mismatch::Taint) };
            assert_eq!(checked(with(toleration.clone()), &tainted), expected, "{toleration}");
        }
        assert_eq!(checked(json!({}), &node(taint("PreferNoSchedule"))), Ok(()));
        let cordoned = node(json!({"unschedulable": true}));
        assert_eq!(checked(json!({}), &cordoned), Err(Mismatch::Unschedulable));
        assert_eq!(checked(with(json!({"operator": "Exists"})), &cordoned), Ok(()));
    }

    #[test]
    fn pods_want_each_other_or_not() {
        let node = NodeView { labels: [("host".into(), "a".into())].into(), ..NodeView::default() };
        let pod = |label: &str| neighbour("n", [("is".into(), label.into())].into());
        let wants = |kind: &str, label: &str| -> PodSpec {
            let term = json!({"topologyKey": "host", "labelSelector": {"matchLabels": {"is": label}}});
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            serde_json::from_value(json!({"affinity": {kind: required}})).unwrap()
        };
        let (plain, beside, apart) =
            (PodSpec::default(), wants("podAffinity", "db"), wants("podAntiAffinity", "db"));
        let (db, web) = (pod("db"), pod("web"));
        let on_node = |spec: &PodSpec, pod: &Neighbour, others: &[(&Neighbour, &PodSpec)]| {
            let excluding = others.iter().copied().filter(|(_, spec)| excludes_others(spec));
            check(spec, pod, &node, others.iter().map(|(other, _)| *other), excluding)
        };
        assert_eq!(on_node(&beside, &web, &[]), Err(Mismatch::PodAffinity));
        assert_eq!(on_node(&beside, &web, &[(&db, &plain)]), Ok(()));
        assert_eq!(on_node(&beside, &db, &[]), Ok(()));
        assert_eq!(on_node(&apart, &web, &[(&db, &plain)]), Err(Mismatch::PodAntiAffinity));
        assert_eq!(on_node(&plain, &db, &[(&web, &apart)]), Err(Mismatch::ExistingAntiAffinity));
        let elsewhere = Neighbour { namespace: "m".into(), ..db.clone() };
        assert_eq!(on_node(&plain, &elsewhere, &[(&web, &apart)]), Ok(()));
    }
}
