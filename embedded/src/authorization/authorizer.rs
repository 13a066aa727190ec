//! The policy as the store has it now, and a record of refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::attributes::Attributes;
use super::escalation::lacking;
use super::policy::{Decision, Objects, Policy};
use super::rule::Rule;
use super::user::User;
use crate::object::meta;
use crate::resources;
use crate::store::Store;

/// Receives the refusals of one server.
pub type DenialSink = UnboundedSender<Denial>;

/// Users beside the owner and the ServiceAccounts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    /// The users by bearer token. The owner's token is an administrator's, and a request without a token is of
    /// `system:anonymous`.
    pub users: BTreeMap<String, User>,
    /// Sink that receives a record of every refusal.
    pub denials: Option<DenialSink>,
}

/// A request that was refused because its user may not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The user's name.
    pub user: String,
    /// The deed that the user may not do, as the answer says it.
    pub message: String,
}

/// Whether a user may do something, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Whether it is allowed.
    pub(crate) allowed: bool,
    /// The reason, as Kubernetes gives it; often empty.
    pub(crate) reason: String,
}

/// Decides by the roles and bindings in the store.
pub(crate) struct Authorizer {
    anonymous: Option<Arc<User>>,
    denials: Option<DenialSink>,
    policy: Mutex<Option<(Versions, Arc<Policy>)>>,
}

/// The versions of the tables that a policy was read from.
type Versions = [u64; TABLES.len()];

const TABLES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

impl Authorizer {
    /// The authorizer of a server with users, which reports refusals; requests without a token have a user,
    /// too.
    pub(crate) fn new(denials: Option<DenialSink>) -> Self {
        let anonymous = Some(Arc::new(User::anonymous()));
        Self { anonymous, denials, policy: Mutex::new(None) }
    }

    /// The authorizer of a server whose only users are its owner and its ServiceAccounts.
    pub(crate) fn of_accounts() -> Self {
        Self { anonymous: None, denials: None, policy: Mutex::new(None) }
    }

    /// The user of requests without a token, if they may be made at all.
    pub(crate) fn anonymous(&self) -> Option<Arc<User>> {
        self.anonymous.clone()
    }

    /// Whether a user may do something.
    pub(crate) fn review(&self, store: &Store, user: &User, request: &Attributes) -> Access {
        if user.is_administrator() {
            return Access { allowed: true, reason: String::new() };
        }
        match self.policy(store).decide(user, request) {
            Decision::Allowed(grant) => Access { allowed: true, reason: format!("RBAC: allowed by {grant}") },
            Decision::NoOpinion(missing) => Access { allowed: false, reason: not_found(&missing) },
        }
    }

    /// The rights that a role gives and that its author lacks.
    pub(crate) fn lacking_for_role(&self, store: &Store, author: &User, role: &Value) -> BTreeSet<String> {
        lacking(&self.policy(store).held(author, meta(role, "namespace")), &Rule::all_of(role))
    }

    /// The rights that a binding gives and that its author lacks; `None` if its role is not there.
    pub(crate) fn lacking_for_binding(
        &self,
        store: &Store,
        author: &User,
        binding: &Value,
    ) -> Option<BTreeSet<String>> {
        let policy = self.policy(store);
        let given = policy.given(binding)?;
        Some(lacking(&policy.held(author, meta(binding, "namespace")), given))
    }

    /// Whether a user has all rights in the whole cluster.
    pub(crate) fn has_all_rights(&self, store: &Store, user: &User) -> bool {
        let all = [Rule::of_all_objects(), Rule::of_all_paths()];
        lacking(&self.policy(store).held(user, ""), &all).is_empty()
    }

    /// Records that a request was refused.
    pub(crate) fn record_denial(&self, user: &User, message: &str) {
        if let Some(denials) = &self.denials {
            // The receiver may be gone when the server stops.
            let _sent = denials.send(Denial { user: user.name.clone(), message: message.to_owned() });
        }
    }

    /// The policy that the store has now. It is read again only after a change.
    fn policy(&self, store: &Store) -> Arc<Policy> {
        // Taken before the objects are read: a change in between is then read once more.
        let versions = TABLES.map(|plural| store.table(plural).map_or(0, |table| table.version()));
        let mut current = self.policy.lock();
        if let Some((_, policy)) = current.as_ref().filter(|(read, _)| *read == versions) {
            return Arc::clone(policy);
        }
        let [cluster_roles, roles, cluster_role_bindings, role_bindings] =
            TABLES.map(|plural| objects(store, plural));
        let objects = Objects { cluster_roles, roles, cluster_role_bindings, role_bindings };
        let policy = Arc::new(Policy::new(&objects));
        *current = Some((versions, Arc::clone(&policy)));
        policy
    }
}

fn objects(store: &Store, plural: &str) -> Vec<Value> {
    let (Some(table), Some(resource)) = (store.table(plural), resources::stored(plural)) else {
        return Vec::new();
    };
    let page = table.page("", None, None, None, |_| true);
    page.map(|page| page.items.iter().map(|object| object.decode(resource)).collect()).unwrap_or_default()
}

/// Why rights may be missing: the roles that do not exist, several in brackets.
fn not_found<T: fmt::Display>(missing: impl IntoIterator<Item = T>) -> String {
    let missing: Vec<String> = missing.into_iter().map(|role| role.to_string()).collect();
    match missing.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        all => format!("RBAC: [{}]", all.join(", ")),
    }
}
