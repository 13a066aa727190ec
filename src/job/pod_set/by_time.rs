//! The active pods of a set by how long they have waited to start, or have run, for Jobs with deadlines for that.

use std::collections::{BTreeMap, BTreeSet};

use super::PodSet;
use super::entry::{Entry, PendingRequest};
use super::slots::Slot;
use crate::job::options::Needs;
use crate::job::pod::{Phase, Pod};
use crate::job::second::Second;

/// Active pods by a time.
#[derive(Clone, Debug, Default)]
struct ByTime {
    since: BTreeMap<Slot, Second>,
    pods: BTreeSet<(Second, Slot)>,
}

impl ByTime {
    /// Records since when something is true of a pod; `None`: it is not, or the pod is gone.
    fn set(&mut self, slot: Slot, since: Option<Second>) {
        let before = match since {
            Some(since) => self.since.insert(slot, since),
            None => self.since.remove(&slot),
        };
        before.into_iter().for_each(|before| _ = self.pods.remove(&(before, slot)));
        since.into_iter().for_each(|since| _ = self.pods.insert((since, slot)));
    }
}

/// When pods began to wait or to run.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    stalled: ByTime,
    running: ByTime,
    /// Pods whose nodes may be lost, those that are being deleted included.
    silent: ByTime,
    /// When the first pod began to run, gone ones included.
    first_run: Option<Second>,
    /// The Job is suspended: runs that go on until their pods are removed do not count.
    rests: bool,
}

impl Times {
    /// Nothing is known yet; `None` if the options need nothing.
    pub(super) fn needed(needs: Needs) -> Option<Box<Self>> {
        needs.times.then(Box::default)
    }

    /// The same, with an earlier time at which the first pod began to run.
    pub(super) fn since(self, first_run: Option<Second>) -> Self {
        Self { first_run, ..self }
    }

    /// Follows a change of a pod. `is_active`: it is pending or running, and no request removes it.
    pub(super) fn follow(&mut self, slot: Slot, entry: &Entry, is_active: bool) {
        let since = Some(entry.pod.finished).filter(|_| is_active);
        let runs = entry.pod.phase == Phase::Running && !entry.pod.stalled;
        self.stalled.set(slot, since.filter(|_| entry.pod.stalled));
        self.running.set(slot, since.filter(|_| runs));
        let is_asked = entry.gone || entry.pod.forced || entry.flight != PendingRequest::None;
        let silent_since = entry.pod.silent_since().filter(|_| entry.pod.selected && !is_asked);
        self.silent.set(slot, silent_since);
        if let Some(since) = since.filter(|_| runs && !self.rests) {
            self.first_run = Some(self.first_run.map_or(since, |first| first.min(since)));
        }
    }

    /// Drops a pod.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.stalled.set(slot, None);
        self.running.set(slot, None);
        self.silent.set(slot, None);
    }
}

impl PodSet {
    fn in_order(&self, of: fn(&Times) -> &ByTime) -> impl Iterator<Item = &Pod> + Clone {
        let slots = self.times.iter().flat_map(move |times| &of(times).pods);
        slots.filter_map(|(_, slot)| self.pods.get(*slot)).map(|entry| &entry.pod)
    }

    /// Active pods that wait to start, those first that have waited longest. Empty unless the Job has a deadline.
    pub fn stalled(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.in_order(|times| &times.stalled)
    }

    /// Active pods that run, those first that have run longest. Empty unless the Job has a deadline.
    pub fn running(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.in_order(|times| &times.running)
    }

    /// Pods whose nodes may be lost, those first that have been silent for longest. Pods that are deleted by force are not
    /// among them. Empty unless the Job has a deadline.
    pub fn silent(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.in_order(|times| &times.silent)
    }

    /// When the first pod began to run, as far as the set has seen. Nothing unless the Job has a deadline.
    pub fn first_run(&self) -> Option<Second> {
        self.times.as_ref()?.first_run
    }

    /// Follows whether the Job is suspended, which ends its run. The next run begins with the first pod that runs when the Job
    /// is resumed, or later.
    pub(super) fn follow_runs(&mut self, rests: bool) {
        let Some(times) = &mut self.times else { return };
        if rests {
            times.first_run = None;
        } else if times.rests {
            times.first_run = times.running.pods.first().map(|(since, _)| *since);
        }
        times.rests = rests;
    }
}
