//! The rights that a role gives and that its author lacks.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::Rule;

/// Most rights that are compared one by one. A rule gives each of its verbs on each resource of each group: a small object
/// could ask for billions.
const MOST: usize = 10_000;

/// The rights in `wanted` that no rule in `held` covers, in the words of Kubernetes. Above [`MOST`] rights, all count as
/// lacking.
pub(super) fn lacking(held: &[&Rule], wanted: &[Rule]) -> BTreeSet<String> {
    if wanted.iter().map(Rule::number_of_rights).fold(0, usize::saturating_add) > MOST {
        return BTreeSet::from([format!("more than {MOST} rights at once: use wildcards")]);
    }
    // The verbs of each group, resource and name.
    let mut objects: BTreeMap<(&str, &str, Option<&str>), Vec<&str>> = BTreeMap::new();
    let mut lacking = BTreeSet::new();
    for rule in wanted {
        for verb in &rule.verbs {
            for (group, resource, name) in rule.objects() {
                let verbs = objects.entry((group, resource, name)).or_default();
                let is_held = held.iter().any(|held| held.covers_objects(verb, group, resource, name));
                if !is_held && !verbs.contains(&verb.as_str()) {
                    verbs.push(verb);
                }
            }
            for url in &rule.non_resource_urls {
                if !held.iter().any(|held| held.covers_path(verb, url)) {
                    lacking.insert(format!("{{NonResourceURLs:[{url:?}], Verbs:[{verb:?}]}}"));
                }
            }
        }
    }
    let texts = objects.into_iter().filter(|(_, verbs)| !verbs.is_empty());
    lacking.extend(texts.map(|((group, resource, name), verbs)| {
        let name = name.map(|name| format!("ResourceNames:[{name:?}], ")).unwrap_or_default();
        let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
        format!("{{APIGroups:[{group:?}], Resources:[{resource:?}], {name}Verbs:[{}]}}", verbs.join(" "))
    }));
    lacking
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(rules: Value) -> Vec<Rule> {
        Rule::all_of(&json!({ "rules": rules }))
    }

    fn of(held: Value, wanted: Value) -> Vec<String> {
        let (held, wanted) = (rules(held), rules(wanted));
        lacking(&held.iter().collect::<Vec<_>>(), &wanted).into_iter().collect()
    }

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
    }

    fn named(names: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"]})
    }

    #[test]
    fn each_right_must_be_held_by_one_rule() {
        let pods = || rule(&[""], &["pods"], &["get", "list"]);
        let (all, paths) =
            (rule(&["*"], &["*"], &["*"]), json!({"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}));
        for (held, wanted) in [
            (json!([pods()]), pods()),
            (json!([rule(&[""], &["pods"], &["get"]), rule(&[""], &["pods"], &["list"])]), pods()),
            (json!([rule(&["*"], &["*"], &["*"])]), pods()),
            (json!([all]), rule(&["batch"], &["jobs/status"], &["*"])),
            (json!([rule(&[""], &["*/log"], &["get"])]), rule(&[""], &["pods/log"], &["get"])),
            (json!([pods()]), named(&["a"])),
            (json!([named(&["a", "b"])]), named(&["a"])),
            (json!([named(&["a"]), named(&["b"])]), named(&["a", "b"])),
            (json!([paths]), json!({"nonResourceURLs": ["/healthz/ping"], "verbs": ["get"]})),
            (json!([paths]), paths.clone()),
        ] {
            assert_eq!(of(held.clone(), json!([wanted])), [""; 0], "{held} {wanted}");
        }
        for (held, wanted) in [
            (json!([]), pods()),
            (json!([rule(&[""], &["*"], &["get"])]), rule(&[""], &["pods"], &["*"])),
            (json!([rule(&["", "batch"], &["*"], &["*"])]), rule(&["*"], &["pods"], &["get"])),
            (json!([pods()]), rule(&[""], &["pods/log"], &["get"])),
            (json!([pods()]), rule(&[""], &["*"], &["get"])),
            (json!([named(&["a"])]), named(&[])),
            (json!([named(&["a"])]), named(&["a", "b"])),
            (json!([paths]), json!({"nonResourceURLs": ["*"], "verbs": ["get"]})),
            (json!([paths]), json!({"nonResourceURLs": ["/healthz/ping"], "verbs": ["*"]})),
        ] {
            assert_eq!(of(held.clone(), json!([wanted])).len(), 1, "{held} {wanted}");
        }
    }

    #[test]
    fn a_product_of_lists_has_a_bound() {
        let many: Vec<String> = (0..3_000).map(|number| format!("x{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let wanted = json!([rule(&many, &many, &many)]);
        assert_eq!(
            of(json!([rule(&["*"], &["*"], &["*"])]), wanted),
            ["more than 10000 rights at once: use wildcards"]
        );
    }

    #[test]
    fn what_is_lacking_has_the_words_of_kubernetes() {
        let wanted = json!([
            rule(&["", "batch"], &["pods"], &["get", "list"]),
            named(&["a"]),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
        ]);
        assert_eq!(
            of(json!([rule(&[""], &["pods"], &["watch"])]), wanted),
            [
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:["batch"], Resources:["pods"], Verbs:["get" "list"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
    }
}
