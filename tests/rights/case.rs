//! Ways to install the chart, with the rights that each gives to the controller.

use std::fmt;

use serde_json::{Value, json};
use yardmaster_embedded::Denial;

use crate::render::{NAMESPACE, objects_of_chart, of_kind, only};
use crate::tools::Helm;

/// Settings with which nothing takes long.
const QUICK: [&str; 8] = [
    "controller.shards=2",
    "controller.leaseDuration=3s",
    "controller.renewDeadline=2s",
    "controller.retryPeriod=500ms",
    "controller.batchPeriod=100ms",
    "controller.podFailureBackoff=10ms",
    "controller.apiBackoff=100ms",
    "controller.apiBackoffMax=200ms",
];

const IN_PLACE: &str = "kubernetes.io/job-controller";

/// The chart with some values.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    name: &'static str,
    /// Whether it takes the place of the built-in controller.
    pub(crate) in_place: bool,
    /// Whether Jobs are scheduled as gangs.
    pub(crate) gangs: bool,
    /// Whether finished Jobs are deleted.
    pub(crate) ttl: bool,
    /// Service account, roles and bindings of the controller.
    pub(crate) objects: Vec<Value>,
    container: Value,
}

/// A verb on a resource, by a rule of a rendered role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    kind: String,
    group: String,
    resource: String,
    verb: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ({})", self.verb, self.group, self.resource, self.kind)
    }
}

impl Case {
    /// All ways of installation that differ in rights.
    pub(crate) fn all(helm: &Helm) -> Vec<Self> {
        let in_place = format!("controller.name={IN_PLACE}");
        [
            ("default", vec![]),
            ("in place", vec![in_place.as_str()]),
            ("gangs", vec!["controller.featureGates.WorkloadWithJob=true"]),
            ("TTL", vec!["controller.ttlController=on"]),
        ]
        .into_iter()
        .map(|(name, values)| Self::rendered(helm, name, &values))
        .collect()
    }

    fn rendered(helm: &Helm, name: &'static str, values: &[&str]) -> Self {
        let set: Vec<&str> = QUICK.iter().chain(values).flat_map(|value| ["--set", *value]).collect();
        let objects = objects_of_chart(helm, crate::chart().as_os_str(), &set);
        let container = only(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
        let account = only_standing(&objects, "ServiceAccount");
        assert_eq!(account["metadata"]["namespace"], NAMESPACE);
        let kinds = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
        let roles = kinds.map(|kind| only_standing(&objects, kind));
        Self {
            name,
            in_place: name == "in place",
            gangs: name == "gangs",
            ttl: name == "TTL",
            objects: std::iter::once(account).chain(roles).collect(),
            container,
        }
    }

    /// Name of the service account.
    pub(crate) fn account(&self) -> &str {
        only(&self.objects, "ServiceAccount")["metadata"]["name"].as_str().unwrap()
    }

    /// `spec.managedBy` of the Jobs that the controller runs.
    pub(crate) fn managed_by(&self) -> Option<String> {
        let name =
            self.arguments().iter().find_map(|one| Some(one.strip_prefix("--controller-name=")?.to_owned()));
        name.filter(|_| !self.in_place)
    }

    /// Arguments of the rendered container.
    pub(crate) fn arguments(&self) -> Vec<String> {
        serde_json::from_value(self.container["args"].clone()).unwrap()
    }

    /// Every single right.
    pub(crate) fn rights(&self) -> Vec<Right> {
        let mut rights = Vec::new();
        for role in self.roles() {
            for rule in role["rules"].as_array().unwrap() {
                for (group, resource) in resources(rule) {
                    rights.extend(texts(rule, "verbs").into_iter().map(|verb| Right {
                        kind: role["kind"].as_str().unwrap().to_owned(),
                        group: group.clone(),
                        resource: resource.clone(),
                        verb,
                    }));
                }
            }
        }
        rights
    }

    fn roles(&self) -> Vec<&Value> {
        ["ClusterRole", "Role"].into_iter().flat_map(|kind| of_kind(&self.objects, kind)).collect()
    }

    /// The same with one right less.
    pub(crate) fn without(&self, right: &Right) -> Self {
        let mut case = self.clone();
        for role in case.objects.iter_mut().filter(|object| object["kind"] == right.kind) {
            let mut rules = Vec::new();
            for rule in role["rules"].as_array().unwrap() {
                for (group, resource) in resources(rule) {
                    let mut verbs = texts(rule, "verbs");
                    if (&group, &resource) == (&right.group, &right.resource) {
                        verbs.retain(|verb| *verb != right.verb);
                    }
                    if !verbs.is_empty() {
                        rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}));
                    }
                }
            }
            role["rules"] = rules.into();
        }
        let before = self.rights().len();
        assert_eq!(case.rights().len(), before - 1, "{right}");
        case
    }
}

impl Right {
    /// Whether a refusal is for the lack of this right.
    pub(crate) fn is_meant_by(&self, denial: &Denial) -> bool {
        if self.resource == "jobs/finalizers" {
            return denial.message.contains("you can't set finalizers on");
        }
        let Self { group, resource, verb, .. } = self;
        let own = format!("cannot {verb} resource {resource:?} in API group {group:?} ");
        // An adopter of a pod must have the right to delete it.
        let adoption = resource == "pods" && verb == "delete" && denial.message.contains("you can't delete");
        adoption || denial.message.contains(&own)
    }
}

fn texts(rule: &Value, field: &str) -> Vec<String> {
    serde_json::from_value(rule[field].clone()).unwrap()
}

/// Group and name of the resources of a rule.
fn resources(rule: &Value) -> Vec<(String, String)> {
    let of_group = |group: String| texts(rule, "resources").into_iter().map(move |one| (group.clone(), one));
    texts(rule, "apiGroups").into_iter().flat_map(of_group).collect()
}

/// The only object of a kind that is there all the time, and not only during a hook.
fn only_standing(objects: &[Value], kind: &str) -> Value {
    let is_hook = |object: &Value| !object["metadata"]["annotations"]["helm.sh/hook"].is_null();
    let standing: Vec<Value> = objects.iter().filter(|object| !is_hook(object)).cloned().collect();
    only(&standing, kind).clone()
}
