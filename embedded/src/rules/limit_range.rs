//! `v1` LimitRange: bounds of amounts in a namespace, and defaults of containers that name none.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::core_kinds::validated;
use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, as_object, object_at};
use super::pod::resources::{Owner, may_overcommit, name_rules, quantity};
use super::quantity::Quantity;
use super::{Cause, Strategy, Subresource, names};

const METADATA_RULE: MetadataRule = MetadataRule { namespaced: true, name: names::dns_subdomain };
const CONTAINER: &str = "Container";
const POD: &str = "Pod";
const CLAIM: &str = "PersistentVolumeClaim";

/// The rules of LimitRanges.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitRangeStrategy;

impl Strategy for LimitRangeStrategy {
    fn default_object(&self, object: &mut Value) {
        for item in
            object_at(object, "spec").get_mut("limits").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if item["type"] == CONTAINER {
                default_item(as_object(item));
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        // A uid is as good a name as another.
        let metadata = object_at(object, "metadata");
        if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            let uid = metadata.get("uid").cloned().unwrap_or_default();
            metadata.insert("name".into(), uid);
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        validated(object, METADATA_RULE, |causes| limits(causes, object))
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        metadata::validate_update_generic(&mut causes, old, new);
        metadata::validate(&mut causes, new, METADATA_RULE);
        limits(&mut causes, new);
        causes.into_vec()
    }
}

/// The default limit is the maximum. The default request is the default limit, or the minimum if there is
/// none.
fn default_item(item: &mut Map<String, Value>) {
    for (field, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let Some(amounts) = item.get(from).and_then(Value::as_object).cloned() else { continue };
        if amounts.is_empty() {
            continue;
        }
        let defaults = as_object(metadata::child(item, field));
        for (name, amount) in amounts {
            defaults.entry(name).or_insert(amount);
        }
    }
}

fn limits(causes: &mut Causes, range: &Value) {
    let spec = Path::root("spec");
    let path = spec.child("limits");
    let mut types = BTreeSet::new();
    for (index, item) in range["spec"]["limits"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        let kind = item["type"].as_str().unwrap_or_default();
        type_rules(causes, &path.child("type"), kind);
        if !types.insert(kind) {
            causes.duplicate(&path.child("type"), &item["type"]);
        }
        Item { item, kind, path: &path }.validate(causes);
    }
}

fn type_rules(causes: &mut Causes, path: &Path<'_>, kind: &str) {
    let mut errors = names::qualified_name(kind);
    if errors.is_empty() && !kind.contains('/') && ![CONTAINER, POD, CLAIM].contains(&kind) {
        errors.push("must be a standard limit type or fully qualified".to_owned());
    }
    errors.iter().for_each(|error| causes.invalid(path, &kind.into(), error));
}

/// An item of `spec.limits`.
struct Item<'a> {
    item: &'a Value,
    kind: &'a str,
    path: &'a Path<'a>,
}

