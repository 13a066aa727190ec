//! An overlay on a pod's spec in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::{HostAvoidance, Overlay, Quantity, ResourceList, Variable, VariableValue, WEIGHT};
use crate::job::names::HOSTNAME_LABEL;

/// The fields of a pod's spec. Most of them stay text: they are copied to pods unread.
pub(in crate::job) type SpecFields<'a> = BTreeMap<Cow<'a, str>, Cow<'a, RawValue>>;

/// The fields of a container.
type Container<'a> = BTreeMap<Cow<'a, str>, Cow<'a, RawValue>>;

pub(super) fn add(overlay: &Overlay, spec: &mut SpecFields<'_>) -> Result<(), serde_json::Error> {
    for kind in ["initContainers", "containers"].into_iter().filter(|_| overlay.changes_containers()) {
        if let Some(containers) = spec.get_mut(kind) {
            *containers = Cow::Owned(with_containers(overlay, containers)?);
        }
    }
    if let Some(avoidance) = &overlay.avoidance {
        let given = spec.get("affinity").map_or("null", |affinity| affinity.get());
        let affinity = affinity_with(given, avoidance)?;
        spec.insert("affinity".into(), Cow::Owned(affinity));
    }
    Ok(())
}

/// These containers with their part of the overlay.
fn with_containers(overlay: &Overlay, containers: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut containers: Vec<BTreeMap<Cow<'_, str>, &RawValue>> = serde_json::from_str(containers.get())?;
    let changed = containers.drain(..).map(|given| {
        let mut container: Container<'_> =
            given.into_iter().map(|(field, value)| (field, Cow::Borrowed(value))).collect();
        if !overlay.env.is_empty() {
            let given = container.get("env").map_or("null", |env| env.get());
            let env = env_with(given, &overlay.env)?;
            container.insert("env".into(), Cow::Owned(env));
        }
        let name: Option<Cow<'_, str>> =
            container.get("name").map(|name| serde_json::from_str(name.get())).transpose()?;
        let quantities: Vec<_> = overlay.quantities_of(name.unwrap_or_default().as_bytes()).collect();
        if !quantities.is_empty() {
            let given = container.get("resources").map_or("null", |resources| resources.get());
            let resources = resources_with(given, &quantities)?;
            container.insert("resources".into(), Cow::Owned(resources));
        }
        Ok(container)
    });
    to_raw_value(&changed.collect::<Result<Vec<_>, serde_json::Error>>()?)
}

/// A variable of the template, by its name.
#[derive(Deserialize)]
struct NamedEntry<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// The environment of a container with these variables, except those that it has.
fn env_with(env: &str, variables: &[Variable]) -> Result<Box<RawValue>, serde_json::Error> {
    let named: Option<Vec<NamedEntry<'_>>> = serde_json::from_str(env)?;
    let named = named.unwrap_or_default();
    let new = variables.iter().filter(|variable| named.iter().all(|given| given.name != variable.name));
    let new = new.map(|variable| to_raw_value(&in_json(variable))).collect::<Result<Vec<_>, _>>()?;
    let given: Option<Vec<&RawValue>> = serde_json::from_str(env)?;
    let all = given.into_iter().flatten().chain(new.iter().map(|variable| &**variable));
    to_raw_value(&all.collect::<Vec<_>>())
}

fn in_json(Variable { name, value }: &Variable) -> Value {
    match value {
        VariableValue::Text(text) => json!({"name": name, "value": text}),
        VariableValue::Field(path) => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}),
    }
}

/// The resources of a container.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Resources {
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<Map<String, Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn resources_with(given: &str, quantities: &[&Quantity]) -> Result<Box<RawValue>, serde_json::Error> {
    let mut resources: Resources = given_or_default(given)?;
    for Quantity { list, resource, amount, .. } in quantities {
        let list = match list {
            ResourceList::Limits => &mut resources.limits,
            ResourceList::Requests => &mut resources.requests,
        };
        list.get_or_insert_default().insert((*resource).to_owned(), (**amount).into());
    }
    to_raw_value(&resources)
}

/// `spec.affinity`, as far as nodes matter.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_during_scheduling_ignored_during_execution: Option<Vec<Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    node_selector_terms: Option<Vec<Term>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_expressions: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_fields: Option<Vec<Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Terms are alternatives, so each gets the expression. A term without any selects no node, and stays as it is.
fn affinity_with(
    given: &str,
    HostAvoidance { required, hosts }: &HostAvoidance,
) -> Result<Box<RawValue>, serde_json::Error> {
    let mut affinity: Affinity = given_or_default(given)?;
    let hosts: Vec<&str> = hosts.iter().map(|host| &**host).collect();
    let expression = json!({"key": HOSTNAME_LABEL, "operator": "NotIn", "values": hosts});
    let nodes = affinity.node_affinity.get_or_insert_default();
    if *required {
        let selector = nodes.required_during_scheduling_ignored_during_execution.get_or_insert_default();
        let terms = selector.node_selector_terms.get_or_insert_default();
        if terms.is_empty() {
            terms.push(Term { match_expressions: Some(vec![expression]), ..Term::default() });
        } else {
            let selecting = terms.iter_mut().filter(|term| term.selects());
            selecting
                .for_each(|term| term.match_expressions.get_or_insert_default().push(expression.clone()));
        }
    } else {
        let term = json!({"weight": WEIGHT, "preference": {"matchExpressions": [expression]}});
        nodes.preferred_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
    }
    to_raw_value(&affinity)
}

impl Term {
    fn selects(&self) -> bool {
        [&self.match_expressions, &self.match_fields].into_iter().flatten().any(|all| !all.is_empty())
    }
}

/// An object; the default in place of `null`.
fn given_or_default<'a, T: Default + Deserialize<'a>>(given: &'a str) -> Result<T, serde_json::Error> {
    serde_json::from_str(given).map(Option::unwrap_or_default)
}
