//! Resources of the Kubernetes API and their paths.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are escaped in a segment of a path: all but the unreserved
/// characters of RFC 3986, which are those of names.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A resource type.
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
        let namespace = namespace.map(segment);
        let within = namespace.as_deref().map_or(["", ""], |namespace| ["/namespaces/", namespace]);
        [root.as_slice(), &["/", version], &within, &["/", plural]].concat().concat()
    }

    /// Path of one object, in a namespace unless its kind has none. Any name, however
    /// odd, gives the path of one object.
    pub fn object_path<'a>(&self, namespace: impl Into<Option<&'a str>>, name: &str) -> String {
        [&self.path(namespace.into()), "/", &*segment(name)].concat()
    }
}

/// A segment of a path: one that cannot end the segment, nor lead to another.
fn segment(name: &str) -> Cow<'_, str> {
    match name {
        // Escaped dots would still be dots.
        "." | ".." => "%20".into(),
        name => utf8_percent_encode(name, ESCAPED).into(),
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
        let nodes = Resource { group: "", version: "v1", plural: "nodes" };
        assert_eq!(nodes.object_path(None, "n"), "/api/v1/nodes/n");
    }

    #[test]
    fn no_name_leads_out_of_its_segment() {
        for (name, segment) in [
            ("a.b-c_d~e", "a.b-c_d~e"),
            ("?watch=1&n=1", "%3Fwatch%3D1%26n%3D1"),
            ("../secrets/s", "..%2Fsecrets%2Fs"),
            ("..", "%20"),
            (".", "%20"),
            ("a#b%2e", "a%23b%252e"),
            ("é\r\n", "%C3%A9%0D%0A"),
        ] {
            let path = Resource::JOBS.object_path("n", name);
            assert_eq!(path, format!("/apis/batch/v1/namespaces/n/jobs/{segment}"));
        }
        assert_eq!(Resource::PODS.path(Some("n/pods?")), "/api/v1/namespaces/n%2Fpods%3F/pods");
    }
}
