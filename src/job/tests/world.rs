//! A small model of a cluster: one Job, its pods, and the API server.
//!
//! The model checks every change as it happens ([`Audit`]): a pod is counted once, as a success or as the
//! failure that it was; a finalizer is removed only from a recorded pod; a status obeys the API server's
//! rules.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::fixture::{at, but, pod};
use super::status_rules;
use crate::job::pod::{Carried, NewPod, PodRef};
use crate::job::pod::{Phase, Place, Pod};
use crate::job::pod_failure_policy::judge;
use crate::job::pod_name::pod_name;
use crate::job::spec::{Job, JobSpec, PodFailureAction};
use crate::job::state::{Changed, Created};
use crate::job::status::{ConditionKind, JobStatus};
use crate::job::uid::{Uid, UidSet};

/// An event of the pod watch.
#[derive(Clone, Debug)]
pub(super) enum PodEvent {
    /// The pod was added or modified.
    Seen(Pod),
    /// The pod is gone.
    Gone(Uid),
}

/// The API server, the nodes, and the clock.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// The time.
    pub(super) now: Timestamp,
    /// The Job as stored.
    pub(super) job: Job,
    /// Its resourceVersion.
    pub(super) job_version: u64,
    /// Pods as stored.
    pub(super) pods: BTreeMap<Uid, Pod>,
    /// All events of the pod watch.
    pub(super) pod_watch: Vec<PodEvent>,
    /// All events of the Job watch.
    pub(super) job_watch: Vec<(u64, Job)>,
    /// How many owners the Job has at once.
    pub(super) owners: usize,
    /// The last time that the Job was created or resumed.
    pub(super) unsuspended_since: Timestamp,
    pub(super) version: u64,
    names: u32,
    /// Places of pods that are gone.
    gone: BTreeSet<Place>,
    audit: Audit,
}

/// The history that decides whether the counts are right.
#[derive(Clone, Debug, Default)]
struct Audit {
    /// Pods that have succeeded while they were tracked.
    succeeded: UidSet,
    /// Pods that have failed, or whose deletion was requested, while they were tracked.
    failed: UidSet,
    /// Pods that `uncountedTerminatedPods` has ever listed.
    recorded: UidSet,
    /// Pods that lost the finalizer without being released: if they were not recorded before, they never will
    /// be.
    stripped: UidSet,
    /// Creations by crashed owners that arrived late. Once earlier pods have vanished, nobody knows which
    /// attempts they used, so each late creation may exceed the wanted number by one.
    late_creations: usize,
    /// Creations whose answers were lost: an owner does not know of the pods until the watch shows them.
    lost_creations: usize,
    /// The highest parallelism that the Job ever had.
    parallelism: u32,
    /// The lowest completions that the Job ever had.
    indexes: u32,
}

