//! Pods that have ended and need no more counting, for Jobs that want them deleted: a name and a time for
//! each. Other Jobs keep nothing here.

use std::collections::BTreeSet;

use super::ledger::Ledger;
use crate::job::pod::{Phase, Place, Pod};
use crate::job::second::Second;
use crate::job::spec::Job;
use crate::job::uid::{Uid, UidMap, UidSet};

/// A counted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedPod {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.name`.
    pub name: Box<str>,
    /// When it ended.
    pub finished: Second,
    /// It has failed.
    pub failed: bool,
    version: u64,
    index: Option<u32>,
    pub(super) place: Option<Place>,
    /// Its deletion has been sent and not been answered.
    leaving: bool,
}

/// Counted pods.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedPods {
    keeps_failed: bool,
    keeps_succeeded: bool,
    pods: UidMap<CountedPod>,
    leaving: usize,
    /// Failed pods that are not leaving, oldest first.
    failed: BTreeSet<(Second, Uid)>,
    /// Succeeded pods that are not leaving, oldest first.
    succeeded: BTreeSet<(Second, Uid)>,
}

impl CountedPods {
    /// An empty set for a Job.
    pub(super) fn of(job: &Job) -> Self {
        let mut none = Self::default();
        none.follow(job);
        none
    }

    /// Follows the Job's options; drops the pods that it no longer wants deleted.
    pub(super) fn follow(&mut self, job: &Job) {
        let [failed, succeeded] = [true, false].map(|failed| job.prunes_counted(failed));
        if (failed, succeeded) == (self.keeps_failed, self.keeps_succeeded) {
            return;
        }
        (self.keeps_failed, self.keeps_succeeded) = (failed, succeeded);
        let unwanted: Vec<Uid> =
            self.pods.values().filter(|pod| !self.wants(pod.failed)).map(|pod| pod.uid.clone()).collect();
        unwanted.iter().for_each(|uid| self.forget(uid));
    }

    fn wants(&self, failed: bool) -> bool {
        if failed { self.keeps_failed } else { self.keeps_succeeded }
    }

    /// Takes in a pod that has ended and lost its finalizer. A pod that is being deleted is not kept.
    pub(super) fn take_in(&mut self, pod: &Pod) {
        let failed = pod.phase == Phase::Failed;
        let leaving = self.pods.get(&pod.uid).is_some_and(|known| known.leaving);
        self.forget(&pod.uid);
        if pod.deleting || !self.wants(failed) {
            return;
        }
        let counted = CountedPod {
            uid: pod.uid.clone(),
            name: pod.name.clone(),
            version: pod.version,
            finished: pod.finished,
            index: pod.index,
            place: pod.place,
            failed,
            leaving,
        };
        self.link(&counted);
        self.pods.insert(pod.uid.clone(), counted);
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// All of them.
    pub(super) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods.keys()
    }

    /// Whether the set has a pod.
    pub(super) fn holds(&self, uid: &Uid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Whether the set has a pod as it was after this reading.
    pub(super) fn is_newer_than(&self, pod: &Pod) -> bool {
        self.pods.get(&pod.uid).is_some_and(|known| known.version > pod.version)
    }

    /// Drops a pod.
    pub(super) fn forget(&mut self, uid: &Uid) {
        if let Some(pod) = self.pods.remove(uid) {
            self.unlink(&pod);
        }
        if self.pods.is_empty() {
            self.pods.shrink_to_fit();
        }
    }

    /// Drops the pods that a complete list of `version` did not name.
    pub(super) fn retain_listed(&mut self, listed: &UidSet, version: u64) {
        let missing: Vec<Uid> = self
            .pods
            .values()
            .filter(|pod| pod.version <= version && !listed.contains(&pod.uid))
            .map(|pod| pod.uid.clone())
            .collect();
        missing.iter().for_each(|uid| self.forget(uid));
    }

    /// Marks a pod's deletion as sent, or as answered.
    pub(super) fn set_leaving(&mut self, uid: &Uid, leaving: bool) {
        if let Some(mut pod) = self.pods.remove(uid) {
            self.unlink(&pod);
            pod.leaving = leaving;
            self.link(&pod);
            self.pods.insert(uid.clone(), pod);
        }
    }

    fn link(&mut self, pod: &CountedPod) {
        if pod.leaving {
            self.leaving += 1;
        } else {
            self.by_end(pod.failed).insert((pod.finished, pod.uid.clone()));
        }
    }

    fn unlink(&mut self, pod: &CountedPod) {
        self.leaving -= usize::from(pod.leaving);
        self.by_end(pod.failed).remove(&(pod.finished, pod.uid.clone()));
    }

    fn by_end(&mut self, failed: bool) -> &mut BTreeSet<(Second, Uid)> {
        if failed { &mut self.failed } else { &mut self.succeeded }
    }

    /// Whether the pod's deletion has been sent and not been answered.
    pub(super) fn is_leaving(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.leaving)
    }

    /// Number of pods whose deletion has been sent and not been answered.
    pub(super) fn leaving(&self) -> usize {
        self.leaving
    }

    /// All failed pods but the newest `limit`, oldest first, without those that the status has yet to count.
    pub(super) fn surplus_failed<'a>(
        &'a self,
        limit: usize,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a CountedPod> {
        let surplus = self.failed.len().saturating_sub(limit);
        self.counted(self.failed.iter().take(surplus), ledger)
    }

    /// Succeeded pods at an index that the status counts, oldest first.
    pub(super) fn succeeded<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = &'a CountedPod> {
        let is_complete = |index: u32| ledger.completed_indexes.contains(index);
        let counted = self.counted(self.succeeded.iter(), ledger);
        counted.filter(move |pod| pod.index.is_some_and(is_complete))
    }

    /// All pods but the newest `limit`, oldest first, without those that the status lists as uncounted.
    pub(super) fn surplus<'a>(
        &'a self,
        limit: usize,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a CountedPod> {
        let surplus = (self.failed.len() + self.succeeded.len()).saturating_sub(limit);
        let (mut failed, mut succeeded) = (self.failed.iter().peekable(), self.succeeded.iter().peekable());
        let oldest = std::iter::from_fn(move || match (failed.peek(), succeeded.peek()) {
            (Some(one), Some(other)) if one > other => succeeded.next(),
            (Some(_), _) => failed.next(),
            (None, _) => succeeded.next(),
        });
        self.counted(oldest.take(surplus), ledger)
    }

    /// The pods among these that the status does not list as uncounted.
    fn counted<'a>(
        &'a self,
        pods: impl Iterator<Item = &'a (Second, Uid)>,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = &'a CountedPod> {
        pods.map(|(_, uid)| uid).filter(|uid| !ledger.records(uid)).filter_map(|uid| self.pods.get(uid))
    }
}
