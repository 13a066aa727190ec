//! LimitRanges: amounts that containers get if they name none, and bounds of pods, containers and claims.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::meta;
use crate::resources::{self, Resource};
use crate::rules::quantity::Quantity;
use crate::rules::{Subresource, amount_of_containers, quantity_of};
use crate::server::Server;

/// The annotation that lists the amounts that a pod got.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The resources that a pod can ask for as a whole, in place of its containers.
const OF_WHOLE_PODS: [&str; 2] = ["cpu", "memory"];
const CLAIM: &str = "PersistentVolumeClaim";

/// The items of each LimitRange of a namespace.
fn ranges(server: &Server, namespace: &str) -> Vec<Vec<Value>> {
    let Some(ranges) = resources::stored("limitranges") else { return Vec::new() };
    let prefix = format!("{namespace}/");
    let Ok(page) = server.table(ranges).page(&prefix, None, None, None, |_| true) else { return Vec::new() };
    let items = |mut range: Value| match range["spec"]["limits"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    page.items.iter().map(|range| items(range.decode(ranges))).collect()
}

/// Gives the containers of a new pod the amounts that they do not name.
pub(super) fn complete(server: &Server, pod: &mut Value) {
    for items in ranges(server, meta(pod, "namespace")) {
        let told = add_defaults(&items, pod);
        if !told.is_empty() {
            let annotations = &mut pod["metadata"]["annotations"];
            if annotations.is_null() {
                *annotations = json!({});
            }
            annotations[ANNOTATION] = format!("LimitRanger plugin set: {}", told.join("; ")).into();
        }
    }
}

fn add_defaults(items: &[Value], pod: &mut Value) -> Vec<String> {
    let defaults = |field: &str| -> BTreeMap<String, Value> {
        let items = items.iter().filter(|item| item["type"] == "Container");
        let amounts = items.filter_map(|item| item[field].as_object()).flatten();
        amounts.map(|(name, amount)| (name.clone(), amount.clone())).collect()
    };
    let fields =
        [("requests", "request", defaults("defaultRequest")), ("limits", "limit", defaults("default"))];
    let mut told = Vec::new();
    for (list, words) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (field, word, defaults) in &fields {
                let added = add(container, field, defaults);
                if !added.is_empty() {
                    let name = container["name"].as_str().unwrap_or_default();
                    told.push(format!("{} {word} for {words} {name}", added.join(", ")));
                }
            }
        }
    }
    told
}

/// Adds the amounts that a container lacks, and returns their names.
fn add<'a>(container: &mut Value, field: &str, defaults: &'a BTreeMap<String, Value>) -> Vec<&'a str> {
    let given = &container["resources"][field];
    let missing = |(name, _): &(&String, &Value)| given[name.as_str()].is_null();
    let added: Vec<_> = defaults.iter().filter(missing).collect();
    for (name, amount) in &added {
        container["resources"][field][name.as_str()] = (*amount).clone();
    }
    added.into_iter().map(|(name, _)| name.as_str()).collect()
}

