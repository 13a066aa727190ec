//! The names by which pods of a namespace find each other. Some are those of Services that select a pod, and others
//! those of a pod within its Service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

/// The properties of a pod that give it its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) namespace: &'a str,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) hostname: &'a str,
    /// The Service that it belongs to, or nothing.
    pub(super) subdomain: &'a str,
}

/// All names of a pod, as the DNS of a cluster has them.
pub(super) fn of(pod: Named<'_>, services: &[Service]) -> Vec<String> {
    let mut names = Vec::new();
    for service in services.iter().filter(|service| selects(service, pod.labels)) {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let mut add = |name: &str| {
            let Named { namespace, .. } = pod;
            names.push(name.to_owned());
            for end in
                [namespace.to_owned(), format!("{namespace}.svc"), format!("{namespace}.svc.cluster.local")]
            {
                names.push(format!("{name}.{end}"));
            }
        };
        add(name);
        if name == pod.subdomain {
            add(&format!("{}.{name}", pod.hostname));
        }
    }
    names
}

/// A Service without a selector selects nothing.
fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, selector: Value) -> Service {
        let spec = json!({"selector": selector, "clusterIP": "None"});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_pod_is_found_by_its_services_and_by_its_name_within_its_own() {
        let labels = [("job-name".to_owned(), "train".to_owned())].into();
        let pod = Named { namespace: "ml", labels: &labels, hostname: "train-0", subdomain: "train" };
        let selector = json!({"job-name": "train"});
        let services = [
            service("train", selector.clone()),
            service("any", selector),
            service("none", json!({"job-name": "other"})),
            service("empty", json!({})),
        ];
        assert_eq!(
            of(pod, &services),
            [
                "train",
                "train.ml",
                "train.ml.svc",
                "train.ml.svc.cluster.local",
                "train-0.train",
                "train-0.train.ml",
                "train-0.train.ml.svc",
                "train-0.train.ml.svc.cluster.local",
                "any",
                "any.ml",
                "any.ml.svc",
                "any.ml.svc.cluster.local",
            ]
        );
    }
}
