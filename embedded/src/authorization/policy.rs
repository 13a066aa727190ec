//! All roles and bindings of a cluster: whether a user may do something, and by which binding.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::attributes::{Attributes, Target};
use super::rule::Rule;
use super::user::{User, service_account_name};
use crate::object::meta;
use crate::rules::label_selector;

/// Roles and bindings, read once and then only evaluated.
#[derive(Debug, Default)]
pub(super) struct Policy {
    cluster_roles: BTreeMap<String, ClusterRole>,
    /// By namespace and name.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_bindings: Vec<Binding>,
    /// By namespace.
    bindings: BTreeMap<String, Vec<Binding>>,
}

/// The objects of a policy.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) cluster_roles: Vec<Value>,
    pub(super) roles: Vec<Value>,
    pub(super) cluster_role_bindings: Vec<Value>,
    pub(super) role_bindings: Vec<Value>,
}

#[derive(Debug)]
struct ClusterRole {
    labels: Value,
    /// Selectors of the ClusterRoles whose rules this one has in place of its own.
    aggregates: Option<Vec<Value>>,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Binding {
    namespace: String,
    name: String,
    role_kind: String,
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// Whether a request is allowed.
#[derive(Debug)]
pub(super) enum Decision<'a> {
    /// By a rule of the role that this binding names.
    Allowed(Grant<'a>),
    /// By none. The roles that bindings of the user name, but that do not exist.
    NoOpinion(BTreeSet<MissingRole<'a>>),
}

/// The binding that allows a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

/// A role that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingRole<'a> {
    kind: &'a str,
    name: &'a str,
}

impl Policy {
    /// Reads all roles and bindings.
    pub(super) fn new(objects: &Objects) -> Self {
        let own: BTreeMap<String, ClusterRole> = objects
            .cluster_roles
            .iter()
            .map(|role| (meta(role, "name").to_owned(), ClusterRole::read(role)))
            .collect();
        let collected = |(name, role): (&String, &ClusterRole)| {
            let mut rules = Vec::new();
            collect(&own, name, &mut BTreeSet::new(), &mut rules);
            let role = ClusterRole { labels: role.labels.clone(), aggregates: None, rules };
            (name.clone(), role)
        };
        let mut policy = Self { cluster_roles: own.iter().map(collected).collect(), ..Self::default() };
        for role in &objects.roles {
            let key = (meta(role, "namespace").to_owned(), meta(role, "name").to_owned());
            policy.roles.insert(key, Rule::all_of(role));
        }
        policy.cluster_bindings = objects.cluster_role_bindings.iter().map(Binding::read).collect();
        for binding in objects.role_bindings.iter().map(Binding::read) {
            policy.bindings.entry(binding.namespace.clone()).or_default().push(binding);
        }
        policy
    }

    /// Whether the roles of a user allow a request.
    pub(super) fn decide(&self, user: &User, request: &Attributes) -> Decision<'_> {
        let namespace = match &request.target {
            Target::Objects { namespace, .. } => namespace.as_str(),
            Target::Path(_) => "",
        };
        let mut missing = BTreeSet::new();
        for (binding, subject) in self.bindings_of(user, namespace) {
            match self.rules_of(binding) {
                Some(rules) if rules.iter().any(|rule| rule.allows(request)) => {
                    return Decision::Allowed(Grant { binding, subject });
                }
                Some(_) => {}
                None => _ = missing.insert(MissingRole { kind: &binding.role_kind, name: &binding.role }),
            }
        }
        Decision::NoOpinion(missing)
    }

    /// All rules that a user has in a namespace; those for the whole cluster if it is empty.
    pub(super) fn held(&self, user: &User, namespace: &str) -> Vec<&Rule> {
        let bindings = self.bindings_of(user, namespace);
        bindings.filter_map(|(binding, _)| self.rules_of(binding)).flatten().collect()
    }

    /// The rules that a binding gives to its subjects; `None` if its role is not there.
    pub(super) fn given(&self, binding: &Value) -> Option<&[Rule]> {
        self.rules_of(&Binding::read(binding))
    }

    /// The bindings that give a user roles in a namespace, each with the subject that is the user.
    fn bindings_of(&self, user: &User, namespace: &str) -> impl Iterator<Item = (&Binding, &Subject)> {
        let in_namespace = self.bindings.get(namespace).map_or(&[][..], Vec::as_slice);
        self.cluster_bindings.iter().chain(in_namespace).filter_map(move |binding| {
            let subject = binding.subjects.iter().find(|one| one.is(user, &binding.namespace))?;
            Some((binding, subject))
        })
    }

    fn rules_of(&self, binding: &Binding) -> Option<&[Rule]> {
        match binding.role_kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&binding.role).map(|role| role.rules.as_slice()),
            "Role" => {
                let key = (binding.namespace.clone(), binding.role.clone());
                self.roles.get(&key).map(Vec::as_slice)
            }
            _ => None,
        }
    }
}

