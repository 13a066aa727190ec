//! Properties of every policy.

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::attributes::Attributes;
use super::policy::{Decision, Objects, Policy};
use super::user::User;

const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];

fn some_of(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(texts, 0..=texts.len().min(2))
}

fn rule() -> impl Strategy<Value = Value> {
    let resources = (
        some_of(&["get", "list", "create", "*"]),
        some_of(&["", "batch", "*"]),
        some_of(&["pods", "jobs", "pods/log", "*/status", "*"]),
        some_of(&NAMES),
    )
        .prop_map(|(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        });
    let paths = (some_of(&["get", "*"]), some_of(&["/version", "/healthz/*", "*"]))
        .prop_map(|(verbs, urls)| json!({"verbs": verbs, "nonResourceURLs": urls}));
    prop_oneof![4 => resources, 1 => paths]
}

fn role() -> impl Strategy<Value = Value> {
    let labels = prop::sample::select(&["x", "y"][..]);
    let aggregates = prop::option::weighted(0.2, prop::sample::select(&["x", "y"][..]));
    (name(), prop::collection::vec(rule(), 0..4), labels, aggregates).prop_map(|(name, rules, label, of)| {
        let mut role = json!({"metadata": {"name": name, "labels": {"l": label}}, "rules": rules});
        if let Some(of) = of {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"l": of}}]});
        }
        role
    })
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn namespace() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMESPACES[..])
}

fn binding() -> impl Strategy<Value = Value> {
    let subject = prop_oneof![
        name().prop_map(|name| json!({"kind": "User", "name": name})),
        name().prop_map(|name| json!({"kind": "Group", "name": name})),
        (namespace(), name()).prop_map(
            |(namespace, name)| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        ),
    ];
    let role = (prop::sample::select(&["Role", "ClusterRole"][..]), name());
    (role, prop::collection::vec(subject, 0..3)).prop_map(|((kind, role), subjects)| {
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
    })
}

fn placed(objects: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (objects, namespace()).prop_map(|(mut object, namespace)| {
        object["metadata"]["namespace"] = namespace.into();
        object
    })
}

fn objects() -> impl Strategy<Value = Objects> {
    let several = |object| prop::collection::vec(object, 0..4);
    (
        several(role().boxed()),
        several(placed(role()).boxed()),
        several(binding().boxed()),
        several(placed(binding()).boxed()),
    )
        .prop_map(|(cluster_roles, roles, cluster_role_bindings, role_bindings)| Objects {
            cluster_roles,
            roles,
            cluster_role_bindings,
            role_bindings,
        })
}

fn user() -> impl Strategy<Value = User> {
    prop_oneof![
        (name(), name()).prop_map(|(name, group)| User::new(name, &[group])),
        (namespace(), name()).prop_map(|(namespace, name)| User::service_account(namespace, name)),
    ]
}

/// Every request that the rules above can tell apart.
fn requests() -> Vec<Attributes> {
    let mut requests = Vec::new();
    for method in [Method::GET, Method::POST, Method::DELETE] {
        for path in [
            "/version",
            "/healthz/ping",
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods",
            "/api/v1/namespaces/a/pods/x",
            "/api/v1/namespaces/b/pods/y/log",
            "/api/v1/namespaces/b/pods/y/status",
            "/apis/batch/v1/jobs",
            "/apis/batch/v1/namespaces/b/jobs/x/status",
        ] {
            requests.push(Attributes::of(&method, path, None));
        }
    }
    requests
}

fn allows(objects: &Objects, user: &User) -> Vec<bool> {
    let policy = Policy::new(objects);
    requests().iter().map(|request| matches!(policy.decide(user, request), Decision::Allowed(_))).collect()
}

/// All objects that lack one thing: a role, a binding, a rule, or a text of a rule other than a limit to
/// names.
fn reduced(objects: &Objects) -> Vec<Objects> {
    let mut all = Vec::new();
    let lists: [fn(&mut Objects) -> &mut Vec<Value>; 4] = [
        |objects| &mut objects.cluster_roles,
        |objects| &mut objects.roles,
        |objects| &mut objects.cluster_role_bindings,
        |objects| &mut objects.role_bindings,
    ];
    for list in lists {
        let length = list(&mut objects.clone()).len();
        for at in 0..length {
            let mut fewer = objects.clone();
            list(&mut fewer).remove(at);
            // An earlier role of the same name would come to light.
            let names: Vec<_> =
                list(&mut objects.clone()).iter().map(|one| one["metadata"].clone()).collect();
            if names.iter().filter(|name| name["name"] == names[at]["name"]).count() == 1
                || names[at]["name"] == "b"
            {
                all.push(fewer);
            }
            let rules = list(&mut objects.clone())[at]["rules"].as_array().map_or(0, Vec::len);
            for rule in 0..rules {
                let mut fewer = objects.clone();
                let kept = &mut list(&mut fewer)[at]["rules"];
                kept.as_array_mut().map(|rules| rules.remove(rule));
                all.push(fewer);
                for field in ["verbs", "apiGroups", "resources", "nonResourceURLs"] {
                    let mut fewer = objects.clone();
                    let texts = list(&mut fewer)[at]["rules"][rule][field].as_array_mut();
                    if texts.is_some_and(|texts| texts.pop().is_some()) {
                        all.push(fewer);
                    }
                }
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn taking_something_away_never_allows_more(objects in objects(), user in user()) {
        let before = allows(&objects, &user);
        for fewer in reduced(&objects) {
            let after = allows(&fewer, &user);
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                prop_assert!(*before || !after, "{:?} with {:?}", requests()[at], fewer);
            }
        }
    }

    #[test]
    fn a_user_whom_no_binding_names_may_do_nothing(objects in objects()) {
        let nobody = User { name: "nobody".into(), groups: vec!["nothing".into()], ..User::default() };
        prop_assert!(!allows(&objects, &nobody).contains(&true));
    }

    #[test]
    fn the_order_of_objects_does_not_matter(objects in objects(), user in user()) {
        let mut reversed = objects.clone();
        reversed.cluster_role_bindings.reverse();
        reversed.role_bindings.reverse();
        prop_assert_eq!(allows(&objects, &user), allows(&reversed, &user));
    }
}
