//! Owner references need rights (OwnerReferencesPermissionEnforcement). To change them, a user must be able
//! to delete the object. To let an object block the deletion of its owner, a user must be able to update the
//! owner's finalizers.

use std::collections::HashSet;

use serde_json::Value;

use crate::authorization::{Attributes, User};
use crate::error::ApiError;
use crate::object::meta;
use crate::resources::{RESOURCES, Resource};
use crate::rules::Subresource;
use crate::server::Server;

/// Admits or refuses the owner references of an object; `old` is `None` on creation.
pub(crate) fn admit(
    server: &Server,
    user: Option<&User>,
    resource: &Resource,
    subresource: Subresource,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let (Some(user), true) = (user, server.protects_owners) else { return Ok(()) };
    // Status updates of pods cannot change owner references, whatever they contain.
    let exempt = resource.plural == "pods" && subresource == Subresource::Status;
    if exempt || references(old) == references(Some(new)) {
        return Ok(());
    }
    let refuse = |why: String| {
        let name = Some(meta(new, "name")).filter(|name| !name.is_empty()).unwrap_or("Unknown");
        let error = ApiError::forbidden(resource, name, &why);
        server.record_denial(Some(user), &error);
        Err(error)
    };
    if old.is_some()
        && let Some(reason) = server.refusal(Some(user), &deletion(resource, subresource, new))
    {
        return refuse(format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>"));
    }
    for reference in newly_blocking(old, new) {
        let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
        let Some(owner) = RESOURCES.iter().find(|one| one.api_version() == api_version && one.kind == kind)
        else {
            return refuse(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
                 {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
            ));
        };
        if let Some(reason) = server.refusal(Some(user), &finalization(owner, reference, new)) {
            return refuse(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers \
                 on: {reason}, <nil>"
            ));
        }
    }
    Ok(())
}

fn text<'a>(reference: &'a Value, field: &str) -> &'a str {
    reference[field].as_str().unwrap_or_default()
}

fn references(object: Option<&Value>) -> &[Value] {
    let references = object.and_then(|object| object["metadata"]["ownerReferences"].as_array());
    references.map_or(&[], Vec::as_slice)
}

/// The references that block their owner's deletion now but did not before.
fn newly_blocking<'a>(old: Option<&'a Value>, new: &'a Value) -> impl Iterator<Item = &'a Value> {
    let blocks = |reference: &Value| reference["blockOwnerDeletion"] == true;
    let before = references(old).iter().filter(|one| blocks(one));
    let before: HashSet<&Value> = before.map(|one| &one["uid"]).collect();
    references(Some(new)).iter().filter(move |one| blocks(one) && !before.contains(&one["uid"]))
}

/// The deletion of the object itself.
fn deletion(resource: &Resource, subresource: Subresource, object: &Value) -> Attributes {
    let subresource = match subresource {
        Subresource::Main => "",
        Subresource::Status => "status",
        Subresource::Scale => "scale",
        Subresource::Binding => "binding",
    };
    Attributes::for_object("delete", resource, subresource, meta(object, "namespace"), meta(object, "name"))
}

/// An update of the owner's finalizers. A namespaced owner is in the namespace of its dependent.
fn finalization(owner: &Resource, reference: &Value, dependent: &Value) -> Attributes {
    let namespace = if owner.namespaced { meta(dependent, "namespace") } else { "" };
    Attributes::for_object("update", owner, "finalizers", namespace, text(reference, "name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_references_that_begin_to_block_are_checked() {
        let object = |references: Value| json!({"metadata": {"ownerReferences": references}});
        let reference = |uid: &str, blocks: Value| json!({"uid": uid, "blockOwnerDeletion": blocks});
        let old = object(json!([reference("a", true.into()), reference("b", Value::Null)]));
        let new = object(json!([
            reference("a", true.into()),
            reference("b", true.into()),
            reference("c", true.into()),
            reference("d", false.into()),
        ]));
        let uids = |old: Option<&Value>, new: &Value| -> Vec<String> {
            newly_blocking(old, new).map(|one| text(one, "uid").to_owned()).collect()
        };
        assert_eq!(uids(Some(&old), &new), ["b", "c"]);
        assert_eq!(uids(None, &new), ["a", "b", "c"]);
        assert_eq!(uids(Some(&new), &old), [""; 0]);
        assert_eq!(uids(None, &json!({"metadata": {}})), [""; 0]);
    }
}