/// Refuses a new pod or claim that is out of bounds.
pub(super) fn admit(server: &Server, resource: &Resource, object: &Value) -> Result<(), ApiError> {
    for items in ranges(server, meta(object, "namespace")) {
        let mut problems: Vec<String> = Vec::new();
        for problem in items.iter().flat_map(|item| violations(item, resource, object)) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        let why = match &problems[..] {
            [] => continue,
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(ApiError::forbidden(resource, meta(object, "name"), &why));
    }
    Ok(())
}

/// Refuses a changed claim that is out of bounds. Containers of a pod never change in this respect.
pub(super) fn admit_update(
    server: &Server,
    resource: &Resource,
    subresource: Subresource,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let is_claim = resource.plural == "persistentvolumeclaims" && subresource == Subresource::Main;
    if is_claim && old["metadata"]["deletionTimestamp"].is_null() {
        admit(server, resource, new)
    } else {
        Ok(())
    }
}

/// The amounts of an object that are out of the bounds of one item.
fn violations(item: &Value, resource: &Resource, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    match (resource.plural, item["type"].as_str().unwrap_or_default()) {
        ("pods", "Container") => {
            let containers = ["containers", "initContainers"].map(|list| spec[list].as_array());
            let of = |container: &Value| {
                out_of_bounds(item, |field, name| quantity_of(&container["resources"][field][name]))
            };
            containers.into_iter().flatten().flatten().flat_map(of).collect()
        }
        ("pods", "Pod") => out_of_bounds(item, |field, name| {
            let whole = quantity_of(&spec["resources"][field][name]);
            whole
                .filter(|_| OF_WHOLE_PODS.contains(&name))
                .or_else(|| amount_of_containers(spec, field, name))
        }),
        ("persistentvolumeclaims", CLAIM) => {
            out_of_bounds(item, |field, name| quantity_of(&spec["resources"][field][name]))
        }
        _ => Vec::new(),
    }
}

/// The amounts that are out of the bounds of an item. `amount` returns the amount of a resource in `requests`
/// or `limits`.
fn out_of_bounds(item: &Value, amount: impl Fn(&str, &str) -> Option<Quantity>) -> Vec<String> {
    let kind = item["type"].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    for field in ["min", "max", "maxLimitRequestRatio"] {
        // In the order of names.
        let bounds: BTreeMap<_, _> = item[field].as_object().into_iter().flatten().collect();
        for (name, bound) in bounds {
            let Some(bound) = quantity_of(bound) else { continue };
            let (request, limit) = (amount("requests", name), amount("limits", name));
            let check = Check { kind, name, bound, request, limit };
            problems.extend(match field {
                "min" => check.minimum(),
                "max" => check.maximum(),
                _ => check.ratio(),
            });
        }
    }
    problems
}

/// A bound of a resource, and the amounts that it limits. Messages are those of Kubernetes.
struct Check<'a> {
    kind: &'a str,
    name: &'a str,
    bound: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

impl Check<'_> {
    fn is_below(&self, amount: &Quantity) -> bool {
        amount.in_milli() < self.bound.in_milli()
    }

    fn is_above(&self, amount: &Quantity) -> bool {
        amount.in_milli() > self.bound.in_milli()
    }

    fn minimum(&self) -> Option<String> {
        let problem = match self.request {
            None => ".  No request is specified".to_owned(),
            Some(request) if self.is_below(&request) => format!(", but request is {request}"),
            Some(_) => {
                let limit = self.limit.filter(|limit| self.kind != CLAIM && self.is_below(limit))?;
                format!(", but limit is {limit}")
            }
        };
        let Self { kind, name, bound, .. } = self;
        Some(format!("minimum {name} usage per {kind} is {bound}{problem}"))
    }

    fn maximum(&self) -> Option<String> {
        // For a claim, only the request counts.
        let is_claim = self.kind == CLAIM;
        let request = self.request.filter(|request| self.is_above(request));
        let problem = match (self.request, self.limit) {
            (None, _) if is_claim => ".  No request is specified".to_owned(),
            (_, None) if !is_claim => ".  No limit is specified".to_owned(),
            (_, Some(limit)) if !is_claim && self.is_above(&limit) => format!(", but limit is {limit}"),
            _ => format!(", but request is {}", request?),
        };
        let Self { kind, name, bound, .. } = self;
        Some(format!("maximum {name} usage per {kind} is {bound}{problem}"))
    }

    fn ratio(&self) -> Option<String> {
        let [request, limit] = [self.request, self.limit].map(|amount| amount.filter(Quantity::is_positive));
        let problem = match (request, limit) {
            _ if self.kind == CLAIM => return None,
            (None, _) => "no request is specified or request is 0".to_owned(),
            (_, None) => "no limit is specified or limit is 0".to_owned(),
            (Some(request), Some(limit)) => {
                let ratio = limit.per(request);
                if ratio <= self.bound.to_f64() {
                    return None;
                }
                format!("provided ratio is {ratio:.6}")
            }
        };
        let Self { kind, name, bound, .. } = self;
        Some(format!("{name} max limit to request ratio per {kind} is {bound}, but {problem}"))
    }
}

#[cfg(test)]
mod tests;
