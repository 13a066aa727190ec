//! Which containers of which pods are meant, and what stands before their lines.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;

use crate::cli::pod_view::{ContainerStatus, PodView, controller_uid, index};
use crate::job::index_set::IndexSet;

/// Containers of a Job.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// The Job.
    pub(super) job_uid: String,
    /// Completion indexes, if not all.
    pub(super) indexes: Option<IndexSet>,
    /// The only container that is meant, if not all.
    pub(super) container: Option<String>,
    /// Failed pods only.
    pub(super) failed: bool,
}

impl Selection {
    /// The started and not yet started containers of a pod that are meant, init containers first.
    pub(super) fn containers<'a>(&'a self, pod: &'a PodView) -> impl Iterator<Item = &'a ContainerStatus> {
        let meant = self.is_meant(pod);
        let containers = pod.status.iter().flat_map(|status| status.containers());
        containers.filter(move |container| {
            meant && self.container.as_ref().is_none_or(|wanted| container.name == **wanted)
        })
    }

    /// Whether logs of this pod are meant.
    pub(super) fn is_meant(&self, pod: &PodView) -> bool {
        let has_failed = || pod.status.as_ref().is_some_and(|status| status.phase == "Failed");
        let indexes = self.indexes.as_ref();
        controller_uid(pod) == Some(&self.job_uid)
            && (!self.failed || has_failed())
            && indexes.is_none_or(|indexes| index(pod).is_some_and(|index| indexes.contains(index)))
    }
}

/// The names of all containers of a Job, init containers first.
pub(super) fn container_names(job: &Job) -> BTreeSet<&str> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let init = pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten());
    let main = pod.into_iter().flat_map(|pod| &pod.containers);
    init.chain(main).map(|container| container.name.as_str()).collect()
}

/// The prefix of a container's lines: the completion index, the random end of the pod's name, and the container
/// where there are several. The random end differs between the pods of an index.
pub(in crate::cli) fn prefix(pod: &PodView, container: &str) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let end = name.rsplit('-').next().unwrap_or(name);
    let containers = pod.status.iter().flat_map(|status| status.containers()).count();
    let index = index(pod).map(|index| format!("{index}-")).unwrap_or_default();
    let container = if containers > 1 { format!(" {container}") } else { String::new() };
    format!("{index}{end}{container}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::job::names::COMPLETION_INDEX;

    fn pod(index: Option<&str>, containers: &[&str]) -> PodView {
        let statuses: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "train-7-x2k4p",
                "annotations": index.map(|index| json!({COMPLETION_INDEX: index})),
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": true}],
            },
            "spec": {}, "status": {"containerStatuses": statuses},
        }))
        .unwrap()
    }

    #[test]
    fn prefixes_are_short_and_say_what_differs() {
        assert_eq!(prefix(&pod(Some("7"), &["main"]), "main"), "7-x2k4p");
        assert_eq!(prefix(&pod(None, &["main"]), "main"), "x2k4p");
        assert_eq!(prefix(&pod(Some("7"), &["main", "log"]), "log"), "7-x2k4p log");
    }

    #[test]
    fn indexes_and_containers_are_chosen() {
        let all = Selection { job_uid: "u".into(), indexes: None, container: None, failed: false };
        let chosen = |selection: &Selection, pod: &PodView| {
            selection.containers(pod).map(|container| container.name.to_string()).collect::<Vec<_>>()
        };
        let two = pod(Some("7"), &["main", "log"]);
        assert_eq!(chosen(&all, &two), ["main", "log"]);
        let log = Selection { container: Some("log".into()), ..all.clone() };
        assert_eq!(chosen(&log, &two), ["log"]);
        let some = Selection { indexes: IndexSet::parse_strict("3,5-7"), ..all.clone() };
        assert_eq!(chosen(&some, &two).len(), 2);
        assert!(chosen(&some, &pod(Some("4"), &["main"])).is_empty());
        assert!(chosen(&some, &pod(None, &["main"])).is_empty());
        let failed = Selection { failed: true, ..all.clone() };
        assert!(chosen(&failed, &two).is_empty());
        let mut ended = two.clone();
        ended.status.as_mut().unwrap().phase = "Failed".into();
        assert_eq!(chosen(&failed, &ended).len(), 2);
        let other = Selection { job_uid: "other".into(), ..all };
        assert!(chosen(&other, &two).is_empty());
    }
}