impl World {
    /// A cluster in which a Job has just been created.
    pub(super) fn new(job: Job) -> Self {
        let audit = Audit {
            parallelism: job.spec.parallelism,
            indexes: job.spec.completion.indexes().unwrap_or(0),
            ..Audit::default()
        };
        Self {
            now: at(1000),
            owners: 1,
            unsuspended_since: at(1000),
            job_version: 1,
            job_watch: vec![(1, job.clone())],
            job,
            pods: BTreeMap::new(),
            pod_watch: Vec::new(),
            version: 1,
            names: 0,
            gone: BTreeSet::new(),
            audit,
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, milliseconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap();
    }

    fn job_changed(&mut self) {
        self.version += 1;
        self.job_version = self.version;
        self.job_watch.push((self.version, self.job.clone()));
    }

    /// Stores a new version of a pod, and records how it ended.
    fn pod_changed(&mut self, mut pod: Pod) -> Pod {
        self.version += 1;
        pod.version = self.version;
        if pod.tracked {
            if pod.phase == Phase::Succeeded {
                self.audit.succeeded.insert(pod.uid.clone());
            } else if pod.phase == Phase::Failed || pod.deleting {
                self.audit.failed.insert(pod.uid.clone());
            }
        }
        self.pod_watch.push(PodEvent::Seen(pod.clone()));
        self.pods.insert(pod.uid.clone(), pod.clone());
        pod
    }

    fn remove(&mut self, uid: &Uid) {
        self.version += 1;
        self.gone.extend(self.pods.remove(uid).and_then(|pod| pod.place));
        self.pod_watch.push(PodEvent::Gone(uid.clone()));
    }

    /// A node or a user changes a pod.
    pub(super) fn change_pod(&mut self, uid: &Uid, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.pods.get(uid).cloned() {
            self.pod_changed(but(pod, change));
        }
    }

    /// A pod ends now.
    pub(super) fn end_pod(&mut self, uid: &Uid, phase: Phase) {
        let now = self.now;
        self.change_pod(uid, |pod| {
            pod.phase = phase;
            pod.ready_since = None;
            pod.finished = now.into();
        });
    }

    /// A user changes the spec of the Job.
    pub(super) fn change_spec(&mut self, change: impl FnOnce(&mut JobSpec)) {
        let suspended = self.job.spec.suspend;
        change(std::sync::Arc::make_mut(&mut self.job.spec));
        let spec = &self.job.spec;
        if suspended && !spec.suspend {
            self.unsuspended_since = self.now;
        }
        self.audit.parallelism = self.audit.parallelism.max(spec.parallelism);
        self.audit.indexes = self.audit.indexes.min(spec.completion.indexes().unwrap_or(0));
        self.job_changed();
    }

    /// A user deletes the Job in the foreground.
    pub(super) fn delete_job(&mut self) {
        self.job.deleting = true;
        self.job_changed();
    }

    /// The Job adopts a running pod that somebody else has created.
    pub(super) fn add_foreign_pod(&mut self, index: Option<u32>) {
        self.names += 1;
        let (created, uid) = (self.now, format!("foreign-{}", self.names));
        self.pod_changed(but(pod(&uid), |pod| {
            pod.created = created.into();
            pod.index = index;
            pod.scheduled = true;
            pod.phase = Phase::Running;
        }));
    }

    /// POST of a pod. The name of a pod that is gone is not given again if the status says that it was used.
    pub(super) fn create(&mut self, new: &NewPod, is_answered: bool) -> Created {
        self.audit.lost_creations += usize::from(!is_answered);
        let (used, indexed) = (self.job.status.names_used, self.job.spec.completion.indexes().is_some());
        let Place { number, attempt } = new.place;
        let ordinal = if indexed { attempt } else { number };
        let comes_back = ordinal < used && self.gone.contains(&new.place);
        assert!(!comes_back, "{number}/{attempt} of {used} comes back");
        self.arrive(new)
    }

    fn arrive(&mut self, new: &NewPod) -> Created {
        let indexed = self.job.spec.completion.indexes().is_some();
        let index = indexed.then_some(new.place.number);
        let name = pod_name(&self.job.name, &self.job.uid.to_string(), index, new.place);
        if let Some(found) = self.pods.values().find(|pod| *pod.name == *name) {
            return Created::Found(Box::new(found.clone()));
        }
        self.names += 1;
        let (created, uid) = (self.now, format!("{}/{}-{}", new.place.number, new.place.attempt, self.names));
        let made = self.pod_changed(but(pod(&uid), |pod| {
            pod.name = name.into();
            pod.created = created.into();
            pod.finished = created.into();
            pod.index = index;
            pod.place = Some(new.place);
            pod.index_failures = new.index_failures.unwrap_or_default();
            let lineage = new.lineage.as_deref().cloned().unwrap_or_default();
            pod.carried = Some(Box::new(Carried::of(new.backoff, &lineage)));
        }));
        self.check_active(new.place, indexed);
        self.check_attempt(&made);
        Created::Pod(Box::new(made))
    }

    /// The creation of a pod by a crashed owner arrives.
    pub(super) fn create_late(&mut self, new: &NewPod) {
        self.audit.late_creations += 1;
        self.arrive(new);
    }

    /// Our creations never lead to more active pods than wanted, nor to two at an index.
    fn check_active(&self, made: Place, indexed: bool) {
        let active: Vec<&Pod> = self
            .pods
            .values()
            .filter(|pod| pod.place.is_some() && !pod.deleting && !pod.phase.is_final())
            .collect();
        // An owner whose view of the Job lags behind its view of the pods mistakes a success that another
        // owner has counted and released for one that does not count, and replaces it.
        let most = self.audit.parallelism as usize * self.owners + self.audit.late_creations;
        assert!(active.len() <= most, "{} active pods, {most} wanted", active.len());
        let here = active.iter().filter(|pod| pod.index == Some(made.number)).count();
        let alone = !indexed || here <= 1 + self.audit.late_creations;
        assert!(alone, "{here} active pods at index {}", made.number);
    }

    /// A new pod of a Job that restarts together comes once those of earlier attempts have ended.
    fn check_attempt(&self, made: &Pod) {
        let known = self.audit.late_creations + self.audit.lost_creations == 0 && self.owners == 1;
        let is_old =
            |pod: &&Pod| pod.place.is_some() && pod.attempt() < made.attempt() && !pod.phase.is_final();
        let old = self.pods.values().find(is_old);
        assert!(!known || old.is_none(), "{made:?} is created beside {old:?}");
    }

    /// Whether a pod, or the status, shows that the attempt of this pod is over.
    fn is_outdated(&self, pod: &Pod) -> bool {
        let shows = |other: &&Pod| {
            let failed = self.audit.failed.contains(&other.uid) || other.phase == Phase::Failed;
            other.attempt() + u32::from(failed) > pod.attempt()
        };
        self.job.options.restart_together
            && (self.job.status.restarts > pod.attempt() || self.last_seen().values().any(shows))
    }

    /// DELETE of a pod. An unscheduled pod is removed at once unless it has a finalizer; others terminate
    /// slowly.
    pub(super) fn delete(&mut self, uid: &Uid) -> Changed {
        let Some(pod) = self.pods.get(uid).cloned() else { return Changed::Gone };
        if !pod.scheduled && !pod.tracked {
            self.remove(uid);
            return Changed::Gone;
        }
        let now = self.now;
        let deleting = but(pod, |pod| {
            if !pod.deleting && !pod.phase.is_final() {
                pod.finished = now.into();
            }
            pod.deleting = true;
        });
        Changed::Pod(Box::new(self.pod_changed(deleting)))
    }

    /// A pod that is known to have ended is deleted only if it is counted and the Job wants it deleted.
    pub(super) fn check_pruning(&self, uid: &Uid) {
        let Some(pod) = self.pods.get(uid).filter(|pod| pod.phase.is_final()) else { return };
        let status = &self.job.status;
        let uncounted = status.uncounted.clone().unwrap_or_default();
        let counted = !pod.tracked && !uncounted.succeeded.contains(uid) && !uncounted.failed.contains(uid);
        assert!(counted, "deleted, not counted: {pod:?}\n{status:?}");
        if pod.phase == Phase::Succeeded {
            let index_counted = pod.index.is_some_and(|index| status.completed_indexes.contains(index));
            assert!(self.job.options.prune_succeeded && index_counted, "{pod:?}\n{status:?}");
        } else {
            let later = |other: &&Pod| {
                other.phase == Phase::Failed && (other.finished, &other.uid) > (pod.finished, &pod.uid)
            };
            let newer = self.last_seen().into_values().filter(later).count();
            let limit = self.job.options.failed_pods_limit;
            assert!(limit.is_some_and(|limit| newer >= limit as usize), "{pod:?} is one of the newest");
        }
    }

    /// Number of failed pods that were counted and that nobody has deleted.
    pub(super) fn failed_pods_left(&self) -> usize {
        let counted =
            |pod: &&Pod| self.audit.failed.contains(&pod.uid) && !self.audit.stripped.contains(&pod.uid);
        self.pods.values().filter(|pod| pod.phase == Phase::Failed && !pod.deleting).filter(counted).count()
    }

    /// A user removes the tracking finalizer of a pod, or we remove it from a pod that must not count.
    pub(super) fn strip(&mut self, uid: &Uid) {
        self.audit.stripped.insert(uid.clone());
        self.untrack(uid);
    }

    /// The node ends a pod that is being deleted.
    pub(super) fn finish_deletion(&mut self, uid: &Uid) {
        match self.pods.get(uid).cloned() {
            Some(pod) if pod.deleting && !pod.tracked => self.remove(uid),
            Some(pod) if pod.deleting && !pod.phase.is_final() => self.end_pod(uid, Phase::Failed),
            _ => {}
        }
    }

    /// Removes the tracking finalizer without a check of the counts. A user may do so, and we do so with pods
    /// that must not count.
    pub(super) fn untrack(&mut self, uid: &Uid) -> Changed {
        let Some(pod) = self.pods.get(uid).cloned() else { return Changed::Gone };
        if pod.deleting && !pod.scheduled {
            self.remove(uid);
            return Changed::Gone;
        }
        if !pod.tracked {
            return Changed::Released;
        }
        self.pod_changed(but(pod, |pod| pod.tracked = false));
        Changed::Released
    }

    /// Removes the tracking finalizer of a pod, and checks that its end is recorded.
    pub(super) fn release(&mut self, pod: &PodRef) -> Changed {
        if let Some(pod) = self.pods.get(&pod.uid).filter(|pod| pod.tracked) {
            assert!(self.may_be_released(pod), "released, not recorded: {pod:?}\n{:?}", self.job.status);
        }
        self.untrack(&pod.uid)
    }

    fn may_be_released(&self, pod: &Pod) -> bool {
        let status = &self.job.status;
        let indexed = self.job.spec.completion.indexes().is_some();
        let index_known = pod.index.is_some_and(|index| {
            status.completed_indexes.contains(index)
                || status.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index))
        });
        let no_index = indexed && pod.index.is_none_or(|index| index >= self.audit.indexes);
        let in_vain = !self.job.options.restart_keep_succeeded && self.is_outdated(pod);
        self.audit.recorded.contains(&pod.uid)
            || (pod.phase == Phase::Succeeded && in_vain)
            || status.finished().is_some()
            || (pod.phase == Phase::Succeeded && index_known)
            || no_index
            || (pod.phase == Phase::Failed && self.ignored(pod))
            || self.job.deleting
            || (status.holding(ConditionKind::SuccessCriteriaMet).is_some()
                && (pod.deleting || !pod.phase.is_final()))
    }

    /// The last version of every pod that ever existed.
    pub(super) fn last_seen(&self) -> BTreeMap<&Uid, &Pod> {
        let seen = self.pod_watch.iter().filter_map(|event| match event {
            PodEvent::Seen(pod) => Some((&pod.uid, pod)),
            PodEvent::Gone(_) => None,
        });
        seen.collect()
    }

    /// Number of pods that have succeeded while they were tracked.
    pub(super) fn succeeded_pods(&self) -> usize {
        self.audit.succeeded.len()
    }

    /// Number of pods that have failed while they were tracked, without those whose failure a policy ignores.
    pub(super) fn counted_failures(&self) -> usize {
        let pods = self.last_seen();
        let ignored = |uid: &&Uid| pods.get(*uid).is_some_and(|pod| self.ignored(pod));
        self.audit.failed.iter().filter(|uid| !ignored(uid)).count()
    }

    fn ignored(&self, pod: &Pod) -> bool {
        let rules = self.job.spec.pod_failure_policy.as_ref();
        let found = rules.zip(pod.outcome.as_ref()).and_then(|(rules, outcome)| judge(rules, outcome));
        found.is_some_and(|found| found.action == PodFailureAction::Ignore)
    }

    /// PUT of the Job's status with the resourceVersion that it was computed from; false on a conflict.
    pub(super) fn put_status(&mut self, new: &JobStatus, version: u64) -> bool {
        if version != self.job_version {
            return false;
        }
        let broken = status_rules::broken(&self.job, new);
        assert!(broken.is_empty(), "{broken:?}\nold {:?}\nnew {new:?}", self.job.status);
        assert_eq!(self.wrong_end(new), None, "{new:?}");
        assert!(new.restarts >= self.job.status.restarts, "restarts go back: {new:?}");
        self.check_counts(new);
        if self.job.status != *new {
            self.job.status = new.clone();
            self.job_changed();
        }
        true
    }

    fn check_counts(&mut self, new: &JobStatus) {
        let old = &self.job.status;
        let (before, after) =
            (old.uncounted.clone().unwrap_or_default(), new.uncounted.clone().unwrap_or_default());
        let termination = [old, new].iter().any(|s| s.holding(ConditionKind::FailureTarget).is_some());
        for (before, after, ended, which) in [
            (&before.succeeded, &after.succeeded, &self.audit.succeeded, "succeeded"),
            (&before.failed, &after.failed, &self.audit.failed, "failed"),
        ] {
            for uid in after.iter().filter(|uid| !before.contains(uid)) {
                let really = ended.contains(uid) || (which == "failed" && termination);
                assert!(really, "{uid} recorded as {which}, which it is not");
                assert!(self.audit.recorded.insert(uid.clone()), "{uid} recorded twice");
            }
            for uid in before.iter().filter(|uid| !after.contains(uid)) {
                let tracked = self.pods.get(uid).is_some_and(|pod| pod.tracked);
                assert!(!tracked, "{uid} counted while it has its finalizer");
            }
        }
        let left = |before: &Vec<Uid>, after: &Vec<Uid>| {
            before.iter().filter(|uid| !after.contains(uid)).count() as u32
        };
        assert_eq!(new.failed - old.failed, left(&before.failed, &after.failed), "failed");
        if let Some(completions) = self.job.spec.completion.indexes() {
            let least = if completions == self.job.spec.parallelism { 0 } else { old.succeeded };
            assert_eq!(new.succeeded, new.completed_indexes.len().max(least), "succeeded");
            self.check_indexes(new);
        } else {
            assert_eq!(new.succeeded - old.succeeded, left(&before.succeeded, &after.succeeded), "succeeded");
        }
    }

    /// An index is complete only if a tracked pod succeeded there. It has failed only if a tracked pod failed
    /// there or was deleted.
    fn check_indexes(&self, new: &JobStatus) {
        let happened = |index, what: fn(&Pod) -> bool| {
            self.pod_watch.iter().any(|event| match event {
                PodEvent::Seen(pod) => pod.index == Some(index) && pod.tracked && what(pod),
                PodEvent::Gone(_) => false,
            })
        };
        let old = &self.job.status;
        for index in new.completed_indexes.difference(&old.completed_indexes).iter() {
            let succeeded = happened(index, |pod| pod.phase == Phase::Succeeded);
            assert!(succeeded, "index {index} is complete without a success");
        }
        let failed = |status: &JobStatus| status.failed_indexes.clone().unwrap_or_default();
        for index in failed(new).difference(&failed(old)).iter() {
            let failed = happened(index, |pod| pod.phase == Phase::Failed || pod.deleting);
            assert!(failed, "index {index} has failed without a failure");
        }
    }
}