/// Collects the rules of a ClusterRole: its own, or those of the ClusterRoles that it aggregates.
fn collect<'a>(
    roles: &'a BTreeMap<String, ClusterRole>,
    name: &'a str,
    visited: &mut BTreeSet<&'a str>,
    rules: &mut Vec<Rule>,
) {
    let Some(role) = roles.get(name).filter(|_| visited.insert(name)) else { return };
    let Some(selectors) = &role.aggregates else {
        return rules.extend_from_slice(&role.rules);
    };
    for (other, selected) in roles {
        if selectors.iter().any(|selector| label_selector::matches(selector, &selected.labels) == Some(true))
        {
            collect(roles, other, visited, rules);
        }
    }
}

impl ClusterRole {
    fn read(role: &Value) -> Self {
        let aggregation = &role["aggregationRule"];
        let selectors = || aggregation["clusterRoleSelectors"].as_array().cloned().unwrap_or_default();
        Self {
            labels: role["metadata"]["labels"].clone(),
            aggregates: (!aggregation.is_null()).then(selectors),
            rules: Rule::all_of(role),
        }
    }
}

impl Binding {
    fn read(binding: &Value) -> Self {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let role = &binding["roleRef"];
        Self {
            namespace: meta(binding, "namespace").to_owned(),
            name: meta(binding, "name").to_owned(),
            role_kind: text(role, "kind"),
            role: text(role, "name"),
            subjects: subjects.map(Subject::read).collect(),
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Self {
        Self {
            kind: text(subject, "kind"),
            namespace: text(subject, "namespace"),
            name: text(subject, "name"),
        }
    }

    /// The namespace of a ServiceAccount: the binding's, unless the subject names one.
    fn namespace<'a>(&'a self, of_binding: &'a str) -> &'a str {
        if self.namespace.is_empty() { of_binding } else { &self.namespace }
    }

    fn is(&self, user: &User, of_binding: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = self.namespace(of_binding);
                !namespace.is_empty() && service_account_name(namespace, &self.name) == user.name
            }
            _ => false,
        }
    }
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

/// The reason in an access review: `ClusterRoleBinding "b" of ClusterRole "r" to User "u"`.
impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binding, subject } = self;
        if binding.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {:?}", binding.name)?;
        } else {
            write!(f, "RoleBinding \"{}/{}\"", binding.name, binding.namespace)?;
        }
        write!(f, " of {} {:?} to {} ", binding.role_kind, binding.role, subject.kind)?;
        if subject.kind == "ServiceAccount" {
            write!(f, "\"{}/{}\"", subject.name, subject.namespace(&binding.namespace))
        } else {
            write!(f, "{:?}", subject.name)
        }
    }
}

