//! The time before a side came to rest: whether `status.active` was too low for the pods that were still
//! active.
//!
//! The API server gives all its objects versions in one order. So a status can be compared with the pods as
//! they were when it was written.

use std::collections::{BTreeMap, HashMap};

/// A change of a pod or a status.
#[derive(Clone, Debug)]
enum Moment {
    Pod { uid: String, job: String, active: bool },
    Status { job: String, active: u64 },
}

/// The active pods and the last status of a Job.
#[derive(Debug, Default)]
struct JobActivity {
    /// Versions in which the active pods became so.
    pods: HashMap<String, u64>,
    /// Version and `active` of its last status.
    status: Option<(u64, u64)>,
}

/// The history of a namespace since the last look.
#[derive(Debug, Default)]
pub(super) struct Activity {
    moments: Vec<(u64, Moment)>,
    jobs: BTreeMap<String, JobActivity>,
}

impl Activity {
    /// A pod was written in this version.
    pub(super) fn pod(&mut self, version: u64, uid: &str, job: &str, active: bool) {
        self.moments.push((version, Moment::Pod { uid: uid.into(), job: job.into(), active }));
    }

    /// A Job was written in this version, with this number in its status.
    pub(super) fn status(&mut self, version: u64, job: &str, active: u64) {
        self.moments.push((version, Moment::Status { job: job.into(), active }));
    }

    /// By how many pods at most the `active` of each Job was too low since the last look. Only a fall counts, and only
    /// pods that were active when the status before it was written: others may not be known yet.
    pub(super) fn look(&mut self) -> BTreeMap<String, u32> {
        self.moments.sort_by_key(|(version, _)| *version);
        let mut worst = BTreeMap::new();
        for (version, moment) in self.moments.drain(..) {
            match moment {
                Moment::Pod { uid, job, active } => {
                    let pods = &mut self.jobs.entry(job).or_default().pods;
                    if active {
                        pods.entry(uid).or_insert(version);
                    } else {
                        pods.remove(&uid);
                    }
                }
                Moment::Status { job, active } => {
                    let known = self.jobs.entry(job.clone()).or_default();
                    let before = known.status.replace((version, active));
                    let Some((since, _)) = before.filter(|(_, before)| active < *before) else { continue };
                    let there = known.pods.values().filter(|became| **became < since).count() as u64;
                    let low = u32::try_from(there.saturating_sub(active)).unwrap_or(u32::MAX);
                    let worst = worst.entry(job).or_insert(0);
                    *worst = low.max(*worst);
                }
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_is_too_low_if_it_falls_before_the_pods_are_gone() {
        for (deleted, low) in [([3, 4], 0), ([3, 6], 1), ([6, 7], 2)] {
            let mut activity = Activity::default();
            activity.pod(1, "a", "j1", true);
            activity.pod(1, "b", "j1", true);
            activity.status(2, "j1", 2);
            // Events of different kinds arrive in any order.
            activity.status(5, "j1", 0);
            activity.pod(deleted[0], "a", "j1", false);
            activity.pod(deleted[1], "b", "j1", false);
            assert_eq!(activity.look().get("j1"), Some(&low), "{deleted:?}");
        }
    }

    #[test]
    fn new_pods_may_be_missing_for_a_while() {
        let mut activity = Activity::default();
        activity.status(1, "j1", 0);
        activity.pod(2, "a", "j1", true);
        activity.status(3, "j1", 0);
        activity.status(4, "j1", 1);
        activity.pod(5, "b", "j1", true);
        activity.pod(6, "a", "j1", false);
        activity.status(7, "j1", 0);
        assert_eq!(activity.look().get("j1"), Some(&0));
        assert!(activity.look().is_empty(), "each change is looked at once");
    }
}
