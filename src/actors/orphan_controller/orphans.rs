//! Pods without a controller that may be adopted by a Job which is not known yet.

use std::collections::HashMap;
use std::sync::Arc;

use crate::actors::job_index::JobIndex;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::JobId;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::uid::{Uid, UidMap, UidSet};

/// The pods, by namespace.
#[derive(Debug, Default)]
pub(super) struct Orphans(HashMap<Arc<str>, OfNamespace>);

#[derive(Debug, Default)]
struct OfNamespace {
    pods: UidMap<Box<ObservedPod>>,
    /// By the UID of the Job that their label names. A Job that requires its own UID is compared with these only, however many
    /// pods the namespace has.
    naming: UidMap<UidSet>,
}

impl Orphans {
    /// Records a pod, as it is now.
    pub(super) fn insert(&mut self, pod: Box<ObservedPod>) {
        self.remove(&pod.namespace, &pod.pod.uid);
        let of = self.0.entry(pod.namespace.clone()).or_default();
        let uid = pod.pod.uid.clone();
        if let Some(job) = named_by(&pod) {
            of.naming.entry(job).or_default().insert(uid.clone());
        }
        of.pods.insert(uid, pod);
    }

    /// Drops a pod.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, uid: &Uid) {
        let Some(of) = self.0.get_mut(namespace) else { return };
        let Some(known) = of.pods.remove(uid) else { return };
        if let Some(job) = named_by(&known)
            && let Some(pods) = of.naming.get_mut(&job)
        {
            pods.remove(uid);
            if pods.is_empty() {
                of.naming.remove(&job);
            }
        }
        if of.pods.is_empty() {
            self.0.remove(namespace);
        }
    }

    /// Drops all pods.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The pods that a Job of this index adopts.
    pub(super) fn adopted_by(&self, job: &JobId, index: &JobIndex) -> Vec<ObservedPod> {
        index.adopted_by(job, self.compared_with(job, index)).cloned().collect()
    }

    /// The pods that a Job is compared with.
    fn compared_with<'a>(
        &'a self,
        job: &JobId,
        index: &JobIndex,
    ) -> Box<dyn Iterator<Item = &'a ObservedPod> + 'a> {
        let Some(of) = self.0.get(job.namespace()) else { return Box::new(std::iter::empty()) };
        if index.chooses_pods(job) {
            return Box::new(of.pods.values().map(|pod| &**pod));
        }
        let naming = of.naming.get(job.uid()).into_iter().flatten();
        Box::new(naming.filter_map(|uid| of.pods.get(uid)).map(|pod| &**pod))
    }
}

/// The UID of the Job that the label of a pod names.
fn named_by(pod: &ObservedPod) -> Option<Uid> {
    pod.labels.get(CONTROLLER_UID_LABEL).map(Uid::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::actors::test_api::{job, observed_job, observed_pod, pod};

    fn orphan(name: &str, labels: &Value) -> Box<ObservedPod> {
        let mut orphan = pod(name, "none");
        orphan["metadata"]["ownerReferences"] = json!([]);
        orphan["metadata"]["labels"] = labels.clone();
        observed_pod(&orphan)
    }

    fn index() -> JobIndex {
        let index = JobIndex::default();
        let mut choosing = job("choosing", json!({}));
        choosing["spec"]["selector"] = json!({"matchLabels": {"own": "m"}});
        for job in [job("j", json!({})), choosing] {
            index.insert(observed_job(&job).job.as_ref().unwrap());
        }
        index
    }

    #[test]
    fn a_job_is_compared_with_the_pods_that_name_it_unless_it_has_a_selector_of_its_own() {
        let (mut orphans, index) = (Orphans::default(), index());
        for number in 0..100 {
            let named = format!("x{}", number % 7);
            orphans.insert(orphan(&format!("p{number}"), &json!({CONTROLLER_UID_LABEL: named, "own": "n"})));
        }
        orphans.insert(orphan("named", &json!({CONTROLLER_UID_LABEL: "j"})));
        orphans.insert(orphan("chosen", &json!({"own": "m"})));
        for (job, compared, adopted) in [("j", 1, "named"), ("choosing", 102, "chosen"), ("other", 0, "")] {
            assert_eq!(orphans.compared_with(&job.into(), &index).count(), compared, "{job}");
            let found = orphans.adopted_by(&job.into(), &index);
            let found: Vec<&str> = found.iter().map(|pod| &*pod.pod.name).collect();
            assert_eq!(found.join(","), adopted, "{job}");
        }
    }

    #[test]
    fn a_pod_is_known_as_it_was_last_seen() {
        let (mut orphans, index) = (Orphans::default(), index());
        orphans.insert(orphan("p", &json!({CONTROLLER_UID_LABEL: "j"})));
        orphans.insert(orphan("p", &json!({CONTROLLER_UID_LABEL: "x"})));
        assert!(orphans.adopted_by(&"j".into(), &index).is_empty());
        orphans.insert(orphan("p", &json!({CONTROLLER_UID_LABEL: "j"})));
        assert_eq!(orphans.adopted_by(&"j".into(), &index).len(), 1);
        orphans.remove(&"n".into(), &"p".into());
        assert!(orphans.0.is_empty());
    }
}
