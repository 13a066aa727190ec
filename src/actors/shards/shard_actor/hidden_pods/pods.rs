//! The set of pods that exist, and that the watch of their shard does not show in a readable form.

use tokio_util::task::AbortOnDropHandle;

use crate::cluster::wire::Unreadable;
use crate::job::job_id::{JobId, JobMap};
use crate::job::tidying::give_back;
use crate::job::uid::{Uid, UidMap, UidSet};

/// Pods that exist and that the shard's watch does not show.
#[derive(Debug, Default)]
pub(in super::super) struct HiddenPods {
    pub(super) pods: UidMap<HiddenPod>,
    /// How many pods of a Job it has never known; only Jobs that have some.
    unknown: JobMap<usize>,
    /// Pods that cannot be read, each reported once.
    pub(super) reported: UidSet,
    /// Pods with the label of this shard that cannot be read and name no Job: no Job waits for them. They are read again.
    pub(super) nameless: UidMap<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
pub(super) struct HiddenPod {
    pub(super) job: JobId,
    /// The version at which it was found. Older readings say nothing new of its Job.
    pub(super) version: u64,
    /// The Job has known it before, or is gone.
    pub(super) known: bool,
    /// The metadata of an unreadable pod.
    pub(super) unreadable: Option<Unreadable>,
    /// Reads it again and again, until the watch shows it.
    pub(super) _task: AbortOnDropHandle<()>,
}

impl HiddenPods {
    pub(in super::super) fn contains(&self, pod: &Uid) -> bool {
        self.pods.contains_key(pod)
    }

    /// The Job of a pod that is not seen.
    pub(super) fn job_of(&self, pod: &Uid) -> Option<&JobId> {
        self.pods.get(pod).map(|hidden| &hidden.job)
    }

    /// Whether a pod is held for this Job, or for another one as a later reading has shown it.
    pub(in super::super) fn holds(&self, pod: &Uid, job: &JobId, version: u64) -> bool {
        self.pods.get(pod).is_some_and(|hidden| hidden.job == *job || hidden.version >= version)
    }

    /// Whether a pod is known as one that cannot be read; one that is being labelled may turn out to be such a one.
    pub(super) fn is_unreadable(&self, pod: &Uid) -> bool {
        self.pods.get(pod).is_some_and(|hidden| hidden.unreadable.is_some())
    }

    /// The number of pods that are not seen.
    #[cfg(test)]
    pub(in super::super) fn held(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn insert(&mut self, pod: Uid, hidden: HiddenPod) {
        let (job, known) = (hidden.job.clone(), hidden.known);
        self.remove(&pod);
        self.pods.insert(pod, hidden);
        if !known {
            *self.unknown.entry(job).or_default() += 1;
        }
    }

    /// The pod is shown, or gone. Returns its Job, and whether the Job has known it before.
    pub(super) fn remove(&mut self, pod: &Uid) -> Option<(JobId, bool)> {
        self.reported.remove(pod);
        let HiddenPod { job, known, .. } = self.pods.remove(pod)?;
        give_back(&mut self.pods);
        if !known {
            self.one_less_unknown(&job);
        }
        Some((job, known))
    }

    fn one_less_unknown(&mut self, job: &JobId) {
        if let Some(unknown) = self.unknown.get_mut(job) {
            *unknown -= 1;
            if *unknown == 0 {
                self.unknown.remove(job);
            }
        }
    }

    /// The Job that a pod is held for knows it now. Returns whether that is new.
    pub(super) fn is_known_now(&mut self, pod: &Uid) -> bool {
        let Some(hidden) = self.pods.get_mut(pod) else { return false };
        let (is_new, job) = (!std::mem::replace(&mut hidden.known, true), hidden.job.clone());
        hidden.unreadable = None;
        if is_new {
            self.one_less_unknown(&job);
        }
        is_new
    }

    /// Whether a Job has pods that it has never known.
    pub(in super::super) fn hold_back(&self, job: &JobId) -> bool {
        self.unknown.contains_key(job)
    }

    /// The Job is gone, and must know no pod before it lets its others go. Returns whether it was held back.
    pub(in super::super) fn job_vanished(&mut self, job: &JobId) -> bool {
        let held = self.unknown.remove(job).is_some();
        if held {
            self.pods.values_mut().filter(|hidden| hidden.job == *job).for_each(|hidden| hidden.known = true);
        }
        held
    }

    /// The Job is rebuilt, and knows none of its pods.
    pub(super) fn job_rebuilt(&mut self, job: &JobId) {
        let of_job = self.pods.values_mut().filter(|hidden| hidden.job == *job && hidden.known);
        let forgotten = of_job.map(|hidden| hidden.known = false).count();
        if forgotten > 0 {
            *self.unknown.entry(job.clone()).or_default() += forgotten;
        }
    }

    /// The pods of a Job that cannot be read.
    pub(super) fn unreadable_of(&self, job: &JobId) -> Vec<Unreadable> {
        let of_job = self.pods.values().filter(|hidden| hidden.job == *job);
        of_job.filter_map(|hidden| hidden.unreadable.clone()).collect()
    }

    /// The pods that their Jobs know, as (pod, Job).
    pub(in super::super) fn known(&self) -> impl Iterator<Item = (&Uid, &JobId)> {
        self.pods.iter().filter(|(_, hidden)| hidden.known).map(|(pod, hidden)| (pod, &hidden.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_is_held_back_by_pods_that_it_has_never_known() {
        let [a, b] = ["job-a", "job-b"].map(JobId::from);
        let mut hidden = HiddenPods::default();
        let hidden_of = |job: &JobId, known| {
            let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
            HiddenPod { job: job.clone(), version: 1, known, unreadable: None, _task: task }
        };
        for (pod, job, known) in [("1", &a, false), ("2", &a, false), ("3", &a, true), ("4", &b, true)] {
            hidden.insert(pod.into(), hidden_of(job, known));
        }
        assert!(hidden.hold_back(&a) && !hidden.hold_back(&b));
        assert_eq!(hidden.known().count(), 2);
        assert_eq!(hidden.remove(&"1".into()), Some((a.clone(), false)));
        assert_eq!(hidden.remove(&"1".into()), None);
        assert_eq!(hidden.remove(&"3".into()), Some((a.clone(), true)));
        assert!(hidden.hold_back(&a));
        assert!(!hidden.job_vanished(&b));
        // Found twice, and once known meanwhile.
        hidden.insert("2".into(), hidden_of(&a, true));
        assert!(!hidden.hold_back(&a));
        assert_eq!(hidden.remove(&"2".into()), Some((a.clone(), true)));
        // Rebuilt, it knows none.
        hidden.job_rebuilt(&b);
        assert!(hidden.hold_back(&b) && !hidden.hold_back(&a));
        hidden.job_rebuilt(&b);
        assert_eq!(hidden.remove(&"4".into()), Some((b.clone(), false)));
        assert!(!hidden.hold_back(&b));
        // A Job waits for no pod once it is gone.
        hidden.insert("5".into(), hidden_of(&a, false));
        assert!(hidden.job_vanished(&a) && !hidden.hold_back(&a));
        assert_eq!(hidden.remove(&"5".into()), Some((a, true)));
    }
}
