//! `rbac.authorization.k8s.io/v1`: roles, and the bindings that give them to users.

use serde_json::Value;

use super::field::{Causes, Path};
use super::metadata::{self, MetadataRule, default_text, object_at};
use super::{Cause, Strategy, Subresource, names};

const GROUP: &str = "rbac.authorization.k8s.io";

fn metadata_rule(namespaced: bool) -> MetadataRule {
    MetadataRule { namespaced, name: names::path_segment }
}

/// The causes of an update, whose rules repeat those of the creation.
fn validated_update(
    old: &Value,
    new: &Value,
    create_rules: impl FnOnce(&mut Causes),
    update_rules: impl FnOnce(&mut Causes),
) -> Vec<Cause> {
    let mut causes = Causes::default();
    metadata::validate_update(&mut causes, old, new, create_rules, update_rules);
    causes.into_vec()
}

/// The rules of Roles and ClusterRoles.
#[derive(Clone, Copy, Debug)]
pub struct RoleStrategy {
    /// Whether the kind is Role.
    pub namespaced: bool,
}

impl RoleStrategy {
    fn validate(self, causes: &mut Causes, role: &Value) {
        metadata::validate(causes, role, metadata_rule(self.namespaced));
        let path = Path::root("rules");
        for (index, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
            self.validate_rule(causes, &path.index(index), rule);
        }
    }

    fn validate_rule(self, causes: &mut Causes, path: &Path<'_>, rule: &Value) {
        let is_empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        let urls = path.child("nonResourceURLs");
        if is_empty("verbs") {
            causes.required(&path.child("verbs"), "verbs must contain at least one value");
        }
        if !is_empty("nonResourceURLs") {
            let given = &rule["nonResourceURLs"];
            if self.namespaced {
                causes.invalid(&urls, given, "namespaced rules cannot apply to non-resource URLs");
            }
            if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                causes.invalid(&urls, given, detail);
            }
            return;
        }
        if is_empty("apiGroups") {
            causes.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if is_empty("resources") {
            causes.required(&path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

impl Strategy for RoleStrategy {
    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        self.validate(&mut causes, object);
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        validated_update(old, new, |causes| self.validate(causes, new), |_| {})
    }
}

/// The rules of RoleBindings and ClusterRoleBindings.
#[derive(Clone, Copy, Debug)]
pub struct RoleBindingStrategy {
    /// Whether the kind is RoleBinding.
    pub namespaced: bool,
}

impl RoleBindingStrategy {
    fn validate(self, causes: &mut Causes, binding: &Value) {
        metadata::validate(causes, binding, metadata_rule(self.namespaced));
        let (role, path) = (&binding["roleRef"], Path::root("roleRef"));
        if role["apiGroup"] != GROUP {
            causes.not_supported_str(&path.child("apiGroup"), text(role, "apiGroup"), &[GROUP]);
        }
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.contains(&role["kind"].as_str().unwrap_or_default()) {
            causes.not_supported_str(&path.child("kind"), text(role, "kind"), kinds);
        }
        match role["name"].as_str().unwrap_or_default() {
            "" => causes.required(&path.child("name"), ""),
            name => causes.invalid_each(&path.child("name"), name, names::path_segment(name)),
        }
        let path = Path::root("subjects");
        for (index, subject) in binding["subjects"].as_array().into_iter().flatten().enumerate() {
            self.validate_subject(causes, &path.index(index), subject);
        }
    }

    fn validate_subject(self, causes: &mut Causes, path: &Path<'_>, subject: &Value) {
        let name = subject["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.required(&path.child("name"), "");
        }
        let group = subject["apiGroup"].as_str().unwrap_or_default();
        match subject["kind"].as_str().unwrap_or_default() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    causes.invalid_each(&path.child("name"), name, names::dns_subdomain(name));
                }
                if !group.is_empty() {
                    causes.not_supported_str(&path.child("apiGroup"), group, &[""]);
                }
                if !self.namespaced && subject["namespace"].as_str().is_none_or(str::is_empty) {
                    causes.required(&path.child("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    causes.not_supported_str(&path.child("apiGroup"), group, &[GROUP]);
                }
            }
            kind => {
                let kinds = ["ServiceAccount", "User", "Group"];
                causes.not_supported_str(&path.child("kind"), kind, &kinds);
            }
        }
    }
}

impl Strategy for RoleBindingStrategy {
    fn default_object(&self, object: &mut Value) {
        default_text(object_at(object, "roleRef"), "apiGroup", GROUP);
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                default_text(metadata::as_object(subject), "apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        self.validate(&mut causes, object);
        causes.into_vec()
    }

    fn prepare_update(&self, _: Subresource, old: &Value, new: &mut Value) {
        metadata::carry_over(old, new);
    }

    fn validate_update(&self, _: Subresource, old: &Value, new: &Value) -> Vec<Cause> {
        let role_stays = |causes: &mut Causes| {
            let role = &new["roleRef"];
            if *role != old["roleRef"] {
                causes.invalid_of(&Path::root("roleRef"), "rbac.RoleRef", role, "cannot change roleRef");
            }
        };
        validated_update(old, new, |causes| self.validate(causes, new), role_stays)
    }
}

/// A text field, empty if absent.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(causes: &[Cause]) -> Vec<String> {
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn rules_are_about_resources_or_about_paths() {
        let check = |namespaced: bool, rule: Value| {
            let mut role = json!({"metadata": {"name": "r"}, "rules": [rule]});
            if namespaced {
                role["metadata"]["namespace"] = "n".into();
            }
            fields(&RoleStrategy { namespaced }.validate_create(&role))
        };
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let version = json!({"nonResourceURLs": ["/version"], "verbs": ["get"]});
        for (namespaced, rule, wanted) in [
            (true, pods.clone(), &[][..]),
            (false, version.clone(), &[]),
            (
                true,
                version,
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/version\"]: namespaced rules cannot apply to \
                     non-resource URLs",
                ],
            ),
            (
                false,
                json!({"nonResourceURLs": ["/"], "resources": ["pods"], "verbs": ["get"]}),
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/\"]: rules cannot apply to both regular resources \
                     and non-resource URLs",
                ],
            ),
            (
                true,
                json!({"verbs": []}),
                &[
                    "rules[0].verbs: Required value: verbs must contain at least one value",
                    "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                    "rules[0].resources: Required value: resource rules must supply at least one resource",
                ],
            ),
        ] {
            assert_eq!(check(namespaced, rule.clone()), wanted, "{rule}");
        }
    }

