//! The rights that the chart gives, to the letter.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::NEWEST;
use crate::render::{ValueSet, of_kind};
use crate::tools::helms;

type Rights = BTreeSet<(String, String, String)>;

/// Rights by group, resource and verb.
fn rights(rules: &[(&str, &str, &str)]) -> Rights {
    let each = |&(group, resources, verbs): &(&str, &str, &str)| -> Vec<(String, String, String)> {
        let pairs =
            resources.split(' ').flat_map(|resource| verbs.split(' ').map(move |verb| (resource, verb)));
        pairs.map(|(resource, verb)| (group.to_owned(), resource.to_owned(), verb.to_owned())).collect()
    };
    rules.iter().flat_map(each).collect()
}

/// The same of a role. No right is given twice, and none by other means.
fn rights_of(role: &Value) -> Rights {
    assert_eq!(role["aggregationRule"], Value::Null);
    let mut rights = Rights::new();
    for rule in role["rules"].as_array().unwrap() {
        let fields: Vec<_> = rule.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["apiGroups", "resources", "verbs"], "{rule}");
        let texts = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
        for group in texts("apiGroups") {
            for resource in texts("resources") {
                for verb in texts("verbs") {
                    assert!(rights.insert((group.clone(), resource.clone(), verb)), "twice: {rule}");
                }
            }
        }
    }
    rights
}

const PODS: (&str, &str, &str) = ("", "pods", "list watch get create patch delete");
const JOBS: (&str, &str, &str) = ("batch", "jobs", "list watch get");
const STATUS: (&str, &str, &str) = ("batch", "jobs/status", "patch");
const FINALIZERS: (&str, &str, &str) = ("batch", "jobs/finalizers", "update");
const EVENTS: (&str, &str, &str) = ("", "events", "create patch");
const LEASES: (&str, &str, &str) =
    ("coordination.k8s.io", "leases", "get list watch create update delete patch");
const DELETE_JOBS: (&str, &str, &str) = ("batch", "jobs", "delete");
const GANGS: (&str, &str, &str) = ("scheduling.k8s.io", "workloads podgroups", "list create");

/// The role of this kind and name.
fn role<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    of_kind(objects, kind).into_iter().find(|role| role["metadata"]["name"] == name).unwrap()
}

/// Whom a role of this kind and name is given to.
fn subjects<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let binding = role(objects, &format!("{kind}Binding"), name);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    assert_eq!(binding["roleRef"], role);
    &binding["subjects"]
}

#[test]
fn the_controller_may_do_what_it_does_and_nothing_else() {
    let usual = [PODS, JOBS, STATUS, FINALIZERS, EVENTS];
    let account = json!([{"kind": "ServiceAccount", "name": "yard-yardmaster", "namespace": "batch"}]);
    for helm in helms() {
        for (set, more) in
            [("defaults", &[][..]), ("in-place", &[DELETE_JOBS]), ("everything", &[DELETE_JOBS, GANGS])]
        {
            let objects = ValueSet::named(set).objects(&helm, NEWEST, &[]);
            let own = |kind| role(&objects, kind, "yard-yardmaster");
            assert_eq!(rights_of(own("ClusterRole")), rights(&[&usual, more].concat()), "{helm}, {set}");
            assert_eq!(rights_of(own("Role")), rights(&[LEASES]), "{helm}, {set}");
            assert_eq!(own("Role")["metadata"]["namespace"], "batch");
            for kind in ["Role", "ClusterRole"] {
                assert_eq!(subjects(&objects, kind, "yard-yardmaster"), &account, "{helm}, {set}");
            }
        }
    }
}

#[test]
fn the_controller_asks_about_others_only_where_pages_are_for_the_authorized() {
    for helm in helms() {
        for (set, bound) in [("defaults", false), ("everything", false), ("restricted", true)] {
            let objects = ValueSet::named(set).objects(&helm, NEWEST, &[]);
            let bindings = of_kind(&objects, "ClusterRoleBinding");
            let delegates =
                bindings.iter().filter(|binding| binding["roleRef"]["name"] == "system:auth-delegator");
            assert_eq!(delegates.count(), usize::from(bound), "{helm}, {set}");
        }
    }
}

#[test]
fn the_rights_about_leases_are_where_the_leases_are() {
    for helm in helms() {
        let objects = ValueSet::named("custom-names").objects(&helm, NEWEST, &[]);
        for kind in ["Role", "RoleBinding"] {
            assert_eq!(role(&objects, kind, "1234")["metadata"]["namespace"], "2026", "{helm}");
        }
        let account = json!([{"kind": "ServiceAccount", "name": "job-runner", "namespace": "batch"}]);
        assert_eq!(subjects(&objects, "Role", "1234"), &account, "{helm}");
    }
}

#[test]
fn nobody_else_gets_more_than_is_needed() {
    let view = ("coordination.k8s.io", "leases", "list watch");
    for helm in helms() {
        let objects = ValueSet::named("everything").objects(&helm, NEWEST, &[]);
        let names = |kind| -> Vec<&str> {
            of_kind(&objects, kind).iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect()
        };
        let all = ["yard-yardmaster", "yard-yardmaster-uninstall-check", "yard-yardmaster-view"];
        assert_eq!(names("ClusterRole"), all, "{helm}");
        assert_eq!(names("ClusterRoleBinding"), all[..2], "{helm}");
        assert_eq!(names("Role"), ["yard-yardmaster", "yard-yardmaster-test"], "{helm}");
        let cluster = |name| rights_of(role(&objects, "ClusterRole", name));
        assert_eq!(cluster("yard-yardmaster-view"), rights(&[view]), "{helm}");
        let leaving = [("batch", "jobs", "list"), ("", "pods", "list")];
        assert_eq!(cluster("yard-yardmaster-uninstall-check"), rights(&leaving), "{helm}");
        let test = rights_of(role(&objects, "Role", "yard-yardmaster-test"));
        assert_eq!(test, rights(&[("batch", "jobs", "create delete")]), "{helm}");
        // Rights that are needed for a moment are hooks: Helm takes them away again.
        for (kind, name) in
            [("ClusterRole", all[1]), ("ClusterRoleBinding", all[1]), ("Role", "yard-yardmaster-test")]
        {
            let annotations = &role(&objects, kind, name)["metadata"]["annotations"];
            assert_eq!(
                annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded",
                "{helm}"
            );
        }
    }
}

#[test]
fn the_readme_tells_the_rights() {
    let readme = std::fs::read_to_string(crate::project("charts/yardmaster/README.md")).unwrap();
    let row = |(group, resources, verbs): (&str, &str, &str)| {
        let group = if group.is_empty() { "core" } else { group };
        format!("| {group} | {} | {}", resources.replace(' ', ", "), verbs.replace(' ', ", "))
    };
    for rule in [PODS, JOBS, STATUS, FINALIZERS, EVENTS, LEASES, GANGS] {
        assert!(readme.contains(&row(rule)), "{}", row(rule));
    }
}
