//! Pods without a controller that a Job may adopt which is not known yet. A Job with a selector of its own looks for such pods
//! when it becomes known; any other selects them by its UID.

use std::collections::HashMap;
use std::sync::Arc;

use crate::actors::known_jobs::job_index::JobIndex;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::JobId;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::uid::{Uid, UidMap, UidSet};

/// The pods, and by which Job each is selected.
#[derive(Debug, Default)]
pub(super) struct Adoptable {
    pods: UidMap<Box<ObservedPod>>,
    /// By namespace and the UID that their label names.
    selected: HashMap<(Arc<str>, Uid), UidSet>,
}

impl Adoptable {
    /// Records a pod as it is now, if it names a Job.
    pub(super) fn insert(&mut self, pod: Box<ObservedPod>) {
        self.remove(&pod.pod.uid);
        if let Some(job) = selected_by(&pod) {
            self.selected.entry(job).or_default().insert(pod.pod.uid.clone());
            self.pods.insert(pod.pod.uid.clone(), pod);
        }
    }

    /// Drops a pod.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<Box<ObservedPod>> {
        let pod = self.pods.remove(uid)?;
        if let Some(job) = selected_by(&pod)
            && let Some(pods) = self.selected.get_mut(&job)
        {
            pods.remove(uid);
            if pods.is_empty() {
                self.selected.remove(&job);
            }
        }
        if self.pods.is_empty() {
            *self = Self::default();
        }
        Some(pod)
    }

    /// Takes the pods that a Job of this index adopts.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub(super) fn take_adopted_by(&mut self, job: &JobId, index: &JobIndex) -> Vec<Box<ObservedPod>> {
        let key = (job.namespace().clone(), job.uid().clone());
        let selected = self.selected.get(&key).into_iter().flatten().filter_map(|uid| self.pods.get(uid));
        let adopted = selected.filter(|pod| index.adopter(pod).as_ref() == Some(job));
        let adopted: Vec<Uid> = adopted.map(|pod| pod.pod.uid.clone()).collect();
        adopted.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// The number of pods.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }
}

/// The namespace of a pod, and the UID of the Job that its label names.
fn selected_by(pod: &ObservedPod) -> Option<(Arc<str>, Uid)> {
    Some((pod.namespace.clone(), pod.labels.get(CONTROLLER_UID_LABEL)?.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::actors::test_api::{job, observed_job, observed_pod, pod};

    fn orphan(name: &str, of: &str) -> Box<ObservedPod> {
        let mut orphan = pod(name, "none");
        orphan["metadata"]["ownerReferences"] = json!([]);
        orphan["metadata"]["labels"] = json!({CONTROLLER_UID_LABEL: of});
        observed_pod(&orphan)
    }

    fn taken(adoptable: &mut Adoptable, job: &JobId, index: &JobIndex) -> Vec<String> {
        let pods = adoptable.take_adopted_by(job, index).into_iter();
        pods.map(|pod| pod.pod.name.to_string()).collect()
    }

    #[test]
    fn a_job_takes_the_pods_that_name_it_once_and_as_they_were_last_seen() {
        let index = JobIndex::default();
        index.insert(observed_job(&job("j", json!({}))).job.as_ref().unwrap());
        let mut adoptable = Adoptable::default();
        for (pod, of) in [("a", "x"), ("b", "j"), ("c", "j"), ("a", "j"), ("b", "x"), ("d", "j")] {
            adoptable.insert(orphan(pod, of));
        }
        adoptable.remove(&"d".into());
        let id = JobId::new("n".into(), "j".into(), "j".into());
        let mut first = taken(&mut adoptable, &id, &index);
        first.sort();
        assert_eq!((&*first.join(","), adoptable.len()), ("a,c", 1));
        assert!(taken(&mut adoptable, &id, &index).is_empty());
        adoptable.remove(&"b".into());
        assert!(adoptable.selected.is_empty());
    }
}
