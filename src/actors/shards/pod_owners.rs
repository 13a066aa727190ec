//! Which Job holds which pods in one shard, found from either side without a walk over all of them.

use crate::job::job_id::{JobId, JobMap};
use crate::job::tidying::give_back;
use crate::job::uid::{Uid, UidMap, UidSet};

/// The pods that the Jobs of a shard still hold.
#[derive(Debug, Default)]
pub struct PodOwnerIndex {
    /// Pod -> Job.
    jobs: UidMap<JobId>,
    /// Job -> its pods; only Jobs that have some.
    pods: JobMap<UidSet>,
}

impl PodOwnerIndex {
    /// Number of pods.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// The Job that holds a pod.
    pub fn job_of(&self, pod: &Uid) -> Option<&JobId> {
        self.jobs.get(pod)
    }

    /// Whether a Job holds pods.
    pub fn has_pods(&self, job: &JobId) -> bool {
        self.pods.contains_key(job)
    }

    /// The pods of a Job.
    pub fn pods_of(&self, job: &JobId) -> UidSet {
        self.pods.get(job).cloned().unwrap_or_default()
    }

    /// Assigns a pod to a Job, whichever Job held it before.
    pub fn insert(&mut self, pod: Uid, job: &JobId) {
        if self.jobs.get(&pod) == Some(job) {
            return;
        }
        self.remove(&pod);
        self.pods.entry(job.clone()).or_default().insert(pod.clone());
        self.jobs.insert(pod, job.clone());
    }

    /// Removes a pod. Returns the Job that held it.
    pub fn remove(&mut self, pod: &Uid) -> Option<JobId> {
        let job = self.jobs.remove(pod)?;
        give_back(&mut self.jobs);
        if let Some(pods) = self.pods.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(&job);
            }
        }
        Some(job)
    }

    /// Removes all pods of a Job, and returns them.
    pub fn remove_job(&mut self, job: &JobId) -> UidSet {
        let pods = self.pods.remove(job).unwrap_or_default();
        pods.iter().for_each(|pod| _ = self.jobs.remove(pod));
        give_back(&mut self.jobs);
        pods
    }

    /// Removes the pods that a complete list does not show as their Job's.
    pub fn retain_listed(&mut self, listed: &JobMap<UidSet>) {
        self.jobs.retain(|pod, job| listed.get(job).is_some_and(|pods| pods.contains(pod)));
        let jobs = &self.jobs;
        self.pods.retain(|job, pods| {
            pods.retain(|pod| jobs.get(pod) == Some(job));
            !pods.is_empty()
        });
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.jobs.clear();
        self.pods.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(uids: [&str; N]) -> UidSet {
        uids.map(Uid::from).into_iter().collect()
    }

    #[test]
    fn both_directions_agree() {
        let [a, b] = ["job-a", "job-b"].map(JobId::from);
        let mut pod_owners = PodOwnerIndex::default();
        for (pod, job) in [("1", &a), ("2", &a), ("3", &b), ("2", &b), ("1", &a)] {
            pod_owners.insert(pod.into(), job);
        }
        assert_eq!((pod_owners.pods_of(&a), pod_owners.pods_of(&b)), (set(["1"]), set(["2", "3"])));
        assert_eq!(pod_owners.job_of(&"2".into()), Some(&b));

        assert_eq!(pod_owners.remove(&"3".into()), Some(b.clone()));
        assert_eq!(pod_owners.remove(&"3".into()), None);
        pod_owners.retain_listed(&JobMap::from_iter([(a.clone(), set(["2"])), (b.clone(), set(["2", "3"]))]));
        assert_eq!((pod_owners.pods_of(&a), pod_owners.pods_of(&b)), (set([]), set(["2"])));

        assert_eq!(pod_owners.remove_job(&b), set(["2"]));
        assert_eq!((pod_owners.len(), pod_owners.job_of(&"2".into())), (0, None));
    }
}
