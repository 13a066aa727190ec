//! Resources of the Kubernetes API and their paths.

/// A namespaced resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
}

impl Resource {
    /// Pods.
    pub const PODS: Self = Self { group: "", version: "v1", plural: "pods" };
    /// Events of the core group.
    pub const EVENTS: Self = Self { group: "", version: "v1", plural: "events" };
    /// Jobs.
    pub const JOBS: Self = Self { group: "batch", version: "v1", plural: "jobs" };
    /// Leases.
    pub const LEASES: Self = Self { group: "coordination.k8s.io", version: "v1", plural: "leases" };
    /// Workloads: the groups of pods that a gang Job declares.
    pub const WORKLOADS: Self = Self { group: "scheduling.k8s.io", version: "v1alpha2", plural: "workloads" };
    /// PodGroups: pods that are scheduled together.
    pub const POD_GROUPS: Self =
        Self { group: "scheduling.k8s.io", version: "v1alpha2", plural: "podgroups" };

    /// Path of all its objects in one namespace, or in the whole cluster.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural } = self;
        let root = if group.is_empty() { ["/api", ""] } else { ["/apis/", group] };
        let within = namespace.map_or(["", ""], |namespace| ["/namespaces/", namespace]);
        [root.as_slice(), &["/", version], &within, &["/", plural]].concat().concat()
    }

    /// Path of one object.
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        [&self.path(Some(namespace)), "/", name].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;

    #[test]
    fn paths() {
        assert_eq!(Resource::PODS.path(None), "/api/v1/pods");
        assert_eq!(Resource::JOBS.path(Some("n")), "/apis/batch/v1/namespaces/n/jobs");
        assert_eq!(Resource::PODS.object_path("n", "p"), "/api/v1/namespaces/n/pods/p");
    }
}
