//! How a set follows a new reading of its Job.
//!
//! The status names indexes as intervals, and an interval of a dozen bytes may have 2^31 of them. No step here is taken for
//! each index of an interval: places without pods follow the ledger as intervals do.

use std::collections::BTreeSet;

use super::by_time::Times;
use super::exit_codes::ExitCodes;
use super::ledger::Ledger;
use super::lineages::Lineages;
use super::queues::Queues;
use super::slots::Slot;
use super::{PodSet, step};
use crate::job::exponential::Exponential;
use crate::job::index_set::IndexSet;
use crate::job::spec::Job;

impl PodSet {
    /// Follows a new reading of the Job. Costs O(changes), unless all pods must be classified again (after a
    /// change of completions, policies, back-off, or the announced end).
    pub fn follow(&mut self, job: &Job) {
        let (old, new) = (&self.spec, &job.spec);
        let needs = job.options.needs();
        let pods_mean_the_same = self.needs == needs
            && old.completion == new.completion
            && old.replace_only_failed == new.replace_only_failed
            && old.per_index == new.per_index
            && old.pod_failure_policy == new.pod_failure_policy;
        let ledger = Ledger::of(job);
        let ends = self.ledger.is_open && !ledger.is_open;
        self.counted.follow(job);
        if pods_mean_the_same && self.ledger.termination == ledger.termination {
            self.spec = job.spec.clone();
            self.follow_ledger(ledger);
            self.follow_backoff(job.options.backoff(self.backoff_limits));
        } else {
            self.needs = needs;
            self.rebuild(job);
        }
        match &mut self.lineages {
            Some(lineages) if needs.lineage() => lineages.follow(job),
            lineages => *lineages = Lineages::of(job),
        }
        self.follow_attempt();
        self.follow_names(job);
        self.follow_runs(job.spec.suspend);
        if ends {
            self.drop_job_failures();
        }
    }

    /// Only pods that are held depend on the back-off.
    fn follow_backoff(&mut self, backoff: Exponential) {
        if self.backoff == backoff {
            return;
        }
        self.backoff = backoff;
        let held: Vec<u32> = self.held.keys().copied().collect();
        held.into_iter().for_each(|index| self.refresh_place(index));
    }

    /// Derives everything again that follows from the Job and the pods. The knowledge of the pods stays.
    fn rebuild(&mut self, job: &Job) {
        self.spec = job.spec.clone();
        self.backoff = job.options.backoff(self.backoff_limits);
        self.ledger = Ledger::of(job);
        self.queues = Queues::default();
        self.held.clear();
        let first_run = self.first_run();
        self.times = Times::needed(self.needs).map(|times| Box::new(times.since(first_run)));
        let known = self.exit_codes.take();
        self.exit_codes = ExitCodes::needed(self.needs).map(|none| known.unwrap_or(none));
        for entry in self.pods.values_mut() {
            entry.tags = None;
            entry.pod.forced &= self.needs.lost_nodes;
        }
        self.init_places();
        self.relink_all();
        let pending: Vec<u32> = self.pending.keys().copied().collect();
        pending.into_iter().for_each(|place| self.refresh_place(place));
    }

    fn follow_ledger(&mut self, ledger: Ledger) {
        let (uids, indexes) = self.ledger.difference(&ledger);
        self.ledger = ledger;
        for slot in uids.iter().filter_map(|uid| self.pods.find(uid)).collect::<Vec<_>>() {
            self.relink(slot);
        }
        if indexes.is_empty() {
            return;
        }
        self.reset_places(&indexes);
        for index in self.places_to_refresh(&indexes) {
            for slot in self.ended_at(index) {
                self.relink(slot);
            }
            self.refresh_place(index);
        }
    }

    /// The places of these indexes whose state may follow from more than the ledger. Their number is at most that of the
    /// indexes, and at most that of pods and creations.
    pub(super) fn places_to_refresh(&self, indexes: &IndexSet) -> Vec<u32> {
        // Few indexes are looked up; for many, the pods are.
        let occupied = self.pods.len() + self.pending.len() + self.held.len();
        if indexes.len() as usize <= occupied {
            return indexes.iter().collect();
        }
        let of_pods = self.pods.iter().filter_map(|(_, entry)| entry.tags.as_ref()?.place);
        let places: BTreeSet<u32> = of_pods
            .chain(self.pending.keys().copied())
            .chain(self.held.keys().copied())
            .filter(|place| indexes.contains(*place))
            .collect();
        places.into_iter().collect()
    }

    fn ended_at(&self, index: u32) -> Vec<Slot> {
        let Queues { to_record_success, to_record_failure, to_release, to_release_later, .. } = &self.queues;
        let held = self.held.get(&index).and_then(|held| self.pods.find(&held.uid));
        [to_record_success, to_record_failure, to_release, to_release_later]
            .into_iter()
            .flat_map(|queue| step::at_place(queue, index))
            .chain(held)
            .collect()
    }
}
