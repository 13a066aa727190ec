//! `scheduling.k8s.io/v1alpha2` Workload and PodGroup, for gang scheduling.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, child, default_to, object_at};
use super::{Cause, Strategy, Subresource, go_value, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };
const TEMPLATES_MAX: usize = 8;
const POLICIES: [&str; 2] = ["basic", "gang"];

/// The finalizer that keeps a PodGroup while pods refer to it.
const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

/// Fields of a template or a PodGroup that belong to disabled features.
const GATED: [&str; 5] =
    ["schedulingConstraints", "disruptionMode", "priority", "priorityClassName", "resourceClaims"];

/// The rules of Workloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkloadStrategy;

/// The rules of PodGroups.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodGroupStrategy;

impl Strategy for WorkloadStrategy {
    fn prepare_create(&self, object: &mut Value) {
        let templates = child(object_at(object, "spec"), "podGroupTemplates");
        for template in templates.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            for field in GATED {
                template.remove(field);
            }
            template.insert("schedulingConstraints".into(), Value::Null);
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate(&mut causes, object, METADATA_RULE);
        let path = Path::root("spec");
        controller_ref(&mut causes, &path.child("controllerRef"), &object["spec"]["controllerRef"]);
        templates(&mut causes, &path.child("podGroupTemplates"), &object["spec"]["podGroupTemplates"]);
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        self.prepare_create(new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        immutable_spec(old, new, &["controllerRef", "podGroupTemplates"])
    }
}

impl Strategy for PodGroupStrategy {
    fn default_object(&self, object: &mut Value) {
        default_to(object_at(object, "spec"), "disruptionMode", "Pod");
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_gated(object);
        let finalizers = child(object_at(object, "metadata"), "finalizers");
        match finalizers {
            Value::Array(list) if list.iter().any(|known| known == PROTECTION) => {}
            Value::Array(list) => list.push(PROTECTION.into()),
            absent => *absent = json!([PROTECTION]),
        }
        object["status"] = json!({});
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate(&mut causes, object, METADATA_RULE);
        let spec = &object["spec"];
        let path = Path::root("spec");
        template_ref(&mut causes, &path.child("podGroupTemplateRef"), &spec["podGroupTemplateRef"]);
        policy(&mut causes, &path.child("schedulingPolicy"), &spec["schedulingPolicy"]);
        causes.into_vec()
    }

    fn prepare_update(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
        match subresource {
            Subresource::Status => metadata::keep(old, new, "spec"),
            _ => {
                drop_gated(new);
                metadata::keep(old, new, "status");
            }
        }
    }

    fn validate_update(&self, subresource: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        if subresource != Subresource::Status {
            return immutable_spec(old, new, &["podGroupTemplateRef", "schedulingPolicy"]);
        }
        let mut causes = Causes::default();
        metadata::validate_update(
            &mut causes,
            old,
            new,
            |_| {},
            |causes| {
                let status = Path::root("status");
                conditions(causes, &status.child("conditions"), &new["status"]["conditions"]);
            },
        );
        causes.into_vec()
    }
}

/// The Workload of a new PodGroup and the template in it. Admission refuses the PodGroup with 403 if either
/// does not exist.
pub fn workload_of(pod_group: &Value) -> Option<(&str, &str)> {
    let reference = &pod_group["spec"]["podGroupTemplateRef"]["workload"];
    Some((reference["workloadName"].as_str()?, reference["podGroupTemplateName"].as_str()?))
}

fn drop_gated(pod_group: &mut Value) {
    let spec = object_at(pod_group, "spec");
    for field in GATED {
        spec.remove(field);
    }
    // The default, which is the only value with the feature disabled.
    spec.insert("disruptionMode".into(), "Pod".into());
}

fn immutable_spec(old: &Value, new: &Value, fields: &[&str]) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::validate_update(
        &mut causes,
        old,
        new,
        |_| {},
        |causes| {
            let path = Path::root("spec");
            for field in fields {
                if new["spec"][*field] != old["spec"][*field] {
                    causes.invalid(&path.child(field), &Value::Null, "field is immutable");
                }
            }
        },
    );
    causes.into_vec()
}

