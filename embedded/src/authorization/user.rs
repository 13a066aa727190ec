//! The sender of a request.

use std::collections::BTreeMap;

/// The group of all users with a valid token.
const AUTHENTICATED: &str = "system:authenticated";
/// The group whose users may do everything.
const MASTERS: &str = "system:masters";

/// A user by name and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `jane` or `system:serviceaccount:NAMESPACE:NAME`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
    /// The UID; empty unless the user is an object of the cluster.
    pub uid: String,
    /// Further facts about the user, by their names. Roles do not look at them.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of these groups, and of the group of all users.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().chain(&[AUTHENTICATED]).map(|group| (*group).to_owned()).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// A user who may do everything.
    pub fn administrator() -> Self {
        Self::new("kubernetes-admin", &[MASTERS])
    }

    /// A ServiceAccount.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        Self::new(&service_account_name(namespace, name), &["system:serviceaccounts", &of_namespace])
    }

    /// The user of requests without a token.
    pub(crate) fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".into()];
        Self { name: "system:anonymous".into(), groups, ..Self::default() }
    }

    /// Whether the user belongs to a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether the user may do everything, whatever the roles say.
    pub(crate) fn is_administrator(&self) -> bool {
        self.is_in(MASTERS)
    }
}

/// The user name of a ServiceAccount.
pub(super) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
