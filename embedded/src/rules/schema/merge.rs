//! Merge rules of lists: the keys with which strategic merge patch and server-side apply match elements.

use super::{Kind, TypeId, Types};

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    /// As one value.
    Atomic,
    /// A set of scalars.
    Set {
        /// Whether a strategic merge patch adds to the list (`x-kubernetes-patch-strategy`) instead of
        /// replacing it.
        patch_adds: bool,
    },
    /// A map, keyed by these fields of its elements (`x-kubernetes-list-map-keys`). A strategic merge patch
    /// uses `patch_key` instead (`x-kubernetes-patch-merge-key`), or replaces the list if it is `None`.
    Map {
        /// Keys for server-side apply.
        keys: &'static [&'static str],
        /// Key for strategic merge patches.
        patch_key: Option<&'static str>,
    },
}

/// The effect of a strategic merge patch on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// The patch's list replaces it.
    Replace,
    /// Scalars are added to the existing ones.
    Add,
    /// Maps are merged by this field.
    Key(&'static str),
}

impl ListType {
    /// The effect of a strategic merge patch on the list.
    pub(crate) fn patch_strategy(self) -> PatchStrategy {
        match self {
            Self::Set { patch_adds: true } => PatchStrategy::Add,
            Self::Map { patch_key: Some(key), .. } => PatchStrategy::Key(key),
            Self::Atomic | Self::Set { .. } | Self::Map { .. } => PatchStrategy::Replace,
        }
    }
}

/// A set that patches replace.
const SET: ListType = ListType::Set { patch_adds: false };
/// A set that patches add to.
const GROWING_SET: ListType = ListType::Set { patch_adds: true };

/// A list of maps with one key for both patches and apply.
const fn by(keys: &'static [&'static str; 1]) -> ListType {
    ListType::Map { keys, patch_key: Some(keys[0]) }
}

/// Lists that are not atomic: type, field, merge rule.
const LISTS: &[(&str, &str, ListType)] = &[
    ("ObjectMeta", "finalizers", GROWING_SET),
    ("ObjectMeta", "ownerReferences", by(&["uid"])),
    ("JobStatus", "conditions", ListType::Map { keys: &[], patch_key: Some("type") }),
    ("UncountedTerminatedPods", "failed", SET),
    ("UncountedTerminatedPods", "succeeded", SET),
    ("PodFailurePolicyOnExitCodesRequirement", "values", SET),
    ("PodSpec", "containers", by(&["name"])),
    ("PodSpec", "initContainers", by(&["name"])),
    ("PodSpec", "ephemeralContainers", by(&["name"])),
    ("PodSpec", "volumes", by(&["name"])),
    ("PodSpec", "imagePullSecrets", by(&["name"])),
    ("PodSpec", "hostAliases", by(&["ip"])),
    ("PodSpec", "schedulingGates", by(&["name"])),
    ("PodSpec", "resourceClaims", by(&["name"])),
    (
        "PodSpec",
        "topologySpreadConstraints",
        ListType::Map { keys: &["topologyKey", "whenUnsatisfiable"], patch_key: Some("topologyKey") },
    ),
    ("PodStatus", "conditions", by(&["type"])),
    ("PodStatus", "hostIPs", ListType::Map { keys: &[], patch_key: Some("ip") }),
    ("PodStatus", "podIPs", by(&["ip"])),
    ("PodStatus", "resourceClaimStatuses", by(&["name"])),
    ("Container", "env", by(&["name"])),
    (
        "Container",
        "ports",
        ListType::Map { keys: &["containerPort", "protocol"], patch_key: Some("containerPort") },
    ),
    ("Container", "volumeMounts", by(&["mountPath"])),
    ("Container", "volumeDevices", by(&["devicePath"])),
    ("EphemeralContainer", "env", by(&["name"])),
    (
        "EphemeralContainer",
        "ports",
        ListType::Map { keys: &["containerPort", "protocol"], patch_key: Some("containerPort") },
    ),
    ("EphemeralContainer", "volumeMounts", by(&["mountPath"])),
    ("EphemeralContainer", "volumeDevices", by(&["devicePath"])),
    ("ResourceRequirements", "claims", ListType::Map { keys: &["name"], patch_key: None }),
    ("NodeSpec", "podCIDRs", GROWING_SET),
    ("NodeStatus", "addresses", by(&["type"])),
    ("NodeStatus", "conditions", by(&["type"])),
    ("NamespaceStatus", "conditions", by(&["type"])),
    ("ServiceAccount", "secrets", by(&["name"])),
    ("ServiceSpec", "ports", ListType::Map { keys: &["port", "protocol"], patch_key: Some("port") }),
    ("ServiceStatus", "conditions", by(&["type"])),
    ("WorkloadSpec", "podGroupTemplates", ListType::Map { keys: &["name"], patch_key: None }),
    ("PodGroupStatus", "conditions", ListType::Map { keys: &["type"], patch_key: None }),
    ("PodGroupSpec", "resourceClaims", by(&["name"])),
];

/// Structs that merge as one value (`x-kubernetes-map-type: atomic`).
const ATOMIC_STRUCTS: &[&str] = &[
    "ConfigMapKeySelector",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "RoleRef",
    "ScopeSelector",
    "SecretKeySelector",
    "Subject",
    "TypedLocalObjectReference",
];

/// Maps that merge as one value.
const ATOMIC_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// Whether the struct of this name merges as one value.
pub(super) fn is_atomic_struct(name: &str) -> bool {
    ATOMIC_STRUCTS.contains(&name)
}

/// Whether the map at a field of the struct of this name merges as one value.
pub(super) fn is_atomic_map(name: &str, field: &str) -> bool {
    ATOMIC_MAPS.contains(&(name, field))
}

/// How the list at a field of the struct of this name merges.
pub(super) fn list_of(name: &str, field: &str) -> ListType {
    let listed = LISTS.iter().find(|(ty, list, _)| *ty == name && *list == field);
    listed.map_or(ListType::Atomic, |(.., merge)| *merge)
}

/// How the list at `field` of the struct merges.
pub(crate) fn list_type(ty: TypeId, field: &str) -> ListType {
    Types::get().by_id(ty).fields.get(field).map_or(ListType::Atomic, |field| field.list)
}

/// Default value of a field that is the key of a list, for elements without it.
pub(crate) fn key_default(field: &str) -> Option<&'static str> {
    (field == "protocol").then_some("TCP")
}

/// The type of the struct at `field`, or of the elements of the list there.
pub(crate) fn struct_at(ty: TypeId, field: &str) -> Option<TypeId> {
    match &Types::get().by_id(ty).fields.get(field)?.kind {
        Kind::Struct(id) => Some(*id),
        Kind::List(item) => match item.as_ref() {
            Kind::Struct(id) => Some(*id),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_in_the_table_exists() {
        for (ty, field, _) in LISTS {
            let known = Types::get().structs.iter().any(|known| {
                known.name() == *ty
                    && matches!(known.fields.get(*field).map(|field| &field.kind), Some(Kind::List(_)))
            });
            assert!(known, "{ty}.{field}");
        }
    }
}