/// Checks that exactly one of the named fields is set.
fn one_of(causes: &mut Causes, path: &Path<'_>, value: &Value, fields: &[&str]) {
    let given: Vec<&str> = fields.iter().copied().filter(|field| !value[*field].is_null()).collect();
    let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    let names = names.join(", ");
    match given.len() {
        1 => {}
        0 => causes.invalid_str(path, "", &format!("must specify one of: {names}")),
        _ => {
            let given = format!("{{{}}}", given.join(", "));
            causes.invalid_str(path, &given, &format!("must specify exactly one of: {names}"));
        }
    }
}

/// Refuses an absent or empty text, or one that violates `rule`.
fn required_name(causes: &mut Causes, path: &Path<'_>, value: &Value, rule: fn(&str) -> Vec<String>) {
    match value.as_str().unwrap_or_default() {
        "" => causes.required(path, ""),
        name => causes.invalid_each(path, name, rule(name)),
    }
}

fn policy(causes: &mut Causes, path: &Path<'_>, policy: &Value) {
    one_of(causes, path, policy, &POLICIES);
    if policy["gang"].is_null() {
        return;
    }
    let gang = path.child("gang");
    let path = gang.child("minCount");
    match policy["gang"]["minCount"].as_i64().unwrap_or(0) {
        0 => causes.required(&path, ""),
        count if count < 0 => causes.invalid(&path, &count.into(), "must be greater than or equal to 1"),
        _ => {}
    }
}

fn templates(causes: &mut Causes, path: &Path<'_>, templates: &Value) {
    let templates = templates.as_array().map_or(&[][..], Vec::as_slice);
    if templates.is_empty() {
        causes.required(path, "");
    }
    if templates.len() > TEMPLATES_MAX {
        causes.too_many(path, templates.len(), TEMPLATES_MAX);
        return;
    }
    let mut known = HashSet::new();
    for (index, template) in templates.iter().enumerate() {
        if !known.insert(&template["name"]) {
            let shown = go_value::of_type("scheduling.v1alpha2.PodGroupTemplate", template);
            causes.duplicate_shown(&path.index(index), &shown);
        }
    }
    for (index, template) in templates.iter().enumerate() {
        let path = path.index(index);
        required_name(causes, &path.child("name"), &template["name"], names::dns_label);
        policy(causes, &path.child("schedulingPolicy"), &template["schedulingPolicy"]);
    }
}

fn controller_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    if reference.is_null() {
        return;
    }
    if let Some(group) = reference["apiGroup"].as_str().filter(|group| !group.is_empty()) {
        causes.invalid_each(&path.child("apiGroup"), group, names::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        required_name(causes, &path.child(field), &reference[field], names::path_segment);
    }
}

fn template_ref(causes: &mut Causes, path: &Path<'_>, reference: &Value) {
    if reference.is_null() {
        return;
    }
    one_of(causes, path, reference, &["workload"]);
    let workload = &reference["workload"];
    if workload.is_null() {
        return;
    }
    let path = path.child("workload");
    required_name(causes, &path.child("workloadName"), &workload["workloadName"], names::dns_subdomain);
    let template = &workload["podGroupTemplateName"];
    required_name(causes, &path.child("podGroupTemplateName"), template, names::dns_label);
}

/// Checks `metav1.Condition`s.
fn conditions(causes: &mut Causes, path: &Path<'_>, conditions: &Value) {
    for (index, condition) in conditions.as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        required_name(causes, &path.child("type"), &condition["type"], names::qualified_name);
        let status = &condition["status"];
        let supported = ["False", "True", "Unknown"];
        if !supported.contains(&status.as_str().unwrap_or_default()) {
            causes.not_supported(&path.child("status"), status, &supported);
        }
        if condition["lastTransitionTime"].is_null() {
            causes.required(&path.child("lastTransitionTime"), "");
        }
        if condition["reason"].as_str().unwrap_or_default().is_empty() {
            causes.required(&path.child("reason"), "");
        }
    }
}
