//! The Jobs that this replica knows, to find the Job of a pod.

use dashmap::DashMap;

use crate::cluster::wire::{JobOutline, Labels, ObservedPod};
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::selector::{Operator, Selector};
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// Jobs by UID, and the few with a selector of their own (`manualSelector`).
#[derive(Debug, Default)]
pub struct JobIndex {
    jobs: DashMap<Uid, Entry>,
    /// Namespace -> Jobs there whose selector does not require the Job's own UID.
    manual: DashMap<Box<str>, Vec<Uid>>,
}

#[derive(Debug)]
struct Entry {
    namespace: Box<str>,
    selector: Selector,
    /// Unfinished and not being deleted: may adopt pods.
    adopts: bool,
}

/// The part of a Job that the index needs.
pub struct Owner<'a> {
    uid: &'a Uid,
    namespace: &'a str,
    selector: &'a Selector,
    /// Unfinished and not being deleted: may adopt pods.
    adopts: bool,
}

impl<'a> From<&'a Job> for Owner<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            uid: &job.uid,
            namespace: &job.namespace,
            selector: &job.spec.selector,
            adopts: !job.deleting && job.status.finished().is_none(),
        }
    }
}

impl<'a> From<&'a JobOutline> for Owner<'a> {
    fn from(job: &'a JobOutline) -> Self {
        Self { uid: &job.uid, namespace: &job.namespace, selector: &job.selector, adopts: job.adopts }
    }
}

impl Owner<'_> {
    /// Whether the selector does not require the Job's own UID: then pods older than the Job may match it, and its own pods
    /// may lack the label that a census goes by.
    pub fn chooses_pods(&self) -> bool {
        let asks_for = |values: &[Box<str>]| values.iter().any(|value| *self.uid == (**value).into());
        !self.selector.requirements.iter().any(|requirement| {
            *requirement.key == *CONTROLLER_UID_LABEL
                && matches!(&requirement.operator, Operator::In(values) if asks_for(values))
        })
    }
}

impl JobIndex {
    /// Takes in a Job.
    pub fn insert<'a>(&self, owner: impl Into<Owner<'a>>) {
        let owner = owner.into();
        if let Some(mut known) =
            self.jobs.get_mut(owner.uid).filter(|known| known.selector == *owner.selector)
        {
            known.adopts = owner.adopts;
            return;
        }
        let Owner { uid, namespace, selector, adopts } = owner;
        let entry = Entry { namespace: namespace.into(), selector: selector.clone(), adopts };
        if self.jobs.insert(uid.clone(), entry).is_none() && owner.chooses_pods() {
            self.manual.entry(namespace.into()).or_default().push(uid.clone());
        }
    }

    /// Removes a Job that is gone.
    pub fn remove(&self, uid: &Uid) {
        if let Some((_, Entry { namespace, .. })) = self.jobs.remove(uid) {
            self.manual.remove_if_mut(&namespace, |_, uids| {
                uids.retain(|other| other != uid);
                uids.is_empty()
            });
        }
    }

    /// Whether the Job is known.
    pub fn contains(&self, uid: &Uid) -> bool {
        self.jobs.contains_key(uid)
    }

    /// The Job that would adopt this pod, which has no controller.
    pub fn adopter(&self, pod: &ObservedPod) -> Option<Uid> {
        let adopts = |uid: &Uid| {
            self.jobs.get(uid).is_some_and(|job| {
                job.adopts && *job.namespace == *pod.namespace && selects(&job.selector, &pod.labels)
            })
        };
        let by_label = pod.labels.get(CONTROLLER_UID_LABEL).map(Uid::from).filter(adopts);
        let by_selector =
            || self.manual.get(&*pod.namespace).and_then(|uids| uids.iter().find(|uid| adopts(uid)).cloned());
        by_label.or_else(by_selector)
    }
}

fn selects(selector: &Selector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key))
}
