//! The Jobs that this replica knows, to find the Job of a pod.

use std::sync::Arc;

use dashmap::DashMap;

use crate::cluster::wire::{JobOutline, Labels, ObservedPod};
use crate::job::job_id::JobId;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::job::selector::{Operator, Selector};
use crate::job::spec::Job;
use crate::job::uid::Uid;

/// Jobs by UID, and the few with a selector of their own (`manualSelector`).
#[derive(Debug, Default)]
pub struct JobIndex {
    jobs: DashMap<Uid, Entry>,
    /// Namespace -> Jobs there whose selector does not require the Job's own UID.
    manual: DashMap<Arc<str>, Vec<Uid>>,
}

#[derive(Debug)]
struct Entry {
    job: JobId,
    selector: Selector,
    /// Unfinished and not being deleted: may adopt pods.
    adopts: bool,
}

/// The part of a Job that the index needs.
pub struct Owner<'a> {
    job: JobId,
    selector: &'a Selector,
    /// Unfinished and not being deleted: may adopt pods.
    adopts: bool,
}

impl<'a> From<&'a Job> for Owner<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            job: job.id(),
            selector: &job.spec.selector,
            adopts: !job.deleting && job.status.finished().is_none(),
        }
    }
}

impl<'a> From<&'a JobOutline> for Owner<'a> {
    fn from(job: &'a JobOutline) -> Self {
        Self { job: job.id.clone(), selector: &job.selector, adopts: job.adopts }
    }
}

impl Owner<'_> {
    /// Whether the selector does not require the Job's own UID: then pods older than the Job may match it, and its own pods
    /// may lack the label that a census goes by.
    pub fn chooses_pods(&self) -> bool {
        let asks_for = |values: &[Box<str>]| values.iter().any(|value| *self.job.uid() == (**value).into());
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
            self.jobs.get_mut(owner.job.uid()).filter(|known| known.selector == *owner.selector)
        {
            known.adopts = owner.adopts;
            return;
        }
        let chooses_pods = owner.chooses_pods();
        let Owner { job, selector, adopts } = owner;
        let entry = Entry { job: job.clone(), selector: selector.clone(), adopts };
        if self.jobs.insert(job.uid().clone(), entry).is_none() && chooses_pods {
            self.manual.entry(job.namespace().clone()).or_default().push(job.uid().clone());
        }
    }

    /// Removes a Job that is gone.
    pub fn remove(&self, uid: &Uid) {
        if let Some((_, Entry { job, .. })) = self.jobs.remove(uid) {
            self.manual.remove_if_mut(job.namespace(), |_, uids| {
                uids.retain(|other| other != uid);
                uids.is_empty()
            });
        }
    }

    /// Whether the Job is known.
    pub fn contains(&self, job: &JobId) -> bool {
        self.jobs.get(job.uid()).is_some_and(|known| known.job == *job)
    }

    /// The Job that would adopt this pod, which has no controller.
    pub fn adopter(&self, pod: &ObservedPod) -> Option<JobId> {
        let adopter = |uid: &Uid| {
            let known = self.jobs.get(uid)?;
            let adopts = known.adopts
                && *known.job.namespace() == pod.namespace
                && selects(&known.selector, &pod.labels);
            adopts.then(|| known.job.clone())
        };
        let by_label = pod.labels.get(CONTROLLER_UID_LABEL).and_then(|uid| adopter(&uid.into()));
        let by_selector = || self.manual.get(&pod.namespace)?.iter().find_map(adopter);
        by_label.or_else(by_selector)
    }
}

fn selects(selector: &Selector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key))
}