impl Item<'_> {
    fn validate(&self, causes: &mut Causes) {
        let owner = if matches!(self.kind, CONTAINER | POD) { Owner::Container } else { Owner::Other };
        let mut names = BTreeSet::new();
        let mut take = |causes: &mut Causes, field: &str| {
            let path = self.path.child(field);
            for name in self.item[field].as_object().into_iter().flatten().map(|(name, _)| name) {
                name_rules(causes, &path.key(name), name, owner);
                names.insert(name);
            }
        };
        take(causes, "max");
        take(causes, "min");
        for field in ["default", "defaultRequest"] {
            if self.kind != POD {
                take(causes, field);
            } else if self.item[field].as_object().is_some_and(|amounts| !amounts.is_empty()) {
                causes.forbidden(&self.path.child(field), "may not be specified when `type` is 'Pod'");
            }
        }
        if self.kind == CLAIM && ["min", "max"].iter().all(|field| self.item[*field]["storage"].is_null()) {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            causes.required(&self.path.child("limits"), detail);
        }
        take(causes, "maxLimitRequestRatio");
        for name in names {
            self.order(causes, name);
            self.ratio(causes, name);
        }
    }

    fn amount(&self, field: &str, name: &str) -> Option<Quantity> {
        // An item for pods has no defaults, even if it names some.
        let is_default = matches!(field, "default" | "defaultRequest");
        if is_default && self.kind == POD { None } else { quantity(&self.item[field][name]) }
    }

    /// Checks that min, default request, default limit and max of a resource are in this order.
    fn order(&self, causes: &mut Causes, name: &str) {
        // The lower and the higher field with their words, then the field at fault with the amount that is
        // shown.
        let pairs = [
            (("min", "min value"), ("max", "max value"), ("min", "min")),
            (
                ("min", "min value"),
                ("defaultRequest", "default request value"),
                ("defaultRequest", "defaultRequest"),
            ),
            (
                ("defaultRequest", "default request value"),
                ("max", "max value"),
                ("defaultRequest", "defaultRequest"),
            ),
            (
                ("defaultRequest", "default request value"),
                ("default", "default limit value"),
                ("defaultRequest", "defaultRequest"),
            ),
            (("min", "min value"), ("default", "default value"), ("default", "min")),
            (("default", "default value"), ("max", "max value"), ("default", "max")),
        ];
        for ((low, low_words), (high, high_words), (at, shown)) in pairs {
            let Some((lower, higher)) = self.amount(low, name).zip(self.amount(high, name)) else { continue };
            if lower > higher {
                let detail = format!("{low_words} {lower} is greater than {high_words} {higher}");
                causes.invalid(&self.path.child(at).key(name), &self.item[shown][name], &detail);
            }
        }
        let both = self.amount("default", name).zip(self.amount("defaultRequest", name));
        if let Some((limit, request)) =
            both.filter(|(limit, request)| limit != request && !may_overcommit(name))
        {
            let detail =
                format!("default value {limit} must equal to defaultRequest value {request} in {name}");
            let path = self.path.child("defaultRequest");
            causes.invalid(&path.key(name), &self.item["defaultRequest"][name], &detail);
        }
    }

    /// Checks that a ratio is possible.
    fn ratio(&self, causes: &mut Causes, name: &str) {
        let field = self.path.child("maxLimitRequestRatio");
        let (path, shown) = (field.key(name), &self.item["maxLimitRequestRatio"][name]);
        let Some(ratio) = self.amount("maxLimitRequestRatio", name) else { return };
        if ratio.to_f64() < 1.0 {
            causes.invalid(&path, shown, &format!("ratio {ratio} is less than 1"));
        }
        let Some((least, greatest)) = self.amount("min", name).zip(self.amount("max", name)) else { return };
        let possible = greatest.per(least);
        if ratio.to_f64() > possible {
            let detail = format!("ratio {ratio} is greater than max/min = {possible:.6}");
            causes.invalid(&path, shown, &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(limits: Value) -> Value {
        let mut range = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": limits}});
        LimitRangeStrategy.default_object(&mut range);
        range
    }

    #[test]
    fn defaults_of_containers_follow_from_their_bounds() {
        // An item, and what is added to it.
        let cases = [
            (json!({"max": {"cpu": "2"}}), json!({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}})),
            (json!({"min": {"cpu": "1"}}), json!({"defaultRequest": {"cpu": "1"}})),
            (json!({"default": {"cpu": "1"}, "max": {"cpu": "2"}}), json!({"defaultRequest": {"cpu": "1"}})),
            (json!({"defaultRequest": {"cpu": "1"}, "min": {"cpu": "500m"}}), json!({})),
            (json!({}), json!({})),
        ];
        for (given, added) in cases {
            for (kind, added) in [("Container", &added), ("Pod", &json!({}))] {
                let mut item = given.clone();
                item["type"] = kind.into();
                let mut expected = item.clone();
                as_object(&mut expected).extend(added.as_object().cloned().unwrap_or_default());
                assert_eq!(range(json!([item]))["spec"]["limits"][0], expected, "{given}");
            }
        }
    }

    #[test]
    fn ranges_that_nothing_fits_are_refused() {
        let container = |more: Value| {
            let mut item = json!({"type": "Container"});
            as_object(&mut item).extend(more.as_object().cloned().unwrap_or_default());
            json!([item])
        };
        let cases: [(Value, &[(&str, &str)]); 14] = [
            (
                container(
                    json!({"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                ),
                &[],
            ),
            (
                json!([{"type": "Node"}]),
                &[("type", "Invalid value: \"Node\": must be a standard limit type or fully qualified")],
            ),
            (json!([{"type": "example.com/Node", "max": {"storage": "1"}}]), &[]),
            (json!([{"type": "Pod"}, {"type": "Pod"}]), &[("[1].type", "Duplicate value: \"Pod\"")]),
            (
                container(json!({"max": {"storage": "1"}})),
                &[
                    (
                        "max[storage]",
                        "Invalid value: \"storage\": must be a standard resource for containers",
                    ),
                    (
                        "default[storage]",
                        "Invalid value: \"storage\": must be a standard resource for containers",
                    ),
                    (
                        "defaultRequest[storage]",
                        "Invalid value: \"storage\": must be a standard resource for containers",
                    ),
                ],
            ),
            (
                json!([{"type": "Pod", "default": {"cpu": "1"}}]),
                &[("default", "Forbidden: may not be specified when `type` is 'Pod'")],
            ),
            (
                json!([{"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}]),
                &[(
                    "limits",
                    "Required value: either minimum or maximum storage value is required, but neither was provided",
                )],
            ),
            (
                json!([{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]),
                &[("min[cpu]", "Invalid value: \"2\": min value 2 is greater than max value 1")],
            ),
            (
                container(
                    json!({"min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "3"}}),
                ),
                &[
                    (
                        "defaultRequest[cpu]",
                        "Invalid value: \"3\": default request value 3 is greater than default limit value 1",
                    ),
                    ("default[cpu]", "Invalid value: \"2\": min value 2 is greater than default value 1"),
                ],
            ),
            (
                container(
                    json!({"max": {"cpu": "2"}, "default": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}}),
                ),
                &[("default[cpu]", "Invalid value: \"2\": default value 3 is greater than max value 2")],
            ),
            (
                container(json!({"min": {"cpu": "2"}, "max": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}})),
                &[(
                    "defaultRequest[cpu]",
                    "Invalid value: \"1\": min value 2 is greater than default request value 1",
                )],
            ),
            (
                container(json!({"default": {"a.b/c": "2"}, "defaultRequest": {"a.b/c": "1"}})),
                &[(
                    "defaultRequest[a.b/c]",
                    "Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in a.b/c",
                )],
            ),
            (
                container(json!({"maxLimitRequestRatio": {"cpu": "500m"}})),
                &[("maxLimitRequestRatio[cpu]", "Invalid value: \"500m\": ratio 500m is less than 1")],
            ),
            (
                json!([{"type": "Pod", "min": {"cpu": "1500m"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}]),
                &[(
                    "maxLimitRequestRatio[cpu]",
                    "Invalid value: \"2\": ratio 2 is greater than max/min = 1.333333",
                )],
            ),
        ];
        for (limits, expected) in cases {
            let causes = LimitRangeStrategy.validate_create(&range(limits.clone()));
            let found: Vec<_> =
                causes.iter().map(|cause| (cause.field.as_str(), cause.message.as_str())).collect();
            let full = |field: &str| {
                if field.starts_with('[') {
                    format!("spec.limits{field}")
                } else {
                    format!("spec.limits[0].{field}")
                }
            };
            let expected: Vec<_> = expected.iter().map(|(field, message)| (full(field), *message)).collect();
            let expected: Vec<_> =
                expected.iter().map(|(field, message)| (field.as_str(), *message)).collect();
            assert_eq!(found, expected, "{limits}");
        }
    }
}
