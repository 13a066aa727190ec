//! The Jobs that this replica knows, to find the Job of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::DashMap;

use crate::cluster::wire::{Labels, ObservedPod};
use crate::job::job_id::JobId;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::selector::{Operator, Requirement, Selector};
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// [Cost](Selector::cost) of the selectors that are tried for one pod. If a namespace has more Jobs with
/// selectors of their own, they share this cost. Jobs that are left out adopt the pods in their own list,
/// but not pods that appear later.
const TRIED: usize = 2 << 10;

/// Jobs by UID, and the few with a selector of their own (`manualSelector`).
#[derive(Debug, Default)]
pub struct JobIndex {
    jobs: DashMap<Uid, Entry>,
    /// Namespace -> Jobs there that may adopt pods, and whose selector does not require the Job's own UID.
    choosing: DashMap<Arc<str>, BTreeMap<JobId, Arc<Selector>>>,
}

#[derive(Debug)]
struct Entry {
    job: JobId,
    /// Of a Job that may adopt pods with its own UID among their labels.
    adopts: Option<Adopts>,
}

/// Which of the pods with its own UID among their labels a Job may adopt.
#[derive(Debug, PartialEq)]
enum Adopts {
    All,
    Selected(Arc<Selector>),
}

/// The part of a Job that the index needs.
pub struct Owner<'a> {
    job: JobId,
    selector: &'a Arc<Selector>,
    /// Unfinished and not being deleted: may adopt pods.
    adopts: bool,
}

impl<'a> From<&'a Job> for Owner<'a> {
    fn from(job: &'a Job) -> Self {
        Self::new(job.id(), &job.spec.selector, !job.deleting && job.status.finished().is_none())
    }
}

impl<'a> Owner<'a> {
    /// A Job with this selector. `adopts`: it is unfinished and not being deleted, so it may adopt pods.
    pub fn new(job: JobId, selector: &'a Arc<Selector>, adopts: bool) -> Self {
        Self { job, selector, adopts }
    }

    /// Whether the selector does not require the Job's own UID. Then pods older than the Job may match it,
    /// and its own pods lack the label that lists and watches of Jobs' pods select by.
    pub fn chooses_pods(&self) -> bool {
        !self.selector.requirements.iter().any(|requirement| self.is_own_uid(requirement))
    }

    fn is_own_uid(&self, requirement: &Requirement) -> bool {
        let asks_for = |values: &[Box<str>]| values.iter().any(|value| *self.job.uid() == (**value).into());
        *requirement.key == *CONTROLLER_UID_LABEL
            && matches!(&requirement.operator, Operator::In(values) if asks_for(values))
    }

    fn adopts(&self) -> Option<Adopts> {
        let asks_for_uid_only = matches!(&*self.selector.requirements, [only] if self.is_own_uid(only));
        self.adopts.then(|| match asks_for_uid_only {
            true => Adopts::All,
            false => Adopts::Selected(self.selector.clone()),
        })
    }
}

impl JobIndex {
    /// Inserts a Job.
    pub fn insert<'a>(&self, owner: impl Into<Owner<'a>>) {
        let owner = owner.into();
        let (job, chooses_pods) = (owner.job.clone(), owner.chooses_pods());
        if chooses_pods && owner.adopts {
            let mut choosing = self.choosing.entry(job.namespace().clone()).or_default();
            if choosing.get(&job) != Some(owner.selector) {
                choosing.insert(job.clone(), owner.selector.clone());
            }
        } else if chooses_pods {
            self.chooses_no_more(&job);
        }
        let adopts = if chooses_pods { None } else { owner.adopts() };
        self.jobs.insert(job.uid().clone(), Entry { job, adopts });
    }

    /// Removes a Job that is gone.
    pub fn remove(&self, uid: &Uid) {
        if let Some((_, Entry { job, .. })) = self.jobs.remove(uid) {
            self.chooses_no_more(&job);
        }
    }

    /// Forgets all Jobs.
    pub fn clear(&self) {
        self.jobs.clear();
        self.choosing.clear();
    }

    fn chooses_no_more(&self, job: &JobId) {
        self.choosing.remove_if_mut(job.namespace(), |_, choosing| {
            choosing.remove(job);
            choosing.is_empty()
        });
    }

    /// Whether the Job is known.
    pub fn contains(&self, job: &JobId) -> bool {
        self.jobs.get(job.uid()).is_some_and(|known| known.job == *job)
    }

    /// Whether a Job of this UID is known.
    pub fn contains_uid(&self, uid: &Uid) -> bool {
        self.jobs.contains_key(uid)
    }

    /// The Job that would adopt this pod, which has no controller.
    pub fn adopter(&self, pod: &ObservedPod) -> Option<JobId> {
        self.adopter_by_label(pod).or_else(|| self.adopter_by_selector(pod))
    }

    fn adopter_by_label(&self, pod: &ObservedPod) -> Option<JobId> {
        let known = self.jobs.get(&pod.labels.get(CONTROLLER_UID_LABEL)?.into())?;
        let adopts = match known.adopts.as_ref()? {
            Adopts::All => true,
            Adopts::Selected(selector) => selects(selector, &pod.labels),
        };
        (adopts && *known.job.namespace() == pod.namespace).then(|| known.job.clone())
    }

    fn adopter_by_selector(&self, pod: &ObservedPod) -> Option<JobId> {
        let choosing = self.choosing.get(&pod.namespace)?;
        let mut tried = 0;
        let within_bounds = |(_, selector): &(&JobId, &Arc<Selector>)| {
            tried += selector.cost();
            tried <= TRIED
        };
        let mut jobs = choosing.iter().take_while(within_bounds);
        jobs.find(|(_, selector)| selects(selector, &pod.labels)).map(|(job, _)| job.clone())
    }
}

