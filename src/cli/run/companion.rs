//! The objects of a file beside its Jobs: which kinds are taken, in which order they are made, and how.

use anyhow::Context as _;
use serde_json::Value;

use crate::cli::console::note;
use crate::cluster::resource::Resource;
use crate::telemetry::printable::OneLine;

/// The name under which fields of these objects are owned on a cluster.
const FIELD_MANAGER: &str = "yardmaster-run";

/// A kind of object that Jobs need.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) is_namespaced: bool,
    resource: Resource,
}

/// All of them, in the order in which one needs another.
static KINDS: [Kind; 13] = [
    of_cluster("Namespace", "", "namespaces"),
    of_cluster("PriorityClass", "scheduling.k8s.io", "priorityclasses"),
    of_namespace("ResourceQuota", "", "resourcequotas"),
    of_namespace("LimitRange", "", "limitranges"),
    // A token of an account is a Secret that names it.
    of_namespace("ServiceAccount", "", "serviceaccounts"),
    of_namespace("Secret", "", "secrets"),
    of_namespace("ConfigMap", "", "configmaps"),
    of_cluster("ClusterRole", "rbac.authorization.k8s.io", "clusterroles"),
    of_cluster("ClusterRoleBinding", "rbac.authorization.k8s.io", "clusterrolebindings"),
    of_namespace("Role", "rbac.authorization.k8s.io", "roles"),
    of_namespace("RoleBinding", "rbac.authorization.k8s.io", "rolebindings"),
    of_namespace("PersistentVolumeClaim", "", "persistentvolumeclaims"),
    of_namespace("Service", "", "services"),
];

const fn of_namespace(name: &'static str, group: &'static str, plural: &'static str) -> Kind {
    Kind { name, is_namespaced: true, resource: Resource { group, version: "v1", plural } }
}

const fn of_cluster(name: &'static str, group: &'static str, plural: &'static str) -> Kind {
    Kind { is_namespaced: false, ..of_namespace(name, group, plural) }
}

impl Kind {
    /// The kind with this `apiVersion` and `kind`, if it is one of them.
    pub(super) fn find(api_version: &str, name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name && kind.api_version() == api_version)
    }

    pub(super) fn api_version(&self) -> String {
        let Resource { group, version, .. } = self.resource;
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// Whether objects of this kind are in a namespace, if it is one of them.
    #[cfg(feature = "embedded")]
    pub(super) fn is_in_namespace(name: &str) -> bool {
        KINDS.iter().find(|kind| kind.name == name).is_none_or(|kind| kind.is_namespaced)
    }

    /// The place in the order of creation.
    fn turn(&self) -> usize {
        KINDS.iter().position(|kind| kind == self).unwrap_or(KINDS.len())
    }
}

/// An object that is made before the Jobs.
#[derive(Clone, Debug)]
pub(super) struct Companion {
    pub(super) kind: &'static Kind,
    pub(super) name: String,
    /// The namespace of the object, if its kind has one.
    pub(super) namespace: Option<String>,
    /// The object as in the file, with its namespace filled in.
    pub(super) object: Value,
    /// The file and the line in it.
    pub(super) place: String,
}

/// Makes the objects, or gives those that are there the fields that the files name, as `kubectl apply --server-side` does: on a
/// cluster that others use, a field that another tool has written is a conflict. There, each change is printed.
pub(super) async fn apply(
    client: &kube::Client,
    companions: &[Companion],
    is_shared: bool,
) -> anyhow::Result<()> {
    let mut in_order: Vec<_> = companions.iter().collect();
    in_order.sort_by_key(|companion| companion.kind.turn());
    for companion in in_order {
        companion.apply(client, !is_shared).await?;
        if is_shared {
            let Companion { kind, name, .. } = companion;
            note(format_args!("{} {} applied", kind.name, OneLine(name)));
        }
    }
    Ok(())
}

impl Companion {
    async fn apply(&self, client: &kube::Client, force: bool) -> anyhow::Result<()> {
        let path = self.kind.resource.object_path(self.namespace.as_deref(), &self.name);
        let uri = format!("{path}?fieldManager={FIELD_MANAGER}&force={force}&fieldValidation=Strict");
        // JSON is YAML.
        let request = http::Request::patch(uri)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(serde_json::to_vec(&self.object)?)?;
        let applied = client.request::<Value>(request).await;
        let Self { kind, name, place, .. } = self;
        applied.map(drop).with_context(|| format!("{place}: cannot make {} {name:?}", kind.name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_group_and_comes_after_what_it_needs() {
        assert_eq!(Kind::find("v1", "ConfigMap").unwrap().resource.plural, "configmaps");
        assert_eq!(Kind::find("example.com/v1", "ConfigMap"), None);
        assert_eq!(Kind::find("apps/v1", "Deployment"), None);
        let turn = |version, name| Kind::find(version, name).unwrap().turn();
        let rbac = "rbac.authorization.k8s.io/v1";
        assert!(turn("v1", "Namespace") < turn("v1", "Secret"));
        assert!(turn("v1", "ServiceAccount") < turn(rbac, "RoleBinding"));
        assert!(turn(rbac, "Role") < turn(rbac, "RoleBinding"));
    }
}