/// As in `clusterrole.rbac.authorization.k8s.io "r" not found`.
impl fmt::Display for MissingRole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.to_ascii_lowercase();
        write!(f, "{kind}.rbac.authorization.k8s.io {:?} not found", self.name)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;

    fn objects() -> Objects {
        let subject = |kind: &str, namespace: &str, name: &str| json!({"kind": kind, "namespace": namespace, "name": name});
        let reads =
            |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}]);
        let binding = |namespace: &str, name: &str, kind: &str, role: &str, subject: Value| {
            json!({"metadata": {"namespace": namespace, "name": name}, "roleRef": {"kind": kind, "name": role},
                "subjects": [subject]})
        };
        Objects {
            cluster_roles: vec![
                json!({"metadata": {"name": "pods", "labels": {"to-all": "y", "to-view": "y"}}, "rules": reads("pods")}),
                json!({"metadata": {"name": "nodes", "labels": {"to-all": "y"}}, "rules": reads("nodes")}),
                json!({"metadata": {"name": "view", "labels": {"to-all": "y"}}, "rules": reads("secrets"),
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "y"}}]}}),
                json!({"metadata": {"name": "all", "labels": {"to-all": "y"}}, "rules": null,
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-all": "y"}}]}}),
            ],
            roles: vec![
                json!({"metadata": {"namespace": "a", "name": "secrets"}, "rules": reads("secrets")}),
            ],
            cluster_role_bindings: vec![
                binding("", "1", "ClusterRole", "all", subject("User", "", "jane")),
                binding("", "2", "ClusterRole", "view", subject("Group", "", "viewers")),
                binding("", "3", "ClusterRole", "gone", subject("User", "", "joe")),
                binding("", "4", "ClusterRole", "pods", subject("ServiceAccount", "", "nowhere")),
            ],
            role_bindings: vec![
                binding("a", "5", "Role", "secrets", subject("ServiceAccount", "b", "robot")),
                binding("a", "6", "ClusterRole", "pods", subject("ServiceAccount", "", "robot")),
                binding("b", "7", "Role", "secrets", subject("User", "", "joe")),
            ],
        }
    }

    /// The binding that lets a user read something, or the roles that are missing.
    fn decide(user: &User, path: &str) -> Result<String, String> {
        let policy = Policy::new(&objects());
        match policy.decide(user, &Attributes::of(&Method::GET, path, None)) {
            Decision::Allowed(grant) => Ok(grant.to_string()),
            Decision::NoOpinion(missing) => {
                Err(missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn bindings_give_roles_to_users_groups_and_service_accounts() {
        let (jane, joe) = (User::new("jane", &[]), User::new("joe", &["others"]));
        let viewer = User::new("jim", &["viewers"]);
        let (robot_a, robot_b) = (User::service_account("a", "robot"), User::service_account("b", "robot"));
        let (pods, nodes, secrets) = ("/api/v1/pods", "/api/v1/nodes/n", "/api/v1/namespaces/a/secrets");
        let to_jane = Ok(r#"ClusterRoleBinding "1" of ClusterRole "all" to User "jane""#.to_owned());
        let to_viewers = Ok(r#"ClusterRoleBinding "2" of ClusterRole "view" to Group "viewers""#.to_owned());
        let gone = r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#;
        let both = format!(r#"{gone}, role.rbac.authorization.k8s.io "secrets" not found"#);
        for (user, path, wanted) in [
            (&jane, pods, to_jane.clone()),
            (&jane, nodes, to_jane),
            (&jane, secrets, Err(String::new())),
            (&viewer, pods, to_viewers),
            (&viewer, nodes, Err(String::new())),
            (&viewer, secrets, Err(String::new())),
            (&joe, pods, Err(gone.to_owned())),
            (&joe, "/api/v1/namespaces/b/pods", Err(both)),
            (
                &robot_b,
                secrets,
                Ok(r#"RoleBinding "5/a" of Role "secrets" to ServiceAccount "robot/b""#.to_owned()),
            ),
            (&robot_b, pods, Err(String::new())),
            (&robot_a, secrets, Err(String::new())),
            (
                &robot_a,
                "/api/v1/namespaces/a/pods",
                Ok(r#"RoleBinding "6/a" of ClusterRole "pods" to ServiceAccount "robot/a""#.to_owned()),
            ),
            (&robot_a, "/api/v1/namespaces/b/pods", Err(String::new())),
            (&User::service_account("", "nowhere"), pods, Err(String::new())),
        ] {
            assert_eq!(decide(user, path), wanted, "{user:?} {path}");
        }
    }
}