fn selects(selector: &Selector, labels: &Labels) -> bool {
    labels.match_selector(selector, false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::actors::test_api::{job, observed_job, observed_pod, pod};

    fn insert(index: &JobIndex, name: &str, selector: &Value) {
        let mut job = job(name, json!({}));
        job["spec"]["selector"] = selector.clone();
        index.insert(observed_job(&job).job.as_ref().unwrap());
    }

    fn orphan(labels: &Value) -> Box<ObservedPod> {
        let mut orphan = pod("p", "none");
        orphan["metadata"]["ownerReferences"] = json!([]);
        orphan["metadata"]["labels"] = labels.clone();
        observed_pod(&orphan)
    }

    #[test]
    fn a_pod_is_adopted_by_the_job_in_its_labels_or_by_one_whose_selector_selects_it() {
        let index = JobIndex::default();
        let own = |uid: &str| json!({"matchLabels": {CONTROLLER_UID_LABEL: uid}});
        insert(&index, "plain", &own("plain"));
        insert(&index, "more", &json!({"matchLabels": {CONTROLLER_UID_LABEL: "more", "a": "b"}}));
        insert(&index, "choosing", &json!({"matchLabels": {"own": "m"}}));
        for (labels, adopter) in [
            (json!({CONTROLLER_UID_LABEL: "plain"}), Some("plain")),
            (json!({CONTROLLER_UID_LABEL: "more"}), None),
            (json!({CONTROLLER_UID_LABEL: "more", "a": "b"}), Some("more")),
            (json!({"own": "m"}), Some("choosing")),
            (json!({CONTROLLER_UID_LABEL: "choosing"}), None),
            (json!({"own": "other"}), None),
        ] {
            assert_eq!(index.adopter(&orphan(&labels)), adopter.map(JobId::from), "{labels}");
        }
        let mut foreign = orphan(&json!({CONTROLLER_UID_LABEL: "plain", "own": "m"}));
        foreign.namespace = "evil".into();
        assert_eq!(index.adopter(&foreign), None);
        for uid in ["plain", "more", "choosing"] {
            index.remove(&uid.into());
        }
        assert!(index.jobs.is_empty() && index.choosing.is_empty());
    }

    #[test]
    fn the_selectors_that_are_tried_for_a_pod_have_a_bound() {
        let index = JobIndex::default();
        let long = (0..20).map(|n| json!({"key": format!("key-{n}"), "operator": "DoesNotExist"}));
        let long: Vec<Value> = long.collect();
        for n in 0..50 {
            insert(
                &index,
                &format!("a-{n:02}"),
                &json!({"matchLabels": {"own": "x"}, "matchExpressions": long}),
            );
        }
        insert(&index, "z", &json!({"matchLabels": {"own": "m"}}));
        let pod = orphan(&json!({"own": "m"}));
        assert_eq!(index.adopter(&pod), None);
        for n in 0..49 {
            index.remove(&(&*format!("a-{n:02}")).into());
        }
        assert_eq!(index.adopter(&pod), Some("z".into()));
    }
}
