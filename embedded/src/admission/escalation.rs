//! Admission of roles and bindings: refuses what gives a right that its author lacks, as in Kubernetes. An
//! author with the verb `escalate` on a role may write it, and an author with `bind` may bind it.

use serde_json::Value;

use crate::authorization::{Attributes, Authorizer, User};
use crate::error::ApiError;
use crate::object::meta;
use crate::resources::{self, Resource};
use crate::server::Server;

/// Most rights that a refusal names.
const SHOWN: usize = 100;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Admits or refuses a role or a binding; `old` is `None` on creation.
pub(super) fn admit(
    server: &Server,
    user: Option<&User>,
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let author = user.filter(|user| resource.group == GROUP && !user.is_administrator());
    let (Some(user), Some(authorizer)) = (author, &server.authorizer) else { return Ok(()) };
    if old.is_some_and(|old| grants_as_before(old, new)) {
        return Ok(());
    }
    let write = RoleWrite { server, authorizer, user, resource, object: new };
    match resource.plural {
        "roles" | "clusterroles" => write.admit_role(old.is_some()),
        "rolebindings" | "clusterrolebindings" => write.admit_binding(),
        _ => Ok(()),
    }
}

/// Whether an update changes at most what the garbage collector needs.
fn grants_as_before(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            for field in ["finalizers", "managedFields", "ownerReferences", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        rest
    };
    rest(old) == rest(new)
}

/// A role or a binding that a user writes.
struct RoleWrite<'a> {
    server: &'a Server,
    authorizer: &'a Authorizer,
    user: &'a User,
    resource: &'a Resource,
    object: &'a Value,
}

impl RoleWrite<'_> {
    fn admit_role(&self, exists: bool) -> Result<(), ApiError> {
        let name = if exists { meta(self.object, "name") } else { "" };
        if self.may("escalate", self.resource, name) {
            return Ok(());
        }
        let Self { server, user, object, .. } = *self;
        if !object["aggregationRule"].is_null() && !self.authorizer.has_all_rights(&server.store, user) {
            return self.refuse("must have cluster-admin privileges to use the aggregationRule");
        }
        let lacking = self.authorizer.lacking_for_role(&server.store, user, object);
        self.judge(lacking.into_iter().collect())
    }

    fn admit_binding(&self) -> Result<(), ApiError> {
        let reference = &self.object["roleRef"];
        let plural = if reference["kind"] == "Role" { "roles" } else { "clusterroles" };
        let role = resources::stored(plural).ok_or_else(ApiError::no_resource)?;
        let name = reference["name"].as_str().unwrap_or_default();
        if self.may("bind", role, name) {
            return Ok(());
        }
        match self.authorizer.lacking_for_binding(&self.server.store, self.user, self.object) {
            Some(lacking) => self.judge(lacking.into_iter().collect()),
            None => Err(ApiError::not_found(role, name)),
        }
    }

    /// Whether the user has a verb on a role in the namespace of the object.
    fn may(&self, verb: &str, role: &Resource, name: &str) -> bool {
        let namespace = meta(self.object, "namespace");
        let request = Attributes::for_object(verb, role, "", namespace, name);
        self.server.refusal(Some(self.user), &request).is_none()
    }

    fn judge(&self, lacking: Vec<String>) -> Result<(), ApiError> {
        if lacking.is_empty() {
            return Ok(());
        }
        let User { name, groups, .. } = self.user;
        let more = lacking.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        let groups: Vec<String> = groups.iter().map(|group| format!("{group:?}")).collect();
        self.refuse(&format!(
            "user {name:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}{more}",
            groups.join(" "),
            lacking[..lacking.len().min(SHOWN)].join("\n")
        ))
    }

    fn refuse(&self, why: &str) -> Result<(), ApiError> {
        let error = ApiError::forbidden(self.resource, meta(self.object, "name"), why);
        self.server.record_denial(Some(self.user), &error);
        Err(error)
    }
}