    #[test]
    fn bindings_name_a_role_and_subjects_and_keep_the_role() {
        let strategy = RoleBindingStrategy { namespaced: false };
        let binding = |role: Value, subject: Value| {
            let mut binding = json!({"metadata": {"name": "a:b"}, "roleRef": role, "subjects": [subject]});
            strategy.default_object(&mut binding);
            binding
        };
        let role = json!({"kind": "ClusterRole", "name": "system:x"});
        let account = json!({"kind": "ServiceAccount", "namespace": "n", "name": "s"});
        let valid = binding(role.clone(), account.clone());
        assert_eq!(valid["roleRef"]["apiGroup"], GROUP);
        assert_eq!(fields(&strategy.validate_create(&valid)), [""; 0]);
        assert_eq!(
            fields(&strategy.validate_create(&binding(role.clone(), json!({"kind": "User", "name": "u"})))),
            [""; 0]
        );
        for (role, subject, wanted) in [
            (
                json!({"kind": "Role", "name": "x"}),
                account.clone(),
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
            (json!({"kind": "ClusterRole"}), account, "roleRef.name: Required value"),
            (
                role.clone(),
                json!({"kind": "ServiceAccount", "name": "s"}),
                "subjects[0].namespace: Required value",
            ),
            (
                role.clone(),
                json!({"kind": "Robot", "name": "s"}),
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ),
        ] {
            assert_eq!(fields(&strategy.validate_create(&binding(role, subject))), [wanted]);
        }
        let mut other = valid.clone();
        other["roleRef"]["name"] = "y".into();
        let wanted = format!(
            r#"roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"y"}}: cannot change roleRef"#
        );
        assert_eq!(fields(&strategy.validate_update(Subresource::Main, &valid, &other)), [wanted]);
    }
}
